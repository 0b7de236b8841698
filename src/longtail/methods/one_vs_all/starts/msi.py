"""The mean-separating start (MSI).   [Schultheis & Babbar 2022], section 4, eqs (21)-(24), and appendix 7.3

The shortest w with <w, p> = s and <w, q> = t, p the mean of a label's positive rows, q that of its negative ones (21).
It lies in the span of p and the mean x of all rows, which labels share (22): w = u p + v x, where

    u <p,p> + v <x,p> = s          u <x,p> + v <x,x> = t + (s - t) |P| / n  =: a

The dual solver uses w for the choice of its first rows only; t = -1.1 there, so that hardly more than the rows within
the margin come first.

s = 1, t = -2 puts most negatives beyond the margin, so the first Newton steps see few active rows. The logistic loss
pushes negatives further out: t = -3 there, as in section 5.

Differs from the paper: v comes from Cramer's rule like u (23), not from (24); it then needs no special case when <x, p>
is nearly zero, and equals (27) there. When p and x are parallel (or a label has no positive row, or only positive
ones) no such w exists, and the start is zero, as in the paper.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import frozen, kernel
from longtail.methods.one_vs_all.newton_kernels import LOGISTIC, SQUARED_HINGE
from longtail.methods.one_vs_all.starts.base import First, Start, Task

NEGATIVE_SCORE = {SQUARED_HINGE: -2.0, LOGISTIC: -3.0}  # t where the user does not say
DUAL_NEGATIVE_SCORE = -1.1
PARALLEL = 1e-9  # how small 1 - cos^2(p, x) may be


class MeanSeparating(Start):
    def __init__(self, task: Task, *, s: float = 1.0, t: float | None = None) -> None:
        super().__init__(task)
        self.s, self.t = s, NEGATIVE_SCORE[task.loss] if t is None else t
        self.dual_t = DUAL_NEGATIVE_SCORE if t is None else t
        self.x_mean = frozen(self.problem.x_sum / self.problem.n_samples, np.float64)

    def guess(self, labels: np.ndarray, out: np.ndarray) -> None:
        p = self.problem
        mean_separating(*p.X, p.bias, p.rows_of, p.rows_indptr, labels, self.x_mean, self.s, self.t, out)

    def first(self) -> First:
        square, rows = float(self.x_mean @ self.x_mean), super().first()
        return rows._replace(
            base=self.scores(self.x_mean), separate=True, mean_square=square, positive=self.s, negative=self.dual_t
        )


@kernel
def mean_separating(X_data, X_indices, X_indptr, bias, rows_of, rows_indptr, labels, x_mean, s, t, out):
    """out[b] = u p + v x for labels[b]"""
    n, D = len(X_indptr) - 1, len(x_mean)
    xx = 0.0
    for j in range(D):
        xx += x_mean[j] * x_mean[j]
    for b in range(len(out)):
        positives = rows_of[rows_indptr[labels[b]] : rows_indptr[labels[b] + 1]]
        w, count = out[b], len(positives)
        w[:] = 0.0
        if count == 0:
            continue
        for a in range(count):  # w holds p for now
            i = positives[a]
            start = X_indptr[i]
            for q in range(start, X_indptr[i + np.uint32(1)]):
                w[X_indices[q] if len(X_indices) else q - start] += X_data[q] / count
        if bias > 0.0:
            w[-1] = bias
        pp, xp = 0.0, 0.0
        for j in range(D):
            pp += w[j] * w[j]
            xp += w[j] * x_mean[j]
        determinant = pp * xx - xp * xp
        if determinant <= PARALLEL * pp * xx:
            w[:] = 0.0
            continue
        a = t + (s - t) * count / n
        u = (s * xx - a * xp) / determinant
        v = (a * pp - s * xp) / determinant
        for j in range(D):
            w[j] = u * w[j] + v * x_mean[j]
