"""The built-in base: stochastic gradient descent on the bucket classifiers of all repetitions at once.

    min_W  1/n sum_i loss(W, x_i, y_i) + l2/2 |W|^2                                                             (1)

loss: minus the log-probability of the row's bucket (softmax, one label per row), or the sum over the buckets of the
binary log-losses (sigmoid, any number of labels; a bucket is positive if one of its labels is).

The rate of row i is learning_rate / max(|x_i|^2, mean |x|^2), so that scaling X and bias changes nothing but the scale
of W, and no single row can throw W far; it falls linearly to zero. A row longer than the average so counts less in (1).
Rows are shuffled anew in every epoch; all repetitions see them in the same order, so one pass over a row serves all
that are trained together. Threads share the repetitions, not the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import csr_parts, csr_pattern, frozen
from longtail.methods.mach import softmax_kernels as kernels
from longtail.models import row_squares
from longtail.models.buckets import LinearBuckets
from longtail.models.hashing import Hashes

LINKS = {"softmax": kernels.SOFTMAX, "sigmoid": kernels.SIGMOID}
SCHEDULES = ("linear", "constant")
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
        run = _Run(self, X, Y, hashes, link)
        groups = [_Group(run, span) for span in _split(hashes.n_repetitions, parallel.n_threads(n_jobs))]
        for epoch in range(self.n_epochs):
            order = np.random.default_rng([self.seed, 1 << 32, epoch]).permutation(run.train_rows)
            for start in range(0, len(order), run.rows_per_call):
                rows = order[start : start + run.rows_per_call]
                done = epoch * len(order) + start
                _run_all(groups, n_jobs, _Group.train, rows, done)
                progress(done + len(rows), self.n_epochs * len(order))
            if self.early_stopping:
                _run_all(groups, n_jobs, _Group.look, epoch)
                if not any(group.active.any() for group in groups):
                    break
        _run_all(groups, n_jobs, _Group.finish)
        buckets = LinearBuckets.packed(
            run.W, run.features, X.shape[1], hashes.n_buckets, self.bias, link,
            weights=self.weights, prune=self.prune, scale=run.scale,
        )  # fmt: skip
        return buckets, np.concatenate([group.n_epochs for group in groups])


def _run_all(groups: list[_Group], n_jobs: int | None, task: Callable[..., None], *arguments: Any) -> None:
    n_threads = min(len(groups), parallel.n_threads(n_jobs))
    for _ in parallel.run(lambda group: task(group, *arguments), groups, n_threads):
        pass


def _split(n_repetitions: int, n_threads: int) -> list[range]:
    """As many groups of repetitions as threads; nothing but speed depends on it."""
    return parallel.ranges(n_repetitions, -(-n_repetitions // n_threads))


class _Run:
    """What all groups share: the rows, their rates, and the weights of the features that occur."""

    def __init__(self, descent: Descent, X: sp.csr_array, Y: sp.csr_array, hashes: Hashes, link: str) -> None:
        self.descent, self.hashes, self.link = descent, hashes, LINKS[link]
        used = np.unique(X.indices)
        self.features = np.append(used, X.shape[1])  # the bias comes last
        columns = np.searchsorted(used, X.indices)
        self.X = csr_parts(sp.csr_array((X.data, columns, X.indptr), shape=(X.shape[0], len(used))))
        self.Y = csr_pattern(Y)
        squares = row_squares(X)
        mean = squares.mean() or 1.0
        self.scale = float(np.sqrt(mean))
        self.row_rates = frozen(descent.learning_rate / np.maximum(squares, mean), np.float32)
        rows = np.random.default_rng([descent.seed, 1 << 33]).permutation(X.shape[0])
        held_out = math.ceil(descent.early_stopping * descent.validation_fraction * len(rows))
        self.held_out, self.train_rows = np.sort(rows[:held_out]), np.sort(rows[held_out:])
        self.W = np.zeros((len(self.features), hashes.n_repetitions * hashes.n_buckets), np.float32)
        work = self.W.shape[1] * (2 + 2 * X.nnz / max(X.shape[0], 1))
        self.rows_per_call = max(
            descent.batch_size, int(WORK_PER_CALL / work) // descent.batch_size * descent.batch_size
        )


class _Group:
    """Some repetitions, trained by one thread: where their columns of W are, and where each of them stands."""

    def __init__(self, run: _Run, span: range) -> None:
        B, size, descent = run.hashes.n_buckets, len(span), run.descent
        self.run, self.at, self.end = run, span.start * B, span.stop * B
        self.table = frozen(run.hashes.table[:, span.start : span.stop], run.hashes.dtype)
        self.scales, self.active = np.ones(size), np.ones(size)
        self.n_epochs = np.full(size, descent.n_epochs)
        bits = np.empty(size * B, np.int32)
        self.buffers = np.empty(size * B, np.float32), bits, bits.view(np.float32)
        self.g = np.empty((descent.batch_size, size * B), np.float32)
        self.best_hits, self.best_epoch = np.full(size, -1), np.zeros(size, np.int64)
        self.best = np.zeros((len(run.W) * descent.early_stopping, size * B), np.float32)

    def train(self, rows: np.ndarray, done: int) -> None:
        """Train on `rows`, `done` rows having gone before in all epochs."""
        run, descent = self.run, self.run.descent
        kernels.train(
            run.X, run.Y, self.table, frozen(rows, np.int64), run.row_rates, done,
            descent.n_epochs * len(run.train_rows), descent.schedule == "linear", frozen(self.active, np.float64),
            descent.l2, np.float32(descent.bias), run.link, run.hashes.n_buckets, descent.batch_size,
            run.W, self.at, self.scales, self.g, *self.buffers,
        )  # fmt: skip

    def look(self, epoch: int) -> None:
        """After an epoch: how good each repetition is on the held-out rows, and whether it stops."""
        run, B, hits = self.run, self.run.hashes.n_buckets, np.empty(len(self.scales), np.int64)
        self._absorb_scales()
        kernels.count_hits(
            run.X, run.Y, self.table, frozen(run.held_out, np.int64), np.float32(run.descent.bias), B, run.W, self.at,
            self.scales, self.g[0], hits,
        )  # fmt: skip
        for r in np.flatnonzero(self.active):
            if hits[r] > self.best_hits[r]:
                self.best_hits[r], self.best_epoch[r] = hits[r], epoch
                self.best[:, r * B : (r + 1) * B] = run.W[:, self.at + r * B : self.at + (r + 1) * B]
            elif epoch - self.best_epoch[r] >= run.descent.n_iter_no_change:
                self.active[r], self.n_epochs[r] = 0, epoch + 1

    def _absorb_scales(self) -> None:
        for r in np.flatnonzero(self.scales != 1):
            kernels.absorb(r, self.run.hashes.n_buckets, self.run.W, self.at, self.scales)

    def finish(self) -> None:
        """The weights to keep: those after the last epoch, or with early stopping those after the best one."""
        self._absorb_scales()
        if len(self.best):
            self.run.W[:, self.at : self.end] = self.best
