"""Oracles: searches for the rival of a row, the class with the largest score among those that are not its labels.

An oracle is named by a text, "name" or "name:option=value,option=value", such as "sw-graph:links=8,beam=4". To add an
oracle, create a file with a subclass of `Oracle` and add it to ORACLES. The keyword-only parameters of its `__init__`
are its options.
"""

from __future__ import annotations

from typing import Any

from longtail.methods import spec
from longtail.methods.memoir.oracles.base import Moves, Oracle, SearchSpace
from longtail.methods.memoir.oracles.exact import Exact
from longtail.methods.memoir.oracles.simple_lsh import SimpleLSH
from longtail.methods.memoir.oracles.sw_graph import SWGraph

ORACLES: dict[str, type[Oracle]] = {"exact": Exact, "sw-graph": SWGraph, "simple-lsh": SimpleLSH}
WHERE = "The 'oracle' parameter of Memoir"

__all__ = ["ORACLES", "Exact", "Moves", "Oracle", "SWGraph", "SearchSpace", "SimpleLSH", "parse"]


def parse(text: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and all options of the oracle that `text` describes. Raise InputError if it does not exist."""
    name, given = spec.parse(text, ORACLES, WHERE)
    options = {**ORACLES[name].default_options(), **given}
    ORACLES[name].check_options(options, WHERE)
    return name, options
