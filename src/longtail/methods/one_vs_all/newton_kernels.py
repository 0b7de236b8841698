"""Compiled loops of newton.py.   [Schultheis & Babbar 2022], section 2, eqs (3)-(13)

    min_w f(w) = 1/2 w.w + sum_i c_i phi(y_i z_i),       z_i = x_i.w + bias w_b                          (3), (4)

with y_i = +1 for the rows that have the label and -1 for the others, c_i = C times the label's weight for the former
and C for the latter (the paper has 1 for all), and phi the squared hinge max(0, 1 - m)^2 (5) or the logistic loss
log(1 + exp(-m)). Each step minimises the quadratic model (6) by preconditioned conjugate gradients
on (7), with Hessian products (11) over the active rows (19), (20) only, and backtracks along the direction found.

Symbols  X (n, d) CSR, its bias column implicit with the value `bias`; w, g, s, ... (D,), D = d + 1 with bias, else d.
         z = Xw; Xs = X times direction; active: rows with phi'' != 0; M: diagonal of the preconditioner.

As in LIBLINEAR (Galli & Lin 2021), whose constants the paper takes over:
  - conjugate gradients stop when the quadratic model gains little more (CG_TOLERANCE), or after max(D, 5) steps;
  - the preconditioner is 0.99 I + 0.01 diag(H);
  - the step is halved up to 20 times until f falls by at least 0.01 step g.s;
  - a label stops at |g(w)| <= eps |g(0)|, eps = tol max(1, min(|P|, |N|)) / n (12), (13), or when f no longer changes,
    or could not change, in the twelfth digit (LIBLINEAR stops there too).
What differs: z is kept up to date by z += step Xs instead of being computed anew, and |g(0)| comes from the sum of all
rows, which labels share. Neither changes the iterates beyond rounding.

Contract (established by longtail.check): canonical CSR, or rows without indices where they are dense (`row_parts`);
float32 X, unsigned indices; everything else is float64 and
owned by the caller. Nothing here allocates, prints or raises; how a solve ended is an integer.
"""

from __future__ import annotations

import math

from longtail.compiled import kernel, reordering_kernel

SQUARED_HINGE, LOGISTIC = 0, 1
CONVERGED, MAX_ITER, LINE_SEARCH_FAILED = 0, 1, 2

PRECONDITIONER = 0.01  # weight of diag(H); the rest is the identity
CG_TOLERANCE = 0.5
SUFFICIENT_DECREASE = 0.01
MAX_HALVINGS = 20
NO_CHANGE = 1e-12


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
def dense_dot(X_data, start, end, v):
    total = 0.0
    for p in range(start, end):
        total += X_data[p] * v[p - start]
    return total


@kernel
def row_dot(i, X_data, X_indices, X_indptr, bias, v):
    """x_i . v, bias feature included."""
    total = bias * v[-1] if bias > 0.0 else 0.0
    if len(X_indices) == 0:
        return total + dense_dot(X_data, X_indptr[i], X_indptr[i + 1], v)
    for p in range(X_indptr[i], X_indptr[i + 1]):
        total += X_data[p] * v[X_indices[p]]
    return total


@kernel
def add_row(i, X_data, X_indices, X_indptr, bias, factor, out):
    """out += factor x_i"""
    start, end = X_indptr[i], X_indptr[i + 1]
    if len(X_indices) == 0:
        for p in range(start, end):
            out[p - start] += factor * X_data[p]
    else:
        for p in range(start, end):
            out[X_indices[p]] += factor * X_data[p]
    if bias > 0.0:
        out[-1] += factor * bias


@kernel
def margins(X_data, X_indices, X_indptr, bias, v, out):
    """out = X v"""
    for i in range(len(out)):
        out[i] = row_dot(i, X_data, X_indices, X_indptr, bias, v)


@kernel
def objective(loss, y, z, cost, wTw):
    """f of (3) at scores z"""
    total = 0.0
    for i in range(len(z)):
        total += cost[i] * loss_value(loss, y[i] * z[i])
    return 0.5 * wTw + total


@kernel
def find_active(loss, y, z, active):
    """Rows with phi'' != 0 (19), in order; returns how many."""
    count = 0
    for i in range(len(z)):
        if loss_curvature(loss, y[i] * z[i]) != 0.0:
            active[count] = i
            count += 1
    return count


@kernel
def gradient(X_data, X_indices, X_indptr, bias, loss, y, z, cost, w, active, n_active, out):
    """out = w + sum_i c_i phi'(y_i z_i) y_i x_i. Where phi'' is zero, so is phi'."""
    out[:] = w
    for a in range(n_active):
        i = active[a]
        add_row(i, X_data, X_indices, X_indptr, bias, cost[i] * loss_slope(loss, y[i] * z[i]) * y[i], out)


@kernel
def hessian_times(X_data, X_indices, X_indptr, bias, loss, y, z, cost, active, n_active, v, out):
    """out = v + sum over active i of c_i phi''(y_i z_i) (x_i.v) x_i                                      (11), (20)"""
    out[:] = v
    for a in range(n_active):
        i = active[a]
        Xv = row_dot(i, X_data, X_indices, X_indptr, bias, v)
        add_row(i, X_data, X_indices, X_indptr, bias, cost[i] * loss_curvature(loss, y[i] * z[i]) * Xv, out)


@kernel
def preconditioner(X_data, X_indices, X_indptr, bias, loss, y, z, cost, active, n_active, out):
    """out = 0.99 + 0.01 diag(H)"""
    out[:] = 1.0
    for a in range(n_active):
        i = active[a]
        factor = PRECONDITIONER * cost[i] * loss_curvature(loss, y[i] * z[i])
        start = X_indptr[i]
        for p in range(start, X_indptr[i + 1]):
            out[X_indices[p] if len(X_indices) else p - start] += factor * X_data[p] * X_data[p]
        if bias > 0.0:
            out[-1] += factor * bias * bias


@kernel
def dual_value(loss, y, z, cost, w, g):
    """D(alpha) at alpha_i = -c_i phi'(y_i z_i), whose weights sum_i alpha_i y_i x_i are w - g: a lower bound."""
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
def dot(a, b):
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


# --- 3. the algorithm ------------------------------------------------------------------------------------------------


@kernel
def newton_direction(
    X_data, X_indices, X_indptr, bias, loss, y, z, cost, active, n_active, g, M, s, r, direction, H_direction
):
    """s, an approximate solution of H s = -g (7), by preconditioned conjugate gradients from s = 0; returns g.s."""
    zTr = 0.0
    for j in range(len(g)):
        s[j] = 0.0
        r[j] = -g[j]
        direction[j] = r[j] / M[j]
        zTr += direction[j] * r[j]
    tolerance = min(CG_TOLERANCE, math.sqrt(math.sqrt(zTr)))
    Q = 0.0
    for iteration in range(1, max(len(g), 5) + 1):
        hessian_times(X_data, X_indices, X_indptr, bias, loss, y, z, cost, active, n_active, direction, H_direction)
        curvature = dot(direction, H_direction)
        if curvature <= 1e-16:
            break
        alpha = zTr / curvature
        sTr, sTg, next_zTr = 0.0, 0.0, 0.0
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
    return dot(s, g)


@kernel
def line_search(loss, y, z, Xs, cost, wTw, wTs, sTs, gTs, f):
    """The first step of 1, 1/2, 1/4, ... that lowers f enough, and f there; step 0 if none of them does."""
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
def gradient_norm_at_zero(X_data, X_indices, X_indptr, bias, loss, positives, x_sum, C, weight, out):
    """|g(0)| = C |phi'(0)| |(1 + weight) sum over P of x_i - sum of all x_i|"""
    for j in range(len(x_sum)):
        out[j] = -x_sum[j]
    for a in range(len(positives)):
        add_row(positives[a], X_data, X_indices, X_indptr, bias, 1.0 + weight, out)
    return C * abs(loss_slope(loss, 0.0)) * math.sqrt(dot(out, out))


@kernel
def newton_one(
    X_data, X_indices, X_indptr, bias, loss, positives, weight, x_sum, C, tol, max_iter, w, rows, columns, active
):
    """Solve one label from the start `w`, in place.

    Returns status, Newton steps, f, relative duality gap, |g| / |g(0)| and mean active rows.
    """
    z, Xs, y, cost = rows[0], rows[1], rows[2], rows[3]
    n = len(z)
    g, M, s, r, direction, H_direction = columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]

    # 0) the scale of the stopping rule (12), (13)
    g0_norm = gradient_norm_at_zero(X_data, X_indices, X_indptr, bias, loss, positives, x_sum, C, weight, g)
    limit = tol * max(1, min(len(positives), n - len(positives))) / n * g0_norm

    # 1) the start
    margins(X_data, X_indices, X_indptr, bias, w, z)
    wTw = dot(w, w)
    f = objective(loss, y, z, cost, wTw)
    active_total, steps, status = 0, 0, MAX_ITER
    while True:
        # 2) gradient on the active rows, and the stopping rule
        n_active = find_active(loss, y, z, active)
        gradient(X_data, X_indices, X_indptr, bias, loss, y, z, cost, w, active, n_active, g)
        g_norm = math.sqrt(dot(g, g))
        if g_norm <= limit:
            status = CONVERGED
            break
        if steps == max_iter:
            break
        active_total += n_active

        # 3) Newton direction
        preconditioner(X_data, X_indices, X_indptr, bias, loss, y, z, cost, active, n_active, M)
        gTs = newton_direction(
            X_data, X_indices, X_indptr, bias, loss, y, z, cost, active, n_active, g, M, s, r, direction, H_direction
        )

        # 4) step length, and the step
        margins(X_data, X_indices, X_indptr, bias, s, Xs)
        step, f_new = line_search(loss, y, z, Xs, cost, wTw, dot(w, s), dot(s, s), gTs, f)
        if step == 0.0:  # either rounding hides what little is left to gain, or the problem is badly scaled
            status = CONVERGED if -gTs <= NO_CHANGE * abs(f) else LINE_SEARCH_FAILED
            break
        for j in range(len(w)):
            w[j] += step * s[j]
        for i in range(n):
            z[i] += step * Xs[i]
        wTw = dot(w, w)
        steps += 1
        change, f = f - f_new, f_new
        if abs(change) <= NO_CHANGE * abs(f):
            status = CONVERGED
            n_active = find_active(loss, y, z, active)
            gradient(X_data, X_indices, X_indptr, bias, loss, y, z, cost, w, active, n_active, g)
            g_norm = math.sqrt(dot(g, g))
            break
    ratio = g_norm / g0_norm if g0_norm > 0.0 else 0.0
    gap = (f - dual_value(loss, y, z, cost, w, g)) / f if f > 0.0 else 0.0
    return status, steps, f, gap, ratio, active_total / max(steps, 1)


@kernel
def newton_block(
    X_data, X_indices, X_indptr, bias, loss, rows_of, rows_indptr, weights, labels, x_sum, C, tol, max_iter, rows,
    columns, active, W, out_status, out_steps, out_figures,
):  # fmt: skip
    """Solve `labels`: W (labels, D) holds their starts, then their solutions.

    rows_of, rows_indptr list the positive rows of each label, whose cost is C times its entry in `weights`.
    """
    y, cost = rows[2], rows[3]
    y[:] = -1.0
    cost[:] = C
    for b in range(len(W)):
        label = labels[b]
        positives = rows_of[rows_indptr[label] : rows_indptr[label + 1]]
        for a in range(len(positives)):
            y[positives[a]], cost[positives[a]] = 1.0, C * weights[label]
        status, steps, f, gap, ratio, mean_active = newton_one(
            X_data, X_indices, X_indptr, bias, loss, positives, weights[label], x_sum, C, tol, max_iter, W[b], rows,
            columns, active,
        )  # fmt: skip
        out_status[b], out_steps[b] = status, steps
        out_figures[b, 0], out_figures[b, 1], out_figures[b, 2], out_figures[b, 3] = f, gap, ratio, mean_active
        for a in range(len(positives)):
            y[positives[a]], cost[positives[a]] = -1.0, C
