"""A lock on an open file. It is released when the file is closed, or when the process ends, even by a crash."""

from __future__ import annotations

import os
from typing import IO

if os.name == "nt":
    import msvcrt

    def take(file: IO[bytes]) -> None:
        """Lock the file, or raise BlockingIOError or PermissionError at once if another process holds the lock."""
        file.seek(1 << 20)  # Windows forbids reading locked bytes, and the text at the beginning must stay readable
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]

else:
    import fcntl

    def take(file: IO[bytes]) -> None:
        """Lock the file, or raise BlockingIOError or PermissionError at once if another process holds the lock."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def try_take(file: IO[bytes]) -> bool:
    """Lock the file, or return False at once if another process holds the lock."""
    try:
        take(file)
    except (BlockingIOError, PermissionError):
        return False
    return True
