"""Where Newton begins. A start is named by a word, options after a colon: "msi", "bias:factor=0.9", "msi:s=1,t=-3".

One string is all there is to it, so a start is cloned, searched over, saved and typed on a command line as any other
parameter. To add a start: a file here with a subclass of `Start`, and a line in STARTS. Keywords of its `__init__`
are its options; their types say how they are read.
"""

from __future__ import annotations

import math
import typing
from typing import Any

from longtail.errors import InputError
from longtail.methods.one_vs_all.starts.base import First, Start, Task
from longtail.methods.one_vs_all.starts.bias import Bias
from longtail.methods.one_vs_all.starts.msi import MeanSeparating
from longtail.methods.one_vs_all.starts.ova_primal import OvaPrimal
from longtail.methods.one_vs_all.starts.tree import Tree
from longtail.methods.one_vs_all.starts.zero import Zero

__all__ = ["STARTS", "First", "Start", "Task", "make", "parse"]

STARTS: dict[str, type[Start]] = {
    "msi": MeanSeparating,
    "zero": Zero,
    "bias": Bias,
    "ova-primal": OvaPrimal,
    "tree": Tree,
}
WHERE = "The 'start' parameter of OneVsAll"


def make(spec: str, task: Task) -> Start:
    """The start that `spec` names, for this task."""
    kind, options = parse(spec, task.problem.bias)
    return kind(task, **options)


def parse(spec: Any, bias: float) -> tuple[type[Start], dict[str, Any]]:
    """The class and the options in "name" or "name:option=value,option=value"; InputError where there is none such."""
    name, colon, rest = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if name not in STARTS:
        words = ", ".join(repr(word) for word in STARTS)
        raise InputError(f"{WHERE} must be one of {words}. Got {spec!r} instead.")
    if STARTS[name].needs_bias and not bias > 0:
        raise InputError(f"start={name!r} needs a bias feature, but bias={bias!r}; set bias=1, or use start='msi'")
    hints = typing.get_type_hints(STARTS[name].__init__)
    known = {option: hint for option, hint in hints.items() if option not in ("task", "return")}
    options = {}
    for item in rest.split(",") if colon else []:
        option, _, value = (part.strip() for part in item.partition("="))
        if option not in known:
            takes = " and ".join(f"'{each}'" for each in known) or "no options"
            raise InputError(f"{WHERE}: {name!r} takes {takes}. Got {spec!r} instead of a form like 'msi:s=1,t=-3'.")
        options[option] = _value(option, value, known[option])
    return STARTS[name], options


def _value(option: str, value: str, hint: Any) -> str | float:
    """The option's value as its type says: one of a few words, or a finite number."""
    if typing.get_origin(hint) is typing.Literal:
        if value in typing.get_args(hint):
            return value
        wanted = " or ".join(repr(word) for word in typing.get_args(hint))
    else:
        wanted = "a number"
        try:
            if math.isfinite(float(value)):
                return float(value)
        except ValueError:
            pass
    raise InputError(f"{WHERE}: the option {option!r} must be {wanted}. Got {value!r} instead.")
