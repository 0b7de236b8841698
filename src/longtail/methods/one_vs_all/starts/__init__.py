"""The first weights of labels. A start is named by a text: "msi", "bias:factor=0.9", "msi:s=1,t=-3".

To add a start, create a file with a subclass of `Start` and add it to STARTS. Its options are the keyword-only
parameters of its `__init__` (see methods/spec.py).
"""

from __future__ import annotations

from typing import Any

from longtail.errors import InputError
from longtail.methods import spec
from longtail.methods.one_vs_all.inputs import OneVsAllData
from longtail.methods.one_vs_all.starts.base import FirstScores, Start
from longtail.methods.one_vs_all.starts.bias import Bias
from longtail.methods.one_vs_all.starts.msi import MeanSeparating
from longtail.methods.one_vs_all.starts.ova_primal import OvaPrimal
from longtail.methods.one_vs_all.starts.tree import Tree
from longtail.methods.one_vs_all.starts.zero import Zero

__all__ = ["STARTS", "FirstScores", "MeanSeparating", "Start", "make", "parse"]

STARTS: dict[str, type[Start]] = {
    "msi": MeanSeparating,
    "zero": Zero,
    "bias": Bias,
    "ova-primal": OvaPrimal,
    "tree": Tree,
}


def parse(text: Any, bias: float) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a start. Raise InputError if it does not exist, or if it needs a bias feature
    and there is none."""
    name, options = spec.parse(text, STARTS, "The 'start' parameter of OneVsAll")
    if STARTS[name].needs_bias and not bias > 0:
        raise InputError(f"start={name!r} needs a bias feature, but bias={bias!r}; set bias=1, or use start='msi'")
    return name, options


def make(text: str, data: OneVsAllData) -> Start:
    """The start that `text` names, for this problem."""
    name, options = parse(text, data.X.bias)
    return STARTS[name](data, **options)


def text(given: str, start: Start) -> str:
    """Return the text of a start with all its options, including those that were not given."""
    name = given.partition(":")[0]
    options = ",".join(f"{option}={value}" for option, value in start.options.items())
    return f"{name}:{options}" if options else name
