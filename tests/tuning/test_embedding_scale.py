"""The scale of embeddings: found on held-out rows, kept if nothing is clearly better, stored in data and model."""

from __future__ import annotations

import numpy as np
import pytest

import longtail as lt
from longtail.errors import InputError
from longtail.tuning import embedding_scale
from longtail.tuning.trials import Trial

WORDS = ["red", "green", "blue", "round", "square", "small", "large", "old", "new", "hot"]


def vectors(texts: list[str]) -> np.ndarray:
    """The vector of the first word: the label. The other words are noise."""
    table = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 20)), strict=True))
    return np.array([table.get(text.split()[0], np.ones(20)) for text in texts])


def noise(texts: list[str]) -> np.ndarray:
    """Vectors that say nothing about the label."""
    return np.array([np.random.default_rng(list(text.encode())).normal(size=40) for text in texts])


def data(encoder, n: int = 300, scale: float = 0.5) -> lt.Dataset:
    rng = np.random.default_rng(1)
    own = rng.integers(len(WORDS), size=n)
    said = np.where(rng.random(n) < 0.7, own, rng.integers(len(WORDS), size=n))  # some words are wrong
    texts = [" ".join([WORDS[k], *(f"w{word}" for word in rng.integers(400, size=6))]) for k in said]
    features = lt.TextFeatures(embeddings=encoder, embedding_scale=scale)
    return lt.Dataset.from_texts(texts, [[WORDS[k]] for k in own], text_features=features)


def test_embeddings_that_say_nothing_get_shorter():
    before = data(noise, scale=8.0)
    found = lt.choose_embedding_scale(before, n_jobs=1)
    scale = found.text_features.embedding_scale
    assert scale < 8
    np.testing.assert_allclose(np.linalg.norm(found.X.dense, axis=1), scale, rtol=1e-5)
    assert before.text_features.embedding_scale == 8
    again = found.text_features.transform(found.texts[:5])
    np.testing.assert_allclose(again.dense, found.X.dense[:5], rtol=1e-5)
    clf = lt.OneVsAll(n_jobs=1).fit(found)
    assert clf.model_.text_features.embedding_scale == scale


def test_the_scale_stays_if_no_other_is_clearly_better(monkeypatch):
    """Every scale has the same score; then a larger one is better, but not by more than the noise."""
    tried = []

    def fit_scores(scores):
        def made(method, params, n_rows, score, seconds, fold, groups):
            tried.append(params["factor"])
            gain, spread = scores(params["factor"])
            noisy = [gain + spread, gain - spread] * 5
            return Trial(method, params, n_rows, gain, seconds, fold, noisy)

        monkeypatch.setattr(embedding_scale, "Trial", made)
        tried.clear()
        return embedding_scale.best_factor(rows.X, rows.Y, n_jobs=1)

    rows = data(vectors, n=60)
    assert fit_scores(lambda factor: (0.5, 0.0)) == 1.0
    np.testing.assert_allclose(tried, [1, 0.5**0.5, 2**0.5])
    assert fit_scores(lambda factor: (0.5 + 0.01 * (factor > 1), 0.3 * (factor > 1))) == 1.0
    assert fit_scores(lambda factor: (factor / 10, 0.0)) == pytest.approx(4.0)
    np.testing.assert_allclose(tried, [1, 0.5**0.5, 2**0.5, 2, 2 * 2**0.5, 4])
    assert fit_scores(lambda factor: (-abs(factor - 0.5), 0.0)) == pytest.approx(0.5)
    np.testing.assert_allclose(tried, [1, 0.5**0.5, 2**0.5, 0.5, 0.5**1.5])


def test_the_sampled_labels_are_frequent_ones_mostly(monkeypatch):
    Y = lt.Dataset.from_texts(["a"] * 100, [["often"]] * 99 + [["seldom"]]).Y
    monkeypatch.setattr(embedding_scale, "N_LABELS", 1)
    drawn = [embedding_scale._some_labels(Y, np.random.RandomState(seed)).tolist() for seed in range(20)]
    assert drawn.count([0]) >= 18
    assert all(len(each) == 1 for each in drawn)


def test_data_without_embeddings_are_refused():
    plain = lt.Dataset.from_texts(["red", "green"], [["a"], ["b"]])
    with pytest.raises(InputError, match="texts with embeddings only"):
        lt.choose_embedding_scale(plain)
    with pytest.raises(InputError, match="no scale to change"):
        plain.with_embedding_scale(1.0)
    with pytest.raises(InputError, match="no scale to change"):
        plain.text_features.with_embedding_scale(1.0)
    with pytest.raises(InputError, match="at least two rows"):
        lt.choose_embedding_scale(data(vectors, n=1))
    with pytest.raises(InputError, match="embedding_scale"):
        data(vectors, n=2).with_embedding_scale(0.0)
