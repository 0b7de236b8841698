"""What the starts of one-vs-all are worth: training time, Newton steps, active rows and accuracy, as a table and plots.

    python benchmarks/starts.py [FOLDER ...] [--labels N] [--loss logistic] [--starts zero msi ...] [--json FILE]
                                [--plots FOLDER]

FOLDERs are those of quality.py; without one, the ICD-10-CM corpus of the demo is used. Every start is run by the plain
Newton solver, to the stopping rule of the papers, and by the dual solver, which chooses its first rows by it (its steps
are rounds, its active rows those at the end). Each row of the table is a process of its own, and kernels are compiled
before the clock starts. Seconds are wall clock and CPU (user + system, all threads). --labels trains and scores the
first N labels only, which is enough for ratios. The plots show, for Newton, milliseconds, steps and active rows of
labels against their number of positives, and the share of rows that are active at each step among the labels that are
not solved yet. Both come from at most SAMPLE labels, solved one by one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from quality import load, warm_up

STARTS = ("zero", "bias", "ova-primal", "tree", "msi")
SOLVERS = ("newton", "dual")
SAMPLE = 200  # labels that are solved one by one for the plots
STEPS = 12  # Newton steps in the plot
PRECISION = ("P@1", "P@3", "P@5")
COLUMNS = ("data", "solver", "start", "labels", "train s", "train CPU s", "ratio", "steps", "active rows", *PRECISION)
FIGURES = {"ms": "milliseconds per label", "steps": "Newton steps", "active rows": "mean active rows"}


def measure(folder: str, row: str, loss: str, n_labels: int | None, n_jobs: int | None, plots: bool) -> dict[str, Any]:
    """One row of the table, in this process."""
    import numpy as np

    import longtail as lt
    from longtail import metrics

    solver, start = row.split(" ")
    params = {"loss": loss, "n_jobs": n_jobs, "solver": solver, "start": start}
    warm_up(lt.OneVsAll, params)
    train, test = load(folder)
    Y, truth = train.Y[:, :n_labels], test.Y[:, :n_labels]
    wall, cpu = time.perf_counter(), time.process_time()
    clf = lt.OneVsAll(**params).fit(train.X, Y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    scores = metrics.evaluate(truth, clf.predict_topk(test.X, k=5), train_Y=Y)
    record = clf.training_
    labels = np.random.default_rng(0).permutation(Y.shape[1])[:SAMPLE]
    return {
        "data": Path(folder).name,
        "solver": solver,
        "start": start,
        "labels": Y.shape[1],
        "train s": round(wall, 2),
        "train CPU s": round(cpu, 2),
        "steps": round(float(record.n_iter.mean()), 2),
        "active rows": round(float(record.n_active.mean()), 1),
        **{name: round(100 * scores[name], 2) for name in PRECISION},
        "unsolved": int((~record.converged).sum()),
        **(one_by_one(clf, train.X, Y, np.sort(labels)) if plots and solver == "newton" else {}),
    }


def one_by_one(clf: Any, X: Any, Y: Any, labels: Any) -> dict[str, Any]:
    """What the plots of one start show: labels are solved one at a time, once by the clock and once step by step.

    With "tree", the labels above the chosen ones in the label tree are solved, too.
    """
    import numpy as np

    from longtail.methods.one_vs_all.order import walk

    problem = clf._problem(X, Y)
    wanted = with_parents(problem.item_of()[labels], problem.parent)
    figures, active_at = [], [[] for _ in range(STEPS)]
    for chunk, W in walk(problem, problem.start, wanted, problem.parent):
        for b in range(len(chunk)):
            label, w = chunk[b : b + 1], W[b : b + 1].copy()
            started = time.thread_time()
            steps, active = newton_on(problem, label, w, problem.max_iter)
            figures.append((chunk[b], 1000 * (time.thread_time() - started), steps, active))
            for at in active_at:
                steps, active = newton_on(problem, label, W[b : b + 1], 1)
                if steps == 0:
                    break
                at.append(active / X.shape[0])
            W[b] = w  # labels below this one begin at its solution
    solved, milliseconds, steps, active = np.array(figures).T
    positives = np.bincount(Y.indices, minlength=Y.shape[1])[solved.astype(int)]
    named = {"ms": milliseconds, "steps": steps, "active rows": active}
    return {
        "by positives": by_positives(positives, named),
        "active share by step": [float(np.mean(at)) for at in active_at if at],
    }


def with_parents(labels: Any, parent: Any) -> Any:
    """These labels and all labels above them, each once, in order."""
    import numpy as np

    found = np.unique(labels)
    while True:
        above = parent[found]
        larger = np.union1d(found, above[above >= 0])
        if len(larger) == len(found):
            return found
        found = larger


def newton_on(problem: Any, label: Any, W: Any, max_iter: int) -> tuple[int, float]:
    """Solve one label from W, in place, in at most `max_iter` steps; returns the steps and their mean active rows."""
    from longtail.methods.one_vs_all import newton_kernels as kernels

    rule = problem.newton_rule(problem.tol)._replace(max_iter=max_iter)
    space, out = kernels.newton_space(problem.n_samples, problem.D), kernels.newton_output(1)
    kernels.newton_block(problem.X, problem.positives, label, problem.x_sum, rule, space, W, out)
    return int(out.n_iter[0]), float(out.figures[0, 3])


def by_positives(positives: Any, figures: dict[str, Any]) -> dict[str, list[float]]:
    """Means over labels with 1, 2, 3-4, 5-8, 9-16, ... positives."""
    import numpy as np

    group = np.ceil(np.log2(np.maximum(positives, 1))).astype(int)
    groups = np.unique(group)
    means = {name: [float(values[group == each].mean()) for each in groups] for name, values in figures.items()}
    return {"positives": [float(positives[group == each].mean()) for each in groups], **means}


def in_own_process(folder: str, row: str, options: argparse.Namespace) -> dict[str, Any]:
    call = [sys.executable, __file__, folder, "--loss", options.loss, "--row", row]
    if options.plots:
        call += ["--plots", str(options.plots)]
    for name in ("labels", "jobs"):
        if getattr(options, name) is not None:
            call += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(call, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times less CPU time than the first row of the same data."""
    first = {row["data"]: row["train CPU s"] for row in reversed(rows)}
    return [{**row, "ratio": round(first[row["data"]] / max(row["train CPU s"], 0.01), 2)} for row in rows]


def plot(rows: list[dict[str, Any]], folder: Path) -> None:
    """One picture per dataset: Newton's time, steps and active rows against positives, its active rows at each step,
    and the training time of every start with both solvers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        figure, (*curves, sparsity, bars) = plt.subplots(1, 5, figsize=(24, 4.2), layout="constrained")
        looked_at = [row for row in own if "by positives" in row]
        for axes, (name, title) in zip(curves, FIGURES.items(), strict=True):
            for row in looked_at:
                axes.plot(row["by positives"]["positives"], row["by positives"][name], "o-", label=row["start"])
            axes.set(title=title, xlabel="positives of the label")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_yscale("log")
            axes.grid(alpha=0.3)
        curves[0].legend()
        for row in looked_at:
            share = row["active share by step"]
            sparsity.plot(range(1, len(share) + 1), share, "o-", label=row["start"])
        sparsity.set(title="share of active rows at each Newton step", xlabel="step", yscale="log")
        sparsity.grid(alpha=0.3)
        names = [f"{row['solver']} {row['start']}" for row in own]
        drawn = bars.barh(names, [row["train CPU s"] for row in own])
        bars.bar_label(drawn, fmt="%.1f", padding=3)
        bars.set(title="training, CPU seconds")
        bars.invert_yaxis()
        bars.margins(x=0.12)
        figure.suptitle(f"{data}, {own[0]['labels']:,} labels")
        figure.savefig(folder / f"starts-{data}.png", dpi=130)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=["icd-10-cm"])
    parser.add_argument("--starts", nargs="+", default=STARTS, help="starts, perhaps with options: msi:t=-3")
    parser.add_argument("--loss", default="squared_hinge")
    parser.add_argument("--labels", type=int, help="train this number of labels only, the first ones")
    parser.add_argument("--jobs", type=int, default=2, help="threads")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--plots", type=Path, help="also draw a picture per dataset into this folder")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        row = measure(
            options.folders[0], options.row, options.loss, options.labels, options.jobs, options.plots is not None
        )
        sys.stdout.write(json.dumps(row))
        return
    from longtail.metrics.table import align

    solvers = SOLVERS if options.loss == "squared_hinge" else SOLVERS[:1]
    chosen = [f"{solver} {start}" for solver in solvers for start in options.starts]
    rows = with_ratios([in_own_process(folder, row, options) for folder in options.folders for row in chosen])
    sys.stdout.write(align(COLUMNS, [[row[column] for column in COLUMNS] for row in rows]) + "\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.plots:
        plot(rows, options.plots)


if __name__ == "__main__":
    main()
