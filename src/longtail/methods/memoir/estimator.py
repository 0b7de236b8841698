"""The estimator of MEMOIR: parameters, the pairs to learn, early stopping, and what was measured on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from longtail import check, parallel
from longtail.errors import InputError
from longtail.methods.base import ExtremeClassifier, Progress
from longtail.methods.memoir.oracles import Exact, Oracle, SimpleLSH, SWGraph
from longtail.methods.memoir.presets import NAMES, Settings, settings_of
from longtail.methods.memoir.report import OracleReport
from longtail.methods.memoir.sgd import Penalty
from longtail.methods.memoir.store import Weights
from longtail.methods.memoir.training import HeldOut, Problem, run, schedule_of
from longtail.models import LinearModel

ORACLES = ("exact", "sw-graph", "simple-lsh")
SMALLEST_GROUP = 64  # classes: of fewer, a query reads all


class Memoir(ExtremeClassifier):
    """Crammer-Singer multi-class machine, trained stochastically against rivals from a search structure (MEMOIR).

    Every step takes rows x with their class y, asks an oracle for the class r that scores highest among all others, and
    where the margin x.w_y - x.w_r is below 1 moves w_y towards x and w_r away from it. The oracle may be inexact: it
    then costs less, and the model is often better for it. One model for all classes at once, small and quick to train;
    weights are sparse vectors throughout. Rows with several labels are learned once per label; none of a row's labels
    is its rival. MEMOIR-l2, MEMOIR-l1 and MEMOIR-LSH of the paper are `preset="paper"` with oracle="sw-graph", with
    that and penalty="l1", and with oracle="simple-lsh".

    Parameters
    ----------
    penalty : {"l2", "l1"}, default="l2"
        "l1" cuts weights to zero while training (truncation), for the smallest models.
    oracle : {"exact", "sw-graph", "simple-lsh"}, default="exact"
        How rivals are found: inverted lists, a graph of similar classes, or Hamming search among sign codes.
    preset : {"default", "paper"}, default="default"
        Where parameters that are None get their values: "default" is what works, "paper" the algorithm and the settings
        of the paper as written.
    lam : float or None, default=None
        Weight of the penalty. Presets: "default" 0 for l2 and 1e-6 for l1, "paper" 1 and 1e-6.
    eta0 : float or None, default=None
        First learning rate, in units of 1 / mean squared row length. Presets: 0.5, "paper" 0.1.
    schedule : {"linear", "inverse"} or None, default=None
        "linear": the rate falls to 0 at the end. "inverse": eta0 / (1 + eta_step t) in batch t. Presets: "linear",
        "paper" "inverse".
    eta_step : float, default=0.02
        For schedule "inverse".
    batch_size : int or None, default=None
        Rows whose rivals are sought with the same weights. Presets: 64, "paper" 100 times the square root of the number
        of classes (which 0 stands for).
    passes : float or None, default=None
        How often training sees each row. Preset "default": 6.
    max_iter : int or None, default=None
        Number of batches, where it is not 0; it then takes the place of `passes`. Preset "paper": 25.
    project : bool or None, default=None
        Project on the ball |W| <= 1 / sqrt(lam) after every batch (l2). Presets: no, "paper" yes.
    bias : float or None, default=None
        Value of the constant feature added to every row; 0 adds none. Presets: 0.3, "paper" 0.
    n_groups : int or None, default=None
        Rivals in a batch come from one of so many groups of classes, drawn for the batch; with 1, from all. No group is
        made smaller than 64 classes. Presets: 4, "paper" 1.
    n_bits : int, default=64
        Length of the codes of "simple-lsh", a multiple of 64.
    augment : bool or None, default=None
        Whether codes of "simple-lsh" put classes on a sphere by one more coordinate, as in its paper, or just compare
        directions. Presets: no, "paper" yes.
    n_candidates : int, default=16
        How many of the classes nearest in Hamming distance "simple-lsh" scores exactly.
    n_links : int, default=8
        Links of a class in "sw-graph" at most.
    beam : int, default=4
        Classes that a search in "sw-graph" keeps in view.
    drift : float, default=1.0
        A class is placed in the graph anew when it has moved by this share of its length.
    validation : float, default=0.0
        Share of the rows held out. Then macro-F1 on them decides: training stops when `patience` looks (one after every
        pass over the rows, or every batch if that is longer) have brought nothing better, and the best weights seen
        are the result.
    patience : int, default=5
    prune : float or None, default=None
        Weights smaller than this in absolute value, for rows of mean squared length 1, are cut to zero after training.
        Presets: "default" 0 for l2 and 0.1 for l1, "paper" 0.
    truncate_every : int or None, default=None
        With l1, a class is truncated every so many times that a batch touches it, for all of them at once. Presets: 64,
        "paper" 1.
    normalize : bool, default=False
        Divide every row by its length, in training and, by the model itself, in prediction.
    n_jobs : int or None, default=None
        Threads for the queries of a batch. None and -1 mean all cores. Their number does not change the model.
    random_state : int, RandomState or None, default=0
        Seed of the order of rows, and of what oracles draw. None takes another one each time.

    Attributes
    ----------
    model_ : LinearModel
        The frozen model; `model_.W` is a csr_array with one row per class. Prediction through it is exact.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether every training row had exactly one label.
    n_features_in_ : int
    oracle_report_ : OracleReport
        Recall of the oracle, and the (epsilon, delta) of its margins, on a sample of the queries of training.
    n_iter_ : int
        Batches that were trained on.
    validation_scores_ : list of float
        Macro-F1 at every look at the held-out rows.

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
    progress_unit = "batches"
    oracle_report_: OracleReport
    n_iter_: int
    validation_scores_: list[float]

    def __init__(
        self,
        penalty: str = "l2",
        *,
        oracle: str = "exact",
        preset: str = "default",
        lam: float | None = None,
        eta0: float | None = None,
        schedule: str | None = None,
        eta_step: float = 0.02,
        batch_size: int | None = None,
        passes: float | None = None,
        max_iter: int | None = None,
        project: bool | None = None,
        bias: float | None = None,
        n_groups: int | None = None,
        n_bits: int = 64,
        augment: bool | None = None,
        n_candidates: int = 16,
        n_links: int = 8,
        beam: int = 4,
        drift: float = 1.0,
        validation: float = 0.0,
        patience: int = 5,
        prune: float | None = None,
        truncate_every: int | None = None,
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.penalty = penalty
        self.oracle = oracle
        self.preset = preset
        self.lam = lam
        self.eta0 = eta0
        self.schedule = schedule
        self.eta_step = eta_step
        self.batch_size = batch_size
        self.passes = passes
        self.max_iter = max_iter
        self.project = project
        self.bias = bias
        self.n_groups = n_groups
        self.n_bits = n_bits
        self.augment = augment
        self.n_candidates = n_candidates
        self.n_links = n_links
        self.beam = beam
        self.drift = drift
        self.validation = validation
        self.patience = patience
        self.prune = prune
        self.truncate_every = truncate_every
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_parameters(self) -> None:
        check.choice(self, "penalty", ("l2", "l1"))
        check.choice(self, "oracle", ORACLES)
        check.choice(self, "preset", NAMES)
        if self.schedule is not None:
            check.choice(self, "schedule", ("linear", "inverse"))
        for name in ("project", "augment"):
            if getattr(self, name) is not None:
                check.flag(self, name)
        for name in ("lam", "bias", "passes", "prune"):
            if getattr(self, name) is not None:
                check.number(self, name, least=0)
        for name, least in (("batch_size", 0), ("max_iter", 0), ("n_groups", 1), ("truncate_every", 1)):
            if getattr(self, name) is not None:
                check.number(self, name, least=least, whole=True)
        if self.eta0 is not None:
            check.number(self, "eta0", above=0)
        for name in ("eta_step", "drift", "validation"):
            check.number(self, name, least=0)
        for name in ("n_bits", "n_candidates", "n_links", "beam", "patience"):
            check.number(self, name, least=1, whole=True)
        check.flag(self, "normalize")
        check.n_jobs(self)
        check.random_state(self)
        settings = settings_of(self)
        if self.n_bits % 64:
            raise InputError(f"The 'n_bits' parameter of Memoir must be a multiple of 64. Got {self.n_bits} instead.")
        if self.validation >= 1:
            raise InputError(f"The 'validation' parameter of Memoir must be below 1. Got {self.validation} instead.")
        if self.penalty == "l2" and settings.lam * settings.eta0 >= 1:
            raise InputError(
                f"lam {settings.lam:g} times eta0 {settings.eta0:g} must be below 1 with penalty 'l2', because a step "
                "multiplies the weights by 1 - lam eta; decrease one of them"
            )

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, progress: Progress) -> LinearModel:
        settings = settings_of(self)
        draw = check_random_state(self.random_state)
        order_seed, oracle_seed = (int(draw.randint(2**31 - 1)) for _ in range(2))
        held_out = None
        if self.validation:
            chosen = np.zeros(X.shape[0], bool)
            chosen[draw.permutation(X.shape[0])[: round(self.validation * X.shape[0])]] = True
            held_out = HeldOut(X[chosen], Y[chosen], self.patience, self.n_jobs) if Y[chosen].nnz else None
            X, Y = (X[~chosen], Y[~chosen]) if held_out else (X, Y)
        problem = Problem.of(X, Y, float(settings.bias), float(settings.prune))
        schedule = schedule_of(settings, float(self.eta_step), len(problem.pairs.rows), Y.shape[1])
        penalty = Penalty(
            float(settings.lam), self.penalty == "l1", bool(settings.project), int(settings.truncate_every)
        )
        with parallel.Team(self.n_jobs) as team:
            oracle = self._oracle(settings, problem, team, oracle_seed)
            model, examiner, self.n_iter_ = run(problem, oracle, schedule, penalty, held_out, order_seed, progress)
        self.oracle_report_ = examiner.report(self.oracle)
        self.validation_scores_ = [] if held_out is None else held_out.scores
        return model

    @property
    def feature_bytes(self) -> int:  # type: ignore[override]
        """Champions, and directions of codes; heads of lists are not touched."""
        return {"exact": 12, "sw-graph": 128, "simple-lsh": 128 + self.n_bits}[self.oracle]

    @property
    def label_bytes(self) -> int:  # type: ignore[override]
        """Weights and names; and links, or projections."""
        return {"exact": 55, "sw-graph": 180, "simple-lsh": 110 + 4 * self.n_bits}[self.oracle]

    def _oracle(self, settings: Settings, problem: Problem, team: parallel.Team, seed: int) -> Oracle:
        """The oracle over weights that are still zero."""
        n_groups = min(settings.n_groups, max(1, problem.shape[0] // SMALLEST_GROUP))
        exact = self.oracle == "exact"
        weights = Weights(*problem.shape, indexed=exact, n_groups=n_groups if exact else 1)
        where = weights, problem.rows, problem.labels, team, seed
        if exact:
            return Exact(*where, n_groups=n_groups)
        if self.oracle == "sw-graph":
            return SWGraph(
                *where, n_groups=n_groups, n_links=int(self.n_links), beam=int(self.beam), drift=float(self.drift)
            )
        return SimpleLSH(
            *where,
            n_groups=n_groups,
            n_bits=int(self.n_bits),
            n_candidates=int(self.n_candidates),
            augment=bool(settings.augment),
        )

    def measured(self) -> dict[str, Any]:
        if not hasattr(self, "oracle_report_"):
            return {}
        return {"oracle_report": self.oracle_report_.to_json(), "n_iter": self.n_iter_}

    def _restore(self, measured: Mapping[str, Any]) -> None:
        self.oracle_report_ = OracleReport.from_json(measured["oracle_report"])
        self.n_iter_ = int(measured["n_iter"])
