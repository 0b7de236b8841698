"""The exact oracle: lists of the classes that have a weight for a feature, all of them read.

The lists are part of the weights (store_kernels), so there is nothing to update. They come in groups of classes: a
query that reads one group costs 1 / n_groups as much.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel
from longtail.methods.memoir.oracles.base import Moves, Oracle

LANES = 64  # scores compared at once


class Exact(Oracle):
    """The best class of one group (of all, with one group). Equal scores: the first from a point drawn for the row."""

    follows = False

    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        self._search(rows, self.group, rivals)

    def _search(self, rows: np.ndarray, group: int, rivals: np.ndarray) -> None:
        size = len(range(group, self.weights.shape[0], self.n_groups))
        scores = np.empty(-(-size // LANES) * LANES, np.float32)
        best_in_group(self.weights.store, self.X, self.Y, rows, group, size, self.salt, scores, rivals)

    def best(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty((self.n_groups, len(rows)), np.int64)
        for group in range(self.n_groups):
            self._search(rows, group, found[group])
        scores = np.array([self.weights.scores(self.X, rows, rivals) for rivals in found])
        return found[scores.argmax(axis=0), np.arange(len(rows))]

    def update(self, moves: Moves) -> None:
        """The lists are kept by the weights themselves."""


@kernel
def best_in_group(store, X, Y, rows, group, size, salt, scores, out):
    """out[k] = the best class c = group (mod n_groups) that is no label of row rows[k], or -1 if there is none."""
    n_groups = store.n_groups
    for k in range(len(rows)):
        i = rows[k]
        scores[:] = 0.0
        for p in range(X.indptr[i], X.indptr[i + 1]):
            number = np.int64(X.indices[p]) * n_groups + group
            start = np.uint64(store.list_starts[number])
            x = X.data[p]
            for q in range(start, start + np.uint64(store.list_counts[number])):
                scores[store.classes[q]] += x * store.postings[q]
        scores[size:] = -np.inf
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            c = np.int64(Y.indices[p])
            if c % n_groups == group:
                scores[c // n_groups] = -np.inf
        at = first_best(scores, (salt + i * 7919) % size)
        out[k] = at * n_groups + group if at >= 0 else -1


@kernel
def first_best(scores, begin):
    """Where the largest score is: the first place at or after `begin`, and then from 0; -1 if all are -inf.

    The largest value is found in lanes, which the processor compares at once.
    """
    lanes = np.empty(LANES, np.float32)
    lanes[:] = -np.inf
    for at in range(0, len(scores), LANES):
        for lane in range(LANES):
            value = scores[at + lane]
            lanes[lane] = value if value > lanes[lane] else lanes[lane]
    best = np.float32(-np.inf)
    for value in lanes:
        best = max(best, value)
    if best == -np.inf:
        return np.int64(-1)
    for at in range(begin, len(scores)):
        if scores[at] == best:
            return np.int64(at)
    for at in range(begin):
        if scores[at] == best:
            return np.int64(at)
    return np.int64(-1)
