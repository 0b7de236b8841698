"""The estimator of one-vs-all: parameters, their meaning, and their checks."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from longtail import check
from longtail.errors import InputError
from longtail.methods.base import ExtremeClassifier
from longtail.methods.one_vs_all import starts
from longtail.methods.one_vs_all.inputs import LOSSES, TOL, Features
from longtail.methods.one_vs_all.keeping import kept_part
from longtail.methods.one_vs_all.positive_weights import by_frequency
from longtail.methods.one_vs_all.problem import OneVsAllProblem
from longtail.methods.problem import Part
from longtail.methods.updating import Change
from longtail.models import LabelWeights

SOLVERS = ("auto", "dual", "newton", "sampled-newton")


class OneVsAll(ExtremeClassifier):
    """One linear classifier per label, each trained on all rows, with small weights set to zero (DiSMEC).

    This is the most accurate of the linear methods, and its model is the easiest to interpret. For label l it solves

        min_w  1/2 w.w + C sum_i loss(y_il x_i.w),     y_il = +1 if row i has label l, else -1

    to a certified distance from the optimum. Time grows with nnz(X) times the number of labels. Training needs memory
    for X, the pruned model, and buffers for a few labels per thread. Labels are independent of each other, so the
    number of threads does not change the model.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the penalty. A larger C fits the training rows more closely.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
    solver : {"auto", "dual", "newton", "sampled-newton"}, default="auto"
        "dual" is coordinate descent on a working set of rows, verified on all rows. It is for the squared hinge only.
        "newton" is the truncated Newton method of the papers, for both losses. "sampled-newton" computes Hessians on a
        sample of the rows, and the objective and its gradient on all rows, for both losses. "auto" is "dual" for the
        squared hinge where it is possible, otherwise "newton"; for the logistic loss it is "sampled-newton". All reach
        the same optimum.
    start : {"msi", "zero", "bias", "ova-primal", "tree"}, default="msi"
        First weights. "msi" separates the mean of the positives from the mean of the negatives; "zero" is zero; "bias"
        has a weight for the bias feature only; "ova-primal" is the solution of the all-negative problem; "tree" is the
        solution of the most similar label. Newton starts at these weights. The first working set of the dual solver
        has the rows with the highest scores under these weights. With "tree", it has the positives of the most similar
        label and the rows with the highest scores under "ova-primal". "sampled-newton" starts at the best combination
        of these weights, the mean of all rows and the bias feature. All starts lead to the same optimum. "msi" is
        fastest. Options follow a colon: "msi:s=1,t=-3", "bias:factor=0.9", "ova-primal:stop=strict",
        "tree:stop=strict".
    positive_weight : float, "auto" or array of n_labels floats, default=1.0
        Multiplies C for the positives of a label. Above 1, a false negative costs more than a false positive. Pass one
        number for all labels, or one for each. An array is not saved with the model's parameters. "auto" depends on
        the number of rows of the label: 3 for up to 5 rows, 1 from 100 rows on. C=1/3 with positive_weight="auto" ranks
        labels better on many datasets and worse on some, see docs/methods/one-vs-all.md.
    prune : float, default=0.01
        After training, weights with an absolute value below `prune` are set to zero. 0 keeps all weights.
    tol : float or None, default=None
        Stopping tolerance. A label is solved by "dual" and by "sampled-newton" when its relative duality gap is at most
        `tol`, and by "newton" when |g(w)| <= tol max(1, min(#positive, #negative)) / n |g(0)|, the rule of the papers.
        None means 0.01, except for "newton" on dense features, where it means 1, as in the papers.
    max_tol : float or None, default=None
        "newton" only: the factor of |g(0)| in that rule is never above `max_tol`. OvA-Primal++ has tol=1, max_tol=1e-4.
        None means that there is no such limit.
    max_iter : int, default=100
        Maximum number of Newton steps per label. Labels that "dual" does not solve in 12 rounds are solved by Newton.
    trace : int, default=0
        Newton only: the number of steps of every label that are recorded in `training_`, from the first step on. 20 is
        enough for most labels. It takes 32 bytes per label and step. 0 records nothing.
    bias : float, default=1.0
        Value of the constant feature that is added to every row. Its weight is penalised like all weights. 0 adds none.
    normalize : bool, default=False
        Divide every row by its length. The model does the same in prediction. Use True for counts and other rows of
        different lengths. The tf-idf rows of `TextFeatures` already have length 1.
    calibrate : bool or str, default=False
        Solve the labels again without some rows, and learn probabilities and a threshold on these. The weights stay
        those of all rows. "held-out:fraction=0.2" holds rows out once. "cross-fit:folds=5" holds every row out once and
        suits small data. True means "cross-fit" for fewer than 3,000 rows and "held-out" otherwise. "dual" does this
        while it solves a label; the other solvers need one extra fit per fold.
    block_size : int or None, default=None
        Number of labels per block of work. With small blocks, progress is reported more often and Ctrl-C acts sooner.
        Large blocks have less overhead. The size does not change the model. None chooses blocks of about a second.
    n_jobs : int or None, default=None
        Number of threads. None and -1 mean all cores. Inside a joblib worker, None means the worker's share of them.
    random_state : int, RandomState or None, default=0
        Exists for consistency with the other methods. OneVsAll draws no random numbers.
    verbose : int, default=0
        1 prints a line about the progress of a fit every 10 seconds, 2 every second; 0 prints nothing.

    Attributes
    ----------
    model_ : LinearModel
        The frozen model; `model_.W` is a csr_array with one row per label.
    training_ : Training
        The record of the fit. `status`, `n_iter` (Newton steps, or rounds of the dual solver) and the figures have one
        entry per label. Figures: `objective`, before small weights are set to zero; `gap`, the relative duality gap
        over all rows, (P - D) / P; `gradient_ratio`, |g(w)| / |g(0)|, NaN for the dual solver; `n_active`, the number
        of rows inside the margin, as the mean over Newton steps or at the end of "dual". With `trace`, also arrays of
        shape (n_labels, trace), whose column t is about step t + 1 of a label: `trace_objective`, before the step;
        `trace_n_active`, rows inside the margin; `trace_n_cg`, steps of conjugate gradients; `trace_multiplier`, the
        step length that the line search found. The column after the last step has the objective and the rows at the
        end; all others are NaN. `start_distance` is the distance between the start and the solution.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether y was a 1-d array of classes.
    n_features_in_ : int
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
    H. Fang, M. Cheng, C.-J. Hsieh, M. Friedlander: Fast training for large-scale one-versus-all linear classifiers
    using tree-structured initialization. SDM 2019.
    """

    method = "one-vs-all"
    takes_dense = True
    takes_hybrid = True
    matches_scale = 0.5
    _row_weights: Any = None  # sample_weight, while `fit` runs
    _paper: ClassVar[Mapping[str, Any]] = {
        "C": 1.0,
        "loss": "squared_hinge",
        "solver": "newton",
        "start": "msi",
        "prune": 0.01,
        "tol": None,  # eps_0 = 0.01, and 1 on dense features
        "bias": 1.0,
    }
    _paper_tree: ClassVar[Mapping[str, Any]] = {"tol": 1.0, "max_tol": 1e-4}  # section 2.1 of the supplement

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "squared_hinge",
        solver: str = "auto",
        start: str = "msi",
        positive_weight: float | str | Sequence[float] | np.ndarray = 1.0,
        prune: float = 0.01,
        tol: float | None = None,
        max_tol: float | None = None,
        max_iter: int = 100,
        trace: int = 0,
        bias: float = 1.0,
        normalize: bool = False,
        calibrate: bool | str = False,
        block_size: int | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.solver = solver
        self.start = start
        self.positive_weight = positive_weight
        self.prune = prune
        self.tol = tol
        self.max_tol = max_tol
        self.max_iter = max_iter
        self.trace = trace
        self.bias = bias
        self.normalize = normalize
        self.calibrate = calibrate
        self.block_size = block_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Return the estimator with the settings of a paper. `parameters` replace single ones.

        `OneVsAll.paper()` is DiSMEC++ with the mean-separating start (Schultheis & Babbar 2022), and
        `OneVsAll.paper(start="zero")` and so on are its other starts. `OneVsAll.paper(start="tree")` is OvA-Primal++
        (Fang et al. 2019), whose stopping rule it brings.
        """
        is_tree = str(parameters.get("start")).partition(":")[0] == "tree"
        return cls(**{**cls._paper, **(cls._paper_tree if is_tree else {}), **parameters})

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> Self:
        """Train on the rows of X and their labels y.

        Parameters
        ----------
        X, y : rows and labels
            See `ExtremeClassifier.fit`, which also describes all further options.
        sample_weight : array of n_samples numbers, optional
            Multiplies C for each row. A row of weight 0 counts as absent. Rows with weights are trained by "newton".
        """
        if sample_weight is not None and self.solver == "dual":
            raise InputError("solver='dual' takes no sample_weight; use solver='auto' or solver='newton'")
        self._row_weights = sample_weight
        try:
            return super().fit(X, y, **options)
        finally:
            del self._row_weights

    def _canonical(self, *data: Any) -> Any:
        """Return the data with the weights of its rows, and without rows of weight 0."""
        found = super()._canonical(*data)
        if self._row_weights is None:
            return found
        weight = check.sample_weight(self._row_weights, found.X.shape[0])
        (used,) = np.nonzero(weight)
        return found._replace(X=found.X[used], Y=found.Y[used], sample_weight=weight[used])

    def _check_parameters(self) -> None:
        check.number(self, "C", above=0)
        check.choice(self, "loss", tuple(LOSSES))
        check.choice(self, "solver", SOLVERS)
        if not self._weighs_by_frequency:
            check.positive_numbers(self, "positive_weight")
        check.number(self, "prune", least=0)
        for name in ("tol", "max_tol"):
            if getattr(self, name) is not None:
                check.number(self, name, above=0)
        check.number(self, "trace", least=0, whole=True)
        if self.block_size is not None:
            check.number(self, "block_size", least=1, whole=True)
        check.number(self, "max_iter", least=1, whole=True)
        check.number(self, "bias", least=0)
        starts.parse(self.start, self.bias)
        if self.solver == "dual" and self.loss != "squared_hinge":
            raise InputError(f"solver='dual' solves loss='squared_hinge' only, not {self.loss!r}; use solver='newton'")
        if self.max_tol is not None and self.solver != "newton":
            raise InputError(f"max_tol={self.max_tol!r} is for solver='newton' only")
        if self.trace and (self.solver == "dual" or (self.solver == "auto" and self.loss == "squared_hinge")):
            raise InputError(f"trace={self.trace!r} is for Newton only; use solver='newton' with it")

    @property
    def _effort_of_repeating(self) -> float:  # type: ignore[override]
        """The dual solver scores held-out rows while it solves a label."""
        is_dual = self.solver in ("auto", "dual") and self.loss == "squared_hinge" and self._row_weights is None
        return 0.5 if is_dual else 1.0

    @property
    def _weighs_by_frequency(self) -> bool:
        return isinstance(self.positive_weight, str) and self.positive_weight == "auto"

    def _positive_weights(self, Y: sp.csr_array) -> np.ndarray:
        if self._weighs_by_frequency:
            return by_frequency(np.bincount(Y.indices, minlength=Y.shape[1]))
        return check.per_label(self, "positive_weight", Y.shape[1])

    def _column_bytes(self) -> tuple[int, int]:
        return 24, 100

    def _kept_part(self, X: sp.csr_array, change: Change) -> Part:
        assert isinstance(self.model_, LabelWeights)
        tol = TOL if self.tol is None else float(self.tol)
        return kept_part(
            self.model_, self.training_, X[change.is_new], change.touched, change.retired,
            C=float(self.C), loss=self.loss, tol=tol,
        )  # fmt: skip

    def _problem(self, X: Features, Y: sp.csr_array) -> OneVsAllProblem:
        return OneVsAllProblem(
            X,
            Y,
            C=float(self.C),
            loss=self.loss,
            solver=self.solver,
            start=self.start,
            positive_weight=self._positive_weights(Y),
            prune=float(self.prune),
            tol=None if self.tol is None else float(self.tol),
            max_tol=None if self.max_tol is None else float(self.max_tol),
            max_iter=int(self.max_iter),
            trace=int(self.trace),
            bias=float(self.bias),
            block_size=None if self.block_size is None else int(self.block_size),
            seed=int(self.random_state) if isinstance(self.random_state, numbers.Integral) else 0,  # not used
            extras=self._extras,
        )
