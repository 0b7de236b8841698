"""`longtail train DATA MODEL`: from a data file to a model folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli import progress
from longtail.cli.card import write_card
from longtail.cli.options import Groups, n_bytes, options_of
from longtail.cli.output import UsageError, note, say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import (
    NAMING,
    READING,
    Data,
    Json,
    read_data,
    text_features,
    text_options,
    with_chosen_scale,
)
from longtail.errors import InputError, ModelError
from longtail.words import duration, size

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.methods import ExtremeClassifier
    from longtail.methods.planning import Plan

SaveWeights = Annotated[
    str | None,
    typer.Option(
        "--save-weights",
        metavar="FORM",
        help="Save the weights of a linear model as float32, half (half precision) or 8-bit.",
        show_default="half where nothing is lost, for large models",
    ),
]
DEFAULT_METHOD = "one-vs-all"
TOLD_SECONDS = 2.0  # the plan of a quicker fit is not worth a line

Method = Annotated[str, typer.Option("--method", metavar="NAME", help="one-vs-all, pd-sparse, memoir or mach.")]
Paper = Annotated[
    bool, typer.Option("--paper", help="The settings of the method's paper; options that are given count.")
]


def train(
    data: Data,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder to save the model in.")],
    method: Method = DEFAULT_METHOD,
    paper: Paper = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the model that the folder holds.")] = False,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="FOLDER", help="Keep what is finished; the same command goes on after a crash."),
    ] = None,
    workers: Annotated[
        str, typer.Option("--workers", help="threads, processes:NUMBER, ray, or ray:ADDRESS of a cluster.")
    ] = "threads",
    shard_size: Annotated[
        int | None,
        typer.Option(
            "--shard-size",
            metavar="SIZE",
            parser=n_bytes,
            help="Divide a larger linear model into shards of this size; with --run, one at a time is in memory.",
            show_default="512 MiB",
        ),
    ] = None,
    save_weights: SaveWeights = None,
    force_memory: Annotated[
        bool, typer.Option("--force-memory", help="Train even if the memory will not be enough.")
    ] = False,
    json: Json = False,
    *,
    reading: dict[str, Any],
    method_options: dict[str, Any],
    text_options: dict[str, Any],
) -> None:
    """Train a model on DATA and save it in the folder MODEL.

    The model keeps the names of labels and features and, for texts, the fitted text pipeline. A model of texts by
    one-vs-all is calibrated, unless this is switched off or a run folder is given.
    """
    check_target(model, force=force)
    check_weights(save_weights)
    check_run(run, model, workers)
    clf, features = estimator_of(method, method_options, paper=paper), text_features(text_options)
    chosen = {} if features is None else {"text_features": features}
    dataset, read_seconds = read_data(data, reading, labelled=True, **chosen)
    dataset = with_chosen_scale(dataset, text_options)
    if run is None:  # with a run folder, all memory may be needed for training
        calibrate_texts(clf, dataset, method_options, paper=paper)
    from longtail.compiled import preparing

    compiled = preparing.wall_seconds
    try:
        with step("Training", "%") as training:
            clf.fit(
                dataset,
                progress=training.share,
                run=run,
                workers=workers,
                shard_size=shard_size,
                plan=partial(tell_plan, force_memory=force_memory, in_shards=run is not None),
            )
    except KeyboardInterrupt:
        if run is not None:
            note(f"Finished blocks are kept in {run}; the same command goes on from there.")
        raise
    compiled = preparing.wall_seconds - compiled
    save_seconds = save(clf, model, save_weights)
    write_card(model, train_Y=dataset.Y)
    from longtail import store

    result = {
        "model": model,
        "method": method,
        "rows": dataset.n_samples,
        "features": dataset.n_features,
        "labels": dataset.n_labels,
        "weights": clf.model_.n_weights,
        "training": clf.training_.as_dict(),
        "read_seconds": round(read_seconds, 3),
        "compile_seconds": round(compiled, 3),
        "train_seconds": round(max(0.0, training.seconds - compiled), 3),
        "save_seconds": round(save_seconds, 3),
        "model_bytes": store.model_size(model),
    }
    say_json(result) if json else say(_for_people(result, clf.training_.messages()))


def tell_plan(plan: Plan, *, force_memory: bool, in_shards: bool) -> None:
    """Print the plan in one line unless training is quick, and refuse a fit that cannot fit into memory."""
    if not progress.quiet and plan.seconds.likely >= TOLD_SECONDS:
        note(plan.short())
    needed = plan.needed_in_shards if in_shards else plan.needed_bytes.likely
    if needed > plan.free_bytes and not force_memory:
        raise InputError(
            f"training needs about {size(needed)} of memory, and {size(plan.free_bytes)} are free: "
            f"{'; '.join(plan.advice())}; or add --force-memory to try it nevertheless"
        )


def _for_people(result: dict[str, Any], messages: list[str]) -> Any:
    from longtail.report import Facts

    times = ("read", "compile", "train", "save") if result["compile_seconds"] >= 1 else ("read", "train", "save")
    return Facts(
        {
            **{key: result[key] for key in ("rows", "features", "labels", "weights")},
            "seconds": ", ".join(f"{word} {duration(result[f'{word}_seconds'])}" for word in times),
            "training": "; ".join(messages),
            "model": f"{result['model']} ({size(result['model_bytes'])})",
        }
    )


# --- the method ------------------------------------------------------------------------------------------------------


def method_class(name: str) -> type[ExtremeClassifier]:
    from longtail.methods import METHODS

    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}; known methods: {', '.join(METHODS)}")
    return METHODS[name]


def estimator_of(method: str, options: dict[str, Any], *, paper: bool = False) -> ExtremeClassifier:
    """The estimator with these parameters, or with the paper's and these, checked before a long file is read."""
    make = method_class(method)
    clf = make.paper(**options) if paper else make(**options)
    clf._check_all_parameters()
    return clf


def calibrate_texts(clf: ExtremeClassifier, dataset: Dataset, options: dict[str, Any], *, paper: bool) -> None:
    """Switch calibration on for texts, unless the command says otherwise or it would take as long as a fit."""
    from longtail.methods.calibrating import MIN_ROWS

    is_quick = clf._effort_of_repeating < 1 and dataset.n_samples >= MIN_ROWS
    if dataset.text_features is not None and is_quick and not paper and "calibrate" not in options:
        clf.set_params(calibrate=True)


def groups(words: list[str]) -> Groups:
    """The options of `train`. They depend on the method that is named among the words of the command line."""
    method = _method_in(words)
    return {
        "method_options": options_of(method_class(method)),
        "text_options": text_options(),
        "reading": [*READING, *NAMING],
    }


def _method_in(words: list[str]) -> str:
    """The value of `--method`. It must be known before the other options, which depend on it."""
    method = DEFAULT_METHOD
    for at, word in enumerate(words):
        if word == "--method" and words[at + 1 :]:
            method = words[at + 1]
        elif word.startswith("--method="):
            method = word.removeprefix("--method=")
    return method


# --- the folder ------------------------------------------------------------------------------------------------------


def check_target(model: str, *, force: bool) -> None:
    """Refuse a folder that cannot hold the model before training begins, not after it."""
    from longtail import folder

    target = Path(model)
    if folder.holds(target, folder.MODEL) and not force:
        raise ModelError(model, "holds a model already; add --force to replace it, or choose another folder")
    folder.check_target(target, folder.MODEL)
    there = next(path for path in (target, *target.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ModelError(model, f"cannot be written: {error.strerror or error}") from error


def check_run(run: str | None, model: str, workers: str) -> None:
    """Refuse a run folder or workers that cannot be meant so, before a long file is read."""
    from longtail import folder
    from longtail.parallel import Workers
    from longtail.runs import within

    Workers.of(workers)
    if run is None:
        return
    if os.path.abspath(run) == os.path.abspath(model):
        raise UsageError(f"--run and the model are both {run!r}; choose another folder for the run")
    for root in within(run):
        folder.check_target(root, folder.RUN)


def check_weights(weights: str | None) -> None:
    """Raise UsageError if there is no such form of weights."""
    from longtail.models.compact import FORMS

    if weights is not None and weights not in FORMS:
        raise UsageError(f"--save-weights takes {', '.join(FORMS)}, but got {weights!r}")


def save(clf: ExtremeClassifier, model: str, weights: str | None = None) -> float:
    """Save the model completely or not at all; returns the seconds that took."""
    from longtail import folder

    new = not os.path.exists(model)
    try:
        with step(f"Saving {model}") as saving:
            clf.save(model, weights=weights)
    except BaseException:
        if new and not folder.holds(model, folder.MODEL):
            shutil.rmtree(model, ignore_errors=True)
        raise
    return saving.seconds
