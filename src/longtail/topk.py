"""The result of a top-k prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first.

    labels : (n_samples, k) int32, column numbers of Y.
    scores : (n_samples, k) float32, the scores of these labels.
    probabilities : (n_samples, k) float32, the probability of each label. None if the model is not calibrated.
    """

    labels: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def values(self) -> np.ndarray:
        """The values that thresholds are compared with: probabilities if there are any, otherwise scores."""
        return self.scores if self.probabilities is None else self.probabilities

    def first(self, k: int) -> TopK:
        """The k best labels only."""
        probabilities = None if self.probabilities is None else self.probabilities[:, :k]
        return TopK(self.labels[:, :k], self.scores[:, :k], probabilities)
