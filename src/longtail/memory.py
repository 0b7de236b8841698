"""How much memory is free. A request that cannot fit is refused before it is tried, because the operating system would
otherwise kill the process without a message when the memory is full."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from longtail.errors import InputError

MEMINFO = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


def free() -> float:
    """Bytes that the process can still use, by the limits of the machine and of its container, if it runs in one."""
    return min(_machine(), _container())


def _machine() -> float:
    """Free bytes of the machine on Linux; elsewhere all its memory, or infinity if that is unknown."""
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
    """Bytes left below the limit of the control group (version 2); infinity if there is none."""
    try:
        most = (CONTAINER / "memory.max").read_text(encoding="ascii")
        used = (CONTAINER / "memory.current").read_text(encoding="ascii")
        return float(int(most) - int(used))  # the word "max" means no limit, and int refuses it
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
    """InputError if arrays with one entry for each of `count` features or labels (`what`) do not fit into memory.

    These arrays are as long as the largest number, even if most numbers do not occur in the data.
    """
    needed, available = float(count) * bytes_each, free()
    if needed > available:
        raise InputError(
            f"{count:,} {what} need {needed / 1e9:.1f} GB at {bytes_each} bytes each, but "
            f"{available / 1e9:.1f} GB of memory are free; {remedy}"
        )
