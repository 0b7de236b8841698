"""Multi-label systems beside each other: each is trained and measured on the same rows, on one thread.

Precision is in per cent. Peak memory counts the whole process with data and interpreter. The model of scikit-learn counts
its nonzero weights, with 8 bytes each: value and position.
"""

from __future__ import annotations

import resource
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail as lt
from benchmarks.papers.common import synthetic
from benchmarks.papers.multiclass import sklearn_model
from benchmarks.quality import load
from longtail import metrics, store
from longtail.methods import METHODS
from longtail.methods.pd_sparse import STAGES


def rows_of(folder: Path | None) -> tuple[lt.Dataset, lt.Dataset]:
    return synthetic(labels_per_row=3) if folder is None else load(str(folder))


def resplit(folder: Path | None, shares: tuple[float, float], seed: int) -> tuple[lt.Dataset, lt.Dataset]:
    """All rows of a data set in random order, in two parts of these shares."""
    train, test = rows_of(folder)
    X, Y = sp.csr_array(sp.vstack([train.X, test.X])), sp.csr_array(sp.vstack([train.Y, test.Y]))
    order = np.random.default_rng(seed).permutation(X.shape[0])
    first = round(shares[0] * len(order))
    parts = order[:first], order[first : first + round(shares[1] * len(order))]
    one, other = (lt.Dataset(sp.csr_array(X[part]), sp.csr_array(Y[part])) for part in parts)
    return one, other


def measure(folder: Path | None, system: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Train a system and measure it on the test rows."""
    return measured(*rows_of(folder), system, arguments, compile_first=folder is not None)


def measure_split(
    folder: Path | None, shares: tuple[float, float], seed: int, system: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    """The same on a random division of all rows."""
    return measured(*resplit(folder, shares, seed), system, arguments, compile_first=folder is not None)


def measured(
    train: lt.Dataset, test: lt.Dataset, system: str, arguments: dict[str, Any], *, compile_first: bool
) -> dict[str, Any]:
    fit = {"longtail": fit_longtail, "scikit-learn": fit_sklearn}[system]
    if compile_first and system == "longtail":
        few = lt.Dataset(sp.csr_array(train.X[:400]), sp.csr_array(train.Y[:400]))
        fit(few, **arguments)[0](few.X[:2])
    start = time.process_time()
    predict, size, more = fit(train, **arguments)
    seconds = time.process_time() - start
    predict(test.X[:1])
    start = time.process_time()
    top = predict(test.X)
    predicting = time.process_time() - start
    at = 100 * metrics.precision_curve(test.Y, top)
    return {
        **{f"P@{k}": float(at[k - 1]) for k in (1, 3, 5)},
        "train CPU s": seconds,
        "predict s": predicting,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "model MB": size / 1e6,
        **more,
    }


def fit_longtail(train: lt.Dataset, method: str, parameters: dict[str, Any], paper: bool = False) -> Any:
    make = METHODS[method].paper if paper else METHODS[method]
    clf = make(n_jobs=1, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(train)
    with tempfile.TemporaryDirectory() as scratch:
        clf.save(Path(scratch) / "model")
        size = store.model_size(Path(scratch) / "model")
    more: dict[str, Any] = {"weights": clf.model_.n_weights}
    if method == "pd-sparse":
        more |= figures_of(clf)
    return lambda X: clf.predict_topk(X, 5), size, more


def figures_of(clf: Any) -> dict[str, Any]:
    """What Table 3 of PD-Sparse reports, and how training went."""
    record = clf.training_
    stages = np.array([STAGES[stage] for stage in record.pass_stage])
    trained = np.flatnonzero(np.isin(stages, ["train", "refit"]))
    kept = trained[-1]
    if "refit" not in stages and not np.isnan(record.pass_precision[trained]).any():
        kept = trained[int(np.argmax(record.pass_precision[trained]))]
    return {
        "C": clf.C_,
        "lam": clf.lam_,
        "passes": int((stages == "train").sum()),
        "best pass": int(np.argmax(record.pass_precision[stages == "train"])) + 1,
        "post-solve": bool(record.post_solved[0]),
        "k_A": float(record.pass_k_A[kept]),
        "k_W": float(record.pass_k_W[kept]),
    }


def fit_sklearn(train: lt.Dataset, **arguments: Any) -> Any:
    from sklearn.multiclass import OneVsRestClassifier

    model = sklearn_model(**arguments)
    clf = model if isinstance(model, OneVsRestClassifier) else OneVsRestClassifier(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(sp.csr_matrix(train.X), train.Y.toarray())
    weights = sum(int(np.count_nonzero(own.coef_)) for own in clf.estimators_ if hasattr(own, "coef_"))

    def predict(X: Any) -> lt.TopK:
        scores = clf.decision_function(sp.csr_matrix(X))
        top = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        return lt.TopK(top.astype(np.int32), np.take_along_axis(scores, top, 1).astype(np.float32))

    return predict, 8 * weights, {"weights": weights}
