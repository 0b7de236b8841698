"""Dense NumPy files (`numpy.save`): a matrix of features, an indicator of labels, or one class number per row."""

from __future__ import annotations

import os

import numpy as np
from scipy.sparse import csr_array

from longtail.data.files import PathLike, open_regular
from longtail.errors import DataError
from longtail.matrix import MAX_COLUMNS, ones


def read_npy(path: PathLike, *, labels: bool) -> csr_array:
    """Features (float32), or labels (int32 ones): an indicator whose positive entries are labels, or a 1-d array of
    class numbers. Nothing is unpickled."""
    where = os.fspath(path)
    array = _opened(path, where)
    if labels and array.ndim == 1:
        return _classes(array, where)
    _check_matrix(array, where)
    if labels:
        if (array < 0).any():
            raise DataError(where, "found a negative entry, expected zeros and ones")
        return csr_array((array > 0).astype(np.int32))
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinity, which is refused later
        return csr_array(array.astype(np.float32))


def open_npy(path: PathLike) -> np.ndarray:
    """A matrix of finite numbers, memory-mapped."""
    array = _opened(path, os.fspath(path))
    _check_matrix(array, os.fspath(path))
    return array


def _opened(path: PathLike, where: str) -> np.ndarray:
    open_regular(path).close()  # a DataError for what cannot be read
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError, TypeError, OverflowError) as error:
        # NumPy's message advises to unpickle the file, which could run any code
        reason = "it holds Python objects, or is no .npy file" if "pickle" in str(error) else error
        raise DataError(where, f"is not an array of numbers in a .npy file: {reason}") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        found = getattr(array, "dtype", "an archive")
        raise DataError(where, f"found {found}, expected an array of numbers; write it with numpy.save")
    return array


def _check_matrix(array: np.ndarray, where: str) -> None:
    if array.ndim != 2:
        raise DataError(where, f"found an array of shape {array.shape}, expected rows and columns")
    if not np.isfinite(array).all():
        raise DataError(where, "found NaN or infinity, expected finite numbers; replace missing values")


def _classes(array: np.ndarray, where: str) -> csr_array:
    if array.dtype.kind not in "iu" or (array.size and not 0 <= int(array.min()) <= int(array.max()) < MAX_COLUMNS):
        raise DataError(where, f"found a 1-d array of {array.dtype}, expected whole numbers from 0, one class per row")
    n_classes = int(array.max()) + 1 if array.size else 0
    return ones(array.astype(np.int32), np.arange(array.size + 1), (array.size, n_classes))
