"""The pass of the dual solver over all rows, for 32 labels at once. It finds the loss of each label over all rows, and
the rows that belong into its working set.

The panel holds the weights of the 32 labels interleaved. Its elements are half-precision numbers, stored as uint16, so
that the 32 weights of a feature fill one cache line of 64 bytes; or float32 (see panel.py). Numba compiles a version
for each. Products and sums are float32 in both.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import borrowing_kernel, smaller
from longtail.methods.one_vs_all.panel import dense_rows

LABEL_LANES = 32  # labels that share a pass over X
DENSE_ROWS = dense_rows()  # scored together
WIDE = 65_536  # features: with more, the panel outgrows the second-level cache
FETCH_AHEAD = 64  # nonzeros by which lines of such a panel are fetched ahead


@intrinsic
def score_lanes(
    typing_context, X_data, X_indices, start, end, line_of, panel, base, factor, offset, positive, tau, loss, out, ahead
):
    """The scores of one row for 32 labels, whose weights lie interleaved: one line of the panel per nonzero.

    z = offset + base factor + sum over p in start .. end of X_data[p] panel[line_of[X_indices[p]]];
    out = max(0, 1 - y z), y being +1 in the lanes whose bit is set in `positive`, else -1;
    loss += out^2 where y is -1 (NaN stays NaN); returns, as bits, the lanes where out > tau.
    Written in LLVM, because Numba unrolls such a short loop and then fails to vectorise it. Even and odd nonzeros have
    a sum each, because an addition to a single sum would wait for the one before. Unless `ahead` is None, every nonzero
    fetches the line of the nonzero `ahead` places later into the cache: Numba compiles one version for each kind.
    """
    signature = types.int64(
        X_data, X_indices, start, end, line_of, panel, base, factor, offset, positive, tau, loss, out, ahead
    )

    def generate(context, builder, signature, args):
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LABEL_LANES)
        halves = ir.VectorType(ir.HalfType(), LABEL_LANES)
        is_half = signature.args[5].dtype == types.uint16
        fused = ["contract"]  # a fused multiply-add where the processor has one

        def pointer(position):
            return context.make_array(signature.args[position])(context, builder, args[position]).data

        def lanes_at(address, kind=vector):
            return builder.bitcast(address, kind.as_pointer())

        def load(position):
            return builder.load(lanes_at(pointer(position)), align=4)

        def add_product(a, b, c):
            return builder.fadd(c, builder.fmul(a, b, flags=fused), flags=fused)

        def spread(scalar):
            nothing, zeros = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), LABEL_LANES)
            first = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
            return builder.shuffle_vector(first, nothing, ir.Constant(zeros, [0] * LABEL_LANES))

        data, indices, lines, weights = pointer(0), pointer(1), pointer(4), pointer(5)
        n_entries = context.make_array(signature.args[1])(context, builder, args[1]).nitems
        zero, one, two = ir.Constant(vector, [0.0] * LABEL_LANES), integer(1), integer(2)

        def line_at(p):
            j = builder.zext(builder.load(builder.gep(indices, [p])), integer)
            line = builder.zext(builder.load(builder.gep(lines, [j])), integer)
            return builder.gep(weights, [builder.mul(line, integer(LABEL_LANES))])

        def fetch(p):
            anything, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [anything, number, number, number])
            instruction = builder.module.declare_intrinsic("llvm.prefetch", [anything], kind)
            inside = builder.select(builder.icmp_unsigned("<", p, n_entries), p, args[2])
            address = builder.bitcast(line_at(inside), anything)
            builder.call(instruction, [address, number(0), number(3), number(1)])  # to read, into all levels, data

        def add_nonzero(p, total):
            if signature.args[13] != types.none:
                fetch(builder.add(p, args[13]))
            x, address = builder.load(builder.gep(data, [p])), line_at(p)
            if is_half:
                lanes = builder.fpext(builder.load(lanes_at(address, halves), align=2), vector)
            else:
                lanes = builder.load(lanes_at(address), align=4)
            return add_product(spread(x), lanes, total)

        initial, entry = add_product(spread(args[6]), load(7), load(8)), builder.block
        test, pair, rest, last, done = (
            builder.append_basic_block(name) for name in ("test", "pair", "rest", "last", "done")
        )
        builder.branch(test)

        builder.position_at_end(test)
        p, even, odd = builder.phi(integer), builder.phi(vector), builder.phi(vector)
        p.add_incoming(args[2], entry)
        even.add_incoming(initial, entry)
        odd.add_incoming(zero, entry)
        following = builder.add(p, two)
        builder.cbranch(builder.icmp_unsigned("<=", following, args[3]), pair, rest)

        builder.position_at_end(pair)
        even.add_incoming(add_nonzero(p, even), pair)
        odd.add_incoming(add_nonzero(builder.add(p, one), odd), pair)
        p.add_incoming(following, pair)
        builder.branch(test)

        builder.position_at_end(rest)
        both = builder.fadd(even, odd)
        builder.cbranch(builder.icmp_unsigned("<", p, args[3]), last, done)

        builder.position_at_end(last)
        with_last = add_nonzero(p, both)
        builder.branch(done)

        builder.position_at_end(done)
        total = builder.phi(vector)
        total.add_incoming(both, rest)
        total.add_incoming(with_last, last)
        is_positive = builder.bitcast(args[9], ir.VectorType(ir.IntType(1), LABEL_LANES))
        margin = builder.select(is_positive, builder.fneg(total), total)
        slack = builder.fadd(margin, ir.Constant(vector, [1.0] * LABEL_LANES))
        slack = builder.select(builder.fcmp_unordered(">", slack, zero), slack, zero)
        builder.store(slack, lanes_at(pointer(12)), align=4)
        negative = builder.select(is_positive, zero, slack)
        builder.store(add_product(negative, negative, load(11)), lanes_at(pointer(11)), align=4)
        above = builder.fcmp_ordered(">", slack, load(10))
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
def smallest_of_best(values, count, keep, scratch):
    """The `keep`-th largest of values[:count] (quickselect)."""
    for c in range(count):
        scratch[c] = values[c]
    low, high = 0, count - 1
    wanted = count - keep
    while low < high:
        pivot = scratch[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while scratch[i] < pivot:
                i += 1
            while scratch[j] > pivot:
                j -= 1
            if i <= j:
                scratch[i], scratch[j] = scratch[j], scratch[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return scratch[wanted]


@borrowing_kernel
def keep_best(all_found, all_slack, start, count, keep, scratch):
    """Of the `count` rows found from `start` on, keep the `keep` rows of largest slack, ties by position.

    Returns the new count and the smallest slack kept.
    """
    found, slack = all_found[start : start + count], all_slack[start : start + count]
    limit = smallest_of_best(slack, count, keep, scratch)
    ties = keep
    for c in range(count):
        if slack[c] > limit:
            ties -= 1
    kept = 0
    for c in range(count):
        if slack[c] > limit or (slack[c] == limit and ties > 0):
            if slack[c] == limit:
                ties -= 1
            found[kept], slack[kept] = found[c], slack[c]
            kept += 1
    return kept, limit


def fetch_ahead(n_sparse: int) -> np.uint64 | None:
    """How many nonzeros ahead a pass fetches the lines of the panel, or None where these stay in cache anyway."""
    return None if n_sparse <= WIDE else np.uint64(FETCH_AHEAD)


@borrowing_kernel
def verify(X, base, lanes, scratch, ahead):
    """One pass over all rows, for all lanes b.

    loss[b] is the sum of max(0, 1 + z_i)^2 over the negatives. found[2 start :] are the rows outside the working set
    whose slack is above tau[b]; where these are more than `want`, the rows of largest slack. `ahead` as `fetch_ahead`
    gives it.
    """
    part, slack, offset, values = scratch.part, scratch.slack, scratch.offset, scratch.values
    rows, products = scratch.dense_rows, scratch.products
    n = len(base)
    for b in range(LABEL_LANES):
        lanes.each[b].loss, lanes.each[b].n_found = 0.0, 0
        part[b], offset[b] = 0.0, lanes.offset[b]
    for i in range(n):
        if X.dense.shape[1] > 0:
            if i % DENSE_ROWS == 0:
                for r in range(DENSE_ROWS):
                    rows[r] = smaller(i + r, n - 1)
                dense_scores(X.dense, rows, lanes.dense_panel, products)
            for b in range(LABEL_LANES):
                offset[b] = lanes.offset[b] + products[i % DENSE_ROWS, b]
        bits = score_lanes(
            X.data, X.indices, X.indptr[i], X.indptr[i + 1], lanes.line_of, lanes.panel, base[i], lanes.factor, offset,
            lanes.positive[i], lanes.tau, part, slack, ahead,
        )  # fmt: skip
        bits &= ~np.int64(lanes.member[i])
        while bits:
            b = count_trailing_zeros(bits)
            bits &= bits - 1
            lane = lanes.each[b]
            count, at = lane.n_found, 2 * lane.start
            if count == 2 * lane.want:
                count, lanes.tau[b] = keep_best(lanes.found, lanes.found_slack, at, count, lane.want, values)
            if slack[b] > lanes.tau[b]:
                lanes.found[at + count], lanes.found_slack[at + count] = i, slack[b]
                count += 1
            lane.n_found = count
        if i & 255 == 255 or i == n - 1:  # short sums in float32, long ones in float64
            for b in range(LABEL_LANES):
                lanes.each[b].loss += part[b]
                part[b] = 0.0
    for b in range(LABEL_LANES):
        lane = lanes.each[b]
        if lane.n_found > lane.want:
            lane.n_found, _ = keep_best(lanes.found, lanes.found_slack, 2 * lane.start, lane.n_found, lane.want, values)
