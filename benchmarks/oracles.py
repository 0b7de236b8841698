"""What a query and an update of MEMOIR's oracles cost, against the number of classes; and what a second thread brings.

    python benchmarks/oracles.py [FOLDER] [--classes 2000 5000 ...] [--queries 2000] [--plot FILE] [--threads]

With a FOLDER (as for quality.py), class sets are nested: the rows of the most frequent classes. Without, or for more
classes than the folder has, rows are synthetic: a class has 12 words of its own choice from a Zipf law, a row six of
them and six others. Each oracle is trained by one pass; then queries of rows run against frozen weights, and updates
are those of one batch after the other. Microseconds are CPU time of one thread per row. `n_groups=1` throughout: every
oracle searches all classes. Recall is how often a query finds the true best class.

--threads: wall seconds of the same queries on one and on two threads.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from longtail.methods.memoir.training import Problem, schedule_of

import longtail as lt
from longtail import parallel
from longtail.methods.memoir.presets import settings_of
from longtail.methods.memoir.sgd import Penalty, train
from longtail.metrics.table import align
from memoir import problem

ORACLES: dict[str, dict[str, Any]] = {
    "exact": {},
    "sw-graph": {"oracle": "sw-graph"},
    "simple-lsh": {"oracle": "simple-lsh"},
}
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
        X, y, _, _ = problem(folder, n_classes)
        if y.max() + 1 == n_classes:
            return X, y
    return synthetic(n_classes)


def trained(name: str, X: Any, y: np.ndarray, team: parallel.Team) -> tuple[Any, Problem]:
    """An oracle after one pass over the rows."""
    clf = lt.Memoir(n_groups=1, passes=1, batch_size=BATCH, **ORACLES[name])
    C, settings = int(y.max()) + 1, settings_of(clf)
    Y = sp.csr_array((np.ones(len(y), np.int32), y.astype(np.int32), np.arange(len(y) + 1)), shape=(len(y), C))
    task = Problem.of(X, Y, settings.bias)
    oracle = clf._oracle(settings, task, team, 0)
    schedule = schedule_of(settings, clf.eta_step, len(y), C)
    for _ in train(oracle, task.pairs, schedule, Penalty(0.0, False, False), 0):
        pass
    return oracle, task


def cost(name: str, X: Any, y: np.ndarray, n_queries: int) -> list[Any]:
    """A row of the table: queries against frozen weights; then steps, of which the part that is not query is update."""
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
    best, found = oracle.best(rows[some]), rivals[some]
    scores = [oracle.weights.scores(oracle.X, rows[some], classes) for classes in (best, found)]
    recall = float((scores[0] - scores[1] <= 1e-6).mean())
    weights = oracle.weights.nnz
    clf = lt.Memoir(n_groups=1, batch_size=BATCH, max_iter=len(rows) // BATCH, **ORACLES[name])
    schedule = schedule_of(settings_of(clf), clf.eta_step, len(y), int(y.max()) + 1)
    start, asked = time.process_time(), 0.0
    original = oracle.query

    def timed(*what: Any) -> np.ndarray:
        nonlocal asked
        begin = time.process_time()
        answer = original(*what)
        asked += time.process_time() - begin
        return answer

    oracle.query = timed
    for _ in train(oracle, task.pairs, schedule, Penalty(0.0, False, False), 1):
        pass
    update = (time.process_time() - start - asked) / (schedule.n_iter * BATCH)
    return [int(y.max()) + 1, len(y), name, weights, 1e6 * query, 1e6 * update, recall]


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
            sys.stderr.write(f"{rows[-1]}\n")  # what there is, should the rest take too long
    sys.stdout.write(align(COLUMNS, rows) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
