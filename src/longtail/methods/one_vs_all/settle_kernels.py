"""What becomes of the lanes of the dual solver after a pass: solved labels are written out, other working sets grow.

Contract: all buffers come from lanes.py. See dual.py.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import as_float, borrowing_kernel, larger
from longtail.methods.one_vs_all.row_intrinsics import fetch

EMPTY, TO_SOLVE, TO_CHECK, TO_HOLD_OUT = 0, 2, 3, 4  # as in dual_kernels.py; a test compares them
SOLVED, GAVE_UP = 0, 1
LABEL_LANES = 32  # as in lane_intrinsics.py
LINES_AHEAD = 16  # by which lines of the panel are fetched
MAX_ROUNDS = 12
ROUNDING = 1e-6  # share of P that float32 scores leave open; counted as part of the gap


@borrowing_kernel
def close_lane(b, P, gap, solved, rule, lanes, out, k):
    """Write the label of lane b as entry k of the output, small weights cut, and leave the lane empty.

    If rows are to be held out, a solved label stays in its lane (see `release`).
    """
    lane, at, stays = lanes.each[b], out.ends[k], solved and rule.holds_out
    features, panel, weight = lanes.features[b], lanes.panel, lane.bias_weight
    others = ~(np.uint32(1) << np.uint32(b))
    for f in range(lane.n_features):
        fetch(panel, np.uint64(features[f + LINES_AHEAD]) * np.uint64(LABEL_LANES))
        feature = features[f]
        value = as_float(panel[feature, b])
        if not stays:
            panel[feature, b] = 0
            lanes.users[feature] &= others
        if abs(value) >= rule.prune and value != 0.0:
            out.indices[at], out.data[at] = feature, value
            at += 1
    n_sparse, n_dense = len(panel), len(lanes.dense_panel)
    for f in range(n_dense):
        value = lanes.dense_panel[f, b]
        if abs(value) >= rule.prune and value != 0.0:
            out.indices[at], out.data[at] = n_sparse + f, value
            at += 1
    if abs(weight) >= rule.prune and weight != 0.0:  # it is zero without a bias feature
        out.indices[at], out.data[at] = n_sparse + n_dense, weight
        at += 1
    active = 0
    for r in range(lane.n_rows):
        active += lanes.alpha[lane.start + r] > 0.0
    out.ends[k + 1], out.order[k] = at, lane.position
    out.status[k], out.n_iter[k] = SOLVED if solved else GAVE_UP, lane.rounds
    out.figures[k, 0] = P
    out.figures[k, 1] = gap / P if P > 0.0 else 0.0
    out.figures[k, 2] = np.nan  # the gradient is not known
    out.figures[k, 3] = active
    if stays:
        lane.phase = TO_HOLD_OUT
    else:
        empty_lane(b, lanes)


@borrowing_kernel
def empty_lane(b, lanes):
    """Forget the working set of lane b. Its panel is empty already."""
    lane, others = lanes.each[b], ~(np.uint32(1) << np.uint32(b))
    for r in range(lane.n_rows):
        i = lanes.rows[lane.start + r]
        lanes.member[i] &= others
        lanes.positive[i] &= others
    lane.phase, lane.n_rows, lane.n_listed, lane.n_features = EMPTY, 0, 0, 0


@borrowing_kernel
def release(lanes):
    """Leave the lanes empty whose labels are solved and have scored the held-out rows."""
    panel = lanes.panel
    for b in range(len(lanes.each)):
        lane, features, others = lanes.each[b], lanes.features[b], ~(np.uint32(1) << np.uint32(b))
        if lane.phase == TO_HOLD_OUT:
            for f in range(lane.n_features):
                fetch(panel, np.uint64(features[f + LINES_AHEAD]) * np.uint64(LABEL_LANES))
                panel[features[f], b] = 0
                lanes.users[features[f]] &= others
            empty_lane(b, lanes)


@borrowing_kernel
def drop_rows(b, lanes):
    """Negatives with alpha 0 leave the working set of lane b. A pass finds those of them that matter later."""
    lane, others = lanes.each[b], ~(np.uint32(1) << np.uint32(b))
    kept = lane.n_positive
    for r in range(kept, lane.n_rows):
        i, alpha = lanes.rows[lane.start + r], lanes.alpha[lane.start + r]
        if alpha > 0.0:
            lanes.rows[lane.start + kept], lanes.alpha[lane.start + kept] = i, alpha
            kept += 1
        else:
            lanes.member[i] &= others
    lane.n_rows, lane.n_listed = kept, kept


@borrowing_kernel
def grow_lane(b, lanes):
    """The rows that `verify` found join the working set of lane b.

    Half of the rows of the first working set turn out not to matter. They leave; no row leaves later, so that rounds
    come to an end.
    """
    lane = lanes.each[b]
    if lane.rounds == 1:
        drop_rows(b, lanes)
    at = lane.start + lane.n_rows
    for c in range(lane.n_found):
        i = lanes.found[2 * lane.start + c]
        lanes.rows[at + c], lanes.alpha[at + c] = i, 0.0
        lanes.member[i] |= np.uint32(1) << np.uint32(b)
    lane.n_rows += lane.n_found
    lane.rounds += 1
    lane.phase = TO_SOLVE


@borrowing_kernel
def settle(rule, cursor, lanes, out):
    """After the pass: labels whose gap is small enough leave their lane; the other working sets grow."""
    for b in range(len(lanes.each)):
        lane = lanes.each[b]
        if lane.phase == TO_CHECK:
            P = 0.5 * lane.norm + rule.C * lane.loss + lane.cost * lane.positive_loss
            gap = larger(P - lane.dual, 0.0) + ROUNDING * P
            solved = gap <= rule.tol * P and np.inf > P  # NaN and infinity are no solutions
            if solved or lane.rounds == MAX_ROUNDS:
                close_lane(b, P, gap, solved, rule, lanes, out, cursor[1])
                cursor[1] += 1
        if lane.phase != EMPTY and lane.phase != TO_HOLD_OUT:
            grow_lane(b, lanes)
