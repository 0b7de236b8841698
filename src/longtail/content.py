"""CSR matrices and lists of strings as arrays of a folder. They are checked before use."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from longtail import matrix
from longtail.errors import ModelError


def take(arrays: dict[str, np.ndarray], name: str, dtypes: str | tuple[str, ...], ndim: int, where: Path) -> np.ndarray:
    """Return the array `name`. Raise ModelError if it is absent or has another dtype or number of dimensions."""
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
    """Raise ModelError if the arrays of a CSR matrix are not canonical (longtail.matrix) or its values are not finite.

    `name` begins the names of its files; `names` are the endings of the names of `indptr` and `indices`.
    """
    own_names = (f"{name}_{names[0]}", f"{name}_{names[1]}")
    fault = matrix.csr_fault(indptr, indices, shape, names=own_names)
    if fault is None and data is not None:
        fault = matrix.value_fault(data, indices.size, name=f"{name}_data")
    if fault:
        raise ModelError(where, fault)


def pack_strings(strings: Any) -> dict[str, np.ndarray]:
    """Strings as one array of UTF-8 bytes and the offsets of the strings in it."""
    encoded = [str(string).encode("utf-8", "surrogatepass") for string in strings]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(part) for part in encoded], out=offsets[1:])
    return {"utf8": np.frombuffer(b"".join(encoded), np.uint8), "offsets": offsets}


def unpack_strings(utf8: np.ndarray, offsets: np.ndarray, name: str, where: Path) -> list[str]:
    """The strings that `pack_strings` packed, or a ModelError if the arrays are damaged."""
    if matrix.pointer_fault(offsets, offsets.size - 1, utf8.size):
        raise ModelError(where, f"{name}_offsets does not divide {utf8.size:,} bytes")
    raw, cuts = utf8.tobytes(), offsets.tolist()
    try:
        return [raw[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(cuts)]
    except UnicodeDecodeError as error:
        raise ModelError(where, f"{name}_utf8 is not UTF-8") from error
