"""OvA-Primal: all labels begin at the solution for the label that no row has.   [Fang et al. 2019]

    w*(-1) = argmin_w 1/2 w.w + C sum_i phi(-x_i.w)               (15) of [Schultheis & Babbar 2022]

A tail label differs from that label in a few rows only. The rule (13) would ask for eps = tol / n here ("strict"). With
the squared hinge that leaves most rows at the kink, as the bias start with factor 1 does; stopping at eps = tol
("loose") is better for all but the rarest labels (appendix 7.2).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from longtail.compiled import frozen
from longtail.methods.one_vs_all.newton_kernels import newton_block
from longtail.methods.one_vs_all.starts.base import First, Start, Task


class OvaPrimal(Start):
    def __init__(self, task: Task, *, stop: Literal["loose", "strict"] = "loose") -> None:
        super().__init__(task)
        self.w = frozen(all_negative(task, strict=stop == "strict"), np.float64)

    def guess(self, labels: np.ndarray, out: np.ndarray) -> None:
        out[:] = self.w

    def first(self) -> First:
        return super().first()._replace(base=self.scores(self.w))


def all_negative(task: Task, *, strict: bool) -> np.ndarray:
    """w*(-1), from zero. Ending early is no failure: it is a first guess only."""
    p, W = task.problem, np.zeros((1, task.problem.D))
    rows, columns, active = p.newton_space()
    no_rows, label = (p.rows_of[:0], frozen(np.zeros(2), np.uint64)), np.zeros(1, np.int64)
    tol = task.tol if strict else task.tol * p.n_samples  # the kernel divides by n
    newton_block(
        *p.X, p.bias, task.loss, *no_rows, p.weights, label, p.x_sum, task.C, tol, task.max_iter, rows, columns, active,
        W, np.empty(1, np.int8), np.empty(1, np.int32), np.empty((1, 4)),
    )  # fmt: skip
    return W[0]
