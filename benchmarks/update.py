"""What an update costs, compared with a full fit, and whether it gives the same model.

    python benchmarks/update.py FOLDER [--labels 500] [--rows 100] [--repeat 1]

FOLDER holds `train.txt` (plain, .gz or .xz) in Extreme Classification Repository format. Three updates of a one-vs-all
model, each of a model of all other labels or rows, in one thread:

    labels   some labels are added
    rows     some rows are added
    nothing  the data is the same

Figures are CPU seconds, the smallest of several repetitions; kernels are compiled before. `same` is the share of the
trained labels with the very weights of the full fit, `kept` the share of the other labels with the weights of before.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from typing import Any

import numpy as np

import longtail as lt
from longtail.metrics.table import align
from quality import load


def timed(work: Any) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def equal_rows(a: Any, b: Any) -> np.ndarray:
    """Which rows of two CSR matrices are equal."""
    return np.diff((a != b).tocsr().indptr) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--labels", type=int, default=500)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--sample", type=int, help="use only this number of labels")
    options = parser.parse_args()
    train, _ = load(options.folder)
    X, Y = train.X, train.Y if options.sample is None else train.Y[:, : options.sample]
    n, n_labels = X.shape[0], Y.shape[1]
    lt.OneVsAll(n_jobs=1).fit(X[:200], Y[:200]).update(X[:201], Y[:201])  # compiles
    full, full_cpu = timed(lambda: lt.OneVsAll(n_jobs=1).fit(X, Y))
    cases = {
        "labels": (n, n_labels - options.labels),
        "rows": (n - options.rows, n_labels),
        "nothing": (n, n_labels),
    }
    table = []
    for name, (rows, labels) in cases.items():
        before = full if name == "nothing" else lt.OneVsAll(n_jobs=1).fit(X[:rows], Y[:rows, :labels])
        runs = [timed(lambda before=before: copy.copy(before).update(X, Y)) for _ in range(options.repeat)]
        after, cpu = min(runs, key=lambda run: run[1])
        old, new = before.model_.W, after.model_.W
        kept = np.zeros(n_labels, bool)
        kept[:labels] = equal_rows(old, new[:labels])
        trained = after.history_[-1]["labels_trained"]
        same = equal_rows(full.model_.W, new)[~kept].mean() if not kept.all() else 1.0
        table.append(
            [name, f"{full_cpu:.1f}", f"{cpu:.2f}", f"{100 * cpu / full_cpu:.1f} %", trained, f"{same:.3f}",
             f"{kept.sum() / max(n_labels - trained, 1):.3f}", f"{after.training_.gap.max():.4f}"]
        )  # fmt: skip
        sys.stderr.write(" ".join(map(str, table[-1])) + "\n")
    header = ["added", "fit CPU s", "update CPU s", "share", "labels trained", "same", "kept", "largest gap"]
    sys.stdout.write(align(header, table) + "\n")


if __name__ == "__main__":
    main()
