"""How training grows: CPU seconds against the number of labels, and against the number of rows.

    python benchmarks/growth.py FOLDER ... [--parts 8] [--output bench-output]
    python benchmarks/growth.py FOLDER ... --per-label [--generated] [--output bench-output]

The first curve takes a random share of the labels and all rows; the second takes a random share of the rows and their
labels. Writes growth.json and growth.png (needs the `plot` extra). Folders as for quality.py.

With --per-label, SAMPLE random labels are solved in one thread. CPU milliseconds per label are drawn against the number
of rows (random ones) and against the number of features (the most frequent ones), in all and for the passes over X
alone, into growth-per-label.json and growth-per-label.svg. --generated adds the data of scale.py, with 490,449 rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail as lt
import scale
from dual_profile import solve
from longtail.matrix import canonical_csr
from quality import load

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
SAMPLE = 128  # labels
MIN_ROWS = 1000


def seconds(X: sp.csr_array, Y: sp.csr_array) -> float:
    start = time.process_time()
    lt.OneVsAll(n_jobs=2).fit(X, Y)
    return round(time.process_time() - start, 2)


def grow(folder: str, parts: int) -> dict[str, Any]:
    train, _ = load(folder)
    X, Y = train.X, train.Y
    random = np.random.default_rng(0)
    labels, rows = random.permutation(Y.shape[1]), random.permutation(Y.shape[0])
    by_labels, by_rows = [], []
    for part in range(1, parts + 1):
        some = np.sort(labels[: part * Y.shape[1] // parts])
        by_labels.append((len(some), seconds(X, sp.csr_array(Y[:, some]))))
        kept = np.sort(rows[: part * Y.shape[0] // parts])
        Y_kept = sp.csr_array(Y[kept])
        used = np.unique(Y_kept.indices)
        by_rows.append((len(kept), seconds(sp.csr_array(X[kept]), sp.csr_array(Y_kept[:, used]))))
        sys.stderr.write(f"{Path(folder).name}: {by_labels[-1]} labels, {by_rows[-1]} rows\n")
    return {"data": Path(folder).name, "labels": by_labels, "rows": by_rows}


def per_label(name: str, X: sp.csr_array, Y: sp.csr_array) -> dict[str, Any]:
    """CPU milliseconds per label against rows and against features: all, and those of the passes."""
    random = np.random.default_rng(0)
    rows, order = random.permutation(X.shape[0]), np.argsort(-np.bincount(X.indices, minlength=X.shape[1]))
    curves: dict[str, list[tuple[int, float, float, float]]] = {"rows": [], "features": []}
    for share in SHARES:
        kept = np.sort(rows[: max(MIN_ROWS, round(share * X.shape[0]))])
        columns = np.sort(order[: max(MIN_ROWS, round(share * X.shape[1]))])
        for kind, part, own in (("rows", X[kept], Y[kept]), ("features", X[:, columns], Y)):
            problem = lt.OneVsAll(n_jobs=1)._problem(canonical_csr(part), canonical_csr(own))
            some = random.permutation(np.flatnonzero(problem.positives.n_positive))[:SAMPLE]
            labels = some[np.argsort(-problem.positives.n_positive[some], kind="stable")]
            runs = [solve(problem, labels) for _ in range(2)]
            all_ms, passes = (1e3 * min(run[0][stage] for run in runs) / SAMPLE for stage in ("ms", "passes"))
            active = float(runs[0][1].figures["n_active"].mean())
            size = part.shape[0] if kind == "rows" else part.shape[1]
            curves[kind].append((size, round(all_ms, 3), round(passes, 3), round(active, 1)))
            sys.stderr.write(f"{name}, {kind}: {curves[kind][-1]}\n")
    return {"data": name, **curves}


def plot_per_label(results: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("rows", "features"), strict=True):
        for number, result in enumerate(results):
            size, total, passes, _ = zip(*result[kind], strict=True)
            axes.loglog(size, total, marker="o", color=f"C{number}", label=result["data"])
            axes.loglog(size, passes, linestyle=":", color=f"C{number}")
        axes.set(xlabel=kind, ylabel="CPU ms per label (dotted: passes)")
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    figure.savefig(path)


def plot(results: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("labels", "rows"), strict=True):
        for result in results:
            axes.plot(*zip(*result[kind], strict=True), marker="o", label=result["data"])
        axes.set(xlabel=kind, ylabel="training, CPU seconds", xlim=(0, None), ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("bench-output"))
    parser.add_argument("--per-label", action="store_true")
    parser.add_argument("--generated", action="store_true")
    options = parser.parse_args()
    lt.OneVsAll().fit(np.eye(4), [[0], [1], [2], [0]])  # compiles
    if options.per_label:
        sets = [(Path(folder).name, load(folder)[0]) for folder in options.folders]
        found = [per_label(name, data.X, data.Y) for name, data in sets]
        if options.generated:
            X, Y = scale.generate(scale.ROWS, scale.FEATURES, scale.LABELS)
            found.append(per_label("generated", X, Y))
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "growth-per-label.json").write_text(json.dumps(found, indent=1) + "\n")
        plot_per_label(found, options.output / "growth-per-label.svg")
        return
    results = [grow(folder, options.parts) for folder in options.folders]
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "growth.json").write_text(json.dumps(results, indent=1) + "\n")
    plot(results, options.output / "growth.png")
    for result in results:
        for kind in ("labels", "rows"):
            figures = ", ".join(f"{count:,}: {cpu} s" for count, cpu in result[kind])
            sys.stdout.write(f"{result['data']}, by {kind}: {figures}\n")


if __name__ == "__main__":
    main()
