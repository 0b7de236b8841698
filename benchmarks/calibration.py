"""Probabilities, thresholds and tuning on real data, for the tables of docs/guides. ensembles.py measures ensembles.

    python benchmarks/calibration.py FOLDER ... [--method one-vs-all ...] [--kept FILE] [--again]
    python benchmarks/calibration.py FOLDER ... --tune [--kept FILE] [--again]
    python benchmarks/calibration.py --show [--tune]

A FOLDER holds `train.txt` and `test.txt` (plain, .gz or .xz) in Extreme Classification Repository format; `icd-10-cm`
stands for the corpus of the demo. Everything is chosen on held-out training rows; all figures are of the test rows.
Every cell, a data set with a method, is kept at once in docs/guides/calibration.json or tuning.json, so that a later
run continues. --show prints the table of all cells that are kept, as the guides have it.

Methods: P@k by score and by probability, the expected calibration error of the 5 best labels (ECE@5), micro-F1 of
`predict` without and with a calibrator, the best micro-F1 that any threshold on the probabilities has on the test rows
themselves, and CPU seconds of a fit without and with calibration, on one thread, after compilation: the
least of three fits each, in turn, or of fewer if they take long.
Tuning: P@k of plain and weighted one-vs-all, and of what `tune` finds in a budget of 5 plain fits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import longtail as lt
from longtail import metrics
from longtail.calibration import HeldOut
from longtail.calibration.targets import micro_f1, reached
from longtail.methods import METHODS
from longtail.models import Thresholds
from quality import load

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
SETS = (
    "bibtex", "delicious", "debian-tags", "tib-gnd-en-papers", "yso-titles-en-small", "wordnet-hypernym", "debian-deps",
    "moby-thesaurus", "icd-10-cm",
)  # fmt: skip
WEIGHTED = {"C": 1 / 3, "positive_weight": 3.0}
PLAIN_FITS = 5  # the budget of `tune`
MOST_FITS, ENOUGH_SECONDS = 3, 60  # fits are timed so often, or until they have taken so long
KS = (1, 3, 5)
Cell = dict[str, Any]


def precisions(Y: Any, top: Any) -> list[float]:
    return [round(100 * metrics.precision_at_k(Y, top, k), 2) for k in KS]


def warm_up(method: str) -> None:
    X = np.eye(12, dtype=np.float32)[np.arange(48) % 12]
    METHODS[method](calibrate="held-out", n_jobs=1).fit(X, [[i % 12] for i in range(48)]).predict_topk(X, 2)


def timed_fits(method: str, train: Any) -> tuple[Any, list[float]]:
    """The calibrated classifier, and CPU seconds of a fit without and with calibration: the least of some in turn."""
    seconds: list[list[float]] = []
    while len(seconds) < MOST_FITS and sum(map(sum, seconds)) < ENOUGH_SECONDS:
        seconds.append([])
        for calibrate in (False, True):
            start = time.process_time()
            clf = METHODS[method](calibrate=calibrate, n_jobs=1).fit(train)
            seconds[-1].append(time.process_time() - start)
    return clf, np.min(seconds, axis=0).round(2).tolist()


def method_cell(folder: str, method: str) -> Cell:
    train, test = load(folder)
    warm_up(method)
    clf, seconds = timed_fits(method, train)
    model = clf.model_
    plain = replace(model, calibrator=None, thresholds=None)
    after = model.predict_topk(test.X, 5)
    f1 = [metrics.set_metrics(test.Y, each.predict_labels(test.X))["micro-F1"] for each in (plain, model)]
    candidates = model.predict_topk(test.X, model.calibrator.depth)
    rows = HeldOut.of(candidates, test.Y, model.calibrator.counts)
    best = reached(Thresholds("", micro_f1(rows, model.calibrator.counts)), rows)["f1"]
    return {
        "rows": train.n_samples,
        "by score": precisions(test.Y, plain.predict_topk(test.X, 5)),
        "by probability": precisions(test.Y, after),
        "ECE@5": round(metrics.calibration_error(test.Y, after), 4),
        "micro-F1": [round(value, 4) for value in (*f1, best)],
        "CPU seconds": seconds,
    }


def tuning_cell(folder: str, _: str) -> Cell:
    train, test = load(folder)
    warm_up("one-vs-all")
    start = time.perf_counter()
    plain = lt.OneVsAll(n_jobs=1).fit(train)
    seconds = time.perf_counter() - start
    weighted = lt.OneVsAll(**WEIGHTED, n_jobs=1).fit(train)
    found = lt.tune(train, PLAIN_FITS * seconds, n_jobs=1)
    best = found.estimator(n_jobs=1).fit(train)
    scores = [precisions(test.Y, each.predict_topk(test.X, 5)) for each in (plain, weighted, best)]
    return {
        "plain": scores[0], "weighted": scores[1], "tuned": scores[2], "winner": found.best.name,
        "trials": len(found.trials), "plain seconds": round(seconds, 2),
    }  # fmt: skip


# --- cells -----------------------------------------------------------------------------------------------------------


def measure(file: Path, folders: list[str], methods: list[str], task: Callable[[str, str], Cell], again: bool) -> None:
    for folder in folders:
        for method in methods:
            key = " ".join([Path(folder).name, method]).strip()
            if again or key not in kept(file):
                cell = task(folder, method)
                file.write_text(json.dumps({**kept(file), key: cell}, indent=1) + "\n")
                sys.stderr.write(f"{key}: {cell}\n")


def kept(file: Path) -> dict[str, Cell]:
    return json.loads(file.read_text()) if file.exists() else {}


def method_table(cells: dict[str, Cell]) -> list[str]:
    header = (
        "data", "method", "P@1 / 3 / 5 by score", "by probability", "ECE@5", "micro-F1 of `predict` by score",
        "with calibration", "best threshold on the test rows", "CPU seconds", "with calibration",
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = [header]
    for name in SETS:
        shown = name
        for method, make in METHODS.items():
            cell = cells.get(f"{name} {method}")
            if cell is not None:
                plain, cpu = cell["CPU seconds"]
                rows.append((
                    shown, f"`{make.__name__}`", together(cell["by score"]), together(cell["by probability"]),
                    f"{cell['ECE@5']:.3f}", *(f"{value:.3f}" for value in cell["micro-F1"]),
                    f"{plain:.1f}", f"{cpu:.1f} ({cpu / plain:.2f} times)",
                ))  # fmt: skip
                shown = ""
    return lines(rows)


def tuning_table(cells: dict[str, Cell]) -> list[str]:
    header = ("data", "default", "C=1/3, positive_weight=3", "tuned", "what `tune` found", "trials")
    rows: list[tuple[Any, ...]] = [header]
    for name in SETS:
        cell = cells.get(name)
        if cell is not None:
            scores = (together(cell[key]) for key in ("plain", "weighted", "tuned"))
            rows.append((name, *scores, cell["winner"], cell["trials"]))
    return lines(rows)


def together(values: list[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def lines(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows of a Markdown table: the header, then the others."""
    header, *others = (f"| {' | '.join(map(str, row))} |".replace("|  |", "| |") for row in rows)
    return [header, "|" + "---|" * len(rows[0]), *others]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--method", action="append", help="default: all")
    parser.add_argument("--tune", action="store_true", help="measure tuning")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="where the cells are kept")
    parser.add_argument("--again", action="store_true", help="measure cells that are kept, too")
    parser.add_argument("--show", action="store_true", help="print the table of all cells")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    file = options.kept or GUIDES / ("tuning.json" if options.tune else "calibration.json")
    methods, task = ([""], tuning_cell) if options.tune else (options.method or list(METHODS), method_cell)
    measure(file, options.folders, methods, task, options.again)
    if options.show:
        sys.stdout.write("\n".join((tuning_table if options.tune else method_table)(kept(file))) + "\n")


if __name__ == "__main__":
    main()
