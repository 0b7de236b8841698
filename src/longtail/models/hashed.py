"""A hashed model: R small classifiers over B buckets each, instead of one classifier over all labels (MACH).

    score(x, i) = an aggregate over r of P_r,h_r(i)(x),     P_rb(x) = probability of bucket b under classifier r

Aggregates, with q = 1/B the probability that two labels share a bucket (0 if every label has its own):

    "geometric"   exp(mean over r of log P_r,h_r(i))
    "mean"        (mean over r of P_r,h_r(i) - q) / (1 - q)          (2), (4) of the paper
    "rate"        1 - exp(-L_i), L_i = (mean over r of l_r,h_r(i) - q l_r) / (1 - q), l_rb = -log(1 - P_rb),
                  l_r = sum over b of l_rb
    "median"      the median over r in place of the mean: of "mean" if a row has one label, else of "rate"
    "min"         min over r of P_r,h_r(i)                           the count-min sketch: never too small if P is exact

If every row has one label, the P of a repetition sum to 1 and P of a bucket is the sum of its labels' probabilities.
"mean" is then unbiased: Theorem 1. With several labels, a bucket holds the union of its labels. Its P is less than the
sum of theirs, the P of a repetition do not sum to 1, and "mean" is biased: with 88 labels of p = 0.6 in 32 buckets, it
gives 0.82 to a label with p = 0. The *rates* -log(1 - P) do add up if labels are independent given x, since then
1 - P = product of (1 - p_j). So (2) holds for rates, with the sum l_r of all rates in place of 1: L_i is an unbiased
estimate of -log(1 - p_i).

"mean", "rate" and "median" are clipped to 0 .. 1. Labels rank by the value before clipping, so clipping causes no ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from longtail.compiled import frozen
from longtail.errors import InputError
from longtail.hybrid import Rows
from longtail.models import scan_kernels as scan
from longtail.models.base import Explanation, FeaturePipeline, Model
from longtail.models.buckets import Buckets, LinearBuckets
from longtail.models.calibrator import Calibrator
from longtail.models.hashing import Hashes
from longtail.models.rules import RuledIndex, Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

RULES = {"geometric": scan.SUM, "mean": scan.SUM, "rate": scan.SUM, "median": scan.MEDIAN, "min": scan.LEAST}
AGGREGATES = tuple(RULES)


@dataclass(frozen=True)
class HashedModel(Model):
    """Hashes, bucket classifiers and the aggregate that combines them, with names and text pipeline."""

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
        """The bucket classifiers, if they are linear."""
        if not isinstance(self.buckets, LinearBuckets):
            raise InputError("the bucket classifiers of this model are not linear; they have no weights to show")
        return self.buckets

    @classmethod
    def joined(cls, models: Sequence[HashedModel]) -> HashedModel:
        """One model with the repetitions of all. Everything but hashes and weights must be equal."""
        first = models[0]
        for model in models[1:]:
            different = [name for name, value in first._shared().items() if model._shared()[name] != value]
            if different:
                raise InputError(f"models of one problem are joined, but these differ in {', '.join(different)}")
        if any(model.hashes.is_identity for model in models):
            raise InputError("there is nothing to join, because every label has a bucket of its own")
        seeds = [pair for model in models for pair in zip(model.hashes.a, model.hashes.b, strict=True)]
        if len(set(seeds)) < len(seeds):
            raise InputError(
                "some repetition is in several of the models; train each part with another first_repetition"
            )
        buckets = LinearBuckets.joined([model.linear for model in models])
        return replace(first, hashes=Hashes.joined([model.hashes for model in models]), buckets=buckets)

    def _shared(self) -> dict[str, Any]:
        """What is equal in all models that can be joined."""
        names = None if self.label_names is None else self.label_names.tolist()
        return {
            "n_buckets": self.hashes.n_buckets,
            "n_labels": self.n_labels,
            "n_features": self.n_features,
            "label_names": names,
            "aggregate": self.aggregate,
            "normalize": self.normalize,
            "multiclass": self.multiclass,
            "link": self.linear.link,
            "bias": self.bias,
            "weights": self.linear.codes.dtype.name,
        }

    @cached_property
    def index(self) -> BucketIndex | RuledIndex:
        _ = self.hashes.table  # computed here, so that threads do not compute it again
        index = BucketIndex(self.hashes, self.buckets, self.aggregate)
        return index if self.rules is None else RuledIndex(index, self.rules)

    def scores(self, X: Rows, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of the given labels, which are column numbers: a float32 array of shape (rows, len(labels))."""
        ids = self._label_ids(labels)
        return self.index.scores(self._rows(X), ids)

    # --- explaining --------------------------------------------------------------------------------------------------

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the features with a weight (in increasing order), their weights, and the bias term of the mean logit.

        The weight of feature j for a label is the mean weight of the label's buckets. A softmax does not change if all
        weights of a feature change by the same amount. With a softmax, weights are therefore relative to the mean
        bucket: mean over r of (w_r,h_r(label),j - mean over b of w_rbj).
        """
        R, B = self.hashes.n_repetitions, self.hashes.n_buckets
        chosen = np.zeros(R * B)
        chosen[self.hashes.table[label].astype(np.int64) + B * np.arange(R)] = 1 / R
        if self.linear.link == "softmax":
            chosen -= 1 / (R * B)
        weights = self.linear.times(chosen)
        used = np.flatnonzero(weights[:-1])
        return used, weights[used], self.bias * float(weights[-1])

    def explain(self, x: Rows, label: int, *, top: int | None = None) -> Explanation:
        """The features of the single row `x` that count for or against `label` (a column number), largest share first.

        `score` is the score of the model. The contributions and the bias add up to the mean logit of the label's
        buckets. With a softmax, this logit is relative to the mean bucket. The score increases with the mean logit.
        """
        x = self._one_row(x)
        (label,) = self._label_ids([label])
        features, weights, bias = self.label_weights(label)
        shares = self._shares(x, dict(zip(features.tolist(), weights.tolist(), strict=True)))
        score = float(self.index.scores(x, np.array([label]))[0, 0])
        offset = 0.0 if self.rules is None else float(self.rules.offsets[label])
        probability = self._probability(x, label, score)
        return Explanation(int(label), self.label_name(label), score, bias, shares[:top], offset, probability)


@dataclass(frozen=True)
class BucketIndex:
    """The search for the best labels, and the formulas from bucket values to scores."""

    hashes: Hashes
    buckets: Buckets
    aggregate: str

    def bucket_values(self, X: sp.csr_array) -> np.ndarray:
        """The values that are aggregated, P, log P or l_rb - q l_r, of all buckets: (rows, R B) float32."""
        if self.aggregate == "geometric":
            return np.asarray(self.buckets.log_probabilities(X), np.float32)
        if not self._uses_rates:
            return np.asarray(self.buckets.probabilities(X), np.float32)
        rates = np.asarray(self.buckets.rates(X), np.float32).reshape(X.shape[0], -1, self.hashes.n_buckets)
        expected = np.float32(self._shared_bucket_probability) * rates.sum(axis=2, keepdims=True)
        return np.asarray((rates - expected).reshape(X.shape[0], -1), np.float32)

    @property
    def _uses_rates(self) -> bool:
        """Whether the aggregate is one of rates: "rate", and "median" if rows have several labels."""
        return self.aggregate == "rate" or (self.aggregate == "median" and not self.buckets.adds_up)

    def scores(self, X: sp.csr_array, labels: np.ndarray) -> np.ndarray:
        """The scores of these labels for every row."""
        values = self.bucket_values(X)
        columns = self.hashes.table[labels].astype(np.int64)
        columns += self.hashes.n_buckets * np.arange(self.hashes.n_repetitions)
        return self.scores_of(self._combined(lambda r: values[:, columns[:, r]]))

    def pairs(self, X: sp.csr_array, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The scores of some pairs of a row and a label."""
        return self.batch(X).pairs(rows, labels)

    def batch(self, X: sp.csr_array) -> BucketBatch:
        """These rows with their bucket values, to be searched and scored."""
        return BucketBatch(self, self.bucket_values(X))

    def pairs_of(self, values: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The scores of some pairs of a row and a label, given the bucket values of all rows."""
        codes = self.hashes.table[labels].astype(np.int64)  # (pairs, R)
        B = self.hashes.n_buckets
        return self.scores_of(self._combined(lambda r: values[rows, codes[:, r] + B * r]))

    def _combined(self, of_repetition: Callable[[int], np.ndarray]) -> np.ndarray:
        """The sum, median or minimum of the values of all repetitions."""
        rule, R = RULES[self.aggregate], self.hashes.n_repetitions
        if rule == scan.MEDIAN:
            return np.asarray(np.median(np.stack([of_repetition(r) for r in range(R)]), axis=0))
        combine = np.add if rule == scan.SUM else np.minimum
        total = of_repetition(0)
        for r in range(1, R):
            total = combine(total, of_repetition(r))
        return total

    def scores_of(self, values: np.ndarray) -> np.ndarray:
        """Scores from sums, medians or minima over the repetitions; increasing."""
        q = self._shared_bucket_probability
        R = self.hashes.n_repetitions
        if self.aggregate == "geometric":
            return np.exp(values / np.float32(R))
        if self.aggregate == "min":
            return np.asarray(values, np.float32)
        average = values / np.float32(1 if self.aggregate == "median" else R)
        if self._uses_rates:
            return np.asarray(-np.expm1(-np.maximum(average / np.float32(1 - q), 0)), np.float32)
        return np.clip((average - np.float32(q)) / np.float32(1 - q), 0, 1).astype(np.float32)

    def value_at(self, score: float) -> float:
        """The sum, median or minimum that has this score."""
        q = self._shared_bucket_probability
        R = self.hashes.n_repetitions
        if self.aggregate == "geometric":
            return R * np.log(score) if score > 0 else -np.inf
        if self.aggregate == "min":
            return score
        if not 0 <= score < 1:  # no score is above 1, and every score is above a negative number
            return -np.inf if score < 0 else np.inf
        size = 1 if self.aggregate == "median" else R
        if self._uses_rates:
            return float(-np.log1p(-score) * (1 - q) * size)
        return (score * (1 - q) + q) * size

    @property
    def _shared_bucket_probability(self) -> float:
        """q: the probability that two labels share a bucket."""
        return 0.0 if self.hashes.is_identity else 1 / self.hashes.n_buckets

    def top(self, X: sp.csr_array, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        return self.batch(X).top(k)

    def top_of(self, values: np.ndarray, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row, given the bucket values."""
        k = min(k, self.hashes.n_labels)
        labels = np.empty((len(values), k), np.int32)
        sums = np.empty((len(values), k), np.float32)
        if k:
            codes = self.hashes.table
            rule = RULES[self.aggregate]
            scratch = self._scratch()
            for start, tables in _tiles(values):
                rows = slice(start, start + scan.SCAN_LANES)
                scan.best_labels(rule, codes, self.hashes.n_buckets, tables, scratch, labels[rows], sums[rows])
        return TopK(labels, self.scores_of(sums))

    def above(self, X: sp.csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        limit = np.float32(self.value_at(threshold))
        parts = []
        counts = [np.zeros(1, np.int64)]
        for start, tables in _tiles(self.bucket_values(X)):
            rows = min(scan.SCAN_LANES, X.shape[0] - start)
            limits = np.full(scan.SCAN_LANES, np.inf, np.float32)
            limits[:rows] = limit
            labels, lanes = self._found(tables, limits)
            parts.append(labels[np.argsort(lanes, kind="stable")])
            counts.append(np.bincount(lanes, minlength=rows)[:rows])
        indices = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return indices, np.cumsum(np.concatenate(counts))

    def _found(self, tables: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The labels above the limits of 16 rows, and the number of the row for each."""
        labels = np.empty(4096, np.int32)
        lanes = np.empty(4096, np.int32)
        codes = self.hashes.table
        scratch = self._scratch()
        label = 0
        at = 0
        while True:  # the number of labels is not known in advance: if the space runs out, continue with more
            label, at = scan.labels_above(
                RULES[self.aggregate], codes, self.hashes.n_buckets, tables, limits, scratch, label, labels, lanes, at
            )
            if label == self.hashes.n_labels:
                return labels[:at], lanes[:at]
            labels = np.concatenate([labels, np.empty_like(labels)])
            lanes = np.concatenate([lanes, np.empty_like(lanes)])

    def _scratch(self) -> np.ndarray:
        return np.empty(self.hashes.n_repetitions, np.float32)


@dataclass(frozen=True, eq=False)
class BucketBatch:
    """Rows whose bucket values are computed once: (rows, R B)."""

    index: BucketIndex
    values: np.ndarray

    def top(self, k: int) -> TopK:
        return self.index.top_of(self.values, k)

    def pairs(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return self.index.pairs_of(self.values, rows, labels)


def _tiles(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The bucket values of 16 rows at a time, one row in each lane: (R B, 16)."""
    for start in range(0, len(values), scan.SCAN_LANES):
        part = values[start : start + scan.SCAN_LANES]
        tables = np.zeros((values.shape[1], scan.SCAN_LANES), np.float32)
        tables[:, : len(part)] = part.T
        yield start, frozen(tables, np.float32)
