"""The estimator of MEMOIR: its parameters, and their checks before any data is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from longtail import check
from longtail.errors import InputError
from longtail.hybrid import Rows
from longtail.methods.base import ExtremeClassifier
from longtail.methods.memoir import oracles, schedules
from longtail.methods.memoir.parameters import of_paper, resolve, rows_per_batch
from longtail.methods.memoir.problem import MemoirProblem


class Memoir(ExtremeClassifier):
    """Crammer-Singer multi-class machine, trained by stochastic steps against rivals from an oracle (MEMOIR).

    For a row x with the class y, an oracle finds the rival r: the class with the largest score among all others. If the
    margin x.w_y - x.w_r is below 1, a step moves w_y towards x and w_r away from it. The oracle may be approximate. It
    is then faster, and the model is often better. All classes are trained together, and the weights are sparse vectors
    throughout. A row with several labels is learned once per label, and none of its labels can be its rival.

    A parameter that is None has the value that worked best on our data. `Memoir.paper()` has the values of the paper.

    Parameters
    ----------
    penalty : {"l2", "l1"}, default="l2"
        "l1" sets weights to zero during training (truncation), for the smallest models.
    oracle : str, default="exact"
        How rivals are found; options follow a colon.

        - "exact": inverted lists give the scores of all classes.
        - "sw-graph:links=8,beam=4,drift=1,likely=yes": a walk in a graph that links classes to their nearest
          neighbours. A class has at most `links` links, and a search keeps the `beam` best classes. A class is inserted
          again after it has moved by `drift` times its length.
        - "simple-lsh:bits=64,candidates=16,tables=0,augment=no,likely=yes": nearest neighbours among binary codes of
          length `bits`, a multiple of 64. The `candidates` classes with the nearest codes are scored exactly. With
          `tables=0` all codes are compared. Otherwise the code is divided into keys of as many hash tables, and only
          classes that share a key with the row are compared. `augment` says whether an additional coordinate puts all
          classes on a sphere, as in the paper on SimpleLSH.

        With `likely=yes`, both also try the classes that have large weights for the features of the row and the recent
        rivals of its class. The oracles of the paper do not.
    lam : float or None, default=None
        Weight of the penalty. None: 0 for l2 and 1e-6 for l1. Paper: 1 and 1e-6.
    rho : float or None, default=None
        Margin of the hinge loss max(0, 1 - margin / rho). None: 1.
    learning_rate : float or None, default=None
        First learning rate, in units of 1 / mean squared row length. None: 0.5. Paper: 0.1.
    schedule : {"linear", "inverse:step=0.02"} or None, default=None
        How the learning rate decreases. "linear": to 0 at the end. "inverse": learning_rate / (1 + step t) in batch t.
        None: linear. Paper: inverse.
    batch_size : int, str or None, default=None
        Number of rows of a batch: the penalty is applied once per batch. "root:factor=100" stands for 100 times the
        square root of the number of classes. None: 64. Paper: "root:factor=100".
    refresh : int or None, default=None
        Number of rows of a batch whose rivals are found with the same weights, in several threads. None: all rows of
        the batch. Paper: 1, which is slow and uses one thread.
    max_iter : int or None, default=None
        Passes over the rows. None: 6.
    n_batches : int or None, default=None
        Number of batches; it replaces `max_iter`. Paper: 25.
    project : bool or None, default=None
        Project the weights on the ball |W| <= 1 / sqrt(lam) after every batch (l2). None: no. Paper: yes.
    average : bool or None, default=None
        The model has the average of the weights after each batch, instead of the last weights. This doubles the memory
        of the weights. None: no.
    bias : float or None, default=None
        Value of the constant feature that is added to every row; 0 adds none. None: 0.3. Paper: 0.
    n_groups : int or None, default=None
        The classes are divided into this many groups of at least 64 classes. In each query, rivals come from one
        random group. With `n_groups=1` they come from all classes. None: 4. Paper: 1.
    prune : float or None, default=None
        After training, weights with an absolute value below `prune` are set to zero. The value is meant for rows with a
        mean squared length of 1. None: 0 for l2 and 0.1 for l1. Paper: 0.
    truncate_every : int or None, default=None
        With l1: a class is truncated only every `truncate_every`-th time that a batch changes it. The postponed amounts
        are summed. None: 64. Paper: 1.
    truncate_limit : float or None, default=None
        With l1: a class is truncated only if the weights that become zero have at most this share of its length.
        None: 1, that is, always. Paper: 0.1.
    early_stopping : bool, default=False
        Hold out some rows, compute macro-F1 (`metrics.maf1`) on them after every pass (after every batch if that is
        longer), and stop when it no longer improves. The model has the weights of the best score.
    validation_fraction : float, default=0.1
        Share of the rows that is held out for early stopping.
    n_iter_no_change : int, default=5
        Training stops after this many passes without a better score.
    normalize : bool, default=False
        Divide every row by its length. The model does the same in prediction.
    calibrate : bool or str, default=False
        Train again without some rows, and learn probabilities and a threshold on these. The weights stay those of all
        rows. "held-out:fraction=0.2" needs one extra fit, on the other rows. "cross-fit:folds=5" needs one extra fit
        per fold and suits small data. True means "cross-fit" for fewer than 3,000 rows and "held-out" otherwise.
    n_jobs : int or None, default=None
        Number of threads that search for rivals. None and -1 mean all cores. The number does not change the model.
    random_state : int, RandomState or None, default=0
        Seed of the order of rows, the held-out rows and the random choices of the oracle. None takes a new seed each
        time.
    verbose : int, default=0
        1 prints a line about the progress of a fit every 10 seconds, 2 every second; 0 prints nothing.

    Attributes
    ----------
    model_ : LinearModel
        The frozen model; `model_.W` is a csr_array with one row per class. Prediction with it is exact.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether y was 1-d, so that `predict` returns one class per row.
    n_features_in_ : int
    n_iter_ : int
        Number of passes over the rows. The last one may be incomplete.
    training_ : Training
        The record of the fit. Its figures:

        - `validation_scores`: macro-F1 on the held-out rows after each pass; empty without early stopping
        - `n_batches`: the number of batches
        - `recall`: how often the oracle found the true rival, on a sample of `n_queries` rows during training
        - `excess`: the mean excess: the margin over the rival that was found, minus the true margin
        - `epsilon`, `delta`: for at most a share delta[k] of the sample, the excess is above epsilon[k]

    Examples
    --------
    >>> import longtail as lt
    >>> X = [[1, 0], [1, 0.2], [0, 1]]
    >>> lt.Memoir().fit(X, ["fruit", "fruit", "red"]).predict([[0, 2]])
    array(['red'], dtype='<U5')

    References
    ----------
    A. Belyy et al.: MEMOIR: Multi-class extreme classification with inexact margin. 2018.
    B. Neyshabur, N. Srebro: On symmetric and asymmetric LSHs for inner product search. ICML 2015.
    Y. Malkov, A. Ponomarenko, A. Logvinov, V. Krylov: Approximate nearest neighbor algorithm based on navigable small
    world graphs. Information Systems 45, 2014.
    """

    method = "memoir"
    takes_hybrid = True
    matches_scale = 1.0

    def __init__(
        self,
        penalty: str = "l2",
        *,
        oracle: str = "exact",
        lam: float | None = None,
        rho: float | None = None,
        learning_rate: float | None = None,
        schedule: str | None = None,
        batch_size: int | str | None = None,
        refresh: int | None = None,
        max_iter: int | None = None,
        n_batches: int | None = None,
        project: bool | None = None,
        average: bool | None = None,
        bias: float | None = None,
        n_groups: int | None = None,
        prune: float | None = None,
        truncate_every: int | None = None,
        truncate_limit: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        normalize: bool = False,
        calibrate: bool | str = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.penalty = penalty
        self.oracle = oracle
        self.lam = lam
        self.rho = rho
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.batch_size = batch_size
        self.refresh = refresh
        self.max_iter = max_iter
        self.n_batches = n_batches
        self.project = project
        self.average = average
        self.bias = bias
        self.n_groups = n_groups
        self.prune = prune
        self.truncate_every = truncate_every
        self.truncate_limit = truncate_limit
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.normalize = normalize
        self.calibrate = calibrate
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Return Memoir as the paper describes it, with the settings of its Table 4. `parameters` replace single ones.

        `Memoir.paper()` is MEMOIR-l2, `Memoir.paper(penalty="l1")` is MEMOIR-l1, with the lam of the paper's l1, and
        `Memoir.paper(oracle="simple-lsh")` is MEMOIR-LSH. An oracle has the paper's options unless they are given.
        """
        return cls(**of_paper(parameters))

    def _check_parameters(self) -> None:
        check.choice(self, "penalty", ("l2", "l1"))
        oracles.parse(self.oracle)
        if self.schedule is not None:
            schedules.parse(self.schedule)
        for name in ("project", "average"):
            if getattr(self, name) is not None:
                check.flag(self, name)
        for name in ("lam", "bias", "prune", "truncate_limit"):
            if getattr(self, name) is not None:
                check.number(self, name, least=0)
        for name in ("refresh", "max_iter", "n_batches", "n_groups", "truncate_every"):
            if getattr(self, name) is not None:
                check.number(self, name, least=1, whole=True)
        for name in ("rho", "learning_rate"):
            if getattr(self, name) is not None:
                check.number(self, name, above=0)
        if isinstance(self.batch_size, str):
            rows_per_batch(self.batch_size, 1)
        elif self.batch_size is not None:
            check.number(self, "batch_size", least=1, whole=True)
        check.flag(self, "early_stopping")
        check.fraction(self, "validation_fraction")
        check.number(self, "n_iter_no_change", least=1, whole=True)
        values = resolve(self)
        if values.penalty == "l2" and values.lam * values.learning_rate >= 1:
            raise InputError(
                f"lam {values.lam:g} times learning_rate {values.learning_rate:g} must be below 1 with penalty 'l2', "
                "because each batch multiplies the weights by 1 - lam learning_rate; decrease one of them"
            )

    def _problem(self, X: Rows, Y: sp.csr_array) -> MemoirProblem:
        parameters, old = resolve(self), self._extras.old
        if old is not None:
            parameters = replace(parameters, early_stopping=False)
        return MemoirProblem(X, Y, parameters, check.seed(self.random_state), old)

    def _column_bytes(self) -> tuple[int, int]:
        name, options = oracles.parse(self.oracle)
        return oracles.ORACLES[name].column_bytes(options)
