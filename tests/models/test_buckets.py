"""Packed bucket classifiers: what packing may change and what not, logits against dense products, joining."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.models.buckets import MAX_WEIGHT, LinearBuckets


def random_weights(seed, d=6, R=3, B=5, density=0.5, scale=2.0):
    rng = np.random.default_rng(seed)
    W = scale * rng.normal(size=(d, R * B)) * (rng.random((d, R * B)) < density)
    return W.astype(np.float32)


def unpacked(buckets: LinearBuckets) -> np.ndarray:
    return buckets.matrix.toarray() * np.repeat(buckets.steps, buckets.n_buckets)


def rows(seed, n=9, d=5):
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)).astype(np.float32))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 3.0]), st.booleans())
def test_weights_are_cut_and_rounded_as_promised(seed, density, prune, quantised):
    W = random_weights(seed, density=density)
    buckets = LinearBuckets.packed(
        W, np.arange(6), 5, 5, 1.0, "softmax", weights="int8" if quantised else "float32", prune=prune, scale=2.0
    )
    kept = np.where(np.abs(W) >= np.float32(prune / 2), W, 0)
    steps = np.repeat(buckets.steps, 5) if quantised else 0
    np.testing.assert_allclose(unpacked(buckets), kept, atol=1e-6 + np.max(steps) / 2)
    assert (unpacked(buckets)[kept == 0] == 0).all()
    if not quantised:
        np.testing.assert_array_equal(unpacked(buckets), kept)
        assert (buckets.steps == 1).all()
    n_codes = np.count_nonzero(buckets.matrix.toarray())
    smaller = n_codes * (3 if quantised else 6) < W.size * (1 if quantised else 4)
    assert (buckets.columns is not None) == smaller


def test_weights_beyond_any_sensible_logit_are_cut_to_it():
    W = np.array([[1000.0, -2000.0, 0.3, -1.0]], np.float32)
    buckets = LinearBuckets.packed(W, np.arange(1), 0, 2, 1.0, "softmax", weights="int8", scale=1.0)
    np.testing.assert_allclose(unpacked(buckets), [[MAX_WEIGHT, -MAX_WEIGHT, 0.3, -1.0]], atol=0.25)


@pytest.mark.parametrize("weights", ["int8", "float32"])
@pytest.mark.parametrize("density", [0.2, 1.0])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_logits_are_those_of_the_unpacked_weights(weights, density, bias):
    buckets = LinearBuckets.packed(
        random_weights(0, density=density), np.arange(6), 5, 5, bias, "softmax", weights=weights
    )
    X, W = rows(1), unpacked(buckets)
    np.testing.assert_allclose(buckets.logits(X), X.toarray() @ W[:5] + bias * W[5], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("link", ["softmax", "sigmoid", "normalized"])
def test_probabilities_and_their_logarithms(link):
    buckets = LinearBuckets.packed(random_weights(2, density=1.0), np.arange(6), 5, 5, 1.0, link)
    z = buckets.logits(rows(3)).astype(np.float64).reshape(-1, 3, 5)
    sigmoid = 1 / (1 + np.exp(-z))
    softmax = np.exp(z) / np.exp(z).sum(axis=2, keepdims=True)
    wanted = {"softmax": softmax, "sigmoid": sigmoid, "normalized": sigmoid / sigmoid.sum(axis=2, keepdims=True)}[link]
    np.testing.assert_allclose(buckets.probabilities(rows(3)).reshape(z.shape), wanted, rtol=1e-5)
    np.testing.assert_allclose(
        buckets.log_probabilities(rows(3)).reshape(z.shape), np.log(wanted), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("link", ["softmax", "sigmoid", "normalized"])
@pytest.mark.parametrize("size", [1e30, 3e38])
def test_rows_beyond_all_bounds_still_have_probabilities(link, size):
    buckets = LinearBuckets.packed(random_weights(4, density=1.0, scale=1e4), np.arange(6), 5, 5, 1.0, link)
    X = sp.csr_array(np.array([[size, -size, size, 0, size], [0, 0, size, 0, 0]], np.float32))
    with np.errstate(all="raise", under="ignore"):
        P, log_P = buckets.probabilities(X), buckets.log_probabilities(X)
    assert np.isfinite(P).all()
    assert np.isfinite(log_P).all()
    assert ((P >= 0) & (P <= 1)).all()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([0.05, 0.3, 1.0]), min_size=1, max_size=4),
    st.sampled_from([0, 1.5]),
)
def test_joining_repetitions_equals_packing_them_together(seed, densities, prune):
    how = {"weights": "int8", "prune": prune}
    parts = [random_weights(seed + r, R=1, density=density) for r, density in enumerate(densities)]
    features = np.array([0, 2, 3, 5, 6, 7])
    whole = LinearBuckets.packed(np.hstack(parts), features, 7, 5, 1.0, "softmax", **how)
    joined = LinearBuckets.joined([LinearBuckets.packed(W, features, 7, 5, 1.0, "softmax", **how) for W in parts])
    for name in ("ends", "codes", "columns", "steps"):
        a, b = getattr(whole, name), getattr(joined, name)
        assert (a is None and b is None) or (a.dtype == b.dtype and a.tobytes() == b.tobytes()), name


def test_bytes_are_counted():
    buckets = LinearBuckets.packed(random_weights(0, density=0.2), np.arange(6), 5, 5, 1.0, "softmax", weights="int8")
    assert buckets.nbytes == 7 * 8 + len(buckets.codes) * 3 + 3 * 4
