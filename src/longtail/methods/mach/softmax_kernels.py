"""Compiled loops of descent.py: R softmax or sigmoid regressions over B buckets each, trained together by SGD.

    z = V^T x + bias V_bias,   P_r = softmax of the part of repetition r (or P = sigmoid of all),   g = P - Y       (g)
    V_j -= rate x_j g   for every feature j of x, and for the bias

The B buckets of a repetition, and all repetitions of a group, are adjacent columns of V. Every loop runs over
contiguous memory and is vectorised. Each number is computed by the same operations in the same order in any group, so
the bytes of a repetition do not depend on the other repetitions of its group. A sigmoid needs only its own logit, so V
may also have a range of the buckets of a repetition. `n_buckets` is then the number of these buckets.

With a penalty, the weights of repetition r are W = scale_r V, so shrinking all of them takes one multiplication.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

SOFTMAX, SIGMOID = 0, 1
SMALLEST_SCALE = 1e-3
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
            for r in range(len(scales)):
                scales[r] *= 1 - active[r] * rate * rule.lam
                rates[r] = active[r] * rate / scales[r]
            step(i, X, bias, rates, n_buckets, g[b], V)
        for r in range(len(scales)):
            if scales[r] < SMALLEST_SCALE:
                absorb(r, n_buckets, V, scales)


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
