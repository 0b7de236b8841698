"""What an update costs, compared with a full fit, and whether it gives as good a model.

    python benchmarks/update.py FOLDER [--method one-vs-all] [--labels 500] [--rows 100] [--repeat 1] [--sample LABELS]

FOLDER holds `train.txt` and `test.txt` (plain, .gz or .xz) in Extreme Classification Repository format. Three updates,
each of a model of all other labels or rows, in one thread:

    labels   some labels are added, drawn at random
    rows     some rows are added, drawn at random
    nothing  the data is the same

Figures are CPU seconds, the smallest of several repetitions; kernels are compiled before. P@1, P@3 and P@5 are those of
the test rows, after the update and after a full fit. For one-vs-all, `same` is the share of the trained labels with the
very weights of the full fit, and `kept` the share of the other labels with the weights of before.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from typing import Any

import numpy as np

import longtail as lt
from longtail import metrics
from longtail.methods import METHODS
from longtail.metrics.table import align
from quality import load


def timed(work: Any) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def equal_rows(a: Any, b: Any) -> np.ndarray:
    """Which rows of two CSR matrices are equal."""
    return np.diff((a != b).tocsr().indptr) == 0


def precision(clf: Any, X: Any, Y: Any) -> str:
    curve = metrics.precision_curve(Y, clf.predict_topk(X, 5))
    return "/".join(f"{100 * curve[k - 1]:.2f}" for k in (1, 3, 5))


def in_order(Y: Any, order: np.ndarray) -> Any:
    """Y with the columns in this order."""
    return Y.tocsc()[:, order].tocsr()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--method", default="one-vs-all", choices=list(METHODS))
    parser.add_argument("--labels", type=int, default=500)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--sample", type=int, help="use only this number of labels")
    options = parser.parse_args()
    train, test = load(options.folder)
    rng = np.random.default_rng(0)
    rows = rng.permutation(train.n_samples)
    columns = rng.permutation(train.n_labels)[: options.sample]
    X, Y, test_Y = train.X[rows], in_order(train.Y[rows], columns), in_order(test.Y, columns)
    n, n_labels = Y.shape

    def make() -> Any:
        return METHODS[options.method](n_jobs=1)

    make().fit(X[:200], Y[:200]).update(X[:201], Y[:201])  # compiles
    full, full_cpu = timed(lambda: make().fit(X, Y))
    best = precision(full, test.X, test_Y)
    cases = {
        "labels": (n, n_labels - options.labels),
        "rows": (n - options.rows, n_labels),
        "nothing": (n, n_labels),
    }
    independent = isinstance(full, lt.OneVsAll)
    table = []
    for name, (n_rows, labels) in cases.items():
        before = full if name == "nothing" else make().fit(X[:n_rows], Y[:n_rows, :labels])
        runs = [timed(lambda before=before: copy.copy(before).update(X, Y)) for _ in range(options.repeat)]
        after, cpu = min(runs, key=lambda run: run[1])
        trained = after.history_[-1]["labels_trained"]
        found = [name, f"{full_cpu:.1f}", f"{cpu:.2f}", f"{100 * cpu / full_cpu:.1f} %", trained]
        found += [precision(after, test.X, test_Y), best]
        if independent:
            old, new = before.model_.W, after.model_.W
            kept = np.zeros(n_labels, bool)
            kept[:labels] = equal_rows(old, new[:labels])
            same = equal_rows(full.model_.W, new)[~kept].mean() if not kept.all() else 1.0
            found += [f"{same:.3f}", f"{kept.sum() / max(n_labels - trained, 1):.3f}"]
            found += [f"{after.training_.gap.max():.4f}"]
        table.append(found)
        sys.stderr.write(" ".join(map(str, found)) + "\n")
    header = ["added", "fit CPU s", "update CPU s", "share", "labels trained", "P@k updated", "P@k full fit"]
    sys.stdout.write(align([*header, *(["same", "kept", "largest gap"] if independent else [])], table) + "\n")


if __name__ == "__main__":
    main()
