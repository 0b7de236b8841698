"""Stochastic training of the Crammer-Singer machine against rivals from an oracle: Algorithms 1 (l2) and 2 (l1).

    min_W  lam/2 |W|_F^2  (or lam/2 |W|_1)  +  1/n sum_i max(0, 1 - m_i / rho)                               (10), (11)
    m_i = x_i.w_{y_i} - max_{r != y_i} x_i.w_r                                                               (1)

Batch t has three parts:

    1. The oracle finds the rival r_j of each row x_j. Algorithms 1 and 2 do this row by row, with the weights after the
       steps of all rows before it. That is `refresh` = 1. With a larger `refresh`, several rows are searched together,
       with the same weights and in threads; 0 means all rows of the batch.
    2. Row by row, if rho + x_j.(w_r - w_y) > 0 with the current weights: w_r -= (eta_t / rho) x_j and
       w_y += (eta_t / rho) x_j.
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
from typing import NamedTuple

import numpy as np

from longtail.methods.memoir.average import Average
from longtail.methods.memoir.oracles import Moves, Oracle
from longtail.methods.memoir.schedules import Schedule
from longtail.methods.memoir.weights import ClassVectors, CsrRows

NO_CLASSES = np.empty(0, np.int64)
NO_AMOUNTS = np.empty(0)
NO_MOVES = Moves(NO_CLASSES, NO_CLASSES, NO_AMOUNTS, NO_CLASSES, NO_CLASSES, NO_AMOUNTS)


@dataclass(frozen=True)
class Batches:
    """How many batches there are, their size and their learning rates.

    n_before, n_planned : the learning rates are those of `n_planned` batches (`n_batches` if it is 0), after the first
        `n_before` of them
    """

    n_batches: int
    size: int
    learning_rate: float
    schedule: Schedule
    refresh: int = 0  # rows whose rivals are found with the same weights; 0: all rows of a batch
    n_before: int = 0
    n_planned: int = 0

    @property
    def n_parts(self) -> int:
        """How often the rivals of a batch are searched."""
        return -(-self.size // self.refresh) if self.refresh else 1

    def parts(self, chosen: np.ndarray) -> list[np.ndarray]:
        """Divide a batch into the pairs that are searched together."""
        return np.split(chosen, range(self.refresh, len(chosen), self.refresh)) if self.refresh else [chosen]

    def rate(self, t: int) -> float:
        """The learning rate of batch t, which counts from 0."""
        return self.schedule.rate(self.learning_rate, self.n_before + t, self.n_planned or self.n_batches)

    def n_passes(self, n_batches: int, n_pairs: int) -> int:
        """Return the number of the pass (from 1) in which the last of `n_batches` batches begins, or 0 if there are
        none."""
        return (n_batches - 1) * self.size // n_pairs + 1 if n_batches else 0


@dataclass(frozen=True)
class Penalty:
    """l1 or l2 penalty of weight `lam`, and the margin rho of the hinge.

    project : project on the ball of radius 1 / sqrt(lam) after every batch (l2)
    every : a class is truncated every this many times that a batch changes it (l1)
    """

    lam: float
    l1: bool
    project: bool
    every: int = 1
    rho: float = 1.0


class Query(NamedTuple):
    """Rivals that the oracle has found, before the steps against them."""

    batch: int
    part: int  # which search of the batch
    pairs: np.ndarray
    rivals: np.ndarray


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
    average: Average | None = None,
) -> Iterator[Query]:
    """Train the class vectors of the oracle, from batch `first` on.

    Yields each query of the oracle, before the weights change. `between(t)` is called before each batch t, when batch
    t - 1 is complete. `average` is told all changes.
    """
    vectors = oracle.vectors
    drawn = islice(draw_batches(len(pairs.rows), batches.size, seed), first, None)
    for t in range(first, batches.n_batches):
        between(t)
        rate = batches.rate(t)
        if not penalty.l1 and penalty.lam:
            _shrink(oracle, average, 1.0 - penalty.lam * rate)
        touched = np.zeros(vectors.shape[0], np.bool_)
        parts = batches.parts(next(drawn))
        for number, chosen in enumerate(parts):
            rows, targets = pairs.rows[chosen], pairs.targets[chosen]
            rivals = oracle.query(rows, targets)
            yield Query(t, number, chosen, rivals)
            moved = vectors.step(pairs.X, rows, targets, rivals, rate / penalty.rho, penalty.rho)
            moves = NO_MOVES
            if moved.any() and (oracle.needs_moves or average is not None):
                step = rate / penalty.rho / vectors.scale
                moves = moves_of(rows[moved], targets[moved], rivals[moved], step)
            if average is not None:
                average.add_moves(pairs.X, moves)
            if penalty.l1 and penalty.lam:
                touched[targets] = True
                touched[rivals[rivals >= 0]] = True
                if number == len(parts) - 1:
                    moves = _truncate(vectors, average, np.flatnonzero(touched), penalty, rate, moves)
            if oracle.needs_moves and len(moves.touched):
                oracle.update(moves)
        if penalty.project and penalty.lam and not penalty.l1:
            radius = 1.0 / np.sqrt(penalty.lam)
            if vectors.norm > radius:
                _shrink(oracle, average, radius / vectors.norm)
        if average is not None:
            average.end_batch()


def _truncate(
    vectors: ClassVectors, average: Average | None, touched: np.ndarray, penalty: Penalty, rate: float, moves: Moves
) -> Moves:
    """Truncate the classes that are due, eq. (13), and return the moves with this change."""
    due, amounts = vectors.due(touched, vectors.shape[0] / len(touched) * penalty.lam * rate, penalty.every)
    if average is not None:
        average.settle(due)
    vectors.truncate(due, amounts)
    every = np.union1d(moves.touched, due)
    return moves._replace(touched=every, truncated=due, amounts=amounts / vectors.scale)


def _shrink(oracle: Oracle, average: Average | None, factor: float) -> None:
    stored = oracle.vectors.shrink(factor)
    if stored != 1.0:
        oracle.rescale(stored)
        if average is not None:
            average.rescale(stored)


def moves_of(rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray, step: float) -> Moves:
    """Return the changes by these steps, in the order of the pairs: rivals move away from their rows, targets towards
    them."""
    classes = np.stack([rivals, targets], axis=1).ravel()
    factors = np.tile([-step, step], len(rows))
    return Moves(classes, np.repeat(rows, 2), factors, np.unique(classes), NO_CLASSES, NO_AMOUNTS)
