"""How much memory there is. What cannot fit is refused before it is tried: the system would end the process, without a
word, when the memory is full."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from longtail.errors import InputError

MEMINFO = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


def free() -> float:
    """Bytes that could be had now: of the machine, and of the container that the process may be in."""
    return min(_machine(), _container())


def _machine() -> float:
    """What is free where the system tells (Linux); else all that the machine has; else without end."""
    try:
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _container() -> float:
    """What is left of the limit of a control group (version 2); without end if there is none."""
    try:
        most, used = ((CONTAINER / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return float(int(most) - int(used))  # "max" is no number: there is no limit
    except (OSError, ValueError):
        return float("inf")


def peak() -> float:
    """The largest resident memory of this process so far, in bytes; NaN where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def must_fit(count: int, what: str, bytes_each: int, remedy: str) -> None:
    """Refuse so many features or labels if arrays with an entry for each cannot fit, be they used or not."""
    needed, there = float(count) * bytes_each, free()
    if needed > there:
        raise InputError(
            f"{count:,} {what} take {needed / 1e9:.1f} GB at {bytes_each} bytes each, used or not, but "
            f"{there / 1e9:.1f} GB of memory are free; {remedy}"
        )
