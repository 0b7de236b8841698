"""Rules for prediction: they exclude labels, or raise or lower the scores of labels.

Rules change the margin of a label, which is its score, or the logarithm of its score if scores are probabilities:

    margin'(x, label) = margin(x, label) + offset[label],     offset = -inf for a label that is not allowed

They are applied before the search for the best labels, so the result is as exact as without rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.models.batch import Batch, PlainBatch
from longtail.topk import TopK

SCORES_AT_ONCE = 1 << 22


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


class ProbabilityIndex(Protocol):
    """An index whose scores are probabilities."""

    def scores(self, X: sp.csr_array, labels: np.ndarray) -> np.ndarray: ...

    def pairs(self, X: sp.csr_array, rows: np.ndarray, labels: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class RuledIndex:
    """An index of probabilities that applies rules: score' = score exp(offset).

    It scores all allowed labels of a few rows at a time, so it is slower than the index without rules.
    """

    index: ProbabilityIndex
    rules: Rules

    def scores(self, X: sp.csr_array, labels: np.ndarray) -> np.ndarray:
        """The scores of these labels for every row."""
        return np.asarray(self.index.scores(X, labels) * np.exp(self.rules.offsets[labels]))

    def pairs(self, X: sp.csr_array, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The scores of some pairs of a row and a label."""
        return np.asarray(self.index.pairs(X, rows, labels) * np.exp(self.rules.offsets[labels]))

    def batch(self, X: sp.csr_array) -> Batch:
        """These rows, to be searched and scored."""
        return PlainBatch(self, X)

    def top(self, X: sp.csr_array, k: int) -> TopK:
        """The `min(k, n_allowed)` best labels of every row of X."""
        allowed = self._allowed
        k = min(k, len(allowed))
        labels = np.empty((X.shape[0], k), np.int32)
        scores = np.empty((X.shape[0], k), np.float32)
        for rows in self._tiles(X):
            found = self.scores(X[rows], allowed)
            best = np.argsort(-found, axis=1, kind="stable")[:, :k]
            labels[rows] = allowed[best]
            scores[rows] = np.take_along_axis(found, best, axis=1)
        return TopK(labels, scores)

    def above(self, X: sp.csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        allowed = self._allowed
        chosen = [self.scores(X[rows], allowed) > threshold for rows in self._tiles(X)]
        counts = np.concatenate([[0], *(part.sum(axis=1) for part in chosen)])
        indices = [allowed[np.nonzero(part)[1]] for part in chosen]
        return np.concatenate([np.empty(0, np.int32), *indices]).astype(np.int32), np.cumsum(counts)

    @property
    def _allowed(self) -> np.ndarray:
        return np.flatnonzero(self.rules.offsets > -np.inf)

    def _tiles(self, X: sp.csr_array) -> list[slice]:
        size = max(1, SCORES_AT_ONCE // self.rules.n_allowed)
        return [slice(start, start + size) for start in range(0, X.shape[0], size)]
