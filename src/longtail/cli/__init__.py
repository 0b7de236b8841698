"""The command line: `longtail train | predict | evaluate | explain | …`; `longtail --help` lists all verbs.

One verb per file. Results go to standard output, progress (only to a terminal), warnings and errors to standard error.
Nothing heavy is imported before a verb runs, so that `longtail --help` answers at once.

Exit codes: 0 done, 1 an error of the data, the model or the machine, 2 wrong usage, 3 some blocks of a training run
could not be solved, 130 stopped by Ctrl-C, 141 the reader of standard output went away (`| head`), 143 stopped by
SIGTERM. Every error is one line; `--traceback` shows where it arose.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import signal
import sys
import traceback as tracebacks
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import longtail
from longtail.cli import (
    compare,
    data,
    decisions,
    demo,
    evaluate,
    explain,
    inspect,
    plan,
    predict,
    progress,
    runs,
    serve,
    train,
    tune,
    update,
    warmup,
)
from longtail.cli.options import STYLE, add
from longtail.cli.output import UsageError, note, say
from longtail.cli.reading import READING
from longtail.errors import LongtailError, RunError

PLAIN = "longtail-plain"  # how characters are written that the terminal lacks
SIGNS = {"─": "-", "…": "...", "µ": "u", "→": "->", "≤": "<="}
PARAMETER = re.compile(r"The '(?P<name>\w+)' parameter of (?P<owner>\w+)")
TRACEBACK = "LONGTAIL_TRACEBACK"
UNSOLVED = 3  # training went through, but some blocks could not be solved
INTERRUPTED, TERMINATED, PIPE_CLOSED = 130, 143, 141  # what a shell reports for SIGINT, SIGTERM and SIGPIPE


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a command as Ctrl-C does."""


class Verbs(TyperGroup):
    """The group of all verbs. Turns every way a command can end into an exit code and at most one line."""

    traceback = bool(os.environ.get(TRACEBACK))

    def main(self, args: Any = None, prog_name: str | None = None, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors=PLAIN)  # a character that the terminal lacks is no reason to stop
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except Exception as error:
            if self.traceback:
                tracebacks.print_exception(error)
            code = _report(error)
        code = code if isinstance(code, int) else 0
        if standalone_mode:
            sys.exit(code)
        return code

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                for quiet in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning):
                    warnings.simplefilter("ignore", quiet)
                warnings.showwarning = lambda message, *_, **__: note(f"Warning: {message}")
                super().invoke(ctx)
                sys.stdout.flush()
        except KeyboardInterrupt as stop:
            ended = isinstance(stop, Terminated)
            note("Terminated." if ended else "Interrupted.")
            raise typer.Exit(TERMINATED if ended else INTERRUPTED) from None
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(PIPE_CLOSED) from None


def _report(error: Exception) -> int:
    """Print what went wrong; returns the exit code."""
    if hasattr(error, "format_message"):  # from typer, whose releases keep these classes in different places
        message = error.format_message().rstrip(".")
        note(f"Error: {message}{'' if message.endswith('?') else '.'} {_hint(error)}")
        return int(getattr(error, "exit_code", 2))
    note(f"Error: {_reason(error)}")
    if isinstance(error, RunError) and error.blocks:
        return UNSOLVED
    return 2 if isinstance(error, UsageError) else 1


def _hint(error: Exception) -> str:
    """What to add to a message of typer: the options that exist if it names none, or where the help is."""
    ctx = getattr(error, "ctx", None)
    place = getattr(ctx, "command_path", "longtail")
    if ctx is not None and hasattr(error, "option_name") and not getattr(error, "possibilities", None):
        flags = [flag for each in ctx.command.params for flag in each.opts if flag.startswith("--")]
        return f"Options of {place}: {', '.join(flags)}"
    return f"See {place} --help"


def _reason(error: Exception) -> str:
    if isinstance(error, LongtailError | UsageError):
        return PARAMETER.sub(_flag, str(error))
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if isinstance(error, MemoryError):
        return (
            f"not enough memory ({str(error) or 'none left'}); use fewer rows, features or labels, or a larger machine"
        )
    return f"{type(error).__name__}: {error} (this should not happen; {TRACEBACK}=1 shows where it did)"


def _flag(found: re.Match[str]) -> str:
    """The option of a parameter."""
    prefix = "text-" if found["owner"] == "TextFeatures" else ""
    return f"--{prefix}{found['name'].replace('_', '-')}"


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Characters that the encoding of the terminal lacks: lines and signs of our own in ASCII, others escaped."""
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return "".join(SIGNS.get(char) or char.encode("ascii", "backslashreplace").decode() for char in lost), error.end


codecs.register_error(PLAIN, _plain)


def _forget_stdout() -> None:
    """Send the rest of standard output nowhere: Python flushes it once more at exit, which would fail again."""
    with contextlib.suppress(OSError, ValueError):  # not a real file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    cls=Verbs,
    help="Extreme classification: train, store, query and explain linear classifiers over very many labels.",
    epilog="Start with: longtail demo",
    pretty_exceptions_enable=False,
    **STYLE,
)


@app.callback(invoke_without_command=True)
def longtail_(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error arose.")] = False,
) -> None:
    progress.quiet = quiet
    if traceback:
        ctx.command.traceback = True  # type: ignore[attr-defined]
    if version:
        say(f"longtail {longtail.__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())


add(app, plan.plan, train.groups)
add(app, train.train, train.groups)
add(app, runs.runs, {})
add(app, predict.predict, {"reading": READING})
add(app, evaluate.evaluate, {"reading": READING})
add(app, inspect.inspect, {})
add(app, explain.explain, {"reading": READING})
add(app, update.update, {"reading": READING})
add(app, decisions.thresholds, {"reading": READING})
add(app, decisions.rules, {})
add(app, tune.tune, tune.groups)
add(app, compare.compare, compare.groups)
add(app, data.data, data.groups)
add(app, serve.serve, serve.groups)
add(app, warmup.warmup, {})
add(app, demo.demo, {})


def _terminate(*_: Any) -> None:
    raise Terminated


def main() -> None:
    """The program `longtail`."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="longtail")
    except SystemExit as end:
        if end.code in (INTERRUPTED, TERMINATED):
            os._exit(end.code)  # at once: threads inside a kernel hold nothing worth waiting for
        raise
