"""How training grows: CPU seconds against the number of labels, and against the number of rows.

    python benchmarks/growth.py FOLDER ... [--parts 8] [--output bench-output]

The first curve takes a random share of the labels and all rows; the second takes a random share of the rows and their
labels.
Writes growth.json and growth.png (needs the `plot` extra). Folders as for quality.py.
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
from quality import load


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
    options = parser.parse_args()
    lt.OneVsAll().fit(np.eye(4), [[0], [1], [2], [0]])  # compiles
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
