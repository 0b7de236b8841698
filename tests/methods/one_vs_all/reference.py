"""Slow, obvious twins of the one-vs-all kernels: dense float64 NumPy, one formula a function.

C is one cost for all rows, or an array with one for each.
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
