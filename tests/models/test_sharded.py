"""Shards give the same bits as the model in one piece, for every question that a model answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.models import Calibrator, LinearModel, Rules, ShardedModel, Thresholds
from longtail.models.calibrator import Coefficients
from longtail.models.sharded import MAX_SHARDS, SHARD_BYTES, WEIGHT_BYTES, cut, divided, shard_weights

L, D, N = 300, 30, 40


def whole(seed: int = 0, *, bias: float = 1.0, **more) -> LinearModel:
    """Weights with many equal scores: they are small whole numbers, and rows repeat."""
    rng = np.random.default_rng(seed)
    W = rng.integers(-2, 3, size=(L, D + (bias > 0))) * (rng.random((L, D + (bias > 0))) < 0.3)
    W[100:200] = W[:100]
    W[50] = W[250] = 0
    return LinearModel(sp.csr_array(W.astype(np.float32)), D, bias, **more)


def rows(seed: int = 1) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 4, size=(N, D)) * (rng.random((N, D)) < 0.3)
    X[3] = 0
    return sp.csr_array(X.astype(np.float32))


def decisions() -> dict:
    knots = np.linspace(-4.0, 4.0, 5)
    counts = np.arange(L) % 7 + 1
    offsets = np.where(np.arange(L) % 5 == 0, -np.inf, np.arange(L) % 3).astype(np.float32)
    calibrator = Calibrator(
        Coefficients(0.0, 1.0, 0.1, -0.2, 0.1), knots, 1 / (1 + np.exp(-knots)), counts, 100, False, 20
    )
    return {
        "names": {"label_names": np.array([f"label {i}" for i in range(L)]), "normalize": True},
        "calibrated": {"calibrator": calibrator, "thresholds": Thresholds("micro-f1", np.float64(0.4), None, 10, {})},
        "rules": {"rules": Rules(offsets)},
        "all but three denied": {
            "rules": Rules(np.where(np.isin(np.arange(L), [7, 150, 299]), 0, -np.inf).astype("f4"))
        },
    }


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("more", [{}, *decisions().values()], ids=["plain", *decisions()])
@pytest.mark.parametrize("most", [1, 57, 700])
def test_every_answer_has_the_same_bits(bias, more, most):
    one = whole(bias=bias, **more)
    many, X = divided(one, most), rows()
    assert isinstance(many, ShardedModel)
    assert len(many.shards) > 1
    for k in (1, 5, L, L + 9):
        for n_jobs in (1, 2):
            mine, wanted = many.predict_topk(X, k, n_jobs=n_jobs), one.predict_topk(X, k, n_jobs=n_jobs)
            assert mine == wanted
            assert (mine.labels.dtype, mine.scores.dtype) == (np.int32, np.float32)
    ids = np.array([299, 0, 150, 7, 7])
    np.testing.assert_array_equal(many.scores(X, ids), one.scores(X, ids))
    np.testing.assert_array_equal(many.scores(X, np.arange(L)), one.scores(X, np.arange(L)))
    pairs = np.repeat(np.arange(N), 6), np.random.default_rng(2).integers(0, L, size=6 * N)
    np.testing.assert_array_equal(many.index.batch(X).pairs(*pairs), one.index.batch(X).pairs(*pairs))
    for threshold in (-1.0, 2.0, 1e9):
        mine, wanted = many.predict_above(X, threshold), one.predict_above(X, threshold)
        assert mine.indices.tolist() == wanted.indices.tolist()
        assert mine.indptr.tolist() == wanted.indptr.tolist()
    assert (many.predict_labels(X) != one.predict_labels(X)).nnz == 0
    for label in (0, 50, 299):
        assert many.explain(X[[0]], label) == one.explain(X[[0]], label)
        assert [part.tolist() for part in many.label_weights(label)[:2]] == [
            part.tolist() for part in one.label_weights(label)[:2]
        ]
    assert (many.W != one.W).nnz == 0
    assert many.weights_per_label.tolist() == one.weights_per_label.tolist()
    assert (many.n_labels, many.n_weights, many.bias) == (one.n_labels, one.n_weights, one.bias)


def test_many_rows_on_many_threads():
    one = whole()
    X = sp.csr_array(sp.vstack([rows(seed) for seed in range(20)]))
    assert divided(one, 100).predict_topk(X, 7, n_jobs=2) == one.predict_topk(X, 7, n_jobs=1)


def test_shards_share_the_memory_of_the_model_and_a_small_model_stays_whole():
    one = whole()
    assert divided(one, one.n_weights) is one
    many = divided(one, one.n_weights - 1)
    assert len(many.shards) == 2
    assert all(np.shares_memory(shard.W.data, one.W.data) for shard in many.shards)
    assert all(np.shares_memory(shard.W.indices, one.W.indices) for shard in many.shards)


@pytest.mark.parametrize("seed", range(20))
def test_each_shard_takes_as_many_rows_as_fit(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 30, size=50) * (rng.random(50) < 0.7)
    indptr, most = np.concatenate([[0], np.cumsum(lengths)]), int(rng.integers(10, 60))
    cuts, expected, total = cut(indptr, most), [0], 0
    for row, length in enumerate(lengths.tolist()):  # the obvious twin, as WeightStack does it
        if row > expected[-1] and total + length > most:
            expected.append(row)
            total = 0
        total += length
    assert cuts == [*expected, 50]


def test_there_are_never_too_many_shards():
    lengths = np.random.default_rng(0).integers(0, 9, size=5000)
    assert 100 < len(cut(np.concatenate([[0], np.cumsum(lengths)]), 1)) - 1 <= MAX_SHARDS


def test_sizes_of_shards():
    assert shard_weights(None) == SHARD_BYTES // WEIGHT_BYTES
    assert shard_weights(800) == 100
    assert shard_weights(1) == 1
    assert shard_weights(2**60) == 2**31 - 1  # SciPy's indices count no further


def test_shards_that_do_not_belong_together_are_refused():
    one = whole()
    other = whole(bias=0.0)
    for shards in ((), (one, other), (one, replace(one, W=one.W[:, 1:], n_features=D - 1))):
        with pytest.raises(InputError, match="shard"):
            ShardedModel(shards, D)
    with pytest.raises(InputError, match="2 label names were given for 300 labels"):
        ShardedModel((one,), D, label_names=np.array(["a", "b"]))
    with pytest.raises(InputError, match="column numbers from 0 to 299"):
        divided(one, 100).scores(rows(), [300])
