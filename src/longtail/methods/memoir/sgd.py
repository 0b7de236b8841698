"""Stochastic training of the Crammer-Singer machine with a rival that an oracle finds: Algorithms 1 (l2) and 2 (l1).

    min_W  lam/2 |W|_F^2  (or lam/2 |W|_1)  +  1/n sum_i max(0, 1 + max_{r != y_i} x_i.w_r - x_i.w_{y_i})     (10), (11)

A step: find the rivals r_j of a batch against frozen weights; then, pair by pair, where 1 + x_j.(w_r - w_y) > 0 with
the weights as they are by then, w_r -= eta_t x_j and w_y += eta_t x_j. For l2, W is first multiplied by 1 - lam eta_t
and at last projected on the ball |W|_F <= 1 / sqrt(lam); both only change a common factor. For l1, the weights of all
classes R_t that occurred as y_j or r_j are truncated by (C / |R_t|) lam eta_t at last: eq. (13). That costs all weights
of these classes, so it can be put off until a class has been in R_t several times, and then be done for all of them.

Symbols: C classes, eta_t rate, lam lambda, R_t `touched`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from longtail.methods.memoir.oracles import Oracle
from longtail.methods.memoir.oracles.base import Moves
from longtail.methods.memoir.store import Rows


@dataclass(frozen=True)
class Schedule:
    """eta_t = eta0 / (1 + eta_step t), or, with eta_step None, linear from eta0 to 0; over `n_iter` batches."""

    eta0: float
    eta_step: float | None
    batch_size: int
    n_iter: int

    def eta(self, t: int) -> float:
        if self.eta_step is None:
            return self.eta0 * (1.0 - t / self.n_iter)
        return self.eta0 / (1.0 + self.eta_step * (t + 1))


@dataclass(frozen=True)
class Penalty:
    """`l1`, or else l2; `project` on the ball of radius 1 / sqrt(lam) after every batch (l2); a class is truncated
    `every` so many times that it is touched (l1)."""

    lam: float
    l1: bool
    project: bool
    every: int = 1


@dataclass(frozen=True)
class Pairs:
    """What is learned: row rows[k] of X has the label targets[k]. A row with several labels is in several pairs."""

    X: Rows
    rows: np.ndarray
    targets: np.ndarray


def batches(n_pairs: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Numbers of pairs, without end: one shuffled pass after the other, cut into batches."""
    random = np.random.default_rng(seed)
    left = np.empty(0, np.int64)
    while True:
        while len(left) < size:
            left = np.concatenate([left, random.permutation(n_pairs)])
        yield left[:size]
        left = left[size:]


def train(
    oracle: Oracle, pairs: Pairs, schedule: Schedule, penalty: Penalty, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Run all steps. Before the weights move, each step yields its pairs and the rivals that the oracle found."""
    weights = oracle.weights
    source = batches(len(pairs.rows), schedule.batch_size, seed)
    for t in range(schedule.n_iter):
        chosen, eta = next(source), schedule.eta(t)
        if not penalty.l1 and penalty.lam:
            _shrink(oracle, 1.0 - penalty.lam * eta)
        rows, targets = pairs.rows[chosen], pairs.targets[chosen]
        rivals = oracle.query(rows, targets)
        yield chosen, rivals
        moved = weights.step(pairs.X, rows, targets, rivals, eta)
        truncated, amounts = np.empty(0, np.int64), np.empty(0)
        if penalty.l1 and penalty.lam:
            touched = np.unique(np.concatenate([targets, rivals[rivals >= 0]]))
            amount = weights.shape[0] / len(touched) * penalty.lam * eta
            truncated, amounts = weights.truncate(touched, amount, penalty.every)
        if oracle.follows:
            oracle.update(_moves(rows[moved], targets[moved], rivals[moved], eta, truncated, amounts, weights.scale))
        if penalty.project and penalty.lam and not penalty.l1:
            radius = 1.0 / np.sqrt(penalty.lam)
            if weights.norm > radius:
                _shrink(oracle, radius / weights.norm)


def _shrink(oracle: Oracle, factor: float) -> None:
    stored = oracle.weights.shrink(factor)
    if stored != 1.0:
        oracle.rescale(stored)


def _moves(
    rows: np.ndarray,
    targets: np.ndarray,
    rivals: np.ndarray,
    eta: float,
    truncated: np.ndarray,
    amounts: np.ndarray,
    scale: float,
) -> Moves:
    """Rivals move away from their rows, targets towards them, in the order of the steps."""
    classes, factors = np.stack([rivals, targets], axis=1).ravel(), np.tile([-eta / scale, eta / scale], len(rows))
    touched = np.unique(np.concatenate([classes, truncated]))
    return Moves(classes, np.repeat(rows, 2), factors, touched, truncated, amounts / scale)
