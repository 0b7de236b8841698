"""`longtail plan DATA`: what training will take, before it begins."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from longtail.cli.output import say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import Data, Json, read_data, text_features
from longtail.cli.train import DEFAULT_METHOD, Method, Paper, calibrate_texts, estimator_of
from longtail.words import duration


def cluster_size(text: str) -> tuple[int, int]:
    """Reads the size of a cluster, such as 4x16."""
    match = re.fullmatch(r"(\d{1,6}) ?[xX] ?(\d{1,4})", text.strip())
    if match is None or not int(match[1]) or not int(match[2]):
        raise typer.BadParameter(f"{text!r} is not the size of a cluster; write nodes x cores, such as 4x16")
    return int(match[1]), int(match[2])


def plan(
    data: Data,
    method: Method = DEFAULT_METHOD,
    paper: Paper = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NxM",
            parser=cluster_size,
            help="Add the time on N machines of M cores, such as 4x16.",
        ),
    ] = None,
    json: Json = False,
    *,
    reading: dict[str, Any],
    method_options: dict[str, Any],
    text_options: dict[str, Any],
) -> None:
    """Show what training on DATA will take.

    Time, peak memory, size of the model and number of blocks, from a small sample of the work that is solved and timed.
    The options are those of `longtail train`.
    """
    clf, features = estimator_of(method, method_options, paper=paper), text_features(text_options)
    chosen = {} if features is None else {"text_features": features}
    dataset, _ = read_data(data, reading, labelled=True, **chosen)
    calibrate_texts(clf, dataset, method_options, paper=paper)
    with step("Timing a sample of the work"):
        found = clf.plan(dataset)
    size: Any = cluster
    there = None if size is None else found.on_cluster(*size)
    if json:
        extra = {} if there is None else {"cluster": {"nodes": size[0], "cores": size[1], "seconds": there._asdict()}}
        say_json({**found.as_dict(), **extra})
        return
    from longtail.report import Facts

    facts = found.facts()
    if there is not None:
        facts[f"on {size[0]} x {size[1]} cores"] = (
            f"{duration(there.likely)} ({duration(there.low)} to {duration(there.high)})"
            + (", because the method has a single block" if found.n_blocks == 1 else "")
        )
    facts |= {f"advice {number}": text for number, text in enumerate(found.advice(), 1)}
    say(Facts(facts))
