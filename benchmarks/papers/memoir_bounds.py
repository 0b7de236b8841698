"""The bounds of MEMOIR as functions: Theorems 1 to 3 and the exponent of SimpleLSH, eq. 9.

Symbols: C classes, n rows, R >= |x|, Omega >= |W|_F, rho margin of the hinge, (epsilon, delta) inexact margin.
"""

from __future__ import annotations

import math

import numpy as np


def hinge_risk(margins: np.ndarray, rho: float) -> float:
    """The empirical rho-hinge loss, 1/n sum_i max(0, 1 - m_i / rho)."""
    return float(np.maximum(0.0, 1.0 - margins / rho).mean())


def theorem_1(margins: np.ndarray, rho: float, epsilon: float, C: int, R: float, omega: float, delta: float) -> float:
    """The right-hand side of (4). `margins` are inexact, by at most epsilon rho.

    R_{rho (1 + epsilon)}(m) + 4 C / rho sqrt(R^2 Omega^2 / n) + 3 sqrt(log(4 / delta) / 2 n)
    """
    n = len(margins)
    complexity = 4 * C / rho * R * omega / math.sqrt(n)
    return hinge_risk(margins, rho * (1 + epsilon)) + complexity + 3 * math.sqrt(math.log(4 / delta) / (2 * n))


def corrected_risk(margins: np.ndarray, rho: float, epsilon: float) -> float:
    """The first term of (3) as the proof needs it: an upper bound of the hinge risk of the exact margins.

    The proof uses R_rho(m) <= R_{rho (1 + epsilon)}(m'), which is wrong for margins near 0: if m' = 0 and
    m = -epsilon rho, the left side is 1 + epsilon and the right side 1. What holds is R_rho(m) <= R_rho(m') + epsilon.
    """
    return hinge_risk(margins, rho) + epsilon


def theorem_2(lam: float, n: int, epsilon: float, inexact: float, delta: float) -> float:
    """The gap of Theorem 2: f(W_mean) - f(W*) <= c (1 + log n) / (2 lam n) + psi, with c and psi as stated there.

    inexact : share of the steps whose margin is wrong by more than epsilon (the paper's delta with a hat).
    """
    c = math.sqrt(lam) + 2 + epsilon
    noise = (1 - inexact) * epsilon * math.sqrt(lam) + inexact + math.sqrt(math.log(1 / delta) / n)
    return c * (1 + math.log(n)) / (2 * lam * n) + min(1.0, noise) / math.sqrt(lam)


def theorem_3(rates: np.ndarray, R: float, G: float, epsilon: float) -> list[float]:
    """The three terms that (14) adds to f(W*): R^2 / 2 n eta_n, G^2 / 2 sum_k eta_k, R G psi with psi = 2 epsilon sum_k eta_k."""
    total = float(rates.sum())
    return [R**2 / (2 * len(rates) * float(rates[-1])), G**2 / 2 * total, R * G * 2 * epsilon * total]


def lsh_exponent(S: float, c: float) -> float:
    """Eq. 9: rho(c, S) = log p1 / log p2 with p = 1 - arccos(similarity) / pi, for unit vectors and 0 < c < 1.

    The paper prints cos in place of its inverse, and log of the quotient in place of the quotient of logs.
    """
    return math.log(1 - math.acos(S) / math.pi) / math.log(1 - math.acos(c * S) / math.pi)


def n_tables(p: float, key_bits: int, failure: float) -> float:
    """How many tables with keys of `key_bits` bits find a vector whose bits agree with probability p, except with
    probability `failure`: (1 - p^K)^T <= failure."""
    return math.log(failure) / math.log1p(-(p**key_bits))
