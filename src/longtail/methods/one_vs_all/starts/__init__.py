"""Where Newton begins. A start fills the first weights of a few labels at a time; `make` finds one by name.

To add a start: a file here with a class that has `guess(labels, out)`, and a line in STARTS.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from longtail.methods.one_vs_all.problem import Problem
from longtail.methods.one_vs_all.starts.msi import MeanSeparating
from longtail.methods.one_vs_all.starts.zero import Zero


class Start(Protocol):
    """First weights of labels."""

    def __init__(self, problem: Problem) -> None: ...

    def guess(self, labels: np.ndarray, out: np.ndarray) -> None:
        """Write the weights of `labels` into the rows of `out` (labels, D)."""


STARTS: dict[str, type[Start]] = {"zero": Zero, "msi": MeanSeparating}


def make(name: str, problem: Problem) -> Start:
    return STARTS[name](problem)
