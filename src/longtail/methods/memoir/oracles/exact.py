"""The exact oracle: it computes the scores of all classes of a group from the inverted lists.

The inverted lists are part of the class vectors (weights_kernels), so there is nothing to update. There is one list per
feature and group of classes, so a search within one group costs 1 / n_groups of a search among all classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from longtail.compiled import kernel
from longtail.methods.memoir.oracles.base import Moves, Oracle

SCORE_LANES = 64  # scores compared at once


class Exact(Oracle):
    """Finds the class with the largest score in one group, or among all classes if there is one group.

    Of several classes with the same score it takes the first at or after a starting point that is drawn for the row.
    """

    indexed = True
    needs_moves = False

    @classmethod
    def column_bytes(cls, options: Mapping[str, Any]) -> tuple[int, int]:
        return 12, 55  # what describes an unused inverted list lies in pages that are never touched

    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        self._search_group(rows, self.group, rivals)

    def _search_group(self, rows: np.ndarray, group: int, rivals: np.ndarray) -> None:
        size = len(range(group, self.vectors.shape[0], self.n_groups))
        scores = np.empty(-(-size // SCORE_LANES) * SCORE_LANES, np.float32)
        best_in_group(self.vectors.arrays, self.X, self.Y, rows, group, size, self.salt, scores, rivals)

    def best(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty((self.n_groups, len(rows)), np.int64)
        for group in range(self.n_groups):
            self._search_group(rows, group, found[group])
        scores = np.array([self.vectors.scores(self.X, rows, rivals) for rivals in found])
        return np.asarray(found[scores.argmax(axis=0), np.arange(len(rows))])

    def update(self, moves: Moves) -> None:
        """Nothing to do: the class vectors maintain the inverted lists."""


@kernel
def best_in_group(vectors, X, Y, rows, group, size, salt, scores, out):
    """out[k] = the class of the group with the largest score that is not a label of row rows[k], or -1.

    size : number of classes in the group.
    salt : any number; it decides which of several equal scores wins.
    scores : room for the scores of the group, in a multiple of SCORE_LANES.
    """
    n_groups = vectors.n_groups
    for k in range(len(rows)):
        i = rows[k]
        scores[:] = 0.0
        for p in range(X.indptr[i], X.indptr[i + 1]):
            number = np.int64(X.indices[p]) * n_groups + group
            start = np.uint64(vectors.list_starts[number])
            x = X.data[p]
            for q in range(start, start + np.uint64(vectors.list_counts[number])):
                scores[vectors.posting_classes[q]] += x * vectors.posting_values[q]
        scores[size:] = -np.inf
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            c = np.int64(Y.indices[p])
            if c % n_groups == group:
                scores[c // n_groups] = -np.inf
        at = first_best(scores, (salt + i * 7919) % size)
        out[k] = at * n_groups + group if at >= 0 else -1


@kernel
def first_best(scores, begin):
    """The first position at or after `begin` that has the largest score, or, if there is none, the first before it; -1
    if all scores are -inf.

    The largest score is found in SCORE_LANES separate maxima, which the processor can update at once.
    """
    lanes = np.empty(SCORE_LANES, np.float32)
    lanes[:] = -np.inf
    for at in range(0, len(scores), SCORE_LANES):
        for lane in range(SCORE_LANES):
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
