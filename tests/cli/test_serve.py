"""What the command line does for the service: cards and the warm-up. tests/serve has the service itself."""

from __future__ import annotations

import json

import numpy as np

from longtail import store


def test_training_and_evaluation_write_the_card(good, files, tmp_path):
    model = tmp_path / "model"
    good("train", files / "train.jsonl", model)
    card = store.read_card(model, store.model_id(model))
    assert card.data["training rows"] == 60
    assert card.frequency.sum() > 60
    assert card.metrics is None
    good("evaluate", model, files / "test.jsonl", "--train", files / "train.jsonl", "--card")
    card = store.read_card(model, store.model_id(model))
    assert card.data["test rows"] == 18
    assert card.metrics["overall"]["P@1"] > 0
    assert np.nanmax(card.quality) <= 1
    assert card.examples == []


def test_warmup(good, models):
    said = json.loads(good("warmup", models / "texts", models / "vectors", "--json"))
    assert said["seconds"] > 0
