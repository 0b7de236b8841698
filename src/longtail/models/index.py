"""W in the forms that topk.py scores with; its docstring explains them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, frozen
from longtail.topk import LANES, LEVELS, TopK, fill_columns, find_peaks, rows_above, top_rows

DENSE_SHARE = 8  # a feature of more than L / DENSE_SHARE labels gets a column: all columns are then smaller than W
SPILL_SHARE = 256  # of L: so many weights of a column may spill, which keeps the steps of all others small
SMALLEST_STEP = 1e-30  # below, underflow is near; the feature keeps its list
LOOKUP_PRICE = 64.0  # to find one weight of a label costs as much as so many entries of lists

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class InvertedIndex:
    """W for scoring: tuples of read-only arrays, as the kernels of topk.py take them."""

    lists: Arrays
    W: Arrays
    columns: Arrays
    spill: Arrays
    peaks: Arrays
    bias_scores: np.ndarray

    @classmethod
    def of(cls, W: sp.csr_array, n_features: int, bias: float) -> InvertedIndex:
        if not W.has_canonical_format:
            W = W.copy()
            W.sum_duplicates()
        weights, labels, ends = csr_parts(W.T.tocsr())
        bias_scores = np.zeros(_round_up(W.shape[0]), np.float32)
        if bias:
            bias_scores[labels[ends[n_features] :]] = np.float32(bias) * weights[ends[n_features] :]
        lists, peaks = (weights, labels, ends[: n_features + 1]), np.empty(n_features, np.float32)
        find_peaks(weights, ends, peaks)
        bias_peak = np.abs(bias_scores).max(initial=0, keepdims=True)
        columns, spill = _columns(lists, peaks, W.shape[0])
        return cls(lists, csr_parts(W), columns, spill, _frozen(bias_peak, peaks), *_frozen(bias_scores))

    @property
    def n_labels(self) -> int:
        return len(self.W[2]) - 1

    def top(self, X: sp.csr_array, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        k = min(k, self.n_labels)
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        if k:
            top_rows(*self._arguments(X), labels, scores)
        return TopK(labels, scores)

    def above(self, X: sp.csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels scoring more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        n, arguments = X.shape[0], self._arguments(X)
        found, ends, row = np.empty(max(1024, 8 * n), np.int32), np.zeros(n + 1, np.int64), 0
        while True:  # the number of labels above is known only after the fact: go on where the space ran out
            row = rows_above(*arguments, np.float32(threshold), row, found, ends)
            if row == n:
                return found[: ends[n]].copy(), ends  # a view would keep the whole space alive
            found = np.concatenate([found, np.empty(max(len(found), self.n_labels), np.int32)])

    def _arguments(self, X: sp.csr_array) -> tuple:
        """Those that both kernels begin with; the last are what a thread works in: scores, and a row's columns."""
        most = int(np.diff(X.indptr).max(initial=0))
        scores, work = np.empty_like(self.bias_scores), (np.empty(most, np.float32), np.empty(most, np.uint32))
        index = (self.lists, self.W, self.columns, self.spill, self.peaks, self.bias_scores)
        return csr_parts(X), *index, LOOKUP_PRICE, scores, work


def _columns(lists: Arrays, peaks: np.ndarray, n_labels: int) -> tuple[Arrays, Arrays]:
    """Columns and spill of the frequent features."""
    (weights, _, ends), n_spill = lists, n_labels // SPILL_SHARE
    features = np.flatnonzero((np.diff(ends) * np.uint64(DENSE_SHARE) > n_labels) & np.isfinite(peaks))
    tops = [np.partition(np.abs(weights[ends[j] : ends[j + 1]]), -1 - n_spill)[-1 - n_spill] for j in features]
    steps = np.array(tops, np.float32) / np.float32(LEVELS)
    features, steps = features[steps > SMALLEST_STEP].astype(np.uint32), steps[steps > SMALLEST_STEP]
    column_of = np.full(len(peaks), len(features), np.uint32)
    column_of[features] = np.arange(len(features))
    codes, room = np.zeros((len(features), _round_up(n_labels)), np.int8), len(features) * n_spill
    spill = np.empty(room, np.float32), np.empty(room, np.uint32), np.zeros(len(features) + 1, np.uint64)
    fill_columns(*lists, features, steps, codes, *spill)
    return _frozen(codes, column_of, steps), _frozen(*spill)


def _frozen(*arrays: np.ndarray) -> Arrays:
    return tuple(frozen(array, array.dtype) for array in arrays)


def _round_up(n_labels: int) -> int:
    """To whole steps of LANES."""
    return -(-n_labels // LANES) * LANES
