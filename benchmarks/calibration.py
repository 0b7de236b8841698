"""Probabilities, thresholds, tuning and ensembles on real data.

    python benchmarks/calibration.py FOLDER ... [--method one-vs-all ...] [--set C=1/3 ...]
    python benchmarks/calibration.py FOLDER ... --ensemble one-vs-all:C=0.333,positive_weight=3 mach memoir
    python benchmarks/calibration.py FOLDER ... --tune 5

A FOLDER holds `train.txt` and `test.txt` (plain, .gz or .xz) in Extreme Classification Repository format; `icd-10-cm`
stands for the corpus of the demo. Everything is chosen on held-out training rows; all figures are of the test rows.

Methods: P@k before and after calibration, the expected calibration error of the 5 best labels (ECE@5), micro-F1 of
`predict` before and after, the best micro-F1 that any threshold on the probabilities has on the test rows themselves,
and CPU seconds of a fit without and with calibration. Kernels are compiled before; fits use one thread.
Ensembles: P@k of every member and of the ensemble, and the time to predict of all members together and of the ensemble.
Tuning: P@k of plain and weighted one-vs-all and of what `tune` finds in a budget of N times a plain fit.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import longtail as lt
from longtail import metrics
from longtail.calibration import HeldOut
from longtail.calibration.targets import micro_f1, reached
from longtail.methods import METHODS
from longtail.metrics.table import align
from longtail.models import Thresholds
from quality import load, parameter

WEIGHTED = {"C": 1 / 3, "positive_weight": 3.0}
KS = (1, 3, 5)


def precisions(Y: Any, top: Any) -> str:
    return "/".join(f"{100 * metrics.precision_at_k(Y, top, k):.1f}" for k in KS)


def warm_up(method: str, params: dict[str, Any]) -> None:
    X = np.eye(12, dtype=np.float32)[np.arange(48) % 12]
    METHODS[method](**params, n_jobs=1).fit(X, [[i % 12] for i in range(48)]).predict_topk(X, 2)


def timed_fit(method: str, params: dict[str, Any], train: Any) -> tuple[Any, float]:
    start = time.process_time()
    clf = METHODS[method](**params, n_jobs=1).fit(train)
    return clf, time.process_time() - start


def method_row(folder: str, method: str, params: dict[str, Any], way: Any) -> list[Any]:
    train, test = load(folder)
    warm_up(method, params)
    plain, plain_cpu = timed_fit(method, params, train)
    clf, cpu = timed_fit(method, {**params, "calibrate": way}, train)
    before, after = plain.predict_topk(test.X, 5), clf.predict_topk(test.X, 5)
    f1 = [metrics.set_metrics(test.Y, each.model_.predict_labels(test.X))["micro-F1"] for each in (plain, clf)]
    model = clf.model_
    candidates = model.predict_topk(test.X, model.calibrator.depth)
    rows = HeldOut.of(candidates, test.Y, model.calibrator.counts)
    best = reached(Thresholds("", micro_f1(rows, model.calibrator.counts)), rows)["f1"]
    name = " ".join([method, *(f"{key}={value:.3g}" for key, value in params.items())])
    ratio = f"{plain_cpu:.1f} -> {cpu:.1f} ({cpu / plain_cpu:.2f})"
    return [
        Path(folder).name, name, precisions(test.Y, before), precisions(test.Y, after),
        f"{metrics.calibration_error(test.Y, after):.4f}", *(f"{value:.3f}" for value in (*f1, best)), ratio,
    ]  # fmt: skip


def member(text: str) -> Any:
    method, _, options = text.partition(":")
    return METHODS[method](**dict(parameter(each) for each in options.split(",") if each))


def predict_seconds(clf: Any, X: Any) -> float:
    clf.predict_topk(X[:1], 5)
    start = time.process_time()
    clf.predict_topk(X, 5)
    return time.process_time() - start


def ensemble_rows(folder: str, members: list[str]) -> list[list[Any]]:
    train, test = load(folder)
    clf = lt.Ensemble([member(text) for text in members], n_jobs=1).fit(train)
    rows, total = [], 0.0
    for text, model in zip(members, clf.model_.members, strict=True):
        model.predict_topk(test.X[:1], 5)  # builds the index
        start = time.process_time()
        top = model.predict_topk(test.X, 5, n_jobs=1)
        seconds = time.process_time() - start
        total += seconds
        rows.append([Path(folder).name, text, precisions(test.Y, top), f"{seconds:.2f}"])
    seconds = predict_seconds(clf, test.X)
    weights = "ensemble " + " ".join(f"{weight:.2f}" for weight in clf.model_.weights)
    top = clf.predict_topk(test.X, 5)
    error = f"ECE@5 {metrics.calibration_error(test.Y, top):.4f}"
    rows.append([Path(folder).name, f"{weights}, {error}", precisions(test.Y, top), f"{seconds:.2f} / {total:.2f}"])
    return rows


def tuning_row(folder: str, times: float) -> list[Any]:
    train, test = load(folder)
    warm_up("one-vs-all", {})
    start = time.perf_counter()
    plain = lt.OneVsAll(n_jobs=1).fit(train)
    seconds = time.perf_counter() - start
    weighted = lt.OneVsAll(**WEIGHTED, n_jobs=1).fit(train)
    found = lt.tune(train, times * seconds, n_jobs=1)
    best = found.estimator(n_jobs=1).fit(train)
    scores = [precisions(test.Y, each.predict_topk(test.X, 5)) for each in (plain, weighted, best)]
    return [Path(folder).name, *scores, found.best.name, len(found.trials)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--method", action="append", help="default: all")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the method")
    parser.add_argument("--calibrate", default=True, help="how to hold rows out")
    parser.add_argument("--ensemble", nargs="+", metavar="MEMBER", help="a method, or method:name=value,name=value")
    parser.add_argument("--tune", type=float, metavar="N", help="budget in plain fits")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    params = dict(parameter(text) for text in options.set)
    if options.ensemble:
        header = ["data", "member", "P@1/3/5", "predict CPU s"]
        rows = [row for folder in options.folders for row in ensemble_rows(folder, options.ensemble)]
    elif options.tune:
        header = ["data", "plain", "weighted", "tuned", "winner", "trials"]
        rows = [tuning_row(folder, options.tune) for folder in options.folders]
    else:
        header = ["data", "method", "P before", "P after", "ECE@5", "F1 before", "F1", "best F1", "CPU s"]
        rows = []
        for folder in options.folders:
            for method in options.method or METHODS:
                rows.append(method_row(folder, method, params, options.calibrate))
                sys.stderr.write(" ".join(map(str, rows[-1])) + "\n")
    sys.stdout.write(align(header, rows) + "\n")


if __name__ == "__main__":
    main()
