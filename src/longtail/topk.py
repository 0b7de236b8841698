"""Scores of sparse rows against all labels, and the k best of them.

W is held by feature: `labels_of[j]` lists the labels whose weight of feature j is not zero. A row x with few features
then reaches only the lists of those features, and the scores of all L labels take one pass over them:

    score(label) = sum_j x_j W[label, j] + bias * W[label, bias column]

No array of rows x labels exists: a thread owns one buffer of L scores, and a row leaves only its k best.
Equal scores rank by label id, so the answer is exact and does not depend on threads or on how rows are grouped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from longtail.compiled import csr_parts, frozen, kernel

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first: `labels` (n, k) int32 column numbers of Y, `scores` (n, k) float32."""

    labels: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class InvertedIndex:
    """W by feature, for scoring: parallel arrays of weight and label, `indptr` by feature, every label's bias score."""

    weights: np.ndarray
    labels: np.ndarray
    indptr: np.ndarray
    bias_scores: np.ndarray

    @classmethod
    def of(cls, W: csr_array, n_features: int, bias: float) -> InvertedIndex:
        by_feature = W[:, :n_features].T.tocsr()
        by_feature.sort_indices()
        bias_scores = np.zeros(W.shape[0], np.float32)
        if bias:
            bias_scores[:] = np.float32(bias) * W[:, [n_features]].toarray().ravel()
        return cls(*csr_parts(by_feature), frozen(bias_scores, np.float32))

    @property
    def n_labels(self) -> int:
        return len(self.bias_scores)

    def top(self, X: csr_array, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        k = min(k, self.n_labels)
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        buffer = np.empty(self.n_labels, np.float32)
        top_rows(*csr_parts(X), self.weights, self.labels, self.indptr, self.bias_scores, buffer, labels, scores)
        return TopK(labels, scores)

    def above(self, X: csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels scoring more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        n = X.shape[0]
        buffer, ends = np.empty(self.n_labels, np.float32), np.zeros(n + 1, np.int64)
        found, row = np.empty(max(1024, 8 * n), np.int32), 0
        while True:  # the number of labels above is known only after the fact: go on where the space ran out
            row = rows_above(
                *csr_parts(X),
                self.weights,
                self.labels,
                self.indptr,
                self.bias_scores,
                np.float32(threshold),
                buffer,
                row,
                found,
                ends,
            )
            if row == n:
                return found[: ends[n]].copy(), ends  # a view would keep the whole space alive
            found = np.concatenate([found, np.empty(max(len(found), self.n_labels), np.int32)])


# --- kernels ---------------------------------------------------------------------------------------------------------


@kernel
def score_row(i, X_data, X_indices, X_indptr, weights, labels, indptr, bias_scores, out):
    """out[label] = x_i . W[label], bias included."""
    out[:] = bias_scores
    for p in range(X_indptr[i], X_indptr[i + 1]):
        x, j = X_data[p], X_indices[p]
        for q in range(indptr[j], indptr[j + np.uint32(1)]):
            out[labels[q]] += x * weights[q]


@kernel
def _ranks_below(score, label, other_score, other_label):
    return score < other_score or (score == other_score and label > other_label)


@kernel
def _sift_down(scores, labels, end, start):
    """Restore the heap of `end` entries, worst first, below position `start`."""
    root = start
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and _ranks_below(scores[child + 1], labels[child + 1], scores[child], labels[child]):
            child += 1
        if not _ranks_below(scores[child], labels[child], scores[root], labels[root]):
            return
        scores[root], scores[child] = scores[child], scores[root]
        labels[root], labels[child] = labels[child], labels[root]
        root = child


@kernel
def select_top(scores, out_labels, out_scores):
    """The best entries of `scores`, best first, ties by index; NaN (inf - inf) ranks last, as minus infinity."""
    k = len(out_labels)
    for label in range(k):
        out_labels[label] = label
        out_scores[label] = scores[label] if scores[label] == scores[label] else -np.inf
    for start in range(k // 2 - 1, -1, -1):
        _sift_down(out_scores, out_labels, k, start)
    for label in range(k, len(scores)):
        if scores[label] > out_scores[0]:  # at equal scores the earlier label stays
            out_scores[0], out_labels[0] = scores[label], label
            _sift_down(out_scores, out_labels, k, 0)
    for end in range(k - 1, 0, -1):  # heap sort: the worst goes last
        out_scores[0], out_scores[end] = out_scores[end], out_scores[0]
        out_labels[0], out_labels[end] = out_labels[end], out_labels[0]
        _sift_down(out_scores, out_labels, end, 0)


@kernel
def top_rows(X_data, X_indices, X_indptr, weights, labels, indptr, bias_scores, buffer, out_labels, out_scores):
    if out_labels.shape[1] == 0:
        return
    for i in range(len(out_labels)):
        score_row(i, X_data, X_indices, X_indptr, weights, labels, indptr, bias_scores, buffer)
        select_top(buffer, out_labels[i], out_scores[i])


@kernel
def rows_above(
    X_data, X_indices, X_indptr, weights, labels, indptr, bias_scores, threshold, buffer, first_row, found, ends
):
    """Append to `found` the labels above `threshold` of the rows from `first_row` on, while there is room for a whole
    row; returns the first row that is not done."""
    n = len(ends) - 1
    for i in range(first_row, n):
        if ends[i] + len(buffer) > len(found):
            return i
        score_row(i, X_data, X_indices, X_indptr, weights, labels, indptr, bias_scores, buffer)
        at = ends[i]
        for label in range(len(buffer)):
            if buffer[label] > threshold:
                found[at] = label
                at += 1
        ends[i + 1] = at
    return n
