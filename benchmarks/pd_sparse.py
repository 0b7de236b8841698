"""PD-Sparse on real data, in the shape of its paper's tables, beside one-vs-all.

    python benchmarks/pd_sparse.py table FOLDER ... [--json FILE]       Tables 1 to 3: time, size, precision, k_A, k_W
    python benchmarks/pd_sparse.py curve FOLDER ... [--output DIR]      precision against size, beside OneVsAll's
    python benchmarks/pd_sparse.py growth FOLDER ... [--output DIR]     a pass against the number of labels, 1x to 8x
    python benchmarks/pd_sparse.py threads FOLDER ...                   one thread against two

Folders are the same as for quality.py. Every row of the table comes from a process of its own on one thread, with
kernels compiled before the clock starts. The curve uses the C that the defaults choose. Growth takes nested random
subsets of the labels and the rows that have them, with C = 1. k_A is the mean number of active labels per row and k_W
the mean number of weights per feature in use. Plots need the `plot` extra.

Threads takes the least time of several fits, in turns. `gain` means something on an idle machine only. `bound` does not
need one: it is what two threads gain if they divide evenly what threads can divide, by the CPU times of one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import longtail as lt
from longtail.methods.pd_sparse import STAGES
from longtail.parallel import Team
from quality import load

LAMS = (0.1, 0.05, 0.02, 0.01, 0.003)  # times C
PRUNES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4)
COLUMNS = (
    "data", "N", "D", "K", "train CPU s", "peak MB", "model MB", "weights", "predict s", "P@1", "P@3", "P@5", "C",
    "lam", "passes", "k_A", "k_W",
)  # fmt: skip


def warm_up() -> None:
    rows = np.random.default_rng(0).random((300, 5))
    lt.PDSparse(n_jobs=1).fit(rows, [[i % 3, 3] for i in range(300)]).predict_topk(rows, 2)


def precision(clf: Any, test: Any) -> dict[str, float]:
    at = lt.metrics.precision_curve(test.Y, clf.predict_topk(test.X, min(5, clf.model_.n_labels)))
    return {f"P@{k}": round(100 * float(at[k - 1]), 2) for k in (1, 3, 5) if k <= len(at)}


def table_row(folder: str) -> dict[str, Any]:
    """One dataset, in this process."""
    from longtail import store

    warm_up()
    train, test = load(folder)
    start = time.process_time()
    clf = lt.PDSparse(n_jobs=1).fit(train)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    _ = clf.model_.index  # else the first rows are scored without kernels
    clf.predict_topk(test.X[:1])  # may compile
    start = time.process_time()
    clf.predict_topk(test.X, 5)
    predicting = time.process_time() - start
    with tempfile.TemporaryDirectory() as scratch:
        clf.save(f"{scratch}/model")
        size = store.model_size(f"{scratch}/model") / 1e6
    last = np.flatnonzero(np.isin(clf.training_.pass_stage, [STAGES.index("train"), STAGES.index("refit")]))[-1]
    return {
        "data": Path(folder).name,
        "N": train.n_samples,
        "D": train.n_features,
        "K": train.n_labels,
        "train CPU s": round(seconds, 1),
        "peak MB": round(peak),
        "model MB": round(size, 1),
        "weights": clf.model_.W.nnz,
        "predict s": round(predicting, 3),
        **precision(clf, test),
        "C": clf.C_,
        "lam": round(clf.lam_, 4),
        "passes": clf.n_iter_,
        "k_A": round(float(clf.training_.pass_k_A[last]), 2),
        "k_W": round(float(clf.training_.pass_k_W[last]), 2),
    }


def in_own_process(folder: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, "row", folder], stdout=subprocess.PIPE, check=True)
    row = dict(json.loads(done.stdout.splitlines()[-1]))
    sys.stderr.write(f"{row}\n")
    return row


def curve(folder: str) -> list[dict[str, Any]]:
    """Precision and size of both methods for several values of lam and prune."""
    train, test = load(folder)
    rows = []
    C = lt.PDSparse(n_jobs=1, max_iter=1, post_solve=False).fit(train).C_
    for share in LAMS:
        clf = lt.PDSparse(C, lam=share * C, n_jobs=1, post_solve=False).fit(train)
        rows.append({"method": "PDSparse", "knob": f"lam={share * C:g}", "weights": clf.model_.W.nnz})
        rows[-1] |= precision(clf, test)
        sys.stderr.write(f"{Path(folder).name} {rows[-1]}\n")
    clf = lt.OneVsAll(prune=PRUNES[0]).fit(train)
    for prune in PRUNES:
        W = clf.model_.W.copy()
        W.data[np.abs(W.data) < prune] = 0
        W.eliminate_zeros()
        clf.model_ = lt.LinearModel(W, clf.model_.n_features, clf.model_.bias, label_names=clf.classes_)
        rows.append({"method": "OneVsAll", "knob": f"prune={prune:g}", "weights": W.nnz, **precision(clf, test)})
        sys.stderr.write(f"{Path(folder).name} {rows[-1]}\n")
    return [{"data": Path(folder).name, **row} for row in rows]


def growth(folder: str, passes: int = 3) -> list[dict[str, Any]]:
    """The last of some passes at C = 1 over nested subsets of the labels."""
    train, _ = load(folder)
    labels, rows = np.random.default_rng(0).permutation(train.n_labels), []
    for eighth in (1, 2, 4, 8):
        Y = sp.csr_array(train.Y[:, np.sort(labels[: eighth * train.n_labels // 8])])
        some = np.flatnonzero(np.diff(Y.indptr))
        X, Y = sp.csr_array(train.X[some]), sp.csr_array(Y[some])
        used = len(np.unique(X.indices))
        clocks = []
        for number in (passes - 1, passes):
            start = time.process_time()
            clf = lt.PDSparse(1.0, early_stopping=False, max_iter=number, tol=0, post_solve=False, n_jobs=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is fixed
                clf.fit(X, Y)
            clocks.append(time.process_time() - start)
        seconds = max(clocks[1] - clocks[0], 0.0)
        rows.append(
            {
                "data": Path(folder).name,
                "labels": Y.shape[1],
                "rows": len(some),
                "pass s": round(seconds, 2),
                "us/row": round(1e6 * seconds / len(some), 1),
                "k_A": round(float(clf.training_.pass_k_A[-1]), 2),
                "k_W": round(clf.model_.W.nnz / used, 2),
            }
        )
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def threads(folder: str, repeats: int = 3) -> list[dict[str, Any]]:
    """Wall and CPU time with one thread and with two, and whether the models have the same bytes."""
    train, _ = load(folder)
    found: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    models = set()
    for n_jobs in (1, 2) * repeats:
        divided = []
        with divisible(divided):
            wall, cpu = time.perf_counter(), time.process_time()
            W = lt.PDSparse(n_jobs=n_jobs).fit(train).model_.W
            found[n_jobs].append((time.process_time() - cpu, time.perf_counter() - wall, sum(divided)))
        models.add((W.data.tobytes(), W.indices.tobytes(), W.indptr.tobytes()))
    (cpu_1, _, shared), (cpu_2, *_) = min(found[1]), min(found[2])
    wall_1, wall_2 = (min(wall for _, wall, _ in found[n_jobs]) for n_jobs in (1, 2))
    row = {
        "data": Path(folder).name,
        "wall s, 1 thread": round(wall_1, 2),
        "2 threads": round(wall_2, 2),
        "gain": round(wall_1 / wall_2, 2),
        "CPU s, 1 thread": round(cpu_1, 2),
        "CPU s, 2 threads": round(cpu_2, 2),
        "bound": round(cpu_1 / (cpu_1 - shared / 2), 2),
        "same bytes": "yes" if len(models) == 1 else "NO",
    }
    sys.stderr.write(f"{row}\n")
    return [row]


@contextlib.contextmanager
def divisible(seconds: list[float]) -> Iterator[None]:
    """Append the CPU time that the calling thread spends in each round of a team."""
    run = Team.run

    def timed(team: Team, task: Any, items: Any) -> Any:
        begin = time.thread_time()
        results = run(team, task, items)
        seconds.append(time.thread_time() - begin)
        return results

    Team.run = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Team.run = run  # type: ignore[method-assign]


def plot_curve(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(5.5 * len(names), 4), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for method in ("PDSparse", "OneVsAll"):
            own = [row for row in rows if row["data"] == name and row["method"] == method]
            axes.plot([row["weights"] for row in own], [row["P@1"] for row in own], "o-", label=method)
        axes.set(title=name, xlabel="weights", ylabel="P@1", xscale="log")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def plot_growth(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    for axes, column in zip(figure.subplots(1, 3), ("us/row", "k_A", "k_W"), strict=True):
        for name in dict.fromkeys(row["data"] for row in rows):
            own = [row for row in rows if row["data"] == name]
            axes.plot([row["labels"] for row in own], [row[column] for row in own], "o-", label=name)
        title = "one pass, microseconds per row" if column == "us/row" else column
        axes.set(title=title, xlabel="labels", xlim=(0, None), ylim=(0, None))
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "curve", "growth", "threads", "row"))
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="where plots go")
    options = parser.parse_args()
    if options.what == "row":
        sys.stdout.write(json.dumps(table_row(options.folders[0])) + "\n")
        return
    from longtail.metrics.table import align

    if options.what == "table":
        rows, columns = [in_own_process(folder) for folder in options.folders], list(COLUMNS)
    elif options.what == "threads":
        warm_up()
        rows = [row for folder in options.folders for row in threads(folder)]
        columns = list(rows[0])
    else:
        warm_up()
        measure = curve if options.what == "curve" else growth
        rows = [row for folder in options.folders for row in measure(folder)]
        columns = list(rows[0])
        options.output.mkdir(parents=True, exist_ok=True)
        draw = plot_curve if options.what == "curve" else plot_growth
        draw(rows, options.output / f"pd-sparse-{options.what}.png")
    sys.stdout.write(align(columns, [[row.get(column, "") for column in columns] for row in rows]) + "\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
