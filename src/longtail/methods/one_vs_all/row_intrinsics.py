"""How the kernels of the dual solver read sparse rows, in LLVM's language: what Numba would not make of a loop.

Numba's disk cache does not notice edits here. Empty it after one.
"""

from __future__ import annotations

from typing import Any

from longtail.compiled import intrinsic, ir, types


@intrinsic
def fetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Ask for the cache line of an element, by its position in the order of memory, that is needed soon.

    The processor goes on meanwhile. Any position may be given.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        anything, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [anything, number, number, number])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [anything], kind)
        data = context.make_array(array)(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), anything)
        builder.call(instruction, [address, number(0), number(3), number(1)])  # to read, into all levels, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic
def sparse_dot(typing_context: Any, x: Any, j: Any, start: Any, end: Any, w: Any) -> Any:
    """The sum of x[p] w[j[p]] over p in start .. end, in float32.

    x is loaded in vectors, where Numba would load its numbers one by one. Eight sums are taken at a time, because each
    addition to a single sum would wait for the one before.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer, number, size, fused = ir.IntType(64), ir.IntType(32), 8, ["contract"]
        vector = ir.VectorType(ir.FloatType(), size)
        arrays = ((x, args[0]), (j, args[1]), (w, args[4]))
        data, indices, weights = (context.make_array(kind)(context, builder, value).data for kind, value in arrays)

        def weight_at(p: Any) -> Any:
            position = builder.zext(builder.load(builder.gep(indices, [p])), integer)
            return builder.load(builder.gep(weights, [position]))

        def add_product(a: Any, b: Any, c: Any) -> Any:
            return builder.fadd(c, builder.fmul(a, b, flags=fused), flags=fused)

        entry, zero = builder.block, ir.Constant(vector, [0.0] * size)
        test, body, rest, tail, last, done = (builder.append_basic_block() for _ in range(6))
        builder.branch(test)

        builder.position_at_end(test)
        p, sums = builder.phi(integer), builder.phi(vector)
        p.add_incoming(args[2], entry)
        sums.add_incoming(zero, entry)
        following = builder.add(p, integer(size))
        builder.cbranch(builder.icmp_unsigned("<=", following, args[3]), body, rest)

        builder.position_at_end(body)
        lanes = zero
        for k in range(size):
            lanes = builder.insert_element(lanes, weight_at(builder.add(p, integer(k))), number(k))
        values = builder.load(builder.bitcast(builder.gep(data, [p]), vector.as_pointer()), align=4)
        sums.add_incoming(add_product(values, lanes, sums), body)
        p.add_incoming(following, body)
        builder.branch(test)

        builder.position_at_end(rest)
        parts = [builder.extract_element(sums, number(k)) for k in range(size)]
        while len(parts) > 1:
            parts = [builder.fadd(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        builder.branch(tail)

        builder.position_at_end(tail)
        q, total = builder.phi(integer), builder.phi(ir.FloatType())
        q.add_incoming(p, rest)
        total.add_incoming(parts[0], rest)
        builder.cbranch(builder.icmp_unsigned("<", q, args[3]), last, done)

        builder.position_at_end(last)
        total.add_incoming(add_product(builder.load(builder.gep(data, [q])), weight_at(q), total), last)
        q.add_incoming(builder.add(q, integer(1)), last)
        builder.branch(tail)

        builder.position_at_end(done)
        return total

    return types.float32(x, j, types.uint64, types.uint64, w), generate
