"""Linear models with dense weights: predictions against a plain matrix, same bits in every way of asking."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import store
from longtail.errors import InputError, ModelError
from longtail.hybrid import HybridRows, take_columns
from longtail.methods.one_vs_all import verify_kernels
from longtail.models import LinearModel, dense, dense_kernels
from longtail.models.compact import compacted
from longtail.models.dense import DenseWeights
from longtail.models.sharded import divided
from tests import reference


def hybrid_model(seed: int = 0, L: int = 70, d: int = 9, m: int = 4, bias: float = 1.0, half: bool = True):
    """A model whose dense features stand among the others, and all of its weights as one matrix."""
    rng = np.random.default_rng(seed)
    W = (rng.normal(size=(L, d + (bias > 0))) * (rng.random((L, d + (bias > 0))) < 0.5)).astype(np.float32)
    columns = np.sort(rng.choice(d, m, replace=False))
    weights = rng.integers(-8, 9, size=(L, m)).astype(np.float32) / 8  # exact in half precision
    W[:, columns] = 0
    model = LinearModel(
        sp.csr_array(W), d, bias, dense=DenseWeights(weights.astype(np.float16 if half else np.float32), columns)
    )
    W[:, columns] = weights
    return model, W


def rows_of(seed: int, n: int = 11, d: int = 9) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)).astype(np.float32))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.5]), st.integers(1, 9), st.booleans())
def test_predictions_are_those_of_one_matrix(seed, bias, k, half):
    model, W = hybrid_model(seed, bias=bias, half=half)
    X = rows_of(seed + 1)
    expected = reference.scores(X.toarray(), W, bias)
    top = model.predict_topk(X, k)
    np.testing.assert_allclose(top.scores, np.take_along_axis(expected, top.labels, axis=1), rtol=1e-5, atol=1e-5)
    best = -np.sort(-expected, axis=1)[:, :k]
    np.testing.assert_allclose(top.scores, best, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.scores(X, np.arange(70)), expected, rtol=1e-5, atol=1e-5)
    above = model.predict_above(X, 0.3).toarray().astype(bool)
    clear = np.abs(expected - 0.3) > 1e-4
    np.testing.assert_array_equal(above[clear], (expected > 0.3)[clear])


@pytest.mark.parametrize("half", [True, False])
def test_a_score_has_the_same_bits_however_it_is_asked_for(half, monkeypatch):
    model, _ = hybrid_model(3, L=200, half=half)
    X = rows_of(4, n=40)
    everything = model.predict_topk(X, 200)
    monkeypatch.setattr(dense, "CHUNK_BYTES", 4 * 256 * 3)  # three rows at a time
    for n_jobs in (1, 2):
        again = model.predict_topk(X, 200, n_jobs=n_jobs)
        assert again.scores.tobytes() == everything.scores.tobytes()
        assert again.labels.tobytes() == everything.labels.tobytes()
    alone = np.concatenate([model.predict_topk(X[[i]], 200).scores for i in range(40)])
    assert alone.tobytes() == everything.scores.tobytes()
    rows = np.repeat(np.arange(40), 200)
    pairs = model.index.pairs(model._rows(X), rows, everything.labels.ravel())
    assert pairs.tobytes() == everything.scores.tobytes()
    shards = divided(model, 300)
    assert len(shards.shards) > 1
    assert shards.predict_topk(X, 200).scores.tobytes() == everything.scores.tobytes()


@pytest.mark.parametrize(("n", "L", "m"), [(1, 1, 1), (2, 33, 5), (5, 64, 0), (4, 130, 17)])
def test_the_kernels_multiply(n, L, m):
    rng = np.random.default_rng(n)
    rows, weights = rng.normal(size=(n, m)).astype(np.float32), rng.normal(size=(L, m)).astype(np.float16)
    panels = DenseWeights(weights, np.arange(m)).panels
    width = len(panels) * dense_kernels.PANEL_LABELS
    bias = np.zeros(width, np.float32)
    bias[:L] = rng.normal(size=L)
    bias[0] = -np.inf
    out, peaks = np.empty((n, width), np.float32), np.empty(n, np.float32)
    dense_kernels.add_products(rows, panels, bias, out, peaks)
    expected = bias[:L] + rows.astype(float) @ weights.astype(float).T
    np.testing.assert_allclose(out[:, :L], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(peaks, np.abs(out[:, 1:]).max(axis=1, initial=0), rtol=1e-6)
    numbers, labels = np.repeat(np.arange(n), L), np.tile(np.arange(L), n)
    found = np.empty(n * L, np.float32)
    dense_kernels.pair_products(rows, panels, bias, numbers, labels, found)
    assert found.tobytes() == np.ascontiguousarray(out[:, :L]).tobytes()


@numba.njit
def product_of_the_solver(rows, numbers, panel, out):
    verify_kernels.dense_scores(rows, numbers, panel, out)


@pytest.mark.parametrize("m", [0, 1, 17, 256])
def test_the_product_here_and_in_the_solver_have_the_same_bits(m):
    """A kernel uses nothing of another file, so there are two."""
    rng = np.random.default_rng(m)
    n = verify_kernels.DENSE_ROWS
    rows, panel = rng.normal(size=(n, m)).astype(np.float32), rng.normal(size=(m, 32)).astype(np.float32)
    here, there = (np.full((n, 32), np.nan, np.float32) for _ in range(2))
    dense_kernels.add_products(rows, panel[None], np.zeros(32, np.float32), here, np.empty(n, np.float32))
    product_of_the_solver(rows, np.arange(n, dtype=np.uint64), panel, there)
    assert here.tobytes() == there.tobytes()
    np.testing.assert_allclose(here, rows.astype(float) @ panel.astype(float), rtol=1e-4, atol=1e-5)


def test_rows_may_come_in_parts_or_whole():
    model, _ = hybrid_model()
    X = rows_of(1)
    parts = take_columns(X, model.dense.columns)
    other = take_columns(X, np.array([0, 5]))
    scores = [model.predict_topk(rows, 3).scores.tobytes() for rows in (X, parts, other)]
    assert scores[0] == scores[1] == scores[2]
    plain = LinearModel(model.W, 9, 1.0)
    assert plain.predict_topk(parts, 3).scores.tobytes() == plain.predict_topk(X, 3).scores.tobytes()


def test_explanations_have_one_share_for_the_dense_part():
    model, W = hybrid_model(5)
    X = rows_of(6, n=1)
    why = model.explain(X, 7)
    assert [share.feature for share in why.contributions].count("(embedding)") == 1
    total = sum(share.contribution for share in why.contributions) + why.bias
    assert why.score == pytest.approx(total)
    assert why.score == pytest.approx(float(reference.scores(X.toarray(), W, 1.0)[0, 7]), rel=1e-5)


def test_slices_and_stacks_keep_the_dense_weights():
    model, _ = hybrid_model()
    again = LinearModel.stack([model.slice(0, 20), model.slice(20, 70)])
    np.testing.assert_array_equal(again.dense.weights, model.dense.weights)
    with pytest.raises(InputError, match="differ in their dense features"):
        LinearModel.stack([model, LinearModel(model.W, 9, 1.0)])


@pytest.mark.parametrize(
    ("weight", "dtype"), [(0.5, np.float16), (6e4, np.float16), (0.1, np.float32), (1e5, np.float32)]
)
def test_half_precision_is_used_where_nothing_is_lost(weight, dtype):
    weights = np.array([[0.25, weight]], np.float32)
    found = DenseWeights.of(weights, np.arange(2)).weights
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, weights)


@pytest.mark.parametrize("half", [True, False])
def test_a_model_folder_keeps_them(tmp_path, half):
    model, _ = hybrid_model(half=half)
    store.write_model(tmp_path / "model", model, store.Provenance("one-vs-all"))
    again, _ = store.read_model(tmp_path / "model")
    assert again.dense.weights.dtype == model.dense.weights.dtype
    np.testing.assert_array_equal(again.dense.weights, model.dense.weights)
    X = rows_of(2)
    assert again.predict_topk(X, 5).scores.tobytes() == model.predict_topk(X, 5).scores.tobytes()
    shards = divided(model, 60)
    store.write_model(tmp_path / "shards", shards, store.Provenance("one-vs-all"))
    again, _ = store.read_model(tmp_path / "shards")
    assert again.predict_topk(X, 5).scores.tobytes() == model.predict_topk(X, 5).scores.tobytes()


def test_weights_that_do_not_fit_are_refused():
    W = sp.csr_array((3, 5), dtype=np.float32)
    with pytest.raises(InputError, match="W has the weights of 3 labels, but there are dense weights of 2"):
        LinearModel(W, 5, dense=DenseWeights(np.zeros((2, 1), np.float16), np.array([4])))
    with pytest.raises(InputError, match="in increasing order"):
        DenseWeights(np.zeros((2, 2), np.float16), np.array([1, 0]))
    with pytest.raises(InputError, match="float16, float32 or int8"):
        DenseWeights(np.zeros((2, 1)), np.array([0]))
    with pytest.raises(InputError, match="int8 have steps"):
        DenseWeights(np.zeros((2, 1), np.int8), np.array([0]))
    with pytest.raises(InputError, match="too large for half precision"):
        DenseWeights(np.full((2, 1), 1e5, np.float32), np.array([0])).in_form("half")


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-39, 1e-3, 1.0, 1e4]))
def test_weights_of_8_bits_are_off_by_half_a_step(seed, scale):
    weights = (np.random.default_rng(seed).normal(size=(40, 5)) * scale).astype(np.float32)
    weights[:, 0] = 0
    codes = DenseWeights(weights, np.arange(5)).in_form("8-bit")
    assert codes.weights.dtype == np.int8
    assert codes.in_form("8-bit") is codes
    bound = np.abs(weights).max(axis=0) / 253
    assert (np.abs(codes.floats() - weights) <= np.maximum(bound, 1e-36)).all()
    np.testing.assert_array_equal(codes.in_form("float32").weights, codes.floats())
    np.testing.assert_array_equal(codes[3:7].floats(), codes.floats(slice(3, 7)))


def test_a_model_of_8_bits_answers_by_its_own_weights(tmp_path):
    model, _ = hybrid_model(5, L=200)
    codes = replace(model, dense=model.dense.in_form("8-bit"))
    floats = replace(model, dense=codes.dense.in_form("float32"))
    X = rows_of(6, n=20)
    np.testing.assert_allclose(codes.predict_topk(X, 9).scores, floats.predict_topk(X, 9).scores, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(codes.scores(X, [1, 5]), floats.scores(X, [1, 5]), rtol=1e-5, atol=1e-5)
    store.write_model(tmp_path / "model", compacted(model, "8-bit"), store.Provenance("one-vs-all"))
    again, _ = store.read_model(tmp_path / "model")
    assert again.dense.weights.dtype == np.int8
    assert again.predict_topk(X, 9).scores.tobytes() == compacted(model, "8-bit").predict_topk(X, 9).scores.tobytes()
    rows = np.repeat(np.arange(20), 200)
    everything = again.predict_topk(X, 200)
    pairs = again.index.pairs(again._rows(X), rows, everything.labels.ravel())
    assert pairs.tobytes() == everything.scores.tobytes()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("dense_columns", lambda columns: columns[::-1].copy(), "not sorted and unique"),
        ("dense_columns", lambda columns: columns + 9, "leaves the range"),
        ("dense_columns", lambda columns: columns[:-1], "dense_weights has shape"),
        ("dense_weights", lambda weights: np.full_like(weights, 0x7C00), "dense_weights holds NaN or infinity"),
        ("dense_weights", lambda weights: weights[:-1], "dense_weights has shape"),
    ],
)
def test_damaged_dense_weights_are_refused(tmp_path, monkeypatch, name, change, message):
    model, _ = hybrid_model()
    to_arrays = store.linear.to_arrays

    def changed(*args):
        arrays, meta = to_arrays(*args)
        return ((each, change(array) if each == name else array) for each, array in arrays), meta

    monkeypatch.setattr(store.linear, "to_arrays", changed)
    store.write_model(tmp_path / "model", model, store.Provenance("one-vs-all"))
    with pytest.raises(ModelError, match=message):
        store.read_model(tmp_path / "model")


def test_a_sparse_weight_of_a_dense_feature_is_refused(tmp_path):
    W = sp.csr_array(np.ones((2, 3), np.float32))
    model = LinearModel(W, 3, dense=DenseWeights(np.zeros((2, 1), np.float16), np.array([1])))
    store.write_model(tmp_path / "model", model, store.Provenance("one-vs-all"))
    with pytest.raises(ModelError, match="W has weights of a dense feature"):
        store.read_model(tmp_path / "model")


def test_hybrid_rows_of_other_features_are_refused():
    model, _ = hybrid_model()
    with pytest.raises(InputError, match="the model takes csr with 9"):
        model.predict_topk(HybridRows(sp.csr_array((1, 3), dtype=np.float32), np.ones((1, 2))))
