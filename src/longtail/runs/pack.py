"""Several arrays in one file. The parts of a run and the states of unfinished blocks are stored in this format.

    LONGTAIL PACK 1\\n     16 bytes
    length                8 bytes, little-endian: of the manifest with its padding
    manifest              sealed JSON: kind, meta data, dtype, shape and offset of every array, size and CRC-32 of all
    arrays                raw, each at a multiple of 64 bytes

A part consists of many small arrays. One file needs one flush to disk, while a folder would need one per array. The
same rules apply as for folders: a file is written in one step, and its checksum is verified before an array is used.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from longtail import sealed
from longtail.errors import ModelError

MAGIC = b"LONGTAIL PACK 1\n"
ALIGNMENT = 64
MAX_ARRAYS = 256
DTYPES = ("|b1", "|i1", "|u1", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
_PREFIX = len(MAGIC) + 8
_MEMBERS = {"kind", "meta", "arrays", "bytes", "crc32"}


class Entry(NamedTuple):
    """The position of an array, counted from the end of the manifest."""

    dtype: str
    shape: list[int]
    offset: int


def write(path: Path, kind: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> int:
    """Write the file in one step, replacing an older one. Returns the number of bytes."""
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    if len(plain) > MAX_ARRAYS:
        raise ValueError(f"{len(plain)} arrays are more than the {MAX_ARRAYS} that a file may hold")
    entries: dict[str, Entry] = {}
    crc = size = 0
    for name, array in plain.items():
        entries[name] = Entry(array.dtype.str, list(array.shape), size)
        for chunk in _chunks(array):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
    body = {"kind": kind, "meta": dict(meta), "arrays": {name: list(entry) for name, entry in entries.items()}}
    manifest = sealed.seal({**body, "bytes": size, "crc32": crc})
    manifest += b" " * (-(_PREFIX + len(manifest)) % ALIGNMENT)
    if len(manifest) > sealed.MAX_MANIFEST_BYTES:
        raise ModelError(path, f"{len(manifest):,} bytes of meta data are over {sealed.MAX_MANIFEST_BYTES:,}")

    def fill(file: IO[bytes]) -> None:
        file.write(MAGIC + len(manifest).to_bytes(8, "little") + manifest)
        for array in plain.values():
            for chunk in _chunks(array):
                file.write(chunk)

    with sealed.os_errors(path, f"cannot write the {kind}"):
        sealed.write_atomically(path.parent, fill, lambda: path.name)
    return _PREFIX + len(manifest) + size


def read(path: Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the verified arrays, read-only and memory-mapped, and the metadata."""
    with sealed.open_plain(path) as file, sealed.os_errors(path, "cannot be read"):
        total = os.fstat(file.fileno()).st_size
        begin, body = _read_manifest(file, path, kind)
        if total != begin + body["bytes"]:
            raise ModelError(path, f"has {total:,} bytes, but its manifest promises {begin + body['bytes']:,}")
        if sealed.crc(file, begin) != body["crc32"]:
            raise ModelError(path, "its checksum is wrong; the file is damaged")
        try:
            raw = np.memmap(file, np.uint8, "r").view(np.ndarray)
        except ValueError as error:  # shortened in the meantime
            raise ModelError(path, f"cannot be read: {error}") from error
    arrays = {}
    for name, (dtype, shape, offset) in body["arrays"].items():
        start = begin + offset
        array = raw[start : start + math.prod(shape) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
        array.flags.writeable = False
        arrays[name] = array
    return arrays, body["meta"]


def _read_manifest(file: IO[bytes], path: Path, kind: str) -> tuple[int, dict[str, Any]]:
    """Return the position where the arrays begin, and the checked manifest."""
    prefix = file.read(_PREFIX)
    length = int.from_bytes(prefix[len(MAGIC) :], "little")
    if len(prefix) < _PREFIX or prefix[: len(MAGIC)] != MAGIC or length > sealed.MAX_MANIFEST_BYTES:
        raise ModelError(path, f"is not a {kind} that this version reads, or is damaged")
    padded = file.read(length)
    raw = padded.rstrip(b" ")
    body = sealed.unseal(raw)
    if body is None or len(padded) != length or len(raw) + -(_PREFIX + len(raw)) % ALIGNMENT != length:
        raise ModelError(path, "its manifest is damaged")
    if set(body) != _MEMBERS or body["kind"] != kind or not isinstance(body["meta"], dict):
        raise ModelError(path, f"does not describe a {kind}")
    if not isinstance(body["arrays"], dict) or len(body["arrays"]) > MAX_ARRAYS or not _is_size(body["bytes"]):
        raise ModelError(path, "its manifest has no usable list of arrays")
    for name, entry in body["arrays"].items():
        if not _is_entry(entry, body["bytes"]):
            raise ModelError(path, f"array {sealed.shown(name)} cannot be what the manifest says of it")
    return _PREFIX + length, body


def _is_entry(entry: Any, size: int) -> bool:
    if not isinstance(entry, list) or len(entry) != 3 or entry[0] not in DTYPES or not isinstance(entry[1], list):
        return False
    dtype, shape, offset = entry
    if len(shape) > 4 or not all(_is_size(number) for number in (*shape, offset)) or offset % ALIGNMENT:
        return False
    return bool(offset + math.prod(shape) * np.dtype(dtype).itemsize <= size)  # Python integers do not overflow


def _is_size(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 62


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray turns 0-d arrays into 1-d
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.str not in DTYPES or array.ndim > 4:
        raise ValueError(f"array {name} has dtype {array.dtype} and {array.ndim} dimensions; allowed: {DTYPES}, 4")
    return array


def _chunks(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array, then zeros up to the next multiple of 64."""
    yield array.reshape(-1).view(np.uint8).data
    yield memoryview(bytes(-array.nbytes % ALIGNMENT))
