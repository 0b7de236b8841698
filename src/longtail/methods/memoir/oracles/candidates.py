"""Candidates that both approximate oracles score in addition to the classes that their own search finds. They are our
addition to the paper, and the option `likely=no` of these oracles leaves them out.

A candidate for the rival of a row comes from one of two places:

  recent rivals    the last rivals of the row's class. A class that was a rival before is likely to be a rival again.
  top classes      for each feature, weights_kernels keeps up to 16 classes with large weights for it. These are the
                   most important entries of the feature's inverted list, which the exact oracle reads completely. For a
                   row, the top classes of all its features are collected, and the 16 best of them become candidates.

The graph oracle also starts its walk at these candidates. Memory is O(number of classes + number of features).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from longtail.methods.memoir.oracles.base import Oracle, SearchSpace
from longtail.methods.memoir.oracles.candidates_kernels import add_recent, candidates_of_features

N_RECENT = 8  # rivals remembered per class
N_CANDIDATES = 16  # candidates per row that are taken from the top classes of its features


class RecentRivals:
    """The last N_RECENT different rivals of each class.

    Row c of `rivals` belongs to class c. It is not sorted, and unused entries at the end are -1. `counts[c]` is the
    number of rivals that have been added to row c so far.
    """

    def __init__(self, n_classes: int) -> None:
        self.rivals = np.full((n_classes, N_RECENT), -1, np.int32)
        self.counts = np.zeros(n_classes, np.int32)

    def add(self, targets: np.ndarray, found: np.ndarray) -> None:
        """Add the rival found[k] to the rivals of class targets[k]. Negative entries (no rival) are skipped."""
        add_recent(targets, found, self.rivals, self.counts)


class CandidateOracle(Oracle):
    """An oracle that, with the option `likely`, also scores recent rivals and top classes."""

    def __init__(self, space: SearchSpace, likely: bool) -> None:
        super().__init__(space)
        self.likely = likely
        self.recent = RecentRivals(self.vectors.shape[0] if likely else 0)

    @classmethod
    def reads_top(cls, options: Mapping[str, Any]) -> bool:
        return bool(options["likely"])

    def query(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rivals = super().query(rows, targets)
        if self.likely:
            self.recent.add(targets, rivals)
        return rivals

    def state(self) -> dict[str, np.ndarray]:
        return {**super().state(), "recent_rivals": self.recent.rivals, "recent_counts": self.recent.counts}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        super().restore(state)
        self.recent.rivals[:] = state["recent_rivals"]
        self.recent.counts[:] = state["recent_counts"]

    def candidates(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return an array with one row of candidates (class numbers) per row. Unused entries are -1."""
        if not self.likely:
            return np.empty((len(rows), 0), np.int32)
        from_features = np.empty((len(rows), N_CANDIDATES), np.int32)
        sums = np.zeros(self.vectors.shape[0], np.float32)
        best = np.empty(N_CANDIDATES, np.float32)
        candidates_of_features(
            self.vectors.arrays, self.X, self.Y, rows, self.group, self.n_groups, sums, best, from_features
        )
        return np.concatenate([from_features, self.recent.rivals[targets]], axis=1)
