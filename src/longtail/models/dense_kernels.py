"""The kernels of models/dense.py: products of dense rows with the dense weights of all labels.

The weights of 32 labels lie interleaved in a panel: panels[p, f] holds the weights of feature f for the labels 32 p to
32 p + 31, as half-precision numbers (stored as uint16), float32, or codes of 8 bits, whose steps the rows already
contain. Numba compiles a version for each. Products are summed in float32, feature by feature in their order, whatever
the number of rows. A product therefore has the same bits in a large batch and alone.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import intrinsic, ir, kernel, types

PANEL_LABELS = 32  # labels of a panel
ROWS_AT_ONCE = 2  # rows that share the loads of a panel


@intrinsic
def panel_products(typing_context, rows, first, second, panels, p, source, out):
    """out[r] = source + sum_f rows[(first, second)[r], f] panels[p, f], for two rows and the labels of panel p.

    Written in LLVM's language because Numba unrolls such a short loop and then fails to vectorise it.
    """
    signature = types.void(rows, first, second, panels, p, source, out)

    def generate(context, builder, signature, args):
        integer = ir.IntType(64)
        vector = ir.VectorType(ir.FloatType(), PANEL_LABELS)
        halves = ir.VectorType(ir.HalfType(), PANEL_LABELS)
        codes = ir.VectorType(ir.IntType(8), PANEL_LABELS)
        kind = signature.args[3].dtype
        fused = ["contract"]  # a fused multiply-add where the processor has one

        def array(position):
            return context.make_array(signature.args[position])(context, builder, args[position])

        def vector_at(base, position, kind=vector):
            return builder.bitcast(builder.gep(base, [position]), kind.as_pointer())

        width = builder.extract_value(array(0).shape, 1)
        rows = [builder.gep(array(0).data, [builder.mul(args[r], width)]) for r in (1, 2)]
        panel = builder.gep(array(3).data, [builder.mul(args[4], builder.mul(width, integer(PANEL_LABELS)))])
        begin = builder.load(vector_at(array(5).data, builder.mul(args[4], integer(PANEL_LABELS))), align=4)
        entry = builder.block
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)

        builder.position_at_end(test)
        f, totals = builder.phi(integer), [builder.phi(vector) for _ in rows]
        f.add_incoming(integer(0), entry)
        for total in totals:
            total.add_incoming(begin, entry)
        builder.cbranch(builder.icmp_unsigned("<", f, width), body, done)

        builder.position_at_end(body)
        line = builder.mul(f, integer(PANEL_LABELS))
        if kind == types.uint16:
            weights = builder.fpext(builder.load(vector_at(panel, line, halves), align=2), vector)
        elif kind == types.int8:
            weights = builder.sitofp(builder.load(vector_at(panel, line, codes), align=1), vector)
        else:
            weights = builder.load(vector_at(panel, line), align=4)
        nothing = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), PANEL_LABELS), [0] * PANEL_LABELS)
        for row, total in zip(rows, totals, strict=True):
            first = builder.insert_element(nothing, builder.load(builder.gep(row, [f])), ir.IntType(32)(0))
            product = builder.fmul(builder.shuffle_vector(first, nothing, everywhere), weights, flags=fused)
            total.add_incoming(builder.fadd(total, product, flags=fused), body)
        f.add_incoming(builder.add(f, integer(1)), body)
        builder.branch(test)

        builder.position_at_end(done)
        for r, total in enumerate(totals):
            builder.store(total, vector_at(array(6).data, integer(r * PANEL_LABELS)), align=4)
        return context.get_dummy_value()

    return signature, generate


@kernel
def add_products(rows, panels, bias_scores, out, peaks):
    """out[i] = bias_scores + the products of row i with the weights of all labels; peaks[i] = the largest finite
    |out[i]|."""
    products = np.empty((ROWS_AT_ONCE, PANEL_LABELS), np.float32)
    n = len(rows)
    peaks[:] = 0.0
    for p in range(len(panels)):
        at = p * PANEL_LABELS
        for i in range(0, n, ROWS_AT_ONCE):
            panel_products(rows, i, min(i + 1, n - 1), panels, p, bias_scores, products)
            for r in range(min(ROWS_AT_ONCE, n - i)):
                peak = peaks[i + r]
                for b in range(PANEL_LABELS):
                    value = products[r, b]
                    out[i + r, at + b] = value
                    size = abs(value)
                    if size > peak and size < np.inf:
                        peak = size
                peaks[i + r] = peak


@kernel
def pair_products(rows, panels, bias_scores, numbers, labels, out):
    """out[c] = what `add_products` finds for row numbers[c] and labels[c], to the last bit.

    The product of another row is computed in vain. If the second row were the first again, LLVM would share the
    products of the two and no longer fuse them with the additions, which rounds differently.
    """
    products = np.empty((ROWS_AT_ONCE, PANEL_LABELS), np.float32)
    last = len(rows) - 1
    for c in range(len(labels)):
        i, label = numbers[c], labels[c]
        panel_products(rows, i, min(i + 1, last), panels, label // PANEL_LABELS, bias_scores, products)
        out[c] = products[0, label % PANEL_LABELS]
