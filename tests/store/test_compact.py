"""Folders of compact weights: the same answers, mapped into memory, and nothing is trusted."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import folder
from longtail.errors import InputError, ModelError
from longtail.matrix import canonical_csr
from longtail.models import CompactModel, EnsembleModel, LinearModel, Mixture
from longtail.models.compact_weights import EIGHT_BIT, HALF
from longtail.models.sharded import divided
from longtail.store import Form, compact, form, index_size, read_model, stored_bytes, verify_index, write_model
from tests.models.test_compact import assert_same, long_tailed
from tests.models.test_sharded import decisions, rows, whole
from tests.store.forge import Forgery
from tests.store.samples import PROVENANCE, indexed_model
from tests.store.test_sharded import is_mapped


def some_model(**more) -> LinearModel:
    """Columns, lists, long gaps and a bias."""
    _, W = long_tailed(L=2000)
    return LinearModel(sp.csr_array(W), 40, 1.0, **more)


def save(root, model, weights):
    write_model(root, model, PROVENANCE, form=Form(weights))
    return root


@pytest.mark.parametrize("weights", [HALF, EIGHT_BIT])
def test_a_folder_gives_the_model_back(memory_path, weights):
    save(memory_path / "m", some_model(label_names=np.array([f"{i}" for i in range(2000)])), weights)
    found, _ = read_model(memory_path / "m")
    assert isinstance(found, CompactModel)
    assert found.weights.form == weights
    assert all(is_mapped(array) for array in found.weights if isinstance(array, np.ndarray) and array.size)
    assert not any(array.flags.writeable for array in found.weights if isinstance(array, np.ndarray))
    assert index_size(memory_path / "m") == 0
    assert verify_index(found, memory_path) == 0
    write_model(memory_path / "again", found, PROVENANCE)
    names = (folder.contents(memory_path / each, folder.MODEL)[1] for each in ("m", "again"))
    assert next(names) == next(names)
    in_memory, _ = read_model(memory_path / "m", mmap=False)
    X, _ = long_tailed()
    assert_same(found.predict_topk(X, 5), in_memory.predict_topk(X, 5))


def test_large_models_are_compact_by_default_where_nothing_is_lost(memory_path, monkeypatch):
    model, X = some_model(), long_tailed()[0]
    write_model(memory_path / "small", model, PROVENANCE)
    assert isinstance(read_model(memory_path / "small")[0], LinearModel)
    monkeypatch.setattr(form, "STORED_FROM", model.n_weights)
    write_model(memory_path / "m", model, PROVENANCE)
    found, _ = read_model(memory_path / "m")
    assert isinstance(found, CompactModel)
    assert_same(found.predict_topk(X, 5), model.predict_topk(X, 5))
    for how in (Form("float32"), Form(index=True), Form(index=False)):
        write_model(memory_path / "m", found if how.weights else model, PROVENANCE, form=how)
        again, _ = read_model(memory_path / "m")
        assert isinstance(again, LinearModel)
        assert (again.W != model.W).nnz == 0
    lossy = indexed_model(1000)
    monkeypatch.setattr(form, "STORED_FROM", 0)
    write_model(memory_path / "m", lossy, PROVENANCE)
    assert isinstance(read_model(memory_path / "m")[0], LinearModel)


@pytest.mark.parametrize("weights", [HALF, EIGHT_BIT])
@pytest.mark.parametrize("more", [{}, *decisions().values()], ids=["plain", *decisions()])
def test_shards_and_members_are_compact_too(memory_path, more, weights):
    one, X = whole(**more), rows()
    save(memory_path / "one", one, weights)
    save(memory_path / "many", divided(one, 700), weights)
    single, _ = read_model(memory_path / "one")
    many, _ = read_model(memory_path / "many")
    assert all(isinstance(shard, CompactModel) for shard in many.shards)
    if weights == HALF:  # in 8 bits a shard has its own steps
        assert_same(many.predict_topk(X, 7), one.predict_topk(X, 7))
        assert_same(single.predict_topk(X, 7), one.predict_topk(X, 7))
    if one.calibrator is not None:
        average = Mixture.average([one.calibrator, one.calibrator])
        members = EnsembleModel((one, divided(one, 700)), average, 10, one.n_features)
        save(memory_path / "both", members, weights)
        both, _ = read_model(memory_path / "both")
        assert isinstance(both.members[0], CompactModel)
        if weights == HALF:
            assert_same(both.predict_topk(X, 7), members.predict_topk(X, 7))


def test_an_estimator_saves_in_the_form_that_is_asked_for(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 8)), [[i % 5] for i in range(60)]
    clf = lt.OneVsAll(n_jobs=1).fit(X, y)
    top = clf.predict_topk(X, k=3)
    clf.save(tmp_path / "m", weights="half")
    found = lt.load(tmp_path / "m")
    assert isinstance(found.model_, CompactModel)
    assert_same(found.predict_topk(X, k=3), top)
    assert str(found.explain(X[:1], label=2)) == str(clf.explain(X[:1], label=2))
    np.testing.assert_allclose(found.decision_function(X), clf.decision_function(X), rtol=1e-5, atol=1e-6)
    merged = lt.merge([found, lt.OneVsAll(n_jobs=1).fit(X, [[i % 2 + 5] for i in range(60)])])
    assert_same(merged.predict_topk(X, k=1), merged.predict_topk(X, k=1))
    assert merged.model_.n_labels == 7
    with pytest.raises(InputError, match="weights must be 'float32', 'half', '8-bit' or None, but is 'int4'"):
        clf.save(tmp_path / "m", weights="int4")


# --- hostile folders -------------------------------------------------------------------------------------------------


def refused(root, weights, name, change, message) -> None:
    forgery = Forgery(save(root, some_model(), weights))
    forgery.edit(f"compact_{name}", change)
    forgery.seal()
    with pytest.raises(ModelError, match=message):
        read_model(root)


@pytest.mark.parametrize("weights", [HALF, EIGHT_BIT])
@pytest.mark.parametrize("name", sorted(compact.TYPES))
def test_an_array_that_is_missing_or_of_another_size_or_type_is_refused(memory_path, name, weights):
    root = memory_path / "m"
    for change in (
        lambda array: array[:-1] if len(array) else np.zeros(1, array.dtype),
        lambda array: array.astype(np.float64),
        lambda array: np.concatenate([array, np.ones((1, *array.shape[1:]), array.dtype)]),
    ):
        refused(root, weights, name, change, "compact_|a column and a list")
    forgery = Forgery(save(root, some_model(), weights))
    forgery.entries.pop(f"compact_{name}")
    forgery.seal()
    with pytest.raises(ModelError, match=f"lists no array compact_{name}"):
        read_model(root)


def put(place, value):
    def change(array):
        array.flat[place] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ends", put(-1, 10**9), "compact_ends does not span"),
        ("ends", put(0, 1), "compact_ends does not span"),
        ("ends", put(1, 2**62), "compact_ends decreases"),
        ("ends", put(5, -1), "compact_ends"),
        ("column_of", put(0, 10**6), "compact_column_of leaves the range"),
        ("column_of", put(0, -1), "compact_column_of leaves the range"),
        ("column_of", put(-1, 0), "both a column and a list"),
        ("gaps", put(slice(None), 255), "compact_gaps leaves the range of 2,000 labels"),
        ("gaps", put(1, 0), "compact_gaps has a 0 within a list"),
        ("weights", put(0, 0x7C00), "compact_weights holds NaN or infinity"),
        ("columns", put(0, 0xFE00), "compact_columns holds NaN or infinity"),
        ("columns", lambda array: array[:, :-64].copy(), "compact_columns has 1,984 numbers for 2,000 labels"),
        ("columns", lambda array: array.astype(np.uint8), "differ in their type"),
        ("bias_weights", put(3, np.nan), "compact_bias_weights holds NaN or infinity"),
    ],
)
def test_numbers_that_would_lead_kernels_astray_are_refused(memory_path, name, change, message):
    refused(memory_path / "m", HALF, name, change, message)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_steps_must_be_finite(memory_path, value):
    refused(memory_path / "m", EIGHT_BIT, "steps", put(0, value), "compact_steps holds NaN or infinity")


def test_shards_of_another_kind_than_their_arrays_are_refused(memory_path):
    forgery = Forgery(save(memory_path / "m", divided(whole(), 700), HALF))
    forgery.entries.pop("shard1_compact_gaps")
    forgery.seal()
    with pytest.raises(ModelError, match="lists no array compact_gaps"):
        read_model(memory_path / "m")


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_size_of_a_folder_is_known_from_the_number_of_weights_per_feature(memory_path, monkeypatch, half, shards):
    """Weights at random labels: some features have columns, some long lists, some short ones with fillers."""
    rng = np.random.default_rng(0)
    L, counts = 3000, np.array([0, 1, 2, 5, 20, 100, 300, 480, 900, 2000] * 20)
    labels = np.concatenate([rng.choice(L, count, replace=False) for count in counts])
    weights = rng.normal(size=len(labels)).astype(np.float16 if half else np.float32).astype(np.float32)
    features = np.repeat(np.arange(len(counts)), counts)
    model = LinearModel(canonical_csr(sp.csr_array((weights, (labels, features)), shape=(L, len(counts)))), len(counts))
    monkeypatch.setattr(form, "STORED_FROM", 1000)
    monkeypatch.setattr(form, "SHARD_BYTES", -(-8 * len(labels) // shards))
    whole = divided(model, -(-len(labels) // shards) + 60) if shards > 1 else model
    write_model(memory_path / "m", whole, PROVENANCE)
    own = [path for path in (memory_path / "m").iterdir() if re.search("W_|compact_", path.name)]
    size = sum(path.stat().st_size - 128 for path in own)
    assert (whole is model) == (shards == 1)
    assert stored_bytes(counts, L, half=half) == pytest.approx(size, rel=0.05)
