"""The parameter `search` of PDSparse: how the labels that violate the margin of a row are found.

Each search is a word with options, such as "subset:subsets=5,returned=4". The keyword-only parameters of the functions
below are the options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from longtail.methods import spec


class Search(NamedTuple):
    """Which labels a row is compared with, and how many of them a search returns."""

    name: str
    subsets: int
    returned: int
    sampled: bool
    least: int = 1  # labels in a subset

    def for_labels(self, n_labels: int) -> Search:
        """Return the same search, with the number of subsets reduced so that each has at least `least` labels."""
        return self._replace(subsets=max(1, min(self.subsets, n_labels // self.least)))

    def __str__(self) -> str:
        subsets = "" if self.name == "exact" else f"subsets={self.subsets},"
        return f"{self.name}:{subsets}returned={self.returned}"


def _subset(*, subsets: int = 5, returned: int = 4, least: int = 100) -> Search:
    return Search("subset", subsets, returned, sampled=False, least=least)  # subsets below 100 labels save no time


def _exact(*, returned: int = 4) -> Search:
    return Search("exact", 1, returned, sampled=False)


def _sampled(*, subsets: int = 5, returned: int = 4, least: int = 100) -> Search:
    return Search("sampled", subsets, returned, sampled=True, least=least)


SEARCHES: dict[str, Callable[..., Search]] = {"subset": _subset, "exact": _exact, "sampled": _sampled}


def parse_search(text: Any) -> Search:
    """Return the search that `text` names. Raise InputError if there is none."""
    where = "The 'search' parameter of PDSparse"
    name, options = spec.parse(text, SEARCHES, where)
    spec.at_least_one(options, where)
    return SEARCHES[name](**options)
