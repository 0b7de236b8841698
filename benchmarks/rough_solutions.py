"""Calibration of OneVsAll by rough solutions of its labels, compared with calibration by a whole fit.

    python benchmarks/rough_solutions.py FOLDER ...

A FOLDER holds `train.txt` and `test.txt` (plain, .gz or .xz) in Extreme Classification Repository format. Only training
rows are used: a fifth of them is set aside, and the others train and calibrate. The table has P@1 of the rows that
calibration holds out, and on the rows set aside the expected calibration error of the 5 best labels (ECE@5) and
micro-F1 of `predict`, as means of 3 such splits.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import longtail as lt
from longtail import metrics
from longtail.methods import calibrating
from longtail.metrics.table import align
from quality import load

SPLITS = 3
ALL_FITS = calibrating.all_fits


def measured(train: Any, aside: np.ndarray, rough: bool) -> tuple[float, float, float]:
    def fits(*args: Any, **options: Any) -> Any:
        return ALL_FITS(*args, **options, rough=rough)

    with mock.patch.object(calibrating, "all_fits", fits):
        clf = lt.OneVsAll(calibrate="held-out").fit(train.X[~aside], train.Y[~aside])
    X, Y = train.X[aside], train.Y[aside]
    error = metrics.calibration_error(Y, clf.predict_topk(X, 5))
    return 100 * clf.held_out_.hit[:, 0].mean(), error, metrics.set_metrics(Y, clf.predict(X))["micro-F1"]


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    for folder in sys.argv[1:]:
        train, _ = load(folder)
        splits = [np.random.default_rng(seed).random(train.n_samples) < 0.2 for seed in range(SPLITS)]
        for rough in (True, False):
            precision, error, f1 = np.mean([measured(train, aside, rough) for aside in splits], axis=0)
            name = "rough" if rough else "whole"
            rows.append([Path(folder).name, name, f"{precision:.1f}", f"{error:.4f}", f"{f1:.4f}"])
    sys.stdout.write(align(["data", "solutions", "P@1 held out", "ECE@5", "micro-F1"], rows) + "\n")


if __name__ == "__main__":
    main()
