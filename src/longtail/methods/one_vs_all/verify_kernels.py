"""The pass of the dual solver over all rows, for 32 labels at once. It finds the loss of each label over all rows, and
the rows that belong into its working set.

The panel holds the weights of the 32 labels interleaved. Its elements are bfloat16 numbers, stored as uint16, so that
the 32 weights of a feature fill one cache line of 64 bytes; or float32 (see panel.py). Numba compiles a version for
each. Products and sums are float32 in both.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import borrowing_kernel, frozen, smaller
from longtail.methods.one_vs_all.inputs import Samples
from longtail.methods.one_vs_all.panel import dense_rows

LABEL_LANES = 32  # labels that share a pass over X
DENSE_ROWS = dense_rows()  # scored together
SHORT_ROW = 20  # nonzeros: rows of fewer, in the mean, are visited by length
WINDOW = 4096  # nonzeros of the rows among which they are
WIDE = 32_768  # features: with more, the panel outgrows the second-level cache
FETCH_AHEAD = 128  # nonzeros by which lines of such a panel are fetched ahead


@intrinsic
def score_lanes(
    typing_context, X_data, X_indices, start, end, panel, base, factor, offset, positive, tau, loss, out, ahead
):
    """The scores of one row for 32 labels, whose weights lie interleaved: one line of the panel per nonzero.

    z = offset + base factor + sum over p in start .. end of X_data[p] panel[X_indices[p]];
    out = max(0, 1 - y z), y being +1 in the lanes whose bit is set in `positive`, else -1;
    loss += out^2 where y is -1 (NaN stays NaN); returns, as bits, the lanes where out > tau.
    Written in LLVM, because Numba unrolls such a short loop and then fails to vectorise it. Even and odd nonzeros have
    a sum each, because an addition to a single sum would wait for the one before. Unless `ahead` is None, every nonzero
    fetches the line of the nonzero `ahead` places later into the cache: Numba compiles one version for each kind.
    """
    signature = types.int64(X_data, X_indices, start, end, panel, base, factor, offset, positive, tau, loss, out, ahead)

    def generate(context, builder, signature, args):
        integer, number, half = ir.IntType(64), ir.IntType(32), LABEL_LANES // 2
        vector, half_vector = (ir.VectorType(ir.FloatType(), n) for n in (LABEL_LANES, half))
        words = ir.VectorType(number, half)  # each has two bfloat16 numbers, those of an even and of an odd lane
        is_short = signature.args[4].dtype == types.uint16
        fused = ["contract"]  # a fused multiply-add where the processor has one

        def pointer(position):
            return context.make_array(signature.args[position])(context, builder, args[position]).data

        def lanes_at(address, kind=vector):
            return builder.bitcast(address, kind.as_pointer())

        def load(position):
            return builder.load(lanes_at(pointer(position)), align=4)

        def add_product(a, b, c):
            return builder.fadd(c, builder.fmul(a, b, flags=fused), flags=fused)

        def chosen(a, b, positions):
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(number, len(positions)), positions))

        def spread(scalar, kind):
            nothing = ir.Constant(kind, ir.Undefined)
            return chosen(builder.insert_element(nothing, scalar, number(0)), nothing, [0] * kind.count)

        data, indices, weights = pointer(0), pointer(1), pointer(4)
        n_entries = context.make_array(signature.args[1])(context, builder, args[1]).nitems
        none, one, two = ir.Constant(half_vector, [0.0] * half), integer(1), integer(2)

        def line_at(p):
            j = builder.zext(builder.load(builder.gep(indices, [p])), integer)
            return builder.gep(weights, [builder.mul(j, integer(LABEL_LANES))])

        def fetch(p):
            anything = ir.IntType(8).as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [anything, number, number, number])
            instruction = builder.module.declare_intrinsic("llvm.prefetch", [anything], kind)
            address = builder.bitcast(line_at(p), anything)
            builder.call(instruction, [address, number(0), number(3), number(1)])  # to read, into all levels, data

        def halves_at(address):
            if not is_short:
                lanes = builder.load(lanes_at(address), align=4)
                return [chosen(lanes, lanes, list(range(k, k + half))) for k in (0, half)]
            pairs = builder.load(lanes_at(address, words), align=4)
            even = builder.shl(pairs, ir.Constant(words, [16] * half))
            odd = builder.and_(pairs, ir.Constant(words, [0xFFFF0000] * half))
            return [builder.bitcast(each, half_vector) for each in (even, odd)]

        def add_nonzero(p, totals):
            if signature.args[12] != types.none:
                fetch(builder.add(p, distance))
            x = spread(builder.load(builder.gep(data, [p])), half_vector)
            return [add_product(x, lanes, total) for lanes, total in zip(halves_at(line_at(p)), totals, strict=True)]

        def join(halves):
            order = [lane // 2 + half * (lane % 2) if is_short else lane for lane in range(LABEL_LANES)]
            return chosen(*halves, order)

        def sums(block, initial):
            parts = [builder.phi(half_vector) for _ in range(2)]
            for part, value in zip(parts, initial, strict=True):
                part.add_incoming(value, block)
            return parts

        if signature.args[12] != types.none:  # the last rows fetch their own lines
            is_inside = builder.icmp_unsigned("<=", builder.add(args[3], args[12]), n_entries)
            distance = builder.select(is_inside, args[12], integer(0))
        entry = builder.block
        test, pair, rest, last, done = (
            builder.append_basic_block(name) for name in ("test", "pair", "rest", "last", "done")
        )
        builder.branch(test)

        builder.position_at_end(test)
        p = builder.phi(integer)
        even, odd = sums(entry, [none, none]), sums(entry, [none, none])
        p.add_incoming(args[2], entry)
        following = builder.add(p, two)
        builder.cbranch(builder.icmp_unsigned("<=", following, args[3]), pair, rest)

        builder.position_at_end(pair)
        for totals, at in ((even, p), (odd, builder.add(p, one))):
            for total, value in zip(totals, add_nonzero(at, totals), strict=True):
                total.add_incoming(value, pair)
        p.add_incoming(following, pair)
        builder.branch(test)

        builder.position_at_end(rest)
        both = [builder.fadd(a, b) for a, b in zip(even, odd, strict=True)]
        builder.cbranch(builder.icmp_unsigned("<", p, args[3]), last, done)

        builder.position_at_end(last)
        with_last = add_nonzero(p, both)
        builder.branch(done)

        builder.position_at_end(done)
        halves = sums(rest, both)
        for each, value in zip(halves, with_last, strict=True):
            each.add_incoming(value, last)
        total = builder.fadd(join(halves), add_product(spread(args[5], vector), load(6), load(7)))
        zero = ir.Constant(vector, [0.0] * LABEL_LANES)
        is_positive = builder.bitcast(args[8], ir.VectorType(ir.IntType(1), LABEL_LANES))
        margin = builder.select(is_positive, builder.fneg(total), total)
        slack = builder.fadd(margin, ir.Constant(vector, [1.0] * LABEL_LANES))
        slack = builder.select(builder.fcmp_unordered(">", slack, zero), slack, zero)
        builder.store(slack, lanes_at(pointer(11)), align=4)
        negative = builder.select(is_positive, zero, slack)
        builder.store(add_product(negative, negative, load(10)), lanes_at(pointer(10)), align=4)
        above = builder.fcmp_ordered(">", slack, load(9))
        return builder.zext(builder.bitcast(above, ir.IntType(LABEL_LANES)), integer)

    return signature, generate


@intrinsic
def count_trailing_zeros(typing_context, bits):
    """The position of the lowest bit set in `bits`, which is not zero."""
    signature = types.int64(types.int64)

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return signature, generate


@intrinsic
def dense_scores(typing_context, dense, rows, panel, out):
    """out[r] = sum over f of dense[rows[r], f] panel[f] for DENSE_ROWS rows and 32 labels, summed in the order of f.

    A line of the panel is loaded once for all these rows.
    """
    signature = types.void(dense, rows, panel, out)

    def generate(context, builder, signature, args):
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LABEL_LANES)
        fused = ["contract"]

        def array(position):
            return context.make_array(signature.args[position])(context, builder, args[position])

        def lanes_at(base, line):
            return builder.bitcast(builder.gep(base, [builder.mul(line, integer(LABEL_LANES))]), vector.as_pointer())

        n_dense, weights, target = builder.extract_value(array(0).shape, 1), array(2).data, array(3).data
        numbers = [builder.load(builder.gep(array(1).data, [integer(r)])) for r in range(DENSE_ROWS)]
        rows = [builder.gep(array(0).data, [builder.mul(number, n_dense)]) for number in numbers]
        entry = builder.block
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)

        builder.position_at_end(test)
        f, totals = builder.phi(integer), [builder.phi(vector) for _ in range(DENSE_ROWS)]
        f.add_incoming(integer(0), entry)
        for total in totals:
            total.add_incoming(ir.Constant(vector, [0.0] * LABEL_LANES), entry)
        builder.cbranch(builder.icmp_unsigned("<", f, n_dense), body, done)

        builder.position_at_end(body)
        lanes = builder.load(lanes_at(weights, f), align=4)
        nothing = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LABEL_LANES), [0] * LABEL_LANES)
        for row, total in zip(rows, totals, strict=True):
            x = builder.load(builder.gep(row, [f]))
            spread = builder.shuffle_vector(builder.insert_element(nothing, x, ir.IntType(32)(0)), nothing, everywhere)
            product = builder.fmul(spread, lanes, flags=fused)
            total.add_incoming(builder.fadd(total, product, flags=fused), body)
        f.add_incoming(builder.add(f, integer(1)), body)
        builder.branch(test)

        builder.position_at_end(done)
        for r, total in enumerate(totals):
            builder.store(total, lanes_at(target, integer(r)), align=4)
        return context.get_dummy_value()

    return signature, generate


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
        bits = score_lanes(
            X.data, X.indices, X.indptr[i], X.indptr[i + np.uint32(1)], lanes.panel, base[i], lanes.factor, offset,
            lanes.positive[i], lanes.tau, part, slack, ahead,
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
