"""Truncated Newton as the papers have it, one label at a time: buffers around the loops of newton_kernels.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.methods.one_vs_all import newton_kernels as kernels
from longtail.methods.one_vs_all import starts
from longtail.methods.one_vs_all.outcome import Outcome
from longtail.methods.one_vs_all.problem import Problem

LOSSES = {"squared_hinge": kernels.SQUARED_HINGE, "logistic": kernels.LOGISTIC}
BLOCK_WORK = 200_000_000  # entries of X times labels in a block: about a second, so progress and Ctrl-C are prompt
BLOCK_LABELS = 256
DENSE_WEIGHTS = 4_000_000  # entries of the dense (labels, D) buffer that a thread solves into before pruning


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

    rule = "|g(w)| / |g(0)|"

    def blocks(self) -> list[np.ndarray]:
        """Labels in groups that take about as long."""
        size = min(BLOCK_LABELS, BLOCK_WORK // (len(self.problem.X[0]) + self.problem.n_samples))
        return [np.arange(part.start, part.stop) for part in parallel.ranges(self.problem.n_labels, size)]

    def solve(self, labels: np.ndarray) -> tuple[sp.csr_array, Outcome]:
        """The pruned weights of `labels`, one row each, and how they ended."""
        p, n = self.problem, len(labels)
        y, rows = np.full(p.n_samples, -1.0), np.empty((2, p.n_samples))
        columns, active = np.empty((6, p.D)), np.empty(p.n_samples, np.uint32)
        status, steps, figures, parts = np.empty(n, np.int8), np.empty(n, np.int32), np.empty((n, 4)), []
        for chunk in parallel.ranges(n, DENSE_WEIGHTS // p.D):
            at = slice(chunk.start, chunk.stop)
            W = np.empty((len(chunk), p.D))
            self.start.guess(labels[at], W)
            kernels.newton_block(
                *p.X, p.bias, LOSSES[self.loss], p.rows_of, p.rows_indptr, labels[at], p.x_sum, self.C, self.tol,
                self.max_iter, y, rows, columns, active, W, status[at], steps[at], figures[at],
            )  # fmt: skip
            W[np.abs(W) < self.prune] = 0.0
            parts.append(sp.csr_array(W.astype(np.float32)))
        return sp.csr_array(sp.vstack(parts, format="csr")), Outcome(status, steps, *figures.T)
