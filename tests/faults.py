"""Faults on demand, for tests of engines and runs. Workers import this module, so it needs NumPy and nothing else.

A fault is written "kind:block:times": the first `times` attempts at the block go wrong; "*" stands for every block.
Attempts happen in different processes, so they are counted by files in a folder.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import numpy as np


def count(folder: Path, name: str) -> int:
    """How often this was called before with the folder and the name."""
    for number in range(10_000):
        try:
            (folder / f"{name}.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError(f"{name} happened far too often")


def counts(folder: Path) -> dict[str, int]:
    """How often `count` was called with each name."""
    found: dict[str, int] = {}
    for path in folder.iterdir():
        name = path.name.rpartition(".")[0]
        found[name] = found.get(name, 0) + 1
    return found


def strike(fault: str, block: int, attempt: int) -> None:
    """Make this attempt at the block go wrong, if the fault says so."""
    kind, _, rest = fault.partition(":")
    where, _, times = rest.partition(":")
    if kind and where in ("*", str(block)) and attempt < int(times):
        KINDS[kind]()


def _raise() -> None:
    raise RuntimeError("the task breaks")


def _disk_full() -> None:
    from longtail.errors import ModelError

    raise ModelError("run/parts", "cannot write the part: No space left on device")


def _run_out_of_memory() -> None:
    """As on a machine whose memory is full: the system refuses any more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), old[1]))
    try:
        np.ones(1 << 28)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


KINDS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: time.sleep(3600),
    "raise": _raise,
    "disk": _disk_full,
    "memory": _run_out_of_memory,
}
