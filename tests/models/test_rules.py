"""Rules and thresholds in models, against dense twins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.models import HashedModel, LinearModel, Rules, Thresholds
from longtail.models.buckets import LinearBuckets
from longtail.models.hashing import Hashes
from longtail.models.index_kernels import score_pairs
from longtail.topk import TopK
from tests import reference

N_LABELS, N_FEATURES = 70, 8


def linear(seed: int) -> LinearModel:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(N_LABELS, N_FEATURES + 1)) * (rng.random((N_LABELS, N_FEATURES + 1)) < 0.7)
    return LinearModel(sp.csr_array(W.astype(np.float32)), N_FEATURES, 1.0)


def hashed(seed: int, aggregate: str = "geometric") -> HashedModel:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(N_FEATURES + 1, 3 * 10))
    codes = W.astype(np.float32).ravel()
    ends = np.arange(N_FEATURES + 2, dtype=np.uint64) * 30
    buckets = LinearBuckets.of(ends.view(np.int64), codes, None, np.ones(3, np.float32), 10, 1.0, "softmax")
    a, b = rng.integers(1, 2**31 - 1, 3), rng.integers(0, 2**31 - 1, 3)
    return HashedModel(Hashes(a, b, N_LABELS, 10), buckets, N_FEATURES, aggregate)


MODELS = {"linear": linear, "geometric": hashed, "median": lambda seed: hashed(seed, "median")}


def rows(seed: int, n: int = 25) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.normal(size=(n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < 0.6)).astype(np.float32))


def random_rules(seed: int) -> Rules:
    rng = np.random.default_rng(seed)
    offsets = rng.normal(size=N_LABELS).astype(np.float32) * (rng.random(N_LABELS) < 0.5)
    offsets[rng.permutation(N_LABELS)[: rng.integers(0, N_LABELS - 1)]] = -np.inf
    return Rules(offsets)


@pytest.mark.parametrize("kind", MODELS)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), k=st.integers(1, N_LABELS))
def test_rules_are_exact(kind, seed, k):
    plain, X, rules = MODELS[kind](seed), rows(seed + 1), random_rules(seed + 2)
    dense = plain.scores(X, np.arange(N_LABELS))
    ruled = dense * np.exp(rules.offsets) if plain.log_scores else dense + rules.offsets
    allowed = rules.offsets > -np.inf
    model = replace(plain, rules=rules)
    top = model.predict_topk(X, k)
    assert top.labels.shape == (25, min(k, allowed.sum()))
    assert allowed[top.labels].all()
    np.testing.assert_allclose(top.scores, -np.sort(-ruled[:, allowed], axis=1)[:, :k], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(top.scores, np.take_along_axis(ruled, top.labels, axis=1), rtol=1e-4, atol=1e-5)
    limit = float(np.median(ruled[:, allowed])) + 1e-3
    above = model.predict_above(X, limit).toarray() > 0
    certain = np.abs(ruled - limit) > 1e-4
    np.testing.assert_array_equal(above[certain], (ruled > limit)[certain])
    np.testing.assert_allclose(model.scores(X, [0, 5])[:, 1], ruled[:, 5], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_pairs_have_the_scores_of_all_labels(kind):
    model, X = MODELS[kind](0), rows(1)
    labels = np.random.default_rng(2).integers(0, N_LABELS, (25, 6))
    expected = np.take_along_axis(model.scores(X, np.arange(N_LABELS)), labels, axis=1)
    found = model.index.batch(X).pairs(np.repeat(np.arange(25), 6), labels.ravel())
    np.testing.assert_allclose(found.reshape(25, 6), expected, rtol=1e-5, atol=1e-6)


def test_pairs_of_a_linear_model_have_the_bits_of_its_twin():
    model, X = linear(3), rows(4)
    labels = np.random.default_rng(5).integers(0, N_LABELS, (25, 9))
    expected = np.take_along_axis(reference.scores(X.toarray(), model.W.toarray(), 1.0), labels, axis=1)
    found = np.empty(labels.size, np.float32)
    pairs = np.repeat(np.arange(25), 9), labels.ravel()
    found[:] = model.index.bias_scores[pairs[1]]
    score_pairs(model.index.rows(X), model.index, pairs[0], pairs[1].astype(np.uint32), found)
    np.testing.assert_array_equal(found, expected.ravel())
    np.testing.assert_array_equal(model.index.batch(X).pairs(*pairs), expected.ravel())


def test_an_explanation_shows_the_offset():
    offsets = np.zeros(N_LABELS, np.float32)
    offsets[4] = 0.75
    X = rows(1)
    before = linear(0).explain(X[[2]], 4)
    after = replace(linear(0), rules=Rules(offsets)).explain(X[[2]], 4)
    assert after.offset == 0.75
    assert after.score == pytest.approx(before.score + 0.75)
    assert "(rule)" in str(after)
    assert "(rule)" not in str(before)


@pytest.mark.parametrize("offsets", [np.full(3, -np.inf), np.array([0, np.nan]), np.array([np.inf]), np.zeros((2, 2))])
def test_impossible_rules_are_refused(offsets):
    with pytest.raises(InputError):
        Rules(offsets.astype(np.float32))


def test_rules_of_other_labels_are_refused():
    with pytest.raises(InputError, match="3 labels"):
        replace(linear(0), rules=Rules(np.zeros(3, np.float32)))


# --- thresholds ------------------------------------------------------------------------------------------------------


def test_labels_above_the_threshold_are_predicted():
    X = rows(7)
    for limits in (np.array(0.4), np.linspace(-1, 1, N_LABELS)):
        model = replace(linear(6), thresholds=Thresholds("fixed", limits, depth=N_LABELS))
        dense = reference.scores(X.toarray(), model.W.toarray(), 1.0)
        found = model.predict_labels(X)
        np.testing.assert_array_equal(found.toarray() > 0, dense > limits)
        assert found.has_canonical_format


def test_only_candidates_are_predicted():
    model = replace(linear(6), thresholds=Thresholds("fixed", np.array(-100.0), depth=3))
    X = rows(7)
    assert (model.predict_labels(X).sum(axis=1) == 3).all()
    best = model.predict_topk(X, 3).labels
    assert [sorted(row) for row in best.tolist()] == [model.predict_labels(X)[[i]].indices.tolist() for i in range(25)]


def test_a_fixed_number_per_row():
    model = replace(linear(6), thresholds=Thresholds("top", np.array(-np.inf), per_row=4, depth=2))
    assert (model.predict_labels(rows(7)).sum(axis=1) == 4).all()


def test_without_thresholds_the_default_of_the_model_counts():
    X = rows(7)
    np.testing.assert_array_equal(linear(6).predict_labels(X).toarray(), linear(6).predict_above(X, 0.0).toarray())


def test_probabilities_are_compared_where_there_are_some():
    top = TopK(np.array([[0, 1]]), np.array([[5.0, 4.0]]), np.array([[0.9, 0.1]]))
    assert Thresholds("fixed", np.array(0.5)).chosen(top).tolist() == [[True, False]]
    assert Thresholds("fixed", np.array(0.5)).chosen(TopK(top.labels, top.scores)).tolist() == [[True, True]]


@pytest.mark.parametrize(
    "fields", [{"limits": np.array(np.nan)}, {"limits": np.zeros((2, 2))}, {"depth": 0}, {"per_row": 0}]
)
def test_impossible_thresholds_are_refused(fields):
    with pytest.raises(InputError):
        Thresholds(**{"target": "x", "limits": np.array(0.0), **fields})
