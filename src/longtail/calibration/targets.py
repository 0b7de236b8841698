"""Chooses thresholds on held-out rows, for a given target.

A target is a text with options (methods/spec.py):

    micro-f1                   the F1 of all pairs of a row and a label; one threshold
    macro-f1:by=band           the mean F1 over labels; one threshold for each of head, torso and tail
    macro-f1:by=label          the same, with one threshold for each label that has enough held-out rows
    precision:at_least=0.9     as many labels as possible, at this precision
    recall:at_least=0.8        as few labels as possible, at this recall
    top:k=3                    the k best labels of every row
    fixed:value=0.2            this threshold

Only the candidates of a row, its `depth` best labels, can be returned. Recall counts all labels of the held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from longtail.calibration.held_out import HeldOut
from longtail.errors import InputError
from longtail.metrics.evaluation import split_bands
from longtail.models.thresholds import Thresholds

DEPTH = 100  # candidates per row if there are no held-out rows
GRID = 200  # thresholds tried per band
ENOUGH_ROWS = 10  # held-out rows that a label needs to get its own threshold


class _Curve:
    """Precision, recall and F1 for a threshold after each candidate, in the order of decreasing value."""

    def __init__(self, values: np.ndarray, hit: np.ndarray, n_positives: int) -> None:
        order = np.argsort(-values, kind="stable")
        self.values = values[order]
        self.hits = np.cumsum(hit[order])
        self.returned = np.arange(1, len(values) + 1)
        self.n_positives = n_positives
        last_of_ties = np.append(self.values[1:] < self.values[:-1], True)
        self.possible = np.flatnonzero(last_of_ties)

    @property
    def precision(self) -> np.ndarray:
        return self.hits / self.returned

    @property
    def recall(self) -> np.ndarray:
        return self.hits / max(self.n_positives, 1)

    @property
    def f1(self) -> np.ndarray:
        return 2 * self.hits / (self.returned + self.n_positives)

    def threshold(self, at: int) -> float:
        """Return a threshold that selects the candidates up to position `at`. It is halfway to the next value."""
        below = self.values[at + 1] if at + 1 < len(self.values) else self.values[at] - 1
        limit = np.float32(0.5) * (np.float32(self.values[at]) + np.float32(below))
        return float(limit) if limit < self.values[at] else float(below)


def micro_f1(held_out: HeldOut, counts: np.ndarray) -> np.ndarray:
    curve = _whole(held_out)
    return np.array(curve.threshold(curve.possible[np.argmax(curve.f1[curve.possible])]))


def macro_f1(held_out: HeldOut, counts: np.ndarray, *, by: Literal["band", "label"] = "band") -> np.ndarray:
    limits = np.full(len(counts), float(micro_f1(held_out, counts)))
    values = held_out.top.values.ravel()
    labels = held_out.top.labels.ravel()
    hit = held_out.hit.ravel()
    for members in split_bands(counts).values():
        inside = members[labels]
        if inside.any() and hit[inside].any():
            limits[members] = _best_of_grid(values[inside], labels[inside], hit[inside], held_out.positives)
    if by == "label":
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(len(counts) + 1))
        for label in np.flatnonzero(held_out.positives >= ENOUGH_ROWS):
            mine = order[ends[label] : ends[label + 1]]
            if hit[mine].any():
                curve = _Curve(values[mine], hit[mine], int(held_out.positives[label]))
                limits[label] = curve.threshold(curve.possible[np.argmax(curve.f1[curve.possible])])
    return limits


def precision(held_out: HeldOut, counts: np.ndarray, *, at_least: float) -> np.ndarray:
    curve = _whole(held_out)
    enough = curve.possible[curve.precision[curve.possible] >= at_least]
    if not len(enough):
        best = curve.precision[curve.possible].max()
        raise InputError(
            f"no threshold has a precision of at least {at_least:g} on these rows; the highest is {best:.3g}"
        )
    return np.array(curve.threshold(enough[-1]))


def recall(held_out: HeldOut, counts: np.ndarray, *, at_least: float) -> np.ndarray:
    curve = _whole(held_out)
    enough = curve.possible[curve.recall[curve.possible] >= at_least]
    if not len(enough):
        raise InputError(
            f"no threshold has a recall of at least {at_least:g} on these rows; the {held_out.hit.shape[1]} candidates "
            f"of a row have {curve.recall[-1]:.3g}"
        )
    return np.array(curve.threshold(enough[0]))


def top(held_out: HeldOut | None, counts: np.ndarray | None, *, k: int) -> np.ndarray:
    if k < 1:
        raise InputError(f"the target 'top:k={k}' must return at least 1 label per row")
    return np.array(-np.inf)


def fixed(held_out: HeldOut | None, counts: np.ndarray | None, *, value: float) -> np.ndarray:
    return np.array(value)


TARGETS: dict[str, Callable[..., np.ndarray]] = {
    "micro-f1": micro_f1,
    "macro-f1": macro_f1,
    "precision": precision,
    "recall": recall,
    "top": top,
    "fixed": fixed,
}
WITHOUT_ROWS = ("top", "fixed")


def choose(
    target: str, name: str, options: dict[str, Any], held_out: HeldOut | None, counts: np.ndarray | None
) -> Thresholds:
    """Choose the thresholds for a target. The result also says what they reach on the held-out rows.

    The labels in `held_out` are the candidates. `counts` is the number of training rows of every label. The targets in
    WITHOUT_ROWS need neither.
    """
    depth = DEPTH if held_out is None else held_out.hit.shape[1]
    thresholds = Thresholds(target, TARGETS[name](held_out, counts, **options), options.get("k"), depth)
    return thresholds if held_out is None else replace(thresholds, figures=reached(thresholds, held_out))


def reached(thresholds: Thresholds, held_out: HeldOut) -> dict[str, float]:
    """Return the micro-averaged precision, recall and F1, and the number of labels per row."""
    chosen = thresholds.chosen(held_out.top)
    hits = int((chosen & held_out.hit).sum())
    returned = int(chosen.sum())
    return {
        "precision": hits / max(returned, 1),
        "recall": hits / max(held_out.n_positives, 1),
        "f1": 2 * hits / max(returned + held_out.n_positives, 1),
        "labels_per_row": returned / max(len(held_out.top), 1),
    }


def _whole(held_out: HeldOut) -> _Curve:
    return _Curve(held_out.top.values.ravel(), held_out.hit.ravel(), held_out.n_positives)


def _best_of_grid(values: np.ndarray, labels: np.ndarray, hit: np.ndarray, positives: np.ndarray) -> float:
    """Return the threshold with the largest sum of F1 over labels. Only some quantiles of the values are tried."""
    grid = np.unique(np.quantile(values, np.linspace(0, 1, GRID + 1)[:-1]))
    ids, place = np.unique(labels, return_inverse=True)
    truth = positives[ids]

    def total(limit: float) -> float:
        chosen = values > limit
        hits = np.bincount(place, weights=chosen & hit, minlength=len(ids))
        size = np.bincount(place, weights=chosen, minlength=len(ids)) + truth
        return float((2 * hits / np.maximum(size, 1)).sum())

    return float(grid[np.argmax([total(limit) for limit in grid])])
