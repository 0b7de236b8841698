"""The estimator of one-vs-all: parameters, blocks of labels, and how every label's solve ended."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from longtail import check, parallel
from longtail.methods.base import ExtremeClassifier
from longtail.methods.one_vs_all import newton, starts
from longtail.methods.one_vs_all.problem import Problem
from longtail.models import LinearModel

LOSSES = {"squared_hinge": newton.SQUARED_HINGE, "logistic": newton.LOGISTIC}
BLOCK_WORK = 200_000_000  # entries of X times labels in a block: about a second, so that progress and Ctrl-C are prompt
BLOCK_LABELS = 256
DENSE_WEIGHTS = 4_000_000  # entries of the dense (labels, D) buffer that a thread solves into before pruning


class Status(IntEnum):
    """How the solve of one label ended."""

    CONVERGED = newton.CONVERGED
    MAX_ITER = newton.MAX_ITER
    LINE_SEARCH_FAILED = newton.LINE_SEARCH_FAILED


@dataclass(frozen=True)
class Outcome:
    """How the solve of every label ended; arrays of length n_labels.

    `objective` is f before small weights are cut; `gradient_ratio` is |g(w)| / |g(0)|, compared with the stopping rule
    (12); `n_active` is the mean number of rows inside the margin per Newton step.
    """

    status: np.ndarray
    n_iter: np.ndarray
    objective: np.ndarray
    gradient_ratio: np.ndarray
    n_active: np.ndarray

    @staticmethod
    def stack(parts: list[Outcome]) -> Outcome:
        return Outcome(
            *(np.concatenate(arrays) for arrays in zip(*(vars(part).values() for part in parts), strict=True))
        )

    @property
    def converged(self) -> np.ndarray:
        return self.status == Status.CONVERGED


class OneVsAll(ExtremeClassifier):
    """One linear classifier per label, each trained against all other rows, with small weights cut to zero (DiSMEC).

    The most accurate of the linear methods, and the one whose model is easiest to read. Label l solves

        min_w  1/2 w.w + C sum_i loss(y_il x_i.w),     y_il = +1 if row i has label l, else -1

    by truncated Newton. Time grows with nnz(X) times the number of labels; memory is X, the pruned model, and a few
    dense vectors per thread. Labels are independent, so the result does not depend on the number of threads.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the penalty; larger fits the training rows more closely.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
    start : {"msi", "zero"}, default="msi"
        First weights: the mean-separating start, or zero. The optimum is the same; "msi" gets there much sooner.
    prune : float, default=0.01
        Weights smaller than this in absolute value are cut to zero after training. 0 keeps all.
    tol : float, default=0.01
        A label is solved when |g(w)| <= tol max(1, min(#positive, #negative)) / n |g(0)|.
    max_iter : int, default=100
        Newton steps per label at the most.
    bias : float, default=1.0
        Value of the constant feature added to every row; its weight is penalised like any other. 0 adds none.
    n_jobs : int or None, default=None
        Threads. None and -1 mean all cores.
    random_state : int, RandomState or None, default=None
        Accepted for uniformity; this method draws no random numbers.

    Attributes
    ----------
    model_ : LinearModel
        The frozen model; `model_.W` is a csr_array with one row per label.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether every training row had exactly one label.
    n_features_in_ : int
    outcome_ : Outcome
        How the solve of every label ended.
    n_iter_ : int
        The largest number of Newton steps of any label.

    Examples
    --------
    >>> import longtail as lt
    >>> X = [[1, 0], [1, 1], [0, 1]]
    >>> clf = lt.OneVsAll(C=10).fit(X, [["fruit"], ["fruit", "red"], ["red"]])
    >>> clf.classes_[clf.predict_topk([[0, 2]], k=1).labels]
    array([['red']], dtype='<U5')

    References
    ----------
    E. Schultheis, R. Babbar: Speeding-up one-versus-all training for extreme classification via mean-separating
    initialization. Machine Learning 111, 2022.
    R. Babbar, B. Schölkopf: DiSMEC: distributed sparse machines for extreme multi-label classification. WSDM 2017.
    """

    method = "one-vs-all"
    outcome_: Outcome
    n_iter_: int

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "squared_hinge",
        start: str = "msi",
        prune: float = 0.01,
        tol: float = 0.01,
        max_iter: int = 100,
        bias: float = 1.0,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.C = C
        self.loss = loss
        self.start = start
        self.prune = prune
        self.tol = tol
        self.max_iter = max_iter
        self.bias = bias
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check.number(self, "C", above=0)
        check.choice(self, "loss", tuple(LOSSES))
        check.choice(self, "start", tuple(starts.STARTS))
        check.number(self, "prune", least=0)
        check.number(self, "tol", above=0)
        check.number(self, "max_iter", least=1, whole=True)
        check.number(self, "bias", least=0)
        check.n_jobs(self)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, progress: Callable[[int, int], None]) -> LinearModel:
        problem = Problem.of(X, Y, self.bias)
        start = starts.make(self.start, problem)
        size = min(BLOCK_LABELS, BLOCK_WORK // max(X.nnz + problem.n_samples, 1))
        parts, outcomes, done = [], [], 0
        blocks = parallel.ranges(problem.n_labels, size)
        for W, outcome in parallel.run(lambda labels: self.fit_block(problem, start, labels), blocks, self.n_jobs):
            parts.append(W)
            outcomes.append(outcome)
            done += W.shape[0]
            progress(done, problem.n_labels)
        self.outcome_ = Outcome.stack(outcomes)
        self.n_iter_ = int(self.outcome_.n_iter.max())
        self._warn_of_unsolved()
        return LinearModel(sp.csr_array(sp.vstack(parts, format="csr")), problem.n_features, problem.bias)

    def fit_block(self, problem: Problem, start: starts.Start, labels: range) -> tuple[sp.csr_array, Outcome]:
        """The pruned weights of consecutive labels, and how they ended. Pure: the same answer on any thread."""
        n, D = problem.n_samples, problem.D
        y, rows, columns, active = newton.workspace(n, D)
        status, steps = np.empty(len(labels), np.int8), np.empty(len(labels), np.int32)
        figures, parts = np.empty((len(labels), 3)), []
        for chunk in parallel.ranges(len(labels), DENSE_WEIGHTS // D):
            at, first = slice(chunk.start, chunk.stop), labels.start + chunk.start
            W = np.empty((len(chunk), D))
            start.guess(first, W)
            newton.newton_block(
                *problem.X,
                problem.bias,
                LOSSES[self.loss],
                problem.rows_of,
                problem.rows_indptr,
                first,
                problem.x_sum,
                float(self.C),
                float(self.tol),
                int(self.max_iter),
                y,
                rows,
                columns,
                active,
                W,
                status[at],
                steps[at],
                figures[at],
            )
            W[np.abs(W) < self.prune] = 0.0
            parts.append(sp.csr_array(W.astype(np.float32)))
        return sp.csr_array(sp.vstack(parts, format="csr")), Outcome(status, steps, *figures.T)

    def _warn_of_unsolved(self) -> None:
        unsolved = int((~self.outcome_.converged).sum())
        if unsolved:
            limited = int((self.outcome_.status == Status.MAX_ITER).sum())
            warnings.warn(
                f"{unsolved} of {len(self.outcome_.status)} labels stopped before the tolerance was reached ({limited} "
                f"at max_iter={self.max_iter}, {unsolved - limited} because no step improved the objective); increase "
                "max_iter or tol, decrease C, or scale the features to unit rows. outcome_.status tells which labels.",
                ConvergenceWarning,
                stacklevel=4,
            )
