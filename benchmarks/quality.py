"""Accuracy, time and memory of the estimators on real data.

    python benchmarks/quality.py [FOLDER ...] [--method one-vs-all] [--set start=zero ...] [--json FILE]

A FOLDER holds `train.txt` and `test.txt` (plain, .gz or .xz) in Extreme Classification Repository format. Without one,
the ICD-10-CM corpus of the demo is used. Each row of the table is a process of its own, so that its peak memory is its
own; kernels are compiled before the clock starts. Seconds are wall clock and CPU (user + system, all threads).
"""

from __future__ import annotations

import argparse
import ast
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COLUMNS = (
    "data", "method", "P@1", "P@3", "P@5", "PSP@1", "PSP@5", "train s", "train CPU s", "predict us/row", "peak MB",
    "model MB", "X MB",
)  # fmt: skip


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def load(folder: str) -> tuple[Any, Any]:
    import longtail as lt
    from longtail.data import icd10

    if folder == "icd-10-cm":
        train, test, _ = icd10.datasets()
        return train, test
    found = {part: sorted(Path(folder).glob(f"{part}.txt*")) for part in ("train", "test")}
    for part, files in found.items():
        if len(files) != 1:
            raise SystemExit(f"{folder}: expected one {part}.txt, {part}.txt.gz or {part}.txt.xz, found {len(files)}")
    train = lt.read(found["train"][0])
    return train, lt.read(found["test"][0], like=train)


def one_class_per_row(train: Any, test: Any, n_classes: int | None = None) -> tuple[Any, Any, Any, Any]:
    """X, y and the X, y of the test rows. The class of a row is its first label, and rows without labels are left out.

    `n_classes` keeps the rows of this number of most frequent classes.
    """
    import numpy as np

    (X, y), (X_test, y_test) = (_first_labels(data) for data in (train, test))
    kept = np.argsort(-np.bincount(y, minlength=train.Y.shape[1]), kind="stable")[: n_classes or train.Y.shape[1]]
    number = np.full(train.Y.shape[1], -1)
    number[kept] = np.arange(len(kept))
    own, own_test = number[y] >= 0, number[y_test] >= 0
    return X[own], number[y[own]], X_test[own_test], number[y_test[own_test]]


def _first_labels(data: Any) -> tuple[Any, Any]:
    import numpy as np

    (rows,) = np.nonzero(np.diff(data.Y.indptr))
    return data.X[rows], data.Y.indices[data.Y.indptr[rows]].astype(np.int64)


def warm_up(method: type, params: dict[str, Any]) -> None:
    import numpy as np

    method(**params).fit(np.eye(4, dtype=np.float32), [[0], [1], [0, 1], [2]]).predict_topk(np.eye(4), 2)


def measure(folder: str, method_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """One row of the table, in this process."""
    from longtail import metrics, store
    from longtail.methods import METHODS

    method = METHODS[method_name]
    warm_up(method, params)
    train, test = load(folder)
    data_bytes = train.X.data.nbytes + train.X.indices.nbytes + train.X.indptr.nbytes
    wall, cpu = time.perf_counter(), time.process_time()
    clf = method(**params).fit(train)
    train_wall, train_cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = peak_mb()
    _ = clf.model_.index  # else the first rows are scored without kernels
    clf.predict_topk(test.X[:1], k=5)  # may compile
    times = []
    for _ in range(3):
        wall = time.perf_counter()
        top = clf.predict_topk(test.X, k=5)
        times.append(time.perf_counter() - wall)
    scores = metrics.evaluate(test.Y, top, train_Y=train.Y)
    with tempfile.TemporaryDirectory() as folder_name:
        clf.save(Path(folder_name) / "model")
        model_mb = store.model_size(Path(folder_name) / "model") / 1e6
    return {
        "data": Path(folder).name,
        "method": " ".join([method_name, *(f"{name}={value}" for name, value in params.items())]),
        **{name: round(100 * scores[name], 2) for name in ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")},
        "train s": round(train_wall, 1),
        "train CPU s": round(train_cpu, 1),
        "predict us/row": round(1e6 * min(times) / test.n_samples, 1),
        "peak MB": round(peak),
        "model MB": round(model_mb, 1),
        "X MB": round(data_bytes / 1e6, 1),
    }


def in_own_process(folder: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    call = [sys.executable, __file__, folder, "--method", method, "--row", json.dumps(params)]
    done = subprocess.run(call, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def parameter(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=["icd-10-cm"])
    parser.add_argument("--method", default="one-vs-all")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the method")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        sys.stdout.write(json.dumps(measure(options.folders[0], options.method, json.loads(options.row))))
        return
    from longtail.metrics.table import align

    params = dict(parameter(text) for text in options.set)
    rows = [in_own_process(folder, options.method, params) for folder in options.folders]
    sys.stdout.write(align(COLUMNS, [[row[column] for column in COLUMNS] for row in rows]) + "\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
