"""data.text_features: scikit-learn's numbers, saved and loaded to the bit, hostile folders refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from longtail.data.text_features import TextFeatures
from longtail.errors import InputError, ModelError

TEXTS = ["Hepatitis B virus", "vitamin C, vitamin C", "virus of type I", "", "Ärzte und Zähne 42"]
WHERE = Path("model.json")
UNUSABLE = "text features cannot be used: "
WRONG = "The '{}' parameter of TextFeatures must be {}. Got {} instead."
NGRAMS = "two whole numbers from 1 to 64, the shortest and the longest"
PARAMETERS = (
    "text features must have exactly the parameters analyzer, embedding_scale, embeddings, kind, lowercase, "
    "max_features, min_df, min_token_length, n_features, ngram_range, norm, sublinear_tf, use_idf"
)
NOTHING_LEFT = (
    "no term is left of 2 text(s) with analyzer='word', ngram_range=(1, 1), min_df={}, min_token_length=1; "
    "lower these, or check the texts"
)


def same(a: csr_array, b: csr_array) -> bool:
    parts = ("data", "indices", "indptr")
    return a.shape == b.shape and all(getattr(a, p).tobytes() == getattr(b, p).tobytes() for p in parts)


def reloaded(features: TextFeatures) -> TextFeatures:
    arrays, meta = features.to_arrays()
    return TextFeatures.from_arrays(arrays, json.loads(json.dumps(meta)), WHERE)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {"sublinear_tf": True, "token_pattern": r"(?u)\b\w+\b"}),
        ({"min_token_length": 2, "sublinear_tf": False}, {}),
        (
            {"min_token_length": 2, "ngram_range": (1, 2), "norm": "l1", "use_idf": False},
            {"ngram_range": (1, 2), "norm": "l1", "use_idf": False, "sublinear_tf": True},
        ),
        (
            {"analyzer": "char_wb", "ngram_range": (2, 4), "norm": "none", "lowercase": False},
            {"analyzer": "char_wb", "ngram_range": (2, 4), "norm": None, "lowercase": False, "sublinear_tf": True},
        ),
        (
            {"min_df": 2, "min_token_length": 2, "max_features": 1},
            {"min_df": 2, "max_features": 1, "sublinear_tf": True},
        ),
    ],
)
def test_weights_are_those_of_scikit_learn(ours, theirs):
    twin = TfidfVectorizer(**theirs)
    expected = twin.fit_transform(TEXTS)
    features = TextFeatures(**ours)
    X = features.fit_transform(TEXTS)
    assert isinstance(X, csr_array)
    assert X.dtype == np.float32
    np.testing.assert_allclose(X.toarray(), expected.toarray(), rtol=1e-6)
    assert features.get_feature_names_out().tolist() == twin.get_feature_names_out().tolist()
    assert features.n_features_out_ == X.shape[1]
    unseen = ["virus of a kind never seen", ""]
    np.testing.assert_allclose(features.transform(unseen).toarray(), twin.transform(unseen).toarray(), rtol=1e-6)


def test_hashing_has_a_fixed_number_of_columns_and_no_names():
    features = TextFeatures("hashing", n_features=64)
    X = features.fit_transform(TEXTS)
    assert X.shape == (5, 64)
    assert features.n_features_out_ == 64
    assert not hasattr(features, "get_feature_names_out")
    assert (X.data > 0).all()
    assert np.allclose(np.sqrt((X.multiply(X)).sum(axis=1)), [1, 1, 1, 0, 1])


def test_fit_transform_equals_fit_then_transform():
    for kind in ("tfidf", "hashing"):
        assert same(TextFeatures(kind).fit_transform(TEXTS), TextFeatures(kind).fit(TEXTS).transform(TEXTS))


def test_no_texts_give_no_rows():
    X = TextFeatures().fit(TEXTS).transform([])
    assert X.shape == (0, 12)
    assert X.dtype == np.float32


def test_any_iterable_of_texts_is_welcome():
    features = TextFeatures().fit(tuple(TEXTS))
    assert same(features.transform(iter(TEXTS)), features.transform(np.array(TEXTS, dtype=object)))


def test_clone_and_pipeline():
    features = TextFeatures(analyzer="char", ngram_range=(1, 3)).fit(TEXTS)
    copy = clone(features)
    assert copy.get_params() == features.get_params()
    assert not hasattr(copy, "n_features_out_")
    check_is_fitted(features)
    pipeline = make_pipeline(copy.set_params(analyzer="word", ngram_range=(1, 1)), RidgeClassifier())
    assert pipeline.fit(TEXTS, [0, 1, 0, 1, 1]).predict(["a virus"]).tolist() == [0]


# --- to disk and back ------------------------------------------------------------------------------------------------

parameters = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["tfidf", "hashing"]),
        "analyzer": st.sampled_from(["word", "char", "char_wb"]),
        "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 3)]),
        "min_token_length": st.integers(1, 2),
        "max_features": st.none() | st.integers(1, 20),
        "sublinear_tf": st.booleans(),
        "use_idf": st.booleans(),
        "norm": st.sampled_from(["l1", "l2", "none"]),
        "lowercase": st.booleans(),
        "n_features": st.sampled_from([1, 7, 1024]),
    }
)


@settings(deadline=None, max_examples=150)
@given(parameters, st.lists(st.text(max_size=30), min_size=1, max_size=6), st.lists(st.text(max_size=30), max_size=4))
def test_a_reloaded_pipeline_is_the_same_to_the_bit(params, texts, unseen):
    features = TextFeatures(**params)
    texts = [*texts, "some words to begin with"]
    features.fit(texts)
    again = reloaded(features)
    assert again.get_params() == {**features.get_params(), "ngram_range": tuple(features.ngram_range)}
    if features.kind == "tfidf":
        assert again.get_feature_names_out().tolist() == features.get_feature_names_out().tolist()
    assert same(again.transform(texts + unseen), features.transform(texts + unseen))
    assert again.same_as(features)
    assert features.same_as(again)


def test_same_as_sees_other_words_other_weights_and_other_parameters():
    features = TextFeatures().fit(TEXTS)
    assert features.same_as(features)
    assert not features.same_as(TextFeatures().fit([*TEXTS, "more"]))
    assert not features.same_as(TextFeatures().fit(TEXTS + TEXTS[:1]))
    assert not features.same_as(TextFeatures(norm="l1").fit(TEXTS))
    assert not features.same_as(TextFeatures())
    assert not features.same_as(None)


def damaged(**changes):
    arrays, meta = TextFeatures().fit(TEXTS).to_arrays()
    for name, value in changes.items():
        target = arrays if name.startswith("text_") else meta
        if value is None:
            del target[name]
        else:
            target[name] = value(target.get(name)) if callable(value) else value
    return arrays, meta


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"text_idf": None}, "lists no array text_idf"),
        ({"text_vocabulary_utf8": None}, "lists no array text_vocabulary_utf8"),
        ({"text_idf": lambda a: a[1:]}, "text_idf has 11 weights for 12 features"),
        ({"text_idf": lambda a: np.full_like(a, np.nan)}, "text_idf holds NaN or infinity"),
        ({"text_idf": lambda a: a.astype(np.float64)}, "array text_idf has dtype <f8 and 1 dimensions, not <f4 and 1"),
        ({"text_vocabulary_utf8": lambda a: np.full_like(a, 255)}, "text_vocabulary_utf8 is not UTF-8"),
        ({"text_vocabulary_utf8": lambda a: np.full_like(a, 65)}, "text_vocabulary is empty or holds a term twice"),
        (
            {"text_vocabulary_utf8": lambda a: a[:0], "text_vocabulary_offsets": lambda a: a[:1]},
            "text_vocabulary is empty or holds a term twice",
        ),
        ({"text_vocabulary_offsets": lambda a: a[::-1]}, "text_vocabulary_offsets does not divide 47 bytes"),
        ({"kind": "pickle"}, UNUSABLE + WRONG.format("kind", "one of 'tfidf', 'hashing'", "'pickle'")),
        ({"ngram_range": [1, 10**9]}, UNUSABLE + WRONG.format("ngram_range", NGRAMS, "[1, 1000000000]")),
        ({"min_token_length": 65}, UNUSABLE + WRONG.format("min_token_length", "at most 64", "65")),
        ({"n_features": 2**31}, UNUSABLE + WRONG.format("n_features", "at most 2147483646", "2147483648")),
        ({"use_idf": 1}, UNUSABLE + WRONG.format("use_idf", "True or False", "1")),
        ({"lowercase": None}, PARAMETERS),
        ({"token_pattern": "(a+)+$"}, PARAMETERS),
    ],
)
def test_hostile_arrays_and_parameters_are_refused(changes, reason):
    with pytest.raises(ModelError) as error:
        TextFeatures.from_arrays(*damaged(**changes), WHERE)
    assert str(error.value) == f"model.json: {reason}"


def test_parameters_that_are_no_object_are_refused():
    arrays, _ = TextFeatures().fit(TEXTS).to_arrays()
    for meta in ([], "tfidf", 3):
        with pytest.raises(ModelError, match="must have exactly the parameters"):
            TextFeatures.from_arrays(arrays, meta, WHERE)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a text", "one text was passed where several are expected; pass a list of texts: ['a text']"),
        (b"a text", "one text was passed where several are expected; pass a list of texts: [b'a text']"),
        (7, "texts must be a list of str, but int was passed; pass a list of texts"),
        ({"text": "a"}, "texts must be a list of str, but dict was passed; pass a list of texts"),
        (["a", float("nan")], "text 1 is missing (nan); put '' where there is no text, or drop the row"),
        ([["a"]], "text 0 is list, not str; convert it, or put '' where a text is missing"),
    ],
)
def test_what_is_no_list_of_texts(texts, message):
    fitted = TextFeatures().fit(TEXTS)
    for call in (fitted.transform, TextFeatures().fit, TextFeatures().fit_transform):
        with pytest.raises(InputError) as error:
            call(texts)
        assert str(error.value) == message


@pytest.mark.parametrize(
    ("params", "texts", "message"),
    [
        ({}, [], "there is no text to fit the features on; give at least one"),
        ({"min_df": 3}, ["a", "b"], "min_df=3 keeps terms of at least that many texts, but there are 2; lower it"),
        ({"min_df": 2}, ["a", "b"], NOTHING_LEFT.format(2)),
        ({}, ["", "?"], NOTHING_LEFT.format(1)),
        ({"kind": "hashing"}, ["", "?"], NOTHING_LEFT.format(1)),
        ({"analyzer": "words"}, TEXTS, WRONG.format("analyzer", "one of 'word', 'char', 'char_wb'", "'words'")),
        ({"norm": None}, TEXTS, WRONG.format("norm", "one of 'l2', 'l1', 'none'", "None")),
        ({"ngram_range": (2, 1)}, TEXTS, WRONG.format("ngram_range", NGRAMS, "(2, 1)")),
        ({"ngram_range": 2}, TEXTS, WRONG.format("ngram_range", NGRAMS, "2")),
        ({"min_df": 0}, TEXTS, WRONG.format("min_df", "a whole number of at least 1", "0")),
        ({"max_features": 0.5}, TEXTS, WRONG.format("max_features", "a whole number of at least 1", "0.5")),
    ],
)
def test_what_cannot_be_fitted(params, texts, message):
    features = TextFeatures(**params)
    with pytest.raises(InputError) as error:
        features.fit(texts)
    assert str(error.value) == message
    assert not hasattr(features, "n_features_out_")


def test_unfitted_features_say_so():
    new = TextFeatures()
    for call in (new.to_arrays, new.get_feature_names_out, lambda: new.transform(["a"])):
        with pytest.raises(NotFittedError, match="This TextFeatures instance is not fitted yet"):
            call()


# --- as scikit-learn's own -------------------------------------------------------------------------------------------


def test_a_pipeline_of_scikit_learn_takes_text_features():
    texts = ["red apple", "green apple", "red cherry", "yellow pear"] * 5
    pipeline = make_pipeline(TextFeatures(), LogisticRegression())
    search = GridSearchCV(pipeline, {"textfeatures__ngram_range": [(1, 1), (1, 2)]}, cv=2)
    search.fit(texts, [0, 0, 1, 2] * 5)
    assert search.predict(["cherry", "pear", "apple"]).tolist() == [1, 2, 0]
    assert "red apple" not in clone(pipeline).fit(texts, [0, 0, 1, 2] * 5)[:-1].get_feature_names_out()


@pytest.mark.parametrize("wrap", [tuple, np.array, pd.Series, pl.Series, iter])
def test_texts_of_every_kind_give_the_same_rows(wrap):
    features = TextFeatures().fit(wrap(TEXTS))
    assert features.get_feature_names_out().tolist() == TextFeatures().fit(TEXTS).get_feature_names_out().tolist()
    assert abs(features.transform(wrap(TEXTS)) - TextFeatures().fit_transform(TEXTS)).nnz == 0


def test_the_share_of_unknown_words(tmp_path):
    features = TextFeatures(min_df=1).fit(["apple pie", "apple tart"])
    assert features.unknown_share(["apple pear", "pie pie"]) == 0.25
    assert features.unknown_share([""]) is None
    arrays, meta = features.to_arrays()
    assert TextFeatures.from_arrays(arrays, meta, tmp_path).unknown_share(["tart plum"]) == 0.5
    assert TextFeatures(kind="hashing").fit(["apple"]).unknown_share(["pear"]) is None
