"""The first rows that a process predicts, by NumPy alone: the labels and scores of index_kernels.py, to the bit.

Importing Numba, loading or compiling the kernels, and making an index take seconds. A process that predicts a few rows
and ends, as on the command line, needs none of this. Rows are therefore scored here at first. When this has taken about
as long as loading the kernels would take, the index is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.sparse as sp

from longtail.models.index_kernels import top_rows
from longtail.topk import TopK

if TYPE_CHECKING:
    from longtail.models.index import FeatureLists

BUDGET = 0.5  # seconds that a process spends here
# about what a row takes: for each of its features, for each of their weights, and for each label
FEATURE_SECONDS = 4e-6
ENTRY_SECONDS = 4e-9
LABEL_SECONDS = 2e-8
_spent = 0.0


def affordable(X: sp.csr_array, n_labels: int, n_entries: int) -> bool:
    """Whether to score these rows here. `n_entries` is the number of weights that are read for them."""
    global _spent
    cost = FEATURE_SECONDS * X.nnz + ENTRY_SECONDS * n_entries + LABEL_SECONDS * n_labels * X.shape[0]
    if top_rows.is_ready or _spent + cost > BUDGET:
        return False
    _spent += cost
    return True


class FeatureWeights(Protocol):
    """Weights by feature."""

    def add(self, x: np.float32, feature: int, out: np.ndarray) -> None:
        """out[label] += x times its weight of the feature. The bias is the feature after the last."""


class Lists:
    """The weights of W by feature, for some features: those of an index if it is there, or else found in W."""

    def __init__(self, W: sp.csr_array, lists: FeatureLists | None, features: np.ndarray) -> None:
        self.n_labels = W.shape[0]
        if lists is not None:
            self.weights, self.labels = lists.weights, lists.labels
            self.span = {j: slice(int(lists.ends[j]), int(lists.ends[j + 1])) for j in features.tolist()}
            return
        place = np.full(W.shape[1], -1, np.int64)
        place[features] = np.arange(len(features))
        found = np.flatnonzero(place[W.indices] >= 0)
        place_of = place[W.indices[found]]
        order = np.argsort(place_of, kind="stable")
        self.weights = W.data[found][order]
        self.labels = (np.searchsorted(W.indptr, found, side="right") - 1)[order]
        ends = np.searchsorted(place_of[order], np.arange(len(features) + 1))
        self.span = {j: slice(ends[p], ends[p + 1]) for p, j in enumerate(features.tolist())}

    def add(self, x: np.float32, feature: int, out: np.ndarray) -> None:
        """out[label] += x times its weight of the feature."""
        span = self.span[feature]
        out[self.labels[span]] += x * self.weights[span]


def scores(
    X: sp.csr_array, W: sp.csr_array, bias: float, offsets: np.ndarray | None, lists: FeatureLists | None
) -> np.ndarray:
    """The scores of all labels for each row of X, in the order of summation of index_kernels.py."""
    features = np.unique(X.indices)
    weights = Lists(W, lists, np.append(features, X.shape[1]) if bias else features)
    return sums(X, weights, W.shape[0], bias, offsets)


def sums(
    X: sp.csr_array, weights: FeatureWeights, n_labels: int, bias: float, offsets: np.ndarray | None
) -> np.ndarray:
    """The scores of all labels for each row of X: the bias, the offsets, and the features in their order."""
    start = np.zeros(n_labels, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        if bias:
            weights.add(np.float32(bias), X.shape[1], start)
        if offsets is not None:
            start += offsets
        found = np.tile(start, (X.shape[0], 1))
        for row, out in enumerate(found):
            for p in range(X.indptr[row], X.indptr[row + 1]):
                weights.add(X.data[p], int(X.indices[p]), out)
    return found


def best(scores: np.ndarray, k: int) -> TopK:
    """The k best labels of each row of scores. Equal scores rank by number, and NaN as minus infinity."""
    scores = np.where(np.isnan(scores), np.float32(-np.inf), scores)
    labels = np.empty((len(scores), k), np.int32)
    for row, out in zip(scores, labels, strict=True):
        least = np.partition(row, len(row) - k)[len(row) - k]
        above = np.flatnonzero(row > least)
        out[: len(above)] = above
        out[len(above) :] = np.flatnonzero(row == least)[: k - len(above)]
        out[:] = out[np.lexsort((out, -row[out]))]
    return TopK(labels, np.take_along_axis(scores, labels.astype(np.int64), axis=1))
