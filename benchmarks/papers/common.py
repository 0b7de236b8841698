"""What the scripts of this folder share: options, data, rows that are kept, tables, figures and the page of a paper.

    python -m benchmarks.papers.memoir --data FOLDER [--tables 2,figure-1] [--full] [--force] [--quick] [--output FOLDER]

One script reproduces one paper. Its *experiments* are the paper's tables and figures. Each has two functions:

    measure(bench)       trains and measures; it calls bench.row(key, task) for every row, which is kept at once in
                         OUTPUT/PAPER/NAME.json. A run that was interrupted goes on after the last row.
    show(rows, folder)   turns the rows into Markdown, and draws figures as SVG into the folder. It measures nothing,
                         so that a text can be corrected without a new measurement.

OUTPUT/PAPER.md has the sections of all experiments that are finished, and says which are not. It is written after every
experiment, from the cheapest to the dearest. The documentation shows these pages, so OUTPUT is docs/papers unless another
folder is given. Rows that would take more than some minutes use a random sample of the labels, which their table states;
--full measures them again on all labels. --data names the folder whose subfolders hold `train.txt` and `test.txt`
(plain, .gz or .xz); the environment variable LONGTAIL_DATA is its default. --quick uses tiny synthetic data and writes
to bench-output/papers: it shows within a minute that a script works, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import longtail as lt
from benchmarks.quality import load

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]
Rows = dict[str, Row]


@dataclass(frozen=True)
class Paper:
    """A paper and its experiments. `name` is the name of the script, and of the page and folder that it writes."""

    name: str
    title: str  # as in the list of references
    about: str  # first paragraph of the page: which data and settings were used
    experiments: Sequence[Experiment]


@dataclass(frozen=True)
class Experiment:
    """A table, figure or theorem of the paper."""

    name: str  # "table-2", "figure-1"
    title: str  # "Table 2: batch size"
    measure: Callable[[Bench], None]
    show: Callable[[Rows, Path], str] | None  # None: another experiment shows the rows, with `gathered`
    rows_of: str = ""  # the experiment whose rows this one shows, if it measures none of its own
    minutes: float = 1.0  # of CPU time that the rows take, roughly

    def file(self, folder: Path) -> Path:
        """The file of the rows."""
        return folder / f"{self.rows_of or self.name}.json"


# --- data ------------------------------------------------------------------------------------------------------------


@cache
def synthetic(
    n_rows: int = 400, n_features: int = 120, n_labels: int = 40, labels_per_row: int = 1, seed: int = 0
) -> tuple[lt.Dataset, lt.Dataset]:
    """A training and a test set that can be learned. Labels have a long tail, and each has some features of its own."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, n_labels + 1)
    own = rng.integers(n_features, size=(n_labels, 4))
    sets = []
    for size in (n_rows, n_rows // 2):
        X, Y = np.zeros((size, n_features), np.float32), np.zeros((size, n_labels), np.int32)
        for i in range(size):
            chosen = rng.choice(n_labels, labels_per_row, replace=False, p=weights / weights.sum())
            Y[i, chosen] = 1
            X[i, own[chosen].ravel()] = 1.0
            X[i, rng.integers(n_features, size=3)] = 1.0
        sets.append(lt.Dataset(sp.csr_array(X), sp.csr_array(Y)))
    return sets[0], sets[1]


# --- running ---------------------------------------------------------------------------------------------------------


class Bench:
    """One experiment that is being measured: its data, and its rows so far."""

    def __init__(self, file: Path, data: Path | None, quick: bool, full: bool = False) -> None:
        self.file = file
        self.folder = data
        self.quick = quick
        self.full = full
        self.rows = {key: row for key, row in rows_in(file).items() if not (full and row.get("sampled"))}

    def data(self, name: str, *, labels_per_row: int = 1) -> tuple[lt.Dataset, lt.Dataset]:
        """The training and test rows of a data set. With --quick: synthetic rows with this many labels each."""
        if self.quick:
            return synthetic(labels_per_row=labels_per_row)
        return load(str(self.path(name)))

    def folder_of(self, name: str) -> Path | None:
        """The folder of a data set; None, which stands for synthetic rows, with --quick."""
        return None if self.quick else self.path(name)

    def path(self, name: str) -> Path:
        """The folder of a data set, for systems that read files themselves."""
        if self.folder is None:
            raise SystemExit("this needs real data: pass --data FOLDER, or set the environment variable LONGTAIL_DATA")
        return self.folder / name

    def sample(self, size: int | None) -> int | None:
        """How many labels to train: None, which means all of them, with --full and --quick."""
        return None if self.full or self.quick else size

    def row(self, key: str, task: Callable[..., Row], *arguments: Any) -> Row:
        """Measure a row, unless it was measured before, and keep it."""
        if key not in self.rows:
            start = time.perf_counter()
            self.rows[key] = task(*arguments)
            self.keep(finished=False)
            sys.stderr.write(f"{self.file.stem} {key}: {time.perf_counter() - start:.1f} s {self.rows[key]}\n")
        self.rows[key] = self.rows.pop(key)  # rows have the order of the experiment, whenever they were measured
        return self.rows[key]

    def alone(self, key: str, task: Callable[..., Row], *arguments: Any) -> Row:
        """The same in a process of its own, so that its peak memory is its own. `task` must be a module's function."""
        return self.row(key, task, *arguments) if self.quick else self.row(key, _in_own_process, task, *arguments)

    def keep(self, *, finished: bool) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"finished": finished, "quick": self.quick, "rows": self.rows}, indent=1, default=_plain)
        half = self.file.with_suffix(".part")
        half.write_text(text + "\n")
        half.replace(self.file)  # a run that is stopped here leaves the old rows or the new ones


def _in_own_process(task: Callable[..., Row], *arguments: Any) -> Row:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(task, *arguments).result()


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as those of JSON."""
    return value.tolist()


def main(paper: Paper, words: Sequence[str] | None = None) -> None:
    """The command line of a script."""
    parser = argparse.ArgumentParser(description=f"{paper.title}\n\n{paper.about}")
    parser.add_argument("--data", type=Path, default=os.environ.get("LONGTAIL_DATA"), metavar="FOLDER")
    parser.add_argument(
        "--tables", metavar="NAMES", help="of: " + ", ".join(experiment.name for experiment in paper.experiments)
    )
    parser.add_argument("--quick", action="store_true", help="tiny synthetic data")
    parser.add_argument("--full", action="store_true", help="all labels where a sample is the default; may take hours")
    parser.add_argument("--force", action="store_true", help="measure again what is finished")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: docs/papers")
    options = parser.parse_args(words)
    output = options.output or (ROOT / "bench-output" / "papers" if options.quick else ROOT / "docs" / "papers")
    for experiment in sorted(chosen(paper, options.tables), key=lambda experiment: experiment.minutes):
        file = experiment.file(output / paper.name)
        if options.force and not experiment.rows_of:
            file.unlink(missing_ok=True)
        bench = Bench(file, options.data and Path(options.data), options.quick, options.full)
        if not (is_finished(file) and bench.rows == rows_in(file)):
            experiment.measure(bench)
            bench.keep(finished=True)
            write_page(paper, output)
    write_page(paper, output)


def chosen(paper: Paper, names: str | None) -> list[Experiment]:
    """The experiments of --tables. `2` stands for `table-2`."""
    if names is None:
        return list(paper.experiments)
    wanted = {name if "-" in name else f"table-{name}" for name in names.split(",")}
    unknown = wanted - {experiment.name for experiment in paper.experiments}
    if unknown:
        raise SystemExit(f"--tables: {', '.join(sorted(unknown))} is unknown; see --help")
    return [experiment for experiment in paper.experiments if experiment.name in wanted]


def is_finished(file: Path) -> bool:
    return file.exists() and bool(json.loads(file.read_text())["finished"])


def rows_in(file: Path) -> Rows:
    """The rows that are kept in a file, which need not exist."""
    rows: Rows = json.loads(file.read_text())["rows"] if file.exists() else {}
    return rows


# --- the page --------------------------------------------------------------------------------------------------------


def write_page(paper: Paper, output: Path) -> None:
    (output / f"{paper.name}.md").write_text(page(paper, output), encoding="utf-8")


def page(paper: Paper, output: Path) -> str:
    """The page of a paper: the sections of its finished experiments, and a list of the others."""
    made = f"Made by `python -m benchmarks.papers.{paper.name} --data FOLDER`."
    parts = [f"# {paper.title}", paper.about, made]
    missing = []
    for experiment in paper.experiments:
        file = experiment.file(output / paper.name)
        rows = rows_in(file)
        if not is_finished(file):
            missing.append(f"- {experiment.title}{f' ({len(rows)} rows are kept)' if rows else ''}")
        elif experiment.show is not None:
            parts += [f"## {experiment.title}", experiment.show(rows, file.parent).strip()]
    if missing:
        parts += ["## Not measured yet", "\n".join(missing)]
    return "\n\n".join(parts) + "\n"


def gathered(folder: Path, name: str) -> Rows:
    """The rows of all finished experiments whose names begin with `name`: those of one table on several data sets."""
    files = [file for file in sorted(folder.glob(f"{name}*.json")) if is_finished(file)]
    return {key: row for file in files for key, row in rows_in(file).items()}


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table. None is an empty cell, and numbers have thousands separators."""
    lines = [columns, ["---"] * len(columns), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int | np.integer) else str(value)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean, smallest and largest value of several seeds: "41.9 (41.7 to 42.1)"."""
    low, high, mean = (f"{value:.{digits}f}" for value in (min(values), max(values), float(np.mean(values))))
    return f"{mean} ({low} to {high})" if len(values) > 1 else mean


def of_seeds(each: Sequence[Row]) -> Row:
    """One row of the rows of several seeds: numbers become lists, and anything else is taken from the first."""
    first = each[0]
    return {
        name: [row[name] for row in each] if isinstance(value, int | float) and not isinstance(value, bool) else value
        for name, value in first.items()
    }


def seconds_of(task: Callable[[], Any]) -> tuple[float, Any]:
    """The CPU seconds of a task, and its result."""
    start = time.process_time()
    result = task()
    return time.process_time() - start, result


def figure(n_panels: int = 1) -> tuple[Any, list[Any]]:
    """A Matplotlib figure with some panels side by side."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(5 * n_panels, 3.8), layout="constrained")
    panels = list(np.atleast_1d(drawn.subplots(1, n_panels)))
    for axes in panels:
        axes.grid(alpha=0.3)
    return drawn, panels


def picture(drawn: Any, folder: Path, name: str, caption: str) -> str:
    """Write the figure as SVG, with the same bytes each time, and return the Markdown that shows it."""
    import matplotlib as mpl

    for axes in drawn.axes:
        axes.minorticks_off()  # of logarithmic axes: they take most of the time of drawing
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        drawn.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return f"![{caption}]({folder.name}/{name}.svg)"
