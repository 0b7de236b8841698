"""Speed of exact top-k prediction: as it is, against the plain pass over the lists of W alone, in one run.

    python benchmarks/predict.py                            the ICD-10-CM corpus of the demo, trained here
    python benchmarks/predict.py MODEL DATA                 a saved model, and the rows of a data file

`plain`, `float32`, `half` and `8-bit` are microseconds of wall clock per row, the minimum of several runs that take
turns: the lists alone, a trained model, and the model saved with these weights and loaded. All but `8-bit`, and `half`
where it loses something, must give the same labels and scores, or the run fails. `batch` hands over all rows at once,
`single` one row per call, as a service does. `by estimate` is the share of rows for which `float32` did not take the
lists alone (models/index_kernels.py). The sizes are those of the whole model folders.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import longtail as lt
from longtail.models import LinearModel
from longtail.models import index_kernels as kernels
from longtail.models.compact import FORMS

FIGURES = {
    "k": "{}",
    "rows": "{}",
    "threads": "{}",
    "plain": "{:.1f}",
    "float32": "{:.1f}",
    "half": "{:.1f}",
    "8-bit": "{:.1f}",
    "by estimate": "{:.3f}",
}
SINGLE_ROWS = 200


def corpus() -> tuple[Any, Any]:
    from longtail.data import icd10

    train, test, _ = icd10.datasets()
    return lt.OneVsAll().fit(train), test.X


def saved_forms(clf: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """The model in every form, saved and loaded, and the megabytes of the folders."""
    models, sizes = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for form in FORMS:
            root = Path(scratch) / form
            clf.save(root, weights=form)
            sizes[f"{form} MB"] = sum(file.stat().st_size for file in root.iterdir()) / 1e6
            models[form] = lt.load(root).model_
    return models, sizes


def plain_twin(model: LinearModel) -> LinearModel:
    """The same model, to which looking up a weight is too dear."""
    twin = dataclasses.replace(model)
    vars(twin)["index"] = model.index._replace(price=np.inf)
    return twin


def seconds(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def by_estimate(model: LinearModel, X: Any, k: int) -> float:
    k = min(k, model.n_labels)
    out = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
    return kernels.top_rows(model.index.rows(X), model.index, *model.index._buffers(X), *out) / max(1, X.shape[0])


def measure(models: dict[str, Any], X: Any, k: int, mode: str, threads: int, runs: int) -> dict[str, Any]:
    """One line of the table."""
    blocks = [X] if mode == "batch" else [X[[i]] for i in range(min(SINGLE_ROWS, X.shape[0]))]
    n = sum(block.shape[0] for block in blocks)
    exact = {name: one for name, one in models.items() if name in ("plain", "float32")}
    if (models["half"].W != models["float32"].W).nnz == 0:
        exact["half"] = models["half"]
    for block in blocks:
        answers = [one.predict_topk(block, k, n_jobs=threads) for one in exact.values()]
        if len({(each.labels.tobytes(), each.scores.tobytes()) for each in answers}) > 1:
            raise SystemExit(f"k={k}, {mode}: the answers differ")
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(runs):
        for name, one in models.items():
            times[name].append(seconds(lambda m=one: [m.predict_topk(block, k, n_jobs=threads) for block in blocks]))
    taken = {name: 1e6 * min(each) / n for name, each in times.items()}
    share = by_estimate(models["float32"], X[:n], k)
    return {"k": k, "rows": mode, "threads": threads, **taken, "by estimate": share}


def resident(field: str) -> float:
    """Megabytes now (VmRSS) or at most so far (VmHWM); NaN where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1e3


def memory(model: LinearModel) -> dict[str, float]:
    """Megabytes of W and of what the index adds to it, and how long that took."""
    took = seconds(lambda: model.index)
    index = model.index
    parts = {
        "W": (model.W.data, model.W.indices, model.W.indptr),
        "lists": (index.weights, index.labels, index.ends),
        "columns": (index.codes, index.steps, index.column_of, index.peaks, *index[9:12]),
    }
    sizes = {f"{name} MB": sum(array.nbytes for array in arrays) / 1e6 for name, arrays in parts.items()}
    return {**sizes, "index seconds": took}


def table(lines: list[dict[str, Any]]) -> str:
    cells = [list(FIGURES)] + [[form.format(line[name]) for name, form in FIGURES.items()] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", help="model folder; none: train on the corpus of the demo")
    parser.add_argument("data", nargs="?", help="data file whose rows are predicted")
    parser.add_argument("--rows", type=int, default=2000, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default: %(default)s)")
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 5, 100], help="values of k (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if (options.model is None) != (options.data is None):
        parser.error("give both a model folder and a data file, or neither")
    if options.model:
        clf, X = lt.load(options.model), lt.read(options.data).X
    else:
        clf, X = corpus()
    tiny = lt.OneVsAll(n_jobs=1).fit(np.eye(3), [0, 1, 2])
    tiny.predict_topk(np.eye(3), k=1)  # compiles
    X = X[: options.rows]
    models, folders = saved_forms(clf)
    model = models["float32"]
    sizes = {**folders, **memory(model)}
    models = {"plain": plain_twin(model), **models}
    for one in models.values():
        _ = one.index  # or else the first rows would be scored without kernels
    ways = [("batch", 1), ("batch", 2), ("single", 1)]
    lines = [measure(models, X, k, mode, threads, options.runs) for k in options.ks for mode, threads in ways]
    sizes["peak RSS MB"] = resident("VmHWM")
    if options.json:
        sys.stdout.write(json.dumps({"sizes": sizes, "lines": lines}, indent=1) + "\n")
        return
    heading = f"{model.n_labels:,} labels, {model.n_features:,} features, {X.nnz / max(1, X.shape[0]):.1f} per row; "
    sys.stdout.write(heading + ", ".join(f"{name} {value:.1f}" for name, value in sizes.items()) + "\n")
    sys.stdout.write(table(lines) + "\n")


if __name__ == "__main__":
    main()
