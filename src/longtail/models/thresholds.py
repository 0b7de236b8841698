"""Which labels `predict` returns: those above a threshold, or a fixed number per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from longtail.errors import InputError
from longtail.topk import TopK


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The rule that selects the labels to return.

    target : what the thresholds were chosen for, such as "micro-f1" or "precision:at_least=0.9"
    limits : one threshold for all labels (shape ()), or one per label; compared with probabilities if the model is
        calibrated, otherwise with scores
    per_row : number of labels to return per row, instead of using `limits`; None to use `limits`
    depth : number of labels per row, best first, that are compared with the threshold
    figures : what the thresholds reached on the rows they were chosen on, such as {"precision": 0.9, "recall": 0.4}
    """

    target: str
    limits: np.ndarray
    per_row: int | None = None
    depth: int = 20
    figures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.limits.ndim > 1 or np.isnan(self.limits).any():
            raise InputError("thresholds must be a number, or one number per label, and not NaN")
        if self.depth < 1 or (self.per_row is not None and self.per_row < 1):
            raise InputError(f"depth {self.depth} and per_row {self.per_row} must be whole numbers from 1")

    @property
    def n_candidates(self) -> int:
        """The number of labels per row to pass to `chosen`."""
        return self.depth if self.per_row is None else self.per_row

    def chosen(self, top: TopK) -> np.ndarray:
        """Return which labels of `top` are predicted, as a boolean array of shape (rows, k)."""
        if self.per_row is not None:
            return np.broadcast_to(np.arange(top.labels.shape[1]) < self.per_row, top.labels.shape)
        limits = self.limits if self.limits.ndim == 0 else self.limits[top.labels]
        return top.values > limits
