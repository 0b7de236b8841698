"""The built-in base: stochastic gradient descent on the bucket classifiers of all repetitions at once.

    min_W  1/n sum_i loss(W, x_i, y_i) + l2/2 |W|^2                                                             (1)

loss: minus the log-probability of the row's bucket (softmax, one label per row), or the sum over the buckets of the
binary log-losses (sigmoid, any number of labels; a bucket is positive if one of its labels is).

The rate of row i, which falls linearly to zero, is

    learning_rate / max(|x_i|^2, mean |x|^2)  min(1, sqrt(3 / max(m_i, mean m)))     m_i: the labels of the row   (rate)

Scaling X and bias so changes nothing but the scale of W, and no single row can throw W far: the error of a row with m
labels has a length of about sqrt(m). Rows longer than the average, or with more labels, so count less in (1).
Rows are shuffled anew in every epoch; all repetitions see them in the same order, so one pass over a row serves all
that are trained together. Threads share the repetitions, not the rows; each trains a few repetitions at a time and
packs them before the next, so that no more weights than theirs are in memory as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import csr_parts, csr_pattern, frozen
from longtail.errors import InputError
from longtail.matrix import row_squares
from longtail.methods.mach import softmax_kernels as kernels
from longtail.models.buckets import LinearBuckets
from longtail.models.hashing import Hashes

LINKS = {"softmax": kernels.SOFTMAX, "sigmoid": kernels.SIGMOID}
SCHEDULES = ("linear", "constant")
COLUMNS_TOGETHER = 1024  # buckets that a thread trains at a time: with fewer it is slower, with more not faster
MANY_LABELS = 3.0  # the labels of a row from which on its steps are made smaller
WORK_PER_CALL = 2e9  # multiplications between looks at progress and Ctrl-C: about a second


@dataclass(frozen=True)
class Descent:
    """Parameters of the training, as Mach has them."""

    learning_rate: float
    n_epochs: int
    schedule: str
    batch_size: int
    l2: float
    bias: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    weights: str
    prune: float
    seed: int

    def fit(
        self, X: sp.csr_array, Y: sp.csr_array, hashes: Hashes, link: str, n_jobs: int | None,
        progress: Callable[[int, int], None],
    ) -> tuple[LinearBuckets, np.ndarray]:  # fmt: skip
        """The packed weights of all repetitions, and how many epochs each was trained."""
        run, parts, epochs = _Run(self, X, Y, hashes, link), [], []
        with parallel.Team(n_jobs) as team:
            rounds = split_rounds(hashes.n_repetitions, hashes.n_buckets, team.size)
            for number, spans in enumerate(rounds):
                groups = [_Group(run, span) for span in spans]
                for done in self._epochs(run, groups, team):
                    progress(number * run.rows_in_all + done, len(rounds) * run.rows_in_all)
                parts += team.run(_Group.packed, groups)
                epochs += [group.n_epochs for group in groups]
                del groups  # and their weights, before there are others
        return LinearBuckets.joined(parts), np.concatenate(epochs)

    def _epochs(self, run: _Run, groups: list[_Group], team: parallel.Team) -> Iterator[int]:
        """Train the groups of a round; yields how many rows they have seen, now and then."""
        rows_per_call = run.rows_per_call(groups)
        for epoch in range(self.n_epochs):
            order = np.random.default_rng([self.seed, 1 << 32, epoch]).permutation(run.train_rows)
            for start in range(0, len(order), rows_per_call):
                rows, done = order[start : start + rows_per_call], epoch * len(order) + start
                team.run(partial(_Group.train, rows=rows, done=done), groups)
                yield done + len(rows)
            if self.early_stopping:
                team.run(partial(_Group.look, epoch=epoch), groups)
                if not any(group.active.any() for group in groups):
                    return


def repetitions_together(n_buckets: int) -> int:
    """How many repetitions a thread trains in one pass over the rows: as few as fill long vectors."""
    return max(1, COLUMNS_TOGETHER // n_buckets)


def split_rounds(n_repetitions: int, n_buckets: int, n_threads: int) -> list[list[range]]:
    """Groups of repetitions, a thread to each group of a round; nothing but speed and memory depends on it."""
    n_rounds = -(-n_repetitions // (n_threads * repetitions_together(n_buckets)))
    n_groups = min(n_repetitions, n_rounds * n_threads)
    bounds = [n_repetitions * number // n_groups for number in range(n_groups + 1)]
    groups = [range(*pair) for pair in pairwise(bounds)]
    return [groups[start : start + n_threads] for start in range(0, n_groups, n_threads)]


class _Run:
    """What all groups share: the rows, without the features that do not occur, and their rates."""

    def __init__(self, descent: Descent, X: sp.csr_array, Y: sp.csr_array, hashes: Hashes, link: str) -> None:
        self.descent, self.hashes, self.link, self.n_features = descent, hashes, link, X.shape[1]
        used = np.unique(X.indices)
        self.features = np.append(used, X.shape[1])  # the bias comes last
        columns = np.searchsorted(used, X.indices)
        self.X = csr_parts(sp.csr_array((X.data, columns, X.indptr), shape=(X.shape[0], len(used))))
        self.Y = csr_pattern(Y)
        squares = row_squares(X)
        mean = squares.mean() or 1.0
        self.scale = float(np.sqrt(mean))
        self.row_rates = frozen(descent.learning_rate / np.maximum(squares, mean) * _damping(Y), np.float32)
        if (largest := float(self.row_rates.max(initial=0))) * descent.l2 >= 1:
            raise InputError(
                f"l2 {descent.l2:g} times the learning rate, {largest:g} for the shortest rows, must be below 1, as "
                "a step multiplies the weights by 1 minus that; decrease one of them"
            )
        rows = np.random.default_rng([descent.seed, 1 << 33]).permutation(X.shape[0])
        held_out = math.ceil(descent.early_stopping * descent.validation_fraction * len(rows))
        self.held_out, self.train_rows = np.sort(rows[:held_out]), np.sort(rows[held_out:])
        self.rows_in_all = descent.n_epochs * len(self.train_rows)

    def rows_per_call(self, groups: list[_Group]) -> int:
        """Rows between looks at progress and Ctrl-C: whole batches."""
        n, batch_size = max(len(self.X[2]) - 1, 1), self.descent.batch_size
        work = max(group.W.shape[1] for group in groups) * (2 + 2 * len(self.X[1]) / n)
        return max(1, int(WORK_PER_CALL / work) // batch_size) * batch_size


def _damping(Y: sp.csr_array) -> np.ndarray:
    """How much smaller the steps of rows with many labels are: the second factor of (rate)."""
    n_labels = np.diff(Y.indptr).astype(np.float64)
    return np.minimum(1.0, np.sqrt(MANY_LABELS / np.maximum(np.maximum(n_labels, n_labels.mean()), 1.0)))


class _Group:
    """Some repetitions, trained by one thread: their weights, and where each of them stands."""

    def __init__(self, run: _Run, span: range) -> None:
        B, size, descent = run.hashes.n_buckets, len(span), run.descent
        self.run, self.W = run, np.zeros((len(run.features), size * B), np.float32)
        self.table = frozen(run.hashes.table[:, span.start : span.stop], run.hashes.dtype)
        self.scales, self.active = np.ones(size), np.ones(size)
        self.n_epochs = np.full(size, descent.n_epochs)
        bits = np.empty(size * B, np.int32)
        self.buffers = np.empty(size * B, np.float32), bits, bits.view(np.float32)
        self.g = np.empty((descent.batch_size, size * B), np.float32)
        self.best_hits, self.best_epoch = np.full(size, -1), np.zeros(size, np.int64)
        self.best = np.zeros((len(self.W) * descent.early_stopping, size * B), np.float32)

    def train(self, rows: np.ndarray, done: int) -> None:
        """Train on `rows`, `done` rows having gone before in all epochs."""
        run, descent = self.run, self.run.descent
        kernels.train(
            run.X, run.Y, self.table, frozen(rows, np.int64), run.row_rates, done, run.rows_in_all,
            descent.schedule == "linear", frozen(self.active, np.float64), descent.l2, np.float32(descent.bias),
            LINKS[run.link], run.hashes.n_buckets, descent.batch_size, self.W, self.scales, self.g, *self.buffers,
        )  # fmt: skip

    def look(self, epoch: int) -> None:
        """After an epoch: how good each repetition is on the held-out rows, and whether it stops."""
        run, B, hits = self.run, self.run.hashes.n_buckets, np.empty(len(self.scales), np.int64)
        self._absorb_scales()
        kernels.count_hits(
            run.X, run.Y, self.table, frozen(run.held_out, np.int64), np.float32(run.descent.bias), B, self.W,
            self.scales, self.g[0], hits,
        )  # fmt: skip
        for r in np.flatnonzero(self.active):
            if hits[r] > self.best_hits[r]:
                self.best_hits[r], self.best_epoch[r] = hits[r], epoch
                self.best[:, r * B : (r + 1) * B] = self.W[:, r * B : (r + 1) * B]
            elif epoch - self.best_epoch[r] >= run.descent.n_iter_no_change:
                self.active[r], self.n_epochs[r] = 0, epoch + 1

    def _absorb_scales(self) -> None:
        for r in np.flatnonzero(self.scales != 1):
            kernels.absorb(r, self.run.hashes.n_buckets, self.W, self.scales)

    def packed(self) -> LinearBuckets:
        """The weights to keep: those after the last epoch, or with early stopping those after the best one."""
        self._absorb_scales()
        run, descent = self.run, self.run.descent
        return LinearBuckets.packed(
            self.best if len(self.best) else self.W, run.features, run.n_features, run.hashes.n_buckets,
            descent.bias, run.link, weights=descent.weights, prune=descent.prune, scale=run.scale,
        )  # fmt: skip
