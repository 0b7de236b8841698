"""data.terms: the terms, counts and weights of scikit-learn, to the bit, for any text."""

from __future__ import annotations

import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer
from sklearn.utils import murmurhash3_32

from longtail.data import terms
from longtail.data.terms import Division, Learner, renumbered
from longtail.data.text_features import TextFeatures
from longtail.matrix import canonical_csr

ODD = "aZ_09 \t\n\r\x1c\x85\u00a0\u2003\u2028ßİΣςÄéñ\u2013“”`ªº²½①一\u0301\ud800"
signs = st.characters() | st.sampled_from(ODD)
texts_of = st.text(signs, max_size=40)
TEXTS = ["Hepatitis B virus", "vitamin C, vitamin C", "ΟΔΟΣ İstanbul \u2013 “naïve”", "", "  ", "x_1  x_1\n\nÄrzte"]


@settings(deadline=None, max_examples=300)
@given(texts_of, st.booleans())
@example("ΑΣ ΑΣ. İI\u0307 \ud800a", True)
def test_words_are_those_of_the_regular_expression(text, lowercase):
    assert terms.words(text, lowercase) == re.findall(r"\b\w+\b", text.lower() if lowercase else text)


@given(st.binary(max_size=40))
@example(b"")
@example(b"\xff" * 7)
def test_the_hash_is_that_of_scikit_learn(key):
    assert terms.murmurhash3(key) == murmurhash3_32(key)


def test_columns_are_the_same_whether_scikit_learn_is_there_or_not(monkeypatch):
    features = TextFeatures("hashing", n_features=1000).fit(TEXTS)
    wanted = features.transform(TEXTS)
    monkeypatch.setitem(sys.modules, "sklearn.utils.murmurhash", None)
    assert (features.transform(TEXTS) != wanted).nnz == 0


def theirs(params, texts, unseen):
    """The features of scikit-learn. Its weights are computed on canonical counts, because the norm depends on the order
    in which squares are added."""
    shared = {
        "analyzer": params["analyzer"],
        "ngram_range": params["ngram_range"],
        "lowercase": params["lowercase"],
        "dtype": np.float32,
        "token_pattern": rf"(?u)\b\w{{{params['min_token_length']},}}\b" if params["analyzer"] == "word" else None,
    }
    if params["kind"] == "hashing":
        counter = HashingVectorizer(n_features=params["n_features"], alternate_sign=False, norm=None, **shared)
    else:
        counter = CountVectorizer(min_df=params["min_df"], max_features=params["max_features"], **shared)
    norm = None if params["norm"] == "none" else params["norm"]
    weights = TfidfTransformer(norm=norm, use_idf=params["use_idf"], sublinear_tf=params["sublinear_tf"])
    counts = canonical_csr(counter.fit_transform(texts))
    weights.fit(counts)
    return weights.transform(counts), weights.transform(canonical_csr(counter.transform(unseen)))


def same(a, b) -> bool:
    parts = ("data", "indices", "indptr")
    return a.shape == b.shape and all(np.array_equal(getattr(a, p), getattr(b, p)) for p in parts)


parameters = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["tfidf", "hashing"]),
        "analyzer": st.sampled_from(["word", "char", "char_wb"]),
        "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 3), (3, 5)]),
        "min_token_length": st.integers(1, 3),
        "min_df": st.integers(1, 2),
        "max_features": st.none() | st.integers(1, 20),
        "sublinear_tf": st.booleans(),
        "use_idf": st.booleans(),
        "norm": st.sampled_from(["l1", "l2", "none"]),
        "lowercase": st.booleans(),
        "n_features": st.sampled_from([1, 7, 1024]),
    }
)


@settings(deadline=None, max_examples=150)
@given(
    parameters,
    st.lists(texts_of.filter(lambda text: "\ud800" not in text), max_size=6),
    st.lists(texts_of.filter(lambda text: "\ud800" not in text), max_size=4),
)
def test_features_are_those_of_scikit_learn_to_the_bit(params, texts, unseen):
    texts = [text.replace("\x00", "") for text in texts] + ["some words, some more words"] * 2
    features = TextFeatures(**params)
    fitted = features.fit_transform(texts)
    expected, expected_unseen = theirs(params, texts, [*unseen, "words"])
    found = features.transform([*unseen, "words"])
    assert same(fitted, expected)
    assert same(found, expected_unseen)
    assert same(features.transform(texts), fitted)
    for X in (fitted, found):
        assert X.dtype == np.float32
        assert csr_array((X.data, X.indices, X.indptr), shape=X.shape).has_canonical_format


@pytest.mark.parametrize("kind", ["tfidf", "hashing"])
def test_the_size_of_blocks_does_not_matter(kind, monkeypatch):
    texts = TEXTS * 7
    whole = TextFeatures(kind, max_features=9).fit(texts)
    monkeypatch.setattr(terms.blocks, "__defaults__", (4,))
    parts = TextFeatures(kind, max_features=9)
    assert same(parts.fit_transform(texts), whole.transform(texts))
    assert parts.same_as(whole)


def test_a_learner_takes_texts_as_they_come():
    division = Division(ngram_range=(1, 2))
    learner = Learner(division)
    counted = [learner.add(TEXTS[:2]), learner.add(TEXTS[2:])]
    found, column_of = learner.finish(min_df=1)
    assert learner.n_texts == len(TEXTS)
    assert found.names == sorted(found.names)
    rows = terms.Counts()
    rows.parts = [renumbered(part, column_of) for part in counted]
    assert same(rows.rows(found.n_columns), found.counts(TEXTS))


def test_hashed_columns_are_forgotten_and_found_again(monkeypatch):
    monkeypatch.setattr(terms, "HASHES_KEPT", 3)
    features = TextFeatures("hashing", n_features=64).fit(TEXTS)
    monkeypatch.undo()
    assert same(features.transform(TEXTS), TextFeatures("hashing", n_features=64).fit_transform(TEXTS))


@pytest.mark.parametrize("kind", ["tfidf", "hashing"])
def test_a_fitted_pipeline_can_be_pickled_after_use(kind):
    features = TextFeatures(kind).fit(TEXTS)
    X = features.transform(TEXTS)
    assert same(pickle.loads(pickle.dumps(features)).transform(TEXTS), X)
