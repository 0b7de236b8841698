"""Slow, obvious twins of PD-Sparse: dense float64 NumPy, one formula of the paper a function.

X (n, d), Y (n, K) of 0 and 1, A (n, K) dual variables, V and W (d, K).
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import minimize


def prox(V, lam):
    return np.sign(V) * np.maximum(np.abs(V) - lam, 0)


def losses(Z, Y):
    """The separation ranking loss (2) of every row of scores Z."""
    margins = 1 + np.where(Y > 0, -np.inf, Z).max(axis=1) - np.where(Y > 0, Z, np.inf).min(axis=1)
    return np.maximum(margins, 0)


def primal(X, Y, W, C, lam):
    """(13)"""
    return 0.5 * (W**2).sum() + lam * np.abs(W).sum() + C * losses(X @ W, Y).sum()


def dual(X, Y, A, lam, selected=None):
    """(14), (15); with `selected`, W is zero outside of it."""
    V = X.T @ A if selected is None else (X.T @ A) * selected
    return 0.5 * (prox(V, lam) ** 2).sum() + A[Y == 0].sum()


def threshold(values, t):
    """theta with sum (values - theta)_+ = t, by bisection."""
    low, high = values.min() - t - 1, values.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(values - middle, 0).sum() > t:
            low = middle
        else:
            high = middle
    return high


def project_row(a, positive, C):
    """The point of (16) nearest to `a`, by bisection over the multiplier of the two sums."""
    b, c = -a[~positive], a[positive]
    if not len(b) or not len(c):
        return np.zeros_like(a)
    low, high = min(b.min(), -c.max()) - 1, max(b.max(), -c.min()) + 1
    for _ in range(200):
        theta = (low + high) / 2
        if np.maximum(b - theta, 0).sum() > np.maximum(c + theta, 0).sum():
            low = theta
        else:
            high = theta
    theta_b, theta_c = high, -high
    if np.maximum(b - theta_b, 0).sum() > C:
        theta_b, theta_c = threshold(b, C), threshold(c, C)
    out = np.empty_like(a)
    out[~positive], out[positive] = -np.maximum(b - theta_b, 0), np.maximum(c - theta_c, 0)
    return out


def optimum(X, Y, C, lam, *, selected=None):
    """The smallest dual objective, by a general-purpose solver of constrained problems: for some 50 variables."""
    n, K = Y.shape
    signs = np.where(Y > 0, 1.0, -1.0)

    def gradient(a):
        A = a.reshape(n, K) * signs
        V = X.T @ A if selected is None else (X.T @ A) * selected
        return ((X @ prox(V, lam) + (Y == 0)) * signs).ravel()

    rows = np.kron(np.eye(n), np.ones(K))
    constraints = [
        {"type": "eq", "fun": lambda a: rows @ (a * signs.ravel()), "jac": lambda a: rows * signs.ravel()},
        {"type": "ineq", "fun": lambda a: C - rows @ (a * (Y > 0).ravel()), "jac": lambda a: -rows * (Y > 0).ravel()},
    ]
    found = minimize(
        lambda a: dual(X, Y, a.reshape(n, K) * signs, lam, selected),
        np.zeros(n * K),
        jac=gradient,
        bounds=[(0, C)] * (n * K),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert found.success, found.message
    return found.fun


def brute_force_pair(b, c, C):
    """Algorithm 2's problem by trying all supports: min |x - b|^2 + |y - c|^2, x, y >= 0, sum x = sum y in [0, C]."""
    best, answer = (b**2).sum() + (c**2).sum(), (np.zeros_like(b), np.zeros_like(c))
    for used_b in itertools.product([False, True], repeat=len(b)):
        for used_c in itertools.product([False, True], repeat=len(c)):
            n, m = sum(used_b), sum(used_c)
            if not n or not m:
                continue
            S_b, S_c = b[list(used_b)].sum(), c[list(used_c)].sum()
            for t in {C, (m * S_b + n * S_c) / (n + m)}:
                if not 0 <= t <= C:
                    continue
                x = np.where(used_b, b + (t - S_b) / n, 0)
                y = np.where(used_c, c + (t - S_c) / m, 0)
                value = ((x - b) ** 2).sum() + ((y - c) ** 2).sum()
                if value < best and x.min() >= 0 and y.min() >= 0:
                    best, answer = value, (x, y)
    return best, answer


def brute_force_simplex(d, C):
    """The nearest point with entries >= 0 that add up to C."""
    return np.maximum(d - threshold(d, C), 0)
