"""A linear model with compact weights, which serve prediction and everything else: there is no index besides them.

`compacted` makes it from a LinearModel. In half precision its scores have the same bits as those of the LinearModel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from longtail.compiled import frozen
from longtail.errors import InputError
from longtail.hybrid import HybridRows, Rows
from longtail.models import plain
from longtail.models.base import FeaturePipeline, Model
from longtail.models.batch import Batch, PlainBatch
from longtail.models.calibrator import Calibrator
from longtail.models.compact_kernels import TILE, rows_above, score_pairs, score_rows, top_rows, weights_of
from longtail.models.compact_weights import EIGHT_BIT, HALF, ByFeature, CompactWeights, is_half
from longtail.models.dense import DenseWeights, HybridIndex
from longtail.models.index import Base, IndexRows, canonical, labels_above, width_of
from longtail.models.linear import FLOAT32, LinearModel, WeightsInOnePiece
from longtail.models.rules import SCORES_AT_ONCE, Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

FORMS = (FLOAT32, HALF, EIGHT_BIT)  # of the weights of a linear model


class Buffers(NamedTuple):
    """What a thread writes while it scores a row: for each feature of the row its factor, its column, and where its
    list stands."""

    factors: np.ndarray
    numbers: np.ndarray
    entries: np.ndarray
    ends: np.ndarray
    labels: np.ndarray


class CompactIndex(NamedTuple):
    """Compact weights in the form that the kernels take. All arrays are read-only."""

    weights: np.ndarray  # these six fields are those of CompactWeights
    gaps: np.ndarray
    ends: np.ndarray
    columns: np.ndarray
    column_of: np.ndarray
    steps: np.ndarray
    bias_scores: np.ndarray  # the bias term of each score, then zeros up to the width of the columns
    bias_peak: np.ndarray  # not used, because nothing is estimated
    n_labels: int

    @classmethod
    def of(cls, weights: CompactWeights, bias: float, offsets: np.ndarray | None = None) -> CompactIndex:
        """The index of these weights. `offsets` are added to the scores of the labels."""
        bias_scores = np.zeros(width_of(weights.n_labels), np.float32)
        if bias:
            bias_scores[: weights.n_labels] = np.float32(bias) * weights.bias_weights
        if offsets is not None:
            bias_scores[: len(offsets)] += offsets
        base = frozen(bias_scores, np.float32), frozen([0], np.float32)
        return cls(*weights[:6], *base, weights.n_labels)

    def rows(self, X: sp.csr_array, base: Base | None = None) -> IndexRows:
        """X in the form of the kernels. The base of every row is the bias term, unless another one is given."""
        return IndexRows.of(X, (self.bias_scores[None, :], self.bias_peak) if base is None else base)

    def top(self, X: sp.csr_array, k: int, base: Base | None = None) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        return self.top_and_scores(X, k, np.empty((X.shape[0], 0), np.int32), base)[0]

    def top_and_scores(
        self, X: sp.csr_array, k: int, labels: np.ndarray, base: Base | None = None
    ) -> tuple[TopK, np.ndarray]:
        """The `min(k, n_labels)` best labels of every row of X, and the scores of `labels` (rows, any number), which
        must rise in every row. A search computes all scores of a row, so these cost almost nothing."""
        size = X.shape[0], min(k, self.n_labels)
        top = TopK(np.empty(size, np.int32), np.empty(size, np.float32))
        scores = np.empty(labels.shape, np.float32)
        if size[1]:
            wanted = frozen(labels, np.int32)
            top_rows(self.rows(X, base), self, *self._buffers(X), wanted, top.labels, top.scores, scores)
        return top, scores

    def above(self, X: sp.csr_array, threshold: float, base: Base | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The labels that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        return labels_above(self, rows_above, X, threshold, base)

    def pairs(
        self, X: sp.csr_array, rows: np.ndarray, labels: np.ndarray, bases: np.ndarray | None = None
    ) -> np.ndarray:
        """The scores of some pairs of a row and a label. `bases` are the terms of these scores that are not sparse."""
        order = np.argsort(rows.astype(np.int64) * self.n_labels + labels, kind="stable")
        rows, labels = rows[order], labels[order]
        found = np.take(self.bias_scores, labels) if bases is None else bases[order]
        score_pairs(self.rows(X), self, frozen(rows, np.int64), frozen(labels, np.uint64), found)
        scores = np.empty_like(found)
        scores[order] = found
        return scores

    def scores(self, X: sp.csr_array, base: Base | None = None) -> np.ndarray:
        """The scores of all labels: (rows, n_labels) float32."""
        out = np.empty((X.shape[0], self.n_labels), np.float32)
        score_rows(self.rows(X, base), self, *self._buffers(X), out)
        return out

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray]:
        """The features with a weight for the label, and their weights."""
        weights = np.empty(len(self.column_of), np.float32)
        weights_of(np.uint64(label), self, weights)
        features = np.flatnonzero(weights)
        return features, weights[features] * (self.steps[features] if len(self.steps) else np.float32(1))

    def batch(self, X: sp.csr_array) -> Batch:
        """These rows, to be searched and scored."""
        return CompactBatch(self, X)

    def _buffers(self, X: sp.csr_array) -> tuple[Buffers, np.ndarray]:
        most = int(np.diff(X.indptr).max(initial=0))
        types = np.float32, np.uint32, np.uint64, np.uint64, np.uint64
        return Buffers(*(np.empty(most, kind) for kind in types)), np.empty(TILE, np.float32)


@dataclass(frozen=True, eq=False)
class CompactBatch(PlainBatch):
    """A batch that scores further labels while it searches."""

    index: CompactIndex

    def top_and_scores(self, k: int, labels: np.ndarray) -> tuple[TopK, np.ndarray]:
        return self.index.top_and_scores(self.X, k, labels)


@dataclass(frozen=True)
class CompactModel(WeightsInOnePiece):
    """A linear model whose weights are compact. `W` is computed from them at every access."""

    weights: CompactWeights
    n_features: int
    bias: float = 0.0
    multiclass: bool = False
    label_names: np.ndarray | None = None
    feature_names: Sequence[str] | None = None
    text_features: FeaturePipeline | None = None
    normalize: bool = False
    calibrator: Calibrator | None = None
    thresholds: Thresholds | None = None
    rules: Rules | None = None
    dense: DenseWeights | None = None

    def __post_init__(self) -> None:
        if self.weights.n_features != self.n_features or bool(len(self.weights.bias_weights)) != (self.bias > 0):
            raise InputError("the compact weights are not those of the features and the bias of the model")
        self._check_fields()

    @property
    def form(self) -> str:
        return self.weights.form

    @property
    def n_labels(self) -> int:
        return self.weights.n_labels

    @cached_property
    def n_weights(self) -> int:
        return self.weights.n_weights + (0 if self.dense is None else self.dense.weights.size)

    @property
    def weights_per_label(self) -> np.ndarray:
        return np.asarray(np.diff(self.W.indptr) + (0 if self.dense is None else self.dense.n_dense))

    @property
    def W(self) -> sp.csr_array:  # noqa: N802 - as in LinearModel
        """The weights in one matrix, which is made in memory."""
        return self.weights.to_csr()

    def _search(self, X: Rows, k: int, n_jobs: int | None = None) -> TopK:
        """The k best labels of rows that are checked and normalized. The first rows of a process need no kernels."""
        if "index" in vars(self) or isinstance(X, HybridRows):
            return super()._search(X, k, n_jobs)
        if not plain.affordable(X, self.n_labels, X.shape[0] * self.n_labels):
            return super()._search(X, k, n_jobs)
        k = min(k, self.n_labels if self.rules is None else self.rules.n_allowed)
        offsets = None if self.rules is None else self.rules.offsets
        return plain.best(plain.sums(X, self.weights, self.n_labels, self.bias, offsets), k)

    @cached_property
    def index(self) -> CompactIndex | HybridIndex:
        """The weights in the form of the kernels. They are not copied."""
        return self.indexed(None if self.rules is None else self.rules.offsets)

    def indexed(self, offsets: np.ndarray | None) -> CompactIndex | HybridIndex:
        """The index with these offsets of the labels instead of those of the rules."""
        sparse = CompactIndex.of(self.weights, self.bias, offsets)
        return sparse if self.dense is None else HybridIndex(sparse, self.dense)

    def scores(self, X: Rows, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of the given labels, which are column numbers: a float32 array of shape (rows, len(labels))."""
        X, index = self._rows(X), self.index
        ids = self._label_ids(labels)
        scores = np.empty((X.shape[0], len(ids)), np.float32)
        size = max(1, SCORES_AT_ONCE // max(1, self.n_labels))
        for start in range(0, X.shape[0], size):
            part = X[start : start + size]
            if isinstance(index, HybridIndex):
                found = self._sparse_index.scores(part.sparse, index.base(part))
            else:
                found = index.scores(part)
            scores[start : start + size] = found[:, ids]
        return scores

    @property
    def _sparse_index(self) -> CompactIndex:
        return cast(CompactIndex, self.index.sparse) if isinstance(self.index, HybridIndex) else self.index

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the features with a weight (in increasing order), their weights, and the bias term of every score."""
        own = self.weights.bias_weights[label] if self.bias else 0.0
        return *self._with_dense(label, *self._sparse_index.label_weights(label)), self.bias * float(own)

    def with_dense(self, columns: np.ndarray) -> CompactModel:
        """The model itself: compact weights are not divided again."""
        return self

    def to_linear(self) -> LinearModel:
        """The same model with its weights as a matrix of float32."""
        dense = self.dense if self.form == HALF else _in_form(self.dense, FLOAT32)
        return LinearModel(self.W, **{**_shared(self), "dense": dense})


# --- from one form to the other --------------------------------------------------------------------------------------


def compacted(model: Model, form: str | None, *, least: int = 0) -> Model:
    """A linear model in one piece with its weights in this form, one of FORMS. Any other model is returned as it is.

    None means half precision where it loses nothing; models with fewer than `least` weights then stay as they are.
    """
    if isinstance(model, CompactModel) and form not in (None, model.weights.form):
        return compacted(model.to_linear(), form)
    if not isinstance(model, LinearModel) or form == FLOAT32 or (form is None and model.n_weights < least):
        return model
    W = _by_feature(model)
    if form is None and not is_half(W, model.n_features):
        return model
    weights = CompactWeights.of(W, model.n_features, model.n_labels, form or HALF)
    dense = model.dense if form is None else _in_form(model.dense, form)
    return CompactModel(weights, **{**_shared(model), "dense": dense})


def _in_form(dense: DenseWeights | None, form: str) -> DenseWeights | None:
    return None if dense is None else dense.in_form(form)


def _by_feature(model: LinearModel) -> ByFeature:
    lists = model.lists
    if lists is not None:
        return ByFeature(lists.weights, lists.labels, lists.ends)
    W = canonical(model.W).T.tocsr()
    return ByFeature(W.data, W.indices, W.indptr)


def _shared(model: LinearModel | CompactModel) -> dict[str, Any]:
    """The fields that both kinds of model have."""
    names = ("n_features", "bias", "multiclass", "label_names", "feature_names", "text_features", "normalize")
    return {name: getattr(model, name) for name in (*names, "calibrator", "thresholds", "rules", "dense")}
