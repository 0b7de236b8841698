"""Parameters that have options, written as one text: "name", or "name:option=value,option=value".

Because a start, an oracle or a search is a plain string, it can be cloned, tuned, saved and typed on a command line
like any other parameter. The options of a name are the keyword-only parameters of the class or function behind it.
Their type hints define how values are parsed.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any

from longtail.errors import InputError

YES_NO = {"yes": True, "no": False}


def parse(text: Any, choices: Mapping[str, Callable[..., Any]], where: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options in `text`. Error messages start with `where`: "The 'start' parameter of …"."""
    name, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in choices:
        words = ", ".join(repr(word) for word in choices)
        raise InputError(f"{where} must be one of {words}. Got {text!r} instead.")
    known = option_types(choices[name])
    options: dict[str, Any] = {}
    for item in rest.split(",") if colon else []:
        option, _, value = (piece.strip() for piece in item.partition("="))
        if option not in known:
            takes = " and ".join(f"'{each}'" for each in known) or "no options"
            raise InputError(
                f"{where}: {name!r} takes {takes}. Got {text!r} instead of the form 'name:option=value,option=value'."
            )
        options[option] = _value(option, value, known[option], where)
    return name, options


def at_least_one(options: Mapping[str, Any], where: str) -> None:
    """Raise InputError if an option is below 1."""
    for option, value in options.items():
        if value < 1:
            raise InputError(
                f"{where}: the option {option!r} must be a whole number of at least 1. Got {value!r} instead."
            )


def to_text(name: str, options: Mapping[str, Any]) -> str:
    """The text that `parse` reads back as this name and these options."""
    words = {True: "yes", False: "no"}
    items = [f"{key}={words[value] if isinstance(value, bool) else value}" for key, value in options.items()]
    return f"{name}:{','.join(items)}" if items else name


def option_types(choice: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of a name: the keyword-only parameters of `choice` and their types."""
    function = choice.__init__ if isinstance(choice, type) else choice  # type: ignore[misc]
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    return {each.name: hints[each.name] for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def _value(option: str, text: str, hint: Any, where: str) -> Any:
    """Parse the value of an option by its type: one of several words, yes or no, an integer, or a finite number."""
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    if typing.get_origin(hint) is typing.Literal:
        if text in typing.get_args(hint):
            return text
        wanted = " or ".join(repr(word) for word in typing.get_args(hint))
    elif hint is bool or bool in members:
        if text in YES_NO:
            return YES_NO[text]
        wanted = "'yes' or 'no'"
    elif hint is int or int in members:
        wanted = "a whole number"
        if text.lstrip("-").isdecimal():
            return int(text)
    else:
        wanted = "a number"
        try:
            if math.isfinite(float(text)):
                return float(text)
        except ValueError:
            pass
    raise InputError(f"{where}: the option {option!r} must be {wanted}. Got {text!r} instead.")
