"""The built-in base: stochastic gradient descent on the bucket classifiers of several repetitions at once.

    min_W  1/n sum_i loss(W, x_i, y_i) + lam/2 |W|^2                                                            (1)

loss: minus the log-probability of the row's bucket (softmax, one label per row), or the sum over the buckets of the
binary log-losses (sigmoid, any number of labels; a bucket is positive if one of its labels is).

The first learning rate of row i, which decreases linearly to zero unless the schedule is "constant", is

    learning_rate / max(|x_i|^2, mean |x|^2)  min(1, sqrt(3 / max(m_i, mean m)))     m_i: labels of the row     (rate)

With this rate, scaling X and the bias changes only the scale of W. It also prevents large steps by single rows: the
error of a row with m labels has a length of about sqrt(m). Rows that are longer than average, or have more labels than
average, therefore count less in (1).

Rows are shuffled in every epoch. All repetitions use the same order, so each row is read once for all repetitions of a
group. One thread trains a group and packs its weights at the end. Only groups in training have float32 weights in
memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_pattern, frozen, row_parts
from longtail.errors import InputError
from longtail.matrix import row_squares
from longtail.methods.mach import softmax_kernels as kernels
from longtail.models.buckets import LinearBuckets
from longtail.models.hashing import Hashes

LINKS = {"softmax": kernels.SOFTMAX, "sigmoid": kernels.SIGMOID}
SCHEDULES = ("linear", "constant")
MANY_LABELS = 3.0  # rows with more labels than this make smaller steps
WORK_PER_CALL = 2e9  # multiplications between two reports of progress: about a second
ORDER_STREAM, HELD_OUT_STREAM = 1 << 32, 1 << 33  # random streams; the repetitions use smaller numbers


@dataclass(frozen=True)
class Descent:
    """The parameters of `Mach` that training needs."""

    learning_rate: float
    max_iter: int
    schedule: str
    batch_size: int
    lam: float
    bias: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    weights: str
    prune: float
    seed: int


class RatedRows(NamedTuple):
    """Rows, their labels and their learning rates, in the form that kernels take."""

    X: tuple[np.ndarray, np.ndarray, np.ndarray]  # data, indices, indptr; dense rows have no indices
    Y: tuple[np.ndarray, np.ndarray]
    rates: np.ndarray


class StepRule(NamedTuple):
    """The parameters of a step, in the form that kernels take."""

    total_rows: int  # rows of all epochs together
    falls: bool  # whether the learning rate falls linearly to zero
    lam: float
    bias: np.float32
    link: int
    n_buckets: int
    batch_size: int


class GroupWeights(NamedTuple):
    """Weights of some repetitions, in the form that kernels take. W of repetition r is scales[r] V."""

    V: np.ndarray  # (features in use and bias, repetitions times buckets)
    scales: np.ndarray  # (repetitions,)
    active: np.ndarray  # (repetitions,) 1, or 0 for a repetition that has stopped
    table: np.ndarray  # (labels, repetitions) buckets of the labels


class GroupBuffers(NamedTuple):
    """Working memory of a group. `powers` is the memory of `bits`, viewed as float32."""

    errors: np.ndarray  # (batch_size, repetitions times buckets)
    scratch: np.ndarray
    bits: np.ndarray
    powers: np.ndarray

    @classmethod
    def of(cls, batch_size: int, n_columns: int) -> GroupBuffers:
        bits = np.empty(n_columns, np.int32)
        errors = np.empty((batch_size, n_columns), np.float32)
        return cls(errors, np.empty(n_columns, np.float32), bits, bits.view(np.float32))


class DescentData:
    """The data that all groups share: the rows without unused features, their rates, and which rows are held out.

    Dense rows are used as they are, with all their features and without a copy.
    """

    def __init__(self, descent: Descent, X: sp.csr_array | np.ndarray, Y: sp.csr_array, link: str) -> None:
        self.descent = descent
        self.link = link
        self.n_features = X.shape[1]
        used = np.arange(X.shape[1]) if isinstance(X, np.ndarray) else np.unique(X.indices)
        self.features = np.append(used, X.shape[1])  # the bias comes last
        squares = row_squares(X)
        mean = squares.mean() or 1.0
        self.scale = float(np.sqrt(mean))
        self.rows = RatedRows(
            X=row_parts(_renumbered(X, used)),
            Y=csr_pattern(Y),
            rates=frozen(descent.learning_rate / np.maximum(squares, mean) * _damping(Y), np.float32),
        )
        largest = float(self.rows.rates.max(initial=0))
        if largest * descent.lam >= 1:
            raise InputError(
                f"lam {descent.lam:g} times the learning rate, {largest:g} for the shortest rows, must be below 1, "
                "because a step multiplies the weights by 1 minus this product; decrease one of them"
            )
        shuffled = np.random.default_rng([descent.seed, HELD_OUT_STREAM]).permutation(X.shape[0])
        n_held_out = math.ceil(descent.early_stopping * descent.validation_fraction * len(shuffled))
        self.held_out = frozen(np.sort(shuffled[:n_held_out]), np.int64)
        self.training = np.sort(shuffled[n_held_out:])

    def rule(self, n_buckets: int) -> StepRule:
        return StepRule(
            total_rows=self.descent.max_iter * len(self.training),
            falls=self.descent.schedule == "linear",
            lam=self.descent.lam,
            bias=np.float32(self.descent.bias),
            link=LINKS[self.link],
            n_buckets=n_buckets,
            batch_size=self.descent.batch_size,
        )

    def order(self, epoch: int) -> np.ndarray:
        """The training rows in the order of this epoch."""
        return np.random.default_rng([self.descent.seed, ORDER_STREAM, epoch]).permutation(self.training)

    def rows_per_call(self, n_columns: int) -> int:
        """Return the number of rows between two reports of progress, a multiple of the batch size."""
        n_rows = max(len(self.rows.X[2]) - 1, 1)
        work = n_columns * (2 + 2 * len(self.rows.X[0]) / n_rows)
        return max(1, int(WORK_PER_CALL / work) // self.descent.batch_size) * self.descent.batch_size


def _renumbered(X: sp.csr_array | np.ndarray, used: np.ndarray) -> sp.csr_array | np.ndarray:
    """X with the features `used` only. Dense rows keep all."""
    if isinstance(X, np.ndarray):
        return X
    columns = np.searchsorted(used, X.indices)
    return sp.csr_array((X.data, columns, X.indptr), shape=(X.shape[0], len(used)))


def _damping(Y: sp.csr_array) -> np.ndarray:
    """The second factor of (rate): rows with many labels make smaller steps."""
    n_labels = np.diff(Y.indptr).astype(np.float64)
    at_least_average = np.maximum(np.maximum(n_labels, n_labels.mean()), 1.0)
    return np.asarray(np.minimum(1.0, np.sqrt(MANY_LABELS / at_least_average)))


class RepetitionGroup:
    """Some repetitions that one thread trains together: their weights and their progress.

    n_iter, best_iter : number of epochs, and the epoch (from 1) whose weights were kept
    stopped : whether a repetition stopped early
    best_score : largest share of held-out rows whose best bucket was right; NaN without early stopping
    """

    def __init__(self, data: DescentData, hashes: Hashes, repetitions: np.ndarray) -> None:
        size = len(repetitions)
        n_columns = size * hashes.n_buckets
        self.data = data
        self.n_buckets = hashes.n_buckets
        self.rule = data.rule(hashes.n_buckets)
        self.weights = GroupWeights(
            V=np.zeros((len(data.features), n_columns), np.float32),
            scales=np.ones(size),
            active=np.ones(size),
            table=frozen(hashes.table[:, repetitions], hashes.dtype),
        )
        self.buffers = GroupBuffers.of(data.descent.batch_size, n_columns)
        self.n_iter = np.full(size, data.descent.max_iter)
        self.best_iter = self.n_iter.copy()
        self.best_score = np.full(size, np.nan)
        self.best_V = np.zeros_like(self.weights.V) if data.descent.early_stopping else None

    @property
    def stopped(self) -> np.ndarray:
        return self.n_iter < self.data.descent.max_iter

    def fit(self, report: Callable[[float], None] = lambda share: None) -> None:
        """Train all epochs. `report` receives the share of the rows that is done."""
        rows_per_call = self.data.rows_per_call(self.weights.V.shape[1])
        for epoch in range(self.data.descent.max_iter):
            order = frozen(self.data.order(epoch), np.int64)
            before = epoch * len(order)
            for start in range(0, len(order), rows_per_call):
                rows = order[start : start + rows_per_call]
                kernels.train(self.data.rows, self.rule, self.weights, self.buffers, rows, before + start)
                report((before + start + len(rows)) / self.rule.total_rows)
            if self.data.descent.early_stopping:
                self._compare(epoch + 1)
                if self.stopped.all():
                    return

    def _compare(self, epoch: int) -> None:
        """Called after an epoch. Keep the weights of each repetition that improved, and stop each repetition that has
        not improved for `n_iter_no_change` epochs."""
        assert self.best_V is not None
        hits = np.empty(len(self.n_iter), np.int64)
        self._absorb_scales()
        kernels.count_hits(self.data.rows, self.rule, self.weights, self.data.held_out, self.buffers.errors[0], hits)
        scores = hits / max(len(self.data.held_out), 1)
        for r in np.flatnonzero(self.weights.active):
            if not scores[r] <= self.best_score[r]:  # also true after the first epoch
                own = slice(r * self.n_buckets, (r + 1) * self.n_buckets)
                self.best_score[r] = scores[r]
                self.best_iter[r] = epoch
                self.best_V[:, own] = self.weights.V[:, own]
            elif epoch - self.best_iter[r] >= self.data.descent.n_iter_no_change:
                self.weights.active[r] = 0
                self.n_iter[r] = epoch

    def _absorb_scales(self) -> None:
        for r in np.flatnonzero(self.weights.scales != 1):
            kernels.absorb(r, self.n_buckets, self.weights.V, self.weights.scales)

    def packed(self) -> LinearBuckets:
        """The weights after the last epoch, or with early stopping after the best one."""
        self._absorb_scales()
        descent = self.data.descent
        return LinearBuckets.packed(
            self.weights.V if self.best_V is None else self.best_V,
            self.data.features,
            self.data.n_features,
            self.n_buckets,
            descent.bias,
            self.data.link,
            weights=descent.weights,
            prune=descent.prune,
            scale=self.data.scale,
        )
