"""The scoring and selecting kernels against their slow twins: exact, ties included."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail import topk
from longtail.topk import InvertedIndex
from tests import reference

INTEGERS = st.integers(-2, 2).map(float)  # few values: ties everywhere, and float32 sums are exact in any order
FLOATS = st.floats(-1e3, 1e3, width=32)
LARGE = st.sampled_from([0.0, 1.0, -1.0, 3e38, -3e38, 1e-40])  # sums overflow, and infinities cancel to NaN


@st.composite
def problems(draw, values=INTEGERS):
    n, d, L = (draw(st.integers(least, most)) for least, most in ((0, 4), (0, 5), (1, 7)))
    bias = draw(st.sampled_from([0.0, 1.0, 0.5]))
    X = draw(hnp.arrays(np.float32, (n, d), elements=values))
    W = draw(hnp.arrays(np.float32, (L, d + (bias > 0)), elements=values))
    return X, W, bias


def index_of(W: np.ndarray, bias: float) -> InvertedIndex:
    return InvertedIndex.of(sp.csr_array(W), W.shape[1] - (bias > 0), bias)


def expected_top(X, W, bias, k):
    rows = [reference.top(row, k) for row in reference.scores(X, W, bias)]
    return [labels for labels, _ in rows], [scores for _, scores in rows]


@settings(deadline=None, max_examples=150)
@given(problems(), st.integers(1, 9))
def test_top_agrees_with_sorting_everything(problem, k):
    X, W, bias = problem
    top = index_of(W, bias).top(sp.csr_array(X), k)
    labels, scores = expected_top(X, W, bias, k)
    assert top.labels.shape == top.scores.shape == (len(X), min(k, len(W)))
    assert (top.labels.dtype, top.scores.dtype) == (np.int32, np.float32)
    assert top.labels.tolist() == labels
    assert top.scores.tolist() == scores


@settings(deadline=None, max_examples=80)
@given(problems(FLOATS), st.integers(1, 4))
def test_top_of_floats_agrees_to_the_last_bit(problem, k):
    X, W, bias = problem
    top = index_of(W, bias).top(sp.csr_array(X), k)
    labels, scores = expected_top(X, W, bias, k)
    assert top.labels.tolist() == labels
    assert top.scores.tolist() == scores


@settings(deadline=None, max_examples=80)
@given(problems(LARGE), st.integers(1, 8))
def test_overflowed_scores_still_rank_and_nan_ranks_last(problem, k):
    X, W, bias = problem
    top = index_of(W, bias).top(sp.csr_array(X), k)
    labels, scores = expected_top(X, W, bias, k)
    assert not np.isnan(top.scores).any()
    assert top.labels.tolist() == labels
    assert top.scores.tolist() == scores


@settings(deadline=None, max_examples=150)
@given(problems(), st.sampled_from([0.0, -1.0, 1.0, 0.5, np.inf, -np.inf, np.nan]))
def test_above_agrees_with_comparing_everything(problem, threshold):
    X, W, bias = problem
    found, ends = index_of(W, bias).above(sp.csr_array(X), threshold)
    expected = [reference.above(row, threshold) for row in reference.scores(X, W, bias)]
    assert [found[a:b].tolist() for a, b in pairwise(ends)] == expected
    assert len(found) == ends[-1]


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
        topk.select_top(scores, labels, values)
        assert (labels.tolist(), values.tolist()) == reference.top(scores, k)


def test_nan_comes_after_every_number_wherever_it_stands():
    for scores in ([np.nan, 1, 2, -np.inf], [1, np.nan, np.nan, 2], [2, 1, -5, np.nan], [np.nan] * 4):
        scores = np.array(scores, np.float32)
        for k in range(1, 5):
            labels, values = np.empty(k, np.int32), np.empty(k, np.float32)
            topk.select_top(scores, labels, values)
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
    assert len(topk.top_rows.signatures) == 1
    assert len(topk.rows_above.signatures) == 1
