"""Predictions for rows that the model was not trained on, compared with the true labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from longtail.metrics.hits import find_hits
from longtail.topk import TopK


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The best labels of held-out rows.

    top : the best labels, by score, or by probability after calibration
    hit : which labels of `top` are right, of the same shape
    frequency : number of training rows of every label of `top`, counted without the held-out rows, but in proportion
        to all rows: a fit on 80 rows of 100 with 8 rows of a label counts as 10
    positives : number of held-out rows of every label, of shape (n_labels,); it includes labels that `top` missed
    """

    top: TopK
    hit: np.ndarray
    frequency: np.ndarray
    positives: np.ndarray

    @classmethod
    def of(cls, top: TopK, Y: sp.csr_array, counts: np.ndarray) -> HeldOut:
        """Compare `top` with the true labels `Y`. `counts` is the number of training rows of every label."""
        positives = np.bincount(Y.indices, minlength=Y.shape[1])
        return cls(top, find_hits(Y, top).hit, counts[top.labels], positives)

    @classmethod
    def joined(cls, parts: Sequence[HeldOut]) -> HeldOut:
        """Join the rows of all parts, such as the folds of a cross-fit."""
        top = TopK(
            np.concatenate([part.top.labels for part in parts]), np.concatenate([part.top.scores for part in parts])
        )
        return cls(
            top,
            np.concatenate([part.hit for part in parts]),
            np.concatenate([part.frequency for part in parts]),
            np.sum([part.positives for part in parts], axis=0),
        )

    @property
    def n_positives(self) -> int:
        """The number of pairs of a row and one of its labels."""
        return int(self.positives.sum())

    def with_probabilities(self, probabilities: np.ndarray) -> HeldOut:
        """Return the same labels sorted by these probabilities. Labels with equal probabilities keep their order."""
        order = np.argsort(-probabilities, axis=1, kind="stable")

        def sort(values: np.ndarray) -> np.ndarray:
            return np.take_along_axis(values, order, axis=1)

        top = TopK(sort(self.top.labels), sort(self.top.scores), sort(probabilities))
        return replace(self, top=top, hit=sort(self.hit), frequency=sort(self.frequency))
