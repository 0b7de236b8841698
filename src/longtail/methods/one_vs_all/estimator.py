"""The estimator of one-vs-all: parameters, blocks of labels, and how every label's solve ended."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from longtail import check, parallel
from longtail.errors import InputError
from longtail.matrix import normalize_rows
from longtail.methods.base import ExtremeClassifier
from longtail.methods.one_vs_all import starts
from longtail.methods.one_vs_all.assembly import Assembly
from longtail.methods.one_vs_all.dual import Dual, rows_of, suits_float32
from longtail.methods.one_vs_all.newton import LOSSES, Newton
from longtail.methods.one_vs_all.outcome import Outcome, Status
from longtail.methods.one_vs_all.problem import Features, Problem, as_dense
from longtail.models import LinearModel

SOLVERS = ("auto", "dual", "newton")
TOL = 0.01
DENSE_TOL = 1.0  # of Newton: 0.01 is far too strict there (section 5 of the paper on mean-separating starts)


class OneVsAll(ExtremeClassifier):
    """One linear classifier per label, each trained against all other rows, with small weights cut to zero (DiSMEC).

    The most accurate of the linear methods, and the one whose model is easiest to read. Label l solves

        min_w  1/2 w.w + C sum_i loss(y_il x_i.w),     y_il = +1 if row i has label l, else -1

    to a certified distance from its optimum. Time grows with nnz(X) times the number of labels; memory is X, the pruned
    model, and buffers for a few labels per thread. Labels are independent: threads do not change a byte of the result.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the penalty; larger fits the training rows more closely.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
    solver : {"auto", "dual", "newton"}, default="auto"
        "dual": coordinate descent on the rows that matter, verified on all rows, for the squared hinge. "newton": the
        truncated Newton of the papers, for both losses. "auto": "dual" where it applies. Both reach the same optimum.
    start : {"msi", "zero", "bias", "ova-primal", "tree"}, default="msi"
        First weights of "newton": mean-separating; zero; the bias feature alone; the solution for a label that no row
        has; that of the most similar label. "dual" begins with the rows that these weights score highest; for "tree",
        which has no solution to go on from yet, the rows of the most similar label and those that score highest for a
        label that no row has. All lead to the same optimum: "msi" most quickly with the squared hinge, "ova-primal"
        with the logistic loss. Options follow a colon: "msi:s=1,t=-3", "bias:factor=0.9", "ova-primal:stop=strict",
        "tree:stop=strict".
    positive_weight : float or array of n_labels floats, default=1.0
        Multiplies C for the rows that have the label: above 1, missing a row costs more than a false alarm. One number
        for all labels, or one for each; an array is not kept in the saved parameters. C=1/3 with positive_weight=3
        ranks labels better on much data, see docs/methods/one-vs-all.md: try it.
    prune : float, default=0.01
        Weights smaller than this in absolute value are cut to zero after training. 0 keeps all.
    tol : float or None, default=None
        When a label counts as solved. "dual": objective within this relative distance of the optimum, by its duality
        gap. "newton": |g(w)| <= tol max(1, min(#positive, #negative)) / n |g(0)|, the papers' rule. None means 0.01,
        but 1 for "newton" on dense features, as in the papers.
    max_iter : int, default=100
        Newton steps per label at the most. Labels that "dual" does not solve in 12 rounds go to Newton.
    bias : float, default=1.0
        Value of the constant feature added to every row; its weight is penalised like any other. 0 adds none.
    normalize : bool, default=False
        Divide every row by its length, in training and, by the model itself, in prediction. Say True for counts and
        other rows of different lengths; tf-idf rows of `TextFeatures` have length 1 already.
    block_size : int or None, default=None
        Labels that a thread takes at a time: fewer make progress and Ctrl-C prompter, more waste less time between
        blocks. It does not change a byte of the result. None chooses blocks of about a second.
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
        The largest number of steps or rounds of any label.

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
    label_bytes = 100
    takes_dense = True
    outcome_: Outcome
    n_iter_: int

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "squared_hinge",
        solver: str = "auto",
        start: str = "msi",
        positive_weight: float | Sequence[float] | np.ndarray = 1.0,
        prune: float = 0.01,
        tol: float | None = None,
        max_iter: int = 100,
        bias: float = 1.0,
        normalize: bool = False,
        block_size: int | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.C = C
        self.loss = loss
        self.solver = solver
        self.start = start
        self.positive_weight = positive_weight
        self.prune = prune
        self.tol = tol
        self.max_iter = max_iter
        self.bias = bias
        self.normalize = normalize
        self.block_size = block_size
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_parameters(self) -> None:
        check.number(self, "C", above=0)
        check.choice(self, "loss", tuple(LOSSES))
        check.choice(self, "solver", SOLVERS)
        check.number(self, "prune", least=0)
        if self.tol is not None:
            check.number(self, "tol", above=0)
        if self.block_size is not None:
            check.number(self, "block_size", least=1, whole=True)
        check.number(self, "max_iter", least=1, whole=True)
        check.number(self, "bias", least=0)
        starts.parse(self.start, self.bias)
        check.flag(self, "normalize")
        check.n_jobs(self)
        if self.solver == "dual" and self.loss != "squared_hinge":
            raise InputError(f"solver='dual' solves loss='squared_hinge' only, not {self.loss!r}; use solver='newton'")

    def _fit(self, X: Features, Y: sp.csr_array, progress: Callable[[int, int], None]) -> LinearModel:
        solver = self._solver(X, Y)
        blocks, problem = solver.blocks(self.block_size), solver.problem
        total, assembly, outcomes, done = sum(map(len, blocks)), Assembly(problem.twins, problem.D), [], 0
        for labels, (W, outcome) in zip(blocks, parallel.run(solver.solve, blocks, self.n_jobs), strict=True):
            assembly.add(labels, W)
            outcomes.append(outcome)
            done += len(labels)
            progress(done * problem.n_labels // total, problem.n_labels)
        solved = np.concatenate(blocks)
        order = np.argsort(solved)[np.searchsorted(np.sort(solved), problem.twins)]
        self.outcome_ = Outcome.stack(outcomes).take(order)
        self.n_iter_ = int(self.outcome_.n_iter.max())
        self._warn_of_unsolved()
        return LinearModel(assembly.matrix(), problem.n_features, problem.bias)

    def _solver(self, X: Features, Y: sp.csr_array) -> Dual | Newton:
        X = as_dense(X)
        problem = Problem.of(X, Y, self.bias, check.per_label(self, "positive_weight", Y.shape[1]))
        if self.solver != "newton" and self.loss == "squared_hinge":
            rows = rows_of(X, problem)
            if suits_float32(rows):
                tol = TOL if self.tol is None else float(self.tol)
                newton = self._newton(problem, "msi")  # for the few labels that the dual solver hands over
                first = starts.make(self.start, self._task(problem)).first()
                return Dual(problem, rows, first, newton, float(self.C), tol, float(self.prune))
        return self._newton(problem, self.start)

    def _task(self, problem: Problem) -> starts.Task:
        tol = (DENSE_TOL if problem.is_dense else TOL) if self.tol is None else float(self.tol)
        return starts.Task(problem, LOSSES[self.loss], float(self.C), tol, int(self.max_iter))

    def _newton(self, problem: Problem, start: str) -> Newton:
        task = self._task(problem)
        return Newton(problem, starts.make(start, task), self.loss, task.C, task.tol, task.max_iter, float(self.prune))

    def fit_block(self, X: Features, Y: sp.csr_array, labels: np.ndarray) -> tuple[LinearModel, Outcome]:
        """The model of some labels of canonical X and Y, and how they ended: the rows that `fit` would give them.

        Pure: the same bytes wherever the processors are of one kind.
        """
        self.check_parameters()
        labels = np.asarray(labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
            raise InputError("labels must be a list of one or more column numbers of Y")
        if labels.min() < 0 or labels.max() >= Y.shape[1]:
            raise InputError(f"labels must be column numbers of Y, from 0 to {Y.shape[1] - 1}")
        solver = self._solver(normalize_rows(X) if self.normalize else X, Y)
        W, outcome = solver.solve(labels.astype(np.int64))
        p = solver.problem
        return LinearModel(W, p.n_features, p.bias, unit_rows=bool(self.normalize)), outcome

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
