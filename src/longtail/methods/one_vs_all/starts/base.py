"""What a start is: it gives the first weights of labels, and for the dual solver first scores of all rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from longtail.methods.one_vs_all.inputs import OneVsAllData


class FirstScores(NamedTuple):
    """First scores of all rows, for the dual solver: a label begins with its positives and the rows that score highest.

    Row i scores base_i. With `separate`, it scores u p.x_i + v base_i instead, where p is the mean of the label's
    positives and base_i = m.x_i with the mean m of all rows. u and v are such that p scores `positive` and the mean of
    the negatives scores `negative`.

    With `by_rare_features`, labels take rows that share rare features with their positives instead (first_rows.py), and
    only those labels for which these are few take the rows that score highest.
    """

    base: np.ndarray
    separate: bool = False
    mean_square: float = 0.0  # m.m
    positive: float = 0.0
    negative: float = 0.0
    by_rare_features: bool = False


class Start(ABC):
    """First weights of labels. The options of a start are the keywords of its `__init__`: numbers, or a few words.

    A start is made once per problem, with what all labels share, and keeps no reference to the problem.
    """

    needs_bias: ClassVar[bool] = False
    begins_at_parent: ClassVar[bool] = False  # labels with a parent in the label tree begin at its solution instead
    options: Mapping[str, Any] = {}

    def __init__(self, data: OneVsAllData) -> None:  # noqa: B027 - a start may have nothing to prepare
        """Compute what all labels of the problem share."""

    @abstractmethod
    def weights(self, data: OneVsAllData, labels: np.ndarray, out: np.ndarray) -> None:
        """Write the first weights of `labels` into the rows of `out` (labels, D)."""

    def scores(self, data: OneVsAllData) -> FirstScores:
        """The first scores for the dual solver. By default all rows score alike."""
        return FirstScores(base=np.zeros(data.n_samples, np.float32))
