"""The estimator of MACH: parameters, warm starts, and labels that the hashes cannot distinguish."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from longtail import check, training
from longtail.errors import InputError
from longtail.growth import Growth
from longtail.hybrid import HybridRows, as_csr
from longtail.matrix import one_label_per_row
from longtail.methods.base import ExtremeClassifier
from longtail.methods.mach.bases import BasesProblem, check_base
from longtail.methods.mach.descent import SCHEDULES, Descent
from longtail.methods.mach.problem import Kept, MachProblem, OldBuckets, RepetitionProblem
from longtail.methods.mach.sizes import Sizes, suggest_sizes
from longtail.models import HashedModel
from longtail.models.buckets import WEIGHTS, LinearBuckets
from longtail.models.hashed import AGGREGATES
from longtail.models.hashing import MAX_BUCKETS, Hashes


class Mach(ExtremeClassifier):
    """Merged-average classifiers via hashing: R small classifiers over B random buckets of labels, instead of one
    classifier over all labels.

    You choose the size of the model: it has R B weights per feature, for any number of labels. Each of R hashes puts
    every label into one of B buckets, and a classifier learns the buckets. It uses a softmax if every row has exactly
    one label, otherwise a sigmoid for each bucket. The score of a label combines the probabilities of its R buckets.
    Training takes time proportional to max_iter nnz(X) R B. Predicting a row takes time proportional to nnz(x) R B +
    n_labels R. Repetitions are independent. Each thread trains about 1,024 buckets at a time, with 4 bytes per bucket
    and feature, and then packs them. The number of threads does not change the model.

    Parameters
    ----------
    n_buckets : int, default=512
        B, the number of buckets of each repetition, from 2 to 65,536. With fewer buckets, more labels share a bucket.
        If n_buckets >= n_labels, nothing is hashed: the model is one softmax or sigmoid regression over the labels.
    n_repetitions : int, default=8
        R, the number of hashes and of classifiers. `Mach.suggest_sizes` suggests both numbers.
    aggregate : {"geometric", "mean", "rate", "median", "min"}, default="geometric"
        How R bucket probabilities become a score. "geometric" is their geometric mean. "mean" is the estimator of the
        paper, which is unbiased if every row has one label. "rate" is the same estimator on -log(1 - P), which is
        unbiased for independent labels, any number per row. "median" has the median instead of the mean, of
        probabilities or of rates, whichever suits the data. "min" is the minimum, as in a count-min sketch. In our
        tests, "geometric" was most accurate with 8 or more repetitions, "min" with fewer.
    learning_rate : float, default=4.0
        First learning rate, for rows of length 1 with up to 3 labels. It is adapted to other lengths and to rows with
        more labels.
    max_iter : int, default=5
        Number of epochs: passes over the rows.
    schedule : {"linear", "constant"}, default="linear"
        How the learning rate changes: "linear" decreases it to zero at the end, "constant" does not change it.
    batch_size : int, default=1
        Number of rows per step, which uses their mean gradient. Larger batches need more epochs.
    lam : float, default=0.0
        Weight of the penalty lam/2 |W|^2, which is added to the mean loss.
    early_stopping : bool, default=False
        Hold rows out, stop a repetition when its accuracy on them no longer improves, and keep its best weights. This
        doubles the memory of training.
    validation_fraction : float, default=0.1
        Share of the rows that are held out.
    n_iter_no_change : int, default=2
        A repetition stops after this many epochs without improvement.
    weights : {"int8", "float32"}, default="int8"
        How the model stores a weight. "int8" loses no measurable accuracy.
    prune : float, default=0.2
        After training, weights with an absolute value below `prune` are set to zero. The value is meant for rows of
        length 1. 0 keeps all weights.
    bias : float, default=0.3
        Value of the constant feature that is added to every row. With a larger value, its weights are learned faster. 0
        adds none.
    base : scikit-learn classifier or None, default=None
        Replaces the built-in classifier. A clone is trained for each repetition. It needs fit and predict_proba, or is
        `OneVsAll(loss="logistic")`. The parameters from learning_rate to bias do not apply to it. The model can be
        saved only if the bases are linear.
    first_repetition : int, default=0
        Number of the first repetition. Repetitions with different numbers have different hashes, so they can be trained
        apart, in any processes or machines, and joined by `Mach.join`.
    warm_start : bool, default=False
        Keep the repetitions of the last fit, and train only those that a larger n_repetitions adds.
    normalize : bool, default=False
        Divide every row by its length. The model does the same in prediction.
    calibrate : bool or str, default=False
        Train again without some rows, and learn probabilities and a threshold on these. The weights stay those of all
        rows. "held-out:fraction=0.2" needs one extra fit, on the other rows. "cross-fit:folds=5" needs one extra fit
        per fold and suits small data. True means "cross-fit" for fewer than 3,000 rows and "held-out" otherwise.
    n_jobs : int or None, default=None
        Number of threads. None and -1 mean all cores.
    random_state : int, RandomState or None, default=0
        Seed of hashes and shuffling. None draws a new seed for every fit.
    verbose : int, default=0
        1 prints a line about the progress of a fit every 10 seconds, 2 every second; 0 prints nothing.

    Attributes
    ----------
    model_ : HashedModel
        The frozen model.
    classes_ : ndarray
        Names of the labels; `classes_[top.labels]` turns predictions into names.
    multiclass_ : bool
        Whether y was 1-d, so that `predict` returns one class per row.
    n_features_in_ : int
    n_indistinguishable_ : int
        Number of pairs of labels that share their bucket in every repetition; fit warns if there are any.
    n_iter_ : int
        Largest number of epochs over all repetitions; `training_.n_iter` has one number for each. With `base`, the
        `n_iter_` of the bases, or 0 if they have none.
    training_ : Training
        The record of the fit, with an entry per repetition. Figures of the built-in classifier: `best_iter` is the
        epoch whose weights were kept. `validation_score` is the share of held-out rows whose best bucket was right
        after that epoch (NaN without early stopping).

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
    takes_dense = True
    takes_hybrid = True
    model_: HashedModel
    # B and R are those of ODP in Table 2. The paper trains plain logistic regressions, without a penalty.
    _paper: ClassVar[Mapping[str, Any]] = {
        "n_buckets": 32,
        "n_repetitions": 25,
        "aggregate": "mean",
        "lam": 0.0,
        "early_stopping": False,
        "weights": "float32",
        "prune": 0.0,
    }

    def __init__(
        self,
        n_buckets: int = 512,
        n_repetitions: int = 8,
        *,
        aggregate: str = "geometric",
        learning_rate: float = 4.0,
        max_iter: int = 5,
        schedule: str = "linear",
        batch_size: int = 1,
        lam: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        weights: str = "int8",
        prune: float = 0.2,
        bias: float = 0.3,
        base: BaseEstimator | None = None,
        first_repetition: int = 0,
        warm_start: bool = False,
        normalize: bool = False,
        calibrate: bool | str = False,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_buckets = n_buckets
        self.n_repetitions = n_repetitions
        self.aggregate = aggregate
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.schedule = schedule
        self.batch_size = batch_size
        self.lam = lam
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.weights = weights
        self.prune = prune
        self.bias = bias
        self.base = base
        self.first_repetition = first_repetition
        self.warm_start = warm_start
        self.normalize = normalize
        self.calibrate = calibrate
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @staticmethod
    def suggest_sizes(
        n_classes: int, n_features: int, *, memory: float | None = None, delta: float = 0.001,
        n_buckets: int | None = None, weights: str = "int8",
    ) -> Sizes:  # fmt: skip
        """Suggest the numbers of buckets and repetitions for a memory budget, or for a probability of failure.

        Parameters
        ----------
        n_classes, n_features : int
        memory : float, optional
            Largest size of the model in bytes, if all its weights are stored. The largest number of buckets that fits
            is suggested, a power of 2 with at least 4 repetitions, and then as many repetitions as fit, up to 64.
        delta : float, default=0.001
            Largest probability that some two classes share all their buckets (Theorem 2).
        n_buckets : int, optional
            B, if it is given. Without it and without a memory budget, B is 32, as in the paper.
        weights : {"int8", "float32"}, default="int8"

        Examples
        --------
        >>> print(Mach.suggest_sizes(105_033, 422_713, n_buckets=32))  # doctest: +NORMALIZE_WHITESPACE
        n_buckets=32, n_repetitions=9: at most 122.7 MB as int8 (one-vs-all: 1,447.6 times as much), 487.0 MB per
        training thread, 121,741,344 multiplications and 945,297 lookups per prediction, probability that some two
        classes are indistinguishable at most 0.00031
        """
        return suggest_sizes(n_classes, n_features, memory=memory, delta=delta, n_buckets=n_buckets, weights=weights)

    @classmethod
    def join(cls, parts: Sequence[Mach]) -> Mach:
        """Join repetitions that were trained apart on the same data, with the same parameters and seed.

        The parts differ in `first_repetition` only. The result has the same model as one fit of all repetitions, if the
        parts come in the order of their repetitions.
        """
        if not parts or any(not hasattr(part, "model_") for part in parts):
            raise InputError("Mach.join needs at least one fitted Mach")
        models = [part.model_ for part in parts]
        whole: Mach = clone(parts[0]).set_params(n_repetitions=sum(model.hashes.n_repetitions for model in models))
        whole.model_ = HashedModel.joined(models)
        whole.training_ = training.joined([part.training_ for part in parts])
        whole.growth_ = Growth.common([part.growth_ for part in parts])
        whole._expose()
        return whole

    @property
    def n_indistinguishable_(self) -> int:
        return self.model_.hashes.n_indistinguishable

    def _check_parameters(self) -> None:
        check.number(self, "n_buckets", least=2, whole=True)
        if self.n_buckets > MAX_BUCKETS:
            raise InputError(
                f"The 'n_buckets' parameter of Mach must be at most {MAX_BUCKETS:,}. Got {self.n_buckets:,}."
            )
        check.number(self, "n_repetitions", least=1, whole=True)
        check.choice(self, "aggregate", AGGREGATES)
        check.number(self, "learning_rate", above=0)
        check.number(self, "max_iter", least=1, whole=True)
        check.choice(self, "schedule", SCHEDULES)
        check.number(self, "batch_size", least=1, whole=True)
        check.number(self, "lam", least=0)
        check.flag(self, "early_stopping")
        check.fraction(self, "validation_fraction")
        check.number(self, "n_iter_no_change", least=1, whole=True)
        check.choice(self, "weights", tuple(WEIGHTS))
        check.number(self, "prune", least=0)
        check.number(self, "bias", least=0)
        check_base(self.base)
        check.number(self, "first_repetition", least=0, whole=True)
        check.flag(self, "warm_start")

    def _problem(self, X: sp.csr_array | np.ndarray | HybridRows, Y: sp.csr_array) -> RepetitionProblem:
        seed = check.seed(self.random_state)
        link = "softmax" if one_label_per_row(Y) else "sigmoid"
        old = self._old_buckets(Y.shape[1], link)
        kept = self._kept(X, Y, link) if self._extras.old is None else None
        hashes = self._hashes(Y.shape[1], seed, kept) if old is None else old.hashes
        if hashes.n_indistinguishable:
            warnings.warn(
                f"labels that share their bucket in all {hashes.n_repetitions} repetitions always have the same score "
                f"(pairs of such labels: {hashes.n_indistinguishable:,}); increase n_repetitions or n_buckets (see "
                "Mach.suggest_sizes)",
                UserWarning,
                stacklevel=3,
            )
        if self.base is not None:
            rows = as_csr(X) if isinstance(X, HybridRows) else X
            return BasesProblem(rows, Y, hashes, self.base, self.aggregate, kept, seed=seed)
        return MachProblem(
            X, Y, hashes, self._descent(seed, is_update=old is not None), link, self.aggregate, kept, old
        )

    def _column_bytes(self) -> tuple[int, int]:
        return 30, 60

    def _descent(self, seed: int, *, is_update: bool) -> Descent:
        return Descent(
            learning_rate=float(self.learning_rate),
            max_iter=int(self.max_iter),
            schedule=self.schedule,
            batch_size=int(self.batch_size),
            lam=float(self.lam),
            bias=float(self.bias),
            early_stopping=bool(self.early_stopping) and not is_update,
            validation_fraction=float(self.validation_fraction),
            n_iter_no_change=int(self.n_iter_no_change),
            weights=self.weights,
            prune=float(self.prune),
            seed=seed,
        )

    def _hashes(self, n_labels: int, seed: int, kept: Kept | None) -> Hashes:
        """Return the hashes of all repetitions. The repetitions that are kept come first."""
        if self.n_buckets >= n_labels:
            return Hashes.identity(n_labels)
        old = [] if kept is None else [kept.model.hashes]
        first = int(self.first_repetition) + sum(hashes.n_repetitions for hashes in old)
        last = int(self.first_repetition) + int(self.n_repetitions)
        new = Hashes.draw(n_labels, int(self.n_buckets), range(first, last), seed)
        return Hashes.joined([*old, new])

    def _old_buckets(self, n_labels: int, link: str) -> OldBuckets | None:
        """Return what an update begins with. None if this is no update, or if it must begin at zero.

        It must with scikit-learn's bases, if the link is another one because the rows no longer have one label each,
        or if there are now too many labels for a bucket each.
        """
        old = self._extras.old
        if old is None or self.base is not None:
            return None
        assert isinstance(old.model, HashedModel)
        buckets, hashes = old.model.buckets, old.model.hashes
        too_many = hashes.is_identity and n_labels > self.n_buckets
        if too_many or not isinstance(buckets, LinearBuckets) or (buckets.link, buckets.bias) != (link, self.bias):
            return None
        return OldBuckets(hashes.grown(n_labels), buckets, old.changed, old.touched)

    def _kept(self, X: Any, Y: sp.csr_array, link: str) -> Kept | None:
        """Return the last fit if a warm start continues from it, otherwise None."""
        if not self.warm_start or not hasattr(self, "model_"):
            return None
        old = self.model_
        if (old.n_labels, old.n_features) != (Y.shape[1], X.shape[1]):
            raise InputError(
                f"warm_start needs the data of the last fit, which had {old.n_labels:,} labels and {old.n_features:,} "
                f"features, but this data has {Y.shape[1]:,} and {X.shape[1]:,}; set warm_start=False to begin again"
            )
        if old.hashes.n_repetitions > self.n_repetitions:
            raise InputError(
                f"warm_start can add repetitions, but n_repetitions={self.n_repetitions} is less than the "
                f"{old.hashes.n_repetitions} of the last fit"
            )
        self._check_kept(old, Y.shape[1], link)
        return Kept(old, self.training_)

    def _check_kept(self, old: HashedModel, n_labels: int, link: str) -> None:
        """Raise InputError if the repetitions of the last fit cannot be in one model with the new ones."""
        now: dict[str, Any] = {"n_buckets": min(int(self.n_buckets), n_labels), "normalize": bool(self.normalize)}
        then: dict[str, Any] = {"n_buckets": old.hashes.n_buckets, "normalize": old.normalize}
        if self.base is None:
            now |= {"linear": True, "link": link, "bias": float(self.bias), "weights": self.weights}
            then["linear"] = isinstance(old.buckets, LinearBuckets)
            if isinstance(old.buckets, LinearBuckets):
                then |= {"link": old.buckets.link, "bias": old.buckets.bias, "weights": old.buckets.codes.dtype.name}
        different = [name for name in now if now[name] != then.get(name)]
        if different:
            raise InputError(
                "warm_start keeps the repetitions of the last fit, but these differ from the new ones in "
                f"{', '.join(different)}; use the parameters and labels of the last fit, or warm_start=False"
            )

    def _saved_params(self) -> dict[str, Any]:
        """Return the saved parameters without `base`, because a model that can be saved holds its weights."""
        return {name: value for name, value in super()._saved_params().items() if name != "base"}
