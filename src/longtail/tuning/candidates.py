"""The methods and parameters that `tune` tries. Only values that differ from the estimators' defaults are listed."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.hybrid import Rows, squares

# The first are always tried, on all rows if possible (search.py). A small budget tries only the next ones.
CANDIDATES: list[tuple[str, dict[str, Any]]] = [
    ("one-vs-all", {}),
    ("one-vs-all", {"C": 1 / 3, "positive_weight": "auto"}),
    ("one-vs-all", {"C": 1 / 3, "positive_weight": 3.0}),
    ("mach", {}),
    ("memoir", {}),
    ("pd-sparse", {}),
    ("one-vs-all", {"C": 0.1, "positive_weight": 10.0}),
    ("one-vs-all", {"C": 3.0}),
    ("one-vs-all", {"C": 0.1}),
]
UNIT = 0.01  # rows have equal lengths if all lengths differ from their mean by less than this share


def candidates(methods: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the methods and parameters to try."""
    found = [(method, params) for method, params in CANDIDATES if method in methods]
    return found + [(method, {}) for method in methods if method not in dict(CANDIDATES)]


def equal_lengths(X: Rows) -> bool:
    """Whether all rows that are not zero have about the same length."""
    lengths = np.sqrt(squares(X))
    lengths = lengths[lengths > 0]
    return not len(lengths) or bool(np.abs(lengths - lengths.mean()).max() <= UNIT * lengths.mean())
