"""The estimator of MACH: parameters, repetitions, and what the hashes could not tell apart."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from longtail import check
from longtail.errors import InputError
from longtail.matrix import normalize_rows
from longtail.methods.base import ExtremeClassifier, Progress
from longtail.methods.mach import hashing
from longtail.methods.mach.bases import check_base, fit_bases
from longtail.methods.mach.plan import Plan, plan
from longtail.methods.mach.training import SCHEDULES, Descent
from longtail.models import HashedModel
from longtail.models.buckets import WEIGHTS
from longtail.models.hashed import AGGREGATES
from longtail.models.hashing import MAX_BUCKETS, Hashes


class Mach(ExtremeClassifier):
    """R small classifiers over B random buckets of labels, in place of one over all labels: merged-average classifiers
    via hashing.

    The model that fits the memory you have: R B weights per feature, however many labels there are. Each of R hashes
    puts every label into one of B buckets, a classifier learns the buckets (softmax for one label per row, a sigmoid
    for each bucket otherwise), and a label's score is put together from the probabilities of its R buckets. Training
    takes time proportional to n_epochs nnz(X) R B, prediction nnz(x) R B + n_labels R. Repetitions are
    independent: each thread trains some 1,024 buckets at a time, in 4 bytes per bucket and feature, before it packs
    them, and threads do not change a byte of the result.

    Parameters
    ----------
    n_buckets : int, default=512
        B, the buckets of each repetition, from 2 to 65,536. More labels in a bucket mean more of them look alike. With
        n_buckets >= n_labels nothing is hashed: one softmax or sigmoid regression over the labels themselves.
    n_repetitions : int, default=8
        R, the number of hashes and of classifiers. `Mach.plan` proposes both numbers.
    aggregate : {"geometric", "mean", "median", "min"}, default="geometric"
        How R bucket probabilities become a score: their geometric mean; the paper's unbiased estimator; the same with
        the median; the count-min sketch's minimum. The geometric mean was the most accurate from 8 repetitions on, the
        minimum with fewer.
    learning_rate : float, default=4.0
        The step at the start, for rows of length 1 with up to 3 labels; rows of another length, or with more labels,
        are taken into account.
    n_epochs : int, default=5
        Passes over the rows.
    schedule : {"linear", "constant"}, default="linear"
        How the learning rate falls: to zero at the end, or not at all.
    batch_size : int, default=1
        Rows whose mean gradient makes a step. Larger batches take more epochs.
    l2 : float, default=0.0
        Penalty l2/2 |W|^2 on the mean loss.
    early_stopping : bool, default=False
        Hold rows out, stop a repetition when its accuracy on them stops to grow, and keep its best weights. Doubles the
        memory of training.
    validation_fraction : float, default=0.1
        Share of the rows that are held out.
    n_iter_no_change : int, default=2
        Epochs without gain after which a repetition stops.
    weights : {"int8", "float32"}, default="int8"
        How the model stores a weight. The byte loses no measurable accuracy.
    prune : float, default=0.2
        Weights smaller than this in absolute value, for rows of length 1, are cut to zero after training. 0 keeps all.
    bias : float, default=0.3
        Value of the constant feature added to every row; its weights learn the faster the larger it is. 0 adds none.
    base : scikit-learn classifier or None, default=None
        Trained in place of the built-in classifier, once per repetition; needs fit and predict_proba. The parameters
        from learning_rate to bias do not concern it. A model of bases can be saved if they are linear.
    warm_start : bool, default=False
        Keep the repetitions of the last fit, and train only those that a larger n_repetitions adds.
    normalize : bool, default=False
        Divide every row by its length, in training and, by the model itself, in prediction.
    n_jobs : int or None, default=None
        Threads. None and -1 mean all cores.
    random_state : int, RandomState or None, default=0
        Seed of hashes and shuffling; None draws another one for every fit.

    Attributes
    ----------
    model_ : HashedModel
        The frozen model.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether every training row had exactly one label.
    n_features_in_ : int
    n_indistinguishable_ : int
        Pairs of labels that share their bucket in every repetition; fit warns if there are any.
    n_iter_ : ndarray of n_repetitions ints
        Epochs that each repetition was trained; without `base` only.

    Examples
    --------
    >>> import longtail as lt
    >>> X = [[1, 0], [1, 1], [0, 1]]
    >>> clf = lt.Mach(n_buckets=4).fit(X, ["fruit", "apple", "red"])
    >>> clf.classes_[clf.predict_topk([[0, 2]], k=1).labels]
    array([['red']], dtype='<U5')

    References
    ----------
    MACH: embarrassingly parallel K-class classification in O(d log K) memory and O(K log K + d log K) time, instead of
    O(Kd). 2018. Published as: T. Medini, Q. Huang, Y. Wang, V. Mohan, A. Shrivastava: Extreme classification in log
    memory using count-min sketch. NeurIPS 2019.
    """

    method = "mach"
    feature_bytes = 40
    model_: HashedModel
    n_indistinguishable_: int
    n_iter_: np.ndarray

    def __init__(
        self,
        n_buckets: int = 512,
        n_repetitions: int = 8,
        *,
        aggregate: str = "geometric",
        learning_rate: float = 4.0,
        n_epochs: int = 5,
        schedule: str = "linear",
        batch_size: int = 1,
        l2: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        weights: str = "int8",
        prune: float = 0.2,
        bias: float = 0.3,
        base: BaseEstimator | None = None,
        warm_start: bool = False,
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_buckets = n_buckets
        self.n_repetitions = n_repetitions
        self.aggregate = aggregate
        self.learning_rate = learning_rate
        self.n_epochs = n_epochs
        self.schedule = schedule
        self.batch_size = batch_size
        self.l2 = l2
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.weights = weights
        self.prune = prune
        self.bias = bias
        self.base = base
        self.warm_start = warm_start
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    @staticmethod
    def plan(
        n_classes: int, n_features: int, *, memory: float | None = None, delta: float = 0.001,
        n_buckets: int | None = None, weights: str = "int8",
    ) -> Plan:  # fmt: skip
        """The numbers of buckets and repetitions for a memory budget, or for a probability of failure.

        memory : bytes that the model may take with all its weights stored; the most buckets that fit are proposed.
        delta : probability with which some two classes may share all their buckets (Theorem 2).
        n_buckets : B, if it is given; without it and without a budget, 32 as in the paper.

        >>> print(Mach.plan(105_033, 422_713, n_buckets=32))  # doctest: +NORMALIZE_WHITESPACE
        n_buckets=32, n_repetitions=9: at most 122.7 MB as int8 (one-vs-all: 1,447.6 times as much), 487.0 MB for each
        thread that trains, 121,741,344 multiplications and 945,297 lookups per prediction, some two classes alike with
        a probability of at most 0.00031
        """
        return plan(n_classes, n_features, memory=memory, delta=delta, n_buckets=n_buckets, weights=weights)

    def check_parameters(self) -> None:
        check.number(self, "n_buckets", least=2, whole=True)
        if self.n_buckets > MAX_BUCKETS:
            raise InputError(
                f"The 'n_buckets' parameter of Mach must be at most {MAX_BUCKETS:,}. Got {self.n_buckets:,}."
            )
        check.number(self, "n_repetitions", least=1, whole=True)
        check.choice(self, "aggregate", AGGREGATES)
        check.number(self, "learning_rate", above=0)
        check.number(self, "n_epochs", least=1, whole=True)
        check.choice(self, "schedule", SCHEDULES)
        check.number(self, "batch_size", least=1, whole=True)
        check.number(self, "l2", least=0)
        check.flag(self, "early_stopping")
        check.number(self, "validation_fraction", above=0)
        if self.validation_fraction >= 1:
            raise InputError(
                f"The 'validation_fraction' parameter of Mach must be below 1. Got {self.validation_fraction!r}."
            )
        check.number(self, "n_iter_no_change", least=1, whole=True)
        check.choice(self, "weights", tuple(WEIGHTS))
        check.number(self, "prune", least=0)
        check.number(self, "bias", least=0)
        check_base(self.base)
        check.flag(self, "warm_start")
        check.flag(self, "normalize")
        check.n_jobs(self)
        check.random_state(self)

    # --- training ----------------------------------------------------------------------------------------------------

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, progress: Progress) -> HashedModel:
        seed, old, n_labels = self._seed(), self._kept(X, Y), Y.shape[1]
        parts, n_iter, first = [], [], 0
        if old is not None:
            parts, n_iter, first = [old], [getattr(self, "n_iter_", np.empty(0, np.int64))], old.hashes.n_repetitions
        hashes = self._hashes(n_labels, range(first, self.n_repetitions), seed)
        if hashes is not None:
            in_labels = lambda done, total: progress(done * n_labels // total, n_labels)  # noqa: E731
            model, epochs = self._train(X, Y, hashes, seed, in_labels)
            parts.append(model)
            n_iter.append(epochs)
        model = replace(HashedModel.join(parts), aggregate=self.aggregate)
        self.n_iter_ = np.concatenate(n_iter)
        self._count_pairs(model.hashes)
        return model

    def _train(
        self, X: sp.csr_array, Y: sp.csr_array, hashes: Hashes, seed: int, progress: Progress
    ) -> tuple[HashedModel, np.ndarray]:
        """A model of these repetitions, and how many epochs each was trained."""
        multiclass = _one_label_per_row(Y)
        if self.base is not None:
            buckets: Any = fit_bases(self.base, X, Y, hashes, multiclass, self.n_jobs, progress)
            epochs = np.empty(0, np.int64)
        else:
            link = "softmax" if multiclass else "sigmoid"
            buckets, epochs = self._descent(seed).fit(X, Y, hashes, link, self.n_jobs, progress)
        model = HashedModel(hashes, buckets, X.shape[1], self.aggregate, multiclass, unit_rows=bool(self.normalize))
        return model, epochs

    def _descent(self, seed: int) -> Descent:
        return Descent(
            float(self.learning_rate), int(self.n_epochs), self.schedule, int(self.batch_size), float(self.l2),
            float(self.bias), bool(self.early_stopping), float(self.validation_fraction), int(self.n_iter_no_change),
            self.weights, float(self.prune), seed,
        )  # fmt: skip

    def fit_block(self, X: sp.csr_array, Y: sp.csr_array, repetition: int) -> HashedModel:
        """The model of one repetition of canonical X and Y, as `fit` has it; `HashedModel.join` puts them together.

        Pure: the same bytes wherever the processors are of one kind, for a `random_state` that is a number.
        """
        self.check_parameters()
        if not 0 <= repetition < self.n_repetitions:
            raise InputError(f"repetition must be a number from 0 to {self.n_repetitions - 1}; got {repetition!r}")
        seed = self._seed()
        hashes = self._hashes(Y.shape[1], range(repetition, repetition + 1), seed)
        if hashes is None or (hashes.perfect and repetition):
            raise InputError(f"{Y.shape[1]} labels in {self.n_buckets} buckets need no hashing: repetition 0 is all")
        return self._train(normalize_rows(X) if self.normalize else X, Y, hashes, seed, lambda done, total: None)[0]

    def _seed(self) -> int:
        state = self.random_state
        return int(state) if isinstance(state, Integral) else int(check_random_state(state).randint(2**31 - 1))

    def _hashes(self, n_labels: int, repetitions: range, seed: int) -> Hashes | None:
        """The hashes of these repetitions; None if there are none to train."""
        if self.n_buckets >= n_labels:
            return hashing.perfect(n_labels) if 0 in repetitions else None
        return hashing.draw(n_labels, self.n_buckets, repetitions, seed) if repetitions else None

    def _kept(self, X: sp.csr_array, Y: sp.csr_array) -> HashedModel | None:
        """The model of the last fit, if a warm start goes on from it."""
        if not self.warm_start or not hasattr(self, "model_"):
            return None
        old = self.model_
        sizes = old.n_labels, old.n_features, old.multiclass
        if sizes != (Y.shape[1], X.shape[1], _one_label_per_row(Y)):
            raise InputError("warm_start goes on with the same data, but labels or features differ from the last fit's")
        if old.hashes.n_repetitions > self.n_repetitions:
            raise InputError(
                f"warm_start can add repetitions, but n_repetitions={self.n_repetitions} is less than the "
                f"{old.hashes.n_repetitions} of the last fit"
            )
        return replace(old, label_names=None, feature_names=None, text_features=None)

    def _count_pairs(self, hashes: Hashes) -> None:
        self.n_indistinguishable_ = hashing.indistinguishable_pairs(hashes.table)
        if self.n_indistinguishable_:
            warnings.warn(
                f"the labels of {self.n_indistinguishable_:,} pairs share their bucket in all {hashes.n_repetitions} "
                "repetitions and always have the same score; increase n_repetitions or n_buckets (see Mach.plan)",
                UserWarning,
                stacklevel=4,
            )

    def saved_params(self) -> dict[str, Any]:
        """Without the base, which the model holds as weights, and `warm_start`, which concerns the run."""
        own = super().saved_params().items()
        return {name: value for name, value in own if not name.startswith("base") and name != "warm_start"}


def _one_label_per_row(Y: sp.csr_array) -> bool:
    return bool((np.diff(Y.indptr) == 1).all())
