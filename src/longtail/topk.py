"""The result of a top-k prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first.

    labels : (n_samples, k) int32, column numbers of Y.
    scores : (n_samples, k) float32, the scores of these labels.
    """

    labels: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)
