"""`longtail tune DATA`: find the best method and parameters on held-out rows, within a time budget."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from longtail.cli.options import Groups, words
from longtail.cli.output import UsageError, say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import NAMING, READING, Data, Json, read_data, text_features, with_chosen_scale
from longtail.cli.reading import text_options as _text_options

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def tune(
    data: Data,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Such as 90s, 10m or 2h.")] = "10m",
    methods: Annotated[
        str | None, typer.Option("--methods", metavar="NAME,NAME,…", help="The methods to choose among.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="What to maximise, such as P@1, or the mean of several: P@1,nDCG@5.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="FILE", help="Keep trials there, to continue after a stop.")
    ] = None,
    json: Json = False,
    *,
    reading: dict[str, Any],
    text_options: dict[str, Any],
) -> None:
    """Find the best method and parameters for DATA.

    The most promising candidates are trained on all rows that are not held out; in the time that is left, others are
    tried on parts of the rows. Prints what was tried, and the command that trains the winner.
    """
    seconds = _seconds(budget)
    features = text_features(text_options)
    chosen = {} if features is None else {"text_features": features}
    dataset, _ = read_data(data, reading, labelled=True, **chosen)
    dataset = with_chosen_scale(dataset, text_options)
    from longtail import tuning

    options: dict[str, Any] = {} if methods is None else {"methods": methods.split(",")}
    options |= {} if metric is None else {"metric": metric}
    with step("Tuning", "%") as shown:
        found = tuning.tune(dataset, seconds, state=state, progress=lambda share, name: shown.share(share), **options)
    command = found.command(data, more=[*words(READING + NAMING, reading), *words(_text_options(), text_options)])
    if json:
        trials = [
            {"method": t.method, "params": t.params, "rows": t.n_rows, "fold": t.fold, "score": t.score}
            for t in found.trials
        ]
        best = {"method": found.best.method, "params": found.best.params, "score": found.best.score}
        say_json({"metric": found.metric, "best": best, "trials": trials, "command": command})
    else:
        say(found)
        say(f"\nTrain it with:\n  {command}")


def groups(words: list[str]) -> Groups:
    """The options of `tune`."""
    return {"reading": [*READING, *NAMING], "text_options": _text_options()}


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise UsageError(f"--budget takes a time such as 90s, 10m or 2h, but got {text!r}")
    return float(found[1]) * _UNITS[found[2]]
