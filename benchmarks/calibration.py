"""Probabilities, thresholds and tuning on real data. ensembles.py measures ensembles.

    python benchmarks/calibration.py FOLDER ... [--method one-vs-all ...] [--set C=1/3 ...] [--rows N] [--kept FILE]
    python benchmarks/calibration.py FOLDER ... --tune 5

A FOLDER holds `train.txt` and `test.txt` (plain, .gz or .xz) in Extreme Classification Repository format; `icd-10-cm`
stands for the corpus of the demo. Everything is chosen on held-out training rows; all figures are of the test rows.
--rows samples larger training data to N rows, and --kept keeps finished rows of the table, so that a later run
continues.

Methods: P@k by score and by probability, the expected calibration error of the 5 best labels (ECE@5), micro-F1 of
`predict` without and with a calibrator, and the best micro-F1 that any threshold on the probabilities has on the test
rows themselves. --time adds CPU seconds of a fit without and with calibration, on one thread, after compilation.
Tuning: P@k of plain and weighted one-vs-all and of what `tune` finds in a budget of N times a plain fit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import replace
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


def sampled(data: Any, most: int) -> Any:
    if data.n_samples <= most:
        return data
    return data.select(np.sort(np.random.RandomState(0).permutation(data.n_samples)[:most]))


def method_row(folder: str, method: str, params: dict[str, Any], options: Any) -> list[Any]:
    train, test = load(folder)
    train = sampled(train, options.rows)
    warm_up(method, params)
    clf, cpu = timed_fit(method, {**params, "calibrate": options.calibrate}, train)
    model = clf.model_
    plain = replace(model, calibrator=None, thresholds=None)
    before, after = plain.predict_topk(test.X, 5), model.predict_topk(test.X, 5)
    f1 = [metrics.set_metrics(test.Y, each.predict_labels(test.X))["micro-F1"] for each in (plain, model)]
    candidates = model.predict_topk(test.X, model.calibrator.depth)
    rows = HeldOut.of(candidates, test.Y, model.calibrator.counts)
    best = reached(Thresholds("", micro_f1(rows, model.calibrator.counts)), rows)["f1"]
    name = " ".join([method, *(f"{key}={value:.3g}" for key, value in params.items())])
    found = [
        f"{Path(folder).name} ({train.n_samples:,} rows)", name, precisions(test.Y, before), precisions(test.Y, after),
        f"{metrics.calibration_error(test.Y, after):.4f}", *(f"{value:.3f}" for value in (*f1, best)),
    ]  # fmt: skip
    if options.time:
        _, plain_cpu = timed_fit(method, params, train)
        found.append(f"{plain_cpu:.1f} -> {cpu:.1f} ({cpu / plain_cpu:.2f})")
    return found


def method_rows(options: Any, params: dict[str, Any]) -> list[list[Any]]:
    done = json.loads(options.kept.read_text()) if options.kept is not None and options.kept.exists() else {}
    rows = []
    for folder in options.folders:
        for method in options.method or METHODS:
            key = " ".join(map(str, [folder, method, params, options.calibrate, options.rows, options.time]))
            if key not in done:
                done[key] = method_row(folder, method, params, options)
                sys.stderr.write(" ".join(map(str, done[key])) + "\n")
                if options.kept is not None:
                    options.kept.write_text(json.dumps(done, indent=1))
            rows.append(done[key])
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
    parser.add_argument("--rows", type=int, default=10**9, help="sample larger training data to this many rows")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="keep finished rows there")
    parser.add_argument("--time", action="store_true", help="also fit without calibration")
    parser.add_argument("--tune", type=float, metavar="N", help="budget in plain fits")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    params = dict(parameter(text) for text in options.set)
    if options.tune:
        header = ["data", "plain", "weighted", "tuned", "winner", "trials"]
        rows = [tuning_row(folder, options.tune) for folder in options.folders]
    else:
        header = ["data", "method", "P by score", "P by probability", "ECE@5", "F1 score", "F1", "best F1"]
        header += ["CPU s"] if options.time else []
        rows = method_rows(options, params)
    sys.stdout.write(align(header, rows) + "\n")


if __name__ == "__main__":
    main()
