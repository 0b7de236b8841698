"""A hashed model: R small classifiers over B buckets each, in place of one over all labels (MACH).

    score(x, i) = an aggregate over r of P_r,h_r(i)(x),     P_rb(x) = probability of bucket b under classifier r

Aggregates, with q = 1/B the chance that two labels share a bucket (0 where every label has its own):

    "geometric"   exp(mean over r of log P_r,h_r(i))
    "mean"        (mean over r of P_r,h_r(i) - q) / (1 - q)         (2), (4): unbiased by Theorem 1 of the paper
    "median"      (median over r of P_r,h_r(i) - q) / (1 - q)
    "min"         min over r of P_r,h_r(i)                          the count-min sketch: never too small if P is true

"mean" and "median" are clipped to 0 .. 1; labels rank by the value before that, so clipping makes no ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from longtail.compiled import frozen
from longtail.errors import InputError
from longtail.models import bucket_scan as scan
from longtail.models.base import Explanation, FeaturePipeline, Model
from longtail.models.buckets import Buckets, LinearBuckets
from longtail.models.calibrator import Calibrator
from longtail.models.hashing import Hashes
from longtail.models.rules import RuledIndex, Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

RULES = {"geometric": scan.SUM, "mean": scan.SUM, "median": scan.MEDIAN, "min": scan.LEAST}
AGGREGATES = tuple(RULES)


@dataclass(frozen=True)
class HashedModel(Model):
    """Hashes, bucket classifiers and how to put them together, with names and text pipeline."""

    hashes: Hashes
    buckets: Buckets
    n_features: int
    aggregate: str = "geometric"
    multiclass: bool = False
    label_names: np.ndarray | None = None
    feature_names: Sequence[str] | None = None
    text_features: FeaturePipeline | None = None
    normalize: bool = False
    calibrator: Calibrator | None = None
    thresholds: Thresholds | None = None
    rules: Rules | None = None
    threshold: ClassVar[float] = 0.5
    log_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.aggregate not in AGGREGATES:
            raise InputError(f"aggregate must be one of {', '.join(AGGREGATES)}; got {self.aggregate!r}")
        self._check_names()
        self._check_decisions()

    @property
    def n_labels(self) -> int:
        return self.hashes.n_labels

    @property
    def bias(self) -> float:  # type: ignore[override]
        return self.buckets.bias if isinstance(self.buckets, LinearBuckets) else 0.0

    @property
    def n_weights(self) -> int:
        return len(self.buckets.codes) if isinstance(self.buckets, LinearBuckets) else 0

    @property
    def linear(self) -> LinearBuckets:
        """The bucket classifiers, if they are weights."""
        if not isinstance(self.buckets, LinearBuckets):
            raise InputError("the bucket classifiers of this model are not linear; they have no weights to show")
        return self.buckets

    @cached_property
    def index(self) -> BucketIndex | RuledIndex:
        _ = self.hashes.table  # made here once, not in every thread
        index = BucketIndex(self.hashes, self.buckets, self.aggregate)
        return index if self.rules is None else RuledIndex(index, self.rules)

    def scores(self, X: sp.csr_array, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of the given labels, which are column numbers: a float32 array of shape (rows, len(labels))."""
        ids = self._label_ids(labels)
        return self.index.scores(self._rows(X), ids)

    # --- explaining --------------------------------------------------------------------------------------------------

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """The features with a weight, rising, their weights, and the bias' share of every average logit.

        A label's weight of feature j is its buckets' average weight, counted from the average bucket,
        mean over r of (w_r,h_r(label),j - mean over b of w_rbj): a softmax does not see what all buckets share.
        """
        R, B = self.hashes.n_repetitions, self.hashes.n_buckets
        chosen = np.zeros(R * B)
        chosen[self.hashes.table[label].astype(np.int64) + B * np.arange(R)] = 1 / R
        if self.linear.link == "softmax":
            chosen -= 1 / (R * B)
        weights = self.linear.times(chosen)
        used = np.flatnonzero(weights[:-1])
        return used, weights[used], self.bias * float(weights[-1])

    def explain(self, x: sp.csr_array, label: int, *, top: int | None = None) -> Explanation:
        """The features of the one row `x` that speak for `label` (a column number) or against it, largest share first.

        The score is the model's. Contributions and bias add up to the average logit of the label's buckets, counted
        from the average bucket where buckets compete in a softmax; the score grows with it.
        """
        x = self._one_row(x)
        (label,) = self._label_ids([label])
        features, weights, bias = self.label_weights(label)
        shares = self._shares(x, dict(zip(features.tolist(), weights.tolist(), strict=True)))
        ready = replace(self, normalize=False)  # x already is
        score = float(ready.scores(x, [label])[0, 0])
        offset = 0.0 if self.rules is None else float(self.rules.offsets[label])
        probability = ready._probability(x, label, score)
        return Explanation(int(label), self.label_name(label), score, bias, shares[:top], offset, probability)

    # --- parts -------------------------------------------------------------------------------------------------------

    @staticmethod
    def join(parts: Sequence[HashedModel]) -> HashedModel:
        """The model with the repetitions of all parts, in their order, to the bit."""
        if not parts:
            raise InputError("there is no model to join; give at least one")
        first = parts[0]
        if any(part._convention != first._convention for part in parts):
            raise InputError("models to be joined differ in labels, buckets, features, bias, link or kind of weights")
        if len(parts) == 1:
            return first
        buckets = first.buckets.joined([part.buckets for part in parts])
        return replace(first, hashes=Hashes.joined([part.hashes for part in parts]), buckets=buckets)

    @property
    def _convention(self) -> tuple[object, ...]:
        sizes = self.n_labels, self.n_features, self.hashes.n_buckets
        return *sizes, self.normalize, type(self.buckets), self.buckets.convention


@dataclass(frozen=True)
class BucketIndex:
    """The search for the best labels, and the formulas from bucket values to scores."""

    hashes: Hashes
    buckets: Buckets
    aggregate: str

    def bucket_values(self, X: sp.csr_array) -> np.ndarray:
        """What is put together, P or log P, of all buckets: (rows, R B) float32."""
        values = self.buckets.log_probabilities(X) if self.aggregate == "geometric" else self.buckets.probabilities(X)
        return np.asarray(values, np.float32)

    def scores(self, X: sp.csr_array, labels: np.ndarray) -> np.ndarray:
        """The scores of these labels for every row."""
        values = self.bucket_values(X)
        columns = self.hashes.table[labels].astype(np.int64)
        columns += self.hashes.n_buckets * np.arange(self.hashes.n_repetitions)
        return self.scores_of(self._combined(lambda r: values[:, columns[:, r]]))

    def pairs(self, X: sp.csr_array, labels: np.ndarray) -> np.ndarray:
        """The scores of some labels of every row: `labels` and the result have shape (rows, k)."""
        values = self.bucket_values(X)
        codes = self.hashes.table[labels].astype(np.int64)  # (rows, k, R)
        B = self.hashes.n_buckets
        return self.scores_of(self._combined(lambda r: np.take_along_axis(values, codes[:, :, r] + B * r, axis=1)))

    def _combined(self, of_repetition: Callable[[int], np.ndarray]) -> np.ndarray:
        """The sum, median or minimum of the values of all repetitions."""
        rule, R = RULES[self.aggregate], self.hashes.n_repetitions
        if rule == scan.MEDIAN:
            return np.median(np.stack([of_repetition(r) for r in range(R)]), axis=0)
        combine = np.add if rule == scan.SUM else np.minimum
        total = of_repetition(0)
        for r in range(1, R):
            total = combine(total, of_repetition(r))
        return total

    def scores_of(self, values: np.ndarray) -> np.ndarray:
        """Scores from sums, medians or minima over the repetitions; monotone."""
        q, R = 0.0 if self.hashes.perfect else 1 / self.hashes.n_buckets, self.hashes.n_repetitions
        if self.aggregate == "geometric":
            return np.exp(values / np.float32(R))
        if self.aggregate == "min":
            return np.asarray(values, np.float32)
        average = values / np.float32(R if self.aggregate == "mean" else 1)
        return np.clip((average - np.float32(q)) / np.float32(1 - q), 0, 1).astype(np.float32)

    def value_at(self, score: float) -> float:
        """The sum, median or minimum that has this score."""
        q, R = 0.0 if self.hashes.perfect else 1 / self.hashes.n_buckets, self.hashes.n_repetitions
        if self.aggregate == "geometric":
            return R * np.log(score) if score > 0 else -np.inf
        if self.aggregate == "min":
            return score
        if not 0 <= score < 1:  # nothing scores above 1, and everything above less than 0
            return -np.inf if score < 0 else np.inf
        return (score * (1 - q) + q) * (R if self.aggregate == "mean" else 1)

    def top(self, X: sp.csr_array, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        k = min(k, self.hashes.n_labels)
        labels, values = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        if k:
            codes, rule, scratch = self.hashes.table, RULES[self.aggregate], self._scratch()
            for start, tables in self._tiles(X):
                rows = slice(start, start + scan.LANES)
                scan.best_labels(rule, codes, self.hashes.n_buckets, tables, scratch, labels[rows], values[rows])
        return TopK(labels, self.scores_of(values))

    def above(self, X: sp.csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels scoring more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        limit, parts, counts = np.float32(self.value_at(threshold)), [], [np.zeros(1, np.int64)]
        for start, tables in self._tiles(X):
            rows = min(scan.LANES, X.shape[0] - start)
            limits = np.full(scan.LANES, np.inf, np.float32)
            limits[:rows] = limit
            labels, lanes = self._found(tables, limits)
            parts.append(labels[np.argsort(lanes, kind="stable")])
            counts.append(np.bincount(lanes, minlength=rows)[:rows])
        indices = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return indices, np.cumsum(np.concatenate(counts))

    def _found(self, tables: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The labels above the limits of 16 rows, and which of these rows they were found in."""
        labels, lanes = np.empty(4096, np.int32), np.empty(4096, np.int32)
        label, at, codes, scratch = 0, 0, self.hashes.table, self._scratch()
        while True:  # how many there are is known only after the fact: go on where the space ran out
            label, at = scan.labels_above(
                RULES[self.aggregate], codes, self.hashes.n_buckets, tables, limits, scratch, label, labels, lanes, at
            )
            if label == self.hashes.n_labels:
                return labels[:at], lanes[:at]
            labels, lanes = (np.concatenate([array, np.empty_like(array)]) for array in (labels, lanes))

    def _tiles(self, X: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        """The bucket values of 16 rows at a time, one row to a lane: (R B, 16)."""
        values = self.bucket_values(X)
        for start in range(0, X.shape[0], scan.LANES):
            part = values[start : start + scan.LANES]
            tables = np.zeros((values.shape[1], scan.LANES), np.float32)
            tables[:, : len(part)] = part.T
            yield start, frozen(tables, np.float32)

    def _scratch(self) -> np.ndarray:
        return np.empty(self.hashes.n_repetitions, np.float32)
