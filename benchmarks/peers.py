"""longtail beside other systems on the same data, in one run: training CPU seconds, prediction, memory, accuracy.

    python benchmarks/peers.py FOLDER ... [--systems longtail,omikuji,napkinxc] [--pecos-python PATH] [--json FILE]

A FOLDER holds `train.txt` and `test.txt` as for quality.py. Every cell is a process of its own on two threads. In
"weighted" rows without the label cost a third. "scikit-learn" is LinearSVC label by label: SAMPLE random labels are
trained and the time is multiplied, so it has no accuracy; it is the same optimum as longtail's. omikuji and napkinXC
come from the `bench` extra. PECOS needs NumPy 1 and SciPy below 1.14, so it runs under an interpreter of its own
(`python -m venv pecos; pecos/bin/pip install 'numpy<2' 'scipy<1.14' scikit-learn; pecos/bin/pip install --no-deps
libpecos`), given by --pecos-python. Default settings throughout: nothing is tuned. "newton" is longtail's plain Newton
solver with the mean-separating start, "1e-3" the dual solver at that gap. CPU seconds (user + system of all threads)
are the figure to compare; wall clock depends on what else the machine does.

Every system predicts by the fastest way that its documentation offers: PECOS saved and loaded with
`is_predict_only=True`, omikuji with `densify_weights()` and a pool of THREADS (its Python interface takes a row at a
time), napkinXC and longtail in one call for all rows. Of REPEATS predictions the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

THREADS = 2
REPEATS = 3  # of every prediction; the fastest counts
SAMPLE = 100  # labels that scikit-learn trains
LONGTAIL = {
    "longtail": {},
    "longtail weighted": {"C": 1 / 3, "positive_weight": 3.0},
    "longtail 1e-3": {"tol": 1e-3},
    "newton": {"solver": "newton"},
}
COLUMNS = ("data", "system", "P@1", "P@3", "P@5", "train CPU s", "train s", "predict ms/row", "peak MB", "model MB")

Predict = Callable[[Any], np.ndarray]  # test rows -> (n, 5) label numbers, -1 where there are fewer


def clock(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def fastest(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and least wall seconds of REPEATS calls: prediction takes so little time that any other process shows."""
    runs = [clock(work) for _ in range(REPEATS)]
    return runs[-1][0], min(wall for _, wall, _ in runs)


def folder_mb(path: str) -> float:
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file()) / 1e6


def with_longtail(name: str, X: Any, Y: Any, test: Any, scratch: str) -> dict[str, Any]:
    import longtail as lt

    params = {**LONGTAIL[name], "n_jobs": THREADS}
    lt.OneVsAll(**params).fit(X[:200], Y[:200]).predict_topk(test)  # compiles
    clf, wall, cpu = clock(lambda: lt.OneVsAll(**params).fit(X, Y))
    clf.save(f"{scratch}/model")
    _ = clf.model_.index  # else the first rows are scored without kernels
    clf.predict_topk(test[:1])  # may compile
    top, predict_wall = fastest(lambda: clf.predict_topk(test, k=5))
    return {"labels": top.labels, "wall": wall, "cpu": cpu, "predict": predict_wall}


def with_omikuji(name: str, X: Any, Y: Any, test: Any, scratch: str) -> dict[str, Any]:
    import omikuji

    path = f"{scratch}/train.txt"
    with open(path, "w") as file:  # omikuji trains from a file; writing it is not counted
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
        for i in range(X.shape[0]):
            labels = ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]))
            pairs = zip(X.indices[X.indptr[i] : X.indptr[i + 1]], X.data[X.indptr[i] : X.indptr[i + 1]], strict=True)
            file.write(labels + " " + " ".join(f"{j}:{x:.6g}" for j, x in pairs) + "\n")
    model, wall, cpu = clock(lambda: omikuji.Model.train_on_data(path, omikuji.Model.default_hyper_param(), THREADS))
    model.save(f"{scratch}/model")
    model.densify_weights()  # what omikuji offers "to speed up prediction at the expense of memory usage"
    model.init_prediction_thread_pool(THREADS)
    rows = [list(zip(test[[i]].indices.tolist(), test[[i]].data.tolist(), strict=True)) for i in range(test.shape[0])]

    def predict() -> np.ndarray:
        labels = np.full((len(rows), 5), -1)
        for i, row in enumerate(rows):
            for rank, (label, _) in enumerate(model.predict(row, top_k=5)):
                labels[i, rank] = label
        return labels

    labels, predict_wall = fastest(predict)
    return {"labels": labels, "wall": wall, "cpu": cpu, "predict": predict_wall}


def with_napkinxc(name: str, X: Any, Y: Any, test: Any, scratch: str) -> dict[str, Any]:
    from napkinxc.models import PLT

    model = PLT(f"{scratch}/model", threads=THREADS)
    labels = [Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist() for i in range(Y.shape[0])]
    _, wall, cpu = clock(lambda: model.fit(sp.csr_matrix(X), labels))
    model.predict(sp.csr_matrix(test[:1]), top_k=5)  # loads the model
    found, predict_wall = fastest(lambda: model.predict(sp.csr_matrix(test), top_k=5))
    padded = np.array([(list(row) + [-1] * 5)[:5] for row in found])
    return {"labels": padded, "wall": wall, "cpu": cpu, "predict": predict_wall}


def with_scikit_learn(name: str, X: Any, Y: Any, test: Any, scratch: str) -> dict[str, Any]:
    from sklearn.svm import LinearSVC

    X, labels = sp.csr_matrix(X), np.random.default_rng(0).permutation(Y.shape[1])[:SAMPLE]
    columns = [column for column in Y[:, labels].toarray().T if 0 < column.sum() < len(column)]
    _, wall, cpu = clock(lambda: [LinearSVC(C=1.0, max_iter=10_000).fit(X, column) for column in columns])
    share = Y.shape[1] / len(columns)
    return {"labels": None, "wall": wall * share / THREADS, "cpu": cpu * share, "predict": 0.0}


def with_pecos(name: str, X: Any, Y: Any, test: Any, scratch: str) -> dict[str, Any]:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y = sp.csr_matrix(X), sp.csr_matrix(Y, dtype=np.float32)

    def train() -> Any:
        cluster = Indexer.gen(LabelEmbeddingFactory.create(Y, X), threads=THREADS)
        return XLinearModel.train(X, Y, C=cluster, threads=THREADS)

    model, wall, cpu = clock(train)
    model.save(f"{scratch}/model")
    model = XLinearModel.load(f"{scratch}/model", is_predict_only=True)  # the trained object predicts far slower
    test = sp.csr_matrix(test)
    scores, predict_wall = fastest(lambda: model.predict(test, only_topk=5, threads=THREADS))
    labels = np.full((test.shape[0], 5), -1)
    for i in range(test.shape[0]):
        row = scores[i]
        best = row.indices[np.argsort(-row.data, kind="stable")][:5]
        labels[i, : len(best)] = best
    return {"labels": labels, "wall": wall, "cpu": cpu, "predict": predict_wall}


SYSTEMS: dict[str, Callable[..., dict[str, Any]]] = {
    **dict.fromkeys(LONGTAIL, with_longtail),
    "omikuji": with_omikuji,
    "napkinxc": with_napkinxc,
    "scikit-learn": with_scikit_learn,
    "pecos": with_pecos,
}


def one_cell(system: str, arrays: str) -> dict[str, Any]:
    """Train and predict with one system, in this process; data comes from the .npz file `arrays`."""
    stored = np.load(arrays)
    X, Y, test = (
        sp.csr_array(
            (stored[f"{part}_data"], stored[f"{part}_indices"], stored[f"{part}_indptr"]), stored[f"{part}_shape"]
        )
        for part in ("X", "Y", "test")
    )
    with tempfile.TemporaryDirectory() as scratch:
        done = SYSTEMS[system](system, X, Y, test, scratch)
        size = folder_mb(f"{scratch}/model")
    return {
        "labels": None if done["labels"] is None else done["labels"].tolist(),
        "train CPU s": round(done["cpu"], 1),
        "train s": round(done["wall"], 1),
        "predict ms/row": round(1e3 * done["predict"] / test.shape[0], 3),
        "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "model MB": round(size, 1),
    }


def precision(labels: list[list[int]] | None, Y: sp.csr_array) -> dict[str, Any]:
    if labels is None:
        return dict.fromkeys(("P@1", "P@3", "P@5"), "")
    hits = [[label in set(Y.indices[Y.indptr[i] : Y.indptr[i + 1]]) for label in row] for i, row in enumerate(labels)]
    share = np.cumsum(hits, axis=1).mean(axis=0) / np.arange(1, 6)
    return {f"P@{k}": round(100 * float(share[k - 1]), 2) for k in (1, 3, 5)}


def compare(folder: str, systems: list[str], pecos_python: str | None) -> list[dict[str, Any]]:
    from quality import load

    train, test = load(folder)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        arrays = f"{scratch}/arrays.npz"
        parts = {"X": train.X, "Y": train.Y, "test": test.X}
        np.savez(
            arrays,
            **{
                f"{name}_{part}": getattr(m, part)
                for name, m in parts.items()
                for part in ("data", "indices", "indptr", "shape")
            },
        )
        for system in systems:
            python = pecos_python if system == "pecos" else sys.executable
            call = [str(python), __file__, "--cell", system, arrays]
            done = subprocess.run(call, capture_output=True, text=True)  # their progress bars are not for this log
            if done.returncode:
                raise SystemExit(f"{system} failed on {folder}:\n{done.stderr[-2000:]}")
            cell = json.loads(done.stdout.splitlines()[-1])
            rows.append({"data": Path(folder).name, "system": system, **precision(cell.pop("labels"), test.Y), **cell})
            sys.stderr.write(f"{rows[-1]}\n")
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--cell"]:
        sys.stdout.write("\n" + json.dumps(one_cell(*sys.argv[2:])) + "\n")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument(
        "--systems", default="longtail,longtail weighted,longtail 1e-3,newton,scikit-learn,omikuji,napkinxc"
    )
    parser.add_argument("--pecos-python", help="interpreter of an environment with libpecos")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    systems = options.systems.split(",") + (["pecos"] if options.pecos_python else [])
    rows = [row for folder in options.folders for row in compare(folder, systems, options.pecos_python)]
    from longtail.metrics.table import align

    sys.stdout.write(align(COLUMNS, [[row[column] for column in COLUMNS] for row in rows]) + "\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
