"""A folder of arrays: `.npy` files written once, and a manifest, switched last, that says which of them count.

    model/
      W_data-1f0c93aa.npy        one array; the name carries the CRC-32 of the whole file
      W_indices-77ab01c2.npy
      model.json                 the manifest: format, meta data, and name, bytes, crc32, dtype, shape of every array

Writing. Each file is written under a temporary name in the same folder, flushed to disk and renamed; the manifest goes
last by the same steps. A crash or Ctrl-C at any moment therefore leaves the old folder or the new one, never a mixture,
and a folder without manifest holds nothing. Files that the manifest does not list are ignored, and those that look like
ours are removed after the switch.

Reading. Everything is checked before any array is handed out, cheapest first: size and form of the manifest, its own
CRC-32, number and names of the entries, that each is a plain file of exactly the promised size, that its header agrees
with the manifest, and the CRC-32 of its bytes. What the numbers mean is for the caller to check (`check_csr`).
Nothing is ever unpickled. A ModelError names the file that is at fault.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from longtail.errors import ModelError

FORMAT = 1
MAX_MANIFEST_BYTES = 1 << 20
MAX_ARRAYS = 64
MAX_HEADER_BYTES = 4096
DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1")  # what an array file may hold
_ARRAY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_FILE_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,39})-([0-9a-f]{8})\.npy")
_LEFTOVER = re.compile(r"\.tmp-[0-9a-f]{16}|" + _FILE_NAME.pattern)
_ENTRY_KEYS = {"file", "bytes", "crc32", "dtype", "shape"}


@dataclass(frozen=True)
class Kind:
    """What a folder holds: the name of its manifest, and the word for it in messages."""

    noun: str
    manifest: str


# --- writing ---------------------------------------------------------------------------------------------------------


class _Checked:
    """A file being written, with the CRC-32 and the number of bytes so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.crc, self.size = file, 0, 0

    def write(self, chunk: Any) -> int:
        self.crc = zlib.crc32(chunk, self.crc)
        self.size += memoryview(chunk).nbytes
        return self.file.write(chunk)


def write(folder: str | os.PathLike[str], kind: Kind, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Make `folder` hold `arrays` and `meta`, replacing what it held in one step."""
    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise ModelError(root, f"a {kind.noun} is saved as a folder, but a file of this name exists; choose another name")
    if root.is_dir() and not holds(root, kind) and not all(_LEFTOVER.fullmatch(path.name) for path in root.iterdir()):
        raise ModelError(
            root, f"the folder is not empty and holds no {kind.noun}; choose a new or empty folder for the {kind.noun}"
        )
    if len(arrays) > MAX_ARRAYS:
        raise ModelError(root, f"{len(arrays)} arrays are more than the {MAX_ARRAYS} that a {kind.noun} folder may hold")
    try:
        root.mkdir(parents=True, exist_ok=True)
        entries = {name: _write_array(root, name, array) for name, array in arrays.items()}
        body = {"format": FORMAT, "kind": kind.noun, "meta": dict(meta), "arrays": entries}
        text = _manifest_bytes(body)
        if len(text) > MAX_MANIFEST_BYTES:
            raise ModelError(
                root / kind.manifest, f"{len(text):,} bytes of meta data are over the limit of {MAX_MANIFEST_BYTES:,}"
            )
        _write_atomically(root, lambda file: file.write(text), lambda _: kind.manifest)
    except OSError as error:
        raise ModelError(error.filename or root, f"cannot write the {kind.noun}: {error.strerror or error}") from error
    _remove_leftovers(root, keep={entry["file"] for entry in entries.values()})


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

    file_name = _write_atomically(root, fill, lambda _: f"{name}-{checked.crc:08x}.npy")
    return {
        "file": file_name,
        "bytes": checked.size,
        "crc32": checked.crc,
        "dtype": array.dtype.str,
        "shape": list(array.shape),
    }


def _write_atomically(root: Path, fill: Any, name: Any) -> str:
    """tmp -> write -> fsync -> rename -> fsync of the folder; on any error the temporary file is gone."""
    temporary = root / f".tmp-{secrets.token_hex(8)}"
    try:
        with open(temporary, "xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        final: str = name(temporary)
        os.replace(temporary, root / final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(root)
    return final


def _sync_folder(root: Path) -> None:
    if os.name == "nt":  # Windows has no handle to sync a folder with
        return
    handle = os.open(root, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_leftovers(root: Path, keep: set[str]) -> None:
    for path in root.iterdir():
        if path.name not in keep and _LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _manifest_bytes(body: Mapping[str, Any]) -> bytes:
    """The one way to spell a manifest, with the CRC-32 of everything else as its last member."""
    plain = json.dumps(body, indent=1, sort_keys=True, allow_nan=False)
    sealed = {**body, "~crc32": zlib.crc32(plain.encode())}  # "~" sorts last
    return (json.dumps(sealed, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


# --- reading ---------------------------------------------------------------------------------------------------------


def read(
    folder: str | os.PathLike[str], kind: Kind, *, mmap: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The verified arrays and meta data of `folder`. With `mmap` the arrays stay on disk and are read as they are used."""
    root = Path(folder)
    body = _read_manifest(root, kind)
    arrays = {name: _read_array(root, name, entry, mmap) for name, entry in body["arrays"].items()}
    return arrays, body["meta"]


def holds(folder: str | os.PathLike[str], kind: Kind) -> bool:
    """Whether `folder` has a manifest of this kind (which may still turn out to be damaged)."""
    return (Path(folder) / kind.manifest).is_file()


def size(folder: str | os.PathLike[str], kind: Kind) -> int:
    """Bytes on disk of the manifest and of the files that it lists."""
    root = Path(folder)
    entries = _read_manifest(root, kind)["arrays"].values()
    return (root / kind.manifest).stat().st_size + sum(entry["bytes"] for entry in entries)


def _read_manifest(root: Path, kind: Kind) -> dict[str, Any]:
    path = root / kind.manifest
    if not root.is_dir():
        found = "is a file, not a folder" if root.exists() else "does not exist"
        raise ModelError(root, f"{found}; a {kind.noun} is a folder with a {kind.manifest}")
    if not path.exists():
        raise ModelError(root, f"holds no {kind.manifest}, so no complete {kind.noun}; was it saved to the end?")
    raw = _plain_bytes(path, limit=MAX_MANIFEST_BYTES)
    try:
        body = json.loads(raw)
        seal = body.pop("~crc32")
        intact = _manifest_bytes(body) == raw and type(seal) is int
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        intact = False
    if not intact:
        raise ModelError(path, f"is damaged or was edited by hand; save the {kind.noun} again or restore the file")
    if body.get("format") != FORMAT:
        raise ModelError(
            path, f"has format {body.get('format')!r}, but this version of longtail reads format {FORMAT}; upgrade longtail"
        )
    if body.get("kind") != kind.noun:
        raise ModelError(path, f"describes a {body.get('kind')!r}, not a {kind.noun}")
    if not isinstance(body.get("meta"), dict) or not isinstance(body.get("arrays"), dict):
        raise ModelError(path, "lacks the members 'meta' and 'arrays'")
    if len(body["arrays"]) > MAX_ARRAYS:
        raise ModelError(path, f"lists {len(body['arrays']):,} arrays; at most {MAX_ARRAYS} are allowed")
    for name, entry in body["arrays"].items():
        _check_entry(path, name, entry)
    return cast(dict[str, Any], body)


def _check_entry(path: Path, name: str, entry: Any) -> None:
    if not isinstance(entry, dict) or set(entry) != _ENTRY_KEYS:
        raise ModelError(path, f"entry {name!r} must have exactly the members {', '.join(sorted(_ENTRY_KEYS))}")
    match = _FILE_NAME.fullmatch(entry["file"]) if isinstance(entry["file"], str) else None
    if not match or match[1] != name:
        raise ModelError(path, f"entry {name!r} names the file {str(entry['file'])[:80]!r}, which is not {name}-<crc32>.npy")
    numbers = [entry["bytes"], entry["crc32"]]
    if not isinstance(entry["shape"], list) or len(entry["shape"]) not in (1, 2):
        raise ModelError(path, f"entry {name!r} must have a shape of one or two numbers")
    if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers + entry["shape"]):
        raise ModelError(path, f"entry {name!r} has a size that is not a whole number from 0 to 2^62")
    if entry["dtype"] not in DTYPES:
        raise ModelError(path, f"entry {name!r} has dtype {str(entry['dtype'])[:40]!r}; allowed are {', '.join(DTYPES)}")
    if entry["crc32"] != int(match[2], 16):
        raise ModelError(path, f"entry {name!r} has a crc32 that differs from the one in its file name")


def _read_array(root: Path, name: str, entry: dict[str, Any], mmap: bool) -> np.ndarray:
    path = root / entry["file"]
    shape, dtype = tuple(entry["shape"]), np.dtype(entry["dtype"])
    payload = math.prod(shape) * dtype.itemsize  # Python integers: no overflow
    if not 0 < entry["bytes"] - payload <= MAX_HEADER_BYTES:
        raise ModelError(path, f"{entry['bytes']:,} bytes cannot hold shape {shape} of {dtype}")
    file = _open_plain(path)
    try:
        found = os.fstat(file.fileno()).st_size
        if found != entry["bytes"]:
            raise ModelError(path, f"has {found:,} bytes, but the manifest promises {entry['bytes']:,}; the copy is incomplete")
        try:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            header = np.lib.format.read_array_header_1_0(file, max_header_size=MAX_HEADER_BYTES)
        except (ValueError, OSError, TypeError, SyntaxError, EOFError) as error:
            raise ModelError(path, "does not begin with a NumPy header; the file is damaged") from error
        offset = file.tell()
        if header != (shape, False, dtype) or offset != entry["bytes"] - payload:
            raise ModelError(path, f"its header does not describe {shape} of {dtype}, as the manifest does")
        if _crc(file) != entry["crc32"]:
            raise ModelError(path, "its checksum is wrong; the file is damaged, restore it from a copy")
        if mmap and payload:
            array = np.memmap(file, dtype, "r", offset, shape).view(np.ndarray)
        else:
            file.seek(offset)
            array = np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
        if array.shape != shape:
            raise ModelError(path, "was shortened while it was being read")
    finally:
        file.close()
    array.flags.writeable = False
    return array


def _open_plain(path: Path) -> IO[bytes]:
    """Open a regular file and nothing else: no link, folder, pipe or device."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ModelError(path, "is not a plain file")
        return open(path, "rb")
    except OSError as error:
        raise ModelError(path, f"is listed but cannot be opened: {error.strerror or error}") from error


def _plain_bytes(path: Path, limit: int) -> bytes:
    with _open_plain(path) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise ModelError(path, f"is larger than {limit:,} bytes, the limit for a manifest")
    return raw


def _crc(file: IO[bytes]) -> int:
    file.seek(0)
    crc = 0
    while chunk := file.read(1 << 20):
        crc = zlib.crc32(chunk, crc)
    return crc


# --- what arrays mean ------------------------------------------------------------------------------------------------

MODEL = Kind("model", "model.json")
DATASET = Kind("dataset", "dataset.json")


def take(arrays: dict[str, np.ndarray], name: str, dtypes: str | tuple[str, ...], ndim: int, where: Path) -> np.ndarray:
    """The array `name`, if it is there with one of these dtypes and this number of dimensions."""
    array = arrays.get(name)
    if array is None:
        raise ModelError(where, f"lists no array {name}")
    wanted = (dtypes,) if isinstance(dtypes, str) else dtypes
    if array.dtype.str not in wanted or array.ndim != ndim:
        raise ModelError(
            where, f"array {name} has dtype {array.dtype.str} and {array.ndim} dimensions, not {'/'.join(wanted)} and {ndim}"
        )
    return array


def check_csr(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray | None, shape: tuple[int, int], name: str, where: Path
) -> None:
    """Refuse a CSR triple that a kernel could not trust: wrong lengths, indices out of range or unsorted, NaN, infinity."""
    n_rows, n_columns = shape
    if indptr.size != n_rows + 1 or indptr[0] != 0 or indptr[-1] != indices.size:
        raise ModelError(where, f"{name}_indptr does not span {n_rows:,} rows and {indices.size:,} entries")
    if n_rows and (np.diff(indptr) < 0).any():
        raise ModelError(where, f"{name}_indptr decreases")
    if indices.size and (indices.min() < 0 or indices.max() >= n_columns):
        raise ModelError(where, f"{name}_indices leaves the range 0 to {n_columns - 1:,}")
    rises = np.diff(indices) > 0
    starts = indptr[1:-1]
    rises[starts[(starts > 0) & (starts < indices.size)] - 1] = True  # a new row may begin anywhere
    if not rises.all():
        raise ModelError(where, f"{name}_indices are not sorted and unique within a row")
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
    if not offsets.size or offsets[0] != 0 or offsets[-1] != utf8.size or (np.diff(offsets) < 0).any():
        raise ModelError(where, f"{name}_offsets does not divide {utf8.size:,} bytes")
    raw, cuts = utf8.tobytes(), offsets.tolist()
    try:
        return [raw[a:b].decode("utf-8", "surrogatepass") for a, b in zip(cuts, cuts[1:], strict=False)]
    except UnicodeDecodeError as error:
        raise ModelError(where, f"{name}_utf8 is not UTF-8") from error
