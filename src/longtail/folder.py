"""A folder of arrays: `.npy` files, and a manifest that lists the files that belong to the folder.

    model/
      W_data-1f0c93aa.npy        one array; the name carries the CRC-32 of the whole file
      W_indices-77ab01c2.npy
      model.json                 the manifest: format, meta data, and name, bytes, crc32, dtype, shape of every array

Writing. Each file is written under a temporary name in the same folder, flushed to disk and renamed. The manifest is
written last, in the same way. A crash or Ctrl-C at any moment therefore leaves either the old or the new content, never
a mixture. A folder without a manifest is invalid. Files that the manifest does not list are ignored. After the new
manifest is in place, old files that this package wrote are removed. They are recognised by the correct checksum in
their name. The form of the name is not enough, because a user may have chosen such a name.

Reading. Everything is checked before any array is returned, the cheapest checks first: the size and form of the
manifest, its CRC-32, and the number and names of its entries. Each entry must be a regular file of exactly the recorded
size, with a header that agrees with the manifest and the recorded CRC-32. The caller checks the meaning of the numbers
(longtail.content). Nothing is ever unpickled or evaluated. A ModelError names the invalid file.
"""

from __future__ import annotations

import math
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from longtail import sealed
from longtail.errors import ModelError

FORMAT = 1
MAX_ARRAYS = 4096
MAX_HEADER_BYTES = 4096
DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1", "<u2")  # the dtypes that an array file may have
_ARRAY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_FILE_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,39})-([0-9a-f]{8})\.npy")
_MAGIC = b"\x93NUMPY\x01\x00"  # the first bytes of an .npy file
_ALIGNMENT = 64  # the length of its header is a multiple of this
_ENTRY_KEYS = {"file", "bytes", "crc32", "dtype", "shape"}


@dataclass(frozen=True)
class Kind:
    """The kind of a folder: its name in messages, and the name of its manifest."""

    noun: str
    manifest: str
    beside: tuple[str, ...] = ()  # other names that may be in the folder and are not touched


MODEL = Kind("model", "model.json")
DATASET = Kind("dataset", "dataset.json")
DATA = Kind("copy of the training data", "data.json")  # for the workers of a run
RUN = Kind("run", "run.json", beside=("lock", "events.jsonl", "parts", "data", "shards"))
SHARD = Kind("shard", "shard.json")  # of a model, while it is made

# --- writing ---------------------------------------------------------------------------------------------------------


class _Checked:
    """A file being written, with the CRC-32 and the number of bytes so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.crc = 0
        self.size = 0

    def write(self, chunk: Any) -> int:
        self.crc = zlib.crc32(chunk, self.crc)
        self.size += memoryview(chunk).nbytes
        return self.file.write(chunk)


def write(
    folder: str | os.PathLike[str],
    kind: Kind,
    arrays: Mapping[str, np.ndarray] | Iterable[tuple[str, np.ndarray]],
    meta: Mapping[str, Any],
) -> None:
    """Write `arrays` and `meta` to `folder`, replacing its old content in one step.

    `arrays` may also be pairs of names and arrays. An iterator can make each array when the one before is written, so
    that not all of them are in memory.
    """
    root = Path(folder)
    check_target(root, kind)
    old = _listed(root, kind)
    with sealed.os_errors(root, f"cannot write the {kind.noun}"):
        root.mkdir(parents=True, exist_ok=True)
        entries: dict[str, dict[str, Any]] = {}
        for name, array in arrays.items() if isinstance(arrays, Mapping) else arrays:
            if len(entries) == MAX_ARRAYS:
                raise ModelError(root, f"a {kind.noun} folder may hold at most {MAX_ARRAYS:,} arrays")
            entries[name] = _write_array(root, name, array)
        text = sealed.seal({"format": FORMAT, "kind": kind.noun, "meta": dict(meta), "arrays": entries})
        if len(text) > sealed.MAX_MANIFEST_BYTES:
            raise ModelError(
                root / kind.manifest,
                f"{len(text):,} bytes of meta data are over the limit of {sealed.MAX_MANIFEST_BYTES:,}",
            )
        sealed.write_atomically(root, lambda file: file.write(text), lambda: kind.manifest)
    keep = {entry["file"] for entry in entries.values()}
    with suppress(OSError):  # the folder is complete; the next save tries again to remove what remains
        for path in root.iterdir():
            if path.name not in keep and (path.name in old or _is_leftover(path)):
                path.unlink(missing_ok=True)


def check_target(root: Path, kind: Kind) -> None:
    """Raise ModelError if `root` holds files that this package did not write."""
    if os.path.lexists(root) and not os.path.isdir(root):
        raise ModelError(
            root, f"a {kind.noun} is saved as a folder, but a file of this name exists; choose another name"
        )
    with sealed.os_errors(root, f"cannot write the {kind.noun}"):
        if holds(root, kind):
            raw = sealed.plain_bytes(root / kind.manifest, sealed.MAX_MANIFEST_BYTES)
            if sealed.SEAL.encode() not in raw and not raw.startswith(b'{\n "arrays": {'):
                raise ModelError(
                    root / kind.manifest, "was not written by longtail; choose another folder, or remove the file"
                )
        elif os.path.isdir(root) and not all(path.name in kind.beside or _is_leftover(path) for path in root.iterdir()):
            raise ModelError(
                root,
                f"the folder is not empty and holds no {kind.noun}; choose a new or empty folder for the {kind.noun}",
            )


def _listed(root: Path, kind: Kind) -> set[str]:
    """The files that the folder's manifest lists; none if the manifest is damaged."""
    try:
        return {entry["file"] for entry in _read_manifest(root, kind)["arrays"].values()}
    except ModelError:
        return set()


def _is_leftover(path: Path) -> bool:
    """Return whether an unfinished save left `path`: a temporary file, or an array with the correct CRC-32 in its
    name."""
    match = _FILE_NAME.fullmatch(path.name)
    if not (match or sealed.TEMPORARY.fullmatch(path.name)) or not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    if match is None:
        return True
    with open(path, "rb") as file:
        return sealed.crc(file) == int(match[2], 16)


def _write_array(root: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    if not _ARRAY_NAME.fullmatch(name):
        raise ValueError(f"array name {name!r} cannot be a file name")
    array = np.ascontiguousarray(array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.str not in DTYPES:
        raise ValueError(f"array {name} has dtype {array.dtype}; a folder holds {', '.join(DTYPES)}")
    checked = cast(_Checked, None)

    def fill(file: IO[bytes]) -> None:
        nonlocal checked
        checked = _Checked(file)
        np.lib.format.write_array(cast(IO[bytes], checked), array, version=(1, 0), allow_pickle=False)

    file_name = sealed.write_atomically(root, fill, lambda: f"{name}-{checked.crc:08x}.npy")
    return {
        "file": file_name,
        "bytes": checked.size,
        "crc32": checked.crc,
        "dtype": array.dtype.str,
        "shape": list(array.shape),
    }


# --- reading ---------------------------------------------------------------------------------------------------------


def read(
    folder: str | os.PathLike[str], kind: Kind, *, mmap: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the verified arrays and metadata of `folder`. With `mmap`, the arrays are memory-mapped."""
    root = Path(folder)
    body = _read_manifest(root, kind)
    arrays = {name: _read_array(root, entry, mmap) for name, entry in body["arrays"].items()}
    return arrays, body["meta"]


def holds(folder: str | os.PathLike[str], kind: Kind) -> bool:
    """Return whether `folder` has a manifest of this kind. The manifest is not verified."""
    return os.path.isfile(Path(folder) / kind.manifest)


def size(folder: str | os.PathLike[str], kind: Kind, counts: Callable[[str], bool] = lambda name: True) -> int:
    """Bytes on disk of the manifest and of the arrays that it lists and that count."""
    root = Path(folder)
    entries = _read_manifest(root, kind)["arrays"]
    listed: int = sum(entry["bytes"] for name, entry in entries.items() if counts(name))
    return (root / kind.manifest).stat().st_size + listed


def contents(folder: str | os.PathLike[str], kind: Kind) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the metadata of `folder`, and the CRC-32 of every array that its manifest lists. Arrays are not read."""
    body = _read_manifest(Path(folder), kind)
    return body["meta"], {name: entry["crc32"] for name, entry in body["arrays"].items()}


def _read_manifest(root: Path, kind: Kind) -> dict[str, Any]:
    path = root / kind.manifest
    if not os.path.isdir(root):
        found = "is a file, not a folder" if os.path.lexists(root) else "does not exist"
        raise ModelError(root, f"{found}; a {kind.noun} is a folder with a {kind.manifest}")
    try:
        raw = sealed.plain_bytes(path, limit=sealed.MAX_MANIFEST_BYTES)
    except ModelError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        reason = f"holds no {kind.manifest}, so no complete {kind.noun}; was it saved to the end?"
        raise ModelError(root, reason) from None
    body = sealed.unseal(raw)
    if body is None:
        raise ModelError(path, f"is damaged or was edited by hand; save the {kind.noun} again or restore the file")
    if body.get("format") != FORMAT:
        raise ModelError(
            path,
            f"has format {sealed.shown(body.get('format'))}, but this version reads format {FORMAT}; upgrade longtail",
        )
    if body.get("kind") != kind.noun:
        raise ModelError(path, f"describes a {sealed.shown(body.get('kind'))}, not a {kind.noun}")
    if not isinstance(body.get("meta"), dict) or not isinstance(body.get("arrays"), dict):
        raise ModelError(path, "lacks the members 'meta' and 'arrays'")
    if len(body["arrays"]) > MAX_ARRAYS:
        raise ModelError(path, f"lists {len(body['arrays']):,} arrays; at most {MAX_ARRAYS:,} are allowed")
    for name, entry in body["arrays"].items():
        _check_entry(path, name, entry)
    return body


def _check_entry(path: Path, name: str, entry: Any) -> None:
    if not isinstance(entry, dict) or set(entry) != _ENTRY_KEYS:
        members = ", ".join(sorted(_ENTRY_KEYS))
        raise ModelError(path, f"entry {sealed.shown(name)} must have exactly the members {members}")
    match = _FILE_NAME.fullmatch(entry["file"]) if isinstance(entry["file"], str) else None
    if not match or match[1] != name:
        found = sealed.shown(entry["file"])
        raise ModelError(path, f"entry {sealed.shown(name)} names the file {found}, not <entry>-<crc32>.npy")
    numbers = [entry["bytes"], entry["crc32"]]
    if not isinstance(entry["shape"], list) or len(entry["shape"]) not in (1, 2):
        raise ModelError(path, f"entry {name!r} must have a shape of one or two numbers")
    if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers + entry["shape"]):
        raise ModelError(path, f"entry {name!r} has a size that is not a whole number from 0 to 2^62")
    if entry["dtype"] not in DTYPES:
        found = sealed.shown(entry["dtype"])
        raise ModelError(path, f"entry {name!r} has dtype {found}; allowed are {', '.join(DTYPES)}")
    if entry["crc32"] != int(match[2], 16):
        raise ModelError(path, f"entry {name!r} has a crc32 that differs from the one in its file name")


def _read_array(root: Path, entry: dict[str, Any], mmap: bool) -> np.ndarray:
    path = root / entry["file"]
    shape, dtype = tuple(entry["shape"]), np.dtype(entry["dtype"])
    count = math.prod(shape)  # Python integers do not overflow
    offset = entry["bytes"] - count * dtype.itemsize
    if not 0 < offset <= MAX_HEADER_BYTES or offset % _ALIGNMENT:
        raise ModelError(path, f"{entry['bytes']:,} bytes cannot hold shape {shape} of {dtype}")
    with sealed.open_plain(path) as file, sealed.os_errors(path, "cannot be read"):
        found = os.fstat(file.fileno()).st_size
        if found != entry["bytes"]:
            raise ModelError(path, f"has {found:,} bytes, but the manifest promises {entry['bytes']:,}; copy it again")
        if not _is_header(file.read(offset), shape, dtype):
            raise ModelError(path, f"its header does not describe {shape} of {dtype}, as the manifest does")
        if sealed.crc(file) != entry["crc32"]:
            raise ModelError(path, "its checksum is wrong; the file is damaged, restore it from a copy")
        try:
            if mmap and count:
                array = np.memmap(file, dtype, "r", offset, shape).view(np.ndarray)
            else:
                file.seek(offset)
                array = np.fromfile(file, dtype, count).reshape(shape)
        except ValueError as error:  # the file was shortened meanwhile, or the shape is too large for NumPy
            raise ModelError(path, f"shape {shape} of {dtype} cannot be read: {error}") from error
    array.flags.writeable = False
    return array


def _is_header(head: bytes, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether `head` is the .npy header of such an array in C order. It is compared as text, never evaluated."""
    fields = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    length = int.from_bytes(head[8:10], "little")
    return head[:8] == _MAGIC and length == len(head) - 10 and head[10:].rstrip(b" \n") == fields.encode()
