"""The estimator of PD-Sparse: parameters, held-out rows, and what training tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from longtail import check, parallel
from longtail.errors import InputError
from longtail.methods.base import ExtremeClassifier
from longtail.methods.pd_sparse.frank_wolfe import FrankWolfe, Problem
from longtail.methods.pd_sparse.path import Pass, Path
from longtail.models import LinearModel

SEARCHES = ("part", "exact", "sampled")
AUTO_C = (1.0, 10.0)
AUTO_LAM = 0.02  # times C
FEW_ROWS, MOST_ROWS = 20, 2000  # held out by themselves: fewer say nothing, more say little else
LEAST_PASSES, MOST_PASSES, VISITS = 4, 100, 40_000
PART_LABELS = 100  # parts of fewer labels save nothing


class PDSparse(ExtremeClassifier):
    """A small linear model by a margin between labels: primal-dual sparse extreme classification (PD-Sparse).

    All labels are trained together, on the few of them that a row takes for its own,

        min_W  sum_k 1/2 |w_k|^2 + lam |w_k|_1  +  C sum_i max(0, 1 + best negative score - worst positive score)

    with scores x_i.w_k. The l1 penalty makes W sparse, the loss makes the dual variables sparse, and training touches
    what is not zero. Models are several times smaller than those of `OneVsAll` at about the same precision; time per
    pass and memory grow less than the number of labels. Scores rank the labels of a row; they are not calibrated.

    Parameters
    ----------
    C : float, "auto", or several floats, default="auto"
        Weight of the loss against the penalties. "auto" and several values ("1,10" on the command line) are tried on
        held-out rows.
    lam : float, "auto", or several floats, default="auto"
        Weight of the l1 penalty: larger means fewer weights. "auto" is 0.02 C. Several values are tried
        from the largest to the smallest, each going on from the one before.
    search : {"part", "exact", "sampled"}, default="part"
        Which labels a row is compared with: one of `nu` parts of them, drawn anew each time; all of them; a part, by a
        sample of the row's features.
    nu : int, default=5
        Number of parts that the labels are divided into; parts have 100 labels at the least.
    returned : int, default=4
        Labels that a search returns. They double when searching takes most of the time.
    max_iter : int or None, default=None
        Passes over the rows at the most, not counting those that choose C and lam. Training stops when three passes
        bring no gain on the held-out rows, and keeps the best. None means 4, or more where there are fewer than 10,000
        rows: 40,000 visits of rows.
    tol : float, default=1e-3
        Without held-out rows, training stops when a pass lowers the dual objective by less than this share.
    validation : float or array of row numbers, default=0.1
        Share of the rows that are held out to choose and to stop, at most 2,000, or the numbers of these rows. In the
        end they are learned from, too. Below 20 rows, and with 0, none are held out, and C="auto" means 10.
    post_solve : bool, default=True
        Try to train the selected weights again without l1 penalty, and keep that where held-out rows agree.
    bias : float, default=0.0
        Value of a constant feature added to every row. 0 adds none, as in the paper.
    normalize : bool, default=False
        Divide every row by its length, in training and, by the model itself, in prediction. Say True for counts and
        other rows of different lengths; tf-idf rows of `TextFeatures` have length 1 already.
    n_jobs : int or None, default=None
        Threads. None and -1 mean all cores. They do not change a byte of the model.
    random_state : int, RandomState or None, default=0
        Seed of the order of rows, of the parts and of the held-out rows. None takes a new one each time.

    Attributes
    ----------
    model_ : LinearModel
        The frozen model; `model_.W` is a csr_array with one row per label.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether every training row had exactly one label.
    n_features_in_ : int
    C_, lam_ : float
        The values that were used.
    history_ : list of Pass
        Every pass: its stage, parameters, held-out precision, dual objective, k_A and k_W.
    n_iter_ : int
        Passes over the training rows.

    Examples
    --------
    >>> import longtail as lt
    >>> X = [[1, 0], [1, 1], [0, 1]]
    >>> clf = lt.PDSparse(C=10).fit(X, [["fruit"], ["fruit", "red"], ["red"]])
    >>> clf.classes_[clf.predict_topk([[0, 2]], k=1).labels]
    array([['red']], dtype='<U5')

    References
    ----------
    I. Yen, X. Huang, K. Zhong, P. Ravikumar, I. Dhillon: PD-Sparse: a primal and dual sparse approach to extreme
    multiclass and multilabel classification. ICML 2016.
    """

    method = "pd-sparse"
    feature_bytes, label_bytes = 190, 20  # the table of a feature begins with a few slots
    C_: float
    lam_: float
    history_: list[Pass]
    n_iter_: int

    def __init__(
        self,
        C: float | str | Sequence[float] = "auto",
        *,
        lam: float | str | Sequence[float] = "auto",
        search: str = "part",
        nu: int = 5,
        returned: int = 4,
        max_iter: int | None = None,
        tol: float = 1e-3,
        validation: float | Sequence[int] | np.ndarray = 0.1,
        post_solve: bool = True,
        bias: float = 0.0,
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.C = C
        self.lam = lam
        self.search = search
        self.nu = nu
        self.returned = returned
        self.max_iter = max_iter
        self.tol = tol
        self.validation = validation
        self.post_solve = post_solve
        self.bias = bias
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_parameters(self) -> None:
        check.candidates(self, "C", above=0)
        check.candidates(self, "lam", least=0)
        check.choice(self, "search", SEARCHES)
        for name in ("nu", "returned", *(["max_iter"] if self.max_iter is not None else [])):
            check.number(self, name, least=1, whole=True)
        check.number(self, "tol", least=0)
        if np.ndim(self.validation) == 0:
            check.number(self, "validation", least=0)
            if self.validation >= 1:  # type: ignore[operator]
                raise InputError(
                    f"The 'validation' parameter of PDSparse must be a share below 1 or an array of row numbers. "
                    f"Got {self.validation!r} instead."
                )
        check.flag(self, "post_solve")
        check.number(self, "bias", least=0)
        check.flag(self, "normalize")
        check.n_jobs(self)
        check.random_state(self)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, progress: Callable[[int, int], None]) -> LinearModel:
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        rng = np.random.default_rng(seed)
        problem = Problem.of(X, Y, float(self.bias), rng)
        training, held_out = self._split(problem, rng)
        labels, enough = problem.n_labels, VISITS // max(len(training), 1)
        passes = max(LEAST_PASSES, min(enough, MOST_PASSES)) if self.max_iter is None else int(self.max_iter)
        with parallel.Team(self.n_jobs) as team:
            solver = FrankWolfe(
                problem,
                parts=1 if self.search == "exact" else max(1, min(int(self.nu), labels // PART_LABELS)),
                sampled=self.search == "sampled",
                returned=int(self.returned),
                rng=rng,
                run=team.run,
                threads=parallel.n_threads(self.n_jobs),
            )
            path = Path(
                solver, training, held_out, sp.csr_array(Y[held_out]), passes, float(self.tol),
                lambda share: progress(int(share * labels), labels),
            )  # fmt: skip
            path.run(self._pairs(checked=len(held_out) > 0), post_solve=bool(self.post_solve))
        self.history_ = path.history
        self.C_, self.lam_ = path.chosen
        self.n_iter_ = sum(done.stage in ("train", "refit") for done in path.history)
        progress(labels, labels)
        return LinearModel(solver.W(), X.shape[1], float(self.bias))

    def _pairs(self, *, checked: bool) -> list[tuple[float, float]]:
        """The path: all pairs of C and lam, C rising and lam falling; without held-out rows only one can be trained."""
        values, factors = check.candidates(self, "C", above=0), check.candidates(self, "lam", least=0)
        if values is None:
            values = list(AUTO_C) if checked else [AUTO_C[-1]]
        pairs = []
        for C in sorted(values):
            own = [AUTO_LAM * C] if factors is None else factors
            pairs += [(C, lam) for lam in sorted(own, reverse=True)]
        if len(pairs) > 1 and not checked:
            raise InputError(
                f"{len(pairs)} values of C and lam can only be told apart by held-out rows, of which there are none; "
                "give one value of each, more rows, or a larger validation"
            )
        return pairs

    def _split(self, problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to look at."""
        rows, n = problem.active, problem.n_samples
        if np.ndim(self.validation) == 0:
            size = min(int(float(self.validation) * len(rows)), MOST_ROWS)  # type: ignore[arg-type]
            held_out = rng.permutation(rows)[: size if size >= FEW_ROWS else 0]
        else:
            held_out = check.row_numbers(self, "validation", n)
        return np.setdiff1d(rows, held_out), np.sort(held_out)
