"""How much memory is free, and how to give some back.

A request that cannot fit is refused before it is tried, because the operating system would otherwise kill the process
without a message when the memory is full.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

from longtail.errors import InputError

MEMINFO = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")
STATM = Path("/proc/self/statm")


def free() -> float:
    """Return the bytes that the process can still use, limited by the machine and by the container, if there is one."""
    return min(_machine(), _container())


def _machine() -> float:
    """Return the free bytes of the machine on Linux. On other systems, its total memory, or infinity if unknown."""
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
    """Return the bytes left below the limit of the control group (version 2), or infinity if there is no limit."""
    try:
        most = (CONTAINER / "memory.max").read_text(encoding="ascii")
        used = (CONTAINER / "memory.current").read_text(encoding="ascii")
        return float(int(most) - int(used))  # "max" means no limit; int raises ValueError for it
    except (OSError, ValueError):
        return float("inf")


def resident() -> float:
    """Return the resident memory of this process in bytes. Where the system does not tell, the largest so far, or 0."""
    try:
        pages = int(STATM.read_text(encoding="ascii").split()[1])
        return float(pages * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError, IndexError):
        most = peak()
        return most if most == most else 0.0


def peak() -> float:
    """Return the largest resident memory of this process so far, in bytes. NaN if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def must_fit(count: int, what: str, bytes_each: int, remedy: str) -> None:
    """Raise InputError if `count` entries of `bytes_each` bytes do not fit into memory. `what` names the entries.

    Arrays over features or labels are as long as the largest number, even if most numbers do not occur in the data.
    """
    needed, available = float(count) * bytes_each, free()
    if needed > available:
        raise InputError(
            f"{count:,} {what} need {needed / 1e9:.1f} GB at {bytes_each} bytes each, but "
            f"{available / 1e9:.1f} GB of memory are free; {remedy}"
        )


def release() -> None:
    """Return freed memory to the system.

    The allocator of glibc keeps tens of megabytes per thread after large temporary arrays were freed. Other allocators
    have no such function, and nothing happens.
    """
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], int]:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; Windows has no library of the process
        return lambda keep: 0
    trim.argtypes = [ctypes.c_size_t]
    return trim
