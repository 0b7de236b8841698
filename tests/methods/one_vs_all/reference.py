"""Slow, obvious twins of the one-vs-all kernels: dense float64 NumPy, one formula per function.

C is one cost for all rows, or an array with one per row.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit


def augmented(X, bias):
    """Dense float64 X with the bias feature as its last column."""
    dense = X.toarray().astype(float)
    return np.hstack([dense, np.full((len(dense), 1), bias)]) if bias > 0 else dense


def loss_value(loss, m):
    return np.maximum(0, 1 - m) ** 2 if loss == "squared_hinge" else np.logaddexp(0, -m)


def loss_slope(loss, m):
    return -2 * np.maximum(0, 1 - m) if loss == "squared_hinge" else -expit(-m)


def loss_curvature(loss, m):
    return 2.0 * (m < 1) if loss == "squared_hinge" else expit(m) * expit(-m)


def objective(loss, A, y, C, w):
    return 0.5 * w @ w + (C * loss_value(loss, y * (A @ w))).sum()


def gradient(loss, A, y, C, w):
    return w + A.T @ (C * y * loss_slope(loss, y * (A @ w)))


def hessian(loss, A, y, C, w):
    return np.eye(A.shape[1]) + A.T @ ((C * loss_curvature(loss, y * (A @ w)))[:, None] * A)


def dual_value(loss, A, y, C, w):
    """D(alpha) = sum_i -C phi*(-alpha_i / C) - 1/2 |sum_i alpha_i y_i x_i|^2 at alpha_i = -C phi'(y_i z_i)."""
    a = -loss_slope(loss, y * (A @ w))
    if loss == "squared_hinge":
        conjugate = a**2 / 4 - a
    else:
        conjugate = a * np.log(np.maximum(a, 1e-300)) + (1 - a) * np.log1p(-np.minimum(a, 1 - 1e-16))
    weights = A.T @ (C * a * y)
    return -(C * conjugate).sum() - 0.5 * weights @ weights


def newton_direction(H, g):
    """Preconditioned conjugate gradients on H s = -g from zero, with LIBLINEAR's stopping rule. Also the number of
    steps."""
    M = 0.99 + 0.01 * np.diag(H)
    s, r = np.zeros_like(g), -g
    d = r / M
    tolerance, model = min(0.5, np.sqrt(np.sqrt(d @ r))), 0.0
    for iteration in range(1, max(len(g), 5) + 1):
        if d @ H @ d <= 1e-16:
            break
        step = (r / M) @ r / (d @ H @ d)
        s = s + step * d
        before, r = r, r - step * H @ d
        gain, model = 0.5 * s @ H @ s + g @ s - model, 0.5 * s @ H @ s + g @ s
        if model > 0 or gain > 0 or iteration * gain >= tolerance * model:
            break
        d = r / M + (r / M) @ r / ((before / M) @ before) * d
    return s, iteration


def line_search(f_at, f, gTs):
    """The first step of 1, 1/2, ..., 2^-19 at which f falls by at least 0.01 step |g.s|, else 0."""
    return next((step for step in 0.5 ** np.arange(20) if f_at(step) - f <= 0.01 * step * gTs), 0.0)


def newton(loss, A, y, C, w, eps, max_iter):
    """Newton steps from w until |g(w)| <= eps |g(0)|. Returns the solution, and for every step the objective before it,
    the active rows, the CG steps and the multiplier; the last entry is the end, with None for the last two."""
    limit = eps * np.linalg.norm(gradient(loss, A, y, C, 0 * w))
    steps = []
    while True:
        f, g, H = objective(loss, A, y, C, w), gradient(loss, A, y, C, w), hessian(loss, A, y, C, w)
        active = np.count_nonzero(loss_curvature(loss, y * (A @ w)))
        if np.linalg.norm(g) <= limit or len(steps) == max_iter:
            return w, [*steps, (f, active, None, None)]
        s, n_cg = newton_direction(H, g)
        multiplier = line_search(lambda t, w=w, s=s: objective(loss, A, y, C, w + t * s), f, g @ s)
        steps.append((f, active, n_cg, multiplier))
        w = w + multiplier * s


def sine(a, b):
    """The sine of the angle between two vectors; 0 if one of them is zero."""
    squares = (a @ a) * (b @ b)
    return np.sqrt(max(0.0, 1 - (a @ b) ** 2 / squares)) if squares > 0 else 0.0


def mean_separating(A, y, s, t):
    """The shortest w with <w, mean of positives> = s and <w, mean of negatives> = t, by least squares."""
    constraints = np.stack([A[y > 0].mean(0), A[y < 0].mean(0)])
    return np.linalg.lstsq(constraints, np.array([s, t]), rcond=None)[0]


def optimum(loss, A, y, C):
    """The smallest objective, by a general-purpose minimiser."""
    found = minimize(
        lambda w: objective(loss, A, y, C, w),
        np.zeros(A.shape[1]),
        jac=lambda w: gradient(loss, A, y, C, w),
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30},
    )
    return found.fun
