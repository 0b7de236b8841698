"""The mean-separating start (MSI).   [Schultheis & Babbar 2022], section 4, eqs (21)-(24), and appendix 7.3

The shortest w with <w, p> = s and <w, q> = t, where p is the mean of a label's positives and q the mean of its
negatives (21). It lies in the span of p and the mean x of all rows, which labels share (22): w = u p + v x, where

    u <p,p> + v <x,p> = s          u <x,p> + v <x,x> = t + (s - t) |P| / n  =: a

s = 1, t = -2 puts most negatives beyond the margin, so the first Newton steps have few active rows. The logistic loss
pushes negatives further out: t = -3 there, as in section 5. The dual solver uses w only to choose its first rows: t is
-1.1 there, so that few rows beyond the margin are chosen.

Differs from the paper: v comes from Cramer's rule like u (23), not from (24). It then needs no special case when <x, p>
is nearly zero, and equals (27) there. When p and x are parallel (also when a label has no positives, or only
positives), no such w exists, and the start is zero, as in the paper.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import frozen, kernel
from longtail.methods.one_vs_all.newton_kernels import LOGISTIC, SQUARED_HINGE
from longtail.methods.one_vs_all.inputs import OneVsAllData
from longtail.methods.one_vs_all.starts.base import FirstScores, Start

NEWTON_NEGATIVE_SCORE = {SQUARED_HINGE: -2.0, LOGISTIC: -3.0}  # t, unless it is given
DUAL_NEGATIVE_SCORE = -1.1
PARALLEL = 1e-9  # how small 1 - cos^2(p, x) may be


class MeanSeparating(Start):
    def __init__(self, data: OneVsAllData, *, s: float = 1.0, t: float | None = None) -> None:
        if t is None:
            t = DUAL_NEGATIVE_SCORE if data.solver == "dual" else NEWTON_NEGATIVE_SCORE[data.loss]
        self.options = {"s": s, "t": t}
        self.s = s
        self.t = t
        self.x_mean = frozen(data.x_sum / data.n_samples, np.float64)

    def weights(self, data: OneVsAllData, labels: np.ndarray, out: np.ndarray) -> None:
        mean_separating(data.X, data.positives, labels, self.x_mean, self.s, self.t, out)

    def scores(self, data: OneVsAllData) -> FirstScores:
        return FirstScores(
            base=data.scores(self.x_mean),
            separate=True,
            mean_square=float(self.x_mean @ self.x_mean),
            positive=self.s,
            negative=self.t,
        )


@kernel
def separating_coefficients(pp, xx, xp, n_positive, n, s, t):
    """u and v of w = u p + v x from <p,p>, <x,x> and <x,p>; both are 0 where p and x are parallel.

    dual_kernels.py has a copy, because a kernel calls only kernels of its own file; a test compares the two.
    """
    determinant = pp * xx - xp * xp
    if n_positive == 0 or determinant <= PARALLEL * pp * xx:
        return 0.0, 0.0
    a = t + (s - t) * n_positive / n
    return (s * xx - a * xp) / determinant, (a * pp - s * xp) / determinant


@kernel
def mean_separating(X, positives, labels, x_mean, s, t, out):
    """out[b] = u p + v x for labels[b]"""
    n, D = len(X.indptr) - 1, len(x_mean)
    xx = 0.0
    for j in range(D):
        xx += x_mean[j] * x_mean[j]
    for b in range(len(out)):
        own = positives.rows[positives.indptr[labels[b]] : positives.indptr[labels[b] + 1]]
        w, count = out[b], len(own)
        w[:] = 0.0
        if count == 0:
            continue
        for a in range(count):  # w holds p for now
            i = own[a]
            start = X.indptr[i]
            for q in range(start, X.indptr[i + np.uint32(1)]):
                w[q - start if X.is_dense else X.indices[q]] += X.data[q] / count
        if X.bias > 0.0:
            w[-1] = X.bias
        pp, xp = 0.0, 0.0
        for j in range(D):
            pp += w[j] * w[j]
            xp += w[j] * x_mean[j]
        u, v = separating_coefficients(pp, xx, xp, count, n, s, t)
        for j in range(D):
            w[j] = u * w[j] + v * x_mean[j]
