"""X and Y of a problem as a folder. Any number of worker processes open it memory-mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import content, folder
from longtail.errors import ModelError
from longtail.hybrid import HybridRows
from longtail.runs.identity import digest


def arrays_of(X: Any, Y: sp.csr_array) -> dict[str, np.ndarray]:
    """The arrays of canonical X (a csr_array, dense, or with a part of each kind) and Y."""
    arrays = {"Y_data": Y.data, "Y_indices": Y.indices, "Y_indptr": Y.indptr, "Y_shape": np.array(Y.shape, np.int64)}
    if isinstance(X, np.ndarray):
        return {**arrays, "X_dense": X}
    if isinstance(X, HybridRows):
        arrays |= {"X_dense_part": X.dense, "X_dense_columns": X.columns}
        X = X.sparse
    return {
        **arrays,
        "X_data": X.data,
        "X_indices": X.indices,
        "X_indptr": X.indptr,
        "X_shape": np.array(X.shape, np.int64),
    }


def matrices_of(arrays: dict[str, np.ndarray]) -> tuple[Any, sp.csr_array]:
    """Rebuild X and Y from the arrays of `arrays_of`. They share the memory of the arrays."""
    Y = _csr(arrays, "Y")
    if "X_dense" in arrays:
        return arrays["X_dense"], Y
    X = _csr(arrays, "X")
    if "X_dense_part" in arrays:
        return HybridRows(X, arrays["X_dense_part"], arrays["X_dense_columns"]), Y
    return X, Y


def _csr(arrays: dict[str, np.ndarray], name: str) -> sp.csr_array:
    shape = tuple(arrays[f"{name}_shape"].tolist())
    parts = (arrays[f"{name}_data"], arrays[f"{name}_indices"], arrays[f"{name}_indptr"])
    matrix = sp.csr_array(parts, shape=shape)
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


def digest_of(X: Any, Y: sp.csr_array) -> str:
    """The fingerprint of the data."""
    arrays = arrays_of(X, Y)
    return digest(arrays[name] for name in sorted(arrays))


def write(root: Path, X: Any, Y: sp.csr_array, mark: str) -> None:
    """Write the data of the run `mark`, unless the folder already has a valid copy."""
    if folder.holds(root, folder.DATA):
        try:
            read(root, mark)
        except ModelError:
            pass
        else:
            return
    arrays = {name: _stored(array) for name, array in arrays_of(X, Y).items()}
    dtypes = {name: array.dtype.str for name, array in arrays_of(X, Y).items()}
    folder.write(root, folder.DATA, arrays, {"run": mark, "dtypes": dtypes})


def read(root: Path, mark: str) -> tuple[Any, sp.csr_array]:
    """The verified X and Y of the run `mark`, memory-mapped."""
    arrays, meta = folder.read(root, folder.DATA)
    where = root / folder.DATA.manifest
    if meta.get("run") != mark:
        raise ModelError(where, "is the data of another run")
    arrays = {name: array.view(meta["dtypes"][name]) for name, array in arrays.items()}
    for name in ("X", "Y"):
        if name == "Y" or "X_dense" not in arrays:
            shape = tuple(arrays[f"{name}_shape"].tolist())
            content.check_csr(
                arrays[f"{name}_indptr"], arrays[f"{name}_indices"], arrays[f"{name}_data"], shape, name, where
            )
    return matrices_of(arrays)


def _stored(array: np.ndarray) -> np.ndarray:
    """Convert an array to a dtype that a folder can hold: booleans and small integers become bytes."""
    return array.view(np.uint8) if array.dtype.itemsize == 1 else array
