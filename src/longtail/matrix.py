"""Checks and conversions of matrices that several parts of the package use.

The *canonical form* of a sparse matrix is a csr_array whose column indices are in range, sorted and unique within each
row. Kernels follow index arrays without checking them, so nothing reaches a kernel before it has this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError

MAX_COLUMNS = 2**31 - 2  # features and labels are numbered by int32, and the bias may add a column
LARGEST_INT32 = int(np.iinfo(np.int32).max)
ENTRIES_AT_ONCE = 1 << 22  # entries that a check of a long, perhaps memory-mapped array looks at together

Rows = TypeVar("Rows", sp.csr_array, np.ndarray)


class HasIndptr(Protocol):
    """Anything with the row pointers of a CSR matrix."""

    @property
    def indptr(self) -> np.ndarray: ...


# --- is it sound? ----------------------------------------------------------------------------------------------------


def pointer_fault(
    indptr: np.ndarray, n_rows: int, n_entries: int, *, name: str = "indptr", spare: bool = False
) -> str | None:
    """What is wrong with the row pointers of `n_rows` rows, or None. With `spare`, the last entries may be unused."""
    if indptr.dtype.kind not in "iu":
        return f"{name} has dtype {indptr.dtype}, not integers"
    if not len(indptr) or len(indptr) != n_rows + 1 or indptr[0] != 0:
        return f"{name} does not span {n_rows:,} rows and {n_entries:,} entries"
    if indptr[-1] > n_entries or (indptr[-1] < n_entries and not spare):
        return f"{name} does not span {n_rows:,} rows and {n_entries:,} entries"
    return f"{name} decreases" if (indptr[1:] < indptr[:-1]).any() else None  # np.diff would wrap around


def index_fault(indices: np.ndarray, size: int, *, name: str = "indices") -> str | None:
    """What is wrong with these column (or row) numbers, which must lie in 0 .. size - 1, or None."""
    if indices.dtype.kind not in "iu":
        return f"{name} has dtype {indices.dtype}, not integers"
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        return f"{name} leaves the range 0 to {size - 1:,}"
    return None


def csr_fault(
    indptr: np.ndarray,
    indices: np.ndarray,
    shape: tuple[int, int],
    *,
    names: tuple[str, str] = ("indptr", "indices"),
) -> str | None:
    """What keeps the pattern of a CSR matrix from being canonical, or None: lengths, range, or order within a row.

    `names` are the words for `indptr` and `indices` in the description.
    """
    fault = pointer_fault(indptr, shape[0], len(indices), name=names[0]) or index_fault(
        indices, shape[1], name=names[1]
    )
    if fault:
        return fault
    for begin in range(0, indices.size - 1, ENTRIES_AT_ONCE):
        piece = indices[begin : begin + ENTRIES_AT_ONCE + 1]
        rises = piece[1:] > piece[:-1]
        first, last = np.searchsorted(indptr, (begin + 1, begin + len(piece)))
        rises[indptr[first:last].astype(np.int64) - 1 - begin] = True  # a row may start anywhere
        if not rises.all():
            return f"{names[1]} are not sorted and unique within a row"
    return None


def value_fault(data: np.ndarray, n_entries: int, *, name: str = "data") -> str | None:
    """What is wrong with the values of a sparse matrix of `n_entries` entries, or None."""
    if data.size != n_entries:
        return f"{name} has {data.size:,} values for {n_entries:,} indices"
    return None if all_finite(data) else f"{name} holds NaN or infinity"


def all_finite(data: np.ndarray) -> bool:
    """Whether no value is NaN or infinite. It takes little memory for any number of values."""
    pieces = range(0, data.size, ENTRIES_AT_ONCE)
    return all(np.isfinite(data[begin : begin + ENTRIES_AT_ONCE]).all() for begin in pieces)


def sparse_fault(matrix: Any) -> str | None:
    """What is wrong with a SciPy matrix of any format, or None. SciPy's own check misses some of these faults.

    Rows need not be sorted, and entries may repeat, because `canonical_csr` corrects that.
    """
    if matrix.ndim != 2:
        return f"expected a matrix of two dimensions, but the sparse array has shape {matrix.shape}"
    if matrix.shape[1] > MAX_COLUMNS:
        return f"{matrix.shape[1]:,} columns are more than the {MAX_COLUMNS:,} that can be numbered"
    fault = None
    if matrix.format == "coo":
        if not len(matrix.row) == len(matrix.col) == len(matrix.data):
            fault = "row, col and data differ in length"
        fault = fault or index_fault(matrix.row, matrix.shape[0], name="row")
        fault = fault or index_fault(matrix.col, matrix.shape[1], name="col")
    elif matrix.format in ("csr", "csc", "bsr"):
        block = getattr(matrix, "blocksize", (1, 1))
        n_major, n_minor = matrix.shape[0] // block[0], matrix.shape[1] // block[1]
        if matrix.format == "csc":
            n_major, n_minor = n_minor, n_major
        if len(matrix.data) != len(matrix.indices):
            fault = f"data has {len(matrix.data):,} values for {len(matrix.indices):,} indices"
        fault = fault or pointer_fault(matrix.indptr, n_major, len(matrix.indices), spare=True)
        fault = fault or index_fault(matrix.indices[: matrix.indptr[-1]], n_minor)
    return fault and f"the index arrays of the {matrix.format} matrix are damaged: {fault}"


# --- canonical forms -------------------------------------------------------------------------------------------------


def canonical_csr(matrix: Any) -> sp.csr_array:
    """Return the canonical form of a SciPy matrix or dense array. It has int32 indices if these can count the entries.

    The result shares memory with `matrix` if possible. `matrix` is never changed. Raise InputError if it is damaged.
    """
    if sp.issparse(matrix) and (fault := sparse_fault(matrix)):
        raise InputError(fault)
    csr = sp.csr_array(matrix)
    if fault := sparse_fault(csr):
        raise InputError(fault)
    csr.check_format()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if csr.indices.dtype != np.int32 and csr.nnz <= LARGEST_INT32:  # half the memory, as SciPy itself would choose
        csr = sp.csr_array((csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int32)), shape=csr.shape)
    return csr


def needs_no_conversion(X: Any, estimator: Any) -> bool:
    """Whether scikit-learn's check for this estimator, which takes longer than the prediction of a row, would return X
    as it is. Its values and index arrays are not looked at."""
    known = isinstance(X, sp.csr_array) and X.dtype == np.float32 and not hasattr(estimator, "feature_names_in_")
    return bool(known and 0 not in X.shape and X.shape[1] == getattr(estimator, "n_features_in_", None))


def indicator(matrix: Any, name: str = "Y") -> sp.csr_array:
    """Return a matrix of zeros and ones in canonical form, where every stored value is an int32 one.

    Raise InputError for other values. An indicator that already has this form is returned without a copy.
    """
    csr = canonical_csr(matrix)
    if csr.dtype == np.int32 and (csr.data == 1).all():
        return csr
    wrong = (csr.data != 0) & (csr.data != 1)
    if wrong.any():
        raise InputError(
            f"an indicator {name} holds only 0 and 1, but {csr.data[wrong][0]} was found; "
            "mark each label of a row by 1 (class numbers go into a 1-d array)"
        )
    if not csr.data.all():
        csr = csr.copy()  # the caller's matrix keeps its zeros
        csr.eliminate_zeros()
    return ones(csr.indices, csr.indptr, csr.shape)


def ones(indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Return the indicator with a one at each of these column numbers. It has int32 index arrays if possible."""
    width = np.int32 if len(indices) <= LARGEST_INT32 else np.int64
    data = np.ones(len(indices), np.int32)
    return sp.csr_array((data, indices.astype(width, copy=False), indptr.astype(width, copy=False)), shape=shape)


def csr_view(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Return a canonical matrix that shares the memory of its arrays. SciPy's constructor copies arrays that are views
    of much larger ones."""
    matrix = sp.csr_array(shape, dtype=data.dtype)
    matrix.data = data
    matrix.indices = indices
    matrix.indptr = indptr
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


def one_label_per_row(Y: HasIndptr) -> bool:
    """Whether every row of an indicator has exactly one label."""
    return bool((np.diff(Y.indptr) == 1).all())


# --- rows ------------------------------------------------------------------------------------------------------------


def row_squares(X: sp.csr_array | np.ndarray) -> np.ndarray:
    """|x_i|^2 of every row, in float64, because squares of float32 numbers may overflow or underflow in float32."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    squares = sp.csr_array((X.data.astype(np.float64) ** 2, X.indices, X.indptr), shape=X.shape)
    return np.asarray(squares.sum(axis=1)).ravel()


def normalize_rows(X: Rows) -> Rows:
    """X with every row divided by its Euclidean length; rows of zeros stay as they are."""
    lengths = np.sqrt(row_squares(X))
    lengths[lengths == 0] = 1.0
    if isinstance(X, np.ndarray):
        unit = np.empty_like(X)
        np.divide(X, lengths[:, None], out=unit, casting="unsafe")  # divided in float64, as below
        return unit
    scaled = (X.data / np.repeat(lengths, np.diff(X.indptr))).astype(np.float32)
    return sp.csr_array((scaled, X.indices, X.indptr), shape=X.shape)


def take_rows(A: sp.csr_array, rows: np.ndarray) -> sp.csr_array:
    """Return A[rows] for increasing `rows`. The result may share memory with A, so it must not be changed."""
    if not len(rows) or rows[-1] - rows[0] + 1 != len(rows):
        return sp.csr_array(A[rows])
    start, stop = A.indptr[rows[0]], A.indptr[rows[-1] + 1]
    indptr = A.indptr[rows[0] : rows[-1] + 2] - start
    return sp.csr_array((A.data[start:stop], A.indices[start:stop], indptr), shape=(len(rows), A.shape[1]))


def stack_rows(parts: Sequence[sp.csr_array], order: np.ndarray) -> sp.csr_array:
    """`vstack(parts)[order]` of float32 matrices, without making the stack first.

    `order` holds row numbers of the stack; a row may be taken several times, or not at all.
    """
    part_of = np.repeat(np.arange(len(parts)), [part.shape[0] for part in parts])
    row_of = np.concatenate([np.arange(part.shape[0]) for part in parts])
    lengths = np.concatenate([np.diff(part.indptr) for part in parts]).astype(np.int64)[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    index_type = np.int32 if indptr[-1] <= LARGEST_INT32 else np.int64
    data = np.empty(indptr[-1], np.float32)
    indices = np.empty(indptr[-1], index_type)
    for target, source in enumerate(order):
        part, row = parts[part_of[source]], row_of[source]
        taken = slice(*part.indptr[row : row + 2])
        into = slice(*indptr[target : target + 2])
        data[into] = part.data[taken]
        indices[into] = part.indices[taken]
    return sp.csr_array((data, indices, indptr.astype(index_type)), shape=(len(order), parts[0].shape[1]))
