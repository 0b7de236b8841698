"""HashedModel: the search against brute force, the estimator of the paper, explanations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.models import HashedModel, base
from longtail.models.buckets import LinearBuckets
from longtail.models.hashed import AGGREGATES
from longtail.models.hashing import Hashes
from tests.methods.mach import reference
from tests.models.test_buckets import random_weights, rows


@dataclass(frozen=True)
class Given:
    """Bucket classifiers whose probabilities for row i are known: P[i]."""

    P: np.ndarray
    adds_up: bool = True

    def probabilities(self, X):
        return self.P[X.indices]

    def log_probabilities(self, X):
        return np.log(self.P[X.indices])

    def rates(self, X):
        return -np.log1p(-self.P[X.indices])


def model_of(seed=0, K=40, R=3, B=5, d=5, link="softmax", **rest) -> HashedModel:
    buckets = LinearBuckets.packed(random_weights(seed, d + 1, R, B), np.arange(d + 1), d, B, 1.0, link, weights="int8")
    return HashedModel(Hashes.draw(K, B, range(R), seed), buckets, d, **rest)


def row_numbers(n: int) -> sp.csr_array:
    """Rows that say nothing but their number."""
    return sp.csr_array((np.ones(n, np.float32), np.arange(n), np.arange(n + 1)), shape=(n, n))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.sampled_from(AGGREGATES), st.integers(1, 6), st.integers(2, 9), st.integers(1, 60),
    st.integers(1, 70), st.integers(1, 40), st.booleans(),
)  # fmt: skip
def test_top_k_equals_brute_force(seed, aggregate, R, B, K, k, n, adds_up):
    """Few different probabilities, so that ties abound; they rank by label."""
    rng = np.random.default_rng(seed)
    P = rng.choice(np.array([0.0625, 0.125, 0.25, 0.5], np.float32), (n, R * B))
    hashes = Hashes.draw(K, B, range(R), seed)
    model = HashedModel(hashes, Given(P, adds_up), n, aggregate)
    values = reference.values(reference.aggregated(P, B, aggregate, adds_up), hashes.table, B, aggregate)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    top = model.predict_topk(row_numbers(n), k, n_jobs=1)
    np.testing.assert_array_equal(top.labels, order)
    scores = model.scores(row_numbers(n), np.arange(K))
    np.testing.assert_array_equal(top.scores, np.take_along_axis(scores, order, axis=1))
    assert ((scores >= 0) & (scores <= 1)).all()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.sampled_from(AGGREGATES), st.integers(1, 5), st.floats(-0.1, 1.1), st.integers(1, 40),
    st.booleans(),
)  # fmt: skip
def test_labels_above_a_threshold_equal_brute_force(seed, aggregate, R, threshold, n, adds_up):
    P = np.random.default_rng(seed).random((n, R * 4)).astype(np.float32)
    model = HashedModel(Hashes.draw(30, 4, range(R), seed), Given(P, adds_up), n, aggregate)
    above = model.predict_above(row_numbers(n), threshold, n_jobs=1)
    scores = model.scores(row_numbers(n), np.arange(30)).astype(np.float64)
    np.testing.assert_array_equal(above.toarray() > 0, scores > threshold)
    assert above.has_sorted_indices


def test_the_space_for_labels_above_grows():
    model = HashedModel(Hashes.draw(5000, 4, range(2), 0), Given(np.full((20, 8), 0.9, np.float32)), 20)
    assert model.predict_above(row_numbers(20), 0.5).nnz == 100_000
    assert model.predict_above(row_numbers(20), 0.95).nnz == 0


def test_threads_and_blocks_do_not_change_a_byte(monkeypatch):
    X, expected = rows(1, n=200), None
    for block in (1, 7, 64, 1024):
        monkeypatch.setattr(base, "ROWS_PER_BLOCK", block)
        for n_jobs in (1, 2, 4):
            model = model_of()
            top, above = model.predict_topk(X, 4, n_jobs=n_jobs), model.predict_above(X, 0.2, n_jobs=n_jobs)
            found = [array.tobytes() for array in (top.labels, top.scores, above.indices, above.indptr)]
            expected = expected or found
            assert found == expected


# --- the formulas ----------------------------------------------------------------------------------------------------


def test_the_mean_is_unbiased():
    """Theorem 1: fed with true bucket probabilities, (2) finds those of the classes, to five standard errors."""
    rng, K, B, R = np.random.default_rng(0), 50, 8, 20_000
    p = rng.dirichlet(np.full(K, 0.3))
    hashes = Hashes.draw(K, B, range(R), 1)
    P = np.zeros((R, B))
    for r in range(R):
        np.add.at(P[r], hashes.table[:, r], p)
    found = HashedModel(hashes, Given(P.reshape(1, -1).astype(np.float32)), 1, "mean").scores(row_numbers(1), range(K))[
        0
    ]
    spread = B / (B - 1) * np.sqrt((p**2).sum() / B / R)
    large = p > 6 * spread  # smaller ones are clipped at 0 now and then
    assert large.sum() > 5
    assert abs(found - p)[large].max() < 5 * spread
    least = HashedModel(hashes, Given(P.reshape(1, -1).astype(np.float32)), 1, "min").scores(row_numbers(1), range(K))[
        0
    ]
    assert (least >= p - 1e-6).all()  # the count-min sketch is never too small


def union_model(p, B, R, aggregate, seed=1):
    """A model whose buckets have the true probability of the union of their labels, for independent labels."""
    hashes = Hashes.draw(len(p), B, range(R), seed)
    absent = np.ones((R, B))
    for r in range(R):
        np.multiply.at(absent[r], hashes.table[:, r], 1 - p)
    return HashedModel(hashes, Given((1 - absent).reshape(1, -1), adds_up=False), 1, aggregate)


@pytest.mark.parametrize("m", [2, 20])
def test_rates_are_unbiased_for_several_labels_and_probabilities_are_not(m):
    """Fed with the true probabilities of unions, "rate" finds -log(1 - p) of every label, to five standard errors.
    "mean", the paper's estimator for one label, finds far too much for labels that are absent."""
    K, B, R = 60, 32, 10_000
    p = np.zeros(K)
    p[:m] = 0.6
    p[m : m + 5] = 0.05
    model = union_model(p, B, R, "rate")
    values = model.index.bucket_values(row_numbers(1)).reshape(R, B).astype(np.float64)
    estimate = B / (B - 1) * values[np.arange(R)[:, None], model.hashes.table.T].mean(axis=0)
    rates = -np.log1p(-p)
    spread = B / (B - 1) * np.sqrt((rates**2).sum() / B / R)
    assert np.abs(estimate - rates).max() < 5 * spread + 1e-4
    scores = model.scores(row_numbers(1), range(K))[0]
    np.testing.assert_allclose(scores, -np.expm1(-np.maximum(estimate, 0)), atol=1e-5)
    mean = union_model(p, B, R, "mean").scores(row_numbers(1), [K - 1])[0, 0]
    if m == 20:
        assert mean > 0.25
        assert scores[K - 1] < 0.02


def test_the_median_of_rates_is_near_the_truth_where_few_labels_share_a_bucket():
    p = np.zeros(60)
    p[:4] = 0.6
    several = union_model(p, 64, 501, "median").scores(row_numbers(1), range(60))[0]
    np.testing.assert_allclose(several[:4], 0.6, atol=0.05)
    assert several[4:].max() < 0.05


def test_the_rates_of_a_sigmoid_are_exact_where_its_probability_rounds_to_one():
    buckets = model_of(link="sigmoid").linear
    X = rows(1)
    z = buckets.logits(X).astype(np.float64)
    np.testing.assert_allclose(buckets.rates(X), np.logaddexp(0, z), rtol=1e-5, atol=1e-6)
    far = sp.csr_array(1000 * X)
    np.testing.assert_allclose(
        buckets.rates(far), np.logaddexp(0, buckets.logits(far).astype(np.float64)), rtol=1e-5, atol=1e-6
    )
    assert buckets.rates(far).max() > 100  # P is 1 there, but its rate is finite and different for each
    soft = model_of(link="softmax").linear
    np.testing.assert_allclose(soft.rates(X), -np.log1p(-soft.probabilities(X).astype(np.float64)), rtol=1e-3)


def test_every_aggregate_by_hand():
    hashes = Hashes(np.array([1, 1, 1]), np.array([0, 0, 0]), 4, 2)  # label i in bucket i mod 2, three times
    P = np.array([[0.2, 0.8, 0.5, 0.5, 0.9, 0.1]], np.float32)
    score = {name: HashedModel(hashes, Given(P), 1, name).scores(row_numbers(1), [0, 1])[0] for name in AGGREGATES}
    np.testing.assert_allclose(
        score["geometric"], [(0.2 * 0.5 * 0.9) ** (1 / 3), (0.8 * 0.5 * 0.1) ** (1 / 3)], rtol=1e-6
    )
    np.testing.assert_allclose(score["mean"], [2 * (1.6 / 3 - 0.5), 0], atol=1e-6)
    np.testing.assert_allclose(score["median"], [0, 0], atol=1e-6)
    np.testing.assert_allclose(score["min"], [0.2, 0.1], rtol=1e-6)
    rates = -np.log(1 - np.array([[0.2, 0.5, 0.9], [0.8, 0.5, 0.1]]))
    differences = rates - rates.mean(axis=0)  # minus half of the sum over both buckets
    np.testing.assert_allclose(score["rate"], [1 - np.exp(-2 * differences[0].mean()), 0], rtol=1e-5)
    several = HashedModel(hashes, Given(P, adds_up=False), 1, "median").scores(row_numbers(1), [0, 1])[0]
    np.testing.assert_allclose(several, 1 - np.exp(-2 * np.maximum(np.median(differences, axis=1), 0)), atol=1e-6)


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_with_a_bucket_for_every_label_every_aggregate_is_the_probability(aggregate):
    P = np.array([[0.1, 0.2, 0.7]], np.float32)
    model = HashedModel(Hashes.identity(3), Given(P), 1, aggregate)
    np.testing.assert_allclose(model.scores(row_numbers(1), range(3)), P, rtol=1e-6)
    assert model.predict_topk(row_numbers(1), 3).labels.tolist() == [[2, 1, 0]]


# --- explaining ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_an_explanation_adds_up_to_the_average_logit(link):
    model, X = model_of(link=link, normalize=True), rows(5)
    lengths = np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-30)
    unit = sp.csr_array((X.toarray() / lengths).astype(np.float32))
    z = model.linear.logits(unit).reshape(9, 3, 5)
    if link == "softmax":
        z = z - z.mean(axis=2, keepdims=True)
    for i in range(9):
        told = model.explain(X[[i]], 7)
        own = np.mean([z[i, r, model.hashes.table[7, r]] for r in range(3)])
        assert sum(part.contribution for part in told.contributions) + told.bias == pytest.approx(own, abs=1e-4)
        assert told.score == pytest.approx(model.scores(X[[i]], [7])[0, 0], rel=1e-5)
        sizes = [abs(part.contribution) for part in told.contributions]
        assert sizes == sorted(sizes, reverse=True)
    assert len(model.explain(X[[0]], 7, top=1).contributions) <= 1


def test_label_weights_are_those_of_its_buckets():
    model = model_of()
    W = model.linear.matrix.toarray() * np.repeat(model.linear.steps, 5)
    features, weights, bias = model.label_weights(11)
    cubes = W.reshape(6, 3, 5) - W.reshape(6, 3, 5).mean(axis=2, keepdims=True)
    wanted = np.mean([cubes[:, r, model.hashes.table[11, r]] for r in range(3)], axis=0)
    np.testing.assert_allclose(weights, wanted[features], rtol=1e-5)
    assert bias == pytest.approx(wanted[5], rel=1e-5)


def test_classifiers_that_are_not_linear_have_no_weights():
    model = HashedModel(Hashes.identity(3), Given(np.ones((1, 3), np.float32)), 1)
    assert (model.n_weights, model.bias) == (0, 0.0)
    with pytest.raises(InputError, match="are not linear; they have no weights to show"):
        model.explain(row_numbers(1), 0)


def test_what_a_model_refuses():
    with pytest.raises(InputError, match="aggregate must be one of geometric, mean, rate, median, min; got 'max'"):
        model_of(aggregate="max")
    with pytest.raises(InputError, match="3 label names were given for 40 labels"):
        model_of(label_names=np.arange(3))
    with pytest.raises(InputError, match="labels are column numbers from 0 to 39"):
        model_of().scores(rows(0), [40])


# --- joining ---------------------------------------------------------------------------------------------------------


def test_models_of_other_problems_are_not_joined():
    apart = [replace(model_of(), hashes=Hashes.draw(40, 5, range(first, first + 3), 0)) for first in (0, 3)]
    assert HashedModel.joined(apart).hashes.n_repetitions == 6
    with pytest.raises(InputError, match="these differ in normalize"):
        HashedModel.joined([apart[0], replace(apart[1], normalize=True)])
    with pytest.raises(InputError, match="these differ in n_buckets, n_labels, link"):
        HashedModel.joined([apart[0], model_of(B=4, K=39, link="sigmoid")])
    with pytest.raises(InputError, match="some repetition is in several of the models"):
        HashedModel.joined([apart[0], apart[0]])
    own = HashedModel(Hashes.identity(5), model_of(K=5, R=1).buckets, 5)
    with pytest.raises(InputError, match="nothing to join, because every label has a bucket of its own"):
        HashedModel.joined([own])
