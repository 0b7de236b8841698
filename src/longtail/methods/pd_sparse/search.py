"""The parameter `search` of PDSparse: how the labels that violate the margin of a row are found.

Each search is a word with options, such as "part:parts=5,returned=4". The keyword-only parameters of the functions
below are the options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from longtail.errors import InputError
from longtail.methods import spec

PART_LABELS = 100  # smaller parts save no time


class Search(NamedTuple):
    """Which labels a row is compared with, and how many of them a search returns."""

    name: str
    parts: int
    returned: int
    sampled: bool

    def for_labels(self, n_labels: int) -> Search:
        """Return the same search, with the number of parts reduced so that each has at least PART_LABELS labels."""
        return self._replace(parts=max(1, min(self.parts, n_labels // PART_LABELS)))

    def __str__(self) -> str:
        parts = "" if self.name == "exact" else f"parts={self.parts},"
        return f"{self.name}:{parts}returned={self.returned}"


def _part(*, parts: int = 5, returned: int = 4) -> Search:
    return Search("part", parts, returned, sampled=False)


def _exact(*, returned: int = 4) -> Search:
    return Search("exact", 1, returned, sampled=False)


def _sampled(*, parts: int = 5, returned: int = 4) -> Search:
    return Search("sampled", parts, returned, sampled=True)


SEARCHES: dict[str, Callable[..., Search]] = {"part": _part, "exact": _exact, "sampled": _sampled}


def parse_search(text: Any) -> Search:
    """Return the search that `text` names. Raise InputError if there is none."""
    where = "The 'search' parameter of PDSparse"
    name, options = spec.parse(text, SEARCHES, where)
    for option, value in options.items():
        if value < 1:
            raise InputError(
                f"{where}: the option {option!r} must be a whole number of at least 1. Got {value!r} instead."
            )
    return SEARCHES[name](**options)
