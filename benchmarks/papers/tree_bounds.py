"""The bounds of OvA-Primal++ (supplement of Fang et al. 2019) and what they bound.

    f(y, w) = 1/2 |w|^2 + C sum_i phi(y_i x_i.w),    w*_p its minimum for the label vector y_p,    l_H Hamming distance

Lemma 3.1     f(y_q, w*_p) - f(y_q, w*_q) <= 4 l_H(y_p, y_q) C alpha B
              with alpha the Lipschitz constant of phi, |x_i| <= 1 and |w*| <= B
Theorem 3.1   sum over labels of the same with the root as p, where l_H = N_k: at most 4 C alpha B N L, L labels per row
Theorem 3.2   a solver with linear rate takes O(log(gap / eps)) steps from a first gap: K log(N / eps) for labels that
              start at 0, K log(mean N_k / eps) for labels that start at w*_0
Theorem 3.3   the graph has at most K + sum over rows of |labels of the row|^2 / 2 edges

Two corrections. The squared hinge has no Lipschitz constant, but on |m| <= R B, where R = max |x_i|, it has
alpha = 2 (1 + R B). Rows have a bias feature, so R = sqrt(2) for rows of length 1, and x_i.w is at most R B. The bound
that is measured is therefore 4 l_H C alpha R B, with B = max(|w*_p|, |w*_q|) of the pair. In the proof, the terms (2)
and (3) are printed with y_q in place of y_p: (2) is f(y_p, w*_p) - f(y_p, w*_q) <= 0, and (3) is f(y_p, w*_q) -
f(y_q, w*_q), which is bounded as (1) is. The ratio in the proof of Theorem 3.2 is log(N / eps) / log(mean N_k / eps),
not log((N - mean N_k) / eps); it is of order log N only if mean N_k / eps does not grow.
"""

from __future__ import annotations

import math

import numpy as np


def lemma_3_1(hamming: np.ndarray, C: float, R: float, B: np.ndarray) -> np.ndarray:
    """4 l_H C alpha R B for the squared hinge, one entry per pair."""
    RB = R * B
    return np.asarray(4 * hamming * C * 2 * (1 + RB) * RB)


def theorem_3_2(gaps: np.ndarray, epsilon: float) -> tuple[float, float]:
    """The mean of log(gap / epsilon) over labels, and its bound by Jensen's inequality (7), log(mean gap / epsilon)."""
    return float(np.log(gaps / epsilon).mean()), math.log(gaps.mean() / epsilon)


def theorem_3_3(labels_per_row: np.ndarray, n_labels: int) -> float:
    """K + sum over rows of |labels of the row|^2 / 2"""
    return float(n_labels + (labels_per_row.astype(float) ** 2).sum() / 2)
