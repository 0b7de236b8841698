"""The scoring and selecting kernels against their slow twins: exact, ties included, whichever way a row takes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail.models import index_kernels as kernels
from longtail.models.index import LOOKUP_PRICE, InvertedIndex
from tests import reference

INTEGERS = st.integers(-2, 2).map(float)  # few values: ties everywhere, and float32 sums are exact in any order
FLOATS = st.floats(-1e3, 1e3, width=32)
PRICES = st.sampled_from([LOOKUP_PRICE, 1e-9, np.inf])  # as it pays, by estimate wherever that is right, by lists
LARGE = st.sampled_from([0.0, 1.0, -1.0, 3e38, -3e38, 1e-40])  # sums overflow, and infinities cancel to NaN


@st.composite
def problems(draw, values=INTEGERS):
    n, d, L = (draw(st.integers(least, most)) for least, most in ((0, 4), (0, 5), (1, 7)))
    bias = draw(st.sampled_from([0.0, 1.0, 0.5]))
    X = draw(hnp.arrays(np.float32, (n, d), elements=values))
    W = draw(hnp.arrays(np.float32, (L, d + (bias > 0)), elements=values))
    return X, W, bias


def index_of(W: np.ndarray, bias: float, price: float = LOOKUP_PRICE) -> InvertedIndex:
    return InvertedIndex.of(sp.csr_array(W), W.shape[1] - (bias > 0), bias)._replace(price=price)


def rows_by_estimate(index: InvertedIndex, X: sp.csr_array, k: int) -> int:
    """How many rows did not take the lists alone."""
    out = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
    return kernels.top_rows(index.rows(X), index, *index._buffers(X), *out)


def expected_top(X, W, bias, k):
    rows = [reference.top(row, k) for row in reference.scores(X, W, bias)]
    return [labels for labels, _ in rows], [scores for _, scores in rows]


@settings(deadline=None, max_examples=150)
@given(problems(), st.integers(1, 9), PRICES)
def test_top_agrees_with_sorting_everything(problem, k, price):
    X, W, bias = problem
    top = index_of(W, bias, price).top(sp.csr_array(X), k)
    labels, scores = expected_top(X, W, bias, k)
    assert top.labels.shape == top.scores.shape == (len(X), min(k, len(W)))
    assert (top.labels.dtype, top.scores.dtype) == (np.int32, np.float32)
    assert top.labels.tolist() == labels
    assert top.scores.tolist() == scores


@settings(deadline=None, max_examples=80)
@given(problems(FLOATS), st.integers(1, 4), PRICES)
def test_top_of_floats_agrees_to_the_last_bit(problem, k, price):
    X, W, bias = problem
    top = index_of(W, bias, price).top(sp.csr_array(X), k)
    labels, scores = expected_top(X, W, bias, k)
    assert top.labels.tolist() == labels
    assert top.scores.tolist() == scores


@settings(deadline=None, max_examples=80)
@given(problems(LARGE), st.integers(1, 8), PRICES)
def test_overflowed_scores_still_rank_and_nan_ranks_last(problem, k, price):
    X, W, bias = problem
    top = index_of(W, bias, price).top(sp.csr_array(X), k)
    labels, scores = expected_top(X, W, bias, k)
    assert not np.isnan(top.scores).any()
    assert top.labels.tolist() == labels
    assert top.scores.tolist() == scores


@settings(deadline=None, max_examples=150)
@given(problems(), st.sampled_from([0.0, -1.0, 1.0, 0.5, np.inf, -np.inf, np.nan]), PRICES)
def test_above_agrees_with_comparing_everything(problem, threshold, price):
    X, W, bias = problem
    found, ends = index_of(W, bias, price).above(sp.csr_array(X), threshold)
    expected = [reference.above(row, threshold) for row in reference.scores(X, W, bias)]
    assert [found[a:b].tolist() for a, b in pairwise(ends)] == expected
    assert len(found) == ends[-1]


@settings(deadline=None, max_examples=80)
@given(problems(st.floats(-1e5, 1e5, width=32)))
def test_estimates_keep_their_bound(problem):
    X, W, bias = problem
    index, rows = index_of(W, bias), sp.csr_array(X)
    (out, factors, numbers), scores = index._buffers(rows), reference.scores(X, W, bias).astype(np.float64)
    for i in range(len(X)):
        count, calls, error = kernels.list_columns(i, index.rows(rows), index, factors, numbers)
        used = [j for j in np.flatnonzero(X[i]) if index.column_of[j] < len(index.codes)]
        lengths = sum(int(index.ends[j + 1]) - int(index.ends[j]) for j in used)
        assert calls == pytest.approx(lengths / (index.price * max(np.count_nonzero(X[i]), 1)))
        if count:
            kernels.estimate_row(i, index.rows(rows), index, factors, numbers, count, out)
            assert (np.abs(out[: len(W)] - scores[i]) <= error).all()


# --- models large enough for columns that pay ------------------------------------------------------------------------


def long_tailed(seed: int, L: int = 2000, d: int = 150, n: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Feature j is in about 1 of 1 + j / 8 rows and labels; a few weights are large; every tenth label is a copy."""
    rng = np.random.default_rng(seed)
    share = 1 / (1 + np.arange(d) / 8)
    W = rng.normal(size=(L, d + 1)) * np.append(0.05 + (1 - share), 1.0)
    W *= np.where(rng.random((L, d + 1)) < 0.01, 20, 1) * (rng.random((L, d + 1)) < np.append(share, 1.0))
    W[5::10] = W[0::10]
    X = np.abs(rng.normal(size=(n, d))) * rng.choice([1, 1, 1, -1], (n, d)) * (rng.random((n, d)) < share)
    X[n // 2] = 0
    X[0] *= 1e20
    X[1] *= 1e-20
    return X.astype(np.float32), W.astype(np.float32)


def scores_by_feature(X: np.ndarray, W: np.ndarray, bias: float) -> np.ndarray:
    """reference.scores for many labels: one feature at a time for all of them, which is the same order for each."""
    out = np.tile(np.float32(bias) * W[:, -1], (len(X), 1))
    for i, x in enumerate(X):
        for j in np.flatnonzero(x):
            out[i] += x[j] * W[:, j]
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("price", [LOOKUP_PRICE, 1e-9, np.inf])
def test_many_labels_rank_exactly_whichever_way_they_take(seed, price):
    X, W = long_tailed(seed)
    index, rows, L = index_of(W, 0.5, price), sp.csr_array(X), len(W)
    scores = scores_by_feature(X, W, 0.5)
    for k in (1, 5, 100, L, L + 1):
        top = index.top(rows, k)
        labels = np.lexsort((np.broadcast_to(np.arange(L), scores.shape), -scores))[:, :k]
        np.testing.assert_array_equal(top.labels, labels)
        np.testing.assert_array_equal(top.scores, np.take_along_axis(scores, labels, axis=1))
    for threshold in (0.0, 3.0, -1e9):
        found, ends = index.above(rows, threshold)
        above = [np.flatnonzero(row > threshold).tolist() for row in scores]
        assert [found[a:b].tolist() for a, b in pairwise(ends)] == above


def test_both_ways_are_taken():
    X, W = long_tailed(0)
    index, rows = index_of(W, 0.5), sp.csr_array(X)
    assert 0 < rows_by_estimate(index, rows, 1) < len(X)  # the empty row has nothing to save
    assert rows_by_estimate(index, rows, len(W)) == 0
    assert rows_by_estimate(index._replace(price=np.inf), rows, 1) == 0
    assert rows_by_estimate(index._replace(price=1e-9), rows, 100) == len(X) - 1


def test_an_equal_score_behind_a_lower_estimate_still_ranks_by_label_id():
    W, x = np.array([[2, 0], [1, 1]], np.float32), sp.csr_array(np.ones((1, 2), np.float32))
    index = index_of(W, 0.0, 1e-9)
    assert index.codes[:, :2].tolist() == [[127, 64], [0, 127]]  # label 1 is estimated above 2, label 0 at 2
    assert index.top(x, 1).labels.tolist() == [[0]]
    assert rows_by_estimate(index, x, 1) == 1


def test_too_many_candidates_send_a_row_to_the_lists():
    L, d = 2000, 6
    W, x = np.ones((L, d), np.float32), sp.csr_array(np.ones((1, d), np.float32))
    index = index_of(W, 0.0)  # every label ties, so no estimate can tell them apart
    _, factors, numbers = index._buffers(x)
    _, budget, error = kernels.list_columns(0, index.rows(x), index, factors, numbers)
    assert (2 <= budget < L, error < np.inf) == (True, True)  # the estimate was worth a try
    assert rows_by_estimate(index, x, 1) == 0
    assert index.top(x, 3).labels.tolist() == [[0, 1, 2]]
    assert index.above(x, 5.5)[0].tolist() == list(range(L))
    W[1234, 0] = 2.0
    index = index_of(W, 0.0)
    assert rows_by_estimate(index, x, 1) == 1
    assert index.top(x, 1).labels.tolist() == [[1234]]
    assert index.above(x, 6.5)[0].tolist() == [1234]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_weights_and_rows_beyond_any_bound_go_by_the_lists(value):
    X, W = long_tailed(1)
    X = X[2:]
    W[[3, 70, 1999], 0] = value
    index, rows = index_of(W, 0.5, 1e-9), sp.csr_array(X)
    with np.errstate(invalid="ignore", over="ignore"):
        scores = scores_by_feature(X, W, 0.5)
    top = index.top(rows, 9)
    assert top.labels.tolist() == [reference.top(row, 9)[0] for row in scores]
    assert rows_by_estimate(index, rows, 9) <= (np.abs(X[:, 0]) < kernels.HUGE / 3e38).sum()


def test_above_goes_on_where_the_space_ran_out():
    rng = np.random.default_rng(0)
    n, L = 5, 1500  # one row of labels is more than the 1024 places of the first attempt
    W = rng.integers(-1, 2, (L, 3)).astype(np.float32)
    X = rng.integers(0, 3, (n, 3)).astype(np.float32)
    found, ends = index_of(W, 0.0).above(sp.csr_array(X), -10.0)
    assert ends.tolist() == [L * i for i in range(n + 1)]
    assert found.tolist() == list(range(L)) * n
    assert found.base is None  # not a view that keeps the whole space alive


@pytest.mark.parametrize("k", [1, 2, 5, 64, 100, 1000])
def test_the_heap_gives_sorted_order_among_many_ties(k):
    rng = np.random.default_rng(k)
    for _ in range(20):
        scores = rng.integers(0, 8, 100).astype(np.float32)
        labels, values = np.empty(min(k, 100), np.int32), np.empty(min(k, 100), np.float32)
        kernels.select_top(scores, labels, values)
        assert (labels.tolist(), values.tolist()) == reference.top(scores, k)


def test_nan_comes_after_every_number_wherever_it_stands():
    for scores in ([np.nan, 1, 2, -np.inf], [1, np.nan, np.nan, 2], [2, 1, -5, np.nan], [np.nan] * 4):
        scores = np.array(scores, np.float32)
        for k in range(1, 5):
            labels, values = np.empty(k, np.int32), np.empty(k, np.float32)
            kernels.select_top(scores, labels, values)
            assert (labels.tolist(), values.tolist()) == reference.top(scores, k)


def test_rows_without_features_and_a_model_without_weights_rank_by_label_id():
    index = index_of(np.zeros((4, 3), np.float32), 0.0)
    top = index.top(sp.csr_array((2, 3), dtype=np.float32), 3)
    assert top.labels.tolist() == [[0, 1, 2]] * 2
    assert top.scores.tolist() == [[0.0] * 3] * 2
    assert len(top) == 2


def test_a_model_without_labels_gives_nothing():
    index = InvertedIndex.of(sp.csr_array((0, 3), dtype=np.float32), 2, 1.0)
    X = sp.csr_array(np.ones((2, 2), np.float32))
    assert index.n_labels == 0
    assert index.top(X, 5).labels.shape == (2, 0)
    found, ends = index.above(X, 0.0)
    assert (found.tolist(), ends.tolist()) == ([], [0, 0, 0])


def test_every_form_of_x_shares_one_compiled_signature():
    W, X = np.eye(3, dtype=np.float32), sp.csr_array(np.eye(3, dtype=np.float32))
    index = index_of(W, 0.0)
    wide = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
    read_only = X.copy()
    for array in (read_only.data, read_only.indices, read_only.indptr):
        array.flags.writeable = False
    for rows in (X, wide, read_only, X[1:]):
        index.top(rows, 2)
        index.above(rows, 0.0)
    assert len(kernels.top_rows.signatures) == 1
    assert len(kernels.rows_above.signatures) == 1
