"""The base class of all models: checks of rows, prediction in blocks of rows, names and explanations.

A model is a frozen dataclass with the fields that `Model` lists. It does not depend on training. Its `index` is built
at the first prediction. It searches for a few rows at a time, by `top(X, k)` and `above(X, threshold)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.errors import InputError
from longtail.hybrid import HybridRows, Rows, as_csr, normalized, take_columns
from longtail.matrix import ones
from longtail.models.calibrator import Calibrator
from longtail.models.rules import Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

ROWS_PER_BLOCK = 256  # rows that a thread scores at a time; few, so that threads finish together and Ctrl-C is quick


class FeaturePipeline(Protocol):
    """Turns raw texts into X, as data.TextFeatures does."""

    @property
    def takes_vectors(self) -> bool: ...

    def transform(self, texts: Any, dense: np.ndarray | None = None) -> Rows: ...


class Index(Protocol):
    """A form of the model in which scoring is fast."""

    def top(self, X: Any, k: int) -> TopK: ...

    def above(self, X: Any, threshold: float) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Contribution:
    """The contribution of one feature to a score: its value in the row times its weight for the label."""

    feature: str
    value: float
    weight: float
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """The contributions of the features of a row to its score for a label.

    In a linear model, the contributions and the bias add up to `score`. For a hashed model, see `HashedModel.explain`.
    """

    label: int
    name: Any
    score: float
    bias: float
    contributions: list[Contribution]  # largest absolute share first
    offset: float = 0.0  # what a rule adds to the label
    probability: float | None = None  # if the model is calibrated

    def __str__(self) -> str:
        chance = "" if self.probability is None else f", probability {self.probability:.3f},"
        lines = [f"score {self.score:+.4f}{chance} for label {self.name}"]
        lines += [f"  {c.contribution:+.4f}  {c.feature}" for c in self.contributions]
        lines.append(f"  {self.bias:+.4f}  (bias)")
        return "\n".join([*lines, f"  {self.offset:+.4f}  (rule)"] if self.offset else lines)


class Model(ABC):
    """Base class of all models. All methods take a canonical X (longtail.check)."""

    n_features: int
    bias: float
    multiclass: bool
    label_names: np.ndarray | None
    feature_names: Sequence[str] | None
    text_features: FeaturePipeline | None
    normalize: bool
    calibrator: Calibrator | None
    thresholds: Thresholds | None
    rules: Rules | None
    threshold: ClassVar[float]  # the score above which a label is predicted if the model has no `thresholds`
    log_scores: ClassVar[bool]  # whether scores are probabilities; the margin is then the logarithm of the score

    @property
    @abstractmethod
    def n_labels(self) -> int: ...

    @property
    def takes_texts(self) -> bool:
        """Whether texts are enough to predict, without embeddings that were computed elsewhere."""
        return self.text_features is not None and not self.text_features.takes_vectors

    @property
    def is_calibrated(self) -> bool:
        """Whether the model gives probabilities."""
        return self.calibrator is not None

    @property
    def frequencies(self) -> tuple[np.ndarray, int] | None:
        """The number of training rows of every label, and of all training rows. None if the model is not calibrated."""
        return None if self.calibrator is None else (self.calibrator.counts, self.calibrator.n_samples)

    @property
    @abstractmethod
    def n_weights(self) -> int:
        """Number of weights that are stored."""

    @property
    @abstractmethod
    def index(self) -> Index:
        """The form of the model that is used for prediction. It is built at the first use."""

    @abstractmethod
    def scores(self, X: Rows, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of the given labels, which are column numbers: a float32 array of shape (rows, len(labels))."""

    @abstractmethod
    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the features with a weight for the label (in increasing order), their weights, and the bias term."""

    @abstractmethod
    def explain(self, x: Rows, label: int, *, top: int | None = None) -> Explanation:
        """The features of the single row `x` behind its score for `label` (a column number), largest share first."""

    def _check_names(self) -> None:
        if self.label_names is not None and len(self.label_names) != self.n_labels:
            raise InputError(f"{len(self.label_names)} label names were given for {self.n_labels} labels")
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise InputError(f"{len(self.feature_names)} feature names were given for {self.n_features} features")

    def _check_decisions(self) -> None:
        """Check that calibrator, thresholds and rules have as many labels as the model."""
        counts = self.calibrator and len(self.calibrator.counts)
        limits = self.thresholds and self.thresholds.limits.ndim and len(self.thresholds.limits)
        offsets = self.rules and len(self.rules.offsets)
        for noun, found in (("calibrator", counts), ("thresholds", limits), ("rules", offsets)):
            if found and found != self.n_labels:
                raise InputError(f"the {noun} are about {found} labels, but the model has {self.n_labels}")

    # --- prediction --------------------------------------------------------------------------------------------------

    def predict_topk(self, X: Rows, k: int = 5, *, n_jobs: int | None = None) -> TopK:
        """Return the k best labels of every row, by probability if the model is calibrated, otherwise by score.

        Labels with equal scores are in the order of their columns. Fewer than k labels are returned if the model has
        fewer, or if its rules allow fewer. The best labels by score are exact. A calibrated model takes the `depth`
        labels with the best scores and sorts them by probability.
        """
        if self.calibrator is None:
            return self._best(X, k, n_jobs)
        depth = k if self.calibrator.keeps_order else max(k, self.calibrator.depth)
        return self.calibrator.rank(self._best(X, depth, n_jobs)).first(k)

    def predict_labels(self, X: Rows, *, n_jobs: int | None = None) -> sp.csr_array:
        """Return a 0/1 indicator of the labels above the thresholds of the model, or above its default threshold."""
        if self.thresholds is None:
            return self.predict_above(X, n_jobs=n_jobs)
        top = self.predict_topk(X, self.thresholds.n_candidates, n_jobs=n_jobs)
        chosen = self.thresholds.chosen(top)
        indptr = np.concatenate([[0], np.cumsum(chosen.sum(axis=1))])
        found = ones(top.labels[chosen], indptr, (X.shape[0], self.n_labels))
        found.sort_indices()
        return found

    def probabilities(self, X: Rows) -> np.ndarray:
        """The probabilities of all labels of a calibrated model: a float32 array of shape (rows, n_labels)."""
        if self.calibrator is None:
            raise InputError("the model has no calibrator, so it has no probabilities; train with calibrate=True")
        scores = self.scores(X, np.arange(self.n_labels))
        order = np.argsort(-scores, axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(1, self.n_labels + 1)[None, :], axis=1)
        return self.calibrator.probabilities(np.arange(self.n_labels)[None, :], scores, ranks)

    def _best(self, X: Rows, k: int, n_jobs: int | None = None) -> TopK:
        """The k best labels by score."""
        return self._search(self._rows(X), k, n_jobs)

    def _search(self, X: Rows, k: int, n_jobs: int | None = None) -> TopK:
        """The k best labels of rows that are checked and normalized."""
        n_allowed = self.n_labels if self.rules is None else self.rules.n_allowed
        index, k = self.index, min(k, n_allowed)  # building the index here avoids building it in every thread
        if X.shape[0] <= ROWS_PER_BLOCK:  # a service sends single rows, so this path avoids threads and copies
            return index.top(X, k)
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)

        def fill(rows: range) -> None:
            part = index.top(X[rows.start : rows.stop], k)
            labels[rows.start : rows.stop], scores[rows.start : rows.stop] = part.labels, part.scores

        for _ in parallel.run(fill, parallel.ranges(X.shape[0], ROWS_PER_BLOCK), n_jobs):
            pass
        return TopK(labels, scores)

    def predict_above(self, X: Rows, threshold: float | None = None, *, n_jobs: int | None = None) -> sp.csr_array:
        """Return a 0/1 indicator of the labels that score above `threshold`. The default is the class attribute."""
        X = self._rows(X)
        index, limit = self.index, self.threshold if threshold is None else threshold
        blocks = parallel.ranges(X.shape[0], ROWS_PER_BLOCK)
        n_jobs = 1 if len(blocks) == 1 else n_jobs
        parts = list(parallel.run(lambda rows: index.above(X[rows.start : rows.stop], limit), blocks, n_jobs))
        indices = np.concatenate([found for found, _ in parts]) if parts else np.empty(0, np.int32)
        counts = np.concatenate([np.diff(ends) for _, ends in parts]) if parts else np.empty(0, np.int64)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_array((np.ones(len(indices), np.int32), indices, indptr), shape=(X.shape[0], self.n_labels))

    def _rows(self, X: Rows) -> Any:
        """Check X, divide it into the parts that the model has, and normalize its rows if the model has `normalize`.

        The kernels rely on this check: a feature number that is too large would make them read out of bounds, and they
        would miss a feature that is out of order.
        """
        sparse = X.sparse if isinstance(X, HybridRows) else X
        if sparse.format != "csr" or X.shape[1] != self.n_features:
            raise InputError(
                f"X is {sparse.format} with {X.shape[1]} features; the model takes csr with {self.n_features}"
            )
        if not sparse.has_canonical_format:
            raise InputError("X has rows with unsorted or repeated features; call X.sum_duplicates() first")
        X = self._divided(X)
        return normalized(X) if self.normalize else X

    def _divided(self, X: Rows) -> Rows:
        """X with the dense features of the model as dense part."""
        columns = self.dense_columns
        if columns is None:
            return as_csr(X) if isinstance(X, HybridRows) else X
        return X.split_as(columns) if isinstance(X, HybridRows) else take_columns(X, columns)

    @property
    def dense_columns(self) -> np.ndarray | None:
        """The features with dense weights; None if the model has none."""
        return None

    def with_dense(self, columns: np.ndarray) -> Model:
        """The model with the weights of these features in a dense array, if that is smaller. Scores stay the same."""
        return self

    def _one_row(self, x: Rows) -> Any:
        x = self._rows(x)
        if x.shape[0] != 1:
            raise InputError(f"explain takes one row, but {x.shape[0]} were given; pass X[[i]]")
        return x

    def _shares(self, x: Rows, weight_of: dict[int, float]) -> list[Contribution]:
        """Return the contributions of the features of x that have a weight, largest absolute value first.

        The features of an encoder have one share together, because a single one of them means nothing to people. Its
        value and weight are the lengths of the vectors.
        """
        dense = set(x.columns.tolist()) if isinstance(x, HybridRows) else set()
        row = as_csr(x)
        shares = []
        of_encoder: dict[str, list[tuple[float, float]]] = {}
        for j, value in zip(row.indices.tolist(), row.data.tolist(), strict=True):
            if j in weight_of:
                encoder = self._encoder_of(j) or ("embedding" if j in dense else None)
                if encoder is None:
                    shares.append(Contribution(self.feature_name(j), value, weight_of[j], value * weight_of[j]))
                else:
                    of_encoder.setdefault(encoder, []).append((value, weight_of[j]))
        for encoder, pairs in of_encoder.items():
            values, weights = np.array(pairs).T
            lengths = float(np.linalg.norm(values)), float(np.linalg.norm(weights))
            shares.append(Contribution(f"({encoder})", *lengths, float(values @ weights)))
        return sorted(shares, key=lambda share: -abs(share.contribution))

    def _encoder_of(self, feature: int) -> str | None:
        """Return the name of the encoder that makes this feature; None for a word, or if it is not known."""
        encoder_of_column = getattr(self.text_features, "encoder_of_column", None)
        return None if encoder_of_column is None else encoder_of_column(feature)

    def _probability(self, x: Rows, label: int, score: float) -> float | None:
        """Return the probability of a label of the single row x, given its score. None without a calibrator.

        The row is checked and normalized.
        """
        if self.calibrator is None:
            return None
        top = self._search(x, self.calibrator.depth)
        found = np.flatnonzero(top.labels[0] == label)
        rank = found[0] + 1 if len(found) else top.labels.shape[1] + 1
        scores = np.array([[score, top.scores[0, 0]]])
        ranks = np.array([[rank, 1]])
        labels = np.array([[label, top.labels[0, 0]]])
        return float(self.calibrator.probabilities(labels, scores, ranks)[0, 0])

    # --- names -------------------------------------------------------------------------------------------------------

    def label_name(self, label: int) -> Any:
        """Return the name of a label, or its column number if the labels have no names."""
        return int(label) if self.label_names is None else self.label_names[label]

    def feature_name(self, feature: int) -> str:
        names = self._feature_names
        return f"feature {feature}" if names is None else names[feature]

    @cached_property
    def _feature_names(self) -> Sequence[str] | None:
        if self.feature_names is not None:
            return self.feature_names
        names = getattr(self.text_features, "column_names", None)
        return None if names is None else names()

    def _label_ids(self, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        ids = np.asarray(labels)
        if ids.dtype.kind not in "iu" or ((ids < 0) | (ids >= self.n_labels)).any():
            raise InputError(f"labels are column numbers from 0 to {self.n_labels - 1}; got {labels!r}")
        return ids
