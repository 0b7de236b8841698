"""Conversion of calibrator, thresholds and rules to arrays and JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longtail import content
from longtail.errors import InputError, ModelError
from longtail.models import Calibrator, Model, Rules, Thresholds
from longtail.models.calibrator import Coefficients
from longtail.store.meta import member

OFFSET_RANK = "offset_rank"  # the coefficient `rank` beside a rank offset; earlier versions refuse this name
MAX_DEPTH = 2**31 - 1  # largest number of candidates per row


def to_arrays(model: Model) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays, and the members `calibrator`, `thresholds` and `rules`. A member is None if the model does not
    have it."""
    arrays: dict[str, np.ndarray] = {}
    meta: dict[str, Any] = {"calibrator": None, "thresholds": None, "rules": None}
    if model.calibrator is not None:
        arrays["calibrator_knots"] = model.calibrator.knots.astype(np.float64)
        arrays["calibrator_values"] = model.calibrator.values.astype(np.float64)
        arrays["calibrator_counts"] = model.calibrator.counts.astype(np.int64)
        meta["calibrator"] = {
            "coefficients": dict(zip(_names(True), map(float, model.calibrator.coefficients), strict=True)),
            "n_samples": model.calibrator.n_samples,
            "log_scores": model.calibrator.log_scores,
            "depth": model.calibrator.depth,
            "rank_offset": float(model.calibrator.rank_offset),
        }
    if model.thresholds is not None:
        arrays["threshold_limits"] = np.atleast_1d(model.thresholds.limits).astype(np.float64)
        meta["thresholds"] = {
            "target": model.thresholds.target,
            "per_label": model.thresholds.limits.ndim == 1,
            "per_row": model.thresholds.per_row,
            "depth": model.thresholds.depth,
            "figures": {name: float(value) for name, value in model.thresholds.figures.items()},
        }
    if model.rules is not None:
        arrays["rule_offsets"] = model.rules.offsets.astype(np.float32)
        meta["rules"] = {}
    return arrays, meta


def from_arrays(
    arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], n_labels: int, where: Path
) -> dict[str, Any]:
    """The fields of the model, checked."""
    found: dict[str, Any] = {}
    for name, read in (("calibrator", _calibrator), ("thresholds", _thresholds), ("rules", _rules)):
        saved = meta.get(name)
        if saved is not None and not isinstance(saved, dict):
            raise ModelError(where, f"member {name!r} is of the wrong type")
        try:
            found[name] = None if saved is None else read(dict(arrays), saved, n_labels, where)
        except InputError as error:
            raise ModelError(where, f"member {name!r}: {error}") from None
    return found


def _calibrator(arrays: dict[str, np.ndarray], saved: dict[str, Any], n_labels: int, where: Path) -> Calibrator:
    given = member(saved, "coefficients", dict, where)
    has_offset = "rank_offset" in saved
    coefficients = Coefficients(*(member(given, name, float, where) for name in _names(has_offset)))
    counts = content.take(arrays, "calibrator_counts", "<i8", 1, where)
    if len(counts) != n_labels:
        raise ModelError(where, f"calibrator_counts has {len(counts)} numbers for {n_labels} labels")
    return Calibrator(
        coefficients,
        content.take(arrays, "calibrator_knots", "<f8", 1, where),
        content.take(arrays, "calibrator_values", "<f8", 1, where),
        counts,
        member(saved, "n_samples", int, where),
        member(saved, "log_scores", bool, where),
        _depth(saved, "depth", where),
        member(saved, "rank_offset", float, where) if has_offset else 0.0,
    )


def _names(has_offset: bool) -> list[str]:
    """The names of the coefficients in the folder."""
    return [OFFSET_RANK if name == "rank" and has_offset else name for name in Coefficients._fields]


def _thresholds(arrays: dict[str, np.ndarray], saved: dict[str, Any], n_labels: int, where: Path) -> Thresholds:
    limits = content.take(arrays, "threshold_limits", "<f8", 1, where)
    per_label = member(saved, "per_label", bool, where)
    if len(limits) != (n_labels if per_label else 1):
        raise ModelError(where, f"threshold_limits has {len(limits)} numbers for {n_labels} labels")
    figures = member(saved, "figures", dict, where)
    return Thresholds(
        member(saved, "target", str, where),
        limits if per_label else limits[0],
        None if saved.get("per_row") is None else _depth(saved, "per_row", where),
        _depth(saved, "depth", where),
        {str(name): member(figures, name, float, where) for name in figures},
    )


def _rules(arrays: dict[str, np.ndarray], saved: dict[str, Any], n_labels: int, where: Path) -> Rules:
    offsets = content.take(arrays, "rule_offsets", "<f4", 1, where)
    if len(offsets) != n_labels:
        raise ModelError(where, f"rule_offsets has {len(offsets)} numbers for {n_labels} labels")
    return Rules(offsets)


def _depth(saved: dict[str, Any], name: str, where: Path) -> int:
    depth = int(member(saved, name, int, where))
    if not 1 <= depth <= MAX_DEPTH:
        raise ModelError(where, f"member {name!r} is {depth}, not a number of labels per row")
    return depth
