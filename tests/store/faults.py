"""A file system that fails at the Nth call: every way in which folders touch the disk passes through `at`."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from typing import Any

from longtail import folder, sealed

CALLS = ("open", "fsync", "replace", "unlink", "mkdir", "lstat", "fstat", "scandir", "listdir")


class Faults:
    """Counts calls and fails at number `first`: only there, or (`forever`) from there on.

    `fail` raises, or ends the process. A write fails after half of its bytes.
    """

    def __init__(self, first: int, fail: Callable[[], None], *, forever: bool = False) -> None:
        self.first, self.fail, self.forever = first, fail, forever
        self.calls = 0

    @property
    def fired(self) -> bool:
        return self.calls >= self.first

    def at(self) -> bool:
        self.calls += 1
        return self.calls == self.first or (self.forever and self.fired)

    def install(self, set_attribute: Callable[..., None]) -> None:
        """Put the faults into place by `set_attribute(object, name, value)`."""
        for name in CALLS:
            set_attribute(os, name, self._guarded(getattr(os, name)))
        for module in (folder, sealed):
            set_attribute(module, "open", self._open)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **options: Any) -> Any:
            if self.at():
                self.fail()
            return function(*arguments, **options)

        return guarded

    def _open(self, *arguments: Any) -> Any:
        if self.at():
            self.fail()
        return _File(builtins.open(*arguments), self)


class _File:
    """An open file whose reads and writes count."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self.file, self.faults = file, faults

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    def write(self, chunk: Any) -> int:
        if self.faults.at():
            self.file.write(bytes(chunk)[: len(bytes(chunk)) // 2])
            self.file.flush()
            self.faults.fail()
        return self.file.write(chunk)

    def read(self, *arguments: Any) -> bytes:
        if self.faults.at():
            self.faults.fail()
        return self.file.read(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)
