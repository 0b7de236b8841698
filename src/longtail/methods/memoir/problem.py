"""The training problem of MEMOIR: one block, because all classes are trained together.

X, Y -> MemoirProblem (scaled rows, pairs of a row and a label, held-out rows, batches) -> one block
     -> stochastic steps against rivals from an oracle -> Part(W as CSR) -> stack -> LinearModel

An update begins with the weights of the old model. The first passes visit only the rows that changed, and the last
LAST_PASSES visit all rows. The learning rates are those of the same passes of a fit: large while new labels are
learned, and small when all labels are adjusted to them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.hybrid import HybridRows, Rows, as_csr, squares
from longtail.methods import state
from longtail.methods.memoir import oracles, schedules
from longtail.methods.memoir.average import Average
from longtail.methods.memoir.early_stopping import EarlyStopping, HeldOutRows
from longtail.methods.memoir.oracle_recall import RecallSample
from longtail.methods.memoir.oracles import Oracle, SearchSpace
from longtail.methods.memoir.parameters import Parameters, rows_per_batch
from longtail.methods.memoir.sgd import NO_MOVES, Batches, Pairs, Penalty, train
from longtail.methods.memoir.weights import ClassVectors, CsrRows, RowLabels
from longtail.methods.problem import Block, CoupledProblem, OldModel, Part
from longtail.models import LinearModel
from longtail.parallel import Work
from longtail.training import Status

LAST_PASSES = 2  # of an update, over all rows
MIN_GROUP = 64  # least number of classes in a group
N_REPORTS = 200  # number of progress reports
UNIT_TOLERANCE = 1e-3  # rows whose mean length is this close to 1 are not scaled


class MemoirProblem(CoupledProblem):
    """Pairs of a row and a label, over rows that are scaled to a mean squared length of 1.

    Learning rates and penalties are meant for rows of this length. Training on c X therefore gives W / c, for any c.
    If there is a bias, it is the last feature, which has the same value in all rows.
    """

    def __init__(
        self, X: Rows, Y: sp.csr_array, parameters: Parameters, seed: int, old: OldModel | None = None
    ) -> None:
        X = X if old is None and _reads_dense(parameters) else as_csr(X)
        self.parameters = parameters
        self.old_model = old
        self.seed = seed
        self.n_labels = Y.shape[1]
        self.n_features = X.shape[1]
        self.bias = parameters.bias
        random = np.random.RandomState(seed)
        self.order_seed = int(random.randint(2**31 - 1))
        self.oracle_seed = int(random.randint(2**31 - 1))
        self.held_out: HeldOutRows | None = None
        if parameters.early_stopping:
            is_held_out = np.zeros(X.shape[0], bool)
            size = round(parameters.validation_fraction * X.shape[0])
            is_held_out[random.permutation(X.shape[0])[:size]] = True
            if Y[is_held_out].nnz:
                self.held_out = HeldOutRows(X[is_held_out], Y[is_held_out])
                X, Y = X[~is_held_out], Y[~is_held_out]
        self.row_length = _typical_length(X)
        X = _scaled(X, self.row_length)
        if parameters.bias > 0:
            X = _with_constant(X, parameters.bias)
        self.rows = CsrRows.of(X)
        self.dense_columns = X.columns if isinstance(X, HybridRows) else None
        self.labels = RowLabels.of(Y)
        row_of_pair = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        self.pairs = Pairs(self.rows, row_of_pair, Y.indices.astype(np.int64))
        self.batches = batches_of(parameters, Y.nnz, self.n_labels)
        self.penalty = Penalty(
            parameters.lam, parameters.penalty == "l1", parameters.project, parameters.truncate_every, parameters.rho
        )
        self.n_groups = min(parameters.n_groups, max(1, self.n_labels // MIN_GROUP))
        self.settings = {
            **asdict(parameters),
            "batch_size": self.batches.size,
            "max_iter": self.batches.n_passes(self.batches.n_batches, Y.nnz),
            "n_batches": self.batches.n_batches,
            "n_groups": self.n_groups,
            "early_stopping": self.held_out is not None,
            "seed": seed,
        }
        if old is not None:
            self._plan_update(old.changed)

    def _plan_update(self, changed: np.ndarray) -> None:
        """Divide the passes into those over the pairs of changed rows, and the last ones, over all pairs."""
        n_passes = self.batches.n_passes(self.batches.n_batches, len(self.pairs.rows))
        n_first = max(n_passes - LAST_PASSES, 0)
        chosen = changed[self.pairs.rows]
        self.changed_pairs = Pairs(self.rows, self.pairs.rows[chosen], self.pairs.targets[chosen])
        self.first_batches = self._passes(len(self.changed_pairs.rows), 0, n_first, n_passes)
        self.batches = self._passes(len(self.pairs.rows), n_first, n_passes, n_passes)

    def _passes(self, n_pairs: int, start: int, stop: int, n_passes: int) -> Batches:
        """The batches of the passes from `start` to `stop` - 1 over these pairs, as in a fit of `n_passes` passes."""
        size = min(self.batches.size, max(n_pairs, 1))
        n_batches = math.ceil(n_pairs / size)  # of one pass
        return replace(
            self.batches,
            n_batches=(stop - start) * n_batches,
            size=size,
            n_before=start * n_batches,
            n_planned=n_passes * n_batches,
        )

    def solve(self, block: Block, work: Work) -> Part:
        with work.team() as team:
            oracle = self.oracle(team)
            course = Course(
                oracle,
                RecallSample(oracle, self.batches.n_batches, self.batches.n_parts),
                Average(oracle.vectors) if self.parameters.average else None,
            )
            if self.held_out is not None:
                course.stopping = EarlyStopping(self.held_out, self.parameters.n_iter_no_change, work.n_threads)
            n_batches = self._train(course, work)
        stopping = course.stopping
        if stopping is not None and stopping.best is not None:
            W = stopping.best.W
        elif course.average is not None:
            W = self.unscaled(course.average.to_csr())
        else:
            W = self.unscaled(oracle.vectors.take_csr())
        status = Status.COMPLETED if n_batches == self.batches.n_batches else Status.EARLY_STOPPED
        figures = {
            "validation_scores": np.array([] if stopping is None else stopping.scores, np.float64),
            "n_batches": np.array([n_batches], np.int64),
            **course.recall.figures(),
        }
        return self.part(W, status, self.batches.n_passes(n_batches, len(self.pairs.rows)), figures)

    def like(self, X: Rows, Y: sp.csr_array) -> MemoirProblem:
        return MemoirProblem(X, Y, self.parameters, self.seed)

    def _train(self, course: Course, work: Work) -> int:
        """Run the batches and return how many were done.

        With held-out rows, the weights are scored after each pass (after each batch if a batch is longer than a pass).
        """
        n_batches = self.batches.n_batches
        per_pass = max(1, round(len(self.pairs.rows) / self.batches.size))
        per_report = max(1, n_batches // N_REPORTS)
        first = self._continue(course, work.saved())
        if self.old_model is not None:
            self._begin_update(course.oracle, self.old_model.weights())

        def between(t: int) -> None:
            work.save(lambda: course.state(t))

        stopping = course.stopping
        for query in train(
            course.oracle, self.pairs, self.batches, self.penalty, self.order_seed, first, between, course.average
        ):
            t = query.batch
            if query.part == 0:
                if stopping is not None and t and t % per_pass == 0:
                    stopping.add(self._current(course))
                    if stopping.is_over:
                        return t
                if t % per_report == 0:
                    work.report(t / n_batches)
            course.recall.compare(t, query.part, self.pairs.rows[query.pairs], query.rivals)
        if stopping is not None:
            stopping.add(self._current(course))
        return n_batches

    def _begin_update(self, oracle: Oracle, W: sp.csr_array) -> None:
        """Load the old weights, which are in the original scale of the rows, and visit the changed rows."""
        data = np.where(W.indices < self.n_features, W.data * np.float32(self.row_length), W.data)
        oracle.vectors.load(sp.csr_array((data, W.indices, W.indptr), shape=W.shape))
        loaded = np.flatnonzero(np.diff(W.indptr))
        if oracle.needs_moves:
            oracle.update(NO_MOVES._replace(touched=loaded, truncated=loaded, amounts=np.zeros(len(loaded))))
        for _ in train(oracle, self.changed_pairs, self.first_batches, self.penalty, self.order_seed):
            pass

    def _current(self, course: Course) -> LinearModel:
        """The model of the weights so far."""
        weights = course.average or course.oracle.vectors
        return self.model(self.unscaled(weights.to_csr()))

    def _continue(self, course: Course, saved: state.Arrays | None) -> int:
        """Restore the state of an earlier attempt. Return the number of the next batch."""
        if saved is None:
            return 0
        oracle, stopping = course.oracle, course.stopping
        oracle.vectors.restore(state.of(saved, "vectors"))
        oracle.restore(state.of(saved, "oracle"))
        course.recall.excess = [saved["recall.excess"]]
        if course.average is not None:
            course.average.restore(state.of(saved, "average"))
        if stopping is not None:
            stopping.scores = saved["stopping.scores"].tolist()
            best = {name: array.copy() for name, array in state.of(saved, "best").items()}
            if best:
                shape = oracle.vectors.shape
                stopping.best = self.model(sp.csr_array((best["data"], best["indices"], best["indptr"]), shape=shape))
        return int(saved["batch.number"])

    def oracle(self, team: parallel.Team) -> Oracle:
        """Make an oracle whose class vectors are all zero."""
        name, options = oracles.parse(self.parameters.oracle)
        kind = oracles.ORACLES[name]
        n_columns = self.n_features + (self.parameters.bias > 0)
        vectors = ClassVectors(
            self.n_labels,
            n_columns,
            indexed=kind.indexed,
            n_groups=self.n_groups if kind.indexed else 1,
            with_top=kind.reads_top(options),
            limit=self.parameters.truncate_limit,
            dense_columns=self.dense_columns,
        )
        return kind(SearchSpace(vectors, self.rows, self.labels, team, self.oracle_seed, self.n_groups), **options)

    def unscaled(self, W: sp.csr_array) -> sp.csr_array:
        """Convert W to the original scale of the rows, and set the weights below `prune` to zero. The weights of the
        bias feature are not converted, because it was not scaled."""
        if self.parameters.prune:
            W.data[np.abs(W.data) < self.parameters.prune] = 0.0
            W.eliminate_zeros()
        if self.row_length != 1.0:
            divided = (W.data / self.row_length).astype(np.float32)
            data = np.where(W.indices < self.n_features, divided, W.data)
            W = sp.csr_array((data, W.indices, W.indptr), shape=W.shape)
        return W

    def model(self, W: sp.csr_array) -> LinearModel:
        return LinearModel(W, self.n_features, self.parameters.bias)


@dataclass
class Course:
    """Everything that training changes."""

    oracle: Oracle
    recall: RecallSample
    average: Average | None
    stopping: EarlyStopping | None = None

    def state(self, t: int) -> dict[str, np.ndarray]:
        """Return the state before batch t. It does not include the order of the batches, which the seed determines."""
        excess = np.concatenate(self.recall.excess) if self.recall.excess else np.empty(0)
        scores = [] if self.stopping is None else self.stopping.scores
        best = None if self.stopping is None else self.stopping.best
        return state.joined(
            batch={"number": np.array(t)},
            vectors=self.oracle.vectors.state(),
            oracle=self.oracle.state(),
            recall={"excess": excess},
            average={} if self.average is None else self.average.state(),
            stopping={"scores": np.array(scores, np.float64)},
            best={} if best is None else {"data": best.W.data, "indices": best.W.indices, "indptr": best.W.indptr},
        )


def batches_of(parameters: Parameters, n_pairs: int, n_classes: int) -> Batches:
    """Return the batches of a training run. There are none if there are no pairs or only one class."""
    size = min(rows_per_batch(parameters.batch_size, n_classes), max(n_pairs, 1))
    n_batches = parameters.n_batches or math.ceil(parameters.max_iter * n_pairs / size)
    schedule = schedules.parse(parameters.schedule)
    n_batches = n_batches if n_pairs and n_classes > 1 else 0
    return Batches(n_batches, size, parameters.learning_rate, schedule, parameters.refresh)


def _reads_dense(parameters: Parameters) -> bool:
    """Whether training reads the dense part of rows as it is. Only the exact oracle can, without truncation and
    without the average of the weights."""
    return parameters.oracle == "exact" and parameters.penalty == "l2" and not parameters.average


def _typical_length(X: Rows) -> float:
    """Return the root mean square length of the rows, or 1 if it is close to 1 or if all rows are zero."""
    found = squares(X)
    length = math.sqrt(found.mean()) if found.any() else 1.0
    return 1.0 if abs(length - 1.0) < UNIT_TOLERANCE else length


def _scaled(X: Rows, length: float) -> Rows:
    """X / length."""
    if length == 1.0:
        return X
    if isinstance(X, HybridRows):
        return HybridRows(_scaled(X.sparse, length), X.dense / np.float32(length), X.columns)
    return sp.csr_array(((X.data / length).astype(np.float32), X.indices, X.indptr), shape=X.shape)


def _with_constant(X: Rows, value: float) -> Rows:
    """X with one more column, which has this value in all rows."""
    if isinstance(X, HybridRows):
        return HybridRows(_with_constant(X.sparse, value), X.dense, X.columns)
    n, ends = X.shape[0], X.indptr[1:].astype(np.int64)
    data = np.insert(X.data, ends, np.float32(value))
    indices = np.insert(X.indices, ends, X.shape[1])
    return sp.csr_array((data, indices, X.indptr + np.arange(n + 1)), shape=(n, X.shape[1] + 1))
