"""Packed bucket classifiers: what packing may change and what not, logits against dense products, joining."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.compiled import csr_parts
from longtail.models import bucket_kernels as kernels
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
    codes = buckets.matrix.toarray() != 0
    n_dense = W.shape[1] * codes.any(axis=1).sum()  # all columns of the features that have any
    smaller = codes.sum() * (3 if quantised else 6) < n_dense * (1 if quantised else 4)
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
    out = np.empty((9, 15), np.float32)
    columns = np.empty(0, np.uint16) if buckets.columns is None else buckets.columns
    kernels.fill_logits(
        csr_parts(X), np.float32(bias), buckets.codes, columns, buckets.ends, buckets.steps,
        buckets.columns is not None, 5, out,
    )  # fmt: skip
    np.testing.assert_array_equal(out, buckets.logits(X))
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


def test_arrays_of_dtypes_that_files_hold_and_back():
    for weights, density in (("int8", 0.2), ("int8", 1.0), ("float32", 0.2)):
        buckets = LinearBuckets.packed(
            random_weights(0, density=density), np.arange(6), 5, 5, 0.5, "sigmoid", weights=weights
        )
        arrays = buckets.to_arrays()
        assert {array.dtype.name for array in arrays.values()} <= {"float32", "int64", "uint8", "uint16", "int32"}
        again = LinearBuckets.from_arrays(arrays, 5, 0.5, "sigmoid")
        for name in ("ends", "codes", "columns", "steps"):
            a, b = getattr(buckets, name), getattr(again, name)
            assert (a is None and b is None) or (a.dtype == b.dtype and a.tobytes() == b.tobytes()), name
        assert (again.n_buckets, again.bias, again.link) == (5, 0.5, "sigmoid")
    wide = LinearBuckets.of(np.array([0, 1, 1]), np.ones(1, np.float32), np.array([70_000], np.uint32), np.ones(2),
                            40_000, 1.0, "softmax")  # fmt: skip
    assert wide.to_arrays()["W_columns"].dtype == np.int32
    assert LinearBuckets.from_arrays(wide.to_arrays(), 40_000, 1.0, "softmax").columns.tolist() == [70_000]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.7]))
def test_codes_one_by_one(seed, quantised, cut):
    """Peaks, codes and their counts, against plain loops."""
    W = random_weights(seed)
    peaks = np.empty(3, np.float32)
    kernels.find_peaks(W, 5, peaks)
    np.testing.assert_array_equal(peaks, np.abs(W).reshape(6, 3, 5).max(axis=(0, 2)))
    inverse = np.float32([40.0, 10.0, 300.0])
    codes = np.zeros_like(W)
    for j in range(6):
        for c in range(15):
            code = kernels.code_of(W[j, c], np.float32(cut), inverse[c // 5], quantised)
            wanted = min(max(np.rint(W[j, c] * inverse[c // 5]), -127), 127) if quantised else W[j, c]
            assert code == (wanted if abs(W[j, c]) >= np.float32(cut) else 0)
            codes[j, c] = code
    counts = np.empty(6, np.int64)
    kernels.count_codes(W, 5, np.float32(cut), inverse, quantised, counts)
    np.testing.assert_array_equal(counts, (codes != 0).sum(axis=1))
    ends = np.concatenate([[0], np.cumsum(counts)])
    packed, columns = np.empty(ends[-1], np.float32), np.empty(ends[-1], np.uint16)
    kernels.fill_codes(W, 5, np.float32(cut), inverse, quantised, ends[:-1], packed, columns, True)
    np.testing.assert_array_equal(packed, codes[codes != 0])
    np.testing.assert_array_equal(columns, np.nonzero(codes)[1])
    kept = np.ones(6, np.int64)
    kernels.count_kept(packed, ends, kept)
    np.testing.assert_array_equal(kept, 1 + counts)
    spread, places = np.zeros((6, 20), np.float32), 20 * np.arange(6)
    kernels.copy_codes(packed, columns, ends, True, 5, places, spread.ravel(), columns, False)
    np.testing.assert_array_equal(spread[:, 5:], codes)
    assert not spread[:, :5].any()


def test_one_code_and_one_feature():
    codes, columns = np.zeros(6, np.float32), np.zeros(6, np.uint16)
    assert kernels.put(np.float32(3), 2, 1, codes, columns, False) == 1
    assert kernels.put(np.float32(4), 5, 1, codes, columns, True) == 2
    assert (codes.tolist(), columns.tolist()) == ([0, 4, 0, 3, 0, 0], [0, 5, 0, 0, 0, 0])
    out, ends = np.ones(3, np.float32), np.array([0, 0, 3], np.uint64)
    kernels.add_feature(np.uint64(1), np.float32(2), np.float32([1, 2, 3]), columns, ends, False, out)
    assert out.tolist() == [3, 5, 7]
    kernels.add_feature(np.uint64(0), np.float32(2), np.float32([1, 2, 3]), columns, ends, False, out)
    assert out.tolist() == [3, 5, 7]
    kernels.add_sparse(np.float32(0.5), np.float32([2, 4]), np.array([2, 0], np.uint16), out)
    assert out.tolist() == [5, 5, 8]
    kernels.add_dense(np.float32(-1), np.array([1, 2, 3], np.int8), out)
    assert out.tolist() == [4, 3, 5]
