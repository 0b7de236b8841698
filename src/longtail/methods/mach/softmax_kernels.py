"""Compiled loops of training.py: R softmax or sigmoid regressions over B buckets each, trained together by SGD.

    z = V^T x + bias V_bias,   P_r = softmax of the part of repetition r (or P = sigmoid of all),   g = P - Y       (g)
    V_j -= rate x_j g   for every feature j of x, and for the bias

The B buckets of a repetition, and all repetitions of a group, are adjacent columns of V: every loop runs over a long
stretch of memory and is vectorised. Each number is computed by the same operations in the same order whatever the
group, so the bytes of a repetition do not depend on which others are trained with it.

With an l2 penalty, weights are W = scale_r V: shrinking all weights takes one multiplication, of the scale.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

SOFTMAX, SIGMOID = 0, 1
SMALLEST_SCALE = 1e-3
ONE, MAGIC, BITS_OF_ONE = np.float32(1), np.float32(1.5 * 2**23), 127 << 23
LOWEST = np.float32(-87)  # exp of less is not a normal float32
LOG2_E, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
# exp(f) = 1 + f + f^2 (c5 + c4 f + ...) for |f| <= log(2) / 2, to 1 ulp; minimax, from the Cephes library
C0, C1, C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
C3, C4, C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)


# --- vectors ---------------------------------------------------------------------------------------------------------


@kernel
def add_product(x, source, out):
    """out += x source"""
    for c in range(len(out)):
        out[c] += x * source[c]


@kernel
def add_four(x, sources, rows, out):
    """out += x[0] source 0 + x[1] source 1 + ..., in this order: four rows of memory are on their way at a time."""
    a, b, c, d = sources[rows[0]], sources[rows[1]], sources[rows[2]], sources[rows[3]]
    for k in range(len(out)):
        out[k] = (((out[k] + x[0] * a[k]) + x[1] * b[k]) + x[2] * c[k]) + x[3] * d[k]


@kernel
def multiply(values, factor):
    """values *= factor"""
    for c in range(len(values)):
        values[c] *= factor


@kernel
def exp_all(values, bits, powers):
    """values = exp(values), of numbers that are not positive. `powers` is the memory of `bits`, seen as float32.

    exp(v) = 2^k exp(f), k whole: adding and subtracting MAGIC rounds to whole numbers, and leaves k in the last bits.
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
    peak = values[0]
    for c in range(1, len(values)):
        peak = values[c] if values[c] > peak else peak
    return peak


@kernel
def total(values):
    """The sum, in eight parts that the processor can add at the same time."""
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
    """z = the softmax of every stretch of n_buckets numbers"""
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
def logits(i, X, bias, V, scales, n_buckets, out):
    """out = the logits of row i"""
    X_data, X_indices, X_indptr = X
    out[:] = 0
    add_product(bias, V[len(V) - 1], out)
    p, end = np.int64(X_indptr[i]), np.int64(X_indptr[i + 1])
    while p + 4 <= end:
        add_four(X_data[p : p + 4], V, X_indices[p : p + 4], out)
        p += 4
    while p < end:
        add_product(X_data[p], V[X_indices[p]], out)
        p += 1
    for r in range(len(scales)):
        if scales[r] != 1:
            multiply(out[r * n_buckets : (r + 1) * n_buckets], np.float32(scales[r]))


@kernel
def errors(i, Y, table, link, n_buckets, z, scratch, bits, powers):
    """z becomes P - Y (g). Y is 1 in the buckets of the row's labels."""
    Y_indices, Y_indptr = Y
    if link == SIGMOID:
        sigmoid(z, scratch, bits, powers)
    else:
        softmax(z, n_buckets, bits, powers)
    for q in range(Y_indptr[i], Y_indptr[i + 1]):
        for r in range(table.shape[1]):
            c = r * n_buckets + np.int64(table[Y_indices[q], r])
            if z[c] >= 0:  # two labels in one bucket count once
                z[c] -= ONE


@kernel
def step(i, X, bias, rates, n_buckets, g, V):
    """V -= rate x g for the row i; g is used up"""
    X_data, X_indices, X_indptr = X
    for r in range(len(rates)):
        multiply(g[r * n_buckets : (r + 1) * n_buckets], -rates[r])
    add_product(bias, g, V[len(V) - 1])
    for p in range(X_indptr[i], X_indptr[i + 1]):
        add_product(X_data[p], g, V[X_indices[p]])


@kernel
def absorb(r, n_buckets, V, scales):
    """Put the scale of a repetition into its weights."""
    for j in range(len(V)):
        multiply(V[j][r * n_buckets : (r + 1) * n_buckets], np.float32(scales[r]))
    scales[r] = 1


# --- many rows -------------------------------------------------------------------------------------------------------


@kernel
def train(X, Y, table, order, row_rates, done, rows_in_all, falls, active, l2, bias, link, n_buckets, batch_size,
          V, scales, g, scratch, bits, powers):  # fmt: skip
    """One pass over the rows `order`, in batches.

    The rate of row i is row_rates[i] active[r], times the share of all rows in all epochs that is left, `done` being
    those before, if it `falls`. The gradients of a batch are all taken at the same weights, and their mean is the step.
    """
    n, rates = len(order), np.empty(len(scales), np.float32)
    for start in range(0, n, batch_size):
        size = min(batch_size, n - start)
        factor = 1 - (done + start) / rows_in_all if falls else 1.0
        for b in range(size):
            logits(order[start + b], X, bias, V, scales, n_buckets, g[b])
            errors(order[start + b], Y, table, link, n_buckets, g[b], scratch, bits, powers)
        for b in range(size):
            rate = factor * row_rates[order[start + b]] / size
            for r in range(len(scales)):
                scales[r] *= 1 - active[r] * rate * l2
                rates[r] = active[r] * rate / scales[r]
            step(order[start + b], X, bias, rates, n_buckets, g[b], V)
        for r in range(len(scales)):
            if scales[r] < SMALLEST_SCALE:
                absorb(r, n_buckets, V, scales)


@kernel
def count_hits(X, Y, table, rows, bias, n_buckets, V, scales, z, out):
    """out[r] = for how many rows the bucket of highest logit is that of one of the row's labels"""
    Y_indices, Y_indptr = Y
    out[:] = 0
    for i in rows:
        logits(i, X, bias, V, scales, n_buckets, z)
        for r in range(len(out)):
            best = np.argmax(z[r * n_buckets : (r + 1) * n_buckets])
            for q in range(Y_indptr[i], Y_indptr[i + 1]):
                if np.int64(table[Y_indices[q], r]) == best:
                    out[r] += 1
                    break
