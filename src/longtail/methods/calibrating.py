"""Training with calibration: train on all rows, train again without some rows, and calibrate on these held-out rows.

The parameter `calibrate` says how rows are held out, as a text with options (methods/spec.py):

    held-out:fraction=0.2     one extra fit, on the other rows; no more rows are held out than a calibrator needs
    cross-fit:folds=5         one extra fit for each fold, so that every row is held out once

The fit on all rows is the one of `calibrate=False`. The other fits only serve calibration. The dual solver of
`OneVsAll` needs none: while it has a label in hand, it solves it once more without the held-out rows, roughly, and
scores these rows (methods/one_vs_all/dual.py). If the margins of these rough solutions are on quite another scale, or
more than MAX_SCORED rows are held out, whole fits take their place. A method that chooses parameters does so in the fit
on all rows, and the other fits repeat its choices (`ExtremeClassifier._after`): fits that choose differently have
scores on different scales. Held-out rows thus take part in the choice of two or three numbers, which hardly matters.
Where the scores of these fits are on another scale than those of the fit on all rows, the calibrator is adjusted to it
(calibration/scale.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from longtail.calibration import N_WRONG, HeldOut, Scale, calibrated, choose, fit_calibrator, wrong_margins
from longtail.data import split
from longtail.errors import InputError
from longtail.hybrid import model_rows
from longtail.methods import spec
from longtail.methods.problem import Extras, Folds
from longtail.metrics.hits import find_hits
from longtail.models import Calibrator, Model
from longtail.topk import TopK
from longtail.training import Training

if TYPE_CHECKING:
    from longtail.methods.base import ExtremeClassifier
    from longtail.methods.solving import Progress, Solved

Solve = Callable[..., "Solved"]  # (estimator, X, Y, progress, name, extras, rows of X used) -> Solved
DEPTH = 20  # least number of candidates per row
DEPTH_PER_LABEL = 3  # candidates per row, for each label that a row has on average
ENOUGH_ROWS, ENOUGH_SHARE = 4_000, 0.02  # most rows to hold out, or this share of all rows if that is more
ENOUGH_CANDIDATES = 2_000_000  # most candidates of these rows; the calibrator has few parameters
MAX_SCORED = 20_000  # most held-out rows; every block keeps the best labels of each, so that more would fill the disk
FEW_ROWS = 3_000  # with fewer training rows, a fifth of them is too small a sample
MIN_ROWS = 10
COMMON_ROWS = 2000  # rows on which the scales of models are compared
CHECKED_ROWS = 100  # rows that show whether rough solutions are of use
LARGEST_FACTOR = 3.0  # by which its margins may differ from those of the fit on all rows


def held_out(Y: sp.csr_array, random_state: Any, most: int, *, fraction: float = 0.2) -> list[np.ndarray]:
    """Return a list with one boolean mask of the rows to hold out, `most` at most."""
    return [split.held_out(Y, min(fraction, most / Y.shape[0]), random_state)]


def cross_fit(Y: sp.csr_array, random_state: Any, _: int, *, folds: int = 5) -> list[np.ndarray]:
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


def rows_to_hold_out(calibrate: Any, Y: sp.csr_array, random_state: Any, most: int | None = None) -> list[np.ndarray]:
    """Return, for each extra fit, a boolean mask of the rows it holds out.

    most : how many rows "held-out" takes at most; None means as many as a calibrator needs
    """
    n = Y.shape[0]
    if n < MIN_ROWS:
        raise InputError(f"calibration needs at least {MIN_ROWS} rows, and there are {n}; train with calibrate=False")
    if calibrate is True:
        calibrate = "held-out" if n >= FEW_ROWS else "cross-fit"
    name, options = spec.parse(calibrate, WAYS, "The 'calibrate' parameter")
    return WAYS[name](Y, random_state, enough_rows(Y) if most is None else most, **options)


def enough_rows(Y: sp.csr_array) -> int:
    """Return how many held-out rows a calibrator needs at most."""
    n = Y.shape[0]
    wanted = min(max(ENOUGH_ROWS, ENOUGH_SHARE * n), MAX_SCORED)
    return int(min(wanted, max(ENOUGH_CANDIDATES // n_candidates(Y), MIN_ROWS)))


def n_candidates(Y: sp.csr_array) -> int:
    """Return how many labels of a row get a probability and can be predicted."""
    wanted = max(DEPTH, math.ceil(DEPTH_PER_LABEL * Y.nnz / max(Y.shape[0], 1)))
    return int(min(Y.shape[1], wanted))


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits of one estimator: on all rows, and without the rows of every mask.

    final : the fit on all rows
    models : the models of the fits without held-out rows; rough solutions have none
    parts : what these fits predict for the rows that they do not know
    scale : from margins of the fit on all rows to margins of these models
    """

    final: Solved
    models: list[Model]
    parts: list[HeldOut]
    scale: Scale

    def calibrator(self, Y: sp.csr_array) -> Calibrator:
        """Fit the calibrator of the models without held-out rows. `scale` makes it that of the final model."""
        found = HeldOut.joined(self.parts)
        return fit_calibrator(found, counts_of(Y), Y.shape[0], log_scores=self.final.model.log_scores)


def fit(
    estimator: ExtremeClassifier, solve: Solve, X: Any, Y: sp.csr_array, progress: Progress
) -> tuple[Model, Training, HeldOut]:
    """Return the calibrated model of all rows with its thresholds, its training record, and held-out predictions."""
    masks = rows_to_hold_out(estimator.calibrate, Y, estimator.random_state)
    fits = all_fits(estimator, solve, X, Y, masks, progress)
    calibrator = fits.calibrator(Y)
    found = calibrated(HeldOut.joined(fits.parts), calibrator)
    thresholds = choose("micro-f1", "micro-f1", {}, found, counts_of(Y))
    model = fits.final.model
    model = replace(model, calibrator=fits.scale.applied(calibrator), thresholds=thresholds)  # type: ignore[type-var]
    return model, fits.final.record, found


def all_fits(
    estimator: ExtremeClassifier,
    solve: Solve,
    X: Any,
    Y: sp.csr_array,
    masks: list[np.ndarray],
    progress: Progress,
    prefix: str = "",
    *,
    rough: bool = True,
) -> Fits:
    """Fit on all rows, and then without the rows of each mask. `prefix` begins the names of the fits.

    rough : whether rough solutions may take the place of fits without held-out rows, where a method has them
    """
    depth = n_candidates(Y)
    n_steps = 1 + len(masks)
    held = [np.flatnonzero(mask) for mask in masks]
    counts = [in_proportion(counts_of(Y[~mask]), mask) for mask in masks]
    known = known_rows(masks[0])
    rough = rough and sum(map(len, held)) <= MAX_SCORED
    folds = Folds(fold_of(masks), (np.concatenate([held[0], known]), *held[1:]), depth) if rough else None
    needs_one = rough and estimator._effort_of_repeating < 1  # or, rarely, all; then the progress begins again
    step = progress if needs_one else part_of(progress, 0, n_steps)
    final = solve(estimator, X, Y, step, f"{prefix}all", Extras(folds=folds))
    if final.held_out is not None:
        first, *others = final.held_out
        if similar_scale(final.model, first[len(held[0]) :], X[known], Y[known]):
            tops = [first[: len(held[0])], *others]
            parts = [HeldOut.of(top, Y[rows], n) for top, rows, n in zip(tops, held, counts, strict=True)]
            return Fits(final, [], parts, Scale())
    estimator = estimator._after(final.record)
    models: list[Model] = []
    parts = []
    for number, (mask, rows) in enumerate(zip(masks, held, strict=True)):
        used = np.flatnonzero(~mask)
        step = progress if needs_one else part_of(progress, 1 + number, n_steps)
        model = solve(estimator, X[used], Y[used], step, f"{prefix}without-{number}", used=used).model
        top = model.predict_topk(model_rows(X[rows]), depth, n_jobs=estimator.n_jobs)
        parts.append(HeldOut.of(top, Y[rows], counts[number]))
        models.append(model)
    scale = Scale()
    if estimator.matches_scale:
        between = common_scale(final.model, models, X, Y, masks, estimator.n_jobs)
        scale = between.weakened(estimator.matches_scale)
    return Fits(final, models, parts, scale)


def fold_of(masks: list[np.ndarray]) -> np.ndarray:
    """Return, for every row, the number of the mask that holds it out, or -1."""
    fold = np.full(len(masks[0]), -1, np.int32)
    for number, mask in enumerate(masks):
        fold[mask] = number
    return fold


def known_rows(mask: np.ndarray) -> np.ndarray:
    """Return some rows that are not in the mask, on which `similar_scale` compares two fits."""
    used = np.flatnonzero(~mask)
    return used[:: math.ceil(len(used) / CHECKED_ROWS)]


def similar_scale(final: Model, best: TopK, X: Any, Y: sp.csr_array) -> bool:
    """Whether the margins of rough solutions are about those of the fit on all rows.

    They are not if few rows determine the weights, and others would have joined them in the place of those held out.
    The best wrong labels of some rows that both know are enough to see it. Those of the fit on all rows are looked for
    among the labels that the rough solutions found for any of these rows.
    """
    is_wrong = ~find_hits(Y, best).hit
    first = is_wrong & (np.cumsum(is_wrong, axis=1) <= N_WRONG)
    labels = np.unique(best.labels[:, : 2 * N_WRONG])
    margins = np.where(Y[:, labels].toarray() > 0, -np.inf, final.scores(model_rows(X), labels))
    known = -np.sort(-margins, axis=1)[:, :N_WRONG]
    if not first.any():
        return False
    spread = [float(each[np.isfinite(each)].std()) for each in (best.scores[first], known)]
    return min(spread) > 0 and max(spread) < LARGEST_FACTOR * min(spread)


def common_scale(
    final: Model,
    models: list[Model],
    X: Any,
    Y: sp.csr_array,
    masks: list[np.ndarray],
    n_jobs: int | None,
) -> Scale:
    """Compare the margins of the final model with those of the models without held-out rows, on rows that both know."""
    depth = n_candidates(Y)
    margins: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for model, mask in zip(models, masks, strict=True):
        used = np.flatnonzero(~mask)
        some = used[:: math.ceil(len(used) * len(masks) / COMMON_ROWS)]
        for each, found in zip((final, model), margins, strict=True):
            top = each.predict_topk(model_rows(X[some]), depth, n_jobs=n_jobs)
            found.append(wrong_margins(HeldOut.of(top, Y[some], counts_of(Y)), final.log_scores))
    return Scale.between(*(np.concatenate(found) for found in margins))


def counts_of(Y: sp.csr_array) -> np.ndarray:
    """Return the number of rows of every label."""
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)


def in_proportion(counts: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return what the counts of the rows outside `mask` would be for all rows.

    A calibrator uses the counts of all training rows. A frequent label is as frequent among fewer rows.
    """
    return np.asarray(np.rint(counts * (len(mask) / (~mask).sum())), np.int64)


def part_of(progress: Progress, number: int, of: int) -> Progress:
    """Convert the progress of one fit into the progress of all fits."""
    return lambda share: progress((number + share) / of)
