"""MACH: accuracy against memory, speed of training and of prediction.

    python benchmarks/mach.py grid FOLDER ... [--sizes 32x25,128x16,512x16] [--one-vs-all] [--output bench-output]
    python benchmarks/mach.py prune FOLDER ... [--sizes 512x8,1024x8]
    python benchmarks/mach.py speed FOLDER [--sizes 32x4] [--systems longtail,scikit-learn,PyTorch]
    python benchmarks/mach.py predict [--sizes 32x25]
    python benchmarks/mach.py optimisers FOLDER ... [--sizes 128x8]

grid: P@1/3/5 for B buckets and 2, 4, 8, ... up to R repetitions, as in Figure 1 of the paper, with the bytes of the
model and the factor to a dense float32 one-vs-all matrix. It writes a table, mach.json and mach.png (needs the `plot`
extra). `--one-vs-all` adds one-vs-all for comparison. A larger R is a warm start from the smaller one.
prune: one training, packed with thresholds from 0 to 3. Compares accuracy and bytes of int8, float32 and int4 with a
step for each feature. The package does not offer int4; only its bytes are counted.
speed: samples per second on the same R bucket problems of the built-in base, of scikit-learn's
SGDClassifier(loss="log_loss"), and of a sparse EmbeddingBag of PyTorch if it is installed, with the accuracy on the
test rows and the peak memory of the process. Samples are rows times epochs. Each system runs with 1 and 2 threads;
longtail runs twice, and the faster run counts.
predict: milliseconds per row for the 5 best of 100,000 labels. Folders are the same as for quality.py.
optimisers: SGD, Adagrad and Adam, each at its best rate; see mach_optimisers.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail as lt
import mach_optimisers
from longtail import metrics, store
from longtail.methods.mach.bases import FittedBases
from longtail.metrics.table import align
from longtail.models import HashedModel
from longtail.models.buckets import LinearBuckets
from longtail.models.hashed import AGGREGATES
from longtail.models.hashing import Hashes
from quality import load, peak_mb

KS = (1, 3, 5)
USUAL_SIZES = {
    "grid": "32x25,128x16,512x16", "prune": "512x8", "speed": "32x4", "predict": "32x25", "optimisers": "128x8"
}  # fmt: skip


def precision(model: Any, test: Any) -> list[float]:
    found = metrics.evaluate(test.Y, model.predict_topk(test.X, 5))
    return [round(100 * found[f"P@{k}"], 2) for k in KS]


def saved_bytes(clf: Any) -> int:
    with tempfile.TemporaryDirectory() as place:
        clf.save(Path(place) / "model")
        return store.model_size(Path(place) / "model")


def table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    sys.stdout.write(align(columns, [[row[column] for column in columns] for row in rows]) + "\n")


# --- accuracy against memory -----------------------------------------------------------------------------------------


def grid(folder: str, sizes: list[tuple[int, int]], with_one_vs_all: bool) -> dict[str, Any]:
    train, test = load(folder)
    dense = 4 * train.n_labels * train.n_features
    rows = []
    for B, most in sizes:
        clf, cpu = lt.Mach(n_buckets=B, warm_start=True), 0.0
        for R in sorted({most, *(2**power for power in range(1, 10) if 2**power < most)}):
            start = time.process_time()
            clf.set_params(n_repetitions=R).fit(train)
            cpu += time.process_time() - start
            size = saved_bytes(clf)
            found = {name: precision(replace(clf.model_, aggregate=name), test) for name in AGGREGATES}
            rows.append(
                {
                    "B": B, "R": R, **{f"P@{k}": value for k, value in zip(KS, found["geometric"], strict=True)},
                    **{name: "/".join(map(str, found[name])) for name in AGGREGATES[1:]},
                    "MB": round(size / 1e6, 1), "factor": round(dense / size, 1), "train CPU s": round(cpu, 1),
                }
            )  # fmt: skip
            sys.stderr.write(f"{Path(folder).name}: {rows[-1]}\n")
    result = {"data": Path(folder).name, "dense MB": round(dense / 1e6), "rows": rows, "one-vs-all": None}
    if with_one_vs_all:
        ova = lt.OneVsAll().fit(train)
        result["one-vs-all"] = {"P": precision(ova.model_, test), "MB": round(saved_bytes(ova) / 1e6, 1)}
    return result


def plot(results: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(5 * len(results), 4), layout="constrained")
    for axes, result in zip(np.atleast_1d(figure.subplots(1, len(results))), results, strict=True):
        for B in sorted({row["B"] for row in result["rows"]}):
            line = [(row["MB"], row["P@1"]) for row in result["rows"] if row["B"] == B]
            axes.plot(*zip(*line, strict=True), marker="o", label=f"B = {B}")
        if result["one-vs-all"]:
            axes.axhline(result["one-vs-all"]["P"][0], color="black", linestyle="--", label="one-vs-all")
        axes.set(xscale="log", xlabel="model on disk, MB", ylabel="P@1, per cent", title=result["data"])
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def in_four_bits(W: np.ndarray) -> np.ndarray:
    """W rounded to 15 values for each feature, as float32."""
    steps = np.abs(W).max(axis=1, keepdims=True) / 7
    steps[steps == 0] = 1
    return np.rint(W / steps) * steps


def prune(folder: str, sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Accuracy against bytes from one training: packing is all that differs."""
    train, test = load(folder)
    rows = []
    for B, R in sizes:
        exact = lt.Mach(B, R, weights="float32", prune=0.0).fit(train).model_
        scale = float(np.sqrt((train.X.data.astype(float) ** 2).sum() / train.n_samples))
        W, dense = exact.linear.matrix.toarray(), 4 * train.n_labels * train.n_features
        every = np.arange(len(W))
        cuts = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0)
        for weights, cut in [("float32", 0.0), *product(("int8",), cuts), *product(("int4",), cuts[:5])]:
            packed = LinearBuckets.packed(
                in_four_bits(W) if weights == "int4" else W, every, train.n_features, B, exact.bias,
                exact.linear.link, weights="int8" if weights == "int8" else "float32",
                prune=cut, scale=scale,
            )  # fmt: skip
            size = packed.nbytes + exact.hashes.table.nbytes
            if weights == "int4":  # half a byte each, with columns or without, and a step for each feature
                kept = np.count_nonzero(packed.codes)
                size += int(min(2.5 * kept, 0.5 * W.size)) + packed.ends.nbytes + 4 * len(W) - packed.nbytes
            found = {
                name: precision(replace(exact, buckets=packed, aggregate=name), test) for name in ("geometric", "min")
            }
            rows.append(
                {
                    "B": B, "R": R, "weights": weights, "prune": cut, "MB": round(size / 1e6, 1),
                    "factor": round(dense / size, 1), **{name: "/".join(map(str, found[name])) for name in found},
                }
            )  # fmt: skip
            sys.stderr.write(f"{Path(folder).name}: {rows[-1]}\n")
    return rows


# --- speed -----------------------------------------------------------------------------------------------------------


def least_seconds(task: Callable[[], Any], runs: int = 2) -> tuple[tuple[float, float], Any]:
    """The smallest wall-clock and CPU seconds of some runs, and the result of the last."""
    times, result = [], None
    for _ in range(runs):
        start = time.perf_counter(), time.process_time()
        result = task()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, cpu = np.min(times, axis=0)
    return (float(wall), float(cpu)), result


def one_label(data: Any) -> lt.Dataset:
    """The rows that have a label, with their first label only: bucket problems of one class per row."""
    rows = np.flatnonzero(np.diff(data.Y.indptr))
    first = data.Y.indices[data.Y.indptr[rows]]
    Y = sp.csr_array((np.ones(len(rows), np.int32), first, np.arange(len(rows) + 1)), shape=(len(rows), data.n_labels))
    return lt.Dataset(sp.csr_array(data.X[rows]), Y)


def with_scikit_learn(train: Any, B: int, R: int, n_jobs: int, epochs: int) -> tuple[tuple[float, float], HashedModel]:
    """The same hashes and bucket problems, one SGDClassifier after the other."""
    from sklearn.linear_model import SGDClassifier

    hashes, y = Hashes.draw(train.n_labels, B, range(R), 0), train.Y.indices

    def fit() -> list[Any]:
        base = {"loss": "log_loss", "alpha": 1e-6, "max_iter": epochs, "tol": None, "random_state": 0, "n_jobs": n_jobs}
        return [SGDClassifier(**base).fit(train.X, hashes.table[y, r].astype(int)) for r in range(R)]

    seconds, bases = least_seconds(fit, runs=1)
    return seconds, HashedModel(hashes, FittedBases(tuple(bases), B), train.n_features)


def with_torch(
    train: Any, B: int, R: int, n_jobs: int, epochs: int, batch: int = 64
) -> tuple[tuple[float, float], HashedModel]:
    """One embedding per feature over all R B buckets, sparse gradients, plain SGD with a falling rate."""
    import torch

    torch.set_num_threads(n_jobs)
    torch.manual_seed(0)
    hashes = Hashes.draw(train.n_labels, B, range(R), 0)
    X, targets = train.X, torch.as_tensor(hashes.table[train.Y.indices].astype(np.int64))
    indices, values = torch.as_tensor(X.indices.astype(np.int64)), torch.as_tensor(X.data)

    def fit() -> Any:
        layer = torch.nn.EmbeddingBag(X.shape[1], R * B, mode="sum", sparse=True)
        torch.nn.init.zeros_(layer.weight)
        descent = torch.optim.SGD(layer.parameters(), lr=1.0)
        steps = epochs * -(-X.shape[0] // batch)
        fall = torch.optim.lr_scheduler.LambdaLR(descent, lambda step: 4.0 * batch * (1 - step / steps))
        for epoch in range(epochs):
            order = np.random.default_rng(epoch).permutation(X.shape[0])
            for start in range(0, len(order), batch):
                rows = order[start : start + batch]
                spans = [np.arange(X.indptr[i], X.indptr[i + 1]) for i in rows]
                at = torch.as_tensor(np.concatenate(spans))
                offsets = torch.as_tensor(np.cumsum([0, *map(len, spans)][:-1]))
                z = layer(indices[at], offsets, per_sample_weights=values[at])
                loss = torch.nn.functional.cross_entropy(z.reshape(-1, B), targets[rows].reshape(-1)) * R
                descent.zero_grad()
                loss.backward()
                descent.step()
                fall.step()
        return layer.weight.detach().numpy()

    seconds, W = least_seconds(fit, runs=1)
    W = np.vstack([W, np.zeros(R * B, np.float32)])
    buckets = LinearBuckets.packed(W, np.arange(len(W)), len(W) - 1, B, 0.0, "softmax")
    return seconds, HashedModel(hashes, buckets, train.n_features)


def with_longtail(train: Any, B: int, R: int, n_jobs: int, epochs: int) -> tuple[tuple[float, float], HashedModel]:
    seconds, clf = least_seconds(lambda: lt.Mach(B, R, max_iter=epochs, n_jobs=n_jobs).fit(train))
    return seconds, clf.model_


SYSTEMS = {"longtail": with_longtail, "scikit-learn": with_scikit_learn, "PyTorch": with_torch}


def speed_row(folder: str, name: str, B: int, R: int, n_jobs: int, epochs: int = 5) -> dict[str, Any]:
    """One row of the table, in this process."""
    train, test = map(one_label, load(folder))
    easy = np.tile(np.arange(2 * B), 3)  # more labels than buckets, but no two of them alike
    lt.Mach(B, 8, max_iter=1).fit(sp.csr_array(sp.eye_array(2 * B, dtype=np.float32, format="csr")[easy]), easy)
    (wall, cpu), model = SYSTEMS[name](train, B, R, n_jobs, epochs)
    return {
        "B": B, "R": R, "system": name, "threads": n_jobs, "wall s": round(wall, 2), "CPU s": round(cpu, 2),
        "peak MB": round(peak_mb()), "samples/s": round(epochs * train.n_samples / wall),
        "P@1": precision(model, test)[0],
    }  # fmt: skip


def speed(folder: str, sizes: list[tuple[int, int]], names: list[str]) -> list[dict[str, Any]]:
    """Each row in a process of its own, so that its peak memory is its own."""
    names, rows = [name for name in names if name != "PyTorch" or find_spec("torch")], []
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for (B, R), name, n_jobs in product(sizes, names, (1, 2)):
            rows.append(pool.submit(speed_row, folder, name, B, R, n_jobs).result())
            sys.stderr.write(f"{rows[-1]}\n")
    return rows


def optimisers(folder: str, sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    train, test = load(folder)
    return [{"data": Path(folder).name, **row} for B, R in sizes for row in mach_optimisers.compare(train, test, B, R)]


def predict(sizes: list[tuple[int, int]], n_labels: int = 100_000, n_features: int = 20_000) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    X = sp.csr_array(
        sp.random(4096, n_features, density=50 / n_features, dtype=np.float32, random_state=rng, format="csr")
    )
    rows = []
    for B, R in sizes:
        W = rng.normal(size=(n_features + 1, R * B)).astype(np.float32) * (rng.random((n_features + 1, R * B)) < 0.1)
        buckets = LinearBuckets.packed(W, np.arange(len(W)), n_features, B, 1.0, "softmax", weights="int8")
        for aggregate in AGGREGATES:
            model = HashedModel(Hashes.draw(n_labels, B, range(R), 0), buckets, n_features, aggregate)
            model.predict_topk(X[:600], 5, n_jobs=2)  # compiles
            row: dict[str, Any] = {"labels": n_labels, "B": B, "R": R, "aggregate": aggregate}
            for n_jobs in (1, 2):
                (wall, cpu), _ = least_seconds(lambda m=model, n=n_jobs: m.predict_topk(X, 5, n_jobs=n), runs=3)
                row[f"wall ms/row, {n_jobs} threads"] = round(1e3 * wall / X.shape[0], 3)
                row[f"CPU ms/row, {n_jobs} threads"] = round(1e3 * cpu / X.shape[0], 3)
            rows.append(row)
            sys.stderr.write(f"{row}\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(USUAL_SIZES))
    parser.add_argument("folders", nargs="*", default=[])
    parser.add_argument("--sizes", help="B x R, separated by commas")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="what `speed` compares")
    parser.add_argument("--one-vs-all", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("bench-output"))
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in (options.sizes or USUAL_SIZES[options.what]).split(",")]
    folders = options.folders or ["icd-10-cm"]
    options.output.mkdir(parents=True, exist_ok=True)
    if options.what == "grid":
        results = [grid(folder, sizes, options.one_vs_all) for folder in folders]
        for result in results:
            sys.stdout.write(f"\n{result['data']}: dense one-vs-all {result['dense MB']:,} MB\n")
            table(tuple(result["rows"][0]), result["rows"])
            if result["one-vs-all"]:
                sys.stdout.write(f"one-vs-all: {result['one-vs-all']}\n")
        plot(results, options.output / "mach.png")
        (options.output / "mach.json").write_text(json.dumps(results, indent=1) + "\n")
        return
    if options.what == "predict":
        rows = predict(sizes)
    else:
        timed = partial(speed, names=options.systems.split(","))
        measure = {"prune": prune, "speed": timed, "optimisers": optimisers}[options.what]
        rows = [row for folder in folders for row in measure(folder, sizes)]
    table(tuple(rows[0]), rows)
    (options.output / f"mach-{options.what}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
