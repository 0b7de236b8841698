"""`longtail data DATA`: summarise a dataset, parse it once, or split it into train and test."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.options import Groups
from longtail.cli.output import UsageError, note, say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import (
    NAMING,
    READING,
    Data,
    Json,
    divided,
    read_data,
    text_features,
    text_options,
    with_chosen_scale,
)
from longtail.errors import ModelError

PARTS = ("train", "test")  # folders of --split


def data(
    data: Data,
    save: Annotated[str | None, typer.Option("--save", metavar="FOLDER", help="Save the parsed data there.")] = None,
    split: Annotated[
        float | None,
        typer.Option("--split", metavar="FRACTION", help="With --save: this part becomes FOLDER/test."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the data that the folder of --save holds.")] = False,
    json: Json = False,
    *,
    reading: dict[str, Any],
    text_options: dict[str, Any],
) -> None:
    """Summarise DATA. Save it in a form that opens at once, or split it into train and test."""
    if split is not None and save is None:
        raise UsageError("--split needs --save FOLDER, which says where the two parts go")
    if save is not None:
        _check_targets([save] if split is None else [os.path.join(save, part) for part in PARTS], force)
    features = text_features(text_options)
    whole = save if split is None else None
    chosen = {} if features is None else {"text_features": features}
    dataset, _ = read_data(data, reading, save=whole, **chosen)
    scaled = with_chosen_scale(dataset, text_options)
    if whole is not None and scaled is not dataset:
        scaled.save(whole)
    dataset = scaled
    summary = dataset.summary()
    if whole is not None:
        note(f"Saved {dataset.n_samples:,} rows in {whole}")
    elif save is not None and split is not None:
        for name, part in zip(PARTS, divided(dataset, split), strict=True):
            target = os.path.join(save, name)
            with step(f"Saving {target}"):
                part.save(target)
            note(f"Saved {part.n_samples:,} rows in {target}")
    say_json(asdict(summary)) if json else say(summary)


def _check_targets(targets: list[str], force: bool) -> None:
    """Refuse folders that cannot hold the data before it is read."""
    from longtail import folder

    for target in targets:
        if folder.holds(target, folder.DATASET) and not force:
            raise ModelError(target, "holds data already; add --force to replace it, or choose another folder")
        folder.check_target(Path(target), folder.DATASET)


def groups(words: list[str]) -> Groups:
    """The options of `data`."""
    return {"reading": [*READING, *NAMING], "text_options": text_options()}
