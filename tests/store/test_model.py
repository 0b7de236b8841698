"""Models to disk and back: every field, every kind of name, and the same answers from memory and from mapped files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.exceptions import NotFittedError

import longtail
from longtail.data import TextFeatures
from longtail.data.embeddings import StaticEncoder
from longtail.errors import ModelError
from longtail.growth import Growth
from longtail.models import LinearModel
from longtail.models import index_kernels as kernels
from longtail.models.dense import DenseWeights
from longtail.store import Form, Provenance, model_id, model_size, read_model, write_model
from tests.data.test_embeddings import tokenizer_text
from tests.store.samples import (
    PROVENANCE,
    TEXTS,
    assert_same_model,
    assert_same_provenance,
    hashed_model,
    number_model,
    plain_model,
    save,
    text_model,
)
from tests.test_folder import contents, is_mapped

NUMBERS = st.floats(-(2.0**90), 2.0**90, width=32)
NAMES = {
    "none": st.none(),
    "range": st.just("range"),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "str": st.text(st.characters(exclude_categories=()), max_size=5),
}


@st.composite
def models(draw):
    n_labels, n_features = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    bias = draw(st.sampled_from([0.0, 1.0, 0.1]))
    W = draw(hnp.arrays(np.float32, (n_labels, n_features + (bias > 0)), elements=NUMBERS))
    W = W * draw(hnp.arrays(bool, W.shape))  # empty rows, empty matrices
    kind = draw(st.sampled_from(sorted(NAMES)))
    names = [draw(NAMES[kind]) for _ in range(n_labels)]
    if kind in ("none", "range"):
        label_names = None if kind == "none" else np.arange(n_labels)
    else:
        label_names = np.array(
            names, dtype=object if kind == "str" else {"int": int, "float": float, "bool": bool}[kind]
        )
    feature_names = draw(st.none() | st.lists(NAMES["str"], min_size=n_features, max_size=n_features))
    return LinearModel(sp.csr_array(W), n_features, bias, draw(st.booleans()), label_names, feature_names)


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=models(), n=st.integers(0, 2**60))
def test_models_come_back(memory_path, model, n):
    root = save(memory_path / str(n), model)
    first = contents(root)
    for mmap in (True, False):
        found, provenance = read_model(root, mmap=mmap)
        assert_same_model(found, model)
        assert_same_provenance(provenance, PROVENANCE)
        if found.label_names is not None and len(found.label_names):
            assert type(found.label_names.tolist()[0]) is type(model.label_names.tolist()[0])
    save(root, found)
    assert contents(root) == first  # saving what was loaded changes no byte
    assert model_size(root) == sum(map(len, first.values()))


@pytest.mark.parametrize("make", [plain_model, text_model, number_model, hashed_model])
def test_sample_models_come_back(tmp_path, make):
    found, provenance = read_model(save(tmp_path / "m", make()))
    assert_same_model(found, make())
    assert_same_provenance(provenance, PROVENANCE)
    save(tmp_path / "again", make())
    assert contents(tmp_path / "again") == contents(tmp_path / "m")


@pytest.mark.parametrize(
    "features",
    [
        TextFeatures(kind="hashing", n_features=8),
        TextFeatures(kind="hashing", n_features=8, use_idf=False, norm="none"),
        TextFeatures(analyzer="char_wb", ngram_range=(2, 3), lowercase=False),
        TextFeatures(use_idf=False, sublinear_tf=False, norm="l1"),
    ],
)
def test_every_text_pipeline_travels_along(tmp_path, features):
    n = features.fit(TEXTS).n_features_out_
    W = sp.csr_array(np.random.default_rng(0).normal(size=(3, n)).astype(np.float32))
    model = LinearModel(W, n, text_features=features, feature_names=_names(features))
    found, _ = read_model(save(tmp_path / "m", model))
    assert_same_model(found, LinearModel(W, n, text_features=features))  # the names are the pipeline's own
    assert not list((tmp_path / "m").glob("feature_names*"))
    assert found.feature_name(2) == model.feature_name(2)


def _names(features):
    return None if features.kind == "hashing" else list(features.get_feature_names_out())


def test_the_identity_of_a_model_ignores_times_alone(tmp_path):
    for name, seconds, C in (("a", 1.0, 2.0), ("b", 9.0, 2.0), ("c", 1.0, 3.0)):
        record = replace(PROVENANCE.training, wall_seconds=seconds, block_seconds=np.array([seconds], np.float32))
        write_model(tmp_path / name, plain_model(), Provenance("one-vs-all", {"C": C}, record))
    assert model_id(tmp_path / "a") == model_id(tmp_path / "b") != model_id(tmp_path / "c")
    write_model(tmp_path / "d", plain_model(seed=1), Provenance("one-vs-all", {"C": 2.0}, PROVENANCE.training))
    assert model_id(tmp_path / "d") != model_id(tmp_path / "a")


def test_feature_names_of_the_user_win_over_the_pipelines(tmp_path):
    model = text_model()
    named = LinearModel(model.W, 4, 1.0, feature_names=list("wxyz"), text_features=model.text_features)
    assert read_model(save(tmp_path / "m", named))[0].feature_names == list("wxyz")


@pytest.mark.parametrize("density", [0.15, 1.0])
@pytest.mark.parametrize("weights", ["int8", "float32"])
@pytest.mark.parametrize("n_buckets", [3, 300, 40_000])
def test_hashed_models_of_every_form_come_back(tmp_path, density, weights, n_buckets):
    model = hashed_model(density=density, weights=weights, n_buckets=n_buckets)
    assert (model.buckets.columns is None) == (density == 1.0)
    root = save(tmp_path / "m", model)
    assert (
        (root / "model.json").stat().st_size
        < model_size(root)
        < model.buckets.nbytes + model.hashes.table.nbytes + 6000
    )
    X = sp.csr_array(np.random.default_rng(1).random((20, 4)).astype(np.float32))
    wanted = model.predict_topk(X, 7)
    for mmap in (True, False):
        found, _ = read_model(root, mmap=mmap)
        assert_same_model(found, model)
        assert is_mapped(found.buckets.codes) == is_mapped(found.hashes.table) == mmap
        top = found.predict_topk(X, 7)
        assert (top.labels.tobytes(), top.scores.tobytes()) == (wanted.labels.tobytes(), wanted.scores.tobytes())
    save(tmp_path / "again", found)
    assert contents(tmp_path / "again") == contents(root)


# --- memory-mapped ---------------------------------------------------------------------------------------------------


def test_mapped_weights_stay_on_disk_and_answer_alike(tmp_path):
    rng = np.random.default_rng(3)
    model = LinearModel(
        sp.csr_array(rng.normal(size=(40, 21)).astype(np.float32)), 20, 1.0, label_names=np.arange(40) * 2
    )
    X = sp.csr_array(rng.normal(size=(30, 20)).astype(np.float32))
    mapped, loaded = (read_model(save(tmp_path / "m", model), mmap=mmap)[0] for mmap in (True, False))
    assert is_mapped(mapped.W.data)
    assert is_mapped(mapped.W.indices)
    assert is_mapped(mapped.label_names)
    assert not is_mapped(loaded.W.data)
    for array in (mapped.W.data, mapped.W.indices, loaded.W.data):
        assert not array.flags.writeable
        assert array.flags.aligned
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    for other in (mapped, loaded):
        for n_jobs in (1, 2):
            top, wanted = other.predict_topk(X, 7, n_jobs=n_jobs), model.predict_topk(X, 7)
            assert (top.labels.tobytes(), top.scores.tobytes()) == (wanted.labels.tobytes(), wanted.scores.tobytes())
        assert (other.predict_above(X) != model.predict_above(X)).nnz == 0
    assert len(kernels.top_rows.signatures) == 1  # no recompilation for mapped, read-only arrays
    assert len(kernels.rows_above.signatures) == 1


def test_the_mapped_model_outlives_its_replacement(tmp_path):
    old, new = plain_model(0), plain_model(1)
    mapped, _ = read_model(save(tmp_path / "m", old))
    save(tmp_path / "m", new)
    assert_same_model(mapped, old)
    assert_same_model(read_model(tmp_path / "m")[0], new)


# --- what can and cannot be saved ------------------------------------------------------------------------------------


def test_weights_in_any_form_are_saved_in_the_one_form(tmp_path):
    W = sp.csr_array((np.array([1.5, 1.0, 0.5, 3.0]), [2, 0, 2, 1], np.array([0, 3, 4], np.int64)), shape=(2, 3))
    found, _ = read_model(save(tmp_path / "m", LinearModel(W, 3)))
    assert found.W.toarray().tolist() == [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    assert W.indices.tolist() == [2, 0, 2, 1]  # the user's own stays as it was


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path, value):
    model = plain_model()
    model.W.data[1] = value
    with pytest.raises(ModelError, match="W_data holds NaN or infinity"):
        save(tmp_path / "m", model)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("names", "odd"),
    [
        ([("a", 1), ("b", 2)], r"\('a', 1\)"),
        (["a", 1], "1"),
        ([1, None], "1"),
        ([2**70, 1], str(2**70)),
        ([True, 1], "True"),
    ],
)
def test_names_that_no_file_holds_are_refused_and_the_old_model_stays(tmp_path, names, odd):
    root = save(tmp_path / "m", number_model())
    array = np.empty(2, object)
    array[:] = names
    with pytest.raises(ModelError, match=f"label name {odd} is neither a string nor a whole number of 64 bits"):
        save(root, LinearModel(sp.csr_array((2, 3), dtype=np.float32), 3, label_names=array))
    assert_same_model(read_model(root)[0], number_model())


def test_whole_numbers_as_objects_are_whole_numbers(tmp_path):
    W = sp.csr_array((2, 3), dtype=np.float32)
    for names in (np.array([5, 7], dtype=object), np.array([5, 7], np.uint64), np.array([5, 7], np.int8)):
        assert read_model(save(tmp_path / "m", LinearModel(W, 3, label_names=names)))[0].label_names.tolist() == [5, 7]
    with pytest.raises(ModelError, match="of 64 bits"):
        save(tmp_path / "m", LinearModel(W, 3, label_names=np.array([5, 2**63], np.uint64)))


def test_one_long_name_does_not_make_every_name_long(tmp_path):
    names = np.array(["x" * 10_000, *(f"label {i}" for i in range(2000))], dtype=object)
    model = LinearModel(sp.csr_array((len(names), 1), dtype=np.float32), 1, label_names=names)
    found, _ = read_model(save(tmp_path / "m", model))
    assert found.label_names.dtype == object  # as fixed-width strings: 80 MB
    assert found.label_names.tolist() == names.tolist()


def test_only_text_features_can_travel_along(tmp_path):
    class Pipeline:
        def transform(self, texts): ...

    with pytest.raises(ModelError, match="cannot save Pipeline as text pipeline; use TextFeatures"):
        save(tmp_path / "m", LinearModel(sp.csr_array((1, 1), dtype=np.float32), 1, text_features=Pipeline()))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        save(tmp_path / "m", LinearModel(sp.csr_array((1, 1), dtype=np.float32), 1, text_features=TextFeatures()))


def test_parameters_of_numpys_types_are_numbers(tmp_path):
    provenance = Provenance("one-vs-all", {"C": np.float32(0.5), "max_iter": np.int64(7), "prune": np.float64(0.25)})
    write_model(tmp_path / "m", plain_model(), provenance)
    assert read_model(tmp_path / "m")[1].params == {"C": 0.5, "max_iter": 7, "prune": 0.25}
    estimator = longtail.load(tmp_path / "m")
    assert (estimator.C, estimator.max_iter) == (0.5, 7)


# --- the documentation -----------------------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "model-folder.md"


GOLDEN = Path(__file__).parents[1] / "golden"


def listed(section: str) -> set[str]:
    """The first column of the tables of one section of the document."""
    text = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {row.split("`")[1] for row in text.splitlines() if row.startswith("| `")}


def hybrid_model() -> LinearModel:
    dense = DenseWeights(np.ones((2, 1), np.float16), np.array([1]))
    return LinearModel(sp.csr_array((2, 3), dtype=np.float32), 3, dense=dense)


def embedded_models() -> list[LinearModel]:
    """Models whose encoders travel inside the folder, and outside."""
    table = StaticEncoder(np.ones((5, 3), np.float32), tokenizer_text())
    pipelines = [TextFeatures(embeddings=each).fit(TEXTS) for each in (table, lambda texts: np.ones((len(texts), 2)))]
    widths = [pipeline.n_features_out_ for pipeline in pipelines]
    empty = [sp.csr_array((2, width), dtype=np.float32) for width in widths]
    return [LinearModel(W, W.shape[1], text_features=each) for W, each in zip(empty, pipelines, strict=True)]


def test_the_document_lists_the_members_that_are_written(tmp_path):
    manifest, meta, entries, arrays = set(), set(), set(), set()
    folders = [save(tmp_path / make.__name__, make()) for make in (plain_model, text_model, number_model, hashed_model)]
    folders += [path / "model" for path in GOLDEN.iterdir() if (path / "model").is_dir()]
    folders.append(save(tmp_path / "hybrid", hybrid_model()))
    write_model(tmp_path / "compact", number_model(), Provenance("one-vs-all"), form=Form(weights="8-bit"))
    folders.append(tmp_path / "compact")
    folders += [save(tmp_path / f"encoder {number}", model) for number, model in enumerate(embedded_models())]
    remembered = Growth(np.zeros(2, np.uint64), np.zeros(plain_model().n_labels, np.uint64), np.empty(0, np.int64))
    write_model(tmp_path / "grown", plain_model(), Provenance("one-vs-all", growth=remembered), form=Form(index=True))
    folders.append(tmp_path / "grown")
    for folder in folders:
        body = json.loads((folder / "model.json").read_bytes())
        manifest |= set(body)
        meta |= set(body["meta"])
        names = {re.sub(r"^shard\d+_", "", name) for name in body["arrays"]}
        arrays |= {"figure_…" if name.startswith("figure_") else name for name in names}
        entries |= {member for entry in body["arrays"].values() for member in entry}
    assert listed("Manifest") == manifest
    assert listed("Entries") == entries
    assert listed("Meta data") == meta
    own = {name for name in arrays if not name.startswith(("member", "shard"))}  # those of parts have a prefix
    assert listed("Arrays") == own | {"rule_offsets"}


def test_the_documents_example_is_what_is_written(tmp_path):
    example = DOCUMENT.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    assert example == (save(tmp_path / "m", number_model()) / "model.json").read_text()
