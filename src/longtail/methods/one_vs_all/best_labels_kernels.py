"""Scores of held-out rows for the labels in the lanes of the dual solver, of which the best are kept.

Contract: all buffers come from lanes.py and best_labels.py. See dual.py.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import borrowing_kernel, larger, smaller
from longtail.methods.one_vs_all.lane_intrinsics import (
    count_trailing_zeros,
    dense_scores,
    rank_key,
    score_of,
    scores_of_lanes,
)
from longtail.methods.one_vs_all.panel import dense_rows

LABEL_LANES = 32  # as in lane_intrinsics.py; a test compares them
DENSE_ROWS = dense_rows()
TO_HOLD_OUT = 4  # as in dual_kernels.py; a test compares them


@borrowing_kernel
def replace_least(heap, key):
    """Replace the least key of a heap, which is its first, by a larger one."""
    place, n = 0, len(heap)
    while 2 * place + 1 < n:
        child = 2 * place + 1
        if child + 1 < n and heap[child + 1] < heap[child]:
            child += 1
        if key <= heap[child]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = key


@borrowing_kernel
def score_rows(X, order, labels, lanes, best, scratch, ahead):
    """Score all rows, in this order, for the labels that are solved, and keep the best keys of every row.

    labels : of the block, by position
    best : keys and limit of `RowKeys`
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
            key = rank_key(scores[b], np.uint32(labels[lanes.each[b].position]))
            if key > best.keys[i, 0]:
                replace_least(best.keys[i], key)
                best.limit[i] = larger(best.limit[i], score_of(best.keys[i, 0]))
