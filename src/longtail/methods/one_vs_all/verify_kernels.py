"""The pass of the dual solver over all rows, for 32 labels at once. It finds the loss of each label over all rows, and
the rows that belong into its working set."""

from __future__ import annotations

import numpy as np

from longtail.compiled import borrowing_kernel, frozen, smaller
from longtail.methods.one_vs_all.inputs import Samples
from longtail.methods.one_vs_all.lane_intrinsics import count_trailing_zeros, dense_scores, slack_of_lanes
from longtail.methods.one_vs_all.panel import dense_rows

LABEL_LANES = 32  # as in lane_intrinsics.py; a test compares them
DENSE_ROWS = dense_rows()
SHORT_ROW = 20  # nonzeros: rows of fewer, in the mean, are visited by length
WINDOW = 4096  # nonzeros of the rows among which they are
WIDE = 32_768  # features: with more, the panel outgrows the second-level cache
FETCH_AHEAD = 128  # nonzeros by which lines of such a panel are fetched ahead


@borrowing_kernel
def smallest_of_best(bits, keep):
    """The `keep`-th largest of these numbers, which are at least 0, as bits.

    Such floats have the order of their bits. The largest t that `keep` numbers reach is found bit by bit, without
    branches that are hard to predict.
    """
    t, bit = np.uint32(0), np.uint32(1 << 31)
    while bit:
        larger, reach = t | bit, np.uint32(0)
        for c in range(len(bits)):
            reach += np.uint32(bits[c] >= larger)
        if reach >= np.uint32(keep):
            t = larger
        bit >>= np.uint32(1)
    return t


@borrowing_kernel
def keep_best(found, bits, keep):
    """Of the rows found, whose slack is given by its bits, keep the `keep` rows of largest slack, ties by position.

    Returns the position of a row with the smallest slack kept.
    """
    limit, ties = smallest_of_best(bits, keep), keep
    for c in range(len(bits)):
        ties -= np.int64(bits[c] > limit)
    kept, last = 0, 0
    for c in range(len(bits)):
        row, value = found[c], bits[c]
        is_tie = value == limit and ties > 0
        last = kept if is_tie else last
        ties -= np.int64(is_tie)
        found[kept], bits[kept] = row, value
        kept += np.int64(value > limit or is_tie)
    return last


def visiting_order(X: Samples) -> np.ndarray:
    """The order in which a pass visits the rows: by length among WINDOW nonzeros of neighbours, if rows are short.

    The processor predicts the end of a row by the rows before. If lengths come in any order, it is wrong at nearly
    every row, which takes as long as ten nonzeros. Long rows, and rows whose lines are fetched ahead, are visited in
    the order of memory.
    """
    starts, n = X.indptr.view(np.int64), len(X.squares)
    by_length = fetch_ahead(X.n_sparse) is None and len(X.data) <= SHORT_ROW * n
    order = np.lexsort((np.diff(starts), starts[:-1] // WINDOW)) if by_length else np.arange(n)
    return frozen(order, np.uint32)


def fetch_ahead(n_sparse: int) -> np.uint64 | None:
    """How many nonzeros ahead a pass fetches the lines of the panel, or None where these stay in cache anyway."""
    return None if n_sparse <= WIDE else np.uint64(FETCH_AHEAD)


@borrowing_kernel
def verify(X, order, base, lanes, scratch, ahead):
    """One pass over all rows, in this order, for all lanes b.

    loss[b] is the sum of max(0, 1 + z_i)^2 over the negatives. found[2 start :] are the rows outside the working set
    whose slack is above tau[b]; where these are more than `want`, the rows of largest slack. `ahead` as `fetch_ahead`
    gives it.
    """
    part, slack, offset = scratch.part, scratch.slack, scratch.offset
    rows, products = scratch.dense_rows, scratch.products
    n = len(base)
    for b in range(LABEL_LANES):
        lanes.each[b].loss, lanes.each[b].n_found = 0.0, 0
        part[b], offset[b] = 0.0, lanes.offset[b]
    for k in range(n):
        if X.dense.shape[1] > 0:
            if k % DENSE_ROWS == 0:
                for r in range(DENSE_ROWS):
                    rows[r] = order[smaller(k + r, n - 1)]
                dense_scores(X.dense, rows, lanes.dense_panel, products)
            for b in range(LABEL_LANES):
                offset[b] = lanes.offset[b] + products[k % DENSE_ROWS, b]
        i = order[k]
        bits = slack_of_lanes(
            X.data, X.indices, X.indptr[i], X.indptr[i + np.uint32(1)], lanes.panel, ahead, base[i], lanes.factor,
            offset, lanes.positive[i], lanes.tau, part, slack,
        )  # fmt: skip
        bits &= ~np.int64(lanes.member[i])
        while bits:
            b = count_trailing_zeros(bits)
            bits &= bits - 1
            lane = lanes.each[b]
            count, at = lane.n_found, 2 * lane.start
            if count == 2 * lane.want:
                last = keep_best(lanes.found[at : at + count], lanes.found_bits[at : at + count], lane.want)
                count, lanes.tau[b] = lane.want, lanes.found_slack[at + last]
            if slack[b] > lanes.tau[b]:
                lanes.found[at + count], lanes.found_slack[at + count] = i, slack[b]
                count += 1
            lane.n_found = count
        if k & 255 == 255 or k == n - 1:  # short sums in float32, long ones in float64
            for b in range(LABEL_LANES):
                lanes.each[b].loss += part[b]
                part[b] = 0.0
    for b in range(LABEL_LANES):
        lane = lanes.each[b]
        if lane.n_found > lane.want:
            at, end = 2 * lane.start, 2 * lane.start + lane.n_found
            keep_best(lanes.found[at:end], lanes.found_bits[at:end], lane.want)
            lane.n_found = lane.want
