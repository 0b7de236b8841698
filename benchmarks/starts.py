"""What the starts of one-vs-all are worth: training time, Newton steps, active rows and accuracy, as a table and plots.

    python benchmarks/starts.py [FOLDER ...] [--labels N] [--loss logistic] [--starts zero msi ...] [--json FILE]
                                [--plots FOLDER]

FOLDERs are those of quality.py; without one, the ICD-10-CM corpus of the demo is used. Every start is run by the plain
Newton solver, to the stopping rule of the papers; one more row is the dual solver, which needs no start (its steps are
rounds, its active rows those at the end). Each row is a process of its own, and kernels are compiled before the clock
starts. Seconds are wall clock and CPU (user + system, all threads). --labels trains and scores the first N labels only:
enough for ratios. The plots show the means over labels with so many positives, and the time of every start.
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
DUAL = "(dual)"
PRECISION = ("P@1", "P@3", "P@5")
COLUMNS = ("data", "start", "labels", "train s", "train CPU s", "ratio", "steps", "active rows", *PRECISION)
FIGURES = {"steps": "mean Newton steps", "active rows": "mean active rows"}


def measure(folder: str, start: str, loss: str, n_labels: int | None, n_jobs: int | None) -> dict[str, Any]:
    """One row of the table, in this process."""
    import numpy as np

    import longtail as lt
    from longtail import metrics

    how = {"solver": "dual"} if start == DUAL else {"solver": "newton", "start": start}
    params = {"loss": loss, "n_jobs": n_jobs, **how}
    warm_up(lt.OneVsAll, params)
    train, test = load(folder)
    Y, truth = train.Y[:, :n_labels], test.Y[:, :n_labels]
    wall, cpu = time.perf_counter(), time.process_time()
    clf = lt.OneVsAll(C=1.0, **params).fit(train.X, Y)  # as in the papers
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    scores = metrics.evaluate(truth, clf.predict_topk(test.X, k=5), train_Y=Y)
    positives, outcome = np.bincount(Y.indices, minlength=Y.shape[1]), clf.outcome_
    return {
        "data": Path(folder).name,
        "start": start,
        "labels": Y.shape[1],
        "train s": round(wall, 2),
        "train CPU s": round(cpu, 2),
        "steps": round(float(outcome.n_iter.mean()), 2),
        "active rows": round(float(outcome.n_active.mean()), 1),
        **{name: round(100 * scores[name], 2) for name in PRECISION},
        "unsolved": int((~outcome.converged).sum()),
        "by positives": by_positives(positives, {"steps": outcome.n_iter, "active rows": outcome.n_active}),
    }


def by_positives(positives: Any, figures: dict[str, Any]) -> dict[str, list[float]]:
    """Means over labels with 1, 2, 3-4, 5-8, 9-16, ... positives."""
    import numpy as np

    group = np.ceil(np.log2(np.maximum(positives, 1))).astype(int)
    groups = np.unique(group)
    means = {name: [float(values[group == each].mean()) for each in groups] for name, values in figures.items()}
    return {"positives": [float(positives[group == each].mean()) for each in groups], **means}


def in_own_process(folder: str, start: str, options: argparse.Namespace) -> dict[str, Any]:
    call = [sys.executable, __file__, folder, "--loss", options.loss, "--row", start]
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
    """One picture per dataset: steps and active rows against positives, and the time of every start."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        figure, (*curves, bars) = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
        for axes, (name, title) in zip(curves, FIGURES.items(), strict=True):
            for row in own:
                if row["start"] != DUAL:
                    axes.plot(row["by positives"]["positives"], row["by positives"][name], "o-", label=row["start"])
            axes.set(title=title, xlabel="positives of the label")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(alpha=0.3)
        curves[0].set_ylim(bottom=0)
        curves[0].legend()
        curves[1].set_yscale("log")
        drawn = bars.barh([row["start"] for row in own], [row["train CPU s"] for row in own])
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
    parser.add_argument("--starts", nargs="+", default=STARTS, help="starts, with options if need be: msi:t=-3")
    parser.add_argument("--loss", default="squared_hinge")
    parser.add_argument("--labels", type=int, help="train the first so many labels only")
    parser.add_argument("--jobs", type=int, default=2, help="threads")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--plots", type=Path, help="also draw a picture per dataset into this folder")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        row = measure(options.folders[0], options.row, options.loss, options.labels, options.jobs)
        sys.stdout.write(json.dumps(row))
        return
    from longtail.metrics.table import align

    chosen = [*options.starts, DUAL] if options.loss == "squared_hinge" else options.starts
    rows = with_ratios([in_own_process(folder, start, options) for folder in options.folders for start in chosen])
    sys.stdout.write(align(COLUMNS, [[row[column] for column in COLUMNS] for row in rows]) + "\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.plots:
        plot(rows, options.plots)


if __name__ == "__main__":
    main()
