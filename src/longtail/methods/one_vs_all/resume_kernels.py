"""Lanes of the dual solver that begin at alphas of an earlier solution. alphas.py explains them.

Contract: all buffers come from lanes.py. See dual.py.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import borrowing_kernel, larger

DONE, MORE_ROWS = 0, 1  # as in dual_kernels.py; a test compares them
EMPTY, TO_SOLVE = 0, 2


@borrowing_kernel
def resume_lane(b, positives, rows, signed, lanes):
    """The working set of lane b becomes the positives, then the other `rows`, with their alphas.

    Both lists of rows are in rising order. Returns DONE, or MORE_ROWS if the lane has no room for them.
    """
    lane = lanes.each[b]
    lane.need = len(positives) + len(rows)
    if lane.need > lane.room:
        return MORE_ROWS
    at, mine, r = lane.start, np.uint32(1) << np.uint32(b), 0
    for a in range(len(positives)):
        i = positives[a]
        while r < len(rows) and rows[r] < i:
            r += 1
        known = r < len(rows) and rows[r] == i
        lanes.rows[at], lanes.alpha[at] = i, larger(signed[r], np.float32(0.0)) if known else 0.0
        lanes.positive[i] |= mine
        lanes.member[i] |= mine
        at += 1
    for r in range(len(rows)):
        i = rows[r]
        if not lanes.member[i] & mine:
            lanes.rows[at], lanes.alpha[at] = i, larger(-signed[r], np.float32(0.0))
            lanes.member[i] |= mine
            at += 1
    lane.n_rows, lane.n_positive = at - lane.start, len(positives)
    return DONE


@borrowing_kernel
def resume(positives, earlier, labels, C, cursor, lanes):
    """Every empty lane takes the next label, up to the first label without earlier alphas.

    Returns DONE, or MORE_ROWS if a lane has no room (then call again with a larger one).
    """
    one = np.uint64(1)
    for b in range(len(lanes.each)):
        lane = lanes.each[b]
        if lane.phase == EMPTY and cursor[0] < len(labels):
            label = labels[cursor[0]]
            start, end = earlier.indptr[label], earlier.indptr[label + one]
            if start == end:
                return DONE
            own = positives.rows[positives.indptr[label] : positives.indptr[label + one]]
            if resume_lane(b, own, earlier.rows[start:end], earlier.signed[start:end], lanes) != DONE:
                return MORE_ROWS
            lane.cost, lane.position = C * positives.weight[label], cursor[0]
            lane.rounds, lane.phase = 2, TO_SOLVE  # the earlier solution was the first round
            cursor[0] += 1
    return DONE
