"""Dual coordinate descent on a few rows per label, verified on all rows for 16 labels at a time.

The squared-hinge problem of newton.py and its dual:

    P(w)     = 1/2 w.w + C sum_i max(0, 1 - y_i x_i.w)^2
    D(alpha) = sum_i alpha_i - 1/2 w.w - sum_i alpha_i^2 / 4C,     alpha >= 0,  w = sum_i alpha_i y_i x_i

P(w) - D(alpha) bounds how far w is from the optimum. A label is solved when P(w) - D(alpha) <= tol P(w), with P taken
over ALL rows: nothing is sampled and left unchecked. But most rows are easy: at the optimum they lie outside the
margin, alpha_i = 0, and they do not matter. So a label works on few rows, and a pass over X, which 16 labels share,
finds the rows that it overlooked:

    1. first guess -> one pass -> working set: the positives and the rows that score highest
    2. coordinate descent on the working set, on renumbered columns, so that all of it stays in cache
    3. one pass: P(w) over all rows, and the rows that violate their margin most
    4. solved, and the lane takes the next label; or those rows join the working set, and back to 2

Labels on which float32 coordinate descent gets stuck (badly scaled features, tiny tolerances) go to Newton, in float64,
which then has to show the same gap. Weights are sparse throughout; only a panel of 16 labels is spread over all features. The answer for a label depends
neither on the labels that share its panel nor on their order, so threads and blocks do not change a byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import frozen
from longtail.methods.one_vs_all import dual_kernels as kernels
from longtail.methods.one_vs_all.newton import Newton
from longtail.methods.one_vs_all.newton_kernels import margins
from longtail.methods.one_vs_all.outcome import Outcome, Status
from longtail.methods.one_vs_all.problem import Problem, stack_rows

LANES = kernels.LANES
BLOCK_LABELS = 512
MAX_SQUARE = 1e12  # |x|^2 of the longest row
BLOCK_WORK = 1_000_000_000  # entries of X times labels in a block: about a second


@dataclass(frozen=True)
class Shared:
    """What all labels share besides the Problem: squared row norms, and scores X x for the mean row x."""

    squares: np.ndarray
    base: np.ndarray
    x_mean_square: float

    @classmethod
    def of(cls, X: sp.csr_array, problem: Problem) -> Shared:
        x_mean = frozen(problem.x_sum / problem.n_samples, np.float64)
        scores = np.empty(problem.n_samples)
        margins(*problem.X, problem.bias, x_mean, scores)
        squares = np.asarray(X.multiply(X).sum(axis=1, dtype=np.float64)).ravel()
        with np.errstate(over="ignore"):  # then suits_float32 says no
            return cls(frozen(squares, np.float64), frozen(scores, np.float32), float(x_mean @ x_mean))

    @property
    def suits_float32(self) -> bool:
        """Whether products of rows stay far from the limits of float32."""
        return bool(self.squares.max(initial=0.0) <= MAX_SQUARE)


class Space:
    """The buffers of one thread; those for working sets and output grow as labels need them."""

    def __init__(self, problem: Problem, n_labels: int) -> None:
        n, d = problem.n_samples, problem.n_features
        self.cursor, self.positive = np.zeros(3, np.int64), np.zeros(n, np.uint16)
        self.lane = np.zeros((LANES, 6), np.int64)
        self.n_found = np.zeros(LANES, np.int64)
        self.factor, self.offset, self.tau = (np.zeros(LANES, np.float32) for _ in range(3))
        self.loss, self.figures = np.zeros(LANES), np.zeros((LANES, 3))
        self.panel, self.lane_features = np.zeros((d, LANES), np.float32), np.zeros((LANES, d), np.uint32)
        self.slot, self.features, self.w = np.zeros(d, np.uint32), np.zeros(d, np.uint32), np.zeros(d, np.float32)
        self.stamp = np.zeros(n, np.int64)
        self.rows, self.alpha = np.zeros((LANES, 0), np.uint32), np.zeros((LANES, 0))
        self.found, self.found_slack = np.zeros((LANES, 0), np.uint32), np.zeros((LANES, 0), np.float32)
        self.x, self.j = np.zeros(0, np.float32), np.zeros(0, np.uint32)
        self.out_indices, self.out_data = np.zeros(0, np.uint32), np.zeros(0, np.float32)
        self.out_ends, self.out_order = np.zeros(n_labels + 1, np.int64), np.zeros(n_labels, np.int64)
        self.out_status, self.out_rounds = np.zeros(n_labels, np.int8), np.zeros(n_labels, np.int32)
        self.out_figures = np.zeros((n_labels, 4))
        self.grow_rows()
        self.grow_entries()
        self.grow_output()

    def grow_rows(self) -> None:
        size = max(1024, 2 * self.rows.shape[1])
        self.rows, self.alpha = _widened(self.rows, size), _widened(self.alpha, size)
        self.found, self.found_slack = _widened(self.found, 2 * size), _widened(self.found_slack, 2 * size)
        self.scratch = np.zeros(2 * size, np.float32)
        self.ends, self.order = np.zeros(size + 1, np.uint64), np.zeros(size, np.uint32)

    def grow_entries(self) -> None:
        size = max(1 << 16, 2 * len(self.x))
        self.x, self.j = np.zeros(size, np.float32), np.zeros(size, np.uint32)

    def grow_output(self) -> None:
        size = max(1 << 16, 2 * len(self.out_indices), LANES * (len(self.panel) + 1))
        self.out_indices, self.out_data = _widened(self.out_indices, size), _widened(self.out_data, size)


def _widened(array: np.ndarray, size: int) -> np.ndarray:
    wide = np.zeros((*array.shape[:-1], size), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide


@dataclass(frozen=True)
class Dual:
    """Solves the squared hinge; `tol` is the relative duality gap allowed, over all rows."""

    problem: Problem
    shared: Shared
    newton: Newton
    C: float
    tol: float
    prune: float

    rule = "relative duality gap"

    def blocks(self) -> list[np.ndarray]:
        """Labels in groups, those with most rows first, so that threads end together. Labels on the very same rows
        pose the very same problem: only the first of them is solved (see `Problem.twins`)."""
        labels = np.unique(self.problem.twins)
        sizes = np.diff(self.problem.rows_indptr.view(np.int64))[labels]
        labels = labels[np.argsort(-sizes, kind="stable")]
        work = len(self.problem.X[0]) + self.problem.n_samples
        size = min(BLOCK_LABELS, max(2 * LANES, BLOCK_WORK // work))
        return [labels[part.start : part.stop] for part in parallel.ranges(len(labels), size)]

    def solve(self, labels: np.ndarray) -> tuple[sp.csr_array, Outcome]:
        """The pruned weights of `labels`, one row each, and how they ended."""
        p, shared, s = self.problem, self.shared, Space(self.problem, len(labels))
        grow = {
            kernels.MORE_ROWS: s.grow_rows,
            kernels.MORE_ENTRIES: s.grow_entries,
            kernels.MORE_OUTPUT: s.grow_output,
        }
        while True:
            ended = kernels.advance(
                *p.X, shared.squares, p.bias, shared.base, shared.x_mean_square, p.rows_of, p.rows_indptr,
                frozen(labels, np.uint64), self.C, self.tol, self.prune, s.cursor, s.lane, s.rows, s.alpha,
                s.found, s.found_slack, s.scratch, s.n_found, s.factor, s.offset, s.tau, s.loss, s.figures, s.panel, s.positive,
                s.lane_features, s.slot, s.features, s.x, s.j, s.ends, s.order, s.stamp, s.w, s.out_indices, s.out_data,
                s.out_ends, s.out_order, s.out_status, s.out_rounds, s.out_figures,
            )  # fmt: skip
            if ended == kernels.DONE:
                break
            grow[ended]()
        used = s.out_ends[-1]
        parts = s.out_data[:used], s.out_indices[:used].astype(np.int32), s.out_ends.astype(np.int32)
        order = np.argsort(s.out_order)  # labels come out as they end
        W = stack_rows([sp.csr_array(parts, shape=(len(labels), p.D))], order)
        W.sort_indices()
        outcome = Outcome(s.out_status, s.out_rounds, *s.out_figures.T).take(order)
        return self._finish(labels, W, outcome)

    def _finish(self, labels: np.ndarray, W: sp.csr_array, outcome: Outcome) -> tuple[sp.csr_array, Outcome]:
        """Hand the labels that are not solved to Newton, ever more exactly until their gap is small enough."""
        for tighter in (1e-1, 1e-3, 1e-6, 1e-9):
            (left,) = np.nonzero(~outcome.converged)
            if not len(left):
                break
            newton = replace(self.newton, tol=min(self.tol, 0.01) * tighter)
            W_left, ended = newton.solve(labels[left])
            stuck = np.where(ended.status == Status.MAX_ITER, Status.MAX_ITER, Status.LINE_SEARCH_FAILED)
            ended = replace(ended, status=np.where(ended.gap <= self.tol, Status.CONVERGED, stuck).astype(np.int8))
            source = np.arange(len(labels))  # the rows of [W; W_left] that make the new W
            source[left] = len(labels) + np.arange(len(left))
            W, outcome = stack_rows([W, W_left], source), Outcome.stack([outcome, ended]).take(source)
        return W, outcome
