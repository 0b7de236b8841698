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
group. A group is trained and then packed. Only groups in training have float32 weights in memory.

If there are more threads than groups, several threads train a group, each some of its columns: whole repetitions or,
with sigmoids, ranges of buckets. The buckets of a softmax cannot be divided. Each row changes the weights of all
buckets, and the change needs the sum over all buckets of the repetition. Two threads would have to wait for each other
twice per row, which takes about as long as the work itself.

An update that touches few buckets trains only these (touched.py). Any other update begins with the weights of the old
model. The first epochs visit only the rows that changed, and the last LAST_EPOCHS visit all rows. The learning rates
are those of the same epochs of a fit: large while new labels are learned, and small when the buckets of all labels are
adjusted to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_pattern, frozen, row_parts
from longtail.errors import InputError
from longtail.hybrid import HybridRows, squares
from longtail.methods.mach import softmax_kernels as kernels
from longtail.methods.mach.touched import BucketTable
from longtail.models.buckets import LinearBuckets
from longtail.models.hashing import Hashes
from longtail.parallel import Team

LINKS = {"softmax": kernels.SOFTMAX, "sigmoid": kernels.SIGMOID}
SCHEDULES = ("linear", "constant")
MANY_LABELS = 3.0  # rows with more labels than this make smaller steps
LAST_EPOCHS = 2  # of an update; after one, the labels that did not change are less accurate than after a fit
LOADED_FEATURES = 1024  # features whose old weights are unpacked at a time
WORK_PER_CALL = 2e9  # multiplications between two reports of progress: about a second
MIN_BUCKETS = 64  # fewer buckets of a repetition are not worth a thread
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
    """Weights of some repetitions, in the form that kernels take. W of repetition r is scales[r] V.

    V has all buckets of these repetitions, or the same range of buckets of each.
    """

    V: np.ndarray  # (features in use and bias, repetitions times buckets)
    scales: np.ndarray  # (repetitions,)
    active: np.ndarray  # (repetitions,) 1, or 0 for a repetition that has stopped
    table: np.ndarray  # (labels, repetitions) buckets of the labels
    first: int = 0  # the first bucket that V has of every repetition


class DenseBlock(NamedTuple):
    """The dense features of the rows and their weights, in the form that kernels take."""

    rows: np.ndarray  # (rows, n_dense)
    tiles: np.ndarray  # (tiles, n_dense, TILE) the columns of V, in tiles; unused columns are zero
    g: np.ndarray  # (tiles TILE,) what a step adds for a feature of value 1
    out: np.ndarray  # (tiles TILE,) the products of a row

    @classmethod
    def of(cls, rows: np.ndarray, n_columns: int) -> DenseBlock:
        n_tiles = -(-n_columns // kernels.TILE)
        zeros = [np.zeros(n_tiles * kernels.TILE, np.float32) for _ in range(2)]
        return cls(rows, np.zeros((n_tiles, rows.shape[1], kernels.TILE), np.float32), *zeros)

    def lines(self, n_columns: int) -> np.ndarray:
        """The weights as lines of V."""
        return self.tiles.transpose(1, 0, 2).reshape(self.tiles.shape[1], -1)[:, :n_columns]


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

    Dense rows, and the dense part of HybridRows, are used as they are, with all their features and without a copy.
    changed : boolean, one per row: the rows that an update visits first. Without it, every epoch visits all rows

    dense : the dense part of the rows, or None
    dense_lines : the lines of V that belong to it
    """

    def __init__(
        self,
        descent: Descent,
        X: sp.csr_array | np.ndarray | HybridRows,
        Y: sp.csr_array,
        link: str,
        changed: np.ndarray | None = None,
    ) -> None:
        self.descent = descent
        self.link = link
        self.n_features = X.shape[1]
        sparse = X.sparse if isinstance(X, HybridRows) else X
        used = np.arange(X.shape[1]) if isinstance(sparse, np.ndarray) else np.unique(sparse.indices)
        self.dense: np.ndarray | None = None
        if isinstance(X, HybridRows):
            used = np.union1d(used, X.columns)
            self.dense = frozen(X.dense, np.float32)
            self.dense_lines = np.searchsorted(used, X.columns)
        self.features = np.append(used, X.shape[1])  # the bias comes last
        lengths = squares(X)
        mean = lengths.mean() or 1.0
        self.scale = float(np.sqrt(mean))
        self.rows = RatedRows(
            X=row_parts(_renumbered(sparse, used)),
            Y=csr_pattern(Y),
            rates=frozen(descent.learning_rate / np.maximum(lengths, mean) * _damping(Y), np.float32),
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
        self.first_rows = self.training if changed is None else self.training[changed[self.training]]

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

    def rows_of(self, epoch: int) -> np.ndarray:
        """The rows that this epoch visits, in increasing order."""
        return self.training if epoch >= self.descent.max_iter - LAST_EPOCHS else self.first_rows

    def order(self, epoch: int) -> np.ndarray:
        """The rows of this epoch, in its order."""
        return np.random.default_rng([self.descent.seed, ORDER_STREAM, epoch]).permutation(self.rows_of(epoch))

    def rows_per_call(self, n_columns: int) -> int:
        """Return the number of rows between two reports of progress, a multiple of the batch size."""
        n_rows = max(len(self.rows.X[2]) - 1, 1)
        n_dense = 0 if self.dense is None else self.dense.shape[1]
        work = n_columns * (2 + 2 * len(self.rows.X[0]) / n_rows + 2 * n_dense)
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


def thread_shares(n_repetitions: int, n_buckets: int, link: str, n_threads: int) -> list[tuple[range, range]]:
    """Divide the columns of a group among threads: pairs of some of its repetitions and some of their buckets."""
    pieces = min(n_threads, n_repetitions)
    cuts = [n_repetitions * piece // pieces for piece in range(pieces + 1)]
    if link == "softmax" or n_threads <= n_repetitions:
        return [(range(*pair), range(n_buckets)) for pair in pairwise(cuts)]
    width = max(MIN_BUCKETS, -(-n_buckets // -(-n_threads // n_repetitions)))
    buckets = [range(first, min(first + width, n_buckets)) for first in range(0, n_buckets, width)]
    return [(range(r, r + 1), some) for r in range(n_repetitions) for some in buckets]


class ColumnPiece:
    """Some columns of a group, which one thread trains: some buckets of some of its repetitions."""

    def __init__(self, data: DescentData, table: np.ndarray, repetitions: range, buckets: range) -> None:
        self.data = data
        self.repetitions = repetitions
        self.buckets = buckets
        size = len(repetitions)
        n_columns = size * len(buckets)
        self.rule = data.rule(len(buckets))
        self.weights = GroupWeights(
            V=np.zeros((len(data.features), n_columns), np.float32),
            scales=np.ones(size),
            active=np.ones(size),
            table=frozen(table[:, repetitions.start : repetitions.stop], table.dtype),
            first=buckets.start,
        )
        self.dense = None if data.dense is None else DenseBlock.of(data.dense, n_columns)
        self.buffers = GroupBuffers.of(data.descent.batch_size, n_columns)
        self.best_V = np.zeros_like(self.weights.V) if data.descent.early_stopping else None

    def train(self, rows: np.ndarray, done: int, total: int | None = None) -> None:
        """Make a step for each of these rows, after `done` of `total` rows. By default, epochs visit all rows."""
        rule = self.rule if total is None else self.rule._replace(total_rows=total)
        if self.dense is None:
            kernels.train(self.data.rows, rule, self.weights, self.buffers, rows, done)
        else:
            kernels.train_hybrid(self.data.rows, self.dense, rule, self.weights, self.buffers, rows, done)

    def best_buckets(self) -> tuple[np.ndarray, np.ndarray]:
        """The highest logit of each held-out row and repetition, and its bucket."""
        shape = (len(self.data.held_out), len(self.repetitions))
        best = np.empty(shape, np.float32), np.empty(shape, np.int64)
        kernels.best_buckets(self.data.rows, self.rule, self.weights, self.data.held_out, self.buffers.errors[0], *best)
        return best

    def columns(self, repetition: int) -> slice:
        """The columns of a repetition, given its number in the group."""
        at, width = repetition - self.repetitions.start, len(self.buckets)
        return slice(at * width, (at + 1) * width)

    def absorb_scales(self) -> None:
        """Make V the weights themselves, those of dense features too."""
        for r in np.flatnonzero(self.weights.scales != 1):
            if self.dense is not None:
                kernels.absorb_dense(r, len(self.buckets), self.dense, np.float32(self.weights.scales[r]))
            kernels.absorb(r, len(self.buckets), self.weights.V, self.weights.scales)
        if self.dense is not None:
            self.weights.V[self.data.dense_lines] = self.dense.lines(self.weights.V.shape[1])


class RepetitionGroup:
    """Some repetitions that are trained together: their weights and their progress.

    n_iter, best_iter : number of epochs, and the epoch (from 1) whose weights were kept
    stopped : whether a repetition stopped early
    best_score : largest share of held-out rows whose best bucket was right; NaN without early stopping
    """

    def __init__(
        self, data: DescentData, hashes: Hashes | BucketTable, repetitions: np.ndarray, n_threads: int = 1
    ) -> None:
        size = len(repetitions)
        self.data = data
        self.n_buckets = hashes.n_buckets
        self.table = frozen(hashes.table[:, repetitions], hashes.dtype)
        shares = thread_shares(size, hashes.n_buckets, data.link, n_threads)
        self.pieces = [ColumnPiece(data, self.table, *share) for share in shares]
        self.n_iter = np.full(size, data.descent.max_iter)
        self.best_iter = self.n_iter.copy()
        self.best_score = np.full(size, np.nan)

    def begin_with(self, old: LinearBuckets, repetitions: np.ndarray) -> None:
        """Take the weights of these repetitions from an old model. Buckets that it does not have stay at zero."""
        for start in range(0, len(self.data.features), LOADED_FEATURES):
            chunk = slice(start, start + LOADED_FEATURES)
            codes = old.matrix[self.data.features[chunk]].toarray()
            for piece in self.pieces:
                for r in piece.repetitions:
                    own, step = repetitions[r] * old.n_buckets, old.steps[repetitions[r]]
                    there = range(piece.buckets.start, min(piece.buckets.stop, old.n_buckets))
                    into = piece.columns(r).start
                    np.multiply(
                        codes[:, own + there.start : own + there.stop], step,
                        out=piece.weights.V[chunk, into : into + len(there)],
                    )  # fmt: skip

    def take(self, other: RepetitionGroup, buckets: list[np.ndarray]) -> None:
        """Replace some buckets of each repetition by the first ones of another group, which is given up."""
        (piece,) = self.pieces
        other._absorb_scales()
        V = other._joined()
        for r, own in enumerate(buckets):
            first = r * other.n_buckets
            piece.weights.V[:, r * self.n_buckets + own] = V[:, first : first + len(own)]

    @property
    def stopped(self) -> np.ndarray:
        return self.n_iter < self.data.descent.max_iter

    def fit(self, team: Team, report: Callable[[float], None] = lambda share: None) -> None:
        """Train all epochs on the threads of the team. `report` receives the share of the rows that is done."""
        descent = self.data.descent
        rows_per_call = self.data.rows_per_call(len(self.n_iter) * self.n_buckets)
        visits = np.cumsum([0, *(len(self.data.rows_of(epoch)) for epoch in range(descent.max_iter))])
        for epoch in range(descent.max_iter):
            order = frozen(self.data.order(epoch), np.int64)
            before, total = epoch * len(order), descent.max_iter * len(order)
            for start in range(0, len(order), rows_per_call):
                rows = order[start : start + rows_per_call]
                team.run(partial(ColumnPiece.train, rows=rows, done=before + start, total=total), self.pieces)
                report((visits[epoch] + start + len(rows)) / visits[-1])
            if descent.early_stopping:
                self._compare(epoch + 1, team)
                if self.stopped.all():
                    return

    def _compare(self, epoch: int, team: Team) -> None:
        """Called after an epoch. Keep the weights of each repetition that improved, and stop each repetition that has
        not improved for `n_iter_no_change` epochs."""
        scores = self._scores(team)
        for r in np.flatnonzero(~self.stopped).tolist():
            own = [piece for piece in self.pieces if r in piece.repetitions]
            if not scores[r] <= self.best_score[r]:  # also true after the first epoch
                self.best_score[r] = scores[r]
                self.best_iter[r] = epoch
                for piece in own:
                    assert piece.best_V is not None
                    piece.best_V[:, piece.columns(r)] = piece.weights.V[:, piece.columns(r)]
            elif epoch - self.best_iter[r] >= self.data.descent.n_iter_no_change:
                self.n_iter[r] = epoch
                for piece in own:
                    piece.weights.active[r - piece.repetitions.start] = 0

    def _scores(self, team: Team) -> np.ndarray:
        """The share of the held-out rows whose best bucket is right, for each repetition."""
        self._absorb_scales()
        held_out = self.data.held_out
        logits = np.full((len(held_out), len(self.n_iter)), -np.inf, np.float32)
        buckets = np.zeros(logits.shape, np.int64)
        for piece, (found, where) in zip(self.pieces, team.run(ColumnPiece.best_buckets, self.pieces), strict=True):
            own = slice(piece.repetitions.start, piece.repetitions.stop)
            better = found > logits[:, own]  # of equal logits, the first bucket counts
            logits[:, own][better] = found[better]
            buckets[:, own][better] = where[better]
        hits = np.empty(len(self.n_iter), np.int64)
        kernels.count_hits(self.data.rows.Y, self.table, held_out, frozen(buckets, np.int64), hits)
        return np.asarray(hits / max(len(held_out), 1))

    def _absorb_scales(self) -> None:
        for piece in self.pieces:
            piece.absorb_scales()

    def packed(self) -> LinearBuckets:
        """The weights after the last epoch, or with early stopping after the best one."""
        self._absorb_scales()
        descent = self.data.descent
        return LinearBuckets.packed(
            self._joined(),
            self.data.features,
            self.data.n_features,
            self.n_buckets,
            descent.bias,
            self.data.link,
            weights=descent.weights,
            prune=descent.prune,
            scale=self.data.scale,
        )

    def _joined(self) -> np.ndarray:
        """The weights of all pieces, which are given up."""
        pieces, self.pieces = self.pieces, []
        found = [piece.weights.V if piece.best_V is None else piece.best_V for piece in pieces]
        if len(pieces) == 1:
            return found[0]
        V = np.empty((len(self.data.features), len(self.n_iter) * self.n_buckets), np.float32)
        for piece, own in zip(pieces, found, strict=True):
            for r in piece.repetitions:
                first = r * self.n_buckets + piece.buckets.start
                V[:, first : first + len(piece.buckets)] = own[:, piece.columns(r)]
        return V
