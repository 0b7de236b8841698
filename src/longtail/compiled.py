"""The one decorator of all kernels, and the one array form that they take.

A kernel is a module-level function over plain arrays. It trusts its input, allocates nothing large, prints, raises and
logs nothing. `error_model="numpy"` (a division is not checked) and unsigned indices (no wrap-around of negative ones)
are what lets LLVM vectorise; read-only views give each kernel one signature, whether an array is memory-mapped or not.
Numba's disk cache does not see edits in other files, so a kernel calls only kernels of its own file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at the first call, without the GIL, and keep the machine code on disk where the disk allows it."""
    try:
        return numba.njit(nogil=True, error_model="numpy", cache=True, **options)(function)
    except RuntimeError:  # no writable place for the cache (read-only install without NUMBA_CACHE_DIR)
        return numba.njit(nogil=True, error_model="numpy", **options)(function)


def reordering_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose sums may be taken in any order, several terms at a time; NaN and infinity stay what they are."""
    return kernel(function, fastmath={"reassoc", "contract", "nsz"})


def frozen(array: Any, dtype: Any) -> np.ndarray:
    """A read-only, contiguous, plain-ndarray view of `array` as `dtype` (a copy only where there is no other way)."""
    dtype = np.dtype(dtype)
    array = np.ascontiguousarray(array).view(np.ndarray)
    if array.dtype.isnative and array.dtype.kind in "iu" and dtype.kind in "iu" and array.itemsize == dtype.itemsize:
        array = array.view(dtype)
    view = array.astype(dtype, copy=False).view()
    view.flags.writeable = False
    return view


def row_parts(X: csr_array | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`data`, `indices` and `indptr` of rows for kernels that read both kinds: without indices, rows are dense."""
    if isinstance(X, np.ndarray):
        n, d = X.shape
        return frozen(X.ravel(), np.float32), frozen([], np.uint32), frozen(np.arange(n + 1) * d, np.uint64)
    return csr_parts(X)


def csr_parts(matrix: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`data` float32, `indices` uint32, `indptr` uint64 of a canonical CSR matrix, read-only, for kernels."""
    return frozen(matrix.data, np.float32), frozen(matrix.indices, np.uint32), frozen(matrix.indptr, np.uint64)


def csr_pattern(matrix: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """`indices` uint32 and `indptr` uint64 of a CSR matrix whose values are all one (labels), read-only."""
    return frozen(matrix.indices, np.uint32), frozen(matrix.indptr, np.uint64)
