"""Conversion of a LinearModel to arrays and back. W is stored by label, and if it is large also by feature."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import content
from longtail.models import LinearModel
from longtail.models.index import FeatureLists, canonical
from longtail.models.linear import StoredLists
from longtail.store import dense, index
from longtail.store.form import STORED_FROM, Form

MODEL = LinearModel


def to_arrays(model: LinearModel, root: Path, form: Form) -> tuple[Iterator[tuple[str, np.ndarray]], dict[str, Any]]:
    """Return the arrays of the model, and its own metadata: it has none.

    The lists of the index are made after W is written. Without `form.index`, only a large model has them.
    """
    W = canonical(model.W)
    arrays = {
        "W_data": W.data.astype(np.float32, copy=False),
        "W_indices": W.indices.astype(np.int32, copy=False),
        "W_indptr": W.indptr.astype(np.int64, copy=False),
    }
    content.check_csr(arrays["W_indptr"], arrays["W_indices"], arrays["W_data"], W.shape, "W", root)
    arrays |= dense.to_arrays(model.dense)

    def made() -> Iterator[tuple[str, np.ndarray]]:
        yield from arrays.items()
        if W.nnz >= STORED_FROM if form.index is None else form.index:
            yield from index.to_arrays(model.lists or FeatureLists.of(W, model.n_features)).items()

    return made(), {}


def from_arrays(
    arrays: dict[str, np.ndarray], meta: dict[str, Any], n_labels: int, n_features: int, bias: float, where: Path
) -> dict[str, Any]:
    """Return W and its lists by feature, after checks, and the bias."""
    shape = (n_labels, n_features + (bias > 0))
    data, indices, indptr = (
        content.take(arrays, name, dtype, 1, where)
        for name, dtype in (("W_data", "<f4"), ("W_indices", "<i4"), ("W_indptr", "<i8"))
    )
    content.check_csr(indptr, indices, data, shape, "W", where)
    W = _csr(data, indices, indptr, shape)
    lists = index.from_arrays(arrays, len(data), shape, n_features, where)
    stored = None if lists is None else StoredLists(W, lists)
    own = dense.from_arrays(arrays, indices, (n_labels, n_features), where)
    return {"W": W, "bias": bias, "dense": own, "stored": stored}


def _csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Make a CSR array. SciPy needs both index arrays to have one type, so the short `indptr` is copied, and the long
    `indices` is not."""
    if len(indices) <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    else:
        indices = indices.astype(np.int64)
    W = sp.csr_array((data, indices, indptr), shape=shape)
    W.has_sorted_indices = W.has_canonical_format = True  # checked before
    return W
