"""Truncated Newton as in the papers, one label at a time. newton_kernels.py describes the method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from longtail.methods.one_vs_all import newton_kernels as kernels
from longtail.methods.one_vs_all.order import ROOT, walk
from longtail.methods.one_vs_all.parts import merged, part_of

if TYPE_CHECKING:
    from longtail.methods.one_vs_all.problem import OneVsAllProblem
    from longtail.methods.one_vs_all.starts import Start
    from longtail.methods.problem import Block, Part
    from longtail.parallel import Work

BLOCK_WORK = 200_000_000  # entries of X times labels in a block: about a second, so progress and Ctrl-C are prompt
BLOCK_LABELS = 256


def block_labels(pass_work: int) -> int:
    """Return the number of labels per block, if one pass over X costs `pass_work`."""
    return max(1, min(BLOCK_LABELS, BLOCK_WORK // pass_work))


def solve(problem: OneVsAllProblem, block: Block, work: Work, *, start: Start, tol: float) -> Part:
    """Solve the labels of a block from `start`. `tol` is eps_0 of the stopping rule (13)."""
    rule = problem.newton_rule(tol)
    space = kernels.newton_space(problem.n_samples, problem.D)
    parent = problem.parent if start.begins_at_parent else np.full(problem.n_labels, ROOT)
    parts: list[Part] = []
    n_solved = 0
    for labels, W in walk(problem, start, block.items, parent):
        work.report(n_solved / len(block.items))
        out = kernels.newton_output(len(labels))
        kernels.newton_block(problem.X, problem.positives, labels, problem.x_sum, rule, space, W, out)
        pruned = W.astype(np.float32)  # a copy, because a child in the label tree may start at the unpruned W
        pruned[np.abs(W) < problem.prune] = 0.0
        parts.append(part_of(block, labels, sp.csr_array(pruned), out.status, out.n_iter, out.figures))
        n_solved += len(labels)
    return merged(parts, np.arange(len(block.items)), problem.D)
