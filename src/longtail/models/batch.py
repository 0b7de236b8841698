"""Rows that are searched first and then scored for further labels, as an ensemble does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from longtail.topk import TopK


class Batch(Protocol):
    """Some rows, with whatever an index can compute once for all questions about them."""

    def top(self, k: int) -> TopK:
        """The k best labels of every row."""

    def pairs(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The scores of these pairs of a row and a label: a flat float32 array."""


@runtime_checkable
class ScoringBatch(Batch, Protocol):
    """A batch that scores further labels while it searches."""

    def top_and_scores(self, k: int, labels: np.ndarray) -> tuple[TopK, np.ndarray]:
        """The k best labels of every row, and the scores of `labels` (rows, any number), which rise in every row."""


class PairIndex(Protocol):
    """An index that searches, and that scores single pairs of a row and a label."""

    def top(self, X: Any, k: int) -> TopK: ...

    def batch(self, X: Any) -> Batch: ...

    def pairs(self, X: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class PlainBatch:
    """The batch of an index that has nothing to compute in advance."""

    index: PairIndex
    X: Any

    def top(self, k: int) -> TopK:
        return self.index.top(self.X, k)

    def pairs(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return self.index.pairs(self.X, rows, labels)
