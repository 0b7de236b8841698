"""Cards: what is written is read, and a card counts only for its own model."""

from __future__ import annotations

import numpy as np
import pytest

from longtail import store
from longtail.errors import ModelError
from tests.serve.service import save, text_model


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "model", text_model())


def card_of(folder) -> store.Card:
    return store.Card(
        store.model_id(folder),
        data={"training rows": 7},
        metrics={"overall": {"P@1": 0.5}},
        examples=["a text", "ein Käse"],
        titles=["Knochen", "", "Lunge", "Haut"],
        frequency=np.array([3, 2, 1, 0]),
        quality=np.array([1.0, 0.5, np.nan, 0.0], np.float32),
    )


def test_what_is_written_is_read(model):
    written = card_of(model)
    store.write_card(model, written)
    read = store.read_card(model, written.model_id)
    assert read is not None
    assert (read.data, read.metrics, read.reliability) == (written.data, written.metrics, None)
    assert (list(read.examples), list(read.titles)) == (list(written.examples), list(written.titles))
    np.testing.assert_array_equal(read.frequency, written.frequency)
    np.testing.assert_array_equal(read.quality, written.quality)


def test_a_model_without_card(model):
    assert store.read_card(model, store.model_id(model)) is None


def test_the_card_of_an_earlier_model_is_ignored(model):
    store.write_card(model, card_of(model))
    save(model, text_model(2.0))
    assert store.read_card(model, store.model_id(model)) is None


def test_a_card_changes_nothing_of_its_model(model):
    before = store.model_id(model), store.model_size(model)
    store.write_card(model, card_of(model))
    assert (store.model_id(model), store.model_size(model)) == before


def test_a_damaged_card_is_refused_and_the_model_served_without(model, caplog):
    from longtail.serve.predictor import ServedModel

    store.write_card(model, card_of(model))
    path = next((model / "card").glob("frequency-*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ModelError, match="checksum is wrong"):
        store.read_card(model, store.model_id(model))
    served = ServedModel.load("model", model)
    assert served.card.frequency is None
    assert "is served without its card" in caplog.text


def test_a_card_of_other_sizes_is_ignored(model, caplog):
    from longtail.serve.predictor import ServedModel

    store.write_card(model, store.Card(store.model_id(model), frequency=np.arange(9)))
    assert ServedModel.load("model", model).card.frequency is None
    assert "describes 9 labels, not 4" in caplog.text


def test_arrays_of_a_card_must_agree(model):
    store.write_card(model, store.Card(store.model_id(model), frequency=np.arange(4), titles=["a"]))
    with pytest.raises(ModelError, match="differ in length"):
        store.read_card(model, store.model_id(model))
