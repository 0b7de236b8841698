"""Output of the command line: results on standard output; everything else on standard error, one line each."""

from __future__ import annotations

import json
import sys
from typing import Any


class UsageError(Exception):
    """A command with wrong or missing arguments. Exit code 2; a LongtailError has 1."""


def say(text: Any = "") -> None:
    """A result for people, on standard output."""
    sys.stdout.write(f"{text}\n")


def say_json(value: Any, *, indent: int | None = 2) -> None:
    """A result for programs, on standard output."""
    say(json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False))


def note(text: str) -> None:
    """One line on standard error, such as `Warning: …`."""
    sys.stderr.write(f"{printable(' '.join(text.split()))}\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Make control characters visible. Names come from foreign files and could otherwise steer the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def size(n_bytes: int) -> str:
    """A number of bytes in a readable unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:,.1f} {unit}"
    return f"{n_bytes} bytes"


def duration(seconds: float) -> str:
    """A number of seconds in readable units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
