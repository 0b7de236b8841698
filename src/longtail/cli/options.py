"""Command-line options made from the signature and docstring of an estimator.

Types and defaults come from `__init__`, help from the section "Parameters" of the class docstring. An option that is
not given is not passed on, so every default has one home. Importing an estimator takes a second or more, so a command
can postpone it until the command runs.
"""

from __future__ import annotations

import copy
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand

Groups = Mapping[str, Sequence[inspect.Parameter]]
SIMPLE = (bool, int, float, str)
NOT_OFFERED = ("warm_start", "verbose")  # a command has no earlier fit to go on from, and shows progress by itself
# Plain help shows long options in full and takes a third of the time of rich help.
STYLE: dict[str, Any] = {"context_settings": {"help_option_names": ["-h", "--help"]}, "rich_markup_mode": None}


def option(name: str, kind: Any, flag: str, **how: Any) -> inspect.Parameter:
    """An optional keyword `name` of a command; None when it is not given."""
    if kind in (number_or_word, switch_or_word):
        kind, how = str, {**how, "parser": kind}
    annotation = Annotated[kind | None, typer.Option(flag, **how)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def options_of(target: type, *, prefix: str = "") -> list[inspect.Parameter]:
    """One option per parameter of `target` that can be typed on a command line. Names begin with `prefix`."""
    hints = typing.get_type_hints(target.__init__)  # type: ignore[misc]
    entries = parameter_help(target)
    found = []
    for name, parameter in inspect.signature(target).parameters.items():
        kind, flag = option_type(hints[name]), (prefix + name).replace("_", "-")
        if kind is None or name in NOT_OFFERED:
            continue
        metavar, text = entries.get(name, (None, ""))
        default = default_text(parameter.default)
        found.append(
            option(
                prefix + name,
                kind,
                f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}",
                help=f"{text}  [default: {default}]" if default else text,
                metavar=metavar,
                show_default=False,
            )
        )
    return found


def or_word(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    """The option of a number that may also be a word, which `text` explains."""
    info = copy.copy(typing.get_args(parameter.annotation)[1])
    info.parser, info.help = number_or_word, f"{info.help}  [{text}]"
    return parameter.replace(annotation=Annotated[str | None, info])


def words(parameters: Sequence[inspect.Parameter], given: Mapping[str, Any]) -> list[str]:
    """The words of a command line that give these values to the options."""
    found = []
    for parameter in parameters:
        if parameter.name in given:
            value = given[parameter.name]
            flag = str(typing.get_args(parameter.annotation)[1].default)  # in an annotation, Option's first argument
            if isinstance(value, bool):
                yes, _, no = flag.partition("/")
                found += [word for word in (yes if value else no,) if word]
            else:
                found += [flag, *map(str, value if isinstance(value, tuple) else (value,))]
    return found


def option_type(hint: Any) -> Any:
    """The part of a parameter's type that can be typed on a command line: a number, a word, either of them, a switch,
    or a pair; None if there is none."""
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if str in members and (float in members or int in members):
        return number_or_word
    if bool in members and str in members:
        return switch_or_word
    return next((member for member in members if member in SIMPLE or typing.get_origin(member) is tuple), None)


def number_or_word(text: str) -> int | float | str:
    """Reads a value of type `float | str` or `int | str`."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def switch_or_word(text: str) -> bool | str:
    """Reads a value of type `bool | str`: on, off or a word."""
    return {"on": True, "off": False}.get(text, text)


UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def n_bytes(text: str) -> int:
    """Reads a size such as 512MB or 1.5GB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Z]{0,2})", text.strip().upper())
    if match is None or match[2] not in UNITS or float(match[1]) * UNITS[match[2]] < 1:
        raise typer.BadParameter(f"{text!r} is not a size; write a number and a unit, such as 512MB or 2GB")
    return int(float(match[1]) * UNITS[match[2]])


def default_text(value: Any) -> str:
    """The default as it would be typed; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


# --- help ------------------------------------------------------------------------------------------------------------

_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*) : (?P<rest>.+)")
_CHOICES = re.compile(r"\{([^}]*)\}")
_TYPE = re.compile(r"(float|int|str|bool|tuple)\b")


def parameter_help(target: type) -> dict[str, tuple[str | None, str]]:
    """For each parameter: its choices as `a|b` (None if it has none), and its description in one line.

    An entry is `name : type` with the description on the lines below it, or `name, name : description` in one.
    """
    section = _SECTION.search(inspect.getdoc(target) or "")
    entries: list[tuple[str, str, list[str]]] = []
    for line in section[1].splitlines() if section else []:
        entry = _ENTRY.fullmatch(line)
        if entry:
            entries.append((entry["names"], entry["rest"], []))
        elif entries:
            entries[-1][2].append(line.strip())
    return {name: _entry(rest, lines) for names, rest, lines in entries for name in names.split(", ")}


def _entry(rest: str, lines: list[str]) -> tuple[str | None, str]:
    choices = _CHOICES.match(rest)
    if choices:
        return "|".join(re.findall(r"[\w-]+", choices[1])), " ".join(lines)
    text = " ".join(lines) if lines and rest[:1].islower() and _TYPE.match(rest) else " ".join([rest, *lines])
    return None, text[:1].upper() + text[1:]


# --- commands --------------------------------------------------------------------------------------------------------


class Verb(TyperCommand):
    """A command whose usage line reads as in the documentation: `longtail train [OPTIONS] DATA MODEL`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.translate({ord("{"): None, ord("}"): None}) for piece in super().collect_usage_pieces(ctx)]


def with_options(function: Callable[..., None], groups: Groups) -> Callable[..., None]:
    """`function` with additional options. Those of a group arrive as a dict in the keyword of that name."""
    own = inspect.signature(function, eval_str=True)

    def command(**given: Any) -> None:
        taken = {name: {each.name: given.pop(each.name) for each in group} for name, group in groups.items()}
        chosen = {name: {key: v for key, v in values.items() if v is not None} for name, values in taken.items()}
        function(**given, **chosen)

    fixed = [parameter for name, parameter in own.parameters.items() if name not in groups]
    parameters = [*fixed, *(each for group in groups.values() for each in group)]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def add(app: typer.Typer, function: Callable[..., None], groups: Groups | Callable[[list[str]], Groups]) -> None:
    """Make `function` a command of `app`. If `groups` is a function, it gets the words of the command line, and is
    called only when the command runs."""
    if not callable(groups):
        app.command(cls=Verb)(with_options(function, groups))
        return
    make: Callable[[list[str]], Groups] = groups

    class Lazy(Verb):
        def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
            tool = typer.Typer(**STYLE, add_completion=False)
            tool.command(cls=Verb)(with_options(function, make(args)))
            return typer.main.get_command(tool).make_context(info_name, args, parent=parent, **extra)

    def named() -> None:
        """Stands for the command in the list of all commands."""

    named.__name__, named.__doc__ = function.__name__, function.__doc__
    app.command(cls=Lazy)(named)
