"""Compiled loops of models/hashed.py: an exact search for the best labels, given the values of the buckets.

    value(i) = sum_r T_r[h_r(i)],   or the least, or the median, of T_r[h_r(i)] over r

T is P or log P of one row for all R B buckets. Looking up R numbers for one label and row at a time would be slow. But
a label has the same buckets in all rows. So T stores 16 rows side by side, and a lookup loads a vector: T[r B + h_r(i)]
is (16,). Each of the 16 rows is a lane. A label matters only if its value in some lane is above the worst of the k best
labels so far. One vector comparison checks this for all lanes. All labels are scanned in this way, which takes a
fraction of a cycle per label, repetition and row, for any T. Values are summed in float32 in the order of r. Labels
with equal values rank by number.

The median is above a limit only if at least half of the values are. The scan counts the values above the limit, and
computes the median only if there are enough of them.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import intrinsic, ir, kernel, types

SCAN_LANES = 16
SUM, LEAST, MEDIAN = 0, 1, 2

# --- 16 rows at once -------------------------------------------------------------------------------------------------


def _scan(combine, first):
    """Make an intrinsic: out = the values of one label in 16 rows. They are combined by `combine`, starting at `first`.

    It returns, as bits, the rows with out > least.
    """

    def generate(context, builder, signature, args):
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), SCAN_LANES)

        def pointer(position):
            return context.make_array(signature.args[position])(context, builder, args[position]).data

        def lanes_at(address):
            return builder.bitcast(address, vector.as_pointer())

        codes, tables, limits, out = (pointer(position) for position in (0, 4, 5, 6))
        label, n_repetitions, n_buckets = args[1], args[2], args[3]
        codes = builder.gep(codes, [builder.mul(label, n_repetitions)])
        limits, entry = builder.load(lanes_at(limits), align=4), builder.block
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)

        builder.position_at_end(test)
        r, total = builder.phi(integer), builder.phi(vector)
        r.add_incoming(integer(0), entry)
        total.add_incoming(ir.Constant(vector, [first] * SCAN_LANES), entry)
        builder.cbranch(builder.icmp_signed("<", r, n_repetitions), body, done)

        builder.position_at_end(body)
        code = builder.zext(builder.load(builder.gep(codes, [r])), integer)
        bucket = builder.add(builder.mul(r, n_buckets), code)
        lanes = builder.load(lanes_at(builder.gep(tables, [builder.mul(bucket, integer(SCAN_LANES))])), align=4)
        r.add_incoming(builder.add(r, integer(1)), body)
        total.add_incoming(combine(builder, total, lanes, limits, vector), body)
        builder.branch(test)

        builder.position_at_end(done)
        builder.store(total, lanes_at(out), align=4)
        above = builder.fcmp_ordered(">", total, builder.load(lanes_at(pointer(7)), align=4))
        return builder.zext(builder.bitcast(above, ir.IntType(SCAN_LANES)), integer)

    return generate


def _add(builder, total, lanes, limits, vector):
    return builder.fadd(total, lanes)


def _least(builder, total, lanes, limits, vector):
    return builder.select(builder.fcmp_ordered("<", lanes, total), lanes, total)


def _count(builder, total, lanes, limits, vector):
    one, nothing = ir.Constant(vector, [1.0] * SCAN_LANES), ir.Constant(vector, [0.0] * SCAN_LANES)
    return builder.fadd(total, builder.select(builder.fcmp_ordered(">", lanes, limits), one, nothing))


@intrinsic
def sum_lanes(typing_context, codes, label, n_repetitions, n_buckets, tables, limits, out, least):
    """out = the sum over r of tables[r B + codes[label, r]]; the lanes with out > least, as bits."""
    signature = types.int64(codes, label, n_repetitions, n_buckets, tables, limits, out, least)
    return signature, _scan(_add, 0.0)


@intrinsic
def least_lanes(typing_context, codes, label, n_repetitions, n_buckets, tables, limits, out, least):
    """out = the least over r of tables[r B + codes[label, r]]; the lanes with out > least, as bits."""
    signature = types.int64(codes, label, n_repetitions, n_buckets, tables, limits, out, least)
    return signature, _scan(_least, float("inf"))


@intrinsic
def count_lanes(typing_context, codes, label, n_repetitions, n_buckets, tables, limits, out, least):
    """out = for how many r tables[r B + codes[label, r]] > limits; the lanes with out > least, as bits."""
    signature = types.int64(codes, label, n_repetitions, n_buckets, tables, limits, out, least)
    return signature, _scan(_count, 0.0)


@kernel
def median_of(codes, label, n_buckets, tables, lane, scratch):
    """The median over r in one lane; the mean of the two in the middle if R is even."""
    R = codes.shape[1]
    for r in range(R):
        value = tables[r * n_buckets + np.int64(codes[label, r]), lane]
        at = r
        while at > 0 and scratch[at - 1] > value:
            scratch[at] = scratch[at - 1]
            at -= 1
        scratch[at] = value
    if R % 2:
        return scratch[R // 2]
    return np.float32(0.5) * (scratch[R // 2 - 1] + scratch[R // 2])


@kernel
def next_label(rule, codes, label, n_buckets, tables, limits, half, scratch, out):
    """Return the first label from `label` on that is above `limits` in some lane, and these lanes as bits. Write its
    values to `out`. Each rule has its own loop, so that the loop does little more than the lookups."""
    K, R = codes.shape
    lanes = 0
    if rule == SUM:
        while label < K and not lanes:
            lanes = sum_lanes(codes, label, R, n_buckets, tables, limits, out, limits)  # type: ignore[call-arg]
            label += 1
    elif rule == LEAST:
        while label < K and not lanes:
            lanes = least_lanes(codes, label, R, n_buckets, tables, limits, out, limits)  # type: ignore[call-arg]
            label += 1
    else:
        while label < K and not lanes:
            lanes = count_lanes(codes, label, R, n_buckets, tables, limits, out, half)  # type: ignore[call-arg]
            if lanes:
                lanes = put_medians(codes, label, lanes, n_buckets, tables, limits, scratch, out)
            label += 1
    return label - 1 if lanes else K, lanes


@kernel
def put_medians(codes, label, lanes, n_buckets, tables, limits, scratch, out):
    """out = the medians of a label in these lanes. Returns the lanes whose median is above `limits`."""
    above = 0
    for lane in range(SCAN_LANES):
        if lanes >> lane & 1:
            out[lane] = median_of(codes, label, n_buckets, tables, lane, scratch)
            if out[lane] > limits[lane]:
                above |= 1 << lane
    return above


# --- the k best ------------------------------------------------------------------------------------------------------
# The heap of index_kernels.py once more: a kernel calls only kernels of its own file. A test compares the two.


@kernel
def ranks_below(value, label, other_value, other_label):
    """Whether a label ranks below another: a smaller value, or an equal value and a larger number."""
    return value < other_value or (value == other_value and label > other_label)


@kernel
def sift_down(values, labels, end, start):
    """Restore the heap of `end` entries, worst first, below position `start`."""
    root = start
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and ranks_below(values[child + 1], labels[child + 1], values[child], labels[child]):
            child += 1
        if not ranks_below(values[child], labels[child], values[root], labels[root]):
            return
        values[root], values[child] = values[child], values[root]
        labels[root], labels[child] = labels[child], labels[root]
        root = child


@kernel
def sort_heap(values, labels):
    """Turn a heap, worst first, into a list, best first."""
    for end in range(len(values) - 1, 0, -1):
        values[0], values[end] = values[end], values[0]
        labels[0], labels[end] = labels[end], labels[0]
        sift_down(values, labels, end, 0)


@kernel
def put(value, label, values, labels):
    """Insert a label into the heap of the k best so far, and return the value that the next label must exceed.
    Labels arrive in increasing order, and each of the first k labels is inserted."""
    k = len(values)
    if label < k:
        values[label] = value
        labels[label] = label
        if label == k - 1:
            for start in range(k // 2 - 1, -1, -1):
                sift_down(values, labels, k, start)
    else:
        values[0] = value
        labels[0] = label
        sift_down(values, labels, k, 0)
    return values[0] if label >= k - 1 else np.float32(-np.inf)


@kernel
def best_labels(rule, codes, n_buckets, tables, scratch, out_labels, out_values):
    """The k best labels of the rows of 16 lanes, best first. The outputs have a row for each lane in use."""
    n = len(out_labels)
    limits = np.full(SCAN_LANES, np.inf, np.float32)  # no label is above the limit of an unused lane
    limits[:n] = -np.inf
    half = np.full(SCAN_LANES, (codes.shape[1] + 1) // 2 - 0.5, np.float32)
    values = np.empty(SCAN_LANES, np.float32)
    label = 0
    while True:
        label, lanes = next_label(rule, codes, label, n_buckets, tables, limits, half, scratch, values)
        if label == len(codes):
            break
        for lane in range(n):
            if lanes >> lane & 1:
                limits[lane] = put(values[lane], label, out_values[lane], out_labels[lane])
        label += 1
    for lane in range(n):
        sort_heap(out_values[lane], out_labels[lane])


@kernel
def labels_above(rule, codes, n_buckets, tables, limits, scratch, first, found_labels, found_lanes, at):
    """Append the labels above `limits` and their lanes, beginning with label `first`, as long as there is room for all
    lanes of a label. Returns the first label that is not done, and the new end."""
    half = np.full(SCAN_LANES, (codes.shape[1] + 1) // 2 - 0.5, np.float32)
    values = np.empty(SCAN_LANES, np.float32)
    label = first
    while at + SCAN_LANES <= len(found_labels):
        label, lanes = next_label(rule, codes, label, n_buckets, tables, limits, half, scratch, values)
        if label == len(codes):
            break
        for lane in range(SCAN_LANES):
            if lanes >> lane & 1:
                found_labels[at] = label
                found_lanes[at] = lane
                at += 1
        label += 1
    return label, at
