"""From scores to probabilities: one small calibrator for all labels of a model.

A score says little by itself: its scale differs between methods, between rows, and between frequent and rare labels.
The calibrator uses the score of a label together with its place in the row,

    z = a + b s + c log(1 + n) + d log(r + q) + e t                                                                 (1)

    s   the margin: the score, or its logarithm where scores are probabilities
    n   number of training rows of the label
    r   rank of the label in the row by score, from 1; q >= 0 says how much the first ranks differ from each other
    t   the margin of the row's best label

and p(z), a rising piecewise linear function, gives the probability that the label is right. With b >= 0, d <= 0 and
b + e >= 0, a higher score never lowers the probability of a label: not among labels of equal frequency in one row, and
not if the score of one label rises while the others stay. `longtail.calibration` fits a calibrator on held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from longtail.errors import InputError
from longtail.topk import TopK

SMALLEST_SCORE = 1e-30  # scores that are probabilities are raised to this value before their logarithm is taken


class Coefficients(NamedTuple):
    """a, b, c, d and e of (1)."""

    intercept: float
    margin: float
    frequency: float
    rank: float
    best: float


@dataclass(frozen=True, eq=False)
class Calibrator:
    """Computes the probability of a label from its score, its rank and its frequency.

    coefficients : the coefficients of (1)
    knots, values : p(z) is linear between the points (knots[i], values[i]), and constant outside
    counts : number of training rows of every label
    n_samples : number of training rows
    log_scores : whether the margin is the logarithm of the score
    depth : number of candidates per row: the labels with the best scores, which are then ranked by probability
    rank_offset : q of (1); 0 in models of earlier versions
    """

    coefficients: Coefficients
    knots: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    n_samples: int
    log_scores: bool
    depth: int
    rank_offset: float = 0.0

    def __post_init__(self) -> None:
        fault = self._fault()
        if fault:
            raise InputError(f"the calibrator is not usable: {fault}")

    def _fault(self) -> str | None:
        """Return what is wrong, or None."""
        c = self.coefficients
        if not np.isfinite(c).all() or c.margin < 0 or c.rank > 0 or c.margin + c.best < 0:
            return f"the coefficients {tuple(c)} do not make probabilities that rise with the score"
        fault = points_fault(self.knots, self.values)
        if fault:
            return fault
        if (self.counts < 0).any() or self.counts.max(initial=0) > self.n_samples:
            return f"a label cannot have fewer than 0 or more than all {self.n_samples} training rows"
        if not 0 <= self.rank_offset < np.inf:
            return f"the rank offset {self.rank_offset} is not a number from 0"
        return None if self.depth >= 1 else f"depth {self.depth} is not a whole number from 1"

    @property
    def keeps_order(self) -> bool:
        """Whether labels have the same order by probability as by score."""
        return self.coefficients.frequency == 0

    def probabilities(self, labels: np.ndarray, scores: np.ndarray, ranks: np.ndarray | None = None) -> np.ndarray:
        """The probability of each label of each row: float32 of shape (rows, labels).

        If `ranks` is not given, the labels of every row must be sorted by score, best first. They have ranks 1, 2, ...
        """
        s = margins_of(scores, self.log_scores)
        if ranks is None:
            ranks = np.arange(1, s.shape[1] + 1)
        c = self.coefficients
        z = c.intercept + c.margin * s + c.rank * np.log(ranks + self.rank_offset)
        z += c.best * s.max(axis=1, keepdims=True, initial=-np.inf)
        if c.frequency:
            z += c.frequency * np.log1p(self.counts[labels])
        return np.asarray(np.interp(z, self.knots, self.values), np.float32)

    def with_counts(self, counts: np.ndarray, n_samples: int) -> Calibrator:
        """Return the calibrator after the training rows have changed. A label that has the same share of them keeps its
        probability, but for the 1 in log(1 + n)."""
        c = self.coefficients
        shift = c.frequency * np.log(max(n_samples, 1) / max(self.n_samples, 1))
        changed = c._replace(intercept=float(c.intercept - shift))
        return replace(self, coefficients=changed, counts=counts, n_samples=n_samples)

    def rank(self, top: TopK) -> TopK:
        """Return the labels of `top` with their probabilities, sorted by probability.

        `top` must be sorted by score. Labels with equal probabilities keep their order.
        """
        probabilities = self.probabilities(top.labels, top.scores)
        if self.keeps_order:
            return TopK(top.labels, top.scores, probabilities)
        order = np.argsort(-probabilities, axis=1, kind="stable")
        return TopK(*(np.take_along_axis(part, order, axis=1) for part in (top.labels, top.scores, probabilities)))


def points_fault(knots: np.ndarray, values: np.ndarray) -> str | None:
    """Return why these points are not those of rising probabilities, or None."""
    if len(knots) != len(values) or not len(knots):
        return f"{len(knots)} knots have {len(values)} values"
    if not (np.isfinite(knots).all() and (np.diff(knots) > 0).all()):
        return "the knots do not rise"
    if not ((values >= 0).all() and (values <= 1).all() and (np.diff(values) >= 0).all()):
        return "the values are not rising probabilities"
    return None


def margins_of(scores: np.ndarray, log_scores: bool) -> np.ndarray:
    """s of (1), in float64."""
    margins = np.asarray(scores, np.float64)
    return np.log(np.maximum(margins, SMALLEST_SCORE)) if log_scores else margins
