"""What every oracle answers: for rows of X, the class with the largest score that is no label of the row.

    r_i = argmax over r outside Y_i of x_i.w_r                        Algorithms 1 and 2, "approximately"

Queries see frozen weights and run in threads. Each row is answered by itself, so threads change nothing.

With n_groups > 1 only the classes c = g (mod n_groups) can be rivals in a query, for a g drawn for it. The best of all
classes is then found with probability 1 / n_groups, the second best with nearly as much, and so on. Such an oracle is
inexact in a way that does good: rivals are hard, without being the same few again and again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from longtail import parallel
from longtail.methods.memoir.store import Labels, Rows, Weights
from longtail.methods.memoir.store_kernels import best_of, best_of_all

CHUNK = 256  # rows that a thread answers at a time, at most


class Moves(NamedTuple):
    """How classes have moved, in units of stored values (w / scale): classes[k] by factors[k] x[rows[k]], in this
    order; after that all weights of truncated[k] by amounts[k] towards zero."""

    classes: np.ndarray
    rows: np.ndarray
    factors: np.ndarray
    touched: np.ndarray  # all classes concerned: sorted, each once
    truncated: np.ndarray
    amounts: np.ndarray


class Oracle(ABC):
    """`query` finds rivals; `update` says which classes have moved since."""

    follows = True  # whether it wants to be told of moves

    def __init__(
        self, weights: Weights, X: Rows, Y: Labels, team: parallel.Team, seed: int, *, n_groups: int = 1
    ) -> None:
        self.weights, self.X, self.Y, self.team, self.n_groups = weights, X, Y, team, n_groups
        self.random = np.random.default_rng(seed)
        self.group, self.salt = 0, 0  # drawn for each query

    def query(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """A rival for every row, which is to be told from its class targets[k]; -1 for none.

        Where the search meets no class but the row's own (when no class has weights, say), any class will do.
        """
        rivals = np.empty(len(rows), np.int64)
        self.group, self.salt = int(self.random.integers(self.n_groups)), int(self.random.integers(2**31))

        def answer(chunk: range) -> None:
            part = slice(chunk.start, chunk.stop)
            self.search(rows[part], targets[part], rivals[part])

        self.team.run(answer, parallel.ranges(len(rows), min(CHUNK, -(-len(rows) // self.team.size))))
        (missing,) = np.nonzero(rivals < 0)
        if len(missing):
            drawn = self.random.integers(self.weights.shape[0], size=(len(missing), 1))
            found, scores = np.empty(len(missing), np.int64), np.empty(len(missing))
            best_of(self.weights.store, self.X, self.Y, rows[missing], drawn, 0, 1, self._unseen(), found, scores)
            rivals[missing] = found  # -1 where a label of the row was drawn
        return rivals

    def best(self, rows: np.ndarray) -> np.ndarray:
        """The true rival of every row, by reading all classes: what `query` is measured by."""
        n, rivals = len(rows), np.empty(len(rows), np.int64)
        n_entries = int((self.X.indptr[rows + 1] - self.X.indptr[rows]).sum())
        panel, line_of = np.zeros((n_entries, n), np.float32), np.zeros(self.weights.shape[1], np.int32)
        best_of_all(self.weights.store, self.X, self.Y, rows, line_of, panel, np.empty(n), rivals, np.empty(n))
        return rivals

    @abstractmethod
    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        """Fill in the rivals of some rows; several threads at once, so nothing of `self` may change."""

    @abstractmethod
    def update(self, moves: Moves) -> None:
        """Classes have moved; the weights already have their new values."""

    def _unseen(self) -> np.ndarray:
        return np.zeros(self.weights.shape[0], np.int32)

    def rescale(self, factor: float) -> None:
        """All stored values have been multiplied by a factor; scores keep their order, so that most need not care."""
        return
