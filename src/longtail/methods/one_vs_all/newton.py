"""Truncated Newton, one label at a time: as in the papers, or with sampled Hessians. newton_kernels.py explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import frozen
from longtail.methods.one_vs_all import newton_kernels as kernels
from longtail.methods.one_vs_all import newton_span_kernels
from longtail.methods.one_vs_all.newton_space import NewtonOutput, NewtonRule, NewtonSpace, newton_output
from longtail.methods.one_vs_all.order import ROOT, walk
from longtail.methods.one_vs_all.parts import merged, part_of

if TYPE_CHECKING:
    from longtail.methods.one_vs_all.problem import OneVsAllProblem
    from longtail.methods.one_vs_all.starts import Start
    from longtail.methods.problem import Block, Part
    from longtail.parallel import Work

BLOCK_WORK = 200_000_000  # entries of X times labels in a block: about a second, so progress and Ctrl-C are prompt
BLOCK_LABELS = 256
TRACE = ("trace_objective", "trace_n_active", "trace_n_cg", "trace_multiplier")  # as in the kernels' output


def block_labels(pass_work: int) -> int:
    """Return the number of labels per block, if one pass over X costs `pass_work`."""
    return max(1, min(BLOCK_LABELS, BLOCK_WORK // pass_work))


def solve(problem: OneVsAllProblem, block: Block, work: Work, *, start: Start, tol: float, trace: int = 0) -> Part:
    """Solve the labels of a block from `start`, with sampled Hessians if that is the solver of the problem.

    tol : the relative duality gap with sampled Hessians, otherwise eps_0 of the stopping rule (13)
    trace : number of steps per label that are recorded as figures
    """
    sampled = problem.solver == "sampled-newton"
    rule, space = problem.newton_rule(tol, sampled=sampled), problem.newton_space(sampled=sampled)
    parent = problem.parent if start.begins_at_parent else np.full(problem.n_labels, ROOT)
    parts: list[Part] = []
    n_solved = 0
    for labels, W in walk(problem, start, block.items, parent):
        work.report(n_solved / len(block.items))
        out = newton_output(len(labels), trace)
        for chunk in parallel.ranges(len(labels), 1 if sampled else len(labels)):
            own = slice(chunk.start, chunk.stop)
            if sampled:
                move_in_span(problem, labels[chunk.start], rule, space, W[chunk.start])
            results = NewtonOutput._make(array[own] for array in out)
            kernels.newton_block(problem.X, problem.positives, labels[own], problem.x_sum, rule, space, W[own], results)
        pruned = W.astype(np.float32)  # a copy, because a child in the label tree may start at the unpruned W
        pruned[np.abs(W) < problem.prune] = 0.0
        kept = sp.csr_array(pruned)
        rows = problem.weight_rows(kept.data, kept.indices, kept.indptr)
        parts.append(part_of(block, labels, rows, out.status, out.n_iter, out.figures, traced(out)))
        n_solved += len(labels)
    return merged(parts, np.arange(len(block.items)), problem.D)


def move_in_span(problem: OneVsAllProblem, label: int, rule: NewtonRule, space: NewtonSpace, w: np.ndarray) -> None:
    """Move the first weights of a label, w, to the best point in their span. space.z gets its scores."""
    kernels.margins(problem.X, frozen(w, np.float64), space.z)
    newton_span_kernels.best_in_span(problem.positives, label, rule, problem.X.bias, problem.x_sum, space, w)


def traced(out: NewtonOutput) -> dict[str, np.ndarray]:
    """Return the trace as figures: arrays (labels, steps), and the distance of the start. Empty without a trace."""
    if not out.trace.shape[1]:
        return {}
    steps = {name: np.ascontiguousarray(out.trace[:, :, column]) for column, name in enumerate(TRACE)}
    return {**steps, "start_distance": out.distance}
