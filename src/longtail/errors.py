"""All exceptions that longtail raises.

    LongtailError
    ├── InputError (ValueError)      an array, a label list or a parameter that cannot be used
    ├── DataError (ValueError)       a data file that cannot be read; knows file, line and column
    ├── ModelError                   a model or dataset folder that is absent, damaged or unsafe; knows the file
    ├── RunError                     training that could not be finished; knows which blocks failed
    └── MissingExtra (ImportError)   an optional package is not installed

A message says what was asked, what was found and what to do. The command line prints it as one line and exits with 1.
"""

from __future__ import annotations

import os


class LongtailError(Exception):
    """Base class of all exceptions of longtail."""


class InputError(LongtailError, ValueError):
    """An array, a label list or a parameter that cannot be used."""


class DataError(LongtailError, ValueError):
    """A data file that cannot be read. `line` and `column` count from 1, and are None if they do not apply."""

    def __init__(
        self, path: str | os.PathLike[str], reason: str, *, line: int | None = None, column: int | None = None
    ) -> None:
        self.path = os.fspath(path)
        self.reason = reason
        self.line = line
        self.column = column
        place = "".join(f", {name} {at}" for name, at in (("line", line), ("column", column)) if at is not None)
        super().__init__(f"{self.path}{place}: {reason}")


class ModelError(LongtailError):
    """A model or dataset folder that is absent, damaged or unsafe. `path` is the file with the problem."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path, self.reason = os.fspath(path), reason
        super().__init__(f"{self.path}: {reason}")


class RunError(LongtailError):
    """Training that could not be finished. `blocks` maps the numbers of the blocks that were not solved to the reason.
    It is empty if the problem is not in a single block."""

    def __init__(self, message: str, blocks: dict[int, str] | None = None) -> None:
        self.blocks = blocks or {}
        super().__init__(message)


class MissingExtra(LongtailError, ImportError):  # noqa: N818 - says what is wrong without a suffix
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}; install it with: pip install 'longtail[{extra}]'")


class DataWarning(UserWarning):
    """Data was read, but something in it should be checked, for example labels that the model does not know."""
