"""One training run: the rows as pairs to learn, the oracle at work, held-out rows that say when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail import metrics
from longtail.matrix import row_squares
from longtail.methods.memoir.oracles import Oracle
from longtail.methods.memoir.presets import Settings
from longtail.methods.memoir.report import Examiner
from longtail.methods.memoir.sgd import Pairs, Penalty, Schedule, train
from longtail.methods.memoir.store import Labels, Rows
from longtail.models import LinearModel
from longtail.topk import TopK

LOOKS = 200  # calls of `progress` at most
UNIT = 1e-3  # rows of a mean length this close to 1 are taken as they are


@dataclass(frozen=True)
class Problem:
    """Pairs of a row and a label; rows have a mean squared length of 1, and a last feature for the bias if it is on.

    Rates and penalties are for rows of that length: training on c X then gives W / c, whatever c is.
    """

    rows: Rows
    labels: Labels
    pairs: Pairs
    shape: tuple[int, int]  # classes, features with that of the bias
    length: float  # the root mean square length that the rows had
    bias: float
    prune: float = 0.0  # weights below this are not worth keeping

    @staticmethod
    def of(X: sp.csr_array, Y: sp.csr_array, bias: float, prune: float = 0.0) -> Problem:
        squares = row_squares(X)
        length = math.sqrt(squares.mean()) if squares.any() else 1.0
        length = 1.0 if abs(length - 1.0) < UNIT else length
        n_features = X.shape[1] + (bias > 0)
        if length != 1.0:
            X = sp.csr_array(((X.data / length).astype(np.float32), X.indices, X.indptr), shape=X.shape)
        if bias > 0:
            X = _with_constant(X, bias)
        rows = Rows.of(X)
        of_pair = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        pairs = Pairs(rows, of_pair, Y.indices.astype(np.int64))
        return Problem(rows, Labels.of(Y), pairs, (Y.shape[1], n_features), length, bias, prune)

    def model(self, W: sp.csr_array) -> LinearModel:
        """W without small weights, in units of the rows as they were given; the bias feature keeps its own."""
        if self.prune:
            W.data[np.abs(W.data) < self.prune] = 0.0
            W.eliminate_zeros()
        if self.length != 1.0:
            own = (W.data / self.length).astype(np.float32)
            n_features = self.shape[1] - (self.bias > 0)
            W = sp.csr_array((np.where(W.indices < n_features, own, W.data), W.indices, W.indptr), shape=W.shape)
        return LinearModel(W, self.shape[1] - (self.bias > 0), self.bias)


def _with_constant(X: sp.csr_array, value: float) -> sp.csr_array:
    """X with a last column of this value."""
    n, ends = X.shape[0], X.indptr[1:].astype(np.int64)
    data, indices = np.insert(X.data, ends, np.float32(value)), np.insert(X.indices, ends, X.shape[1])
    return sp.csr_array((data, indices, X.indptr + np.arange(n + 1)), shape=(n, X.shape[1] + 1))


def schedule_of(settings: Settings, eta_step: float, n_pairs: int, n_classes: int) -> Schedule:
    """The batches: 100 sqrt(C) pairs where no size is set, all pairs at most."""
    size = min(settings.batch_size or math.ceil(100 * math.sqrt(n_classes)), max(n_pairs, 1))
    n_iter = settings.max_iter or math.ceil(settings.passes * n_pairs / size)
    step = eta_step if settings.schedule == "inverse" else None
    return Schedule(settings.eta0, step, size, n_iter if n_pairs and n_classes > 1 else 0)


class HeldOut:
    """Rows kept from training. After every look: the macro-F1 so far, the best weights, and whether to stop.

    The best iterate is kept rather than the average of all: the average has the non-zeros of all of them, and with a
    rate that falls to zero the last iterates hardly differ from it.
    """

    def __init__(self, X: sp.csr_array, Y: sp.csr_array, patience: int, n_jobs: int | None) -> None:
        self.X, self.patience, self.n_jobs = X, patience, n_jobs
        self.of_pair = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        self.truth = sp.csr_array(
            (np.ones(Y.nnz, np.int32), Y.indices, np.arange(Y.nnz + 1)), shape=(Y.nnz, Y.shape[1])
        )  # one label a row, as in training
        self.scores: list[float] = []
        self.best: LinearModel | None = None

    def look(self, model: LinearModel) -> None:
        top = model.predict_topk(self.X, 1, n_jobs=self.n_jobs)
        score = metrics.maf1(self.truth, TopK(top.labels[self.of_pair], top.scores[self.of_pair]))
        if not self.scores or score > max(self.scores):
            self.best = model
        self.scores.append(score)

    @property
    def enough(self) -> bool:
        return len(self.scores) - 1 - int(np.argmax(self.scores)) >= self.patience if self.scores else False


def run(
    problem: Problem,
    oracle: Oracle,
    schedule: Schedule,
    penalty: Penalty,
    held_out: HeldOut | None,
    seed: int,
    progress: Callable[[int, int], None],
) -> tuple[LinearModel, Examiner, int]:
    """The model, what the oracle was seen to find, and the number of batches."""
    weights = oracle.weights
    examiner, done = Examiner(oracle, schedule.n_iter), 0
    per_look = max(1, round(len(problem.pairs.rows) / schedule.batch_size))
    per_report = max(1, schedule.n_iter // LOOKS)
    for t, (chosen, rivals) in enumerate(train(oracle, problem.pairs, schedule, penalty, seed)):
        done = t
        if held_out is not None and t and t % per_look == 0:
            held_out.look(problem.model(weights.to_csr()))
            if held_out.enough:
                break
        examiner.look(t, problem.pairs.rows[chosen], rivals)
        if t % per_report == 0:
            progress(t, schedule.n_iter)
    else:
        done = schedule.n_iter
        if held_out is not None:
            held_out.look(problem.model(weights.to_csr()))
    progress(schedule.n_iter, schedule.n_iter)
    best = held_out.best if held_out is not None else None
    return best or problem.model(weights.last_csr()), examiner, done
