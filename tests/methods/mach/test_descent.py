"""The built-in base: gradients, one epoch against its twin, the optimum of scikit-learn, early stopping."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from longtail.compiled import csr_pattern
from longtail.errors import InputError
from longtail.hybrid import take_columns
from longtail.methods.mach import descent as descent_module
from longtail.methods.mach import softmax_kernels as kernels
from longtail.methods.mach.descent import LINKS, Descent, DescentData, RepetitionGroup
from longtail.methods.mach.problem import MachProblem
from longtail.models.hashing import Hashes
from longtail.parallel import Team, Work
from tests.methods.mach import reference
from tests.methods.one_vs_all.problems import random_problem

DESCENT = Descent(
    learning_rate=0.5, max_iter=1, schedule="linear", batch_size=1, lam=0.0, bias=1.0, early_stopping=False,
    validation_fraction=0.2, n_iter_no_change=1, weights="float32", prune=0.0, seed=3,
)  # fmt: skip


def descent(**changes) -> Descent:
    return Descent(**{**vars(DESCENT), **changes})


def problem(link, n=30, d=8, L=9, seed=0):
    X, Y = random_problem(seed, n=n, d=d, L=L)
    if link == "softmax":
        rows = np.random.default_rng(seed).integers(0, L, n)
        Y = sp.csr_array((np.ones(n, np.int32), rows, np.arange(n + 1)), shape=(n, L))
    return X, Y


def fitted(X, Y, hashes, link, how=DESCENT) -> RepetitionGroup:
    """All repetitions, trained as one group."""
    group = RepetitionGroup(DescentData(how, X, Y, link), hashes, np.arange(hashes.n_repetitions))
    with Team(1) as team:
        group.fit(team)
    return group


def rates_of(X, Y, how):
    """The learning rates, from dense X and Y."""
    squares = (X.astype(np.float64) ** 2).sum(axis=1)
    return how.learning_rate / np.maximum(squares, squares.mean()) * reference.damping(Y)


def weights_of(buckets) -> np.ndarray:
    dense = buckets.matrix.toarray().astype(np.float64) * np.repeat(buckets.steps, buckets.n_buckets)
    return dense.reshape(len(dense), -1, buckets.n_buckets)


def test_exp_to_the_last_bits():
    x = -np.concatenate([[0, 1e-8, 1e-3, 86.9], np.random.default_rng(0).uniform(0, 87, 5000)]).astype(np.float32)
    values, bits = x.copy(), np.empty(len(x), np.int32)
    kernels.exp_all(values, bits, bits.view(np.float32))
    np.testing.assert_allclose(values, np.exp(x.astype(np.float64)), rtol=3e-7)
    far = np.array([-88, -1e30, -np.inf], np.float32)
    kernels.exp_all(far, bits[:3], bits[:3].view(np.float32))
    assert (far < 2e-38).all()
    assert (far >= 0).all()


@pytest.mark.parametrize("n_buckets", [1, 2, 3, 16, 37])
@pytest.mark.parametrize("scale", [1, 30])
def test_softmax_and_sigmoid_equal_their_twins(n_buckets, scale):
    z = (scale * np.random.default_rng(n_buckets).normal(size=(4, n_buckets))).astype(np.float32)
    bits, scratch = np.empty(z.size, np.int32), np.empty(z.size, np.float32)
    P = z.ravel().copy()
    kernels.softmax(P, n_buckets, bits, bits.view(np.float32))
    np.testing.assert_allclose(P.reshape(z.shape), reference.softmax(z.astype(np.float64)), rtol=2e-5, atol=1e-30)
    P = z.ravel().copy()
    kernels.sigmoid(P, scratch, bits, bits.view(np.float32))
    np.testing.assert_allclose(P.reshape(z.shape), reference.sigmoid(z.astype(np.float64)), rtol=2e-5)


@pytest.mark.parametrize("link", LINKS)
def test_the_error_is_the_slope_of_the_loss(link):
    _, Y = problem(link)
    hashes, B = Hashes.draw(9, 4, range(3), 0), 4
    T, rng, h = reference.targets(Y.toarray(), hashes.table, B), np.random.default_rng(1), 1e-5
    bits, scratch = np.empty(12, np.int32), np.empty(12, np.float32)
    for i in range(10):
        z = rng.normal(size=12)
        g = z.astype(np.float32)
        kernels.errors(i, csr_pattern(Y), hashes.table, LINKS[link], 0, B, g, scratch, bits, bits.view(np.float32))
        for c in range(12):
            up, down = z.copy(), z.copy()
            up[c] += h
            down[c] -= h
            slope = reference.loss(up.reshape(3, B), T[i], link) - reference.loss(down.reshape(3, B), T[i], link)
            assert g[c] == pytest.approx(slope / (2 * h), abs=1e-4)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("form", ["sparse", "hybrid"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"batch_size": 4}, {"lam": 0.1}, {"schedule": "constant", "bias": 0.0}, {"lam": 3.0, "learning_rate": 0.3}],
)
def test_an_epoch_equals_its_twin(link, form, changes):
    X, Y = problem(link)
    hashes, how = Hashes.draw(9, 4, range(3), 0), descent(**changes)
    rows = np.sort(np.random.default_rng([3, 1 << 33]).permutation(30))
    order = np.random.default_rng([3, 1 << 32, 0]).permutation(rows)
    W = reference.descend(
        X.toarray(), Y.toarray(), hashes.table, 4, order, rates_of(X.toarray(), Y.toarray(), how), link=link,
        bias=how.bias, lam=how.lam, batch_size=how.batch_size, falls=how.schedule == "linear",
    )  # fmt: skip
    rows = X if form == "sparse" else take_columns(X, np.array([1, 3, 4, 6]))
    np.testing.assert_allclose(weights_of(fitted(rows, Y, hashes, link, how).packed()), W, atol=2e-5)


@pytest.mark.parametrize("link", LINKS)
def test_hybrid_rows_give_the_same_bytes_in_any_number_of_calls_and_pieces(link, monkeypatch):
    X, Y = problem(link, L=200)
    rows, hashes, how = (
        take_columns(X, np.arange(2, 7)),
        Hashes.draw(200, 150, range(2), 0),
        descent(max_iter=2, lam=0.1),
    )
    whole = fitted(rows, Y, hashes, link, how).packed()
    monkeypatch.setattr(DescentData, "rows_per_call", lambda self, n_columns: 7)
    pieces = RepetitionGroup(DescentData(how, rows, Y, link), hashes, np.arange(2), n_threads=4)
    with Team(2) as team:
        pieces.fit(team)
    assert len(pieces.pieces) == (2 if link == "softmax" else 4)
    assert pieces.packed().codes.tobytes() == whole.codes.tobytes()


def test_plain_softmax_regression_is_the_identity_hash_and_reaches_the_optimum_of_scikit_learn():
    """(1) with lam = 1 / (n C) is scikit-learn's objective over C n; the constant feature is one like the others."""
    rng = np.random.default_rng(0)
    n, K = 300, 5
    X = rng.normal(size=(n, 4)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (3 * X @ rng.normal(size=(4, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    rows, lam = np.hstack([X, np.ones((n, 1))]), 0.003
    exact = LogisticRegression(C=1 / (n * lam), fit_intercept=False, tol=1e-8, max_iter=1000).fit(rows, y)
    Y = sp.csr_array((np.ones(n, np.int32), y, np.arange(n + 1)), shape=(n, K))
    buckets = fitted(sp.csr_array(X), Y, Hashes.identity(K), "softmax", descent(lam=lam, max_iter=150)).packed()

    def objective(W):
        P = reference.softmax(rows @ W)
        return -np.log(P[np.arange(n), y]).mean() + lam / 2 * (W**2).sum()

    found, best = objective(weights_of(buckets)[:, 0]), objective(exact.coef_.T)
    assert best - 1e-6 <= found <= best * (1 + 1e-3)
    np.testing.assert_allclose(buckets.probabilities(sp.csr_array(X)), exact.predict_proba(rows), atol=0.03)


def test_a_penalty_that_would_turn_weights_around_is_refused():
    X, Y = problem("softmax")
    with pytest.raises(InputError, match=r"lam 9 times the learning rate, .* must be below 1"):
        DescentData(descent(lam=9.0), X, Y, "softmax")


def test_the_peak_of_memory_is_that_of_few_repetitions():
    """All weights at once would take 4 x 2,001 x 16 x 1,024 bytes: 131 MB."""
    rng, n, d = np.random.default_rng(0), 500, 2000
    X = sp.csr_array((np.ones(4 * n, np.float32), np.arange(d), np.arange(0, 4 * n + 1, 4)))
    Y = sp.csr_array((np.ones(n, np.int32), rng.integers(0, 3000, n), np.arange(n + 1)), shape=(n, 3000))
    hashes, how = Hashes.draw(3000, 1024, range(16), 0), descent(weights="int8", prune=0.2)

    def model():
        whole = MachProblem(X, Y, hashes, how, "softmax")
        stack = whole.stack()
        for block in whole.blocks():
            stack.add(whole.solve(block, Work()))
        return stack.model()

    model()  # compiles
    tracemalloc.start()
    buckets = model().linear
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    group = 4 * (d + 1) * 1024
    assert peak < group + 5 * buckets.nbytes + 3e6


def test_scaling_the_rows_scales_the_weights():
    X, Y = problem("softmax")
    hashes, how = Hashes.draw(9, 4, range(3), 0), descent(max_iter=3, weights="int8", prune=0.1)
    one = fitted(X, Y, hashes, "softmax", how).packed()
    scaled = descent(max_iter=3, weights="int8", prune=0.1, bias=1024.0)
    big = fitted(X * 1024, Y, hashes, "softmax", scaled).packed()
    np.testing.assert_array_equal(one.codes, big.codes)
    np.testing.assert_allclose(one.steps, big.steps * 1024)


@pytest.mark.parametrize("n_iter_no_change", [1, 2])
def test_early_stopping_keeps_the_best_weights_of_each_repetition(n_iter_no_change):
    """Labels that nothing in X explains: accuracy on held-out rows soon stops growing. Against the twin."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.normal(size=(200, 30)).astype(np.float32))
    Y = sp.csr_array((np.ones(200, np.int32), rng.integers(0, 6, 200), np.arange(201)), shape=(200, 6))
    hashes, epochs = Hashes.draw(6, 3, range(4), 0), 8
    how = descent(
        early_stopping=True, max_iter=epochs, schedule="constant", lam=0.01, n_iter_no_change=n_iter_no_change
    )
    group = fitted(X, Y, hashes, "softmax", how)

    shuffled = np.random.default_rng([3, 1 << 33]).permutation(200)
    held_out, training = np.sort(shuffled[:40]), np.sort(shuffled[40:])
    dense = X.toarray(), Y.toarray(), hashes.table, 3
    W, weights, scores = None, [], []
    for epoch in range(epochs):
        order = np.random.default_rng([3, 1 << 32, epoch]).permutation(training)
        W = reference.descend(
            *dense, order, rates_of(*dense[:2], how), link="softmax", bias=1.0, lam=0.01, falls=False, W=W
        )
        weights.append(W)
        scores.append(reference.hits(*dense, held_out, W, 1.0) / 40)
    kept = weights_of(group.packed())
    for r in range(4):
        own = [W[:, r] for W in weights]
        wanted, n_iter, best = reference.stop_early(own, [score[r] for score in scores], n_iter_no_change)
        assert (group.n_iter[r], group.best_iter[r], group.stopped[r]) == (n_iter, best, n_iter < epochs)
        assert group.best_score[r] == scores[best - 1][r]
        np.testing.assert_allclose(kept[:, r], wanted, atol=1e-4)
        for epoch in set(range(1, n_iter + 1)) - {best}:  # no other weights would have passed
            assert abs(weights[epoch - 1][:, r] - wanted).max() > 0.01
    assert len(set(group.n_iter.tolist())) > 1  # each repetition by itself
    assert (group.best_iter < group.n_iter).any()


def test_without_early_stopping_the_last_weights_are_kept():
    X, Y = problem("softmax", n=60)
    hashes = Hashes.draw(9, 4, range(3), 0)
    group = fitted(X, Y, hashes, "softmax", descent(max_iter=3))
    V = group.pieces[0].weights.V
    np.testing.assert_array_equal(weights_of(group.packed())[group.data.features], V.reshape(-1, 3, 4))
    assert (group.n_iter.tolist(), group.best_iter.tolist()) == ([3] * 3, [3] * 3)
    assert np.isnan(group.best_score).all()
    assert len(group.data.held_out) == 0


def test_features_that_never_occur_take_no_room():
    X = sp.csr_array((np.ones(4, np.float32), [1, 3, 1, 3], np.arange(5)), shape=(4, 1000))
    Y = sp.csr_array((np.ones(4, np.int32), [0, 1, 0, 1], np.arange(5)), shape=(4, 2))
    buckets = fitted(X, Y, Hashes.identity(2), "softmax").packed()
    assert np.flatnonzero(np.diff(buckets.ends)).tolist() == [1, 3, 1000]


# --- dense rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("changes", [{}, {"lam": 0.5, "batch_size": 3}, {"early_stopping": True, "max_iter": 3}])
def test_dense_rows_give_the_bytes_of_sparse_ones(link, changes):
    """Zeros of a dense row add nothing to any sum."""
    X, Y = problem(link, n=40, d=11)
    hashes, how = Hashes.draw(9, 4, range(3), 0), descent(**{"weights": "int8", **changes})
    sparse, dense = (fitted(rows, Y, hashes, link, how).packed() for rows in (X, X.toarray()))
    assert sparse.codes.tobytes() == dense.codes.tobytes()
    assert sparse.ends.tobytes() == dense.ends.tobytes()
    assert sparse.steps.tobytes() == dense.steps.tobytes()


def test_dense_rows_are_not_copied():
    X = np.random.default_rng(0).normal(size=(2000, 300)).astype(np.float32)
    Y = sp.csr_array((np.ones(2000, np.int32), np.arange(2000) % 9, np.arange(2001)), shape=(2000, 9))
    DescentData(DESCENT, X[:5], Y[:5], "softmax")
    tracemalloc.start()
    data = DescentData(DESCENT, X, Y, "softmax")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.shares_memory(data.rows.X[0], X)
    assert size < 0.2 * X.nbytes


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_group_begins_with_earlier_buckets(link, n_threads, monkeypatch):
    monkeypatch.setattr(descent_module, "LOADED_FEATURES", 3)
    monkeypatch.setattr(descent_module, "MIN_BUCKETS", 2)
    X, Y = problem(link)
    hashes = Hashes.draw(9, 5, range(4), seed=2)
    earlier = fitted(X, Y, hashes, link, descent(weights="int8")).packed()
    group = RepetitionGroup(DescentData(DESCENT, X, Y, link), hashes, np.array([1, 3]), n_threads)
    group.begin_with(earlier, np.array([1, 3]))
    expected = weights_of(earlier)[:, [1, 3]]
    np.testing.assert_allclose(weights_of(group.packed()), expected, rtol=1e-6)
