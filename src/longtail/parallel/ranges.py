"""Ranges of items, from which blocks are made. They depend on the data and the parameters, never on the workers."""

from __future__ import annotations


def ranges(total: int, size: int) -> list[range]:
    """Consecutive ranges of at most `size` that cover 0 .. total."""
    size = max(1, size)
    return [range(start, min(start + size, total)) for start in range(0, total, size)]
