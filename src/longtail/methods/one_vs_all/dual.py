"""Dual coordinate descent on a few rows per label, verified on all rows for 16 labels at a time.

The squared-hinge problem of newton.py and its dual:

    P(w)     = 1/2 w.w + C sum_i max(0, 1 - y_i x_i.w)^2
    D(alpha) = sum_i alpha_i - 1/2 w.w - sum_i alpha_i^2 / 4C,     alpha >= 0,  w = sum_i alpha_i y_i x_i

P(w) - D(alpha) bounds how far w is from the optimum. A label is solved when P(w) - D(alpha) <= tol P(w), with P taken
over ALL rows: nothing is sampled and left unchecked. But most rows are easy: at the optimum they lie outside the
margin, alpha_i = 0, and they do not matter. So a label works on few rows, and a pass over X, which 16 labels share,
finds the rows that it overlooked:

    1. first guess, by the start -> one pass -> working set: the positives and the rows that score highest
    2. coordinate descent on the working set, on renumbered columns, so that all of it stays in cache
    3. one pass: P(w) over all rows, and the rows that violate their margin most
    4. solved, and the lane takes the next label; or those rows join the working set, and back to 2

Labels on which float32 coordinate descent gets stuck (badly scaled features, tiny tolerances) go to Newton, in float64,
which then has to show the same gap. Weights are sparse throughout; only a panel of 16 labels is spread over all
features. The answer for a label depends neither on the labels that share its panel nor on their order, so threads and
blocks do not change a byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import frozen
from longtail.matrix import row_squares, stack_rows
from longtail.methods.one_vs_all import dual_kernels as kernels
from longtail.methods.one_vs_all.lanes import Rows, Space
from longtail.methods.one_vs_all.newton import Newton
from longtail.methods.one_vs_all.outcome import Outcome, Status
from longtail.methods.one_vs_all.problem import Features, Problem
from longtail.methods.one_vs_all.starts import First
from longtail.methods.one_vs_all.verify_kernels import LANES, verify

BLOCK_LABELS = 512
MAX_SQUARE = 1e12  # |x|^2 of the longest row
BLOCK_WORK = 1_000_000_000  # entries of X times labels in a block: about a second


def rows_of(X: Features, problem: Problem) -> Rows:
    """X as the kernels take it, with the squares of its rows."""
    return Rows(*problem.X, problem.bias, frozen(row_squares(X), np.float64), problem.is_dense)


def suits_float32(rows: Rows) -> bool:
    """Whether products of rows stay far from the limits of float32."""
    return bool(rows.squares.max(initial=0.0) + rows.bias**2 <= MAX_SQUARE)


@dataclass(frozen=True)
class Dual:
    """Solves the squared hinge; `tol` is the relative duality gap allowed, over all rows."""

    problem: Problem
    rows: Rows
    first: First
    newton: Newton
    C: float
    tol: float
    prune: float

    def blocks(self, size: int | None) -> list[np.ndarray]:
        """Labels in groups, in each those with most rows first, so that lanes end together. Labels on the very same
        rows pose the very same problem: only the first of them is solved (see `Problem.twins`)."""
        labels, sizes = np.unique(self.problem.twins), np.diff(self.problem.rows_indptr.view(np.int64))
        work = len(self.problem.X[0]) + self.problem.n_samples
        size = size or min(BLOCK_LABELS, max(2 * LANES, BLOCK_WORK // work))
        blocks = [labels[part.start : part.stop] for part in parallel.ranges(len(labels), size)]
        return [block[np.argsort(-sizes[block], kind="stable")] for block in blocks]

    def solve(self, labels: np.ndarray) -> tuple[sp.csr_array, Outcome]:
        """The pruned weights of `labels`, one row each, and how they ended."""
        p = self.problem
        space = Space(p.n_samples, p.n_features, len(labels), dense=p.is_dense)
        wanted = frozen(labels, np.uint64)
        while space.cursor[1] < len(labels):
            ended = kernels.prepare(
                self.rows, self.first, p.rows_of, p.rows_indptr, p.weights, wanted, self.C, self.tol, space.cursor,
                space.lanes, space.scratch, space.out,
            )  # fmt: skip
            if ended != kernels.DONE:
                space.grow(ended)
                continue
            verify(self.rows, self.first.base, space.lanes, space.scratch.values)
            kernels.settle(self.C, self.tol, self.prune, space.cursor, space.lanes, space.out)
        out, used = space.out, space.out.ends[-1]
        parts = out.data[:used], out.indices[:used].astype(np.int32), out.ends.astype(np.int32)
        order = np.argsort(out.order)  # labels come out as they end
        W = stack_rows([sp.csr_array(parts, shape=(len(labels), p.D))], order)
        W.sort_indices()
        outcome = Outcome(out.status, out.rounds, *out.figures.T).take(order)
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
            better = ended.converged | (ended.objective < outcome.objective[left])
            source = np.arange(len(labels))  # the rows of [W; W_left] that make the new W
            source[left[better]] = len(labels) + np.flatnonzero(better)
            W, outcome = stack_rows([W, W_left], source), Outcome.stack([outcome, ended]).take(source)
        return W, outcome
