"""Training with calibration: train without some rows, calibrate on the held-out rows, then train on all rows.

The parameter `calibrate` says how rows are held out, as a text with options (methods/spec.py):

    held-out:fraction=0.2     one extra fit, on the other rows; at most MAX_ROWS rows are held out
    cross-fit:folds=5         one extra fit for each fold, so that every row is held out once

A method that chooses parameters does so in the first fit (`ExtremeClassifier._after`). The dual solver of `OneVsAll`
begins every fit but the first at the alphas of the fit before (methods/one_vs_all/alphas.py). A method may be less
precise in the fits without held-out rows (`ExtremeClassifier._before`), whose weights only serve calibration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from longtail.calibration import HeldOut, calibrated, choose, fit_calibrator
from longtail.data import split
from longtail.errors import InputError
from longtail.hybrid import model_rows
from longtail.methods import spec
from longtail.methods.problem import Extras, spread
from longtail.models import Model
from longtail.training import Training

if TYPE_CHECKING:
    from longtail.methods.base import ExtremeClassifier
    from longtail.methods.solving import Progress, Solved

Solve = Callable[..., "Solved"]  # (estimator, X, Y, progress, name, extras, rows of X used) -> model, record, alphas
DEPTH = 20  # least number of candidates per row
DEPTH_PER_LABEL = 3  # candidates per row, for each label that a row has on average
MAX_ROWS = 20_000  # most rows to hold out; the calibrator has few parameters, so more rows would not change it
FEW_ROWS = 10_000  # with fewer training rows, a fifth of them is too small a sample
MIN_ROWS = 10


def held_out(Y: sp.csr_array, random_state: Any, *, fraction: float = 0.2) -> list[np.ndarray]:
    """Return a list with one boolean mask of the rows to hold out."""
    return [split.held_out(Y, min(fraction, MAX_ROWS / Y.shape[0]), random_state)]


def cross_fit(Y: sp.csr_array, random_state: Any, *, folds: int = 5) -> list[np.ndarray]:
    """Return one boolean mask per fold of the rows to hold out."""
    fold = split.folds(Y, folds, random_state)
    return [fold == number for number in range(folds)]


WAYS: dict[str, Callable[..., list[np.ndarray]]] = {"held-out": held_out, "cross-fit": cross_fit}


def check_way(calibrate: Any, owner: str) -> None:
    """Raise InputError unless `calibrate` is True, False or one of the texts described above."""
    if not isinstance(calibrate, bool | np.bool_):
        _, options = spec.parse(calibrate, WAYS, f"The 'calibrate' parameter of {owner}")
        if not 0 < options.get("fraction", 0.5) < 1 or options.get("folds", 2) < 2:
            raise InputError(
                f"The 'calibrate' parameter of {owner} needs a fraction between 0 and 1, or 2 or more folds. "
                f"Got {calibrate!r} instead."
            )


def rows_to_hold_out(calibrate: Any, Y: sp.csr_array, random_state: Any) -> list[np.ndarray]:
    """Return, for each extra fit, a boolean mask of the rows it holds out."""
    n = Y.shape[0]
    if n < MIN_ROWS:
        raise InputError(f"calibration needs at least {MIN_ROWS} rows, and there are {n}; train with calibrate=False")
    if calibrate is True:
        calibrate = "held-out" if n >= FEW_ROWS else "cross-fit"
    name, options = spec.parse(calibrate, WAYS, "The 'calibrate' parameter")
    return WAYS[name](Y, random_state, **options)


def n_candidates(Y: sp.csr_array) -> int:
    """Return how many labels of a row get a probability and can be predicted."""
    wanted = max(DEPTH, math.ceil(DEPTH_PER_LABEL * Y.nnz / max(Y.shape[0], 1)))
    return int(min(Y.shape[1], wanted))


def fit(
    estimator: ExtremeClassifier, solve: Solve, X: Any, Y: sp.csr_array, progress: Progress
) -> tuple[Model, Training, HeldOut]:
    """Return the calibrated model of all rows with its thresholds, its training record, and held-out predictions."""
    masks = rows_to_hold_out(estimator.calibrate, Y, estimator.random_state)
    parts = []
    alphas = None
    for number, mask in enumerate(masks):
        rest = Y[~mask]
        step = part_of(progress, number, len(masks) + 1)
        extras = Extras(alphas=None if alphas is None else alphas[:, np.flatnonzero(~mask)], keep_alphas=True)
        used = np.flatnonzero(~mask)
        model, record, alphas = solve(estimator._before(), X[used], rest, step, f"without-{number}", extras, used)
        top = model.predict_topk(model_rows(X[mask]), n_candidates(Y), n_jobs=estimator.n_jobs)
        parts.append(HeldOut.of(top, Y[mask], counts_of(rest)))
        if alphas is not None:
            alphas = spread(alphas, np.flatnonzero(~mask), Y.shape[0])
    step = part_of(progress, len(masks), len(masks) + 1)
    final, final_record, _ = solve(estimator._after(record), X, Y, step, "all", Extras(alphas=alphas))
    found = HeldOut.joined(parts)
    counts = counts_of(Y)
    calibrator = fit_calibrator(found, counts, Y.shape[0], log_scores=model.log_scores)
    found = calibrated(found, calibrator)
    thresholds = choose("micro-f1", "micro-f1", {}, found, counts)
    return replace(final, calibrator=calibrator, thresholds=thresholds), final_record, found  # type: ignore[type-var]


def counts_of(Y: sp.csr_array) -> np.ndarray:
    """Return the number of rows of every label."""
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)


def part_of(progress: Progress, number: int, of: int) -> Progress:
    """Convert the progress of one fit into the progress of all fits."""
    return lambda share: progress((number + share) / of)
