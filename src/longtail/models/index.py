"""The inverted index of a linear model: W in the forms that index_kernels.py scores with (its docstring explains them).

Besides W itself (8 bytes per weight), an index takes 8 bytes per weight for the lists and at most as much again for the
columns, because a column of L bytes stands for more than L / 8 weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, frozen
from longtail.models.batch import Batch, PlainBatch
from longtail.models.index_kernels import (
    LABELS_AT_ONCE,
    LEVELS,
    fill_columns,
    find_peaks,
    rows_above,
    score_pairs,
    top_rows,
)
from longtail.topk import TopK

FEATURE_BYTES = 20  # bytes that the index takes for a feature, even if it has no weights
COLUMN_SHARE = 8  # a feature with weights for more than L / COLUMN_SHARE labels gets a column
SPILL_SHARE = 256  # at most L / SPILL_SHARE weights of a column spill; without them, the step is small
SMALLEST_STEP = 1e-30  # smaller steps are close to underflow, so the feature then has no column
LOOKUP_PRICE = 64.0  # finding one weight of a label takes as long as adding this number of list entries


Base: TypeAlias = "tuple[np.ndarray, np.ndarray]"  # `base` and `peaks` of IndexRows


class FeatureLists(NamedTuple):
    """W by feature: the part of an index that takes long to make. It depends on W alone, so it can be stored beside W.

    All arrays are read-only. Columns of W are the features, and the bias if W has a column for it.
    """

    weights: np.ndarray  # the list of column j of W: its labels, and their weights, are at ends[j] : ends[j + 1]
    labels: np.ndarray
    ends: np.ndarray
    codes: np.ndarray  # (columns, labels rounded up to a multiple of LABELS_AT_ONCE)
    column_of: np.ndarray  # the column of each feature; the number of columns if it has none
    steps: np.ndarray  # (columns,) the weight of a code of 1
    spill_weights: np.ndarray  # lists as above, one per column
    spill_labels: np.ndarray
    spill_ends: np.ndarray
    peaks: np.ndarray  # the largest |weight| of each feature

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> FeatureLists:
        """The lists from arrays with the names of the fields, whose types may differ in sign. They are not copied."""
        types = {"codes": np.int8, "labels": np.uint32, "column_of": np.uint32, "spill_labels": np.uint32,
                 "ends": np.uint64, "spill_ends": np.uint64}  # fmt: skip
        return cls(**{name: frozen(arrays[name], types.get(name, np.float32)) for name in cls._fields})

    @classmethod
    def of(cls, W: sp.csr_array, n_features: int) -> FeatureLists:
        """The lists of W (n_labels, n_features, plus a last column for the bias if there is one)."""
        weights, labels, ends = csr_parts(canonical(W).T.tocsr())
        peaks = np.empty(n_features, np.float32)
        find_peaks(weights, ends[: n_features + 1], peaks)
        columns = _columns(weights, labels, ends[: n_features + 1], peaks, W.shape[0])
        return cls(weights, labels, ends, *columns, frozen(peaks, np.float32))


class IndexRows(NamedTuple):
    """Rows in the form that the kernels take."""

    data: np.ndarray  # the sparse part, as `csr_parts` returns it
    indices: np.ndarray
    indptr: np.ndarray
    base: np.ndarray  # (rows, width of codes) the terms of the scores that are not sparse; one row if all rows share it
    peaks: np.ndarray  # the largest finite |base| of each row of `base`

    @classmethod
    def of(cls, X: sp.csr_array, base: Base) -> IndexRows:
        scores, peaks = base
        return cls(*csr_parts(X), frozen(scores, np.float32), frozen(peaks, np.float32))


class InvertedIndex(NamedTuple):
    """W in the forms that the kernels take. All arrays are read-only. Arrays over labels are in column order of Y."""

    weights: np.ndarray  # these ten fields are those of FeatureLists
    labels: np.ndarray
    ends: np.ndarray
    codes: np.ndarray
    column_of: np.ndarray
    steps: np.ndarray
    spill_weights: np.ndarray
    spill_labels: np.ndarray
    spill_ends: np.ndarray
    peaks: np.ndarray
    W_data: np.ndarray  # W by label, canonical
    W_indices: np.ndarray
    W_indptr: np.ndarray
    bias_scores: np.ndarray  # the bias term of each score, then zeros up to the width of codes
    bias_peak: np.ndarray  # (1,) the largest finite |bias score|; a label at minus infinity needs no bound
    price: float = LOOKUP_PRICE

    @classmethod
    def of(
        cls,
        W: sp.csr_array,
        n_features: int,
        bias: float,
        offsets: np.ndarray | None = None,
        lists: FeatureLists | None = None,
    ) -> InvertedIndex:
        """The index of weights W (n_labels, n_features, plus a last column for the bias if it is positive).

        `offsets` are added to the scores of the labels; a label with -inf scores -inf and needs no bound. `lists` are
        those of W, if they are known.
        """
        W = canonical(W)
        lists = FeatureLists.of(W, n_features) if lists is None else lists
        bias_scores = np.zeros(width_of(W.shape[0]), np.float32)
        if bias:
            own = slice(int(lists.ends[n_features]), None)
            bias_scores[lists.labels[own]] = np.float32(bias) * lists.weights[own]
        if offsets is not None:
            bias_scores[: len(offsets)] += offsets
        bias_peak = [np.abs(bias_scores[np.isfinite(bias_scores)]).max(initial=0)]
        return cls(*lists, *csr_parts(W), frozen(bias_scores, np.float32), frozen(bias_peak, np.float32))

    @property
    def lists(self) -> FeatureLists:
        """The part of the index that can be stored."""
        return FeatureLists(**{name: getattr(self, name) for name in FeatureLists._fields})

    @property
    def n_labels(self) -> int:
        return len(self.W_indptr) - 1

    def rows(self, X: sp.csr_array, base: Base | None = None) -> IndexRows:
        """X in the form of the kernels. The base of every row is the bias term, unless another one is given."""
        return IndexRows.of(X, (self.bias_scores[None, :], self.bias_peak) if base is None else base)

    def top(self, X: sp.csr_array, k: int, base: Base | None = None) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        size = X.shape[0], min(k, self.n_labels)
        top = TopK(np.empty(size, np.int32), np.empty(size, np.float32))
        if size[1]:
            top_rows(self.rows(X, base), self, *self._buffers(X), top.labels, top.scores)
        return top

    def above(self, X: sp.csr_array, threshold: float, base: Base | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The labels that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        return labels_above(self, rows_above, X, threshold, base)

    def pairs(
        self, X: sp.csr_array, rows: np.ndarray, labels: np.ndarray, bases: np.ndarray | None = None
    ) -> np.ndarray:
        """The scores of some pairs of a row and a label. `bases` are the terms of these scores that are not sparse."""
        scores = np.take(self.bias_scores, labels) if bases is None else bases.copy()
        score_pairs(self.rows(X), self, frozen(rows, np.int64), frozen(labels, np.uint32), scores)
        return scores

    def batch(self, X: sp.csr_array) -> Batch:
        """These rows, to be searched and scored."""
        return PlainBatch(self, X)

    def _buffers(self, X: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The buffers of a thread: the scores of a row, and the factors and numbers of its columns."""
        most = int(np.diff(X.indptr).max(initial=0))
        return np.empty_like(self.bias_scores), np.empty(most, np.float32), np.empty(most, np.uint32)


def labels_above(
    index: Any, kernel: Any, X: sp.csr_array, threshold: float, base: Base | None
) -> tuple[np.ndarray, np.ndarray]:
    """The labels above `threshold` as CSR `indices` and `indptr`, by the kernel `rows_above` of this kind of index."""
    n, row = X.shape[0], 0
    rows, buffers = index.rows(X, base), index._buffers(X)
    found = np.empty(max(1024, 8 * n), np.int32)
    ends = np.zeros(n + 1, np.int64)
    while True:  # the number of labels is not known in advance: if the space runs out, continue with more
        row = kernel(rows, index, *buffers, np.float32(threshold), row, found, ends)
        if row == n:
            return found[: ends[n]].copy(), ends  # a view would keep all of `found` in memory
        found = np.concatenate([found, np.empty(max(len(found), index.n_labels), np.int32)])


def canonical(W: sp.csr_array) -> sp.csr_array:
    """W with the columns of every row sorted and unique. It is copied if they are not."""
    if not W.has_canonical_format:
        W = W.copy()
        W.sum_duplicates()
    return W


def _columns(
    weights: np.ndarray, labels: np.ndarray, ends: np.ndarray, peaks: np.ndarray, n_labels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields `codes` to `spill_ends`: the columns of the frequent features."""
    n_spill = n_labels // SPILL_SHARE
    frequent = np.diff(ends) * np.uint64(COLUMN_SHARE) > n_labels
    features = np.flatnonzero(frequent & np.isfinite(peaks))
    largest = [np.partition(np.abs(weights[ends[j] : ends[j + 1]]), -1 - n_spill)[-1 - n_spill] for j in features]
    steps = np.array(largest, np.float32) / np.float32(LEVELS)
    features, steps = features[steps > SMALLEST_STEP].astype(np.uint32), steps[steps > SMALLEST_STEP]
    column_of = np.full(len(peaks), len(features), np.uint32)
    column_of[features] = np.arange(len(features))
    codes = np.zeros((len(features), width_of(n_labels)), np.int8)
    spill_weights = np.empty(len(features) * n_spill, np.float32)
    spill_labels = np.empty(len(features) * n_spill, np.uint32)
    spill_ends = np.zeros(len(features) + 1, np.uint64)
    fill_columns(weights, labels, ends, features, steps, codes, spill_weights, spill_labels, spill_ends)
    return (
        frozen(codes, np.int8),
        frozen(column_of, np.uint32),
        frozen(steps, np.float32),
        frozen(spill_weights[: spill_ends[-1]], np.float32),
        frozen(spill_labels[: spill_ends[-1]], np.uint32),
        frozen(spill_ends, np.uint64),
    )


def width_of(n_labels: int) -> int:
    """`n_labels` rounded up to a multiple of LABELS_AT_ONCE."""
    return -(-n_labels // LABELS_AT_ONCE) * LABELS_AT_ONCE
