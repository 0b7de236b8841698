"""Truncated Newton as the papers have it, one label at a time: buffers around the loops of newton_kernels.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.matrix import stack_rows
from longtail.methods.one_vs_all import newton_kernels as kernels
from longtail.methods.one_vs_all import starts
from longtail.methods.one_vs_all.outcome import Outcome
from longtail.methods.one_vs_all.problem import Problem

LOSSES = {"squared_hinge": kernels.SQUARED_HINGE, "logistic": kernels.LOGISTIC}
BLOCK_WORK = 200_000_000  # entries of X times labels in a block: about a second, so progress and Ctrl-C are prompt
BLOCK_LABELS = 256


@dataclass(frozen=True)
class Newton:
    """Solves any loss from any start; `tol` is eps_0 of the stopping rule (13)."""

    problem: Problem
    start: starts.Start
    loss: str
    C: float
    tol: float
    max_iter: int
    prune: float

    def blocks(self, size: int | None) -> list[np.ndarray]:
        """Labels in groups that take about as long."""
        usual = min(BLOCK_LABELS, BLOCK_WORK // (len(self.problem.X[0]) + self.problem.n_samples))
        return self.start.blocks(size or usual)

    def solve(self, labels: np.ndarray) -> tuple[sp.csr_array, Outcome]:
        """The pruned weights of `labels`, one row each, and how they ended."""
        p, solved, parts, outcomes = self.problem, [], [], []
        rows, columns, active = p.newton_space()
        for chunk, W in self.start.walk(labels):
            n = len(chunk)
            status, steps, figures = np.empty(n, np.int8), np.empty(n, np.int32), np.empty((n, 4))
            kernels.newton_block(
                *p.X, p.bias, LOSSES[self.loss], p.rows_of, p.rows_indptr, p.weights, chunk, p.x_sum, self.C,
                self.tol, self.max_iter, rows, columns, active, W, status, steps, figures,
            )  # fmt: skip
            pruned = W.astype(np.float32)  # a copy: the start may go on from W
            pruned[np.abs(W) < self.prune] = 0.0
            solved.append(chunk)
            parts.append(sp.csr_array(pruned))
            outcomes.append(Outcome(status, steps, *figures.T))
        order = _places(labels, np.concatenate(solved))
        return stack_rows(parts, order), Outcome.stack(outcomes).take(order)


def _places(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Where in `found` each of `wanted` is."""
    order = np.argsort(found, kind="stable")
    return order[np.searchsorted(found, wanted, sorter=order)]
