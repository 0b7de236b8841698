"""`longtail update MODEL DATA`: bring a model up to date with changed data, and train only what changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from longtail.cli.card import write_card
from longtail.cli.output import note, say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import Data, Json, Model, load_estimator, read_data
from longtail.cli.train import SaveWeights, check_target, check_weights, save
from longtail.words import duration

MUCH_UNKNOWN = 0.2  # share of unknown words from which a new text pipeline is advised


def update(
    model: Model,
    data: Data,
    retire: Annotated[
        list[str] | None,
        typer.Option("--retire", metavar="NAME", help="Never predict this label again; may be given several times."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="MODEL", help="Save here, and leave the old model as it is.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model that --output holds.")] = False,
    save_weights: SaveWeights = None,
    n_jobs: Annotated[int | None, typer.Option("--n-jobs", help="Number of threads. The default is all cores.")] = None,
    json: Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Bring MODEL up to date with changed data.

    DATA holds all rows as they are now, old and new. Labels and rows may have been added, removed or changed. A
    one-vs-all model trains only the labels that are touched, and the others keep their weights. Other models continue
    from their weights. All labels keep their numbers. Labels without rows are retired. The text pipeline stays.
    """
    from longtail.methods.updating import in_columns
    from longtail.models.compact_weights import EIGHT_BIT

    if output is not None:
        check_target(output, force=force)
    check_weights(save_weights)
    clf = load_estimator(model)
    if save_weights is None and getattr(clf.model_, "form", None) == EIGHT_BIT:
        save_weights = EIGHT_BIT  # as before
    clf.set_params(n_jobs=n_jobs)
    dataset, _ = read_data(data, reading, labelled=True)
    with step("Updating", "%") as updating:
        clf.update(dataset, retire=[_name(clf, name) for name in retire or ()], progress=updating.share)
    target = model if output is None else output
    save(clf, target, save_weights)
    names = dataset.label_names
    Y = dataset.Y if names is None else in_columns(dataset.Y, names, clf.classes_)
    write_card(target, train_Y=Y)
    entry = clf.history_[-1]
    if entry.get("unknown_words", 0) >= MUCH_UNKNOWN:
        note(
            f"Warning: {entry['unknown_words']:.0%} of the words are unknown to the text pipeline of the model; train "
            "a new model to learn them"
        )
    say_json({"model": target, **entry}) if json else say(_for_people(target, entry))


def _name(clf: Any, text: str) -> Any:
    """The name of a label as the model has it: a number if its labels are numbers."""
    from longtail.cli.reading import label_called

    return clf.classes_[label_called(clf, text)]


def _for_people(model: str, entry: dict[str, Any]) -> Any:
    from longtail.report import Facts

    return Facts({"model": model, **facts(entry)})


def facts(entry: dict[str, Any]) -> dict[str, str]:
    """An entry of the history, for people."""
    if entry["what"] != "update":
        return {"labels": f"{entry['labels']:,}, of {entry['models']} models"}
    found = {
        "rows": f"{entry['rows']:,} ({entry['rows_added']:,} added, {entry['rows_removed']:,} removed)",
        "labels": f"{entry['labels']:,} ({entry['labels_added']:,} added, {entry['labels_retired']:,} retired)",
        "trained": f"{entry['labels_trained']:,} labels in {duration(entry['seconds'])}",
    }
    if "unknown_words" in entry:
        found["unknown words"] = f"{entry['unknown_words']:.1%} of the texts"
    return found
