"""The scale of a model's margins, compared with that of another model of the same method.

A calibrator is fitted on the margins of models that do not know the held-out rows, but used with the model of all rows.
With some methods, margins grow with the number of rows or steps, and probabilities would be too high. No rows are new
to both models, so both score rows that both were trained on. There, margins of true labels say little, because training
raises them. The best wrong labels of a row are compared instead: their margins differ about as much as on new rows.
With their mean m and standard deviation q for the model of all rows, and m' and q' for the others,

    s' = m' + (s - m) q' / q                                                                                        (1)

is the margin that the others would give where the model of all rows gives s.

A model of more rows is also more often right, so higher margins can be justified. `ExtremeClassifier.matches_scale`
says which share of the difference is removed: all of it for `PDSparse` and `Memoir`, half of it for `OneVsAll`, and
nothing for `Mach`, whose scores are probabilities. Rough fits of the dual solver (methods/calibrating.py) are not
matched, because their margins differ for other reasons. docs/guides/probabilities.md has the figures behind these
choices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from longtail.calibration.held_out import HeldOut
from longtail.models.calibrator import Calibrator, margins_of

N_WRONG = 5  # wrong labels per row


class Scale(NamedTuple):
    """s' = shift + slope s, as in (1)."""

    shift: float = 0.0
    slope: float = 1.0

    @classmethod
    def between(cls, margins: np.ndarray, wanted: np.ndarray) -> Scale:
        """Return the line that gives `margins` the mean and the standard deviation of `wanted`."""
        if not (len(margins) and len(wanted) and margins.std() > 0 and wanted.std() > 0):
            return cls()
        slope = float(wanted.std() / margins.std())
        return cls(float(wanted.mean()) - slope * float(margins.mean()), slope)

    def weakened(self, share: float) -> Scale:
        """Return the line between s (share 0) and s' (share 1)."""
        return Scale(share * self.shift, 1 + share * (self.slope - 1))

    def applied(self, calibrator: Calibrator) -> Calibrator:
        """Return the calibrator that takes s and gives the probability of s'. Both s and t of its (1) are margins."""
        c = calibrator.coefficients
        changed = c._replace(
            intercept=c.intercept + (c.margin + c.best) * self.shift,
            margin=self.slope * c.margin,
            best=self.slope * c.best,
        )
        return replace(calibrator, coefficients=changed)


def wrong_margins(found: HeldOut, log_scores: bool) -> np.ndarray:
    """The margins of the N_WRONG best wrong labels of every row, in one dimension. Rows with fewer are left out."""
    wrong = ~found.hit
    first = wrong & (np.cumsum(wrong, axis=1) <= N_WRONG) & (wrong.sum(axis=1, keepdims=True) >= N_WRONG)
    return np.asarray(margins_of(found.top.scores, log_scores)[first])
