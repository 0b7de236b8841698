"""OvA-Primal: all labels start at the solution of the all-negative problem.   [Fang et al. 2019]

    w*(-1) = argmin_w 1/2 w.w + C sum_i phi(-x_i.w)               (15) of [Schultheis & Babbar 2022]

The problem of a tail label differs from it in a few rows only. The stopping rule (13) would require eps = eps_0 / n
here ("strict"). With the squared hinge, this leaves most rows at the kink, as the bias start with factor 1 does.
Stopping at eps = eps_0 ("loose") is better, except for the rarest labels (appendix 7.2).

Differs from the paper: eps_0 is `tol`, but at most 0.01. On dense features `tol` is 1 by default, and with eps = 1
Newton's first point, w = 0, would already count as the solution. `max_tol` is respected, so with the settings of
OvA-Primal++, tol = 1 and max_tol = 1e-4, eps is 1e-4. The rule of that paper itself would be eps = 0 here.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from longtail.compiled import frozen
from longtail.methods.one_vs_all import newton_kernels as kernels
from longtail.methods.one_vs_all.inputs import TOL, LabelRows, OneVsAllData
from longtail.methods.one_vs_all.newton_space import newton_output
from longtail.methods.one_vs_all.starts.base import FirstScores, Start


class OvaPrimal(Start):
    def __init__(self, data: OneVsAllData, *, stop: Literal["loose", "strict"] = "loose") -> None:
        self.options = {"stop": stop}
        self.w = frozen(all_negative(data, strict=stop == "strict"), np.float64)

    def weights(self, data: OneVsAllData, labels: np.ndarray, out: np.ndarray) -> None:
        out[:] = self.w

    def scores(self, data: OneVsAllData) -> FirstScores:
        return FirstScores(base=data.scores(self.w))


def all_negative(data: OneVsAllData, *, strict: bool) -> np.ndarray:
    """Return w*(-1), solved from w = 0. Reaching max_iter is not a failure, because labels only start at w."""
    tol = min(data.tol, TOL)
    nobody = LabelRows(frozen([], np.uint32), frozen([0, 0], np.uint64), frozen([1.0], np.float64))
    W = np.zeros((1, data.D))
    kernels.newton_block(
        data.X,
        nobody,
        np.zeros(1, np.int64),
        data.x_sum,
        data.newton_rule(tol if strict else tol * data.n_samples),  # the kernel divides by n
        data.newton_space(),
        W,
        newton_output(1),
    )
    return np.asarray(W[0])
