"""Conversion of a CompactModel to arrays and back. The arrays are those that prediction uses, so there is no index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from longtail import content, matrix
from longtail.errors import ModelError
from longtail.models import CompactModel
from longtail.models.compact_weights import CompactWeights
from longtail.models.index import width_of
from longtail.store import dense
from longtail.store.form import Form

MODEL = CompactModel
PREFIX = "compact_"

# the fields of CompactWeights, and their types in a folder. Codes of 8 bits are signed
TYPES: dict[str, str | tuple[str, ...]] = {
    "weights": ("<u2", "|u1"),
    "gaps": "|u1",
    "ends": "<i8",
    "columns": ("<u2", "|u1"),
    "column_of": "<i4",
    "steps": "<f4",
    "bias_weights": "<f4",
}


def to_arrays(model: CompactModel, root: Path, form: Form) -> tuple[Iterator[tuple[str, np.ndarray]], dict[str, Any]]:
    """Return the arrays of the model, and its own metadata: it has none."""
    codes = "|u1" if model.weights.weights.itemsize == 1 else "<u2"
    arrays = {
        PREFIX + name: getattr(model.weights, name).view(kind if isinstance(kind, str) else codes)
        for name, kind in TYPES.items()
    }
    return iter({**arrays, **dense.to_arrays(model.dense)}.items()), {}


def from_arrays(
    arrays: dict[str, np.ndarray], meta: dict[str, Any], n_labels: int, n_features: int, bias: float, where: Path
) -> dict[str, Any]:
    """Return the weights, after checks, and the bias."""
    found = {
        name: content.take(arrays, PREFIX + name, kind, 2 if name == "columns" else 1, where)
        for name, kind in TYPES.items()
    }
    weights = CompactWeights.from_arrays(found, n_labels)
    _check(weights, n_features, bias > 0, where)
    used = np.flatnonzero((np.diff(weights.ends) > 0) | (weights.column_of < len(weights.columns)))
    own = dense.from_arrays(arrays, used, (n_labels, n_features), where)
    return {"weights": weights, "bias": bias, "dense": own}


def _check(found: CompactWeights, n_features: int, has_bias: bool, where: Path) -> None:
    """Raise ModelError if the kernels would read outside of an array, or if a value is NaN or infinite."""
    n_labels, n_columns = found.n_labels, len(found.columns)
    if found.weights.dtype != found.columns.dtype:
        raise ModelError(where, f"{PREFIX}weights and {PREFIX}columns differ in their type")
    lengths = {
        "gaps": len(found.weights),
        "column_of": n_features,
        "steps": n_features if found.weights.dtype == np.int8 else 0,
        "bias_weights": n_labels if has_bias else 0,
    }
    for name, length in lengths.items():
        if len(getattr(found, name)) != length:
            raise ModelError(where, f"{PREFIX}{name} has {len(getattr(found, name)):,} numbers, not {length:,}")
    if found.columns.shape[1] != width_of(n_labels):
        raise ModelError(where, f"{PREFIX}columns has {found.columns.shape[1]:,} numbers for {n_labels:,} labels")
    fault = matrix.pointer_fault(found.ends, n_features, len(found.weights), name=PREFIX + "ends")
    fault = fault or matrix.index_fault(found.column_of, n_columns + 1, name=PREFIX + "column_of")
    fault = fault or _gap_fault(found.gaps, found.ends.astype(np.int64), n_labels)
    if fault is not None:
        raise ModelError(where, fault)
    if (np.diff(found.ends)[found.column_of < n_columns] > 0).any():
        raise ModelError(where, "a feature has both a column and a list")
    for name in ("weights", "columns", "steps", "bias_weights"):
        numbers = getattr(found, name).ravel()
        if not matrix.all_finite(numbers.view(np.float16) if numbers.dtype == np.uint16 else numbers):
            raise ModelError(where, f"{PREFIX}{name} holds NaN or infinity")


def _gap_fault(gaps: np.ndarray, ends: np.ndarray, n_labels: int) -> str | None:
    """What is wrong with the gaps of the lists, or None. Labels must rise within a list and stay in range."""
    starts = ends[:-1][np.diff(ends) > 0]
    zeros = np.flatnonzero(gaps == 0)
    if len(np.setdiff1d(zeros, starts, assume_unique=True)):
        return f"{PREFIX}gaps has a 0 within a list"
    if len(starts) and np.add.reduceat(gaps, starts, dtype=np.int64).max() >= n_labels:
        return f"{PREFIX}gaps leaves the range of {n_labels:,} labels"
    return None
