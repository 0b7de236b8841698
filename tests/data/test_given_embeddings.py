"""Embeddings that were computed elsewhere: `read(dense=…)` and `--dense`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import longtail as lt
from longtail.data.embeddings import GivenVectors
from longtail.errors import DataError, InputError, ModelError
from longtail.hybrid import HybridRows

TEXTS = ["red apple", "green apple", "fast car", "slow car", "red car", "apple pie"]
LABELS = [["fruit"], ["fruit"], ["machine"], ["machine"], ["machine"], ["fruit"]]
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(6, 20)).astype(np.float32) + np.where([["fruit" in row] for row in LABELS], 2, -2)


@pytest.fixture
def files(tmp_path):
    rows = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    np.save(tmp_path / "train.npy", VECTORS.astype(np.float32))
    return tmp_path


def test_given_embeddings_are_centred_and_scaled_beside_words(files):
    data = lt.read(files / "train.jsonl", dense=files / "train.npy")
    words = lt.read(files / "train.jsonl")
    assert isinstance(data.X, HybridRows)
    assert (data.X.sparse[:, : words.n_features] != words.X).nnz == 0
    centred = VECTORS - VECTORS.mean(0)
    np.testing.assert_allclose(
        data.X.dense, 0.5 * centred / np.linalg.norm(centred, axis=1, keepdims=True), rtol=1e-4, atol=1e-6
    )
    assert data.feature_names[-1] == "given embeddings 19"


def test_a_model_of_texts_needs_their_embeddings_at_prediction_too(files):
    data = lt.read(files / "train.jsonl", dense=files / "train.npy")
    clf = lt.OneVsAll().fit(data)
    clf.save(files / "model")
    again = lt.load(files / "model")
    same = lt.read(files / "train.jsonl", like=again.model_, dense=VECTORS.astype(np.float32))
    np.testing.assert_array_equal(same.X.dense, data.X.dense)
    np.testing.assert_array_equal(again.predict_topk(same.X, 1).scores, clf.predict_topk(data.X, 1).scores)
    with pytest.raises(InputError, match=r"computed elsewhere, 20 numbers per text.*--dense"):
        again.predict_topk(["red apple"], 1)
    with pytest.raises(InputError, match=r"shape \(1, 3\), but 1 texts with 20"):
        again.model_.text_features.transform(["red apple"], np.zeros((1, 3), np.float32))
    assert not again.model_.takes_texts


def test_an_update_needs_rows_with_their_embeddings(files):
    data = lt.read(files / "train.jsonl", dense=files / "train.npy")
    clf = lt.OneVsAll().fit(data)
    with pytest.raises(InputError, match="pass rows in place of a Dataset"):
        clf.update(data)
    before = clf.model_.all_weights()
    clf.update(clf.model_.text_features.transform(TEXTS, VECTORS), LABELS)
    assert (clf.model_.all_weights() != before).nnz == 0


def test_vectors_are_used_as_they_are_and_stay_on_disk(tmp_path):
    rows = ["3 5 2", "0 0:1 4:2", "1 1:1", "0,1 2:3"]
    (tmp_path / "train.txt").write_text("\n".join(rows) + "\n")
    np.save(tmp_path / "train.npy", VECTORS[:3].astype(np.float32))
    data = lt.read(tmp_path / "train.txt", dense=tmp_path / "train.npy")
    np.testing.assert_array_equal(data.X.dense, VECTORS[:3].astype(np.float32))
    assert isinstance(data.X.dense.base, np.memmap) or isinstance(data.X.dense, np.memmap)
    assert data.n_features == 25
    (tmp_path / "test.txt").write_text("1:2\n")  # narrower than the training data
    test = lt.read(tmp_path / "test.txt", like=data, dense=VECTORS[:1].astype(np.float32))
    assert test.X.columns.tolist() == list(range(5, 25))
    np.testing.assert_array_equal(test.X.sparse.toarray()[0], [0, 2, 0, 0, 0] + 20 * [0])
    with pytest.raises(DataError, match="found 5 features and 22 of dense, but there are 25"):
        lt.read(tmp_path / "train.txt", like=data, dense=np.zeros((3, 22), np.float32))


def test_a_file_of_other_content_is_refused_without_advice_to_unpickle(files):
    (files / "noise.npy").write_bytes(bytes(range(200)))
    with pytest.raises(DataError, match=r"noise\.npy: is not an array of numbers.*no \.npy file") as caught:
        lt.read(files / "train.jsonl", dense=files / "noise.npy")
    assert "pickle" not in str(caught.value)


def test_rows_must_match(files):
    np.save(files / "short.npy", VECTORS[:4])
    with pytest.raises(DataError, match=r"short\.npy: found 4 rows, expected one for each of the 6 rows of .*train"):
        lt.read(files / "train.jsonl", dense=files / "short.npy")
    features = lt.TextFeatures(embeddings=lambda texts: np.ones((len(texts), 2)))
    with pytest.raises(InputError, match="encoder of its own"):
        lt.read(files / "train.jsonl", dense=files / "train.npy", text_features=features)
    with pytest.raises(InputError, match="fitted without given ones"):
        lt.TextFeatures().fit(TEXTS).transform(TEXTS, VECTORS)


@pytest.mark.parametrize(
    "meta",
    [{"kind": "given"}, {"kind": "given", "n_dims": 0}, {"kind": "given", "n_dims": True}, {"n_dims": 1}],
)
def test_damaged_meta_data_is_refused(meta, tmp_path):
    with pytest.raises(ModelError, match="n_dims"):
        GivenVectors.from_arrays({}, meta, tmp_path)


def test_a_divided_corpus_keeps_its_embeddings(files):
    from longtail.cli.reading import divided

    data = lt.read(files / "train.jsonl", dense=files / "train.npy")
    train, test = divided(data, 0.34)
    assert train.n_samples + test.n_samples == 6
    for part in (train, test):
        rows = [TEXTS.index(text) for text in part.texts]
        np.testing.assert_array_equal(part.X.dense, data.X.dense[rows])
        assert part.X.shape[1] == part.text_features.n_features_out_
    assert set(train.feature_names[:-20]) == {word for text in train.texts for word in text.split()}
