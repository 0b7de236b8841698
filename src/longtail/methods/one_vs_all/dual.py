"""Dual coordinate descent on a few rows per label, verified on all rows for 32 labels at a time.

The squared-hinge problem of newton_kernels.py and its dual:

    P(w)     = 1/2 w.w + C sum_i max(0, 1 - y_i x_i.w)^2
    D(alpha) = sum_i alpha_i - 1/2 w.w - sum_i alpha_i^2 / 4C,     alpha >= 0,  w = sum_i alpha_i y_i x_i

P(w) - D(alpha) bounds how far w is from the optimum. A label is solved when P(w) - D(alpha) <= tol P(w), with P taken
over ALL rows: nothing is sampled and left unchecked. But most rows are easy: at the optimum they lie outside the
margin, alpha_i = 0, and they do not matter. So a label works on few rows, its working set, and a pass over X, which 32
labels share, finds the rows that are missing there:

    1. working set: the positives and the rows that share rare features with them, or score highest by the start
    2. coordinate descent on the working set, whose rows are read in place and asked for before they are needed
    3. one pass: P(w) over all rows, and the rows that violate their margin most
    4. solved, and the lane takes the next label; or those rows join the working set, and back to 2

The pass reads the weights in bfloat16. The certificate stays exact, because P is taken at the rounded weights,
which are also the ones returned, and D at the alphas, which are not rounded. panel.py says where float32 is used.

Calibration needs the scores of held-out rows by the solutions without them, but not exactly. So when a label is solved,
its working set is solved once more without these rows, from the alphas of the others. Rows that the last pass found
replace those that left. There is no pass over X and no certificate: the new weights score the held-out rows, and only
the best labels of each are kept (best_labels.py). Blocks that have ended tell later ones which scores are too small.
Which blocks these are changes what a part keeps, but not the best labels of all parts.

Labels on which this does not reach the tolerance (badly scaled features, tiny tolerances) are solved again with float32
weights, and if that fails by Newton, in float64; they then have to show the same gap. Weights are sparse throughout;
only a panel of 32 labels is spread over all features. The solution of a label depends neither on the labels that share
its panel nor on their order, so threads and blocks do not change a byte.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from longtail.compiled import frozen
from longtail.methods.one_vs_all import dual_kernels as kernels
from longtail.methods.one_vs_all import newton, settle_kernels, starts
from longtail.methods.one_vs_all.best_labels import BestLabels, raise_limit
from longtail.methods.one_vs_all.best_labels_kernels import score_rows
from longtail.methods.one_vs_all.first_rows import first_rows
from longtail.methods.one_vs_all.lane_intrinsics import LABEL_LANES
from longtail.methods.one_vs_all.lanes import DualOutput, DualRule, DualSpace
from longtail.methods.one_vs_all.panel import FULL, PanelType
from longtail.methods.one_vs_all.parts import merged, part_of
from longtail.methods.one_vs_all.starts.msi import NEWTON_NEGATIVE_SCORE
from longtail.methods.one_vs_all.verify_kernels import fetch_ahead, verify
from longtail.parallel import Work
from longtail.training import Status

if TYPE_CHECKING:
    from longtail.methods.one_vs_all.problem import OneVsAllProblem
    from longtail.methods.problem import Block, Part

BLOCK_LABELS = 512
BLOCK_WORK = 2_000_000_000  # entries of X times labels in a block: about two seconds


def block_labels(pass_work: int) -> int:
    """How many labels make a block, if one pass over X costs `pass_work`."""
    return min(BLOCK_LABELS, max(2 * LABEL_LANES, BLOCK_WORK // pass_work))


def solve(problem: OneVsAllProblem, first: starts.FirstScores, block: Block, work: Work) -> Part:
    """Solve the labels of a block to a relative duality gap of `problem.tol` over all rows.

    If rows are held out, and coordinate descent solves all labels, the part has the best labels of these rows.
    """
    best = None if problem.folds is None else BestLabels(problem.folds, problem.limit)
    part = _solve_in_lanes(problem, first, block, problem.panel_type, work, best)
    if problem.panel_type != FULL and (part.status != Status.CONVERGED).any():
        part = _solve_again(problem, first, block, part, work, best)
    if best is not None and (part.status == Status.CONVERGED).all():
        raise_limit(problem.limit, best.kept.limit)
        return replace(part, arrays={**part.arrays, "best": best.best()})
    return _finish(problem, block, part, work)


def _solve_again(
    problem: OneVsAllProblem,
    first: starts.FirstScores,
    block: Block,
    part: Part,
    work: Work,
    best: BestLabels | None,
) -> Part:
    """Solve the labels that bfloat16 could not solve with float32 weights."""
    (left,) = np.nonzero(part.status != Status.CONVERGED)
    again = _solve_in_lanes(problem, first, block._replace(items=part.items[left]), FULL, _quiet(work, part), best)
    better = (again.status == Status.CONVERGED) | (again.figures["objective"] < part.figures["objective"][left])
    return _replaced(problem, part, left, again, better)


def _solve_in_lanes(
    problem: OneVsAllProblem,
    first: starts.FirstScores,
    block: Block,
    panel_type: PanelType,
    work: Work,
    best: BestLabels | None,
) -> Part:
    """Solve the labels of a block as far as coordinate descent can, with this kind of panel.

    `best` gets the scores of held-out rows for the labels that are solved.
    """
    X = problem.X
    labels = frozen(block.items, np.uint64)
    space = _space(problem, panel_type, len(labels))
    rule = DualRule(problem.C, problem.tol, problem.prune, best is not None)
    rows = first_rows(X, problem.rare_features, problem.positives, labels)
    ahead = fetch_ahead(X.n_sparse)
    while space.cursor[1] < len(labels):
        ended_labels = space.out.status[: space.cursor[1]]
        work.report(np.count_nonzero(ended_labels == settle_kernels.SOLVED) / len(labels))
        ended = kernels.prepare(
            X,
            problem.positives,
            problem.parent,
            labels,
            first,
            rows,
            rule,
            space.cursor,
            space.lanes,
            space.scratch,
            space.room,
        )
        if ended != kernels.DONE:
            space.grow(ended)
            continue
        verify(X, problem.visiting_order, first.base, space.lanes, space.pass_scratch, ahead)
        n_before = space.cursor[1]
        settle_kernels.settle(rule, space.cursor, space.lanes, space.out)
        if best is not None and space.cursor[1] > n_before:
            _score_held_out(problem, labels, rule, space, best)
    part = _part_of(problem, block, block.items[space.out.order], space.out)
    problem.idle_spaces[panel_type].append(space)
    return part


def _score_held_out(
    problem: OneVsAllProblem, labels: np.ndarray, rule: DualRule, space: DualSpace, best: BestLabels
) -> None:
    """Let the lanes that are solved score the held-out rows of every fold, and empty them."""
    X, folds = problem.X, problem.folds
    assert folds is not None
    kernels.find_more_rows(X, space.lanes)
    for fold, rows in enumerate(problem.held_out_rows):
        kernels.hold_out(fold, frozen(folds.fold_of, np.int32), X, rule, space.lanes, space.scratch)
        kept, ahead = best.of_fold(fold), fetch_ahead(X.n_sparse)
        score_rows(rows, problem.held_out_orders[fold], labels, space.lanes, kept, space.pass_scratch, ahead)
    settle_kernels.release(space.lanes)


def _space(problem: OneVsAllProblem, panel_type: PanelType, n_labels: int) -> DualSpace:
    """The buffers of a block that has ended, or new ones. There are never more of them than threads."""
    try:
        space = problem.idle_spaces[panel_type].pop()
    except IndexError:
        return DualSpace(problem.X, n_labels, panel_type)
    space.begin(n_labels)
    return space


def _part_of(problem: OneVsAllProblem, block: Block, labels: np.ndarray, out: DualOutput) -> Part:
    """The part of these labels, which are in the order in which they ended, in rising order."""
    order, used = np.argsort(labels), out.ends[-1]
    # `data` has room to spare
    W = problem.weight_rows(out.data[:used].copy(), out.indices[:used], out.ends, order)
    return part_of(block, labels[order], W, out.status[order], out.n_iter[order], out.figures[order])


def _finish(problem: OneVsAllProblem, block: Block, part: Part, work: Work) -> Part:
    """Give the labels that are not solved to Newton, with ever smaller tolerances, until their gap is small enough."""
    start = starts.MeanSeparating(problem, t=NEWTON_NEGATIVE_SCORE[problem.loss])
    for tighter in (1e-1, 1e-3, 1e-6, 1e-9):
        (left,) = np.nonzero(part.status != Status.CONVERGED)
        if not len(left):
            break
        tol = min(problem.tol, 0.01) * tighter
        ended = newton.solve(problem, block._replace(items=part.items[left]), _quiet(work, part), start=start, tol=tol)
        stuck = np.where(ended.status == Status.MAX_ITER, Status.MAX_ITER, Status.LINE_SEARCH_FAILED)
        solved = ended.figures["gap"] <= problem.tol
        ended = replace(ended, status=np.where(solved, Status.CONVERGED, stuck).astype(np.uint8))
        better = solved | (ended.figures["objective"] < part.figures["objective"][left])
        part = _replaced(problem, part, left, ended, better)
    return part


def _replaced(problem: OneVsAllProblem, part: Part, left: np.ndarray, again: Part, better: np.ndarray) -> Part:
    """`part` with the labels `left` as they are in `again`, where that is better."""
    chosen = np.arange(len(part.items))  # counts through the labels of `part`, then those of `again`
    chosen[left[better]] = len(part.items) + np.flatnonzero(better)
    return merged([part, again], chosen, problem.D)


def _quiet(work: Work, part: Part) -> Work:
    """The work on labels of `part` that are not solved yet."""
    return Work(report=partial(_report_constant, work, float(np.mean(part.status == Status.CONVERGED))))


def _report_constant(work: Work, solved_share: float, _: float) -> None:
    """What later solvers report to: the share of the block stays, but a run that was stopped ends here."""
    work.report(solved_share)
