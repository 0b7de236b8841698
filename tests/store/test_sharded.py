"""Folders with an index and with shards: the same answers, one copy in memory, and nothing is trusted."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import folder
from longtail.errors import ModelError
from longtail.models import EnsembleModel, LinearModel, Mixture, Rules, ShardedModel
from longtail.models.sharded import divided
from longtail.store import Shelf, index, index_size, linear, model_id, model_size, read_model, verify_index
from tests.models.test_sharded import decisions, rows, whole
from tests.store.forge import Forgery
from tests.store.samples import PROVENANCE, indexed_model, save, sharded_model

X = sp.csr_array(np.random.default_rng(3).random((20, 6)).astype(np.float32))


def is_mapped(array: np.ndarray) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def forbid_making_lists(monkeypatch) -> None:
    def made(*_):
        raise AssertionError("the index was made, not read")

    monkeypatch.setattr("longtail.models.index._columns", made)


# --- the index -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_labels", [40, 1000])
def test_a_stored_index_is_the_one_that_would_be_made(memory_path, monkeypatch, n_labels):
    model = indexed_model(n_labels)
    save(memory_path / "m", model, index=True)
    found, _ = read_model(memory_path / "m")
    top = model.predict_topk(X, 9)
    forbid_making_lists(monkeypatch)
    for name, mine, wanted in zip(found.index._fields, found.index, model.index, strict=True):
        np.testing.assert_array_equal(mine, wanted, err_msg=name)
        assert getattr(mine, "dtype", None) == getattr(wanted, "dtype", None)
    assert len(found.index.codes) == 1
    assert (len(found.index.spill_labels) > 0) == (n_labels > 300)
    assert found.predict_topk(X, 9) == top


def test_its_arrays_are_mapped_and_read_only(memory_path):
    save(memory_path / "m", indexed_model(1000), index=True)
    found, _ = read_model(memory_path / "m")
    large = ("weights", "labels", "ends", "codes", "column_of", "spill_weights", "spill_labels", "W_data", "W_indices")
    assert all(is_mapped(getattr(found.index, name)) for name in large)
    assert not any(array.flags.writeable for array in found.index if isinstance(array, np.ndarray))
    in_memory, _ = read_model(memory_path / "m", mmap=False)
    assert not any(is_mapped(getattr(in_memory.index, name)) for name in large)


def test_only_large_models_are_stored_with_it_unless_it_is_wanted(memory_path, monkeypatch):
    model = indexed_model()
    names = {}
    for wanted in (None, False, True):
        root = save(memory_path / str(wanted), model, index=wanted)
        names[wanted] = {name for name in folder.contents(root, folder.MODEL)[1] if name.startswith("index_")}
    assert names[None] == names[False] == set()
    assert names[True] == {f"index_{name}" for name in index.TYPES}
    monkeypatch.setattr(linear, "STORED_FROM", model.n_weights)
    assert len(folder.contents(save(memory_path / "large", model), folder.MODEL)[1]) == 3 + 2 + 10 + 6


def test_the_index_counts_neither_for_the_name_nor_for_the_size(memory_path):
    one = save(memory_path / "with", indexed_model(), index=True)
    two = save(memory_path / "without", indexed_model(), index=False)
    assert model_id(one) == model_id(two)
    assert index_size(two) == 0
    assert index_size(one) > 0
    listed = sum(path.stat().st_size for path in one.iterdir())
    assert model_size(one) + index_size(one) == listed


def test_rules_and_other_weights_use_the_lists_only_where_they_fit(memory_path, monkeypatch):
    from dataclasses import replace

    model = indexed_model()
    save(memory_path / "m", model, index=True)
    found, _ = read_model(memory_path / "m")
    other = found.W.copy()
    other.data *= -1
    wanted = LinearModel(other, 6, 1.0).predict_topk(X, 5)
    assert replace(found, W=other).predict_topk(X, 5) == wanted  # the stored lists are those of another W
    assert found.slice(3, 20).predict_topk(X, 5) == model.slice(3, 20).predict_topk(X, 5)
    rules = Rules(np.where(np.arange(40) % 2, 0.5, -np.inf).astype(np.float32))
    wanted = replace(model, rules=rules).predict_topk(X, 5)
    forbid_making_lists(monkeypatch)
    assert replace(found, rules=rules).predict_topk(X, 5) == wanted


@pytest.mark.parametrize("name", sorted(index.TYPES))
def test_an_index_that_lacks_an_array_or_has_a_wrong_one_is_refused(memory_path, name):
    root = save(memory_path / "m", indexed_model(1000), index=True)
    forgery = Forgery(root)
    array = forgery.array(f"index_{name}")
    for wrong in (None, array[:-1], array.astype(np.float64), np.concatenate([array, array])):
        forgery = Forgery(save(root, indexed_model(1000), index=True))
        forgery.entries.pop(f"index_{name}") if wrong is None else forgery.put(f"index_{name}", wrong)
        forgery.seal()
        with pytest.raises(ModelError, match=f"index_({name}|spill_|steps|codes|labels)"):
            read_model(root)


OUTSIDE = {
    "labels": [-1, 1000, 2**31 - 1],
    "spill_labels": [-1, 1000, 2**31 - 1],
    "column_of": [-1, 2, 2**31 - 1],
    "ends": [-1, 10**9, 2**62],
    "spill_ends": [-1, 10**9, 2**62],
}


@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("name", OUTSIDE)
def test_numbers_that_would_lead_kernels_astray_are_refused(memory_path, name, place):
    for value in OUTSIDE[name]:
        forgery = Forgery(save(memory_path / "m", indexed_model(1000), index=True))
        array = forgery.array(f"index_{name}").copy()
        array[place] = value
        forgery.put(f"index_{name}", array)
        forgery.seal()
        with pytest.raises(ModelError, match=f"index_{name}"):
            read_model(memory_path / "m")


def test_verify_finds_an_index_of_other_weights(memory_path):
    model = whole(**{key: value for key, value in decisions()["calibrated"].items() if key == "calibrator"})
    many = divided(model, 900)
    ensemble = EnsembleModel((model, many), Mixture.average(2 * [model.calibrator]), 10, model.n_features)
    where = memory_path / "m" / "model.json"
    for each, count in ((model, 1), (many, len(many.shards)), (ensemble, 1 + len(many.shards))):
        save(memory_path / "m", each, index=True)
        assert verify_index(read_model(memory_path / "m")[0], where) == count
    save(memory_path / "m", model, index=False)
    assert verify_index(read_model(memory_path / "m")[0], where) == 0
    for name in ("index_weights", "index_peaks"):
        forgery = Forgery(save(memory_path / "m", model, index=True))
        forgery.edit(name, lambda array: array * 2)
        forgery.seal()
        with pytest.raises(ModelError, match=f"{name} does not belong to the weights"):
            verify_index(read_model(memory_path / "m")[0], where)


# --- shards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_index", [False, True])
@pytest.mark.parametrize("more", [{}, *decisions().values()], ids=["plain", *decisions()])
def test_a_sharded_folder_gives_the_answers_of_the_whole_model(memory_path, more, with_index):
    one = whole(**more)
    save(memory_path / "m", divided(one, 300), index=with_index)
    many, provenance = read_model(memory_path / "m")
    assert isinstance(many, ShardedModel)
    assert len(many.shards) > 3
    assert provenance.method == PROVENANCE.method
    for k in (1, 7, 400):
        assert many.predict_topk(rows(), k) == one.predict_topk(rows(), k)
    np.testing.assert_array_equal(many.scores(rows(), np.arange(300)), one.scores(rows(), np.arange(300)))
    assert (many.predict_labels(rows()) != one.predict_labels(rows())).nnz == 0
    assert many.explain(rows()[[0]], 123) == one.explain(rows()[[0]], 123)
    assert all((shard.stored is not None) == with_index for shard in many.shards)
    assert all(is_mapped(shard.W.data) for shard in many.shards if shard.n_weights)


def test_a_loaded_folder_saves_the_same_bytes(memory_path):
    save(memory_path / "m", sharded_model(), index=True)
    again, _ = read_model(memory_path / "m")
    save(memory_path / "n", again, index=True)
    for path in (memory_path / "m").iterdir():
        assert (memory_path / "n" / path.name).read_bytes() == path.read_bytes()
    assert model_id(memory_path / "m") == model_id(memory_path / "n")


def test_a_sharded_member_of_an_ensemble(memory_path):
    one = whole(**{key: value for key, value in decisions()["calibrated"].items() if key == "calibrator"})
    members = one, divided(one, 300)
    ensemble = EnsembleModel(members, Mixture.average(2 * [one.calibrator]), 10, one.n_features)
    save(memory_path / "m", ensemble, index=True)
    found, _ = read_model(memory_path / "m")
    assert [type(member) for member in found.members] == [LinearModel, ShardedModel]
    assert found.predict_topk(rows(), 5) == ensemble.predict_topk(rows(), 5)


SHARDS = {
    "no shards": (lambda f: f.meta.pop("shards"), "member 'shards' is missing"),
    "none": (lambda f: f.meta.update(shards=[]), "a list of 1 to 256 numbers"),
    "too many": (lambda f: f.meta.update(shards=[1, 2, 2, 0]), "lists no array W_data"),
    "more than are allowed": (lambda f: f.meta.update(shards=[0] * 257), "a list of 1 to 256 numbers"),
    "not numbers": (lambda f: f.meta.update(shards=[1, True, 3]), "a list of 1 to 256 numbers"),
    "negative": (lambda f: f.meta.update(shards=[1, -2, 6]), "a list of 1 to 256 numbers"),
    "huge": (lambda f: f.meta.update(shards=[1, 2**62, 2]), "a list of 1 to 256 numbers"),
    "of other labels": (lambda f: f.meta.update(shards=[1, 2, 3]), "the shards have 6 labels, but the model has 5"),
    "in another order": (lambda f: f.meta.update(shards=[2, 1, 2]), "W_indptr does not span 2 rows"),
    "one shard is gone": (lambda f: f.entries.pop("shard1_W_indptr"), "lists no array W_indptr"),
    "a shard of another model": (lambda f: f.put("shard2_W_indices", np.array([1, 0, 9, 2], np.int32)), "W_indices"),
}


@pytest.mark.parametrize("name", SHARDS)
def test_a_forged_sharded_folder_is_refused(memory_path, name):
    forge, message = SHARDS[name]
    root = save(memory_path / "m", sharded_model(), index=True)
    forgery = Forgery(root)
    forge(forgery)
    forgery.seal()
    for mmap in (True, False):
        with pytest.raises(ModelError, match=message):
            read_model(root, mmap=mmap)


def test_the_largest_number_of_shards_fits_into_the_manifest(memory_path):
    piece = LinearModel(sp.csr_array(np.array([[1.0, 2.0]], np.float32)), 2)
    save(memory_path / "m", ShardedModel((piece,) * 256, 2), index=True)
    assert len(read_model(memory_path / "m")[0].shards) == 256
    with pytest.raises(ModelError, match="257 shards are more than 256"):
        save(memory_path / "n", ShardedModel((piece,) * 257, 2))


def test_a_shelf_gives_back_mapped_shards(memory_path, monkeypatch):
    shelf, model = Shelf(memory_path / "shards"), indexed_model(1000)
    found = [shelf.put(model), shelf.put(LinearModel(model.W[:0], 6, 1.0)), shelf.put(model)]
    top = model.predict_topk(X, 4)
    forbid_making_lists(monkeypatch)
    assert [shard.n_labels for shard in found] == [1000, 0, 1000]
    assert is_mapped(found[0].W.data)
    assert found[2].predict_topk(X, 4) == top
    assert sorted(path.name for path in (memory_path / "shards").iterdir()) == ["0000", "0001", "0002"]


def test_an_estimator_is_loaded_from_shards(memory_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"word{j}" for j in rng.integers(20, size=6)) for _ in range(60)]
    labels = [[f"label{j}" for j in rng.integers(12, size=2)] for _ in range(60)]
    one, many = (longtail.OneVsAll().fit(texts, labels, shard_size=size) for size in (None, 400))
    many.save(memory_path / "m", index=True)
    many = longtail.load(memory_path / "m")
    assert isinstance(one.model_, LinearModel)
    assert len(many.model_.shards) > 2
    assert many.predict_topk(texts, 4) == one.predict_topk(texts, 4)
    np.testing.assert_array_equal(many.decision_function(texts), one.decision_function(texts))
    assert (many.predict(texts) != one.predict(texts)).nnz == 0
    assert str(many.explain(texts[0], "label3")) == str(one.explain(texts[0], "label3"))
