"""Rows with a sparse and a dense part, such as tf-idf columns and the columns of an embedding.

A sparse matrix stores a column number beside every value. For columns in which nearly every entry is used, this takes
twice the memory and keeps the processor from adding several entries at once. `HybridRows` holds such columns as a plain
array. `split` finds them by their density, so that the result of `scipy.sparse.hstack`, `FeatureUnion` or
`ColumnTransformer` needs no preparation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.matrix import canonical_csr, normalize_rows, row_squares

MIN_DENSE_COLUMNS = 16  # fewer columns are not worth a dense part
MIN_DENSITY = 0.5  # share of rows that use a dense column; at this share, both forms take the same memory


@dataclass(frozen=True, eq=False)
class HybridRows:
    """Rows whose columns are partly sparse and partly dense.

    Parameters
    ----------
    sparse : sparse matrix with one row per sample
    dense : array of shape (n_samples, n_dense)
        A float32 array is used without a copy, so it may be memory-mapped.
    columns : int array of n_dense column numbers, optional
        The places of the dense columns among all columns, in increasing order. `sparse` then has all columns, and its
        entries in these columns are empty. Without `columns`, the dense columns follow the columns of `sparse`.

    Attributes
    ----------
    shape : (n_samples, n_features), where the features are the columns of both parts
    """

    sparse: sp.csr_array
    dense: np.ndarray
    columns: np.ndarray = None  # type: ignore[assignment]  # set by __post_init__

    def __post_init__(self) -> None:
        sparse, dense = _sparse_part(self.sparse), _dense_part(self.dense)
        if sparse.shape[0] != dense.shape[0]:
            raise InputError(
                f"the sparse part has {sparse.shape[0]:,} rows and the dense part {dense.shape[0]:,}; "
                "each row of one belongs to the same row of the other"
            )
        if self.columns is None:
            columns = np.arange(sparse.shape[1], sparse.shape[1] + dense.shape[1])
            parts = sparse.data, sparse.indices, sparse.indptr
            sparse = sp.csr_array(parts, shape=(sparse.shape[0], sparse.shape[1] + dense.shape[1]))
        else:
            columns = np.asarray(self.columns)
            _check_columns(columns, sparse, dense.shape[1])
        for name, value in (("sparse", sparse), ("dense", dense), ("columns", columns.astype(np.int64))):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.sparse.shape[0]), int(self.sparse.shape[1])

    @property
    def nnz(self) -> int:
        """The number of stored entries of both parts."""
        return int(self.sparse.nnz + self.dense.size)

    @property
    def nbytes(self) -> int:
        """The memory of both parts."""
        parts = (self.sparse.data, self.sparse.indices, self.sparse.indptr, self.dense)
        return sum(part.nbytes for part in parts)

    def __len__(self) -> int:
        raise TypeError("the length of HybridRows is ambiguous; use shape[0]")

    def __getitem__(self, rows: Any) -> HybridRows:
        """Some rows, given as row numbers, a slice or a boolean array."""
        chosen = object.__new__(HybridRows)  # the parts were checked before
        parts = (("sparse", self.sparse[rows]), ("dense", self.dense[rows]), ("columns", self.columns))
        for name, value in parts:
            object.__setattr__(chosen, name, value)
        return chosen

    def tocsr(self) -> sp.csr_array:
        """The same rows as one sparse matrix."""
        n, m = self.dense.shape
        indices = np.tile(self.columns.astype(np.int32), n)
        stored = sp.csr_array((self.dense.ravel(), indices, np.arange(n + 1) * m), shape=self.shape)
        return canonical_csr(self.sparse + stored)

    def split_as(self, columns: np.ndarray) -> HybridRows:
        """The same rows with these dense columns."""
        return self if np.array_equal(columns, self.columns) else take_columns(self.tocsr(), columns)


Rows: TypeAlias = "sp.csr_array | HybridRows"


def split(X: sp.csr_array) -> Rows:
    """The canonical rows X as HybridRows if enough of their columns are dense, and otherwise X itself."""
    columns = dense_columns(X)
    return X if len(columns) < MIN_DENSE_COLUMNS else take_columns(X, columns)


def dense_columns(X: sp.csr_array) -> np.ndarray:
    """The columns of X that most rows use, in increasing order."""
    if X.nnz < MIN_DENSITY * X.shape[0] * MIN_DENSE_COLUMNS:
        return np.empty(0, np.int64)
    used = np.bincount(X.indices, minlength=X.shape[1])
    return np.flatnonzero(used > MIN_DENSITY * X.shape[0])


def take_columns(X: sp.csr_array, columns: np.ndarray) -> HybridRows:
    """The canonical rows X, with these columns as dense part."""
    is_dense = np.zeros(X.shape[1], bool)
    is_dense[columns] = True
    chosen = is_dense[X.indices]
    row_of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    place = np.cumsum(is_dense) - 1
    dense = np.zeros((X.shape[0], len(columns)), np.float32)
    dense[row_of[chosen], place[X.indices[chosen]]] = X.data[chosen]
    left = np.bincount(row_of[~chosen], minlength=X.shape[0])
    indptr = np.concatenate([[0], np.cumsum(left)]).astype(X.indptr.dtype)
    sparse = sp.csr_array((X.data[~chosen], X.indices[~chosen], indptr), shape=X.shape)
    return HybridRows(sparse, dense, columns)


def squares(X: sp.csr_array | np.ndarray | HybridRows) -> np.ndarray:
    """|x_i|^2 of every row, in float64."""
    if isinstance(X, HybridRows):
        return np.asarray(row_squares(X.sparse) + row_squares(X.dense))
    return row_squares(X)


def normalized(X: Any) -> Any:
    """X, of any form, with every row divided by its Euclidean length; rows of zeros stay as they are."""
    if not isinstance(X, HybridRows):
        return normalize_rows(X)
    lengths = np.sqrt(squares(X))
    lengths[lengths == 0] = 1.0
    sparse = X.sparse.copy()
    sparse.data = (sparse.data / np.repeat(lengths, np.diff(sparse.indptr))).astype(np.float32)
    return HybridRows(sparse, (X.dense / lengths[:, None]).astype(np.float32), X.columns)


def as_csr(X: sp.csr_array | np.ndarray | HybridRows) -> sp.csr_array:
    """X as one sparse matrix."""
    return X.tocsr() if isinstance(X, HybridRows) else sp.csr_array(X)


def widened(X: Rows, n_features: int) -> Rows:
    """X with empty columns at its end, so that it has `n_features`. It shares the memory of X."""
    sparse = X.sparse if isinstance(X, HybridRows) else X
    wide = sp.csr_array((sparse.data, sparse.indices, sparse.indptr), shape=(X.shape[0], n_features))
    return HybridRows(wide, X.dense, X.columns) if isinstance(X, HybridRows) else wide


def model_rows(X: sp.csr_array | np.ndarray | HybridRows) -> Rows:
    """X in a form that models take."""
    return sp.csr_array(X) if isinstance(X, np.ndarray) else X


# --- checks ----------------------------------------------------------------------------------------------------------


def _sparse_part(sparse: Any) -> sp.csr_array:
    if not sp.issparse(sparse):
        raise InputError(f"the sparse part must be a SciPy sparse matrix, but is {type(sparse).__name__}")
    csr = canonical_csr(sparse)
    if csr.dtype.kind not in "biuf":
        raise InputError(f"the sparse part holds {csr.dtype}, but numbers are needed")
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinity, which is refused below
        csr = csr.astype(np.float32, copy=False)
    if not np.isfinite(csr.data).all():
        raise InputError("the sparse part contains NaN or infinity (or a value beyond float32)")
    return csr


def _dense_part(dense: Any) -> np.ndarray:
    array = np.asarray(dense)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(
            f"the dense part must be an array of numbers with two dimensions, but has shape {array.shape} "
            f"and holds {array.dtype}"
        )
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise InputError(f"row {row} of the dense part contains NaN or infinity (or a value beyond float32)")
    return array


def _check_columns(columns: np.ndarray, sparse: sp.csr_array, n_dense: int) -> None:
    if columns.shape != (n_dense,) or columns.dtype.kind not in "iu":
        raise InputError(f"columns must hold {n_dense} column numbers, one for each column of the dense part")
    if n_dense and (columns.min() < 0 or columns.max() >= sparse.shape[1] or (np.diff(columns) <= 0).any()):
        raise InputError(f"columns must increase and lie between 0 and {sparse.shape[1] - 1}")
    used = np.zeros(sparse.shape[1], bool)
    used[columns] = True
    if used[sparse.indices].any():
        raise InputError("the sparse part has entries in a column of the dense part")
