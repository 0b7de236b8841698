"""The first point of Newton with sampled Hessians: the minimum of f over a span, compiled.

    min over c in R^3 of f(c_0 start + c_1 x_sum + c_2 e)

with the weights of the start, the sum of all rows and the bias feature e. The scores of the three are known, so a step
costs one loss per row and no pass over X. With the mean-separating start, the span has the mean of the positives, the
mean of all rows and the bias feature. Any Newton method needs about log n steps to bring n negatives to scores of
-log n with the logistic loss; here these steps cost almost nothing. newton_kernels.py has f and the symbols.
"""

from __future__ import annotations

import math

import numpy as np

from longtail.compiled import kernel

SQUARED_HINGE, LOGISTIC = 0, 1
SUFFICIENT_DECREASE = 0.01
MAX_HALVINGS = 20
MAX_STEPS = 20
GAIN = 1e-2  # share of f that a step has to gain, else it is the last
DEPENDENT = 1e-9  # how small a pivot may be, as a share of its first value


@kernel
def loss_at(loss, m):
    """phi, phi' and phi'' at a margin m: a copy of `loss_at` of newton_kernels.py, which a test compares."""
    if loss == SQUARED_HINGE:
        short = 1.0 - m
        return (short * short, -2.0 * short, 2.0) if short > 0.0 else (0.0, 0.0, 0.0)
    e = math.exp(-abs(m))
    p = 1.0 / (1.0 + e)  # the larger of the two probabilities
    # log1p takes longer than all else, and most rows are far outside the margin; the series has an error of e^5 / 5
    log = e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - 0.25 * e))) if e < 1e-3 else math.log1p(e)
    return (log, -e * p, e * p * p) if m > 0.0 else (log - m, -p, e * p * p)


@kernel
def evaluate_span(loss, space, bias, c, g, H):
    """f at w = c_0 start + c_1 x_sum + c_2 e, with the bias feature e, and its derivatives by c: g, and the
    upper half of H."""
    y, z, cost, q, gram = space.y, space.z, space.cost, space.sum_scores, space.span[8:]
    u, v, offset = c[0], c[1], c[2] * bias
    f, gz, gq, g1, hzz, hzq, hz1, hqq, hq1, h11 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(z)):
        phi, first, second = loss_at(loss, y[i] * (u * z[i] + v * q[i] + offset))
        slope, h = cost[i] * first * y[i], cost[i] * second
        f += cost[i] * phi
        gz += slope * z[i]
        gq += slope * q[i]
        g1 += slope
        hzz += h * z[i] * z[i]
        hzq += h * z[i] * q[i]
        hz1 += h * z[i]
        hqq += h * q[i] * q[i]
        hq1 += h * q[i]
        h11 += h
    g[0], g[1], g[2] = gz, gq, g1 * bias
    H[0, 0], H[0, 1], H[0, 2] = hzz, hzq, hz1 * bias
    H[1, 1], H[1, 2], H[2, 2] = hqq, hq1 * bias, h11 * bias * bias
    for a in range(3):
        for b in range(3):
            g[a] += gram[a, b] * c[b]
            f += 0.5 * c[a] * gram[a, b] * c[b]
        for b in range(a, 3):
            H[a, b] += gram[a, b]
    return f


@kernel
def solve_small(H, g, scale, out):
    """out = the solution of H s = -g by elimination, from the upper half of H, which is overwritten. A direction that
    depends on the others gets 0: its pivot counts as infinite."""
    for a in range(3):
        scale[a] = H[a, a]
        out[a] = -g[a]
    for a in range(3):
        if H[a, a] <= DEPENDENT * scale[a]:
            H[a, a] = np.inf
        for b in range(a + 1, 3):
            factor = H[a, b] / H[a, a]
            for e in range(b, 3):
                H[b, e] -= factor * H[a, e]
            out[b] -= factor * out[a]
    for a in range(2, -1, -1):
        for b in range(a + 1, 3):
            out[a] -= H[a, b] * out[b]
        out[a] /= H[a, a]


@kernel
def first_bias(loss, space):
    """A good score if it has to be the same for all rows."""
    y, cost = space.y, space.cost
    positive, negative = 1.0, 1.0  # the penalty holds the score back
    for i in range(len(y)):
        if y[i] > 0.0:
            positive += cost[i]
        else:
            negative += cost[i]
    return math.log(positive / negative) if loss == LOGISTIC else (positive - negative) / (positive + negative)


@kernel
def set_rows(positives, label, C, space):
    """Fill y and the costs of the rows for a label."""
    y, cost, s = space.y, space.cost, space.sample_weight
    for i in range(len(y)):
        y[i] = -1.0
        cost[i] = C * s[i]
    for p in range(positives.indptr[label], positives.indptr[label + 1]):
        i = positives.rows[p]
        y[i] = 1.0
        cost[i] = C * positives.weight[label] * s[i]


@kernel
def best_in_span(positives, label, rule, bias, x_sum, space, w):
    """Move w and its scores z to the minimum of f over the multiples of w, x_sum and e. Newton steps in the three
    coefficients begin at a multiple of e."""
    loss, span = rule.loss, space.span
    c, s, trial, g, scale, H, gram = span[0], span[1], span[2], span[3], span[4], span[5:8], span[8:]
    set_rows(positives, label, rule.C, space)
    for a in range(3):
        c[a] = 0.0
        for b in range(3):
            gram[a, b] = 0.0
    for j in range(len(w)):
        gram[0, 0] += w[j] * w[j]
        gram[0, 1] += w[j] * x_sum[j]
        gram[1, 1] += x_sum[j] * x_sum[j]
    gram[1, 0] = gram[0, 1]
    if bias > 0.0:
        gram[2, 2] = 1.0
        gram[0, 2] = gram[2, 0] = w[-1]
        gram[1, 2] = gram[2, 1] = x_sum[-1]
        c[2] = first_bias(loss, space) / bias
    f = evaluate_span(loss, space, bias, c, g, H)
    for _ in range(MAX_STEPS):
        solve_small(H, g, scale, s)
        gTs = g[0] * s[0] + g[1] * s[1] + g[2] * s[2]
        before = f
        step = 1.0
        for _ in range(MAX_HALVINGS):
            for a in range(3):
                trial[a] = c[a] + step * s[a]
            f = evaluate_span(loss, space, bias, trial, g, H)
            if f - before <= SUFFICIENT_DECREASE * step * gTs:
                break
            step *= 0.5
        if not f < before:
            break
        for a in range(3):
            c[a] = trial[a]
        if before - f <= GAIN * f:
            break
    for j in range(len(w)):
        w[j] = c[0] * w[j] + c[1] * x_sum[j]
    if bias > 0.0:
        w[-1] += c[2]
    z, q = space.z, space.sum_scores
    for i in range(len(z)):
        z[i] = c[0] * z[i] + c[1] * q[i] + c[2] * bias
