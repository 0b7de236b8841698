"""The tuples that the Newton kernels take: the rule, the buffers of a thread, and the results."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class NewtonRule(NamedTuple):
    """The objective, and the stopping rule."""

    loss: int  # SQUARED_HINGE or LOGISTIC
    C: float
    tol: float  # eps_0 of (13), eps_1 of [Fang et al. 2019]; the relative duality gap if `sampled`
    max_tol: float  # eps_2 of [Fang et al. 2019]
    max_iter: int
    sampled: bool  # whether Hessians are sampled, and a label stops by its gap


class NewtonSpace(NamedTuple):
    """The buffers of one thread: vectors over rows, then over features, then a small one."""

    y: np.ndarray
    cost: np.ndarray  # c of newton_kernels.py
    z: np.ndarray
    Xs: np.ndarray
    slope: np.ndarray  # c_i phi' and c_i phi'' of every row
    curvature: np.ndarray
    weight: np.ndarray  # of the active rows in the Hessian; only the first n_active entries count
    active: np.ndarray  # the active rows; as many
    sample_weight: np.ndarray  # s of newton_kernels.py
    sum_scores: np.ndarray  # X times the sum of all rows; only used if Hessians are sampled
    g: np.ndarray
    M: np.ndarray
    s: np.ndarray
    r: np.ndarray  # residual of conjugate gradients, their direction, and the Hessian times it
    direction: np.ndarray
    H_direction: np.ndarray
    w_start: np.ndarray
    span: np.ndarray  # (11, 3) for `best_in_span`


class NewtonOutput(NamedTuple):
    """The results: arrays with one entry or row per label."""

    status: np.ndarray
    n_iter: np.ndarray
    figures: np.ndarray  # f, relative duality gap, |g| / |g(0)|, mean active rows
    trace: np.ndarray  # (labels, steps, 4): f before the step, active rows, CG steps, multiplier; NaN if not measured
    distance: np.ndarray  # |w - start|; only measured with a trace


def newton_space(n: int, D: int, sample_weight: np.ndarray | None = None) -> NewtonSpace:
    over_rows = (np.empty(n) for _ in range(7))
    over_features = (np.empty(D) for _ in range(7))
    weights = np.ones(n) if sample_weight is None else sample_weight.copy()
    arrays = (*over_rows, np.empty(n, np.uint32), weights, np.empty(n), *over_features, np.empty((11, 3)))
    return NewtonSpace._make(arrays)


def newton_output(n_labels: int, trace: int = 0) -> NewtonOutput:
    """Room for the results of `n_labels` labels, with a trace of their first `trace` steps."""
    status, n_iter = np.empty(n_labels, np.uint8), np.empty(n_labels, np.int32)
    steps, distance = np.full((n_labels, trace, 4), np.nan), np.full(n_labels, np.nan)
    return NewtonOutput(status, n_iter, np.empty((n_labels, 4)), steps, distance)
