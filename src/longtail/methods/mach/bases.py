"""Any classifier of scikit-learn as base: Algorithm 1 of the paper, one classifier per repetition.

A base that is linear, that is, whose `coef_` and `intercept_` give its own `predict_proba` through a known link,
becomes an array of weights, which can be saved. Any other stays what it is and predicts for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from longtail import parallel
from longtail.errors import InputError
from longtail.models.buckets import LINKS, TINY, LinearBuckets
from longtail.models.hashing import Hashes

NEVER = -1e4  # the logit of a bucket that no row of the training data is in
TRIAL_ROWS = 64  # rows on which weights must give the base's own probabilities
CLOSE = 1e-3


@dataclass(frozen=True)
class FittedBases:
    """R fitted classifiers, and the buckets that each has seen."""

    bases: tuple[Any, ...]
    n_buckets: int

    def probabilities(self, X: sp.csr_array) -> np.ndarray:
        """P of every bucket: (rows, R B) float32; 0 for buckets that a base has never seen."""
        return np.concatenate([bucket_probabilities(base, X, self.n_buckets) for base in self.bases], axis=1)

    def log_probabilities(self, X: sp.csr_array) -> np.ndarray:
        return np.log(np.maximum(self.probabilities(X), np.float32(TINY)))

    @property
    def convention(self) -> object:
        return self.n_buckets

    @classmethod
    def joined(cls, parts: list[FittedBases]) -> FittedBases:
        return cls(tuple(base for part in parts for base in part.bases), parts[0].n_buckets)


def check_base(base: Any) -> None:
    """Refuse what cannot be a base before anything is trained."""
    if base is None:
        return
    if isinstance(base, type) or not all(hasattr(base, name) for name in ("fit", "predict_proba", "get_params")):
        raise InputError(
            "The 'base' parameter of Mach must be None or a scikit-learn classifier with fit and predict_proba, such "
            f"as LogisticRegression(). Got {base!r} instead."
        )


def fit_bases(
    base: Any, X: sp.csr_array, Y: sp.csr_array, hashes: Hashes, multiclass: bool, n_jobs: int | None,
    progress: Callable[[int, int], None],
) -> LinearBuckets | FittedBases:  # fmt: skip
    """A clone of `base` for every repetition: as weights if they are linear, else as they are."""
    n_buckets = hashes.n_buckets

    def fit_one(r: int) -> Any:
        target: Any = bucket_indicator(Y, hashes.table[:, r], n_buckets)
        if multiclass:
            target = hashes.table[Y.indices, r].astype(np.int64)
        return _fit_clone(base, X, target)

    bases = []
    with threadpool_limits(1):  # threads share the repetitions; a BLAS with threads of its own would only interfere
        for fitted in parallel.run(fit_one, range(hashes.n_repetitions), n_jobs):
            bases.append(fitted)
            progress(len(bases), hashes.n_repetitions)
    whole = FittedBases(tuple(bases), n_buckets)
    return as_weights(whole, X) or whole


def _fit_clone(base: Any, X: sp.csr_array, target: Any) -> Any:
    try:
        return _sparse_or_dense(lambda rows: clone(base).fit(rows, target), X)
    except ValueError as error:
        if np.ndim(target) == 1:
            raise
        raise InputError(
            f"{type(base).__name__} does not take the {target.shape[1]} buckets of multi-label data ("
            f"{' '.join(str(error).split())}); try OneVsRestClassifier({type(base).__name__}())"
        ) from error


def _sparse_or_dense(task: Callable[[Any], Any], X: sp.csr_array) -> Any:
    """The task on X, or on a dense copy for classifiers that take no sparse rows."""
    try:
        return task(X)
    except TypeError as error:
        if "sparse" not in str(error).lower():
            raise
    return task(X.toarray())


def bucket_indicator(Y: sp.csr_array, buckets: np.ndarray, n_buckets: int) -> np.ndarray:
    """1 where a row has a label of the bucket: (n, B)."""
    out = np.zeros((Y.shape[0], n_buckets), np.int64)
    out[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), buckets[Y.indices]] = 1
    return out


def bucket_probabilities(base: Any, X: sp.csr_array, n_buckets: int) -> np.ndarray:
    """`predict_proba` as an array of all buckets, whatever form it has."""
    found = _sparse_or_dense(base.predict_proba, X)
    out = np.zeros((X.shape[0], n_buckets), np.float32)
    if isinstance(found, list):  # multi-label forests: an array of two columns for each bucket, one for constant ones
        for bucket, (each, classes) in enumerate(zip(found, base.classes_, strict=True)):
            if 1 in list(classes):
                out[:, bucket] = each[:, list(classes).index(1)]
    elif found.shape[1] == n_buckets:
        out[:] = found
    else:
        out[:, np.asarray(base.classes_, np.int64)] = found
    return np.nan_to_num(out, copy=False)


def as_weights(whole: FittedBases, X: sp.csr_array) -> LinearBuckets | None:
    """The bases as weights, if on a few rows these give the same probabilities through one of the links."""
    trial = X[np.linspace(0, X.shape[0] - 1, min(TRIAL_ROWS, X.shape[0])).astype(int)]
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
    """Weights of a linear base for all buckets, and for the bias: (n_features + 1, B); None if it has none."""
    if hasattr(base, "estimators_") and hasattr(base, "multilabel_"):  # OneVsRestClassifier
        return _one_vs_rest(base, n_features, n_buckets)
    coef, intercept = _linear_part(base)
    classes = getattr(base, "classes_", None)
    if coef is None or classes is None or np.ndim(coef) != 2 or coef.shape[1] != n_features:
        return None
    coef = np.vstack(
        [np.asarray(coef.toarray() if sp.issparse(coef) else coef).T, np.broadcast_to(intercept, len(coef))]
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
        constant = getattr(each, "y_", None)  # a bucket that no row, or every row, is in
        if constant is not None:
            columns.append(np.append(np.zeros(n_features), -NEVER if np.ravel(constant)[0] else NEVER))
        elif np.shape(coef) == (1, n_features):
            columns.append(np.append(coef, intercept))
        else:
            return None
    return _spread(np.array(columns).T, np.asarray(base.classes_, np.int64), n_buckets)


def _spread(coef: np.ndarray, seen: np.ndarray, n_buckets: int) -> np.ndarray:
    """Columns of the buckets that were seen, among those of all."""
    W = np.zeros((len(coef), n_buckets))
    W[-1] = NEVER
    W[:, seen] = coef
    return W
