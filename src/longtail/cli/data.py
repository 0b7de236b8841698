"""`longtail data DATA`: summarise a dataset, parse it once, or split it into train and test."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.options import Groups
from longtail.cli.output import UsageError, note, say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import NAMING, READING, Data, Json, read_data, text_features, text_options

if TYPE_CHECKING:
    from longtail.data import Dataset


def data(
    data: Data,
    save: Annotated[str | None, typer.Option("--save", metavar="FOLDER", help="Save the parsed data there.")] = None,
    split: Annotated[
        float | None,
        typer.Option("--split", metavar="FRACTION", help="With --save: this part becomes FOLDER/test."),
    ] = None,
    json: Json = False,
    *,
    reading: dict[str, Any],
    text_options: dict[str, Any],
) -> None:
    """Summarise DATA. Save it in a form that opens at once, or split it into train and test."""
    if split is not None and save is None:
        raise UsageError("--split needs --save FOLDER, which says where the two parts go")
    features = text_features(text_options)
    dataset, _ = read_data(data, reading, **({} if features is None else {"text_features": features}))
    summary = dataset.summary()
    if save is not None:
        parts = {save: dataset} if split is None else _divided(dataset, split, save)
        for folder, part in parts.items():
            with step(f"Saving {folder}"):
                part.save(folder)
            note(f"Saved {part.n_samples:,} rows in {folder}")
    say_json(asdict(summary)) if json else say(summary)


def _divided(dataset: Dataset, fraction: float, folder: str) -> dict[str, Dataset]:
    """Train and test parts. Features of texts are fitted on the training texts alone."""
    from sklearn.base import clone

    train, test = dataset.split(test_size=fraction)
    if dataset.text_features is not None and train.texts is not None and test.texts is not None:
        fitted = clone(dataset.text_features).fit(train.texts)
        train, test = (replace(part, X=fitted.transform(part.texts), text_features=fitted) for part in (train, test))
    return {os.path.join(folder, "train"): train, os.path.join(folder, "test"): test}


def groups(words: list[str]) -> Groups:
    """The options of `data`."""
    return {"reading": [*READING, *NAMING], "text_options": text_options()}
