"""The last rivals of every class: whoever was hard to tell from a class once is likely to be so again.

Approximate oracles begin with them: the graph enters there, and the Hamming search scores them besides what it finds.
Memory is O(number of classes).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.compiled import kernel
from longtail.methods.memoir.oracles.base import Oracle

KEPT = 8  # rivals kept per class


class Recent:
    """`rivals[c]`: the last different rivals of class c, in no order, blanks (-1) at the end; `ends[c]`: how many
    came."""

    def __init__(self, n_classes: int) -> None:
        self.rivals = np.full((n_classes, KEPT), -1, np.int32)
        self.ends = np.zeros(n_classes, np.int32)

    def remember(self, targets: np.ndarray, rivals: np.ndarray) -> None:
        remember(targets, rivals, self.rivals, self.ends)


class RememberingOracle(Oracle):
    """An oracle that takes the recent rivals of a row's class into account."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.recent = Recent(self.weights.shape[0])

    def query(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rivals = super().query(rows, targets)
        self.recent.remember(targets, rivals)
        return rivals


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
