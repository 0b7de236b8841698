"""The interface of a start: it gives the first weights of labels, and the first scores of all rows for the dual
solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from longtail.methods.one_vs_all.inputs import OneVsAllData


class FirstScores(NamedTuple):
    """First scores of all rows. The first working set of a label has its positives and the rows with the highest
    scores.

    The score of row i is base_i. With `separate`, it is u p.x_i + v base_i, where p is the mean of the label's
    positives and base_i = m.x_i with the mean m of all rows. u and v are chosen so that the score of p is `positive`
    and the score of the mean of the negatives is `negative`.

    With `by_rare_features`, a label takes the rows that share rare features with its positives instead (first_rows.py).
    Only labels with few such rows take the rows with the highest scores.
    """

    base: np.ndarray
    separate: bool = False
    mean_square: float = 0.0  # m.m
    positive: float = 0.0
    negative: float = 0.0
    by_rare_features: bool = False


class Start(ABC):
    """First weights of labels. The options of a start are the keyword-only parameters of its `__init__`.

    A start is made once per problem. It computes what all labels share, and keeps no reference to the problem.
    """

    needs_bias: ClassVar[bool] = False
    begins_at_parent: ClassVar[bool] = False  # whether labels with a parent in the label tree start at its solution
    options: Mapping[str, Any] = {}

    def __init__(self, data: OneVsAllData) -> None:  # noqa: B027 - a start may have nothing to prepare
        """Compute what all labels of the problem share."""

    @abstractmethod
    def weights(self, data: OneVsAllData, labels: np.ndarray, out: np.ndarray) -> None:
        """Write the first weights of `labels` into the rows of `out` (labels, D)."""

    def scores(self, data: OneVsAllData) -> FirstScores:
        """Return the first scores for the dual solver. By default all rows have the same score."""
        return FirstScores(base=np.zeros(data.n_samples, np.float32))
