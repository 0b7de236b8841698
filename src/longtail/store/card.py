"""The card of a model: facts about its data, its metrics, and the frequency and quality of each label.

A card is the folder `card` in the model's folder. It stores the id of its model and is valid only for that model. The
card of an earlier model in the same folder is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from longtail import content, folder
from longtail.errors import ModelError

CARD = folder.Kind("card", "card.json")
NAME = "card"


@dataclass(frozen=True, eq=False)
class Card:
    """Facts about the model `model_id`. Every other field may be absent.

    data         facts about the training data, for people: name -> text or number
    metrics      metrics.Evaluation.as_dict() on rows that were not trained on
    reliability  "predicted", "observed" and "count" of bins of predicted probabilities
    examples     texts to try
    titles       the title of each label
    frequency    the number of training rows of each label
    quality      for each label, the share of its test rows that have it among their best labels; NaN without test rows
    """

    model_id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] | None = None
    reliability: Mapping[str, Any] | None = None
    examples: Sequence[str] = ()
    titles: Sequence[str] | None = None
    frequency: np.ndarray | None = None
    quality: np.ndarray | None = None


def write_card(model: str | os.PathLike[str], card: Card) -> None:
    """Write the card into the folder of its model, replacing an earlier card in one step."""
    arrays: dict[str, np.ndarray] = {}
    if card.titles is not None:
        packed = content.pack_strings(card.titles)
        arrays |= {"titles_utf8": packed["utf8"], "titles_offsets": packed["offsets"]}
    if card.frequency is not None:
        arrays["frequency"] = np.asarray(card.frequency, np.int64)
    if card.quality is not None:
        arrays["quality"] = np.asarray(card.quality, np.float32)
    meta = {
        "model_id": card.model_id,
        "data": dict(card.data),
        "metrics": None if card.metrics is None else dict(card.metrics),
        "reliability": None if card.reliability is None else dict(card.reliability),
        "examples": list(card.examples),
    }
    folder.write(Path(model) / NAME, CARD, arrays, meta)


def read_card(model: str | os.PathLike[str], model_id: str) -> Card | None:
    """Return the verified card of the model in this folder. None if there is no card, or only the card of another
    model."""
    root = Path(model) / NAME
    if not folder.holds(root, CARD):
        return None
    arrays, meta = folder.read(root, CARD)
    where = root / CARD.manifest
    if meta.get("model_id") != model_id:
        return None
    forms = {"data": dict, "metrics": dict | None, "reliability": dict | None, "examples": list}
    for name, kind in forms.items():
        if not isinstance(meta.get(name), kind):
            raise ModelError(where, f"member {name!r} is missing or of the wrong type")
    if not all(isinstance(text, str) for text in meta["examples"]):
        raise ModelError(where, "an example is not a text")
    titles = None
    if "titles_utf8" in arrays:
        utf8 = content.take(arrays, "titles_utf8", "|u1", 1, where)
        offsets = content.take(arrays, "titles_offsets", "<i8", 1, where)
        titles = content.unpack_strings(utf8, offsets, "titles", where)
    card = Card(
        model_id,
        data=meta["data"],
        metrics=meta["metrics"],
        reliability=meta["reliability"],
        examples=meta["examples"],
        titles=titles,
        frequency=content.take(arrays, "frequency", "<i8", 1, where) if "frequency" in arrays else None,
        quality=content.take(arrays, "quality", "<f4", 1, where) if "quality" in arrays else None,
    )
    lengths = {len(each) for each in (card.titles, card.frequency, card.quality) if each is not None}
    if len(lengths) > 1:
        raise ModelError(where, "titles, frequency and quality differ in length")
    return card
