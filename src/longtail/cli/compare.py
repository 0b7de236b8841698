"""`longtail compare DATA`: several methods, trained on the same rows and measured on the same rows, in one table."""

from __future__ import annotations

import json as jsons
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.options import Groups
from longtail.cli.output import UsageError, say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import (
    NAMING,
    READING,
    Data,
    Json,
    divided,
    load_estimator,
    read_data,
    text_features,
    text_options,
    top_labels,
    with_chosen_scale,
)
from longtail.errors import RunError
from longtail.words import duration, size

if TYPE_CHECKING:
    from longtail.data import Dataset

HELD_OUT = 0.2  # of the rows, without --test
DEFAULT = "one-vs-all,pd-sparse,memoir,mach"
OF_TRAINING = ("labels", "label_names", "feature_names", "drop_unknown")  # options that --test does not share
SETS = ("micro-F1", "macro-F1")


def compare(
    data: Data,
    methods: Annotated[
        str,
        typer.Option("--methods", metavar="NAME,NAME,…", help="Options follow a colon: one-vs-all:C=3:normalize."),
    ] = DEFAULT,
    paper: Annotated[
        bool, typer.Option("--paper", help="The settings of each method's paper; memoir:paper does it for one method.")
    ] = False,
    test: Annotated[
        str | None, typer.Option("--test", metavar="DATA", help="The test data. Default: a fifth of DATA, held out.")
    ] = None,
    test_labels: Annotated[
        str | None,
        typer.Option("--test-labels", metavar="FILE", help="The labels of --test, where they are in their own file."),
    ] = None,
    report: Annotated[str | None, typer.Option("--report", metavar="FILE", help="Also write an HTML page.")] = None,
    json: Json = False,
    *,
    reading: dict[str, Any],
    text_options: dict[str, Any],
) -> None:
    """Train several methods on DATA and compare them.

    P@k, PSP@k, F1 of the predicted labels, CPU time and memory of the training, size of the model and time of a
    prediction. Each method is trained in a process of its own.
    """
    commands = _commands(methods, paper=paper)
    features = text_features(text_options)
    chosen = {} if features is None else {"text_features": features}
    rows, _ = read_data(data, reading, labelled=True, **chosen)
    if test is None:
        train, held_out = divided(rows, HELD_OUT, stratify=True)
    else:
        own = {name: value for name, value in reading.items() if name not in OF_TRAINING}
        own |= {} if test_labels is None else {"labels": test_labels}
        train, held_out = rows, read_data(test, own, labelled=True, like=rows)[0]
    scaled = with_chosen_scale(train, text_options)
    if scaled is not train:
        assert scaled.text_features is not None
        train, held_out = scaled, held_out.with_embedding_scale(scaled.text_features.embedding_scale)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="longtail-compare-") as place, step("Comparing", "methods") as shown:
        folder = os.path.join(place, "data")
        train.save(folder)
        for number, (name, words) in enumerate(commands.items()):
            found[name] = _measured(folder, os.path.join(place, f"model-{number}"), words, train, held_out)
            shown.update(number + 1, len(commands))
    table = _table(found, train, held_out)
    sizes = {"rows": train.n_samples, "test_rows": held_out.n_samples}
    say_json({"data": data, "test": test, **sizes, "methods": found}) if json else say(table)
    if report is not None:
        _write_page(report, data, train, held_out, table)


def groups(words: list[str]) -> Groups:
    """The options of `compare`."""
    return {"reading": [*READING, *NAMING], "text_options": text_options()}


def _commands(methods: str, *, paper: bool = False) -> dict[str, list[str]]:
    """The words that `longtail train` gets for each entry of `--methods`."""
    from longtail.methods import METHODS

    found: dict[str, list[str]] = {}
    for entry in (part.strip() for part in methods.split(",")):
        name, *options = entry.split(":")
        if name not in METHODS:
            raise UsageError(f"unknown method {name!r} in --methods; known methods: {', '.join(METHODS)}")
        words = ["--method", name, *(["--paper"] if paper else [])]
        for option in options:
            flag, given, value = option.partition("=")
            words += [f"--{flag.replace('_', '-')}", *([value] if given else [])]
        found[entry] = words
    return found


def _measured(folder: str, model: str, words: list[str], train: Dataset, test: Dataset) -> dict[str, Any]:
    """Train in a new process, whose CPU time and memory are the method's own, and measure the model here."""
    from longtail import metrics
    from longtail.metrics.evaluation import KS

    program = [sys.executable, "-m", "longtail", "train", folder, model, *words, "--json"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it ended without a message"]
        raise RunError(f"training with {' '.join(words)} failed: {said[-1].removeprefix('Error: ')}")
    record = jsons.loads(done.stdout)
    clf = load_estimator(model)
    top, seconds = top_labels(clf, test.X, max(KS))
    evaluation = metrics.evaluate(test.Y, top, train_Y=train.Y)
    sets = metrics.set_metrics(test.Y, clf.model_.predict_labels(test.X, n_jobs=clf.n_jobs))
    return {
        **{name: value for name, value in evaluation.overall.items() if name.startswith(("P@", "PSP@"))},
        **{name: sets[name] for name in SETS},
        "cpu_seconds": record["training"]["cpu_seconds"],
        "peak_bytes": record["training"]["peak_bytes"],
        "model_bytes": record["model_bytes"],
        "predict_microseconds_per_row": 1e6 * seconds / test.n_samples,
    }


def _table(found: dict[str, dict[str, Any]], train: Dataset, test: Dataset) -> Any:
    from longtail.report import Table

    scores = [name for name in next(iter(found.values())) if name.startswith(("P@", "PSP@", *SETS))]
    rows = [
        [
            name,
            *(100 * figures[score] for score in scores),
            duration(figures["cpu_seconds"]),
            size(figures["peak_bytes"]),
            size(figures["model_bytes"]),
            f"{figures['predict_microseconds_per_row']:,.0f} µs",
        ]
        for name, figures in found.items()
    ]
    note = (
        f"Trained on {train.n_samples:,} rows, measured on {test.n_samples:,}. Scores in per cent. CPU time includes "
        "the compilation of kernels at their first use."
    )
    return Table(["method", *scores, "CPU", "memory", "model", "per row"], rows, note)


def _write_page(path: str, data: str, train: Dataset, test: Dataset, table: Any) -> None:
    from longtail.report import Facts, FrequencyCurve, Report, Section

    sizes = {"rows": train.n_samples, "test rows": test.n_samples, "features": train.n_features}
    sections = [
        Section("Data", Facts({**sizes, "labels": train.n_labels}), FrequencyCurve(train.Y.sum(axis=0))),
        Section("Methods", table),
    ]
    Report("Comparison of methods", data, sections).write_html(path)
