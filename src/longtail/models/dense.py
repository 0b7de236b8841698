"""Dense weights of a linear model: one weight per label for each of some features, and the index that uses them.

The features of an embedding have a weight for every label. A plain array takes 2 or 4 bytes per weight, where a sparse
matrix and its inverted index take 16. Weights are kept in half precision if nothing is lost, as with the dual solver of
one-vs-all, which itself rounds them (methods/one_vs_all/panel.py). In 8 bits a weight is a whole number of steps, at
most 127, and every feature has its own step, as in models/compact_weights.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.compiled import frozen
from longtail.errors import InputError
from longtail.hybrid import HybridRows
from longtail.models.batch import Batch, PlainBatch
from longtail.models.compact_weights import EIGHT_BIT, HALF, steps_of
from longtail.models.dense_kernels import PANEL_LABELS, add_products, pair_products
from longtail.models.index import Base, InvertedIndex
from longtail.topk import TopK

if TYPE_CHECKING:
    from longtail.models.compact import CompactIndex

CHUNK_BYTES = 8 << 20  # products of the rows that are scored together


@dataclass(frozen=True, eq=False)
class DenseWeights:
    """The weights of the dense features.

    weights : array of shape (n_labels, n_dense), float16, float32, or int8
    columns : the numbers of the dense features, in increasing order
    steps : the weight of a code of 1 for each feature, in float32; only with int8
    """

    weights: np.ndarray
    columns: np.ndarray
    steps: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.weights.ndim != 2 or self.weights.dtype not in (np.float16, np.float32, np.int8):
            raise InputError("dense weights are an array of shape (n_labels, n_dense), float16, float32 or int8")
        if (self.steps is None) == (self.weights.dtype == np.int8):
            raise InputError("dense weights of int8 have steps, and others have none")
        if self.columns.shape != (self.weights.shape[1],) or (np.diff(self.columns) <= 0).any():
            raise InputError("dense weights need one column number for each dense feature, in increasing order")

    @classmethod
    def of(cls, weights: np.ndarray, columns: np.ndarray) -> DenseWeights:
        """Weights in half precision if it holds them exactly, and otherwise in float32."""
        with np.errstate(over="ignore"):
            half = weights.astype(np.float16)
        exact = bool((half == weights).all())
        return cls(half if exact else weights.astype(np.float32), np.asarray(columns, np.int64))

    def in_form(self, form: str) -> DenseWeights:
        """The weights in a form of models/compact.py: "float32", "half" or "8-bit". They are rounded where needed."""
        if form != EIGHT_BIT:
            floats = self.floats()
            if form == HALF and np.abs(floats).max(initial=0) > np.finfo(np.float16).max:
                raise InputError("a weight is too large for half precision; save with weights='8-bit' or 'float32'")
            return DenseWeights(floats.astype(np.float16) if form == HALF else floats, self.columns)
        if self.steps is not None:
            return self
        floats = self.floats()
        steps = steps_of(np.abs(floats).max(axis=0, initial=0))
        return DenseWeights(np.rint(floats / steps).astype(np.int8), self.columns, steps)

    def floats(self, labels: Any = slice(None)) -> np.ndarray:
        """The weights of some labels in float32."""
        found = np.asarray(self.weights[labels], np.float32)
        return found if self.steps is None else np.asarray(found * self.steps)

    @staticmethod
    def stack(parts: Sequence[DenseWeights | None]) -> DenseWeights | None:
        """The weights of the labels of all parts, in their order; None if no part has any."""
        given = [part for part in parts if part is not None]
        if not given:
            return None
        if len(given) < len(parts) or any(not np.array_equal(part.columns, given[0].columns) for part in given):
            raise InputError("models to be stacked differ in their dense features")
        weights = [part.weights if part.steps is None else part.floats() for part in given]
        return DenseWeights(np.concatenate(weights), given[0].columns)

    @property
    def n_dense(self) -> int:
        return int(self.weights.shape[1])

    def __getitem__(self, labels: slice | np.ndarray) -> DenseWeights:
        """The weights of some labels."""
        return DenseWeights(self.weights[labels], self.columns, self.steps)

    @cached_property
    def panels(self) -> np.ndarray:
        """The weights or codes in the form of the kernels: of shape (panels, n_dense, 32), float16 as its bits."""
        n_labels, n_dense = self.weights.shape
        n_panels = 2 * -(-n_labels // (2 * PANEL_LABELS))  # as many labels as the codes of the index have
        padded = np.zeros((n_panels * PANEL_LABELS, n_dense), self.weights.dtype)
        padded[:n_labels] = self.weights
        panels = padded.reshape(n_panels, PANEL_LABELS, n_dense).transpose(0, 2, 1)
        bits = np.uint16 if self.weights.dtype == np.float16 else self.weights.dtype
        return frozen(np.ascontiguousarray(panels).view(bits), bits)


@dataclass(frozen=True)
class HybridIndex:
    """The index of a model with sparse and dense weights. Its rows are HybridRows with the model's dense features.

    The product of the dense part is the base of a row's scores, and the inverted index adds the sparse part.
    """

    sparse: InvertedIndex | CompactIndex
    dense: DenseWeights

    def top(self, X: HybridRows, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        found = [self.sparse.top(part.sparse, k, self.base(part)) for part in self._chunks(X)]
        if len(found) == 1:
            return found[0]
        return TopK(np.concatenate([top.labels for top in found]), np.concatenate([top.scores for top in found]))

    def above(self, X: HybridRows, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        found = [self.sparse.above(part.sparse, threshold, self.base(part)) for part in self._chunks(X)]
        counts = np.concatenate([np.diff(ends) for _, ends in found])
        return np.concatenate([labels for labels, _ in found]), np.concatenate([[0], np.cumsum(counts)])

    def pairs(self, X: HybridRows, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The scores of some pairs of a row and a label."""
        bases = np.empty(len(labels), np.float32)
        numbers = frozen(rows, np.int64), frozen(labels, np.int64)
        pair_products(self._rows(X), self.dense.panels, self.sparse.bias_scores, *numbers, bases)
        return self.sparse.pairs(X.sparse, rows, labels, bases)

    def batch(self, X: HybridRows) -> Batch:
        """These rows, to be searched and scored."""
        return PlainBatch(self, X)

    def _chunks(self, X: HybridRows) -> list[HybridRows]:
        """X in pieces whose products stay in the cache."""
        size = max(2, CHUNK_BYTES // (4 * len(self.sparse.bias_scores) or 4))
        return [X] if X.shape[0] <= size else [X[start : start + size] for start in range(0, X.shape[0], size)]

    def base(self, X: HybridRows) -> Base:
        """The bias terms and the products of the dense part, and the largest of each row."""
        scores = np.empty((X.shape[0], len(self.sparse.bias_scores)), np.float32)
        peaks = np.empty(X.shape[0], np.float32)
        add_products(self._rows(X), self.dense.panels, self.sparse.bias_scores, scores, peaks)
        return scores, peaks

    def _rows(self, X: HybridRows) -> np.ndarray:
        """The dense part of the rows. Codes are multiplied by their steps here, once for all labels."""
        steps = self.dense.steps
        return frozen(X.dense if steps is None else X.dense * steps, np.float32)
