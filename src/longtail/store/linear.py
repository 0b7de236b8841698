"""Conversion of a LinearModel to arrays and back. W is stored by label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import content
from longtail.models import LinearModel

MODEL = LinearModel


def to_arrays(model: LinearModel, root: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of the model. It has no metadata of its own."""
    W = _canonical(model.W)
    arrays = {
        "W_data": W.data.astype(np.float32, copy=False),
        "W_indices": W.indices.astype(np.int32, copy=False),
        "W_indptr": W.indptr.astype(np.int64, copy=False),
    }
    content.check_csr(arrays["W_indptr"], arrays["W_indices"], arrays["W_data"], W.shape, "W", root)
    return arrays, {}


def from_arrays(
    arrays: dict[str, np.ndarray], meta: dict[str, Any], n_labels: int, n_features: int, bias: float, where: Path
) -> dict[str, Any]:
    """Return W, after checks, and the bias."""
    shape = (n_labels, n_features + (bias > 0))
    data, indices, indptr = (
        content.take(arrays, name, dtype, 1, where)
        for name, dtype in (("W_data", "<f4"), ("W_indices", "<i4"), ("W_indptr", "<i8"))
    )
    content.check_csr(indptr, indices, data, shape, "W", where)
    return {"W": _csr(data, indices, indptr, shape), "bias": bias}


def _canonical(W: sp.csr_array) -> sp.csr_array:
    if not W.has_canonical_format:
        W = W.copy()
        W.sum_duplicates()
    return W


def _csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Make a CSR array. SciPy needs both index arrays to have one type, so the short `indptr` is copied, and the long
    `indices` is not."""
    if len(indices) <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    else:
        indices = indices.astype(np.int64)
    return sp.csr_array((data, indices, indptr), shape=shape)
