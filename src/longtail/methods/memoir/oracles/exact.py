"""The exact oracle: it computes the scores of all classes of a group from the inverted lists.

The inverted lists are part of the class vectors (weights_kernels), so there is nothing to update. There is one list per
feature and group of classes, so a search within one group costs 1 / n_groups of a search among all classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from longtail.compiled import frozen
from longtail.methods.memoir.oracles.base import Moves, Oracle
from longtail.methods.memoir.oracles.exact_kernels import SCORE_LANES, best_in_group
from longtail.models.dense_kernels import PANEL_LABELS, add_products


class Exact(Oracle):
    """Finds the class with the largest score in one group, or among all classes if there is one group.

    If several classes have the same score, it takes the first one at or after a random starting point of the row.
    """

    indexed = True
    needs_moves = False

    @classmethod
    def column_bytes(cls, options: Mapping[str, Any]) -> tuple[int, int]:
        return 12, 55  # unused inverted lists are described in pages that are never touched, so they do not count

    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        self._search_group(rows, self.group, rivals)

    def _search_group(self, rows: np.ndarray, group: int, rivals: np.ndarray) -> None:
        size = len(range(group, self.vectors.shape[0], self.n_groups))
        scores = np.empty(-(-size // SCORE_LANES) * SCORE_LANES, np.float32)
        base = self._base(rows, group)
        best_in_group(self.vectors.arrays, self.X, self.Y, rows, group, size, self.salt, base, scores, rivals)

    def _base(self, rows: np.ndarray, group: int) -> np.ndarray:
        """The scores of the classes of a group by the dense features of the rows, or nothing if there are none."""
        if not self.X.dense.shape[1]:
            return np.empty((0, 0), np.float32)
        panels = frozen(self.vectors.arrays.dense[group], np.float32)
        zeros = frozen(np.zeros(len(panels) * PANEL_LABELS), np.float32)
        base, peaks = np.empty((len(rows), len(zeros)), np.float32), np.empty(len(rows), np.float32)
        add_products(frozen(self.X.dense[rows], np.float32), panels, zeros, base, peaks)
        return base

    def best(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty((self.n_groups, len(rows)), np.int64)
        for group in range(self.n_groups):
            self._search_group(rows, group, found[group])
        scores = np.array([self.vectors.scores(self.X, rows, rivals) for rivals in found])
        return np.asarray(found[scores.argmax(axis=0), np.arange(len(rows))])

    def update(self, moves: Moves) -> None:
        """Nothing to do: the class vectors maintain the inverted lists."""
