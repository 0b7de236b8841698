"""What the arrays of a folder mean: CSR matrices and lists of strings, checked before anything uses them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from longtail.errors import ModelError


def take(arrays: dict[str, np.ndarray], name: str, dtypes: str | tuple[str, ...], ndim: int, where: Path) -> np.ndarray:
    """The array `name`, if it is there with one of these dtypes and this number of dimensions."""
    array = arrays.get(name)
    if array is None:
        raise ModelError(where, f"lists no array {name}")
    wanted = (dtypes,) if isinstance(dtypes, str) else dtypes
    if array.dtype.str not in wanted or array.ndim != ndim:
        raise ModelError(
            where,
            f"array {name} has dtype {array.dtype.str} and {array.ndim} dimensions, not {'/'.join(wanted)} and {ndim}",
        )
    return array


def check_csr(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray | None,
    shape: tuple[int, int],
    name: str,
    where: Path,
    *,
    names: tuple[str, str] = ("indptr", "indices"),
) -> None:
    """Refuse a CSR triple that no kernel could trust: wrong lengths, indices out of range or unsorted, infinity.

    `names` are what the files call its first two arrays.
    """
    n_rows, n_columns = shape
    ends_name, columns_name = (f"{name}_{each}" for each in names)
    if indptr.size != n_rows + 1 or indptr[0] != 0 or indptr[-1] != indices.size:
        raise ModelError(where, f"{ends_name} does not span {n_rows:,} rows and {indices.size:,} entries")
    if (indptr[1:] < indptr[:-1]).any():  # not by np.diff, which wraps around
        raise ModelError(where, f"{ends_name} decreases")
    if indices.size and (indices.min() < 0 or indices.max() >= n_columns):
        raise ModelError(where, f"{columns_name} leaves the range 0 to {n_columns - 1:,}")
    rises = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    rises[starts[(starts > 0) & (starts < indices.size)] - 1] = True  # a new row may begin anywhere
    if not rises.all():
        raise ModelError(where, f"{columns_name} are not sorted and unique within a row")
    if data is not None:
        if data.size != indices.size:
            raise ModelError(where, f"{name}_data has {data.size:,} values for {indices.size:,} indices")
        if not np.isfinite(data).all():
            raise ModelError(where, f"{name}_data holds NaN or infinity")


def pack_strings(strings: Any) -> dict[str, np.ndarray]:
    """Strings as one UTF-8 byte array and its offsets."""
    encoded = [str(string).encode("utf-8", "surrogatepass") for string in strings]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(part) for part in encoded], out=offsets[1:])
    return {"utf8": np.frombuffer(b"".join(encoded), np.uint8), "offsets": offsets}


def unpack_strings(utf8: np.ndarray, offsets: np.ndarray, name: str, where: Path) -> list[str]:
    """The strings of `pack_strings`, checked."""
    if not offsets.size or offsets[0] != 0 or offsets[-1] != utf8.size or (offsets[1:] < offsets[:-1]).any():
        raise ModelError(where, f"{name}_offsets does not divide {utf8.size:,} bytes")
    raw, cuts = utf8.tobytes(), offsets.tolist()
    try:
        return [raw[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(cuts)]
    except UnicodeDecodeError as error:
        raise ModelError(where, f"{name}_utf8 is not UTF-8") from error
