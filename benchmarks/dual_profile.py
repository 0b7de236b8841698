"""Where the dual solver of OneVsAll spends its time, by the number of positives of a label.

    python benchmarks/dual_profile.py FOLDER ... [--labels 256] [--repeats 3] [--tol 0.01]

For every group of labels (all, 1 positive, 2-5, 6-20, 21-100, more) a random sample is solved in one thread, REPEATS
times, and the smallest CPU milliseconds per label of each stage are printed: the index of rare features, coordinate
descent (with listing its features and filling the panel), the passes over X, and settling. Rounds, active rows and the
gap do not depend on the machine. Folders as for quality.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import longtail as lt
from longtail.methods.one_vs_all import dual, dual_kernels, settle_kernels
from longtail.methods.one_vs_all.problem import OneVsAllProblem
from longtail.methods.problem import Block
from longtail.metrics.table import align
from longtail.parallel import Work
from quality import load

GROUPS = {"all": (1, 10**9), "1": (1, 1), "2-5": (2, 5), "6-20": (6, 20), "21-100": (21, 100), "> 100": (101, 10**9)}
STAGES = {  # name -> where the solver looks the function up
    "index": (dual, "first_rows"),
    "descent": (dual_kernels, "prepare"),
    "passes": (dual, "verify"),
    "settle": (settle_kernels, "settle"),
}
COLUMNS = ("data", "positives", "labels", "ms", *STAGES, "rounds", "active rows", "mean gap", "ms per pass")


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """The function, which adds its CPU seconds to `spent`."""

    def call(*args: Any) -> Any:
        start = time.thread_time()
        result = function(*args)
        spent.append(time.thread_time() - start)
        return result

    return call


def solve(problem: OneVsAllProblem, labels: np.ndarray) -> tuple[dict[str, float], Any]:
    """Solve the labels in one block. Returns the CPU seconds of each stage, of a pass, and of all, and the part."""
    spent: dict[str, list[float]] = {name: [] for name in STAGES}
    patches = [
        mock.patch.object(module, name, timed(getattr(module, name), spent[stage]))
        for stage, (module, name) in STAGES.items()
    ]
    for patch in patches:
        patch.start()
    start = time.thread_time()
    part = problem.solve(Block(0, labels, 1.0), Work())
    total = time.thread_time() - start
    for patch in patches:
        patch.stop()
    return {"ms": total, **{name: sum(times) for name, times in spent.items()}, "pass": np.mean(spent["passes"])}, part


def profile(folder: str, n_labels: int, repeats: int, tol: float) -> list[list[Any]]:
    train, _ = load(folder)
    problem = lt.OneVsAll(tol=tol, solver="dual")._problem(train.X, train.Y)
    n_positive, rows = problem.positives.n_positive, []
    solve(problem, problem.labels[:2])  # compiles
    for name, (least, most) in GROUPS.items():
        group = problem.labels[(n_positive[problem.labels] >= least) & (n_positive[problem.labels] <= most)]
        if not len(group):
            continue
        labels = np.random.default_rng(0).permutation(group)[:n_labels]
        labels = labels[np.argsort(-n_positive[labels], kind="stable")]
        runs = [solve(problem, labels) for _ in range(repeats)]
        seconds = {stage: min(run[0][stage] for run in runs) for stage in runs[0][0]}
        part = runs[0][1]
        rows.append(
            [Path(folder).name, name, len(labels)]
            + [f"{1e3 * seconds[stage] / len(labels):.3f}" for stage in ("ms", *STAGES)]
            + [f"{part.n_iter.mean():.2f}", f"{part.figures['n_active'].mean():.0f}"]
            + [f"{part.figures['gap'].mean():.4f}", f"{1e3 * seconds['pass']:.2f}"]
        )
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--labels", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tol", type=float, default=0.01)
    options = parser.parse_args()
    rows = [row for folder in options.folders for row in profile(folder, options.labels, options.repeats, options.tol)]
    sys.stdout.write(align(COLUMNS, rows) + "\n")


if __name__ == "__main__":
    main()
