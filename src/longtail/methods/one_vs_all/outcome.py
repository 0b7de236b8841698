"""How the solves of all labels ended, as data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np


class Status(IntEnum):
    """How the solve of one label ended; the numbers are those of the kernels."""

    CONVERGED = 0
    MAX_ITER = 1
    LINE_SEARCH_FAILED = 2


@dataclass(frozen=True)
class Outcome:
    """How the solve of every label ended: arrays with one entry per label.

    `n_iter` counts Newton steps, or rounds of the dual solver. `objective` is P(w) before small weights are cut.
    `gap` is the relative duality gap over all rows, (P - D) / P: no solution is better by a larger share. The dual
    solver stops by it; Newton stops by `gradient_ratio`, |g(w)| / |g(0)|, which the dual solver does not know (NaN).
    `n_active` is the number of rows inside the margin: the mean over Newton steps, or at the end.
    """

    status: np.ndarray
    n_iter: np.ndarray
    objective: np.ndarray
    gap: np.ndarray
    gradient_ratio: np.ndarray
    n_active: np.ndarray

    @staticmethod
    def stack(parts: list[Outcome]) -> Outcome:
        return Outcome(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Outcome)))

    def take(self, order: np.ndarray) -> Outcome:
        return Outcome(*(getattr(self, f.name)[order] for f in fields(Outcome)))

    @property
    def converged(self) -> np.ndarray:
        return self.status == Status.CONVERGED
