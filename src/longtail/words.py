"""Numbers in words: bytes and seconds in readable units."""

from __future__ import annotations


def size(n_bytes: float) -> str:
    """A number of bytes in a readable unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:,.1f} {unit}"
    return f"{n_bytes:.0f} bytes"


def duration(seconds: float) -> str:
    """A number of seconds in readable units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 72 else f"{hours / 24:,.1f} days"
