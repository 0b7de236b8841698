"""The lock of a run folder, for one process at a time."""

from __future__ import annotations

import json
import os
import socket
import time
from datetime import datetime
from pathlib import Path
from typing import IO, Self

from longtail import file_lock
from longtail.errors import ModelError

PATIENCE = 0.5  # seconds to retry, because a status query holds the lock for a moment
_PAUSE = 0.05


class Lock:
    """The lock of a run folder, held until `release`, or until the process ends. The file says who holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 - open as long as the lock is held

    def acquire(self) -> Self:
        """Acquire the lock, or raise ModelError within a second."""
        deadline = time.monotonic() + PATIENCE
        while not file_lock.try_take(self._file):
            if time.monotonic() > deadline:
                self._file.close()
                raise ModelError(self.path.parent, f"is in use by {holder(self.path)}; wait for it, or stop it first")
            time.sleep(_PAUSE)
        try:
            self._file.truncate(0)
            me = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            self._file.write(json.dumps(me).encode())
            self._file.flush()
        except OSError:
            self.release()
            raise
        return self

    def release(self) -> None:
        self._file.close()


def is_held(path: Path) -> bool:
    """Return whether a running process holds the lock."""
    try:
        file = open(path, "rb" if os.name != "nt" else "r+b")  # noqa: SIM115 - closed below
    except OSError:
        return False
    with file:
        try:
            file_lock.take(file)
        except OSError:
            return True
    return False


def holder(path: Path) -> str:
    """Describe the process that holds the lock, for a message."""
    try:
        me = json.loads(path.read_bytes()[:4096])
        since = datetime.fromtimestamp(float(me["since"])).strftime("%Y-%m-%d %H:%M:%S")
        return f"process {int(me['pid'])} on {str(me['host'])[:80]!r} since {since}"
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return "another process"
