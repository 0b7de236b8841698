"""Atomic writes of files, and manifests with a checksum. All folders of longtail use them.

A file is written under a temporary name in its own folder, flushed to disk and renamed, so a crash at any moment leaves
either the old or the new file. A manifest is JSON in a fixed format. Its last member is the CRC-32 of everything else,
so any changed bit is detected. Errors are ModelErrors that name the invalid file.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from longtail.errors import ModelError

MAX_MANIFEST_BYTES = 1 << 20
TEMPORARY = re.compile(r"\.longtail-[0-9a-f]{16}\.tmp")
SEAL = "~crc32"  # the last member of a manifest: "~" sorts last


# --- writing ---------------------------------------------------------------------------------------------------------


def write_atomically(root: Path, fill: Callable[[IO[bytes]], Any], name: Callable[[], str]) -> str:
    """Write a temporary file, fsync it, rename it, and fsync the folder. On any error the temporary file is removed."""
    temporary = root / f".longtail-{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        final = name()
        os.replace(temporary, root / final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(root)
    return final


def _sync_folder(root: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder to sync it
        return
    handle = os.open(root, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def os_errors(path: Path, problem: str) -> Iterator[None]:
    """Turn an OSError into a ModelError about the file that it names, or else about `path`."""
    try:
        yield
    except OSError as error:
        raise ModelError(error.filename or path, f"{problem}: {error.strerror or error}") from error


# --- manifests -------------------------------------------------------------------------------------------------------


def seal(body: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest, with the CRC-32 of all other members as its last member."""
    plain = json.dumps(body, indent=1, sort_keys=True, allow_nan=False)
    complete = {**body, SEAL: zlib.crc32(plain.encode())}
    return (json.dumps(complete, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def unseal(raw: bytes) -> dict[str, Any] | None:
    """Return the body of a manifest, or None if anything in it was changed."""
    try:
        body = json.loads(raw)
        number = body.pop(SEAL)
        intact = type(number) is int and seal(body) == raw
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    return body if intact else None


def shown(value: Any) -> str:
    """A value from a manifest that cannot be trusted, short enough for a message of one line."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "a huge number"
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- reading ---------------------------------------------------------------------------------------------------------


def open_plain(path: Path) -> IO[bytes]:
    """Open a regular file. Raise ModelError for a link, folder, pipe or device."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ModelError(path, "is not a plain file")
        return open(path, "rb")
    except OSError as error:
        raise ModelError(path, f"cannot be opened: {error.strerror or error}") from error


def plain_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a plain file of at most `limit` bytes."""
    with open_plain(path) as file, os_errors(path, "cannot be read"):
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise ModelError(path, f"is larger than {limit:,} bytes, the limit for a manifest")
    return raw


def crc(file: IO[bytes], start: int = 0) -> int:
    """The CRC-32 of a file from `start` to its end."""
    file.seek(start)
    value = 0
    while chunk := file.read(1 << 20):
        value = zlib.crc32(chunk, value)
    return value
