"""Truncated Newton, compiled.   [Schultheis & Babbar 2022], section 2, eqs (3)-(13)

    min_w f(w) = 1/2 w.w + sum_i c_i phi(y_i z_i),       z_i = x_i.w + bias w_b                          (3), (4)

with y_i = +1 for the positives of the label and -1 for all other rows, c_i = C s_i times the label's weight for
positives and C s_i for the others, s_i the weight of the row (the paper has 1 for all), and phi the squared hinge
max(0, 1 - m)^2 (5) or the logistic loss
log(1 + exp(-m)). Each step minimises the quadratic model (6) by preconditioned conjugate gradients on (7), with Hessian
products (11) over the active rows (19), (20) only, and backtracks along the direction found.

Symbols  X (n, d) `Samples`, its bias column implicit; w, g, s, ... (D,), D = d + 1 with bias, else d.
         z = Xw; Xs = X times direction; active: rows with phi'' != 0; M: diagonal of the preconditioner.

As in LIBLINEAR (Galli & Lin 2021), whose constants the paper uses:
  - conjugate gradients stop when the quadratic model gains little more (CG_TOLERANCE), or after max(D, 5) steps;
  - the preconditioner is 0.99 I + 0.01 diag(H);
  - the step is halved up to 20 times until f falls by at least 0.01 step g.s;
  - a label stops at |g(w)| <= eps |g(0)|, eps = tol max(1, min(|P|, |N|)) / n (12), (13), or when f no longer changes,
    or could not change, in the twelfth digit (LIBLINEAR stops there too). eps is never above `max_tol`, which is
    infinite in this paper. [Fang et al. 2019], section 2.1, has eps = min(eps_1 min(|P|, |N|) / n, eps_2).
Differs from LIBLINEAR: z is updated by z += step Xs instead of being recomputed, and |g(0)| is computed from the sum of
all rows, which labels share. Neither changes the iterates beyond rounding.

Contract: X and the positives come from inputs.py. Everything else is float64 and owned by the caller. Nothing here
allocates, prints or raises; the kernels return how a solve ended as an integer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from longtail.compiled import kernel, reordering_kernel

SQUARED_HINGE, LOGISTIC = 0, 1
CONVERGED, MAX_ITER, LINE_SEARCH_FAILED = 0, 1, 2

PRECONDITIONER = 0.01  # weight of diag(H); the rest is the identity
CG_TOLERANCE = 0.5
SUFFICIENT_DECREASE = 0.01
MAX_HALVINGS = 20
NO_CHANGE = 1e-12


class NewtonRule(NamedTuple):
    """The objective, and the stopping rule."""

    loss: int  # SQUARED_HINGE or LOGISTIC
    C: float
    tol: float  # eps_0 of (13), eps_1 of [Fang et al. 2019]
    max_tol: float  # eps_2 of [Fang et al. 2019]
    max_iter: int


class NewtonSpace(NamedTuple):
    """The buffers of one thread: vectors over rows, then over features."""

    y: np.ndarray
    cost: np.ndarray  # c of the formula above
    z: np.ndarray
    Xs: np.ndarray
    active: np.ndarray  # the active rows; only the first n_active entries count
    g: np.ndarray
    M: np.ndarray
    s: np.ndarray
    r: np.ndarray  # residual of conjugate gradients, their direction, and the Hessian times it
    direction: np.ndarray
    H_direction: np.ndarray
    w_start: np.ndarray
    sample_weight: np.ndarray  # over rows: s of the formula above


class NewtonOutput(NamedTuple):
    """The results: arrays with one entry or row per label."""

    status: np.ndarray
    n_iter: np.ndarray
    figures: np.ndarray  # f, relative duality gap, |g| / |g(0)|, mean active rows
    trace: (
        np.ndarray
    )  # (labels, steps, 4): f before the step, active rows, CG steps, multiplier; NaN where not measured
    distance: np.ndarray  # |w - start|; only measured with a trace


def newton_space(n: int, D: int, sample_weight: np.ndarray | None = None) -> NewtonSpace:
    over_rows = (np.empty(n) for _ in range(4))
    over_features = (np.empty(D) for _ in range(7))
    weights = np.ones(n) if sample_weight is None else sample_weight.copy()
    return NewtonSpace(*over_rows, np.empty(n, np.uint32), *over_features, weights)


def newton_output(n_labels: int, trace: int = 0) -> NewtonOutput:
    """Room for the results of `n_labels` labels, with a trace of their first `trace` steps."""
    status, n_iter = np.empty(n_labels, np.uint8), np.empty(n_labels, np.int32)
    steps, distance = np.full((n_labels, trace, 4), np.nan), np.full(n_labels, np.nan)
    return NewtonOutput(status, n_iter, np.empty((n_labels, 4)), steps, distance)


# --- 1. losses at a margin m -----------------------------------------------------------------------------------------


@kernel
def loss_value(loss, m):
    if loss == SQUARED_HINGE:
        return (1.0 - m) ** 2 if m < 1.0 else 0.0
    return math.log1p(math.exp(-m)) if m > 0.0 else math.log1p(math.exp(m)) - m


@kernel
def loss_slope(loss, m):
    if loss == SQUARED_HINGE:
        return -2.0 * (1.0 - m) if m < 1.0 else 0.0
    return -1.0 / (1.0 + math.exp(m)) if m < 700.0 else 0.0


@kernel
def loss_curvature(loss, m):
    if loss == SQUARED_HINGE:
        return 2.0 if m < 1.0 else 0.0
    if abs(m) >= 700.0:  # exp would overflow; the curvature is below 1e-300 there
        return 0.0
    p = 1.0 / (1.0 + math.exp(m))
    return p * (1.0 - p)


# --- 2. products with X ----------------------------------------------------------------------------------------------


@reordering_kernel
def dense_dot(dense, i, first, v):
    total = 0.0
    for f in range(dense.shape[1]):
        total += dense[i, f] * v[first + f]
    return total


@kernel
def row_dot(i, X, v):
    """x_i . v, bias feature included."""
    total = X.bias * v[-1] if X.bias > 0.0 else 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        total += X.data[p] * v[X.indices[p]]
    if X.dense.shape[1] > 0:
        total += dense_dot(X.dense, i, X.n_sparse, v)
    return total


@kernel
def add_row(i, X, factor, out):
    """out += factor x_i"""
    for p in range(X.indptr[i], X.indptr[i + 1]):
        out[X.indices[p]] += factor * X.data[p]
    for f in range(X.dense.shape[1]):
        out[X.n_sparse + f] += factor * X.dense[i, f]
    if X.bias > 0.0:
        out[-1] += factor * X.bias


@kernel
def margins(X, v, out):
    """out = X v"""
    for i in range(len(out)):
        out[i] = row_dot(i, X, v)


@kernel
def objective(loss, space, wTw):
    """f of (3) at the scores z"""
    y, z, cost = space.y, space.z, space.cost
    total = 0.0
    for i in range(len(z)):
        total += cost[i] * loss_value(loss, y[i] * z[i])
    return 0.5 * wTw + total


@kernel
def find_active(loss, space):
    """Put the rows with phi'' != 0 (19) into `active`, in order. Returns their number."""
    y, z, active = space.y, space.z, space.active
    count = 0
    for i in range(len(z)):
        if loss_curvature(loss, y[i] * z[i]) != 0.0:
            active[count] = i
            count += 1
    return count


@kernel
def gradient(X, loss, space, n_active, w):
    """g = w + sum_i c_i phi'(y_i z_i) y_i x_i. Where phi'' is zero, so is phi'."""
    y, z, cost, active, g = space.y, space.z, space.cost, space.active, space.g
    copy_to(g, w)
    for a in range(n_active):
        i = active[a]
        add_row(i, X, cost[i] * loss_slope(loss, y[i] * z[i]) * y[i], g)


@kernel
def hessian_times(X, loss, space, n_active, v, out):
    """out = v + sum over active i of c_i phi''(y_i z_i) (x_i.v) x_i                                      (11), (20)"""
    y, z, cost, active = space.y, space.z, space.cost, space.active
    copy_to(out, v)
    for a in range(n_active):
        i = active[a]
        Xv = row_dot(i, X, v)
        add_row(i, X, cost[i] * loss_curvature(loss, y[i] * z[i]) * Xv, out)


@kernel
def preconditioner(X, loss, space, n_active):
    """M = 0.99 + 0.01 diag(H)"""
    y, z, cost, active, M = space.y, space.z, space.cost, space.active, space.M
    M[:] = 1.0
    for a in range(n_active):
        i = active[a]
        factor = PRECONDITIONER * cost[i] * loss_curvature(loss, y[i] * z[i])
        for p in range(X.indptr[i], X.indptr[i + 1]):
            M[X.indices[p]] += factor * X.data[p] * X.data[p]
        for f in range(X.dense.shape[1]):
            M[X.n_sparse + f] += factor * X.dense[i, f] * X.dense[i, f]
        if X.bias > 0.0:
            M[-1] += factor * X.bias * X.bias


@kernel
def dual_value(loss, space, w):
    """D(alpha) at alpha_i = -c_i phi'(y_i z_i), whose weights sum_i alpha_i y_i x_i are w - g: a lower bound of f."""
    y, z, cost, g = space.y, space.z, space.cost, space.g
    total = 0.0
    for i in range(len(z)):
        a = -loss_slope(loss, y[i] * z[i])
        if loss == SQUARED_HINGE:
            total += cost[i] * (a - 0.25 * a * a)
        elif 0.0 < a < 1.0:
            total -= cost[i] * (a * math.log(a) + (1.0 - a) * math.log1p(-a))
    norm = 0.0
    for j in range(len(w)):
        norm += (w[j] - g[j]) ** 2
    return total - 0.5 * norm


@kernel
def copy_to(out, a):
    """out = a. Numba takes three seconds to compile the message of `out[:] = a` about different lengths."""
    for j in range(len(out)):
        out[j] = a[j]


@kernel
def dot(a, b):
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


# --- 3. the algorithm ------------------------------------------------------------------------------------------------


@kernel
def newton_direction(X, loss, space, n_active):
    """Compute s, an approximate solution of H s = -g (7), by preconditioned conjugate gradients from s = 0. Returns
    g.s and the number of CG steps."""
    g, M, s, r = space.g, space.M, space.s, space.r
    direction, H_direction = space.direction, space.H_direction
    zTr = 0.0
    for j in range(len(g)):
        s[j] = 0.0
        r[j] = -g[j]
        direction[j] = r[j] / M[j]
        zTr += direction[j] * r[j]
    tolerance = min(CG_TOLERANCE, math.sqrt(math.sqrt(zTr)))
    Q = 0.0
    n_cg = 0
    for iteration in range(1, max(len(g), 5) + 1):
        n_cg = iteration
        hessian_times(X, loss, space, n_active, direction, H_direction)
        curvature = dot(direction, H_direction)
        if curvature <= 1e-16:
            break
        alpha = zTr / curvature
        sTr = 0.0
        sTg = 0.0
        next_zTr = 0.0
        for j in range(len(g)):
            s[j] += alpha * direction[j]
            r[j] -= alpha * H_direction[j]
            sTr += s[j] * r[j]
            sTg += s[j] * g[j]
            next_zTr += r[j] * r[j] / M[j]
        # Stop when this step improved the quadratic model by less than the tolerance's share of the mean gain.
        new_Q = -0.5 * (sTr - sTg)
        gain = new_Q - Q
        if new_Q > 0.0 or gain > 0.0 or iteration * gain >= tolerance * new_Q:
            break
        Q = new_Q
        beta = next_zTr / zTr
        zTr = next_zTr
        for j in range(len(g)):
            direction[j] = r[j] / M[j] + beta * direction[j]
    return dot(s, g), n_cg


@kernel
def line_search(loss, space, w, wTw, gTs, f):
    """Return the first step of 1, 1/2, 1/4, ... that lowers f enough, and f at that step. The step is 0 if none
    does."""
    y, z, cost, Xs = space.y, space.z, space.cost, space.Xs
    wTs, sTs = dot(w, space.s), dot(space.s, space.s)
    step = 1.0
    for _ in range(MAX_HALVINGS):
        total = 0.0
        for i in range(len(z)):
            total += cost[i] * loss_value(loss, y[i] * (z[i] + step * Xs[i]))
        f_new = 0.5 * (wTw + 2.0 * step * wTs + step * step * sTs) + total
        if f_new - f <= SUFFICIENT_DECREASE * step * gTs:
            return step, f_new
        step *= 0.5
    return 0.0, f


@kernel
def gradient_norm_at_zero(X, loss, positives, weight, sample_weight, x_sum, C, out):
    """|g(0)| = C |phi'(0)| |(1 + weight) sum over P of s_i x_i - sum of all s_i x_i|"""
    for j in range(len(x_sum)):
        out[j] = -x_sum[j]
    for a in range(len(positives)):
        add_row(positives[a], X, (1.0 + weight) * sample_weight[positives[a]], out)
    return C * abs(loss_slope(loss, 0.0)) * math.sqrt(dot(out, out))


@kernel
def note(trace, step, f, n_active, n_cg, multiplier):
    """Write one step into the trace of a label, if there is room for it."""
    if step < len(trace):
        trace[step, 0] = f
        trace[step, 1] = n_active
        trace[step, 2] = n_cg
        trace[step, 3] = multiplier


@kernel
def newton_one(X, positives, weight, x_sum, rule, space, w, out, b):
    """Solve one label from the start `w`, in place. The results are written to out[b]."""
    loss, z = rule.loss, space.z
    n = len(z)

    # 0) the scale of the stopping rule (12), (13)
    g0_norm = gradient_norm_at_zero(X, loss, positives, weight, space.sample_weight, x_sum, rule.C, space.g)
    eps = min(rule.tol * max(1, min(len(positives), n - len(positives))) / n, rule.max_tol)
    limit = eps * g0_norm

    # 1) the start
    trace = out.trace[b]
    if len(trace) > 0:
        copy_to(space.w_start, w)
    margins(X, w, z)
    wTw = dot(w, w)
    f = objective(loss, space, wTw)
    active_total = 0
    steps = 0
    status = MAX_ITER
    while True:
        # 2) gradient on the active rows, and the stopping rule
        n_active = find_active(loss, space)
        gradient(X, loss, space, n_active, w)
        g_norm = math.sqrt(dot(space.g, space.g))
        if g_norm <= limit:
            status = CONVERGED
            break
        if steps == rule.max_iter:
            break
        active_total += n_active

        # 3) Newton direction
        preconditioner(X, loss, space, n_active)
        gTs, n_cg = newton_direction(X, loss, space, n_active)

        # 4) step length, and the step
        margins(X, space.s, space.Xs)
        step, f_new = line_search(loss, space, w, wTw, gTs, f)
        if step == 0.0:  # either the remaining gain is below rounding, or the problem is badly scaled
            status = CONVERGED if -gTs <= NO_CHANGE * abs(f) else LINE_SEARCH_FAILED
            break
        note(trace, steps, f, n_active, n_cg, step)
        for j in range(len(w)):
            w[j] += step * space.s[j]
        for i in range(n):
            z[i] += step * space.Xs[i]
        wTw = dot(w, w)
        steps += 1
        change, f = f - f_new, f_new
        if abs(change) <= NO_CHANGE * abs(f):
            status = CONVERGED
            n_active = find_active(loss, space)
            gradient(X, loss, space, n_active, w)
            g_norm = math.sqrt(dot(space.g, space.g))
            break
    note(trace, steps, f, n_active, math.nan, math.nan)
    if len(trace) > 0:
        for j in range(len(w)):
            space.w_start[j] -= w[j]
        out.distance[b] = math.sqrt(dot(space.w_start, space.w_start))
    out.status[b] = status
    out.n_iter[b] = steps
    out.figures[b, 0] = f
    out.figures[b, 1] = (f - dual_value(loss, space, w)) / f if f > 0.0 else 0.0
    out.figures[b, 2] = g_norm / g0_norm if g0_norm > 0.0 else 0.0
    out.figures[b, 3] = active_total / max(steps, 1)


@kernel
def newton_block(X, positives, labels, x_sum, rule, space, W, out):
    """Solve `labels`. W (labels, D) holds their starts before the call, and their solutions after it."""
    y, cost, C, s = space.y, space.cost, rule.C, space.sample_weight
    y[:] = -1.0
    for i in range(len(cost)):
        cost[i] = C * s[i]
    for b in range(len(W)):
        label = labels[b]
        weight = positives.weight[label]
        own = positives.rows[positives.indptr[label] : positives.indptr[label + 1]]
        for a in range(len(own)):
            y[own[a]] = 1.0
            cost[own[a]] = C * weight * s[own[a]]
        newton_one(X, own, weight, x_sum, rule, space, W[b], out, b)
        for a in range(len(own)):
            y[own[a]] = -1.0
            cost[own[a]] = C * s[own[a]]
