"""Rules at prediction: labels that may not be returned, and labels that are preferred or held back.

Rules change the margin of a label, which is its score, or the logarithm of its score where scores are probabilities:

    margin'(x, label) = margin(x, label) + offset[label],     offset = -inf for a label that is not allowed

They act before the best labels are searched for, so the answer is as exact as without rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.errors import InputError


@dataclass(frozen=True, eq=False)
class Rules:
    """offsets : float32, one per label, finite or -inf; -inf marks a label that is never returned."""

    offsets: np.ndarray

    def __post_init__(self) -> None:
        if self.offsets.ndim != 1 or np.isnan(self.offsets).any() or (self.offsets == np.inf).any():
            raise InputError("offsets must be one number per label: finite, or -inf for a label that is not allowed")
        if not self.n_allowed:
            raise InputError("the rules allow no label at all; allow at least one")

    @property
    def n_allowed(self) -> int:
        return int(np.count_nonzero(self.offsets > -np.inf))
