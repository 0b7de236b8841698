"""MEMOIR beside other multi-class systems, and what its penalty and batch size do: the paper's tables and figures.

    python benchmarks/memoir.py table   FOLDER ... [--systems NAME ...] [--classes N] [--plot FILE]    Table 3, Figure 2
    python benchmarks/memoir.py l1      FOLDER ... [--plot FILE]                                       Figure 1
    python benchmarks/memoir.py batches FOLDER ...                                                     Table 2
    python benchmarks/memoir.py seeds   FOLDER ... [--systems NAME ...]                                mean of 5 seeds

FOLDERs are those of quality.py. Only the first label of a row is used, and rows without labels are left out. --classes
keeps the rows of the N most frequent classes, for systems that are too slow on all of them. Every row of a table is
measured in a process of its own with one thread, and kernels are compiled before the clock starts. Accuracy and both
macro-F1 are in per cent: "MaF1" is the paper's (harmonic mean of macro-precision and macro-recall), "F1" the mean over
the classes of the test rows. Peak memory counts the whole process with data and interpreter. Vowpal Wabbit comes from
the `bench` extra, and is left out where it is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quality import load

MEMOIR: dict[str, dict[str, Any]] = {
    "memoir": {},
    "memoir n_groups=1": {"n_groups": 1},
    "memoir l1": {"penalty": "l1"},
    "memoir sw-graph": {"oracle": "sw-graph"},
    "memoir simple-lsh": {"oracle": "simple-lsh"},
    "MEMOIR-l2 (paper)": {"preset": "paper", "oracle": "sw-graph"},
    "MEMOIR-l1 (paper)": {"preset": "paper", "oracle": "sw-graph", "penalty": "l1"},
    "MEMOIR-LSH (paper)": {"preset": "paper", "oracle": "simple-lsh"},
    "paper l2, exact oracle": {"preset": "paper"},
    "paper l1, exact oracle": {"preset": "paper", "penalty": "l1"},
}
SLOW = ("sklearn one-vs-rest", "sklearn Crammer-Singer")
OTHERS = ("one-vs-all", "pd-sparse", "vw recall tree", *SLOW)
COLUMNS = (
    "data", "system", "accuracy", "MaF1", "F1", "train CPU s", "train s", "predict s", "peak MB", "model MB", "weights",
    "recall",
)  # fmt: skip
LAMS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
BATCHES = (1, 8, 64, 512, 4096, 13_609)
SEEDS = range(5)


def multiclass(data: Any) -> tuple[Any, np.ndarray]:
    """Rows with at least one label, and their first one."""
    (rows,) = np.nonzero(np.diff(data.Y.indptr))
    return data.X[rows], data.Y.indices[data.Y.indptr[rows]].astype(np.int64)


def problem(folder: str, n_classes: int | None) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    train, test = load(folder)
    (X, y), (X_test, y_test) = multiclass(train), multiclass(test)
    kept = np.argsort(-np.bincount(y, minlength=train.Y.shape[1]), kind="stable")[: n_classes or train.Y.shape[1]]
    number = np.full(train.Y.shape[1], -1)
    number[kept] = np.arange(len(kept))
    own, own_test = number[y] >= 0, number[y_test] >= 0
    return X[own], number[y[own]], X_test[own_test], number[y_test[own_test]]


# --- systems: fit -> (predict, bytes of the model, further figures) --------------------------------------------------


def fit_longtail(method: str, params: dict[str, Any], X: Any, y: np.ndarray) -> tuple[Any, float, dict[str, Any]]:
    from longtail import store
    from longtail.methods import METHODS

    C = int(y.max()) + 1
    Y = sp.csr_array((np.ones(len(y), np.int32), y.astype(np.int32), np.arange(len(y) + 1)), shape=(len(y), C))
    clf = METHODS[method](n_jobs=1, **params).fit(X, Y)
    with tempfile.TemporaryDirectory() as scratch:
        clf.save(Path(scratch) / "model")
        size = store.model_size(Path(scratch) / "model")
    recall = clf.training_.figures.get("recall")
    more = {"weights": int(clf.model_.W.nnz), "recall": None if recall is None else round(float(recall[0]), 4)}
    return (lambda rows: clf.predict_topk(rows, 1).labels[:, 0]), size, more


def fit_sklearn(system: str, X: Any, y: np.ndarray) -> tuple[Any, float, dict[str, Any]]:
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = "ovr" if system == SLOW[0] else "crammer_singer"
        clf = LinearSVC(multi_class=how).fit(sp.csr_matrix(X), y)
    return (lambda rows: clf.predict(sp.csr_matrix(rows))), clf.coef_.nbytes, {"weights": int(clf.coef_.size)}


def fit_vw(X: Any, y: np.ndarray) -> tuple[Any, float, dict[str, Any]]:
    """Recall tree with the settings of the paper's Table 4, except for 2^28 weights (4 GB) rather than 2^30 (16 GB).

    Each pass has its own order of the rows, because the first rows decide the tree and files may be sorted.
    """
    from vowpalwabbit import Workspace

    def lines(rows: Any, labels: Any) -> Any:
        for k in range(rows.shape[0]):
            span = slice(rows.indptr[k], rows.indptr[k + 1])
            pairs = zip(rows.indices[span].tolist(), rows.data[span].tolist(), strict=True)
            yield f"{labels[k]} | " + " ".join(f"{j}:{value:.5g}" for j, value in pairs)

    vw = Workspace(f"--recall_tree {int(y.max()) + 1} -b 28 -l 1 --loss_function hinge --random_seed 0 --quiet")
    random = np.random.default_rng(0)
    for _ in range(5):
        order = random.permutation(len(y))
        for line in lines(X[order], y[order] + 1):
            vw.learn(line)

    def predict(rows: Any) -> np.ndarray:
        return np.array([vw.predict(line) for line in lines(rows, [""] * rows.shape[0])]) - 1

    with tempfile.TemporaryDirectory() as scratch:
        vw.save(f"{scratch}/model")
        size = Path(f"{scratch}/model").stat().st_size
    return predict, size, {}


def fit(system: str, X: Any, y: np.ndarray) -> tuple[Any, float, dict[str, Any]]:
    if system.startswith("{"):
        return fit_longtail("memoir", json.loads(system), X, y)
    if system in MEMOIR:
        return fit_longtail("memoir", MEMOIR[system], X, y)
    if system in SLOW:
        return fit_sklearn(system, X, y)
    return fit_vw(X, y) if system == "vw recall tree" else fit_longtail(system, {}, X, y)


def available(system: str) -> bool:
    from longtail.methods import METHODS

    if system == "vw recall tree":
        return importlib.util.find_spec("vowpalwabbit") is not None
    return system not in ("one-vs-all", "pd-sparse") or system in METHODS


# --- one row ---------------------------------------------------------------------------------------------------------


def mean_f1(truth: np.ndarray, predicted: np.ndarray) -> float:
    size = int(max(truth.max(), predicted.max())) + 1
    true, given = np.bincount(truth, minlength=size), np.bincount(predicted, minlength=size)
    right = np.bincount(truth[truth == predicted], minlength=size)
    return float((2 * right / np.maximum(true + given, 1))[true > 0].mean())


def measure(folder: str, system: str, n_classes: int | None) -> dict[str, Any]:
    from longtail import metrics
    from longtail.topk import TopK

    X, y, X_test, y_test = problem(folder, n_classes)
    fit(system, X[:200], np.arange(200) % (int(y.max()) + 1))[0](X_test[:2])  # compiles
    wall, cpu = time.perf_counter(), time.process_time()
    predict, size, more = fit(system, X, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    predict(X_test[:1])
    start = time.perf_counter()
    predicted = np.asarray(predict(X_test), np.int64)
    seconds = time.perf_counter() - start
    top = TopK(predicted.astype(np.int32)[:, None], np.zeros((len(predicted), 1), np.float32))
    C = int(max(y.max(), y_test.max(), predicted.max())) + 1
    truth = sp.csr_array((np.ones(len(y_test), int), y_test, np.arange(len(y_test) + 1)), shape=(len(y_test), C))
    return {
        "data": Path(folder).name + (f" ({n_classes:,} classes)" if n_classes else ""),
        "system": system,
        "accuracy": round(100 * float((predicted == y_test).mean()), 2),
        "MaF1": round(100 * metrics.maf1(truth, top), 2),
        "F1": round(100 * mean_f1(y_test, predicted), 2),
        "train CPU s": round(cpu, 1),
        "train s": round(wall, 1),
        "predict s": round(seconds, 2),
        "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "model MB": round(size / 1e6, 1),
        "weights": None,
        "recall": None,
        **more,
    }


def in_own_process(folder: str, system: str, n_classes: int | None) -> dict[str, Any]:
    call = [sys.executable, __file__, "row", folder, "--systems", system]
    if n_classes:
        call += ["--classes", str(n_classes)]
    done = subprocess.run(call, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def of_all_seeds(folder: str, system: str, n_classes: int | None) -> dict[str, Any]:
    """One row with the means over all seeds. The smallest and largest accuracy follow the name of the system."""
    each = [in_own_process(folder, json.dumps({**MEMOIR[system], "random_state": seed}), n_classes) for seed in SEEDS]
    mean = {
        key: each[0][key] and round(float(np.mean([row[key] for row in each])), 2)
        for key in each[0]
        if key in COLUMNS[2:]
    }
    accuracies = sorted(row["accuracy"] for row in each)
    return {**each[0], **mean, "system": f"{system} ({accuracies[0]} to {accuracies[-1]})"}


def plot(rows: list[dict[str, Any]], x: str, file: Path) -> None:
    """Accuracy and F1 against model size or training time, one point per system."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axes, quality in zip(panels, ("accuracy", "F1"), strict=True):
        for row in rows:
            axes.plot(row[x], row[quality], "o")
            axes.annotate(row["system"], (row[x], row[quality]), fontsize=7, xytext=(4, 3), textcoords="offset points")
        axes.set(xlabel=x, ylabel=quality, xscale="log")
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "l1", "batches", "seeds", "row"))
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--systems", nargs="+", help=f"of: {', '.join((*MEMOIR, *OTHERS))}")
    parser.add_argument("--classes", type=int, help="keep the rows of this many most frequent classes")
    parser.add_argument("--plot", type=Path, help="also draw a picture into this file")
    options = parser.parse_args()
    if options.what == "seeds" and not set(options.systems or ()) <= set(MEMOIR):
        parser.error(f"seeds takes systems of: {', '.join(MEMOIR)}")
    if options.what == "row":
        sys.stdout.write(json.dumps(measure(options.folders[0], options.systems[0], options.classes)))
        return
    systems = {
        "table": [system for system in options.systems or (*MEMOIR, *OTHERS) if available(system)],
        "l1": [json.dumps({"penalty": "l1", "lam": lam}) for lam in LAMS],
        "seeds": options.systems or ["memoir", "memoir sw-graph", "memoir simple-lsh"],
        "batches": [json.dumps({"batch_size": size}) for size in BATCHES],
    }[options.what]
    if options.what == "table" and not options.systems and not options.classes:
        systems = [system for system in systems if system not in SLOW]  # they would take hours
    from longtail.metrics.table import align

    rows = []
    for folder in options.folders:
        for system in systems:
            one_row = of_all_seeds if options.what == "seeds" else in_own_process
            rows.append(one_row(folder, system, options.classes))
            sys.stderr.write(f"{json.dumps(rows[-1])}\n")  # so that an interrupted run shows what it has measured
    sys.stdout.write(align(COLUMNS, [[row[column] for column in COLUMNS] for row in rows]) + "\n")
    if options.plot:
        plot(rows, "model MB" if options.what == "l1" else "train CPU s", options.plot)


if __name__ == "__main__":
    main()
