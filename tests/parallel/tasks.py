"""Light work for the engines, importable by workers: it needs NumPy and nothing else, so a worker starts quickly."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Piece(NamedTuple):
    number: int
    cost: float = 1.0


@dataclass(frozen=True)
class Squares:
    """The square of the number of a block. `fault` is "kind:block:times": the first `times` attempts go wrong.

    Attempts are counted by files in `root`, since they happen in different processes.
    """

    root: Path
    fault: str = ""
    pause: float = 0.0
    mark: str = "squares"

    def __call__(self, data=None):
        if self.fault == "unready":
            raise RuntimeError("the data is gone")
        if self.fault == "unborn":
            os._exit(7)

        def task(number, work):
            attempt = self.count(number)
            kind, _, rest = self.fault.partition(":")
            block, _, times = rest.partition(":")
            if kind and block in ("*", str(number)) and attempt < int(times):
                misbehave(kind)
            work.report(0.5)
            time.sleep(self.pause)
            return number * number, work.n_threads, os.getpid()

        return task

    def shipped(self):
        return {"nothing": np.zeros(1)}

    def accept(self, result):
        return result

    def count(self, number: int) -> int:
        for attempt in range(1000):
            try:
                (self.root / f"{number}.{attempt}").touch(exist_ok=False)
                return attempt
            except FileExistsError:
                continue
        raise AssertionError("far too many attempts")

    def attempts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for path in self.root.iterdir():
            number = int(path.name.partition(".")[0])
            found[number] = found.get(number, 0) + 1
        return found


def misbehave(kind: str) -> None:
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "exit":
        os._exit(3)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "hang":
        time.sleep(3600)
    elif kind == "raise":
        raise RuntimeError("the task breaks")
    elif kind == "disk":
        from longtail.errors import ModelError

        raise ModelError("run/parts", "cannot write the part: No space left on device")
    elif kind == "memory":
        run_out_of_memory()
    else:
        raise AssertionError(kind)


def run_out_of_memory() -> None:
    """As on a machine whose memory is full: the system refuses any more."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), old[1]))
    try:
        np.ones(1 << 28)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)
