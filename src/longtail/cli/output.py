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
