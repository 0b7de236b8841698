"""What a pass of the dual solver computes for 32 labels at once, in LLVM's language.

Numba unrolls such short loops and then fails to vectorise them.

The panel holds the weights of the 32 labels interleaved. Its elements are bfloat16 numbers, stored as uint16, so that
the 32 weights of a feature fill one cache line of 64 bytes; or float32 (see panel.py). Numba compiles a version for
each. Products and sums are float32 in both.

Numba's disk cache does not notice edits here. Empty it after one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.methods.one_vs_all.panel import dense_rows

LABEL_LANES = 32  # labels that share a pass over X
DENSE_ROWS = dense_rows()  # scored together


class RowTimesPanel:
    """Writes the code of a sparse row times the panel, as a vector of 32 sums.

    The first arguments of its intrinsics are X_data, X_indices, start, end, panel and ahead. The sums are those over p
    in start .. end of X_data[p] panel[X_indices[p]]. Even and odd nonzeros have a sum each, because an addition to a
    single sum would wait for the one before. Unless `ahead` is None, every nonzero fetches the line of the nonzero
    `ahead` places later into the cache: Numba compiles one version for each kind.
    """

    half = LABEL_LANES // 2
    integer, number = ir.IntType(64), ir.IntType(32)
    vector, half_vector = (ir.VectorType(ir.FloatType(), n) for n in (LABEL_LANES, LABEL_LANES // 2))
    words = ir.VectorType(ir.IntType(32), LABEL_LANES // 2)  # two bfloat16 numbers each, of an even and an odd lane
    fused = ("contract",)  # a fused multiply-add where the processor has one

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.context, self.builder, self.kinds, self.args = context, builder, signature.args, args
        self.is_short = self.kinds[4].dtype == types.uint16
        self.fetches = self.kinds[5] != types.none

    def array(self, position: Any) -> Any:
        return self.context.make_array(self.kinds[position])(self.context, self.builder, self.args[position])

    def lanes_at(self, address: Any, kind: Any = vector) -> Any:
        return self.builder.bitcast(address, kind.as_pointer())

    def load(self, position: Any) -> Any:
        return self.builder.load(self.lanes_at(self.array(position).data), align=4)

    def store(self, value: Any, position: Any) -> Any:
        self.builder.store(value, self.lanes_at(self.array(position).data), align=4)

    def constant(self, value: Any) -> Any:
        return ir.Constant(self.vector, [value] * LABEL_LANES)

    def add_product(self, a: Any, b: Any, c: Any) -> Any:
        return self.builder.fadd(c, self.builder.fmul(a, b, flags=self.fused), flags=self.fused)

    def chosen(self, a: Any, b: Any, positions: Any) -> Any:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(self.number, len(positions)), positions))

    def spread(self, scalar: Any, kind: Any = vector) -> Any:
        nothing = ir.Constant(kind, ir.Undefined)
        return self.chosen(self.builder.insert_element(nothing, scalar, self.number(0)), nothing, [0] * kind.count)

    def bits(self, lanes: Any) -> Any:
        """A vector of 32 truth values as an integer."""
        return self.builder.zext(self.builder.bitcast(lanes, ir.IntType(LABEL_LANES)), self.integer)

    def sums(self) -> Any:
        builder, integer = self.builder, self.integer
        start, end = self.args[2:4]
        none, one, two = ir.Constant(self.half_vector, [0.0] * self.half), integer(1), integer(2)
        if self.fetches:  # the last rows fetch their own lines
            is_inside = builder.icmp_unsigned("<=", builder.add(end, self.args[5]), self.array(1).nitems)
            self.distance = builder.select(is_inside, self.args[5], integer(0))
        entry = builder.block
        test, pair, rest, last, done = (
            builder.append_basic_block(name) for name in ("test", "pair", "rest", "last", "done")
        )
        builder.branch(test)

        builder.position_at_end(test)
        p = builder.phi(integer)
        even, odd = self._phis(entry, [none, none]), self._phis(entry, [none, none])
        p.add_incoming(start, entry)
        following = builder.add(p, two)
        builder.cbranch(builder.icmp_unsigned("<=", following, end), pair, rest)

        builder.position_at_end(pair)
        for totals, at in ((even, p), (odd, builder.add(p, one))):
            for total, value in zip(totals, self._add_nonzero(at, totals), strict=True):
                total.add_incoming(value, pair)
        p.add_incoming(following, pair)
        builder.branch(test)

        builder.position_at_end(rest)
        both = [builder.fadd(a, b) for a, b in zip(even, odd, strict=True)]
        builder.cbranch(builder.icmp_unsigned("<", p, end), last, done)

        builder.position_at_end(last)
        with_last = self._add_nonzero(p, both)
        builder.branch(done)

        builder.position_at_end(done)
        halves = self._phis(rest, both)
        for each, value in zip(halves, with_last, strict=True):
            each.add_incoming(value, last)
        half, is_short = self.half, self.is_short
        order = [lane // 2 + half * (lane % 2) if is_short else lane for lane in range(LABEL_LANES)]
        return self.chosen(halves[0], halves[1], order)

    def _line_at(self, p: Any) -> Any:
        j = self.builder.zext(self.builder.load(self.builder.gep(self.array(1).data, [p])), self.integer)
        return self.builder.gep(self.array(4).data, [self.builder.mul(j, self.integer(LABEL_LANES))])

    def _fetch(self, p: Any) -> Any:
        anything, number = ir.IntType(8).as_pointer(), self.number
        kind = ir.FunctionType(ir.VoidType(), [anything, number, number, number])
        instruction = self.builder.module.declare_intrinsic("llvm.prefetch", [anything], kind)
        address = self.builder.bitcast(self._line_at(p), anything)
        self.builder.call(instruction, [address, number(0), number(3), number(1)])  # to read, into all levels, data

    def _halves_at(self, address: Any) -> Any:
        builder, half = self.builder, self.half
        if not self.is_short:
            lanes = builder.load(self.lanes_at(address), align=4)
            return [self.chosen(lanes, lanes, list(range(k, k + half))) for k in (0, half)]
        pairs = builder.load(self.lanes_at(address, self.words), align=4)
        even = builder.shl(pairs, ir.Constant(self.words, [16] * half))
        odd = builder.and_(pairs, ir.Constant(self.words, [0xFFFF0000] * half))
        return [builder.bitcast(each, self.half_vector) for each in (even, odd)]

    def _add_nonzero(self, p: Any, totals: Any) -> Any:
        if self.fetches:
            self._fetch(self.builder.add(p, self.distance))
        x = self.spread(self.builder.load(self.builder.gep(self.array(0).data, [p])), self.half_vector)
        halves = self._halves_at(self._line_at(p))
        return [self.add_product(x, lanes, total) for lanes, total in zip(halves, totals, strict=True)]

    def _phis(self, block: Any, initial: Any) -> Any:
        parts = [self.builder.phi(self.half_vector) for _ in range(2)]
        for part, value in zip(parts, initial, strict=True):
            part.add_incoming(value, block)
        return parts


@intrinsic
def slack_of_lanes(
    typing_context: Any,
    X_data: Any,
    X_indices: Any,
    start: Any,
    end: Any,
    panel: Any,
    ahead: Any,
    base: Any,
    factor: Any,
    offset: Any,
    positive: Any,
    tau: Any,
    loss: Any,
    out: Any,
) -> Any:
    """The slacks of one row for 32 labels.

    z = offset + base factor + the sums of `RowTimesPanel`;
    out = max(0, 1 - y z), y being +1 in the lanes whose bit is set in `positive`, else -1;
    loss += out^2 where y is -1 (NaN stays NaN); returns, as bits, the lanes where out > tau.
    """
    signature = types.int64(X_data, X_indices, start, end, panel, ahead, base, factor, offset, positive, tau, loss, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = RowTimesPanel(context, builder, signature, args)
        sums = row.sums()
        total = builder.fadd(sums, row.add_product(row.spread(args[6]), row.load(7), row.load(8)))
        zero = row.constant(0.0)
        is_positive = builder.bitcast(args[9], ir.VectorType(ir.IntType(1), LABEL_LANES))
        margin = builder.select(is_positive, builder.fneg(total), total)
        slack = builder.fadd(margin, row.constant(1.0))
        slack = builder.select(builder.fcmp_unordered(">", slack, zero), slack, zero)
        row.store(slack, 12)
        negative = builder.select(is_positive, zero, slack)
        row.store(row.add_product(negative, negative, row.load(11)), 11)
        return row.bits(builder.fcmp_ordered(">", slack, row.load(10)))

    return signature, generate


@intrinsic
def scores_of_lanes(
    typing_context: Any,
    X_data: Any,
    X_indices: Any,
    start: Any,
    end: Any,
    panel: Any,
    ahead: Any,
    offset: Any,
    limit: Any,
    out: Any,
) -> Any:
    """The scores of one row for 32 labels: out = offset + the sums of `RowTimesPanel`.

    Returns, as bits, the lanes where out >= limit.
    """
    signature = types.int64(X_data, X_indices, start, end, panel, ahead, offset, limit, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = RowTimesPanel(context, builder, signature, args)
        total = builder.fadd(row.sums(), row.load(6))
        row.store(total, 8)
        return row.bits(builder.fcmp_ordered(">=", total, row.spread(args[7])))

    return signature, generate


@intrinsic
def count_trailing_zeros(typing_context: Any, bits: Any) -> Any:
    """The position of the lowest bit set in `bits`, which is not zero."""
    signature = types.int64(types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return signature, generate


@intrinsic
def dense_scores(typing_context: Any, dense: Any, rows: Any, panel: Any, out: Any) -> Any:
    """out[r] = sum over f of dense[rows[r], f] panel[f] for DENSE_ROWS rows and 32 labels, summed in the order of f.

    A line of the panel is loaded once for all these rows.
    """
    signature = types.void(dense, rows, panel, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LABEL_LANES)
        fused = ["contract"]

        def array(position: Any) -> Any:
            return context.make_array(signature.args[position])(context, builder, args[position])

        def lanes_at(base: Any, line: Any) -> Any:
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


@intrinsic
def rank_key(typing_context: Any, score: Any, label: Any) -> Any:
    """A number (uint64) that is larger for a better score and, among equal scores, for a smaller label.

    The upper half has the bits of the score, changed so that integers have the order of the scores; the lower half has
    those of the label, each inverted. best_labels.py reads them.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, wide = ir.IntType(32), ir.IntType(64)
        bits = builder.bitcast(args[0], number)
        sign = number(1 << 31)
        is_negative = builder.icmp_signed("<", bits, number(0))
        ordered = builder.select(is_negative, builder.not_(bits), builder.or_(bits, sign))
        upper = builder.shl(builder.zext(ordered, wide), wide(32))
        return builder.or_(upper, builder.zext(builder.not_(args[1]), wide))

    return types.uint64(types.float32, types.uint32), generate


@intrinsic
def score_of(typing_context: Any, key: Any) -> Any:
    """The score of a key that `rank_key` made; minus infinity for 0, which is no key."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, wide = ir.IntType(32), ir.IntType(64)
        ordered = builder.trunc(builder.lshr(args[0], wide(32)), number)
        sign = number(1 << 31)
        was_positive = builder.icmp_signed("<", ordered, number(0))
        bits = builder.select(was_positive, builder.xor(ordered, sign), builder.not_(ordered))
        score = builder.bitcast(bits, ir.FloatType())
        is_key = builder.icmp_unsigned(">", args[0], wide(0))
        return builder.select(is_key, score, ir.Constant(ir.FloatType(), float("-inf")))

    return types.float32(types.uint64), generate
