"""Where approximate oracles begin: the graph enters there, and the Hamming search scores them besides what it finds.

The last rivals of a class: whoever was hard to tell from it once is likely to be so again. And the champions of the
row's features, the classes with the largest weights for them: the beginning of the lists that the exact oracle reads.
Memory is O(number of classes and features).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.compiled import kernel
from longtail.methods.memoir.oracles.base import Oracle

KEPT = 8  # rivals kept per class
BEST = 16  # champions taken per row


class Recent:
    """`rivals[c]`: the last different rivals of class c, in no order, blanks (-1) at the end; `ends[c]`: how many
    came."""

    def __init__(self, n_classes: int) -> None:
        self.rivals = np.full((n_classes, KEPT), -1, np.int32)
        self.ends = np.zeros(n_classes, np.int32)

    def remember(self, targets: np.ndarray, rivals: np.ndarray) -> None:
        remember(targets, rivals, self.rivals, self.ends)


class RememberingOracle(Oracle):
    """An oracle that takes champions and the recent rivals of a row's class into account."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.recent = Recent(self.weights.shape[0])

    def query(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rivals = super().query(rows, targets)
        self.recent.remember(targets, rivals)
        return rivals

    def likely(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Likely rivals of every row, blanks (-1) among them."""
        champions = np.empty((len(rows), BEST), np.int32)
        shares = np.zeros(self.weights.shape[0], np.float32)
        best_champions(
            self.weights.store, self.X, self.Y, rows, self.group, self.n_groups, shares, np.empty(BEST, np.float32),
            champions,
        )  # fmt: skip
        return np.concatenate([champions, self.recent.rivals[targets]], axis=1)


@kernel
def remember(targets, found, rivals, ends):
    """A rival that is not among those of its target takes the place of the oldest."""
    for k in range(len(targets)):
        y, known = targets[k], found[k] < 0
        for at in range(KEPT):
            known |= rivals[y, at] == found[k]
        if not known:
            rivals[y, ends[y] % KEPT] = found[k]
            ends[y] += 1


@kernel
def best_champions(store, X, Y, rows, group, n_groups, shares, best, out):
    """For every row the champions of its features, of the group and no labels of the row, by what the features of which
    they are champions give to their scores; as many as there is room for, blanks (-1) at the end.

    shares : zeros, one for each class.
    best : room for the shares of a row's best.
    """
    for k in range(len(rows)):
        i, n, room = rows[k], 0, out.shape[1]
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            shares[Y.indices[p]] = -np.inf
        for p in range(X.indptr[i], X.indptr[i + 1]):
            for at in range(store.champions.shape[1]):
                c = np.int64(store.champions[X.indices[p], at])
                if c >= 0 and c % n_groups == group:
                    shares[c] += X.data[p] * store.champion_values[X.indices[p], at]
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            shares[Y.indices[p]] = 0.0
        for p in range(X.indptr[i], X.indptr[i + 1]):
            for c in store.champions[X.indices[p]]:
                if c < 0 or shares[c] == 0.0:
                    continue
                share, shares[c] = shares[c], 0.0
                if share < 0.0 or (n == room and share <= best[n - 1]):
                    continue
                at = n if n < room else n - 1
                while at > 0 and best[at - 1] < share:
                    out[k, at], best[at] = out[k, at - 1], best[at - 1]
                    at -= 1
                out[k, at], best[at] = c, share
                n = min(n + 1, room)
        out[k, n:] = -1
