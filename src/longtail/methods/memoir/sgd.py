"""Stochastic training of the Crammer-Singer machine against rivals from an oracle: Algorithms 1 (l2) and 2 (l1).

    min_W  lam/2 |W|_F^2  (or lam/2 |W|_1)  +  1/n sum_i max(0, 1 + max_{r != y_i} x_i.w_r - x_i.w_{y_i})     (10), (11)

Batch t has three parts:

    1. The oracle finds the rival r_j of each row x_j of the batch. The weights do not change meanwhile.
    2. Row by row, if 1 + x_j.(w_r - w_y) > 0 with the current weights: w_r -= eta_t x_j and w_y += eta_t x_j.
    3. The penalty. For l2, W is multiplied by 1 - lam eta_t before the batch, and is projected on the ball
       |W|_F <= 1 / sqrt(lam) after it; both change only the common scale. For l1, the weights of all classes R_t that
       occurred as y_j or r_j are truncated by (C / |R_t|) lam eta_t: eq. (13). Truncation reads all weights of these
       classes. It may therefore be postponed until a class has been in R_t several times, and is then done in one step.

Symbols: C classes, eta_t learning rate of batch t, lam lambda, R_t `touched`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from longtail.methods.memoir.oracles import Moves, Oracle
from longtail.methods.memoir.schedules import Schedule
from longtail.methods.memoir.weights import CsrRows


@dataclass(frozen=True)
class Batches:
    """How many batches there are, their size and their learning rates."""

    n_batches: int
    size: int
    learning_rate: float
    schedule: Schedule

    def rate(self, t: int) -> float:
        """The learning rate of batch t, which counts from 0."""
        return self.schedule.rate(self.learning_rate, t, self.n_batches)

    def n_passes(self, n_batches: int, n_pairs: int) -> int:
        """Return the number of the pass (from 1) in which the last of `n_batches` batches begins, or 0 if there are
        none."""
        return (n_batches - 1) * self.size // n_pairs + 1 if n_batches else 0


@dataclass(frozen=True)
class Penalty:
    """l1 or l2 penalty of weight `lam`.

    project : project on the ball of radius 1 / sqrt(lam) after every batch (l2)
    every : a class is truncated every this many times that a batch changes it (l1)
    """

    lam: float
    l1: bool
    project: bool
    every: int = 1


@dataclass(frozen=True)
class Pairs:
    """The training pairs: row rows[k] of X has the label targets[k]. A row with several labels is in several pairs."""

    X: CsrRows
    rows: np.ndarray
    targets: np.ndarray


def draw_batches(n_pairs: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield batches of pair numbers without end. Each pass has its own random order. A batch may span two passes."""
    random = np.random.default_rng(seed)
    left = np.empty(0, np.int64)
    while True:
        while len(left) < size:
            left = np.concatenate([left, random.permutation(n_pairs)])
        yield left[:size]
        left = left[size:]


def train(
    oracle: Oracle,
    pairs: Pairs,
    batches: Batches,
    penalty: Penalty,
    seed: int,
    first: int = 0,
    between: Callable[[int], None] = lambda t: None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Train the class vectors of the oracle, from batch `first` on.

    Yields the pair numbers of each batch and their rivals, before the weights change. `between(t)` is called before
    each batch t, when batch t - 1 is complete.
    """
    vectors = oracle.vectors
    drawn = islice(draw_batches(len(pairs.rows), batches.size, seed), first, None)
    for t in range(first, batches.n_batches):
        between(t)
        chosen, rate = next(drawn), batches.rate(t)
        if not penalty.l1 and penalty.lam:
            _shrink(oracle, 1.0 - penalty.lam * rate)
        rows, targets = pairs.rows[chosen], pairs.targets[chosen]
        rivals = oracle.query(rows, targets)
        yield chosen, rivals
        moved = vectors.step(pairs.X, rows, targets, rivals, rate)
        truncated, amounts = np.empty(0, np.int64), np.empty(0)
        if penalty.l1 and penalty.lam:
            touched = np.unique(np.concatenate([targets, rivals[rivals >= 0]]))
            amount = vectors.shape[0] / len(touched) * penalty.lam * rate
            truncated, amounts = vectors.truncate(touched, amount, penalty.every)
        if oracle.needs_moves:
            step = rate / vectors.scale
            oracle.update(
                moves_of(rows[moved], targets[moved], rivals[moved], step, truncated, amounts / vectors.scale)
            )
        if penalty.project and penalty.lam and not penalty.l1:
            radius = 1.0 / np.sqrt(penalty.lam)
            if vectors.norm > radius:
                _shrink(oracle, radius / vectors.norm)


def _shrink(oracle: Oracle, factor: float) -> None:
    stored = oracle.vectors.shrink(factor)
    if stored != 1.0:
        oracle.rescale(stored)


def moves_of(
    rows: np.ndarray,
    targets: np.ndarray,
    rivals: np.ndarray,
    step: float,
    truncated: np.ndarray,
    amounts: np.ndarray,
) -> Moves:
    """Return the changes of a batch, in the order of the pairs: rivals move away from their rows, targets towards
    them."""
    classes = np.stack([rivals, targets], axis=1).ravel()
    factors = np.tile([-step, step], len(rows))
    touched = np.unique(np.concatenate([classes, truncated]))
    return Moves(classes, np.repeat(rows, 2), factors, touched, truncated, amounts)
