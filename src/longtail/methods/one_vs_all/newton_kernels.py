"""Truncated Newton, compiled.   [Schultheis & Babbar 2022], section 2, eqs (3)-(13)

    min_w f(w) = 1/2 w.w + sum_i c_i phi(y_i z_i),       z_i = x_i.w + bias w_b                          (3), (4)

with y_i = +1 for the positives of the label and -1 for all other rows, c_i = C s_i times the label's weight for
positives and C s_i for the others, s_i the weight of the row (the paper has 1 for all), and phi the squared hinge
max(0, 1 - m)^2 (5) or the logistic loss
log(1 + exp(-m)). Each step minimises the quadratic model (6) by preconditioned conjugate gradients on (7), with Hessian
products (11) over the active rows (19), (20) only, and backtracks along the direction found.

Symbols  X (n, d) `Samples`, its bias column implicit; w, g, s, ... (D,), D = d + 1 with bias, else d.
         z = Xw; Xs = X times direction; active: rows of the Hessian; M: diagonal of the preconditioner.

As in LIBLINEAR (Galli & Lin 2021), whose constants the paper uses:
  - conjugate gradients stop when the quadratic model gains little more (CG_TOLERANCE), or after max(D, 5) steps;
  - the preconditioner is 0.99 I + 0.01 diag(H);
  - the step is halved up to 20 times until f falls by at least 0.01 step g.s;
  - a label stops at |g(w)| <= eps |g(0)|, eps = tol max(1, min(|P|, |N|)) / n (12), (13), or when f no longer changes,
    or could not change, in the twelfth digit (LIBLINEAR stops there too). eps is never above `max_tol`, which is
    infinite in this paper. [Fang et al. 2019], section 2.1, has eps = min(eps_1 min(|P|, |N|) / n, eps_2).
Differs from LIBLINEAR: z is updated by z += step Xs instead of being recomputed, and |g(0)| is computed from the sum of
all rows, which labels share. Neither changes the iterates beyond rounding.

Ours, if `rule.sampled`: the active rows are a sample that grows with every step (`find_active`), and a label stops at a
relative duality gap of `tol`. With both rules, the gap is 1/2 |g|^2 at alpha_i = -c_i phi'(m_i), m_i = y_i z_i, because
Fenchel's equality c_i phi(m_i) + c_i phi*(-alpha_i / c_i) = -alpha_i m_i holds for every row, and sum_i alpha_i y_i x_i
is w - g:

    f(w) - D(alpha) = 1/2 |w|^2 - w.(w - g) + 1/2 |w - g|^2 = 1/2 |g|^2

Contract: X and the positives come from inputs.py, the tuples from newton_space.py. Everything else is float64 and owned
by the caller. Nothing here allocates, prints or raises; the kernels return how a solve ended as an integer.
"""

from __future__ import annotations

import math

import numpy as np

from longtail.compiled import kernel, larger, reordering_kernel, smaller

SQUARED_HINGE, LOGISTIC = 0, 1
CONVERGED, MAX_ITER, LINE_SEARCH_FAILED = 0, 1, 2

PRECONDITIONER = 0.01  # weight of diag(H); the rest is the identity
CG_TOLERANCE = 0.5
SUFFICIENT_DECREASE = 0.01
MAX_HALVINGS = 20
NO_CHANGE = 1e-12
SAMPLE = 2.0  # theta of `find_active` at the first step; each further step has half of it
GOLDEN = 0.618  # multiples of it are spread over the unit interval
ONE = np.uint64(1)


# --- 1. losses -------------------------------------------------------------------------------------------------------


@kernel
def loss_at(loss, m):
    """phi, phi' and phi'' at a margin m."""
    if loss == SQUARED_HINGE:
        short = 1.0 - m
        return (short * short, -2.0 * short, 2.0) if short > 0.0 else (0.0, 0.0, 0.0)
    e = math.exp(-abs(m))
    p = 1.0 / (1.0 + e)  # the larger of the two probabilities
    # log1p takes longer than all else, and most rows are far outside the margin; the series has an error of e^5 / 5
    log = e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - 0.25 * e))) if e < 1e-3 else math.log1p(e)
    return (log, -e * p, e * p * p) if m > 0.0 else (log - m, -p, e * p * p)


@kernel
def evaluate(loss, space, step):
    """The sum of c_i phi over all rows at the scores z + step Xs. Keeps c_i phi' and c_i phi'' of every row."""
    y, z, cost, Xs, slope, curvature = space.y, space.z, space.cost, space.Xs, space.slope, space.curvature
    total = 0.0
    for i in range(len(z)):
        phi, first, second = loss_at(loss, y[i] * (z[i] + step * Xs[i]))
        total += cost[i] * phi
        slope[i] = cost[i] * first
        curvature[i] = cost[i] * second
    return total


# --- 2. products with X ----------------------------------------------------------------------------------------------


@reordering_kernel
def dense_dot(dense, i, first, v):
    total = 0.0
    for f in range(dense.shape[1]):
        total += dense[i, f] * v[first + f]
    return total


@kernel
def add_dense(dense, i, first, factor, out):
    for f in range(dense.shape[1]):
        out[first + f] += factor * dense[i, f]


@kernel
def add_row(i, X, factor, out):
    """out += factor x_i"""
    for p in range(X.indptr[i], X.indptr[i + 1]):
        out[X.indices[p]] += factor * X.data[p]
    add_dense(X.dense, i, X.n_sparse, factor, out)
    if X.bias > 0.0:
        out[-1] += factor * X.bias


@kernel
def margins(X, v, out):
    """out = X v. Arrays of inner loops are local variables, here and below: a call for each row that passes the named
    tuple would take as long as the row."""
    data, indices, indptr, has_dense = X.data, X.indices, X.indptr, X.dense.shape[1] > 0
    offset = X.bias * v[-1] if X.bias > 0.0 else 0.0
    for i in range(np.uint64(len(out))):
        total = offset
        for p in range(indptr[i], indptr[i + ONE]):
            total += data[p] * v[indices[p]]
        if has_dense:
            total += dense_dot(X.dense, i, X.n_sparse, v)
        out[i] = total


@kernel
def find_active(X, space, theta, first):
    """Put the rows of the Hessian into `active`, in order, and their c_i phi'' into `weight`. Returns their number.

    theta = 0 takes all rows with phi'' != 0 (19). Otherwise rows are drawn with probability min(1, q_i / theta), where
    q_i = c_i phi'' |x_i|^2, and weighted by its inverse, so that the Hessian is right in the mean. As H is at least the
    identity, q_i bounds how much row i can matter in any direction v: c_i phi'' (x_i.v)^2 <= q_i v.Hv. So no drawn row
    matters more than theta, and the error of the drawn Hessian is of the order of sqrt(theta), whatever n is. Draws are
    systematic: one row each time that the sum of q_i passes a multiple of theta, beginning with the share `first`.
    """
    curvature, active, weight = space.curvature, space.active, space.weight
    passed = first * theta
    count = 0
    for i in range(len(curvature)):
        h = curvature[i]
        if h == 0.0:
            continue
        q = h * (X.squares[i] + X.bias * X.bias)
        if q < theta:
            passed += q
            if passed < theta:
                continue
            passed -= theta
            h *= theta / q
        active[count] = i
        weight[count] = h
        count += 1
    return count


@kernel
def gradient(X, space, w):
    """g = w + sum_i c_i phi'(y_i z_i) y_i x_i. Returns |g|^2."""
    y, slope, g, bias = space.y, space.slope, space.g, X.bias
    data, indices, indptr, has_dense = X.data, X.indices, X.indptr, X.dense.shape[1] > 0
    copy_to(g, w)
    at_bias = g[-1]
    for i in range(np.uint64(len(y))):
        factor = slope[i] * y[i]
        if factor == 0.0:
            continue
        for p in range(indptr[i], indptr[i + ONE]):
            g[indices[p]] += factor * data[p]
        if has_dense:
            add_dense(X.dense, i, X.n_sparse, factor, g)
        at_bias += factor * bias
    if bias > 0.0:
        g[-1] = at_bias
    return dot(g, g)


@kernel
def hessian_times(X, space, n_active, v, out):
    """out = v + sum over active i of c_i phi''(y_i z_i) (x_i.v) x_i                                      (11), (20)"""
    active, weight, bias = space.active, space.weight, X.bias
    data, indices, indptr, has_dense = X.data, X.indices, X.indptr, X.dense.shape[1] > 0
    copy_to(out, v)
    offset, at_bias = bias * v[-1] if bias > 0.0 else 0.0, out[-1]
    for a in range(n_active):
        i = np.uint64(active[a])
        begin, end = indptr[i], indptr[i + ONE]
        total = offset
        for p in range(begin, end):
            total += data[p] * v[indices[p]]
        if has_dense:
            total += dense_dot(X.dense, i, X.n_sparse, v)
        factor = weight[a] * total
        for p in range(begin, end):
            out[indices[p]] += factor * data[p]
        if has_dense:
            add_dense(X.dense, i, X.n_sparse, factor, out)
        at_bias += factor * bias
    if bias > 0.0:
        out[-1] = at_bias


@kernel
def preconditioner(X, space, n_active):
    """M = 0.99 + 0.01 diag(H)"""
    active, weight, M = space.active, space.weight, space.M
    data, indices, indptr = X.data, X.indices, X.indptr
    for j in range(len(M)):
        M[j] = 1.0
    for a in range(n_active):
        i = np.uint64(active[a])
        factor = PRECONDITIONER * weight[a]
        for p in range(indptr[i], indptr[i + ONE]):
            M[indices[p]] += factor * data[p] * data[p]
        for f in range(X.dense.shape[1]):
            M[X.n_sparse + f] += factor * X.dense[i, f] * X.dense[i, f]
        if X.bias > 0.0:
            M[-1] += factor * X.bias * X.bias


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
def newton_direction(X, space, n_active):
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
    tolerance = smaller(CG_TOLERANCE, math.sqrt(math.sqrt(zTr)))
    Q = 0.0
    n_cg = 0
    for iteration in range(1, larger(len(g), 5) + 1):
        n_cg = iteration
        hessian_times(X, space, n_active, direction, H_direction)
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
    wTs, sTs = dot(w, space.s), dot(space.s, space.s)
    step = 1.0
    for _ in range(MAX_HALVINGS):
        f_new = 0.5 * (wTw + 2.0 * step * wTs + step * step * sTs) + evaluate(loss, space, step)
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
    return C * abs(loss_at(loss, 0.0)[1]) * math.sqrt(dot(out, out))


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
    loss, z, Xs = rule.loss, space.z, space.Xs
    n = len(z)

    # 0) the scale of the stopping rule (12), (13)
    g0_norm = gradient_norm_at_zero(X, loss, positives, weight, space.sample_weight, x_sum, rule.C, space.g)
    eps = smaller(rule.tol * larger(1, smaller(len(positives), n - len(positives))) / n, rule.max_tol)
    limit = eps * g0_norm

    # 1) the start
    trace = out.trace[b]
    if len(trace) > 0:
        copy_to(space.w_start, w)
    if not rule.sampled:
        margins(X, w, z)
    for i in range(n):
        Xs[i] = 0.0
    wTw = dot(w, w)
    f = 0.5 * wTw + evaluate(loss, space, 0.0)
    theta = SAMPLE if rule.sampled else 0.0
    active_total = 0
    steps = 0
    status = MAX_ITER
    while True:
        # 2) the gradient, and the stopping rule
        gTg = gradient(X, space, w)
        n_active = find_active(X, space, theta, (steps * GOLDEN) % 1.0)
        solved = 0.5 * gTg <= rule.tol * f if rule.sampled else math.sqrt(gTg) <= limit
        if solved:
            status = CONVERGED
            break
        if steps == rule.max_iter:
            break
        active_total += n_active

        # 3) Newton direction
        preconditioner(X, space, n_active)
        gTs, n_cg = newton_direction(X, space, n_active)

        # 4) step length, and the step
        margins(X, space.s, Xs)
        step, f_new = line_search(loss, space, w, wTw, gTs, f)
        if step == 0.0:  # either the remaining gain is below rounding, or the problem is badly scaled
            status = CONVERGED if -gTs <= NO_CHANGE * abs(f) and not rule.sampled else LINE_SEARCH_FAILED
            break
        note(trace, steps, f, n_active, n_cg, step)
        for j in range(len(w)):
            w[j] += step * space.s[j]
        for i in range(n):
            z[i] += step * Xs[i]
        wTw = dot(w, w)
        steps += 1
        change, f = f - f_new, f_new
        theta *= 0.5
        if abs(change) <= NO_CHANGE * abs(f) and not rule.sampled:
            status = CONVERGED
            n_active = find_active(X, space, theta, 0.0)
            gTg = gradient(X, space, w)
            break
    note(trace, steps, f, n_active, math.nan, math.nan)
    if len(trace) > 0:
        for j in range(len(w)):
            space.w_start[j] -= w[j]
        out.distance[b] = math.sqrt(dot(space.w_start, space.w_start))
    out.status[b] = status
    out.n_iter[b] = steps
    out.figures[b, 0] = f
    out.figures[b, 1] = 0.5 * gTg / f if f > 0.0 else 0.0
    out.figures[b, 2] = math.sqrt(gTg) / g0_norm if g0_norm > 0.0 else 0.0
    out.figures[b, 3] = active_total / larger(steps, 1)


@kernel
def newton_block(X, positives, labels, x_sum, rule, space, W, out):
    """Solve `labels`. W (labels, D) holds their starts before the call, and their solutions after it. If
    `rule.sampled`, there is one label, and `space.z` has the scores of its start."""
    y, cost, C, s = space.y, space.cost, rule.C, space.sample_weight
    for i in range(len(cost)):
        y[i] = -1.0
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
