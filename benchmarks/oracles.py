"""The cost of a query and of an update of MEMOIR's oracles, by number of classes, and the gain from a second thread.

    python benchmarks/oracles.py [FOLDER] [--classes 2000 5000 ...] [--queries 2000] [--plot FILE] [--threads]

With a FOLDER (as for quality.py), the rows are those of its most frequent classes. Without one, or for more classes
than the folder has, the rows are synthetic: a class has 12 words of its own, drawn from a Zipf law, and a row has six
of these and six other words. Each oracle is trained by one pass. Then queries run with fixed weights, and updates are
timed in further batches. Microseconds are CPU time of one thread per row. All runs have `n_groups=1`, so every oracle
searches all classes. Recall is the share of queries that find the true best class.

--threads: wall seconds of the same queries on one and on two threads.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail as lt
from longtail import parallel
from longtail.methods.memoir.oracle_recall import TIE
from longtail.methods.memoir.parameters import resolve
from longtail.methods.memoir.problem import MemoirProblem, batches_of
from longtail.methods.memoir.sgd import train
from longtail.metrics.table import align
from quality import load, one_class_per_row

ORACLES = ("exact", "sw-graph", "simple-lsh")
CLASSES = (2_000, 5_000, 10_000, 18_000, 50_000, 100_000)
COLUMNS = ("classes", "rows", "oracle", "weights", "query us", "update us", "recall")
BATCH = 64


def synthetic(n_classes: int, per_class: int = 1, n_words: int = 50_000) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(n_classes)
    zipf = np.cumsum(1.0 / np.arange(10, n_words + 10))

    def words(*shape: int) -> np.ndarray:
        return np.searchsorted(zipf, rng.random(shape) * zipf[-1])

    own = words(n_classes, 12)
    y = np.repeat(np.arange(n_classes), per_class)
    chosen = own[y[:, None], rng.integers(12, size=(len(y), 6))]
    indices = np.concatenate([chosen, words(len(y), 6)], axis=1)
    X = sp.csr_array((np.ones(indices.size, np.float32), indices.ravel(), np.arange(0, indices.size + 1, 12)),
                     shape=(len(y), n_words))  # fmt: skip
    X.sum_duplicates()
    weight = np.log(len(y) / (1 + np.bincount(X.indices, minlength=n_words))).astype(np.float32)
    X.data *= weight[X.indices]
    from longtail.matrix import normalize_rows

    return normalize_rows(X), y


def rows_of(folder: str | None, n_classes: int) -> tuple[Any, np.ndarray]:
    if folder is not None:
        X, y, _, _ = one_class_per_row(*load(folder), n_classes)
        if y.max() + 1 == n_classes:
            return X, y
    return synthetic(n_classes)


def trained(name: str, X: Any, y: np.ndarray, team: parallel.Team) -> tuple[Any, MemoirProblem]:
    """An oracle after one pass over the rows, and its problem."""
    C = int(y.max()) + 1
    Y = sp.csr_array((np.ones(len(y), np.int32), y.astype(np.int32), np.arange(len(y) + 1)), shape=(len(y), C))
    task = MemoirProblem(X, Y, resolve(lt.Memoir(oracle=name, n_groups=1, max_iter=1, batch_size=BATCH)), seed=0)
    oracle = task.oracle(team)
    for _ in train(oracle, task.pairs, task.batches, task.penalty, seed=0):
        pass
    return oracle, task


def cost(name: str, X: Any, y: np.ndarray, n_queries: int) -> list[Any]:
    """A row of the table: queries with fixed weights, then batches, whose time without the queries is the update."""
    with parallel.Team(1) as team:
        trained(name, X[:500], y[:500] % 50, team)  # compiles
        oracle, task = trained(name, X, y, team)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(y))[:n_queries]
    start = time.process_time()
    rivals = np.concatenate([oracle.query(rows[at : at + BATCH], y[rows[at : at + BATCH]])
                             for at in range(0, len(rows), BATCH)])  # fmt: skip
    query = (time.process_time() - start) / len(rows)
    some = slice(0, 100)
    best, found = (
        oracle.vectors.scores(oracle.X, rows[some], classes) for classes in (oracle.best(rows[some]), rivals[some])
    )
    recall = float((best - found <= TIE).mean())
    n_weights = oracle.vectors.nnz
    parameters = replace(task.parameters, n_batches=len(rows) // BATCH)
    batches = batches_of(parameters, len(y), int(y.max()) + 1)
    start, in_queries = time.process_time(), 0.0
    original = oracle.query

    def timed(*what: Any) -> np.ndarray:
        nonlocal in_queries
        begin = time.process_time()
        answer = original(*what)
        in_queries += time.process_time() - begin
        return answer

    oracle.query = timed
    for _ in train(oracle, task.pairs, batches, task.penalty, seed=1):
        pass
    update = (time.process_time() - start - in_queries) / (batches.n_batches * BATCH)
    return [int(y.max()) + 1, len(y), name, n_weights, 1e6 * query, 1e6 * update, recall]


def threads(name: str, X: Any, y: np.ndarray, n_queries: int) -> list[Any]:
    """Best of five: the same queries on one and on two threads, in turns."""
    rows = np.random.default_rng(0).permutation(len(y))[:n_queries]
    with parallel.Team(1) as one, parallel.Team(2) as two:
        oracle, _ = trained(name, X, y, one)
        seconds: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(5):
            for team in (one, two):
                oracle.team = team
                start = time.perf_counter()
                oracle.query(rows, y[rows])
                seconds[team.size].append(time.perf_counter() - start)
    best = {size: min(times) for size, times in seconds.items()}
    return [name, len(rows), best[1], best[2], best[1] / best[2]]


def plot(rows: list[list[Any]], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axes, column, title in zip(panels, (4, 5), ("query", "update"), strict=True):
        for name in ORACLES:
            own = [row for row in rows if row[2] == name]
            axes.plot([row[0] for row in own], [row[column] for row in own], "o-", label=name)
        axes.set(title=f"{title}, CPU microseconds per row", xlabel="classes", xscale="log", yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0].legend()
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--oracles", nargs="+", default=list(ORACLES))
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.threads:
        X, y = rows_of(options.folder, options.classes[-1])
        table = [threads(name, X, y, 10 * options.queries) for name in options.oracles]
        sys.stdout.write(align(("oracle", "queries", "1 thread s", "2 threads s", "ratio"), table) + "\n")
        return
    rows = []
    for n_classes in options.classes:
        X, y = rows_of(options.folder, n_classes)
        for name in options.oracles:
            rows.append(cost(name, X, y, options.queries))
            sys.stderr.write(f"{rows[-1]}\n")  # so that an interrupted run shows what it has measured
    sys.stdout.write(align(COLUMNS, rows) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
