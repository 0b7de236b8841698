"""Compiled loops of descent.py: R softmax or sigmoid regressions over B buckets each, trained together by SGD.

    z = V^T x + bias V_bias,   P_r = softmax of the part of repetition r (or P = sigmoid of all),   g = P - Y       (g)
    V_j -= rate x_j g   for every feature j of x, and for the bias

The B buckets of a repetition, and all repetitions of a group, are adjacent columns of V. Every loop runs over
contiguous memory and is vectorised. Each number is computed by the same operations in the same order in any group, so
the bytes of a repetition do not depend on the other repetitions of its group. A sigmoid needs only its own logit, so V
may also have a range of the buckets of a repetition. `n_buckets` is then the number of these buckets.

With a penalty, the weights of repetition r are W = scale_r V, so shrinking all of them takes one multiplication.

Every row uses all dense features, if there are any, so a step changes all of their weights and the next row reads them
again. `train_hybrid` does both at once. The weights of the dense features are stored apart, in tiles of 64 columns.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import intrinsic, ir, kernel, types

SOFTMAX, SIGMOID = 0, 1
SMALLEST_SCALE = 1e-3
TILE = 64  # columns of a tile: the processor holds their sums in registers
ONE = np.float32(1)
MAGIC = np.float32(1.5 * 2**23)  # adding it to a float32 rounds to a whole number
BITS_OF_ONE = 127 << 23  # the bits of the float32 1.0
LOWEST = np.float32(-87)  # exp of a smaller number is not a normal float32
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)  # log(2) is stored in two parts, and products with this part are exact
LN2_LOW = np.float32(-2.12194440e-4)
# exp(f) = 1 + f + f^2 (c5 + c4 f + ...) for |f| <= log(2) / 2, to 1 ulp; minimax, from the Cephes library
C0 = np.float32(1.9875691500e-4)
C1 = np.float32(1.3981999507e-3)
C2 = np.float32(8.3334519073e-3)
C3 = np.float32(4.1665795894e-2)
C4 = np.float32(1.6666665459e-1)
C5 = np.float32(5.0000001201e-1)


# --- vectors ---------------------------------------------------------------------------------------------------------


@kernel
def add_product(x, source, out):
    """out += x source"""
    for c in range(len(out)):
        out[c] += x * source[c]


@kernel
def add_four(x, a, b, c, d, out):
    """out += x[0] a + x[1] b + ..., in this order. Four rows of memory are loaded at a time."""
    for k in range(len(out)):
        out[k] = (((out[k] + x[0] * a[k]) + x[1] * b[k]) + x[2] * c[k]) + x[3] * d[k]


@kernel
def multiply(values, factor):
    """values *= factor"""
    for c in range(len(values)):
        values[c] *= factor


@kernel
def exp_all(values, bits, powers):
    """values = exp(values) for numbers that are not positive. `powers` is the memory of `bits`, viewed as float32.

    exp(v) = 2^k exp(f) with an integer k. Adding MAGIC rounds to k and leaves k in the last bits.
    """
    for c in range(len(values)):
        v = values[c] if values[c] > LOWEST else LOWEST
        powers[c] = v * LOG2_E + MAGIC
        k = powers[c] - MAGIC
        f = v - k * LN2_HIGH - k * LN2_LOW
        values[c] = (((((C0 * f + C1) * f + C2) * f + C3) * f + C4) * f + C5) * f * f + f + ONE
    for c in range(len(values)):
        bits[c] = (bits[c] << 23) + BITS_OF_ONE  # 2^k
    for c in range(len(values)):
        values[c] *= powers[c]


@kernel
def largest(values):
    """The largest value."""
    peak = values[0]
    for c in range(1, len(values)):
        peak = values[c] if values[c] > peak else peak
    return peak


@kernel
def total(values):
    """The sum, in eight partial sums that the processor can compute at the same time."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = np.float32(0)
    whole = len(values) // 8 * 8
    for c in range(0, whole, 8):
        s0 += values[c]
        s1 += values[c + 1]
        s2 += values[c + 2]
        s3 += values[c + 3]
        s4 += values[c + 4]
        s5 += values[c + 5]
        s6 += values[c + 6]
        s7 += values[c + 7]
    for c in range(whole, len(values)):
        s0 += values[c]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@kernel
def softmax(z, n_buckets, bits, powers):
    """z = the softmax of every n_buckets consecutive numbers"""
    for start in range(0, len(z), n_buckets):
        part = z[start : start + n_buckets]
        peak = largest(part)
        for c in range(n_buckets):
            part[c] -= peak
    exp_all(z, bits, powers)
    for start in range(0, len(z), n_buckets):
        part = z[start : start + n_buckets]
        multiply(part, ONE / total(part))


@kernel
def sigmoid(z, scratch, bits, powers):
    """z = 1 / (1 + exp(-z))"""
    for c in range(len(z)):
        scratch[c] = -abs(z[c])
    exp_all(scratch, bits, powers)
    for c in range(len(z)):
        e = scratch[c]
        z[c] = (ONE if z[c] >= 0 else e) / (ONE + e)


# --- one row ---------------------------------------------------------------------------------------------------------


@kernel
def feature(X, i, p):
    """The feature of entry p of row i. Dense rows have all features, so their numbers are not stored."""
    _, X_indices, X_indptr = X
    return np.int64(X_indices[p]) if len(X_indices) else p - np.int64(X_indptr[i])


@kernel
def logits(i, X, bias, V, scales, n_buckets, out):
    """out = the logits of row i"""
    X_data, _, X_indptr = X
    out[:] = 0
    add_product(bias, V[len(V) - 1], out)
    p = np.int64(X_indptr[i])
    end = np.int64(X_indptr[i + 1])
    while p + 4 <= end:
        a = V[feature(X, i, p)]
        b = V[feature(X, i, p + 1)]
        c = V[feature(X, i, p + 2)]
        d = V[feature(X, i, p + 3)]
        add_four(X_data[p : p + 4], a, b, c, d, out)
        p += 4
    while p < end:
        add_product(X_data[p], V[feature(X, i, p)], out)
        p += 1
    for r in range(len(scales)):
        if scales[r] != 1:
            multiply(out[r * n_buckets : (r + 1) * n_buckets], np.float32(scales[r]))


@kernel
def errors(i, Y, table, link, first, n_buckets, z, scratch, bits, powers):
    """z becomes P - Y (g). Y is 1 in the buckets of the row's labels. z begins with bucket `first`."""
    Y_indices, Y_indptr = Y
    if link == SIGMOID:
        sigmoid(z, scratch, bits, powers)
    else:
        softmax(z, n_buckets, bits, powers)
    for q in range(Y_indptr[i], Y_indptr[i + 1]):
        for r in range(table.shape[1]):
            bucket = np.int64(table[Y_indices[q], r]) - first
            if 0 <= bucket < n_buckets:
                c = r * n_buckets + bucket
                if z[c] >= 0:  # two labels in one bucket count once
                    z[c] -= ONE


@kernel
def step(i, X, bias, rates, n_buckets, g, V):
    """V -= rate x g for the row i. Overwrites g."""
    X_data, _, X_indptr = X
    for r in range(len(rates)):
        multiply(g[r * n_buckets : (r + 1) * n_buckets], -rates[r])
    add_product(bias, g, V[len(V) - 1])
    for p in range(np.int64(X_indptr[i]), np.int64(X_indptr[i + 1])):
        add_product(X_data[p], g, V[feature(X, i, p)])


@kernel
def set_rates(rate, lam, active, scales, rates):
    """Shrink the weights of every repetition by a step of this rate, and set the rates that belong to their scales."""
    for r in range(len(scales)):
        scales[r] *= 1 - active[r] * rate * lam
        rates[r] = active[r] * rate / scales[r]


@kernel
def absorb(r, n_buckets, V, scales):
    """Multiply the weights of a repetition by its scale, which becomes 1."""
    for j in range(len(V)):
        multiply(V[j][r * n_buckets : (r + 1) * n_buckets], np.float32(scales[r]))
    scales[r] = 1


# --- many rows -------------------------------------------------------------------------------------------------------


@kernel
def train(rows, rule, weights, buffers, order, done):
    """Make one pass over the rows `order`, in batches. The tuples are RatedRows, StepRule, GroupWeights, GroupBuffers.

    The rate of row i is rates[i] active[r]. If the rate falls, it is multiplied by the share of the rows of all epochs
    that is left. `done` is the number of rows before this call. All gradients of a batch are computed at the same
    weights, and the step is their mean.
    """
    X = rows.X
    bias = rule.bias
    n_buckets = rule.n_buckets
    V = weights.V
    scales = weights.scales
    active = weights.active
    g = buffers.errors
    rates = np.empty(len(scales), np.float32)
    for start in range(0, len(order), rule.batch_size):
        size = min(rule.batch_size, len(order) - start)
        factor = 1 - (done + start) / rule.total_rows if rule.falls else 1.0
        for b in range(size):
            i = order[start + b]
            logits(i, X, bias, V, scales, n_buckets, g[b])
            errors(
                i, rows.Y, weights.table, rule.link, weights.first, n_buckets, g[b],
                buffers.scratch, buffers.bits, buffers.powers,
            )  # fmt: skip
        for b in range(size):
            i = order[start + b]
            rate = factor * rows.rates[i] / size
            set_rates(rate, rule.lam, active, scales, rates)
            step(i, X, bias, rates, n_buckets, g[b], V)
        for r in range(len(scales)):
            if scales[r] < SMALLEST_SCALE:
                absorb(r, n_buckets, V, scales)


# --- rows with a dense part ------------------------------------------------------------------------------------------


@intrinsic
def tile_step(typing_context, rows, i, j, tiles, t, g, out):
    """tiles[t, f] += rows[i, f] g for all features f, and then out = sum over f of rows[j, f] tiles[t, f], for the
    columns of tile t. Sums are in the order of f.

    Written in LLVM's language because Numba unrolls such a short loop and then fails to vectorise it.
    """
    signature = types.void(rows, i, j, tiles, t, g, out)

    def generate(context, builder, signature, args):
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), TILE)
        fused = ["contract"]  # a fused multiply-add where the processor has one
        nothing = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), TILE), [0] * TILE)

        def array(position):
            return context.make_array(signature.args[position])(context, builder, args[position])

        def columns_at(base, line):
            return builder.bitcast(builder.gep(base, [builder.mul(line, integer(TILE))]), vector.as_pointer())

        def times(row, values):
            x = builder.insert_element(nothing, builder.load(builder.gep(row, [f])), ir.IntType(32)(0))
            return builder.fmul(builder.shuffle_vector(x, nothing, everywhere), values, flags=fused)

        n_features = builder.extract_value(array(0).shape, 1)
        stepped, scored = (builder.gep(array(0).data, [builder.mul(args[at], n_features)]) for at in (1, 2))
        change = builder.load(columns_at(array(5).data, args[4]), align=4)
        first_line = builder.mul(args[4], n_features)
        entry = builder.block
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)

        builder.position_at_end(test)
        f, total = builder.phi(integer), builder.phi(vector)
        f.add_incoming(integer(0), entry)
        total.add_incoming(ir.Constant(vector, [0.0] * TILE), entry)
        builder.cbranch(builder.icmp_unsigned("<", f, n_features), body, done)

        builder.position_at_end(body)
        place = columns_at(array(3).data, builder.add(first_line, f))
        values = builder.fadd(builder.load(place, align=4), times(stepped, change), flags=fused)
        builder.store(values, place, align=4)
        total.add_incoming(builder.fadd(total, times(scored, values), flags=fused), body)
        f.add_incoming(builder.add(f, integer(1)), body)
        builder.branch(test)

        builder.position_at_end(done)
        builder.store(total, columns_at(array(6).data, args[4]), align=4)
        return context.get_dummy_value()

    return signature, generate


@kernel
def dense_step(dense, i, j):
    """Add row i times dense.g to the weights of the dense features, and write the products of row j with them to
    dense.out."""
    for t in range(len(dense.tiles)):
        tile_step(dense.rows, i, j, dense.tiles, t, dense.g, dense.out)


@kernel
def absorb_dense(r, n_buckets, dense, scale):
    """Multiply the weights of the dense features of a repetition, and their products, by its scale."""
    for c in range(r * n_buckets, (r + 1) * n_buckets):
        dense.out[c] *= scale
        for f in range(dense.tiles.shape[1]):
            dense.tiles[c // TILE, f, c % TILE] *= scale


@kernel
def train_hybrid(rows, dense, rule, weights, buffers, order, done):
    """Do the same as `train` for rows that also have dense features; `dense` is a DenseBlock.

    A batch of one row, which is usual, computes the products of the next row while it changes the weights.
    """
    n_buckets = rule.n_buckets
    scales = weights.scales
    g = buffers.errors
    rates = np.empty(len(scales), np.float32)
    ahead = False  # whether dense.out has the products of the next row
    for start in range(0, len(order), rule.batch_size):
        batch = order[start : min(start + rule.batch_size, len(order))]
        share = rule.falls * (done + start) / rule.total_rows
        for b in range(len(batch)):
            if not ahead:
                for c in range(len(dense.g)):
                    dense.g[c] = 0
                dense_step(dense, batch[b], batch[b])
            logits(batch[b], rows.X, rule.bias, weights.V, scales, n_buckets, g[b])
            for r in range(len(scales)):
                for c in range(r * n_buckets, (r + 1) * n_buckets):
                    g[b, c] += np.float32(scales[r]) * dense.out[c]
            errors(
                batch[b], rows.Y, weights.table, rule.link, weights.first, n_buckets, g[b], buffers.scratch,
                buffers.bits, buffers.powers,
            )  # fmt: skip
        ahead = len(batch) == 1 and start + 1 < len(order)
        for b in range(len(batch)):
            set_rates((1 - share) * rows.rates[batch[b]] / len(batch), rule.lam, weights.active, scales, rates)
            step(batch[b], rows.X, rule.bias, rates, n_buckets, g[b], weights.V)
            for c in range(g.shape[1]):
                dense.g[c] = g[b, c]
            dense_step(dense, batch[b], order[start + 1] if ahead else batch[b])
        for r in range(len(scales)):
            if scales[r] < SMALLEST_SCALE:
                absorb_dense(r, n_buckets, dense, np.float32(scales[r]))
                absorb(r, n_buckets, weights.V, scales)


# --- held-out rows ---------------------------------------------------------------------------------------------------


@kernel
def best_buckets(rows, rule, weights, chosen, z, out_logits, out_buckets):
    """The highest logit of each chosen row and repetition, and its bucket: the first of several. NaN never counts."""
    n_buckets = rule.n_buckets
    for at in range(len(chosen)):
        logits(chosen[at], rows.X, rule.bias, weights.V, weights.scales, n_buckets, z)
        for r in range(out_logits.shape[1]):
            out_logits[at, r] = -np.inf
            out_buckets[at, r] = weights.first
            for b in range(n_buckets):
                if z[r * n_buckets + b] > out_logits[at, r]:
                    out_logits[at, r] = z[r * n_buckets + b]
                    out_buckets[at, r] = weights.first + b


@kernel
def count_hits(Y, table, chosen, buckets, out):
    """out[r] = the number of chosen rows that have a label in their bucket buckets[row, r]"""
    Y_indices, Y_indptr = Y
    out[:] = 0
    for at in range(len(chosen)):
        i = chosen[at]
        for r in range(len(out)):
            for q in range(Y_indptr[i], Y_indptr[i + 1]):
                if np.int64(table[Y_indices[q], r]) == buckets[at, r]:
                    out[r] += 1
                    break
