"""Speed and memory of the text parser against scikit-learn's, on the same plain file in one run.

    python benchmarks/parse.py                       a synthetic file of 100 MB
    python benchmarks/parse.py train.txt.xz …        files with a header (`.gz` and `.xz` are unpacked first)

Both read the same rows; scikit-learn gets a copy without the header line, which it does not know. Times are the minimum
of several runs that take turns. Memory is the peak of a fresh process over its own size after a warm-up, divided by the
bytes of the arrays that the parser returns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from longtail.data.files import open_stream
from longtail.data.xmc import read_xmc

FIGURES = {
    "file": "{}",
    "megabytes": "{:.1f}",
    "rows": "{:,}",
    "sklearn rows/s": "{:,.0f}",
    "longtail rows/s": "{:,.0f}",
    "ratio": "{:.1f}",
    "longtail MB/s": "{:.0f}",
    "peak/arrays": "{:.2f}",
}


def synthetic(path: Path, megabytes: float) -> None:
    """Rows like those of tf-idf text: 3 labels and about 40 features, values of 5 digits."""
    rng = np.random.default_rng(0)
    rows, size = [], 0
    while size < megabytes * 1e6:
        labels = np.unique(rng.integers(0, 30_000, 3))
        features = np.unique(rng.integers(0, 100_000, 40))
        values = rng.random(features.size)
        pairs = " ".join(f"{j}:{value:.5f}" for j, value in zip(features.tolist(), values.tolist(), strict=True))
        rows.append(f"{','.join(map(str, labels))} {pairs}\n")
        size += len(rows[-1])
    path.write_text(f"{len(rows)} 100000 30000\n" + "".join(rows))


def unpack(source: str, path: Path) -> None:
    with open_stream(source) as stream, open(path, "wb") as file:
        while block := stream.read(1 << 20):
            file.write(block)


def seconds(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure(name: str, path: Path, runs: int) -> dict[str, Any]:
    """One line of the table."""
    bare = path.with_name("bare.txt")
    with open(path, "rb") as file, open(bare, "wb") as out:
        n_rows = int(file.readline().split()[0])
        out.writelines(file)
    ours, theirs = [], []
    for _ in range(runs):
        ours.append(seconds(lambda: read_xmc(path)))
        theirs.append(seconds(lambda: load_svmlight_file(str(bare), multilabel=True, zero_based=True)))
    command = [sys.executable, __file__, "--memory", str(path)]
    peak, returned = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    megabytes = path.stat().st_size / 1e6
    figures = (name, megabytes, n_rows, n_rows / min(theirs), n_rows / min(ours), min(theirs) / min(ours))
    return dict(zip(FIGURES, (*figures, megabytes / min(ours), peak / returned), strict=True))


def resident(field: str) -> int:
    """Bytes now (VmRSS) or at most so far (VmHWM); getrusage would count the parent's memory at the fork as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def memory(path: str) -> tuple[int, int]:
    """Bytes by which this process grew at most while it read `path`, and bytes of the arrays returned."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"1 2 1\n0 0:1 1:0.5\n")
        file.flush()
        read_xmc(file.name)
    before = resident("VmRSS")
    matrices = read_xmc(path)
    peak = resident("VmHWM") - before
    return peak, sum(part.nbytes for matrix in matrices for part in (matrix.data, matrix.indices, matrix.indptr))


def table(lines: list[dict[str, Any]]) -> str:
    cells = [list(FIGURES)] + [[form.format(line[name]) for name, form in FIGURES.items()] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", help="data files with a header line; none: a synthetic one")
    parser.add_argument(
        "--megabytes", type=float, default=100, help="size of the synthetic file (default: %(default)s)"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each parser (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        sys.stdout.write(json.dumps(memory(options.files[0])))
        return
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.txt"
        for source in options.files or [""]:
            if source:
                unpack(source, path)
            else:
                synthetic(path, options.megabytes)
            lines.append(measure(source or "synthetic", path, options.runs))
    sys.stdout.write((json.dumps(lines, indent=1) if options.json else table(lines)) + "\n")


if __name__ == "__main__":
    main()
