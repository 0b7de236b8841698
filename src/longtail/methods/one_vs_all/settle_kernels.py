"""What becomes of the lanes of the dual solver after a pass: solved labels are written out, other working sets grow.

Contract: all buffers come from lanes.py. See dual.py.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel, larger

EMPTY, TO_SOLVE, TO_CHECK = 0, 2, 3  # as in dual_kernels.py; a test compares them
SOLVED, GAVE_UP = 0, 1
MAX_ROUNDS = 12
ROUNDING = 1e-6  # share of P that float32 scores leave open; counted as part of the gap


@intrinsic
def from_panel(typing_context, weight):
    """A weight of the panel, in half precision (uint16) or float32, as float32."""
    signature = types.float32(weight)

    def generate(context, builder, signature, args):
        if signature.args[0] == types.uint16:
            return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())
        return args[0]

    return signature, generate


@kernel
def close_lane(b, P, gap, solved, prune, lanes, out, k):
    """Write the label of lane b as entry k of the output, small weights cut, and leave the lane empty."""
    at = out.ends[k]
    features, weight = lanes.features[b], lanes.bias_weight[b]
    for f in range(lanes.n_features[b]):
        value = from_panel(lanes.panel[lanes.line_of[features[f]], b])
        if abs(value) >= prune and value != 0.0:
            out.indices[at], out.data[at] = features[f], value
            at += 1
    n_sparse, n_dense = len(lanes.line_of), len(lanes.dense_panel)
    for f in range(n_dense):
        value = lanes.dense_panel[f, b]
        if abs(value) >= prune and value != 0.0:
            out.indices[at], out.data[at] = n_sparse + f, value
            at += 1
    if abs(weight) >= prune and weight != 0.0:  # it is zero without a bias feature
        out.indices[at], out.data[at] = n_sparse + n_dense, weight
        at += 1
    active, others = 0, ~(np.uint32(1) << np.uint32(b))
    for r in range(lanes.n_rows[b]):
        i, alpha = lanes.rows[lanes.first[b] + r], lanes.alpha[lanes.first[b] + r]
        lanes.member[i] &= others
        lanes.positive[i] &= others
        if alpha > 0.0:
            if out.keeps_alphas:
                to = out.alpha_ends[k] + active
                out.alpha_rows[to], out.alpha[to] = i, alpha if r < lanes.n_positive[b] else -alpha
            active += 1
    if out.keeps_alphas:
        out.alpha_ends[k + 1] = out.alpha_ends[k] + active
    out.ends[k + 1], out.order[k] = at, lanes.position[b]
    out.status[k], out.n_iter[k] = SOLVED if solved else GAVE_UP, lanes.rounds[b]
    out.figures[k, 0] = P
    out.figures[k, 1] = gap / P if P > 0.0 else 0.0
    out.figures[k, 2] = np.nan  # the gradient is not known
    out.figures[k, 3] = active
    lanes.phase[b], lanes.n_rows[b] = EMPTY, 0


@kernel
def grow_lane(b, lanes):
    """The rows that `verify` found join the working set of lane b."""
    at = lanes.first[b] + lanes.n_rows[b]
    for c in range(lanes.n_found[b]):
        i = lanes.found[2 * lanes.first[b] + c]
        lanes.rows[at + c], lanes.alpha[at + c] = i, 0.0
        lanes.member[i] |= np.uint32(1) << np.uint32(b)
    lanes.n_rows[b] += lanes.n_found[b]
    lanes.rounds[b] += 1
    lanes.phase[b] = TO_SOLVE


@kernel
def settle(rule, cursor, lanes, out):
    """After the pass: labels whose gap is small enough leave their lane; the other working sets grow."""
    for b in range(len(lanes.phase)):
        if lanes.phase[b] == TO_CHECK:
            P = 0.5 * lanes.norm[b] + rule.C * lanes.loss[b] + lanes.cost[b] * lanes.positive_loss[b]
            gap = larger(P - lanes.dual[b], 0.0) + ROUNDING * P
            solved = gap <= rule.tol * P and np.inf > P  # NaN and infinity are no solutions
            if solved or lanes.rounds[b] == MAX_ROUNDS:
                close_lane(b, P, gap, solved, rule.prune, lanes, out, cursor[1])
                cursor[1] += 1
        if lanes.phase[b] != EMPTY:
            grow_lane(b, lanes)
