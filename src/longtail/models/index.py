"""W in the forms that topk.py scores with; its docstring explains them.

Beside W itself (8 bytes per weight) an index takes 8 bytes per weight for the lists, and at most as much again for the
columns: a column of L bytes stands for more than L / 8 weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail import topk
from longtail.compiled import csr_parts, frozen, kernel

FEATURE_BYTES = 20  # that the index takes for a feature without weights
LEVELS = 127  # codes go from -LEVELS to LEVELS
COLUMN_SHARE = 8  # a feature of more than L / COLUMN_SHARE labels gets a column
SPILL_SHARE = 256  # at most L / SPILL_SHARE weights of a column spill, which keeps the steps of all others small
SMALLEST_STEP = 1e-30  # below, underflow is near; the feature keeps its list
LOOKUP_PRICE = 64.0  # to find one weight of a label costs as much as so many entries of lists


class InvertedIndex(NamedTuple):
    """W for scoring, as the kernels take it. All arrays are read-only; a label's place in an array is its number."""

    weights: np.ndarray  # the list of feature j: weights and labels from ends[j] to ends[j + 1]
    labels: np.ndarray
    ends: np.ndarray
    W_data: np.ndarray  # W by label, canonical
    W_indices: np.ndarray
    W_indptr: np.ndarray
    codes: np.ndarray  # (columns, labels rounded up to LANES)
    column_of: np.ndarray  # the column of each feature; their count if it has none
    steps: np.ndarray  # the weight that a code of 1 stands for, by column
    spill_weights: np.ndarray  # as lists, by column
    spill_labels: np.ndarray
    spill_ends: np.ndarray
    peaks: np.ndarray  # the largest |weight| of each feature
    bias_scores: np.ndarray  # of each label, then zeros up to the width of codes
    bias_peak: float  # the largest |bias score|
    price: float = LOOKUP_PRICE

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
        find_peaks(weights, lists[2], peaks)
        columns = _columns(*lists, peaks, W.shape[0])
        bias_peak = float(np.abs(bias_scores).max(initial=0))
        return cls(
            *lists, *csr_parts(W), *columns, frozen(peaks, np.float32), frozen(bias_scores, np.float32), bias_peak
        )

    @property
    def n_labels(self) -> int:
        return len(self.W_indptr) - 1

    def top(self, X: sp.csr_array, k: int) -> topk.TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        k = min(k, self.n_labels)
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        if k:
            topk.top_rows(csr_parts(X), self, *self._buffers(X), labels, scores)
        return topk.TopK(labels, scores)

    def above(self, X: sp.csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels scoring more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        n, rows, buffers = X.shape[0], csr_parts(X), self._buffers(X)
        found, ends, row = np.empty(max(1024, 8 * n), np.int32), np.zeros(n + 1, np.int64), 0
        while True:  # the number of labels above is known only after the fact: go on where the space ran out
            row = topk.rows_above(rows, self, *buffers, np.float32(threshold), row, found, ends)
            if row == n:
                return found[: ends[n]].copy(), ends  # a view would keep the whole space alive
            found = np.concatenate([found, np.empty(max(len(found), self.n_labels), np.int32)])

    def _buffers(self, X: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a thread works in: the scores of a row, and factors and numbers of its columns."""
        most = int(np.diff(X.indptr).max(initial=0))
        return np.empty_like(self.bias_scores), np.empty(most, np.float32), np.empty(most, np.uint32)


def _columns(
    weights: np.ndarray, labels: np.ndarray, ends: np.ndarray, peaks: np.ndarray, n_labels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields from `codes` to `spill_ends`: columns of the frequent features."""
    n_spill, frequent = n_labels // SPILL_SHARE, np.diff(ends) * np.uint64(COLUMN_SHARE) > n_labels
    features = np.flatnonzero(frequent & np.isfinite(peaks))
    largest = [np.partition(np.abs(weights[ends[j] : ends[j + 1]]), -1 - n_spill)[-1 - n_spill] for j in features]
    steps = np.array(largest, np.float32) / np.float32(LEVELS)
    features, steps = features[steps > SMALLEST_STEP].astype(np.uint32), steps[steps > SMALLEST_STEP]
    column_of = np.full(len(peaks), len(features), np.uint32)
    column_of[features] = np.arange(len(features))
    codes, room = np.zeros((len(features), _round_up(n_labels)), np.int8), len(features) * n_spill
    spill = np.empty(room, np.float32), np.empty(room, np.uint32), np.zeros(len(features) + 1, np.uint64)
    fill_columns(weights, labels, ends, features, steps, codes, *spill)
    return (
        frozen(codes, np.int8),
        frozen(column_of, np.uint32),
        frozen(steps, np.float32),
        frozen(spill[0][: spill[2][-1]], np.float32),
        frozen(spill[1][: spill[2][-1]], np.uint32),
        frozen(spill[2], np.uint64),
    )


def _round_up(n_labels: int) -> int:
    """To whole steps of LANES."""
    return -(-n_labels // topk.LANES) * topk.LANES


# --- kernels ---------------------------------------------------------------------------------------------------------


@kernel
def find_peaks(weights, ends, out):
    """out[j] = the largest |weight| in list j."""
    for j in range(len(out)):
        peak = np.float32(0.0)
        for q in range(ends[j], ends[j + 1]):
            size = abs(weights[q])
            if size > peak or size != size:  # NaN stays
                peak = size
        out[j] = peak


@kernel
def fill_columns(weights, labels, ends, features, steps, codes, spill_weights, spill_labels, spill_ends):
    """Column c is that of features[c]."""
    at = 0
    for c in range(len(features)):
        j, step = features[c], np.float64(steps[c])
        for q in range(ends[j], ends[j + np.uint32(1)]):
            code = np.rint(weights[q] / step)
            if abs(code) > LEVELS:
                code = LEVELS if code > 0 else -LEVELS
                spill_weights[at], spill_labels[at] = weights[q] - code * step, labels[q]
                at += 1
            codes[c, labels[q]] = np.int8(code)
        spill_ends[c + 1] = at
