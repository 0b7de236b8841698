"""MACH with a scikit-learn classifier as base: Algorithm 1 of the paper, with one classifier per repetition.

A base is linear if its `coef_` and `intercept_` reproduce its `predict_proba` through a known link. The model then
stores the weights and can be saved. Any other base is kept as an object, and the model calls its `predict_proba`.

    X, Y -> BasesProblem (rows, labels, hashes) -> one block per repetition -> fit of a clone -> Part(the fitted base)
         -> stack -> HashedModel

This differs from other problems: a part holds the fitted base in an array of objects, because a base may be any
object. Such a part cannot be sent to another process or written to disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from longtail.errors import InputError
from longtail.matrix import canonical_csr, one_label_per_row
from longtail.methods.forecast import Forecast
from longtail.methods.mach.forecast import of_bases
from longtail.methods.mach.problem import Kept, RepetitionProblem
from longtail.methods.one_vs_all import OneVsAll
from longtail.methods.problem import Block, Part
from longtail.models import LinearModel
from longtail.models.buckets import LINKS, TINY, Buckets, LinearBuckets, rates_of
from longtail.models.hashing import Hashes
from longtail.parallel import Work
from longtail.training import Status

NEVER = -1e4  # the logit of a bucket without training rows
TRIAL_ROWS = 64  # rows on which the weights must reproduce the probabilities of the base
CLOSE = 1e-3


@dataclass(frozen=True)
class FittedBases:
    """R fitted classifiers as bucket classifiers of a hashed model."""

    bases: tuple[Any, ...]
    n_buckets: int
    adds_up: bool = True  # whether the probabilities of a repetition sum to 1, because every row has one label

    def probabilities(self, X: sp.csr_array) -> np.ndarray:
        """P of every bucket: (rows, R B) float32. It is 0 for buckets without training rows."""
        parts = [bucket_probabilities(base, X, self.n_buckets) for base in self.bases]
        return np.asarray(np.concatenate(parts, axis=1))

    def log_probabilities(self, X: sp.csr_array) -> np.ndarray:
        return np.asarray(np.log(np.maximum(self.probabilities(X), np.float32(TINY))))

    def rates(self, X: sp.csr_array) -> np.ndarray:
        return rates_of(self.probabilities(X))


def check_base(base: Any) -> None:
    """Raise InputError if `base` is neither None nor a suitable classifier."""
    if base is None:
        return
    if isinstance(base, OneVsAll):
        base._check_all_parameters()
        if base.loss != "logistic" or base.calibrate is not False:
            raise InputError(
                "OneVsAll as the base of Mach needs loss='logistic', whose scores are log-odds, and calibrate=False. "
                f"Got {base!r}."
            )
        return
    if isinstance(base, type) or not all(hasattr(base, name) for name in ("fit", "predict_proba", "get_params")):
        raise InputError(
            "The 'base' parameter of Mach must be None or a scikit-learn classifier with fit and predict_proba, such "
            f"as LogisticRegression(). Got {base!r} instead."
        )


# --- the training problem --------------------------------------------------------------------------------------------


class BasesProblem(RepetitionProblem):
    """Canonical X and Y with a scikit-learn classifier for every repetition."""

    def __init__(
        self,
        X: sp.csr_array | np.ndarray,
        Y: sp.csr_array,
        hashes: Hashes,
        base: Any,
        aggregate: str = "geometric",
        kept: Kept | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(X, hashes, aggregate, kept)
        self.X = X
        self.Y = Y
        self.base = base
        self.one_each = one_label_per_row(Y)
        self.settings = {
            "n_buckets": hashes.n_buckets,
            "n_repetitions": hashes.n_repetitions,
            "aggregate": aggregate,
            "base": " ".join(repr(base).split()),
            "seed": seed,
        }

    def blocks(self) -> list[Block]:
        return self.groups(self.hashes.n_repetitions - self.first_new)

    def solve(self, block: Block, work: Work) -> Part:
        (repetition,) = block.items
        with _one_blas_thread():
            if isinstance(self.base, OneVsAll):
                base: Any = LogisticBuckets.fitted(self.base, self.X, self._indicator(repetition), self.one_each)
            else:
                base = _fit_clone(self.base, self.X, self._target(repetition))
        bases = np.empty(1, object)
        bases[0] = base
        return Part(
            block.number,
            block.items,
            arrays={"bases": bases},
            status=np.array([Status.COMPLETED], np.uint8),
            n_iter=np.array([np.max(getattr(base, "n_iter_", 0))], np.int32),
        )

    def like(self, X: sp.csr_array | np.ndarray, Y: sp.csr_array) -> BasesProblem:
        """Return the same problem on other rows."""
        return BasesProblem(X, Y, self.hashes, self.base, self.aggregate)

    def forecast(self, X: sp.csr_array | np.ndarray, Y: sp.csr_array, n_threads: int) -> Forecast:
        return of_bases(self, n_threads)

    def _target(self, repetition: int) -> np.ndarray:
        """The bucket of every row, or the indicator of its buckets."""
        buckets = self.hashes.table[:, repetition]
        if self.one_each:
            return np.asarray(buckets[self.Y.indices], np.int64)
        return bucket_indicator(self.Y, buckets, self.hashes.n_buckets)

    def _indicator(self, repetition: int) -> sp.csr_array:
        """The sparse indicator of the buckets of every row."""
        buckets = self.hashes.table[:, repetition].astype(np.int32)[self.Y.indices]
        shape = (self.Y.shape[0], self.hashes.n_buckets)
        indicator = canonical_csr(sp.csr_array((np.ones(len(buckets), np.int32), buckets, self.Y.indptr), shape=shape))
        indicator.data[:] = 1  # two labels in one bucket count once
        return indicator

    def arrays_of(self, buckets: Any) -> Mapping[str, np.ndarray]:
        if isinstance(buckets, LinearBuckets):
            return {**super().arrays_of(buckets), "link": np.array([LINKS.index(buckets.link)], np.uint8)}
        bases = np.empty(len(buckets.bases), object)
        bases[:] = buckets.bases
        return {"bases": bases}

    def buckets_of(self, parts: list[Part]) -> Buckets:
        """The weights of the bases if they are linear, otherwise the bases."""
        n_buckets = self.hashes.n_buckets
        weights = [part for part in parts if "bases" not in part.arrays]  # linear bases of an earlier fit
        fitted = tuple(base for part in parts if "bases" in part.arrays for base in part.arrays["bases"])
        bases = FittedBases(fitted, n_buckets, self.one_each)
        if not weights:
            return as_weights(bases, self.X) or bases
        arrays = weights[0].arrays
        kept = LinearBuckets.from_arrays(arrays, n_buckets, 1.0, LINKS[arrays["link"][0]])
        if not bases.bases:
            return kept
        new = as_weights(bases, self.X)
        if new is None or new.link != kept.link:
            raise InputError(
                "warm_start cannot add these bases to the linear ones of the last fit, because they are not linear or "
                "have another link from weights to probabilities; use the same base, or warm_start=False"
            )
        return LinearBuckets.joined([kept, new])


class _OneBlasThread:
    """Limits BLAS to one thread while any block is being solved, because the blocks already occupy the cores.

    The limit applies to the whole process, so the first block sets it and the last block removes it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.limits: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.users == 0:
                self.limits = threadpool_limits(1)
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if self.users == 0:
                    self.limits.restore_original_limits()


_one_blas_thread = _OneBlasThread()


def _fit_clone(base: Any, X: sp.csr_array | np.ndarray, target: np.ndarray) -> Any:
    try:
        return _sparse_or_dense(lambda rows: clone(base).fit(rows, target), X)
    except ValueError as error:
        if target.ndim == 1:
            raise
        raise InputError(
            f"{type(base).__name__} does not take the {target.shape[1]} buckets of multi-label data ("
            f"{' '.join(str(error).split())}); try OneVsRestClassifier({type(base).__name__}())"
        ) from error


def _sparse_or_dense(task: Callable[[Any], Any], X: sp.csr_array | np.ndarray) -> Any:
    """Run the task on X, or on a dense copy if the classifier does not accept sparse rows."""
    try:
        return task(X)
    except TypeError as error:
        if isinstance(X, np.ndarray) or "sparse" not in str(error).lower():
            raise
    return task(X.toarray())


# --- buckets ---------------------------------------------------------------------------------------------------------


def bucket_indicator(Y: sp.csr_array, buckets: np.ndarray, n_buckets: int) -> np.ndarray:
    """Return an (n, B) array with 1 where a row has a label in the bucket."""
    out = np.zeros((Y.shape[0], n_buckets), np.int64)
    out[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), buckets[Y.indices]] = 1
    return out


def bucket_probabilities(base: Any, X: sp.csr_array, n_buckets: int) -> np.ndarray:
    """Return the result of `predict_proba`, which has several forms in scikit-learn, as one array over all buckets."""
    found = _sparse_or_dense(base.predict_proba, X)
    out = np.zeros((X.shape[0], n_buckets), np.float32)
    if isinstance(found, list):  # multi-label forests: for each bucket two columns, or one if it is constant
        for bucket, (each, classes) in enumerate(zip(found, base.classes_, strict=True)):
            if 1 in list(classes):
                out[:, bucket] = each[:, list(classes).index(1)]
    elif found.shape[1] == n_buckets:
        out[:] = found
    else:
        out[:, np.asarray(base.classes_, np.int64)] = found
    return np.nan_to_num(out, copy=False)


class LogisticBuckets:
    """A fitted `OneVsAll(loss="logistic")` in the form of a linear scikit-learn classifier over all buckets.

    P of a bucket is the sigmoid of its score. If every row has one label, the P of a row are divided by their sum.
    """

    def __init__(self, model: LinearModel, seen: np.ndarray, n_iter: int, *, normalized: bool) -> None:
        self.coef_ = model.all_weights()[:, : model.n_features]
        constant = model.W[:, model.n_features :].toarray().ravel() if model.bias > 0 else np.zeros(model.n_labels)
        self.intercept_ = np.where(seen, model.bias * constant, NEVER)
        self.classes_ = np.arange(model.n_labels)
        self.n_iter_ = n_iter
        self.normalized = normalized

    @classmethod
    def fitted(
        cls, base: OneVsAll, X: sp.csr_array | np.ndarray, indicator: sp.csr_array, normalized: bool
    ) -> LogisticBuckets:
        clf = clone(base).set_params(n_jobs=1).fit(X, indicator)  # the blocks already occupy the cores
        seen = np.bincount(indicator.indices, minlength=indicator.shape[1]) > 0
        return cls(clf.model_, seen, clf.n_iter_, normalized=normalized)

    def predict_proba(self, X: Any) -> np.ndarray:
        P = expit(np.asarray((X @ self.coef_.T).toarray() + self.intercept_, np.float64))
        if self.normalized:
            P /= np.maximum(P.sum(axis=1, keepdims=True), TINY)
        return np.asarray(P)


# --- linear bases ----------------------------------------------------------------------------------------------------


def as_weights(whole: FittedBases, X: sp.csr_array | np.ndarray) -> LinearBuckets | None:
    """Return the bases as weights if these give the same probabilities on a few rows through one of the links."""
    trial = sp.csr_array(X[np.linspace(0, X.shape[0] - 1, min(TRIAL_ROWS, X.shape[0])).astype(int)])
    wanted = whole.probabilities(trial)
    for link in LINKS:
        parts = [coefficients(base, X.shape[1], whole.n_buckets, link) for base in whole.bases]
        if any(part is None for part in parts):
            continue
        W = np.ascontiguousarray(np.concatenate(parts, axis=1), np.float32)  # type: ignore[arg-type]
        buckets = LinearBuckets.packed(W, np.arange(len(W)), X.shape[1], whole.n_buckets, 1.0, link)
        if np.abs(buckets.probabilities(trial) - wanted).max(initial=0) < CLOSE:
            return buckets
    return None


def coefficients(base: Any, n_features: int, n_buckets: int, link: str) -> np.ndarray | None:
    """Return the weights of a linear base and of its bias, of shape (n_features + 1, B). None if it has none."""
    if hasattr(base, "estimators_") and hasattr(base, "multilabel_"):  # OneVsRestClassifier
        return _one_vs_rest(base, n_features, n_buckets)
    coef, intercept = _linear_part(base)
    classes = getattr(base, "classes_", None)
    if coef is None or classes is None or np.ndim(coef) != 2 or coef.shape[1] != n_features:
        return None
    coef = np.vstack(
        [np.asarray(coef.toarray() if sp.issparse(coef) else coef).T, np.broadcast_to(intercept, coef.shape[0])]
    )
    if coef.shape[1] == 1 and len(classes) == 2:  # one margin for two classes
        coef = np.hstack([np.zeros_like(coef) if link == "softmax" else -coef, coef])
    if coef.shape[1] != len(classes):
        return None
    return _spread(coef, np.asarray(classes, np.int64), n_buckets)


def _linear_part(base: Any) -> tuple[Any, Any]:
    return getattr(base, "coef_", None), getattr(base, "intercept_", None)


def _one_vs_rest(base: Any, n_features: int, n_buckets: int) -> np.ndarray | None:
    columns = []
    for each in base.estimators_:
        coef, intercept = _linear_part(each)
        constant = getattr(each, "y_", None)  # set if the bucket holds no row or all rows
        if constant is not None:
            columns.append(np.append(np.zeros(n_features), -NEVER if np.ravel(constant)[0] else NEVER))
        elif np.shape(coef) == (1, n_features):
            columns.append(np.append(coef, intercept))
        else:
            return None
    return _spread(np.array(columns).T, np.asarray(base.classes_, np.int64), n_buckets)


def _spread(coef: np.ndarray, seen: np.ndarray, n_buckets: int) -> np.ndarray:
    """Put the columns of the buckets that occurred in training into an array with the columns of all buckets."""
    W = np.zeros((len(coef), n_buckets))
    W[-1] = NEVER
    W[:, seen] = coef
    return W
