"""How an ensemble combines its members: a linear function whose coefficients depend on the frequency of the label.

    log-odds(x, label) = sum_m z_m,     z_m = a_m(n) + w_m(n) s_m + r_m(n) log(rank_m + q_m) + b_m(n) t_m           (1)

    n       number of training rows of the label
    s_m     the margin of member m: its score, or the logarithm of the score where scores are probabilities
    rank_m  rank of the label in the row by this score, from 1; q_m is the rank offset of the member's calibrator
    t_m     the margin of the row's best label

The coefficients are linear in log(1 + n) between knots, and constant outside. At every knot w_m >= 0, r_m <= 0 and
w_m + b_m >= 0, so that log-odds never fall if the score of a label rises while the others stay. `longtail.calibration`
fits a mixture on held-out rows.

Ensembles of earlier versions average the calibrated probabilities of their members:

    log-odds(x, label) = shift + sum_m curved_m logit p_m(z_m)                                                      (2)

with z_m and p_m of the member's calibrator (models/calibrator.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from longtail.errors import InputError
from longtail.models.calibrator import Calibrator

LARGEST = 1e30  # size of coefficients


@dataclass(frozen=True, eq=False)
class Mixture:
    """The coefficients of (1).

    knots : (K,) values of log(1 + n), rising
    intercept, margin, rank, best : (members, K), the coefficients a, w, r and b at the knots
    curved, shift : the numbers of (2), one per member and one for all; in ensembles of earlier versions only
    """

    knots: np.ndarray
    intercept: np.ndarray
    margin: np.ndarray
    rank: np.ndarray
    best: np.ndarray
    curved: np.ndarray | None = None
    shift: float = 0.0

    def __post_init__(self) -> None:
        fault = self._fault()
        if fault:
            raise InputError(f"the members cannot be combined: {fault}")

    def _fault(self) -> str | None:
        """Return what is wrong, or None."""
        shape = (len(self.margin), len(self.knots))
        if not all(each.shape == shape for each in self.lines) or 0 in shape:
            return f"the coefficients have the shapes {', '.join(str(each.shape) for each in self.lines)}, not {shape}"
        if not (np.isfinite(self.knots).all() and (np.diff(self.knots) > 0).all()):
            return "the knots do not rise"
        if not all((abs(each) <= LARGEST).all() for each in self.lines):
            return f"a coefficient is not a number of a size up to {LARGEST:g}"
        if (self.margin < 0).any() or (self.rank > 0).any() or (self.margin + self.best < 0).any():
            return "the coefficients do not make log-odds that rise with the score"
        curved = np.zeros(len(self.margin)) if self.curved is None else self.curved
        if curved.shape != shape[:1] or not ((curved >= 0).all() and (curved <= LARGEST).all()):
            return "an ensemble of an earlier version needs one weight per member, not negative"
        return None if abs(self.shift) <= LARGEST else "the shift is not a finite number"

    @classmethod
    def average(cls, calibrators: Sequence[Calibrator]) -> Mixture:
        """Return the mixture that averages the linear predictors z of the calibrators."""
        whole = cls.calibrated(calibrators, np.ones(len(calibrators)))
        a, w, r, b = (each / len(calibrators) for each in whole.lines)
        return cls(whole.knots, a, w, r, b)

    @classmethod
    def calibrated(cls, calibrators: Sequence[Calibrator], weights: np.ndarray, shift: float = 0.0) -> Mixture:
        """Return the mixture (2), with the linear predictors of the calibrators as z_m."""
        most = max((each.n_samples for each in calibrators), default=1)
        knots = np.array([0.0, np.log1p(max(most, 1))])
        c = np.array([each.coefficients for each in calibrators], np.float64).reshape(-1, 5).T[:, :, None]
        intercept, margin, frequency, rank, best = c * np.ones(2)
        return cls(knots, intercept + frequency * knots, margin, rank, best, weights, shift)

    @property
    def lines(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """a, w, r and b at the knots."""
        return self.intercept, self.margin, self.rank, self.best

    @property
    def used(self) -> np.ndarray:
        """The numbers of the members that have a coefficient other than 0, or of all members if none has."""
        terms = np.stack(self.lines).any(axis=(0, 2)) if self.curved is None else self.curved > 0
        return np.flatnonzero(terms if terms.any() else ~terms)

    def places(self, counts: np.ndarray) -> np.ndarray:
        """The place among the knots of labels with these numbers of training rows: 1.5 is halfway from knot 1 to 2."""
        return np.asarray(np.interp(np.log1p(counts), self.knots, np.arange(len(self.knots))))

    def slopes(self, counts: np.ndarray) -> np.ndarray:
        """w_m(n) of labels with these numbers of training rows, (members, labels); in (2), as if p_m were a sigmoid."""
        at = np.arange(len(self.knots))
        slopes = np.stack([np.interp(self.places(counts), at, each) for each in self.margin])
        return slopes if self.curved is None else self.curved[:, None] * slopes

    def rescaled(self, scales: Sequence[tuple[float, float]]) -> Mixture:
        """Return the mixture for members whose margins s stand for shift + slope s, with one (shift, slope) each."""
        shift, slope = np.array(scales, np.float64).T[:, :, None]
        intercept = self.intercept + (self.margin + self.best) * shift
        return replace(self, intercept=intercept, margin=self.margin * slope, best=self.best * slope)
