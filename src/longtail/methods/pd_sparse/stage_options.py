"""The parameters `path` and `post_solve` of PDSparse, which describe stages of training. See stages.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from longtail.methods import spec


class PathStage(NamedTuple):
    """How the pairs of C and lam are compared. None: all rows, and passes until there is no gain."""

    rows: int | None
    passes: int | None

    def __str__(self) -> str:
        return "full" if self.rows is None else f"probe:rows={self.rows},passes={self.passes}"


class PostSolve(NamedTuple):
    """When the post-solve is done, "auto", "always" or "never", and its number of passes."""

    when: str
    passes: int

    def __str__(self) -> str:
        return self.when if self.when == "never" else f"{self.when}:passes={self.passes}"


PROBE_ROWS, PROBE_PASSES = 4000, 2


def _probe(*, rows: int = PROBE_ROWS, passes: int = PROBE_PASSES) -> PathStage:
    return PathStage(rows, passes)


def _full() -> PathStage:
    return PathStage(None, None)


def _auto(*, passes: int = 1) -> PostSolve:
    return PostSolve("auto", passes)


def _always(*, passes: int = 1) -> PostSolve:
    return PostSolve("always", passes)


def _never() -> PostSolve:
    return PostSolve("never", 0)


PATHS: dict[str, Callable[..., PathStage]] = {"probe": _probe, "full": _full}
POST_SOLVES: dict[str, Callable[..., PostSolve]] = {"auto": _auto, "always": _always, "never": _never}


def parse_path(text: Any) -> PathStage:
    """Return the path that `text` names. Raise InputError if there is none."""
    name, options = _parse("path", text, PATHS)
    return PATHS[name](**options)


def parse_post_solve(value: Any) -> PostSolve:
    """Return the post-solve that `value` names; True is "auto" and False is "never"."""
    if isinstance(value, bool):
        value = "auto" if value else "never"
    name, options = _parse("post_solve", value, POST_SOLVES)
    return POST_SOLVES[name](**options)


def _parse(parameter: str, text: Any, choices: dict[str, Callable[..., Any]]) -> tuple[str, dict[str, Any]]:
    where = f"The {parameter!r} parameter of PDSparse"
    name, options = spec.parse(text, choices, where)
    spec.at_least_one(options, where)
    return name, options
