"""Multi-class systems beside each other: each is trained and measured on the same rows.

Only the first label of a row is used, and rows without labels are left out. Accuracy and both macro-F1 are in per cent:
"MaF1" is MEMOIR's (harmonic mean of macro-precision and macro-recall), "F1" the mean over the classes of the test rows.
Every system has one thread, and all times are CPU seconds. Peak memory counts the whole process with data and interpreter.
"""

from __future__ import annotations

import importlib.util
import inspect
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.papers.common import synthetic
from benchmarks.quality import load, one_class_per_row
from longtail import metrics, store
from longtail.methods import METHODS
from longtail.topk import TopK


class Rows(NamedTuple):
    """Training and test rows with one class each."""

    X: sp.csr_array
    y: np.ndarray
    X_test: sp.csr_array
    y_test: np.ndarray

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1


class Fitted(NamedTuple):
    """A trained system: how it predicts, the bytes of its model, and further figures."""

    predict: Callable[[Any], np.ndarray]
    size: float
    more: dict[str, Any]


def rows_of(folder: Path | None, n_classes: int | None = None) -> Rows:
    """The rows of a folder, or synthetic ones. `n_classes` keeps only the most frequent classes."""
    train, test = synthetic() if folder is None else load(str(folder))
    return Rows(*one_class_per_row(train, test, n_classes))


# --- systems ---------------------------------------------------------------------------------------------------------


def fit_longtail(rows: Rows, method: str, parameters: dict[str, Any], paper: bool = False) -> Fitted:
    y, C = rows.y, rows.n_classes
    Y = sp.csr_array((np.ones(len(y), np.int32), y.astype(np.int32), np.arange(len(y) + 1)), shape=(len(y), C))
    make = METHODS[method].paper if paper else METHODS[method]
    clf = make(n_jobs=1, **parameters).fit(rows.X, Y)
    with tempfile.TemporaryDirectory() as scratch:
        clf.save(Path(scratch) / "model")
        size = store.model_size(Path(scratch) / "model")
    figures = clf.training_.figures
    more = {"weights": clf.model_.n_weights}
    more |= {name: figures[name].tolist() for name in ("epsilon", "delta") if name in figures}
    more |= {"recall": float(figures["recall"][0])} if "recall" in figures else {}
    return Fitted(lambda X: clf.predict_topk(X, 1).labels[:, 0], size, more)


def sklearn_model(loss: str = "svm", penalty: str = "l2", multi_class: str = "ovr", **parameters: Any) -> Any:
    """LIBLINEAR in scikit-learn: one-vs-all ("svm", or "logistic" with "l2" or "l1"), or "crammer_singer"."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    if loss == "svm":
        return LinearSVC(multi_class=multi_class, penalty=penalty, **parameters)
    new = (
        inspect.signature(LogisticRegression).parameters["penalty"].default == "deprecated"
    )  # from scikit-learn 1.8 on
    kind = {"l1_ratio": float(penalty == "l1")} if new else {"penalty": penalty}
    return OneVsRestClassifier(LogisticRegression(solver="liblinear", **kind, **parameters))


def fit_sklearn(rows: Rows, **arguments: Any) -> Fitted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = sklearn_model(**arguments).fit(sp.csr_matrix(rows.X), rows.y)
    parts = [own.coef_ for own in getattr(clf, "estimators_", [clf])]
    weights = sum(int(np.count_nonzero(part)) for part in parts)
    size = sum(part.nbytes for part in parts) if weights == sum(part.size for part in parts) else 8 * weights
    return Fitted(lambda X: clf.predict(sp.csr_matrix(X)), size, {"weights": weights})


def fit_vw(rows: Rows, reduction: str, bits: int = 26) -> Fitted:
    """Vowpal Wabbit: "recall_tree" with the settings of MEMOIR's Table 4, or "log_multi" (LOMTree).

    The paper has 2^30 weights (16 GB); here there are 2^26 (1 GB), more than the data needs. Each of the five passes has
    its own order of the rows, because the first rows decide the tree and files may be sorted.
    """
    from vowpalwabbit import Workspace

    def lines(X: Any, labels: Any) -> Any:
        for k in range(X.shape[0]):
            span = slice(X.indptr[k], X.indptr[k + 1])
            pairs = zip(X.indices[span].tolist(), X.data[span].tolist(), strict=True)
            yield f"{labels[k]} | " + " ".join(f"{j}:{value:.5g}" for j, value in pairs)

    vw = Workspace(f"--{reduction} {rows.n_classes} -b {bits} -l 1 --loss_function hinge --random_seed 0 --quiet")
    random = np.random.default_rng(0)
    for _ in range(5):
        order = random.permutation(len(rows.y))
        for line in lines(rows.X[order], rows.y[order] + 1):
            vw.learn(line)

    def predict(X: Any) -> np.ndarray:
        return np.array([vw.predict(line) for line in lines(X, [""] * X.shape[0])]) - 1

    with tempfile.TemporaryDirectory() as scratch:
        vw.save(f"{scratch}/model")
        size = Path(f"{scratch}/model").stat().st_size
    return Fitted(predict, size, {})


FITS: dict[str, Callable[..., Fitted]] = {"longtail": fit_longtail, "scikit-learn": fit_sklearn, "vw": fit_vw}


def is_installed(system: str) -> bool:
    """Whether the package of a system is there. Vowpal Wabbit comes from the extra `bench`."""
    return (
        importlib.util.find_spec({"longtail": "longtail", "scikit-learn": "sklearn", "vw": "vowpalwabbit"}[system])
        is not None
    )


# --- one row of a table ----------------------------------------------------------------------------------------------


def measure(
    folder: Path | None, n_classes: int | None, system: str, arguments: dict[str, Any], sampled: bool = False
) -> dict[str, Any]:
    """Train a system and measure it. Kernels are compiled before the clock starts.

    sampled : whether there are fewer classes only to save time, so that --full measures again.
    """
    rows, fit = rows_of(folder, n_classes), FITS[system]
    if folder is None and system == "vw":
        arguments = {**arguments, "bits": 18}  # a gigabyte of weights would take longer than synthetic rows
    if folder is not None:
        few = Rows(rows.X[:200], np.arange(200) % rows.n_classes, rows.X_test[:2], rows.y_test[:2])
        fit(few, **arguments).predict(few.X_test)
    start = time.process_time()
    fitted = fit(rows, **arguments)
    training = time.process_time() - start
    fitted.predict(rows.X_test[:1])
    start = time.process_time()
    predicted = np.asarray(fitted.predict(rows.X_test), np.int64)
    predicting = time.process_time() - start
    return {
        "sampled": sampled,
        "accuracy": 100 * float((predicted == rows.y_test).mean()),
        "MaF1": 100 * maf1(rows.y_test, predicted),
        "F1": 100 * mean_f1(rows.y_test, predicted),
        "train CPU s": training,
        "predict s": predicting,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "model MB": fitted.size / 1e6,
        **fitted.more,
    }


def maf1(truth: np.ndarray, predicted: np.ndarray) -> float:
    """The harmonic mean of macro-precision and macro-recall, as in MEMOIR."""
    size = int(max(truth.max(), predicted.max())) + 1
    Y = sp.csr_array((np.ones(len(truth), int), truth, np.arange(len(truth) + 1)), shape=(len(truth), size))
    return float(metrics.maf1(Y, TopK(predicted.astype(np.int32)[:, None], np.zeros((len(predicted), 1), np.float32))))


def mean_f1(truth: np.ndarray, predicted: np.ndarray) -> float:
    """The mean F1 over the classes of the test rows."""
    size = int(max(truth.max(), predicted.max())) + 1
    true, given = np.bincount(truth, minlength=size), np.bincount(predicted, minlength=size)
    right = np.bincount(truth[truth == predicted], minlength=size)
    return float((2 * right / np.maximum(true + given, 1))[true > 0].mean())
