"""The estimator of PD-Sparse: parameters and fitted attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import check_random_state

from longtail import check
from longtail.methods.base import ExtremeClassifier
from longtail.methods.pd_sparse.problem import PDSparseParameters, PDSparseProblem
from longtail.methods.pd_sparse.search import parse_search
from longtail.methods.pd_sparse.stage_options import parse_path, parse_post_solve
from longtail.methods.pd_sparse.stages import n_passes
from longtail.training import Training


class PDSparse(ExtremeClassifier):
    """A small linear model that separates labels by a margin: primal-dual sparse extreme classification (PD-Sparse).

    All labels are trained together, but each row uses only the few labels that are hard to distinguish from its own:

        min_W  sum_k 1/2 |w_k|^2 + lam |w_k|_1  +  C sum_i max(0, 1 + best negative score - worst positive score)

    with scores x_i.w_k. The l1 penalty makes W sparse, and the loss makes the dual variables sparse. Training reads and
    writes only nonzero values. Models are several times smaller than with `OneVsAll`, at about the same precision. Time
    per pass and memory grow more slowly than the number of labels. Scores only rank the labels of a row. For
    probabilities, see `calibrate`.

    Parameters
    ----------
    C : float, "auto", or several floats, default="auto"
        Weight of the loss against the penalties. "auto" tries 1 and 10. Several values ("1,10" on the command line) are
        compared on held-out rows.
    lam : float, "auto", or several floats, default="auto"
        Weight of the l1 penalty: a larger value gives fewer weights. "auto" is 0.02 C. Several values are tried from
        the largest to the smallest. Each continues from the weights of the previous one.
    search : str, default="subset:subsets=5,returned=4,least=100"
        Which labels a row is compared with in a search. "subset": with one subset of the labels, drawn at random for
        each search. The labels are divided into `subsets` subsets of at least `least` labels. "exact": with all labels;
        it takes `returned` alone. "sampled": with one subset, using only a sample of the row's features. `returned` is
        the number of labels that a search returns. It doubles after a pass in which searching took most of the work, up
        to 64.
    max_iter : int or None, default=None
        Maximum number of passes over the rows, not counting the passes that choose C and lam. None means 4 passes, or
        more if there are fewer than 10,000 rows, so that about 40,000 rows are processed in total.
    tol : float, default=1e-3
        Without held-out rows, training stops when a pass lowers the dual objective by at most this share.
    early_stopping : bool, default=True
        Hold rows out to choose C and lam, to stop when the precision on these rows no longer rises, and to keep the
        best pass. At the end, the model is also trained on the held-out rows. If fewer than 20 rows would be held out,
        none are, and C="auto" means 10.
    validation_fraction : float, default=0.1
        Share of the rows to hold out. At most 2,000 rows are held out.
    validation_depth : int, default=5
        The precision on held-out rows is the mean of P@1, P@3 and so on up to this number of labels, if rows have
        several labels. 1 is P@1 alone, as in the paper.
    n_iter_no_change : int, default=3
        Training stops after this many passes without improvement on the held-out rows.
    path : str, default="probe:rows=4000,passes=2"
        How several pairs of C and lam are compared. "probe": after a few passes over at most `rows` rows. "full": each
        pair is trained on all rows until the precision on held-out rows no longer rises, as in the paper.
    post_solve : str, default="auto:passes=1"
        Train the selected weights again without the l1 penalty, for `passes` passes. "auto": keep the result if it
        raises the precision on held-out rows; without held-out rows it is not done. "always" and "never" do not ask.
        True means "auto" and False means "never".
    refit : bool, default=True
        Whether the model is also trained on the held-out rows at the end. False keeps the weights of the best pass, as
        in the paper.
    batch_size : int, default=256
        Number of rows that are searched and scored together, with the weights from before the batch, so that threads
        can share the work. At most 1,024, and there are at least 64 batches in a pass. 1 is the algorithm of the paper,
        which uses one thread.
    bias : float, default=0.0
        Value of a constant feature that is added to every row. 0 adds none, as in the paper.
    normalize : bool, default=False
        Divide every row by its length. The model does the same in prediction. Use True for counts and other rows of
        different lengths. The tf-idf rows of `TextFeatures` already have length 1.
    calibrate : bool or str, default=False
        Train again without some rows, and learn probabilities and a threshold on these. The weights stay those of all
        rows. "held-out:fraction=0.2" needs one extra fit, on the other rows. "cross-fit:folds=5" needs one extra fit
        per fold and suits small data. True means "cross-fit" for fewer than 3,000 rows and "held-out" otherwise.
    n_jobs : int or None, default=None
        Number of threads. None and -1 mean all cores. The number does not change the model.
    random_state : int, RandomState or None, default=0
        Seed of the order of rows, of the subsets and of the held-out rows. None draws a new seed for every fit.
    verbose : int, default=0
        1 prints a line about the progress of a fit every 10 seconds, 2 every second; 0 prints nothing.

    Attributes
    ----------
    model_ : LinearModel
        The frozen model; `model_.W` is a csr_array with one row per label.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether y was 1-d, so that `predict` returns one class per row.
    n_features_in_ : int
    C_, lam_ : float
        The values of C and lam that were used.
    n_iter_ : int
        Number of passes over the training rows, not counting the passes that chose C and lam.
    training_ : Training
        The record of the fit. Figures: `C`, `lam` and `post_solved`, and for every pass `pass_stage` (a position in
        `longtail.methods.pd_sparse.STAGES`), `pass_C`, `pass_lam`, `pass_rows`, `pass_precision` (on held-out rows),
        `pass_objective` (the dual objective), `pass_k_A` (active labels per row) and `pass_k_W` (weights per feature).

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
    matches_scale = 1.0
    _paper: ClassVar[Mapping[str, Any]] = {
        "C": 1.0,
        "lam": (10.0, 1.0, 0.1, 0.01),
        "search": "sampled:subsets=3,returned=1,least=1",
        "max_iter": 50,
        "validation_depth": 1,
        "n_iter_no_change": 3,
        "path": "full",
        "post_solve": "auto:passes=10",
        "refit": False,
        "batch_size": 1,
    }
    _repeated: dict[str, Any]  # only in an estimator that repeats an earlier fit: its problem parameters

    def __init__(
        self,
        C: float | str | Sequence[float] = "auto",
        *,
        lam: float | str | Sequence[float] = "auto",
        search: str = "subset:subsets=5,returned=4,least=100",
        max_iter: int | None = None,
        tol: float = 1e-3,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        validation_depth: int = 5,
        n_iter_no_change: int = 3,
        path: str = "probe:rows=4000,passes=2",
        post_solve: bool | str = "auto:passes=1",
        refit: bool = True,
        batch_size: int = 256,
        bias: float = 0.0,
        normalize: bool = False,
        calibrate: bool | str = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.lam = lam
        self.search = search
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.validation_depth = validation_depth
        self.n_iter_no_change = n_iter_no_change
        self.path = path
        self.post_solve = post_solve
        self.refit = refit
        self.batch_size = batch_size
        self.bias = bias
        self.normalize = normalize
        self.calibrate = calibrate
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def C_(self) -> float:  # noqa: N802 - the symbol of the paper
        return float(self.training_.C[0])

    @property
    def lam_(self) -> float:
        return float(self.training_.lam[0])

    def _check_parameters(self) -> None:
        check.candidates(self, "C", above=0)
        check.candidates(self, "lam", least=0)
        parse_search(self.search)
        if self.max_iter is not None:
            check.number(self, "max_iter", least=1, whole=True)
        check.number(self, "tol", least=0)
        check.flag(self, "early_stopping")
        check.fraction(self, "validation_fraction")
        check.number(self, "validation_depth", least=1, whole=True)
        check.number(self, "n_iter_no_change", least=1, whole=True)
        parse_path(self.path)
        parse_post_solve(self.post_solve)
        check.flag(self, "refit")
        check.number(self, "batch_size", least=1, whole=True)
        check.number(self, "bias", least=0)

    def _problem(self, X: sp.csr_array, Y: sp.csr_array) -> PDSparseProblem:
        parameters, old = self._parameters(), self._extras.old
        if old is not None:
            parameters = parameters._replace(early_stopping=False)
            if "C" in old.record.figures:  # not in the record of merged models
                parameters = parameters._replace(C=[float(old.record.C[0])], lam=[float(old.record.lam[0])])
        repeated = getattr(self, "_repeated", {})
        return PDSparseProblem(X, Y, parameters._replace(**repeated), old)

    def _parameters(self) -> PDSparseParameters:
        return PDSparseParameters(
            C=check.candidates(self, "C", above=0),
            lam=check.candidates(self, "lam", least=0),
            search=parse_search(self.search),
            max_iter=None if self.max_iter is None else int(self.max_iter),
            tol=float(self.tol),
            early_stopping=bool(self.early_stopping),
            validation_fraction=float(self.validation_fraction),
            validation_depth=int(self.validation_depth),
            n_iter_no_change=int(self.n_iter_no_change),
            path=parse_path(self.path),
            post_solve=parse_post_solve(self.post_solve),
            refit=bool(self.refit),
            batch_size=int(self.batch_size),
            bias=float(self.bias),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    def _after(self, record: Training) -> ExtremeClassifier:
        """Return an estimator that repeats the choices of the first fit, because other choices change the scale of the
        scores."""
        again: PDSparse = clone(self).set_params(C=float(record.C[0]), lam=float(record.lam[0]))
        again._repeated = {
            "early_stopping": False,
            "repeat": n_passes(record),
            "post_solve": parse_post_solve(self.post_solve) if record.post_solved[0] else parse_post_solve("never"),
        }
        return again

    def _column_bytes(self) -> tuple[int, int]:
        return 190, 20  # each feature has a table with a few slots, even if it is unused
