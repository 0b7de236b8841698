"""Encoders: static tables against averaging by hand, any callable, sentence-transformers, and what is refused."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import longtail as lt
from longtail.data import embeddings
from longtail.data.embeddings import StaticEncoder, static
from longtail.data.embeddings.static_kernels import mean_vectors
from longtail.errors import DataError, InputError, MissingExtra, ModelError

pytest.importorskip("tokenizers")
safetensors = pytest.importorskip("safetensors.numpy")

WORDS = ["[UNK]", "red", "green", "apple", "pear"]
TABLE = np.arange(15, dtype=np.float32).reshape(5, 3) - 4


def tokenizer_text() -> str:
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
            "padding": None,
            "added_tokens": [],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
        }
    )


@pytest.fixture
def table_folder(tmp_path):
    folder = tmp_path / "fruit"
    folder.mkdir()
    safetensors.save_file({"embeddings": TABLE.astype(np.float16)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(tokenizer_text())
    return folder


def test_a_text_is_the_mean_of_its_tokens(table_folder):
    encoder = embeddings.encoder(table_folder)
    assert (encoder.name, encoder.n_dims) == ("fruit", 3)
    found = encoder.encode(["Red apple", "", "green green pear unknown"])  # longer than the file's truncation
    expected = [TABLE[[1, 3]].mean(axis=0), np.zeros(3), TABLE[[2, 2, 4, 0]].mean(axis=0)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32
    assert encoder.encode([]).shape == (0, 3)


def test_the_kernel_takes_means():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(7, 5)).astype(np.float32)
    tokens, ends = rng.integers(7, size=12).astype(np.uint32), np.array([0, 0, 4, 5, 12], np.uint64)
    out = np.empty((4, 5), np.float32)
    mean_vectors(tokens, ends, table, out)
    expected = [table[tokens[a:b]].mean(axis=0) if b > a else np.zeros(5) for a, b in [(0, 0), (0, 4), (4, 5), (5, 12)]]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_batches_do_not_change_a_vector(table_folder, monkeypatch):
    encoder = embeddings.encoder(str(table_folder))
    texts = ["red", "green apple", "pear"] * 5
    whole = encoder.encode(texts)
    monkeypatch.setattr(embeddings.static, "BATCH", 4)
    assert encoder.encode(texts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("scale", [1.0, 1 / 3])  # exact in half precision, and not
def test_a_static_encoder_travels_as_arrays(table_folder, tmp_path, scale):
    encoder = StaticEncoder(TABLE * np.float32(scale), tokenizer_text(), "fruit")
    arrays, meta = encoder.to_arrays()
    assert arrays["encoder_table"].dtype == (np.uint16 if scale == 1.0 else np.float32)
    again = embeddings.from_arrays(arrays, json.loads(json.dumps(meta)), tmp_path)
    assert again.name == "fruit"
    assert again.encode(["red pear"]).tobytes() == encoder.encode(["red pear"]).tobytes()


def damaged(arrays, meta, name, value):
    if name in arrays:
        arrays[name] = value
    else:
        meta[name] = value
    return arrays, meta


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kind", "pickle", "must be of a kind among static"),
        ("name", 3, "needs the members kind and name"),
        ("encoder_table", np.full((5, 3), np.inf, np.float32), "finite vectors"),
        ("encoder_table", np.zeros((4, 3), np.float32), "numbers tokens up to 4, but the table has 4 vectors"),
        ("encoder_table", np.zeros(5, np.float32), "1 dimensions"),
        ("encoder_tokenizer", np.frombuffer(b"{}", np.uint8), "the tokenizer cannot be read"),
        ("encoder_tokenizer", np.frombuffer(b"\xff\xfe", np.uint8), "cannot be used"),
    ],
)
def test_damaged_arrays_are_refused(table_folder, tmp_path, name, value, message):
    arrays, meta = damaged(*embeddings.encoder(table_folder).to_arrays(), name, value)
    with pytest.raises(ModelError, match=message):
        embeddings.from_arrays(arrays, meta, tmp_path)


def test_a_damaged_folder_is_refused(table_folder):
    (table_folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        embeddings.encoder(table_folder)


def test_two_tables_are_not_guessed_between(table_folder):
    safetensors.save_file({"a": TABLE, "b": TABLE}, table_folder / "model.safetensors")
    with pytest.raises(DataError, match="holds 2 matrices of floats; one table of vectors is needed"):
        embeddings.encoder(table_folder)


def test_a_sentence_transformers_folder_is_not_taken_for_a_table(table_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=FakeModel))
    (table_folder / "modules.json").write_text("[]")
    assert isinstance(embeddings.encoder(table_folder), StaticEncoder)
    safetensors.save_file({"embeddings": TABLE, "layer": TABLE, "bias": TABLE[0]}, table_folder / "model.safetensors")
    assert embeddings.encoder(table_folder).name == str(table_folder)


def test_missing_packages_are_named(table_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'longtail\[embed\]'"):
        embeddings.encoder(table_folder)


def lengths(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), len(text.split()), 1.0] for text in texts])


def test_a_callable_is_an_encoder_and_must_be_brought_back(tmp_path):
    encoder = embeddings.encoder(lengths)
    assert (encoder.name, encoder.n_dims) == ("lengths", 3)
    np.testing.assert_array_equal(encoder.encode(["ab c"]), [[4, 2, 1]])
    again = embeddings.from_arrays(*encoder.to_arrays(), tmp_path)
    assert again.n_dims == 3
    with pytest.raises(InputError, match=r"the function lengths, which a model folder cannot hold; call .*attach"):
        again.encode(["ab c"])
    assert again.to_arrays()[0]["encoder_probe"].tobytes() == encoder.to_arrays()[0]["encoder_probe"].tobytes()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: np.zeros(3), r"returned an array of shape \(3,\) for 1 texts"),
        (lambda texts: [["a"]], "not an array of numbers"),
        (lambda texts: np.full((len(texts), 2), np.nan), "returned NaN or infinity"),
    ],
)
def test_callables_must_return_one_vector_per_text(function, message):
    with pytest.raises(InputError, match=message):
        embeddings.encoder(function)


def test_another_source_is_refused():
    with pytest.raises(InputError, match="must be a folder, the name of a sentence-transformers model or a callable"):
        embeddings.encoder(3)


class FakeModel:
    """Has the interface of SentenceTransformer. The first letter of its name changes the vectors."""

    def __init__(self, name: str) -> None:
        if name == "nowhere":
            raise OSError("no such model")
        self.shift = len(name)

    def get_sentence_embedding_dimension(self) -> int:
        return 2

    def encode(self, texts, convert_to_numpy, show_progress_bar):
        return np.array([[len(text) + self.shift, -self.shift] for text in texts], np.float32)


def test_sentence_transformers_are_found_by_name_and_recognised(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=FakeModel))
    encoder = embeddings.encoder("mini")
    np.testing.assert_array_equal(encoder.encode(["ab"]), [[6, -4]])
    arrays, meta = encoder.to_arrays()
    again = embeddings.from_arrays(arrays, meta, tmp_path)
    np.testing.assert_array_equal(again.encode(["ab"]), [[6, -4]])
    other = embeddings.from_arrays(arrays, {**meta, "name": "a much longer name of a model"}, tmp_path)
    with pytest.raises(InputError, match="differs from the one of the training"):
        other.encode(["ab"])
    with pytest.raises(InputError, match="sentence-transformers cannot load 'nowhere': no such model"):
        embeddings.encoder("nowhere")


def test_without_sentence_transformers_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match="pip install sentence-transformers"):
        embeddings.encoder("all-MiniLM-L6-v2")


# --- in the text pipeline --------------------------------------------------------------------------------------------

TEXTS = ["red apple", "green pear", "red pear", "", "green apple apple"] * 6
LABELS = [["red", "apple"], ["pear"], ["red", "pear"], ["none"], ["apple"]] * 6


def test_columns_of_meaning_stand_beside_columns_of_words(table_folder):
    features = lt.TextFeatures(embeddings=str(table_folder), embedding_scale=0.25)
    X = features.fit_transform(TEXTS)
    assert isinstance(X, lt.HybridRows)
    assert X.shape == (30, 4 + 3)
    assert features.n_features_out_ == 7
    assert list(features.get_feature_names_out()) == ["apple", "green", "pear", "red", "fruit 0", "fruit 1", "fruit 2"]
    words = lt.TextFeatures().fit_transform(TEXTS)
    np.testing.assert_array_equal(X.sparse[:, :4].toarray(), words.toarray())
    vectors = embeddings.encoder(table_folder).encode(TEXTS)
    used = vectors.any(axis=1)
    centred = vectors - vectors[used].mean(axis=0)
    expected = 0.25 * centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(X.dense[used], expected[used], rtol=1e-5, atol=1e-6)
    assert not X.dense[~used].any()
    again = features.transform(TEXTS)
    assert again.dense.tobytes() == X.dense.tobytes()


def test_the_encoder_travels_inside_the_model(table_folder, tmp_path):
    clf = lt.OneVsAll(C=10).fit(TEXTS, LABELS, text_features=lt.TextFeatures(embeddings=str(table_folder)))
    clf.save(tmp_path / "model")
    for file in table_folder.iterdir():
        file.unlink()
    again = lt.load(tmp_path / "model")
    questions = ["green red pear", "apple", "nothing known", ""]
    assert again.predict_topk(questions, 3).scores.tobytes() == clf.predict_topk(questions, 3).scores.tobytes()
    assert [share.feature for share in again.explain("red apple").contributions].count("(fruit)") == 1
    assert again.model_.text_features.same_as(clf.model_.text_features)


def test_hashed_models_explain_the_encoder_as_one(table_folder):
    features = lt.TextFeatures(embeddings=str(table_folder))
    clf = lt.Mach(n_buckets=4, n_repetitions=3, max_iter=3).fit(TEXTS, LABELS, text_features=features)
    names = [share.feature for share in clf.explain("red apple").contributions]
    assert names.count("(fruit)") == 1
    assert not any(name.startswith("fruit") for name in names)


def test_a_dataset_keeps_the_embeddings(table_folder, tmp_path):
    data = lt.Dataset.from_texts(TEXTS, LABELS, text_features=lt.TextFeatures(embeddings=str(table_folder)))
    data.save(tmp_path / "data")
    again = lt.Dataset.open(tmp_path / "data")
    assert again.X.dense.tobytes() == data.X.dense.tobytes()
    np.testing.assert_array_equal(again.X.columns, [4, 5, 6])
    assert again.summary() == data.summary()
    train, test = again.split(0.3)
    assert train.X.dense.shape == (21, 3)
    assert test.n_features == 7
    top = lt.OneVsAll(C=10).fit(train).predict_topk(test, 2)
    assert top.labels.shape == (9, 2)


def test_texts_that_are_read_in_pieces_have_the_same_columns(table_folder, tmp_path):
    lines = (json.dumps({"text": text, "labels": names}) for text, names in zip(TEXTS, LABELS, strict=True))
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    features = lt.TextFeatures(embeddings=str(table_folder))
    whole = lt.read(tmp_path / "t.jsonl", text_features=features)
    pieces = lt.read(tmp_path / "t.jsonl", text_features=features, save=tmp_path / "data")
    assert pieces.X.dense.tobytes() == whole.X.dense.tobytes()
    assert pieces.X.sparse.data.tobytes() == whole.X.sparse.data.tobytes()
    test = lt.read(tmp_path / "t.jsonl", like=whole)
    assert test.X.dense.tobytes() == whole.X.dense.tobytes()


def test_a_function_is_attached_after_loading(tmp_path):
    clf = lt.OneVsAll(C=10).fit(TEXTS, LABELS, text_features=lt.TextFeatures(embeddings=lengths))
    clf.save(tmp_path / "model")
    again = lt.load(tmp_path / "model")
    with pytest.raises(InputError, match=r"call model_\.text_features\.attach"):
        again.predict_topk(["red"], 1)
    with pytest.raises(InputError, match="differs from the one of the training"):
        again.model_.text_features.attach(lambda texts: -lengths(texts))
    again.model_.text_features.attach(lengths)
    assert again.predict_topk(["red"], 2).scores.tobytes() == clf.predict_topk(["red"], 2).scores.tobytes()
    with pytest.raises(InputError, match="nothing to attach"):
        again.model_.text_features.attach(lengths)


def test_a_model_without_an_encoder_has_no_trace_of_it():
    arrays, meta = lt.TextFeatures().fit(TEXTS).to_arrays()
    assert not any(name.startswith("encoder") for name in arrays)
    assert "embeddings" not in meta


def test_the_scale_must_be_positive():
    with pytest.raises(InputError, match="'embedding_scale' parameter of TextFeatures must be a number above 0"):
        lt.TextFeatures(embeddings=lengths, embedding_scale=0).fit(TEXTS)


@pytest.mark.skipif(static.packaged_folder() is None, reason="wordllama is not installed")
def test_the_table_of_a_package_is_found_by_its_name(monkeypatch):
    features = lt.TextFeatures(embeddings="wordllama").fit(["a text", "another one"])
    assert features.n_features_out_ > 256
    assert features.encoder_of_column(features.n_features_out_ - 1) == "wordllama"
    monkeypatch.setattr(static, "packaged_folder", lambda: None)
    with pytest.raises(MissingExtra, match=r"wordllama.*longtail\[embed\]"):
        lt.TextFeatures(embeddings="wordllama").fit(["a text"])
