"""How much memory there is. What cannot fit is refused before it is tried: the system would end the process, without a
word, when the memory is full."""

from __future__ import annotations

import os
from pathlib import Path

from longtail.errors import InputError

MEMINFO = Path("/proc/meminfo")


def free() -> float:
    """Bytes that could be had now, where the system tells (Linux); else those of the machine; else without end."""
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


def must_fit(count: int, what: str, bytes_each: int) -> None:
    """Refuse so many features or labels if arrays with an entry for each cannot fit, be they used or not."""
    needed, there = float(count) * bytes_each, free()
    if needed > there:
        raise InputError(
            f"{count:,} {what} take {needed / 1e9:.0f} GB at {bytes_each} bytes each, used or not, but "
            f"{there / 1e9:.0f} GB of memory are free; number the {what} that occur from 0 on, without gaps, or "
            "correct their number in the header"
        )
