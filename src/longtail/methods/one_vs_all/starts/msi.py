"""The mean-separating start (MSI).   [Schultheis & Babbar 2022], section 4, eqs (21)-(24), and appendix 7.3

The start is the shortest w with <w, p> = s and <w, q> = t, where p is the mean of a label's positives and q the mean of
its negatives (21). It lies in the span of p and the mean x of all rows, which labels share (22): w = u p + v x, where

    u <p,p> + v <x,p> = s          u <x,p> + v <x,x> = t + (s - t) |P| / n  =: a

s = 1, t = -2 puts most negatives beyond the margin, so the first Newton steps have few active rows. The logistic loss
pushes negatives further out, so t = -3 there, as in section 5. The dual solver uses w only to choose its first working
set. There t = -1.1, so that few rows beyond the margin are chosen. With s = 1 and t = -1.1, the default, an index of
rare features finds most of these rows without a pass (first_rows.py).

Differs from the paper: v comes from Cramer's rule like u (23), not from (24). It then needs no special case when <x, p>
is nearly zero, and equals (27) there. If p and x are parallel, no such w exists, and the start is zero, as in the
paper. This includes labels without positives and labels without negatives.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import frozen
from longtail.methods.one_vs_all.inputs import OneVsAllData
from longtail.methods.one_vs_all.newton_kernels import LOGISTIC, SQUARED_HINGE
from longtail.methods.one_vs_all.starts.base import FirstScores, Start
from longtail.methods.one_vs_all.starts.msi_kernels import mean_separating

NEWTON_NEGATIVE_SCORE = {SQUARED_HINGE: -2.0, LOGISTIC: -3.0}  # t, unless it is given
DUAL_NEGATIVE_SCORE = -1.1


class MeanSeparating(Start):
    def __init__(self, data: OneVsAllData, *, s: float = 1.0, t: float | None = None) -> None:
        if t is None:
            t = DUAL_NEGATIVE_SCORE if data.solver == "dual" else NEWTON_NEGATIVE_SCORE[data.loss]
        self.options = {"s": s, "t": t}
        self.s = s
        self.t = t
        self.x_mean = frozen(data.x_sum / data.total_weight, np.float64)

    def weights(self, data: OneVsAllData, labels: np.ndarray, out: np.ndarray) -> None:
        mean_separating(data.X, data.positives, labels, self.x_mean, self.s, self.t, out)

    def scores(self, data: OneVsAllData) -> FirstScores:
        return FirstScores(
            base=data.scores(self.x_mean),
            separate=True,
            mean_square=float(self.x_mean @ self.x_mean),
            positive=self.s,
            negative=self.t,
            by_rare_features=(self.s, self.t) == (1.0, DUAL_NEGATIVE_SCORE),
        )
