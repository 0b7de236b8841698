"""Ensembles on real data: precision against every member, and the time to predict against the sum of the members'.

    python benchmarks/ensembles.py FOLDER ... [--member one-vs-all:C=1/3,positive_weight=auto ...] [--kept FOLDER]

A FOLDER holds `train.txt` and `test.txt` (plain, .gz or .xz) in Extreme Classification Repository format; `icd-10-cm`
stands for the corpus of the demo. A member is a method, or method:name=value,name=value. The weights are fitted on
held-out training rows; a member that does not help gets the weight 0. All figures are of the test rows. Seconds are
CPU seconds of one thread for all test rows, the minimum of 3 runs that alternate between members and ensemble. --kept
keeps the trained ensembles, so that a later run only measures.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import longtail as lt
from longtail import metrics
from longtail.methods import METHODS
from longtail.metrics.table import align
from quality import load, parameter

MEMBERS = ["one-vs-all:C=1/3,positive_weight=auto", "one-vs-all:C=4", "mach:n_repetitions=16", "pd-sparse"]
KS = (1, 3, 5)
RUNS = 3


def member(text: str) -> Any:
    method, _, options = text.partition(":")
    params = dict(parameter(each) for each in options.split(",") if each)
    return METHODS[method](**{name: fraction(value) for name, value in params.items()})


def fraction(value: Any) -> Any:
    above, slash, below = str(value).partition("/")
    return float(above) / float(below) if slash else value


def trained(folder: str, members: list[str], kept: Path | None) -> Any:
    place = None if kept is None else kept / f"{Path(folder).name}.{'+'.join(members).replace('/', '_')}"
    if place is not None and place.exists():
        return lt.load(place)
    train, _ = load(folder)
    clf = lt.Ensemble([member(text) for text in members]).fit(train)
    if place is not None:
        clf.save(place)
    return clf


def seconds_to_predict(models: list[Any], X: Any) -> list[float]:
    least = [float("inf")] * len(models)
    for model in models:
        _ = model.index  # else the first rows are scored without kernels
        model.predict_topk(X[:1], 5)  # may compile
    for _ in range(RUNS):
        for at, model in enumerate(models):
            start = time.process_time()
            model.predict_topk(X, 5, n_jobs=1)
            least[at] = min(least[at], time.process_time() - start)
    return least


def rows_of(folder: str, members: list[str], kept: Path | None) -> list[list[Any]]:
    _, test = load(folder)
    clf = trained(folder, members, kept)
    models = [*clf.model_.members, clf.model_]
    *single, whole = seconds_to_predict(models, test.X)
    rows = []
    names = [f"{text}, weight {weight:.2f}" for text, weight in zip(members, clf.model_.weights, strict=True)]
    for name, model, seconds in zip([*names, "ensemble"], models, [*single, whole], strict=True):
        top = model.predict_topk(test.X, 5)
        precision = " / ".join(f"{100 * metrics.precision_at_k(test.Y, top, k):.1f}" for k in KS)
        error = f"{metrics.calibration_error(test.Y, top):.4f}"
        rows.append([Path(folder).name, name, precision, error, f"{seconds:.2f}"])
    used = sum(each for each, weight in zip(single, clf.model_.weights, strict=True) if weight > 0)
    rows[-1][-1] += f" ({whole / used:.2f} times the members with a weight)"
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--member", action="append", help="default: " + " ".join(MEMBERS))
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="keep the trained ensembles there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for folder in options.folders for row in rows_of(folder, options.member or MEMBERS, options.kept)]
    sys.stdout.write(align(["data", "model", "P@1 / 3 / 5", "ECE@5", "predict CPU s"], rows) + "\n")


if __name__ == "__main__":
    main()
