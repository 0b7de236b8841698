"""Aligned plain-text tables, for terminals and log files."""

from __future__ import annotations

import math
from collections.abc import Sequence

Cell = str | int | float | None


def show(cell: Cell) -> str:
    """A cell as text: 1,234 or 12.30; a dash for None and NaN."""
    if isinstance(cell, str):
        return cell
    if cell is None or math.isnan(cell):
        return "-"
    return f"{cell:.2f}" if isinstance(cell, float) else f"{cell:,}"


def numeric_columns(rows: Sequence[Sequence[Cell]]) -> list[bool]:
    """Which columns hold only numbers. These are aligned to the right."""
    return [not any(isinstance(cell, str) for cell in column) for column in zip(*rows, strict=True)]


def align(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table with a line under its header; numbers are aligned to the right, text to the left."""
    body = [[show(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    right = numeric_columns(rows) or [False] * len(widths)
    lines = [header, ["─" * width for width in widths], *body]
    columns = list(zip(widths, right, strict=True))
    return "\n".join(
        "  ".join(f"{text:>{w}}" if r else f"{text:<{w}}" for text, (w, r) in zip(line, columns, strict=True)).rstrip()
        for line in lines
    )
