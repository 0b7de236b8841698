"""Compact weights: in half precision every answer has the same bits, and in 8 bits the error is bounded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail.errors import InputError
from longtail.hybrid import HybridRows
from longtail.models import CompactModel, LinearModel, ShardedModel, compact_kernels, index_kernels, plain
from longtail.models.compact import FORMS, compacted
from longtail.models.compact_weights import EIGHT_BIT, HALF, CompactWeights
from longtail.models.dense import DenseWeights
from longtail.models.sharded import divided
from tests import reference
from tests.models.test_sharded import decisions, rows, whole

LARGE = st.sampled_from([0.0, 1.0, -1.0, 6e4, -6e4, 2.0**-24])
HALVES = st.floats(-1e3, 1e3, width=16)


@st.composite
def problems(draw, values=HALVES):
    n, d, L = (draw(st.integers(least, most)) for least, most in ((0, 3), (0, 4), (1, 12)))
    bias = draw(st.sampled_from([0.0, 0.5]))
    X = draw(hnp.arrays(np.float32, (n, d), elements=values))
    W = draw(hnp.arrays(np.float32, (L, d + (bias > 0)), elements=values))
    return X, W, bias


def model_of(W: np.ndarray, bias: float, form: str) -> CompactModel:
    made = compacted(LinearModel(sp.csr_array(W), W.shape[1] - (bias > 0), bias), form)
    assert isinstance(made, CompactModel)
    return made


def slow_scores(X: np.ndarray, model: CompactModel) -> np.ndarray:
    """One number at a time: the step times x first, then times the code."""
    weights = model.weights
    if weights.form == HALF:
        return reference.scores(X, model.W.toarray(), model.bias)
    steps = np.append(weights.steps, np.float32(1))[: model.W.shape[1]]
    codes = np.rint(model.W.toarray() / steps)
    if model.bias:
        codes[:, -1] = weights.bias_weights
    return reference.scores(X * weights.steps, codes, model.bias)


def long_tailed(seed: int = 0, L: int = 9000, d: int = 40, n: int = 9) -> tuple[sp.csr_array, np.ndarray]:
    """Half-precision weights; feature j is in about 1 of 1 + j^2 labels, so there are columns, lists and long gaps."""
    rng = np.random.default_rng(seed)
    share = 1 / (1 + np.arange(d) ** 2)
    W = rng.normal(size=(L, d + 1)) * (rng.random((L, d + 1)) < np.append(share, 1.0))
    W = W.astype(np.float16).astype(np.float32)
    W[5::10] = W[0::10]
    W[:, d] = rng.normal(size=L)  # the bias is no half-precision number
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X[n // 2] = 0
    return sp.csr_array(X.astype(np.float32)), W


def assert_same(one, other) -> None:
    assert one.labels.tobytes() == other.labels.tobytes()
    assert one.scores.tobytes() == other.scores.tobytes()


# --- against slow twins ----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=80)
@given(problems(), st.integers(1, 14), st.sampled_from([HALF, EIGHT_BIT]))
def test_top_agrees_with_sorting_everything(problem, k, form):
    X, W, bias = problem
    model = model_of(W, bias, form)
    top = model.index.top(sp.csr_array(X), k)
    expected = [reference.top(row, k) for row in slow_scores(X, model)]
    assert top.labels.tolist() == [labels for labels, _ in expected]
    assert top.scores.tolist() == [scores for _, scores in expected]


@settings(deadline=None, max_examples=60)
@given(problems(LARGE), st.sampled_from([0.0, -1.0, 0.5, np.inf, -np.inf, np.nan]), st.sampled_from([HALF, EIGHT_BIT]))
def test_above_scores_and_pairs_agree_with_computing_everything(problem, threshold, form):
    X, W, bias = problem
    model, X_rows = model_of(W, bias, form), sp.csr_array(X)
    scores = slow_scores(X, model)
    found, ends = model.index.above(X_rows, threshold)
    assert [found[a:b].tolist() for a, b in pairwise(ends)] == [reference.above(row, threshold) for row in scores]
    np.testing.assert_array_equal(model.index.scores(X_rows), scores)
    row, label = np.divmod(np.arange(scores.size), len(W))
    mixed = np.random.default_rng(len(W)).permutation(scores.size)[: 3 * len(W)]
    mixed = np.concatenate([mixed, mixed[:2]])
    for chosen in (np.arange(scores.size), mixed, mixed[:0]):
        np.testing.assert_array_equal(model.index.pairs(X_rows, row[chosen], label[chosen]), scores.ravel()[chosen])


@settings(deadline=None, max_examples=40)
@given(problems(LARGE), st.integers(1, 14), st.integers(0, 9), st.sampled_from([HALF, EIGHT_BIT]))
def test_a_search_scores_further_labels(problem, k, c, form):
    X, W, bias = problem
    model, X_rows = model_of(W, bias, form), sp.csr_array(X)
    wanted = np.sort(np.random.default_rng(c).integers(0, len(W), (len(X), c)), axis=1)
    top, scores = model.index.batch(X_rows).top_and_scores(k, wanted)
    assert_same(top, model.index.top(X_rows, k))
    np.testing.assert_array_equal(scores, np.take_along_axis(slow_scores(X, model), wanted, axis=1))


@settings(deadline=None, max_examples=60)
@given(problems())
def test_half_precision_keeps_every_weight_and_8_bits_bound_the_error(problem):
    _, W, bias = problem
    np.testing.assert_array_equal(model_of(W, bias, HALF).W.toarray(), W)
    found = model_of(W, bias, EIGHT_BIT).W.toarray()
    own = W[:, : W.shape[1] - (bias > 0)]
    np.testing.assert_array_equal(found[:, own.shape[1] :], W[:, own.shape[1] :])
    bound = np.abs(own).max(axis=0, initial=0) / 254 * (1 + 1e-5)
    assert (np.abs(found[:, : own.shape[1]] - own) <= bound).all()


def test_the_heap_is_that_of_the_other_index():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 20, 500).astype(np.float32)
    scores[::50] = np.nan
    for k in (1, 7, 500):
        ours, theirs = ((np.empty(k, np.int32), np.empty(k, np.float32)) for _ in range(2))
        for start in range(0, 500, 130):
            compact_kernels.keep_best(scores[start : start + 130], start, *ours)
        compact_kernels.sort_heap(ours[1], ours[0])
        index_kernels.select_top(scores, *theirs)
        assert (ours[0] == theirs[0]).all()
        assert (ours[1] == theirs[1]).all()


# --- the same bits as the plain model --------------------------------------------------------------------------------


def test_columns_lists_and_tiles_give_the_bits_of_the_plain_model():
    X, W = long_tailed(L=2 * compact_kernels.TILE + 1000)
    one = LinearModel(sp.csr_array(W), 40, 1.0)
    half = compacted(one, None)
    assert isinstance(half, CompactModel)
    weights = half.weights
    assert 0 < len(weights.columns) < 10
    assert (weights.weights == 0).any()  # gaps above 255
    assert len(W) > 2 * compact_kernels.TILE
    for k in (1, 5, compact_kernels.TILE + 3, len(W)):
        assert_same(half.index.top(X, k), one.index.top(X, k))
    for threshold in (-2.0, 0.0, 3.0):
        for ours, theirs in zip(half.index.above(X, threshold), one.index.above(X, threshold), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    pairs = np.repeat(np.arange(9), 50), np.random.default_rng(1).integers(0, len(W), 450)
    assert half.index.pairs(X, *pairs).tobytes() == one.index.pairs(X, *pairs).tobytes()
    np.testing.assert_allclose(half.scores(X, [0, 8999]), one.scores(X, [0, 8999]), rtol=1e-5, atol=1e-5)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(half.W, name), getattr(one.W, name))
    assert half.n_weights == one.n_weights
    np.testing.assert_array_equal(half.weights_per_label, one.weights_per_label)
    for label in (0, 255, 8999):
        for ours, theirs in zip(half.label_weights(label), one.label_weights(label), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert str(half.explain(X[[0]], label)) == str(one.explain(X[[0]], label))
    assert half.weights.nbytes < 0.3 * sum(array.nbytes for array in one.index if isinstance(array, np.ndarray))


@pytest.mark.parametrize("form", [HALF, EIGHT_BIT])
def test_the_first_rows_of_a_process_have_the_same_bits(form, monkeypatch):
    X, W = long_tailed()
    offsets = np.linspace(-1, 1, len(W)).astype(np.float32)
    model = model_of(W, 1.0, form)
    found = plain.best(plain.sums(X, model.weights, len(W), 1.0, offsets), 7)
    assert_same(found, model.indexed(offsets).top(X, 7))
    monkeypatch.setattr(plain, "affordable", lambda *_: True)
    first = model.predict_topk(X, 7)
    assert "index" not in vars(model)
    monkeypatch.setattr(plain, "affordable", lambda *_: False)
    assert_same(first, model.predict_topk(X, 7))


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("more", [{}, *decisions().values()], ids=["plain", *decisions()])
def test_decisions_are_those_of_the_plain_model(bias, more):
    one, X = whole(bias=bias, **more), rows()
    half = compacted(one, HALF)
    shards = divided(one, 700)
    assert isinstance(shards, ShardedModel)
    many = ShardedModel(tuple(compacted(each, HALF) for each in shards.shards), one.n_features, **more)
    for model in (half, many):
        for k in (1, 5, 400):
            assert_same(model.predict_topk(X, k), one.predict_topk(X, k))
        assert (model.predict_labels(X) != one.predict_labels(X)).nnz == 0
        np.testing.assert_allclose(model.scores(X, [3, 200]), one.scores(X, [3, 200]), rtol=1e-6)
        assert str(model.explain(X[[0]], 7)) == str(one.explain(X[[0]], 7))
        assert (model.W != one.W).nnz == 0


@pytest.mark.parametrize("form", [HALF, EIGHT_BIT])
def test_dense_weights_stay_beside_them(form):
    X, W = long_tailed(L=300, d=20)
    W[:, [3, 7]] = 0
    own = np.random.default_rng(2).normal(size=(300, 2)).astype(np.float16)
    one = LinearModel(sp.csr_array(W), 20, 1.0, dense=DenseWeights(own, np.array([3, 7])))
    made = compacted(one, form)
    assert isinstance(made, CompactModel)
    again = made.to_linear()
    X = HybridRows(sp.csr_array(X), np.ones((9, 2), np.float32)).tocsr()[:, :20]
    if form == HALF:
        assert_same(made.predict_topk(X, 5), one.predict_topk(X, 5))
        assert (made.all_weights() != one.all_weights()).nnz == 0
    np.testing.assert_allclose(made.predict_topk(X, 5).scores, again.predict_topk(X, 5).scores, rtol=1e-5, atol=1e-5)
    labels = np.arange(300)
    np.testing.assert_allclose(made.scores(X, labels), again.scores(X, labels), rtol=1e-4, atol=1e-4)
    assert made.with_dense(np.array([1])) is made
    for ours, theirs in zip(made.label_weights(4), again.label_weights(4), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- which form ------------------------------------------------------------------------------------------------------


def test_half_precision_is_taken_by_itself_only_where_nothing_is_lost():
    halves = LinearModel(sp.csr_array(np.array([[0.5, 0.25, 0.1]], np.float32)), 2, 1.0)
    assert isinstance(compacted(halves, None), CompactModel)
    assert compacted(halves, None, least=4) is halves
    for weight in (0.1, 1e5):
        other = LinearModel(sp.csr_array(np.array([[0.5, weight, 0.1]], np.float32)), 2, 1.0)
        assert compacted(other, None) is other
    assert compacted(other, "float32") is other
    with pytest.raises(InputError, match="too large for half precision"):
        compacted(other, HALF)
    shards = ShardedModel((halves,), 2)
    assert compacted(shards, EIGHT_BIT) is shards


def test_a_model_goes_from_one_form_to_another():
    _, W = long_tailed(L=300)
    one = LinearModel(sp.csr_array(W), 40, 1.0, label_names=np.arange(300), normalize=True)
    made = one
    for form in (EIGHT_BIT, HALF, EIGHT_BIT, "float32"):
        assert form in FORMS
        made = compacted(made, form)
        assert (made.normalize, made.bias, len(made.label_names)) == (True, 1.0, 300)
    assert isinstance(made, LinearModel)
    eight = compacted(one, EIGHT_BIT)
    assert compacted(eight, None) is eight
    assert eight.weights.nbytes < compacted(one, HALF).weights.nbytes


def test_tiny_weights_vanish_in_8_bits_instead_of_underflowing():
    W = np.array([[1e-40, 3e-38, 1.0]], np.float32)
    found = model_of(W, 0.0, EIGHT_BIT).W.toarray()
    assert found[0, 2] == 1
    assert np.isfinite(found).all()


def test_weights_of_other_features_are_refused():
    weights = model_of(np.eye(3, dtype=np.float32), 0.0, HALF).weights
    assert isinstance(weights, CompactWeights)
    with pytest.raises(InputError, match="not those of the features and the bias"):
        CompactModel(weights, 2)
    with pytest.raises(InputError, match="not those of the features and the bias"):
        CompactModel(weights, 3, 1.0)
