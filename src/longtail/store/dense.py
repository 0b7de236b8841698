"""Conversion of the dense weights of a linear model to arrays and back. Half-precision numbers and codes of 8 bits are
stored as bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from longtail import content, matrix
from longtail.errors import ModelError
from longtail.models.dense import DenseWeights


def to_arrays(dense: DenseWeights | None) -> dict[str, np.ndarray]:
    if dense is None:
        return {}
    bits = {np.dtype(np.float16): np.uint16, np.dtype(np.int8): np.uint8}.get(dense.weights.dtype, np.float32)
    arrays = {"dense_weights": dense.weights.view(bits), "dense_columns": dense.columns}
    return arrays if dense.steps is None else {**arrays, "dense_steps": dense.steps}


def from_arrays(
    arrays: dict[str, np.ndarray], used: np.ndarray, shape: tuple[int, int], where: Path
) -> DenseWeights | None:
    """Return the dense weights, after checks; None if there are none.

    used : numbers of the features with sparse weights; they may repeat
    shape : labels and features of the model. The features may be far too many, so no array of this size is made.
    """
    n_labels, n_features = shape
    if "dense_weights" not in arrays and "dense_columns" not in arrays:
        return None
    weights = content.take(arrays, "dense_weights", ("<u2", "<f4", "|u1"), 2, where)
    columns = content.take(arrays, "dense_columns", "<i8", 1, where)
    steps = None
    if weights.dtype == np.uint16:
        weights = weights.view(np.float16)
    elif weights.dtype == np.uint8:
        weights, steps = weights.view(np.int8), content.take(arrays, "dense_steps", "<f4", 1, where)
        if steps.shape != columns.shape or not np.isfinite(steps).all():
            raise ModelError(where, f"dense_steps must hold {len(columns)} finite numbers, one for each dense feature")
    if weights.shape != (n_labels, len(columns)):
        raise ModelError(where, f"dense_weights has shape {weights.shape}, not {(n_labels, len(columns))}")
    if not np.isfinite(weights).all():
        raise ModelError(where, "dense_weights holds NaN or infinity")
    fault = matrix.csr_fault(np.array([0, len(columns)]), columns, (1, n_features), names=("dense", "dense_columns"))
    if fault is not None:
        raise ModelError(where, fault)
    if len(columns) and (columns[np.minimum(np.searchsorted(columns, used), len(columns) - 1)] == used).any():
        raise ModelError(where, "W has weights of a dense feature")
    return DenseWeights(weights, columns, steps)
