"""Scores of held-out rows for the labels in the lanes of the dual solver, of which the best are kept.

Contract: all buffers come from lanes.py and best_labels.py. See dual.py.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import borrowing_kernel, smaller
from longtail.methods.one_vs_all.lane_intrinsics import count_trailing_zeros, dense_scores, rank_key, scores_of_lanes
from longtail.methods.one_vs_all.panel import dense_rows

LABEL_LANES = 32  # as in lane_intrinsics.py; a test compares them
DENSE_ROWS = dense_rows()
TO_HOLD_OUT = 4  # as in dual_kernels.py; a test compares them


@borrowing_kernel
def score_rows(X, order, labels, lanes, best, scratch, ahead):
    """Score all rows, in this order, for the labels that are solved, and append the keys that may be among the best.

    labels : of the block, by position
    best.limit : for every row, the least score that may be among its best
    best.keys, best.n_kept : for every row, its keys (see `rank_key`) and their number; there is room for 32 more
    """
    offset, scores, products, rows = scratch.offset, scratch.slack, scratch.products, scratch.dense_rows
    n, used = len(order), np.int64(0)
    for b in range(LABEL_LANES):
        offset[b] = lanes.offset[b]
        if lanes.each[b].phase == TO_HOLD_OUT:
            used |= np.int64(1) << np.int64(b)
    for k in range(n):
        if X.dense.shape[1] > 0:
            if k % DENSE_ROWS == 0:
                for r in range(DENSE_ROWS):
                    rows[r] = order[smaller(k + r, n - 1)]
                dense_scores(X.dense, rows, lanes.dense_panel, products)
            for b in range(LABEL_LANES):
                offset[b] = lanes.offset[b] + products[k % DENSE_ROWS, b]
        i = order[k]
        bits = scores_of_lanes(
            X.data, X.indices, X.indptr[i], X.indptr[i + np.uint32(1)], lanes.panel, ahead, offset, best.limit[i],
            scores,
        )  # fmt: skip
        bits &= used
        while bits:
            b = count_trailing_zeros(bits)
            bits &= bits - 1
            label = labels[lanes.each[b].position]
            best.keys[i, best.n_kept[i]] = rank_key(scores[b], np.uint32(label))
            best.n_kept[i] += 1
