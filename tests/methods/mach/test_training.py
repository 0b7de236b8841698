"""The built-in base: gradients, one epoch against its twin, the optimum of scikit-learn, indifference to grouping."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from longtail.compiled import csr_parts, csr_pattern, frozen
from longtail.methods.mach import hashing
from longtail.methods.mach import softmax_kernels as kernels
from longtail.methods.mach.training import LINKS, Descent, split_rounds
from longtail.models.hashing import Hashes
from tests.methods.mach import reference
from tests.methods.one_vs_all.problems import random_problem

DESCENT = Descent(
    learning_rate=0.5, n_epochs=1, schedule="linear", batch_size=1, l2=0.0, bias=1.0, early_stopping=False,
    validation_fraction=0.2, n_iter_no_change=1, weights="float32", prune=0.0, seed=3,
)  # fmt: skip


def descent(**changes) -> Descent:
    return Descent(**{**DESCENT.__dict__, **changes})


def problem(link, n=30, d=8, L=9, seed=0):
    X, Y = random_problem(seed, n=n, d=d, L=L)
    if link == "softmax":
        rows = np.random.default_rng(seed).integers(0, L, n)
        Y = sp.csr_array((np.ones(n, np.int32), rows, np.arange(n + 1)), shape=(n, L))
    return X, Y


def fitted(X, Y, hashes, link, how=DESCENT, n_jobs=1):
    return how.fit(X, Y, hashes, link, n_jobs, lambda done, total: None)


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
    hashes, B = hashing.draw(9, 4, range(3), 0), 4
    T, rng, h = reference.targets(Y.toarray(), hashes.table, B), np.random.default_rng(1), 1e-5
    bits, scratch = np.empty(12, np.int32), np.empty(12, np.float32)
    for i in range(10):
        z = rng.normal(size=12)
        g = z.astype(np.float32)
        kernels.errors(i, csr_pattern(Y), hashes.table, LINKS[link], B, g, scratch, bits, bits.view(np.float32))
        for c in range(12):
            up, down = z.copy(), z.copy()
            up[c] += h
            down[c] -= h
            slope = reference.loss(up.reshape(3, B), T[i], link) - reference.loss(down.reshape(3, B), T[i], link)
            assert g[c] == pytest.approx(slope / (2 * h), abs=1e-4)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"batch_size": 4}, {"l2": 0.1}, {"schedule": "constant", "bias": 0.0}, {"l2": 3.0, "learning_rate": 0.3}],
)
def test_an_epoch_equals_its_twin(link, changes):
    X, Y = problem(link)
    hashes, how = hashing.draw(9, 4, range(3), 0), descent(**changes)
    buckets, _ = fitted(X, Y, hashes, link, how)
    squares = (X.toarray().astype(np.float64) ** 2).sum(axis=1)
    rates = how.learning_rate / np.maximum(squares, squares.mean()) * reference.damping(Y.toarray())
    rows = np.sort(np.random.default_rng([3, 1 << 33]).permutation(30))
    order = np.random.default_rng([3, 1 << 32, 0]).permutation(rows)
    W = reference.descend(
        X.toarray(), Y.toarray(), hashes.table, 4, order, rates, link=link, bias=how.bias, l2=how.l2,
        batch_size=how.batch_size, falls=how.schedule == "linear",
    )  # fmt: skip
    np.testing.assert_allclose(weights_of(buckets), W, atol=2e-5)


def test_plain_softmax_regression_is_the_perfect_hash_and_reaches_the_optimum_of_scikit_learn():
    """(1) with l2 = 1 / (n C) is scikit-learn's objective over C n, the constant feature being one like the others."""
    rng = np.random.default_rng(0)
    n, K = 300, 5
    X = rng.normal(size=(n, 4)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (3 * X @ rng.normal(size=(4, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    rows, l2 = np.hstack([X, np.ones((n, 1))]), 0.003
    exact = LogisticRegression(C=1 / (n * l2), fit_intercept=False, tol=1e-8, max_iter=1000).fit(rows, y)
    Y = sp.csr_array((np.ones(n, np.int32), y, np.arange(n + 1)), shape=(n, K))
    buckets, _ = fitted(sp.csr_array(X), Y, hashing.perfect(K), "softmax", descent(l2=l2, n_epochs=150))

    def objective(W):
        P = reference.softmax(rows @ W)
        return -np.log(P[np.arange(n), y]).mean() + l2 / 2 * (W**2).sum()

    found, best = objective(weights_of(buckets)[:, 0]), objective(exact.coef_.T)
    assert best - 1e-6 <= found <= best * (1 + 1e-3)
    np.testing.assert_allclose(buckets.probabilities(sp.csr_array(X)), exact.predict_proba(rows), atol=0.03)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("changes", [{}, {"l2": 2.0}, {"early_stopping": True, "n_epochs": 6}, {"batch_size": 5}])
def test_grouping_and_threads_do_not_change_a_byte(link, changes, monkeypatch):
    """Groups of 1 to 5 repetitions, one or several to a thread, calls of few and of many rows."""
    from longtail.methods.mach import training

    X, Y = problem(link, n=60)
    hashes, how = hashing.draw(9, 5, range(5), 0), descent(**{"weights": "int8", "n_epochs": 2, **changes})
    whole, epochs = fitted(X, Y, hashes, link, how)
    for n_jobs, work, columns in ((2, 1e9, 1024), (4, 1.0, 1024), (5, 1e3, 1024), (1, 1e9, 10), (2, 1e3, 1)):
        monkeypatch.setattr(training, "WORK_PER_CALL", work)
        monkeypatch.setattr(training, "COLUMNS_TOGETHER", columns)
        other, other_epochs = fitted(X, Y, hashes, link, how, n_jobs)
        for name in ("ends", "codes", "columns", "steps"):
            a, b = getattr(whole, name), getattr(other, name)
            assert (a is None and b is None) or a.tobytes() == b.tobytes(), name
        np.testing.assert_array_equal(epochs, other_epochs)


@pytest.mark.parametrize(
    ("sizes", "rounds"),
    [
        ((8, 512, 1), [[2], [2], [2], [2]]),
        ((8, 512, 2), [[2, 2], [2, 2]]),
        ((25, 32, 2), [[12, 13]]),
        ((3, 4096, 2), [[1, 1], [1]]),
        ((2, 16, 4), [[1, 1]]),
    ],
)
def test_threads_share_the_repetitions_evenly_and_train_few_at_a_time(sizes, rounds):
    found = split_rounds(*sizes)
    assert [[len(group) for group in each] for each in found] == rounds
    assert [r for each in found for group in each for r in group] == list(range(sizes[0]))


def test_the_peak_of_memory_is_that_of_few_repetitions():
    """All weights at once would take 4 x 2,001 x 16 x 1,024 bytes: 131 MB."""
    rng, n, d = np.random.default_rng(0), 500, 2000
    X = sp.csr_array((np.ones(4 * n, np.float32), np.arange(d), np.arange(0, 4 * n + 1, 4)))
    Y = sp.csr_array((np.ones(n, np.int32), rng.integers(0, 3000, n), np.arange(n + 1)), shape=(n, 3000))
    hashes, how = hashing.draw(3000, 1024, range(16), 0), descent(weights="int8", prune=0.2)
    fitted(X, Y, hashes, "softmax", how)  # compiles
    tracemalloc.start()
    buckets, _ = fitted(X, Y, hashes, "softmax", how)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    group = 4 * (d + 1) * 1024
    assert peak < group + 5 * buckets.nbytes + 3e6


def test_scaling_the_rows_scales_the_weights():
    X, Y = problem("softmax")
    hashes, how = hashing.draw(9, 4, range(3), 0), descent(n_epochs=3, weights="int8", prune=0.1)
    one, _ = fitted(X, Y, hashes, "softmax", how)
    big, _ = fitted(X * 1024, Y, hashes, "softmax", descent(n_epochs=3, weights="int8", prune=0.1, bias=1024.0))
    np.testing.assert_array_equal(one.codes, big.codes)
    np.testing.assert_allclose(one.steps, big.steps * 1024)


def test_early_stopping_keeps_the_best_weights():
    """Labels that nothing in X tells: the accuracy on held-out rows stops to grow soon."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.normal(size=(200, 30)).astype(np.float32))
    Y = sp.csr_array((np.ones(200, np.int32), rng.integers(0, 6, 200), np.arange(201)), shape=(200, 6))
    hashes = hashing.draw(6, 3, range(4), 0)
    _, epochs = fitted(X, Y, hashes, "softmax", descent(early_stopping=True, n_epochs=50))
    assert epochs.max() < 50
    assert len(set(epochs.tolist())) > 1  # each repetition by itself
    best, epochs = fitted(X, Y, hashes, "softmax", descent(early_stopping=True, n_epochs=2))
    assert epochs.tolist() == [2] * 4
    first, _ = fitted(X, Y, hashes, "softmax", descent(early_stopping=True, n_epochs=1, schedule="constant"))
    rows = np.random.default_rng([3, 1 << 33]).permutation(200)[:40]
    best_buckets = first.logits(X[rows]).reshape(40, 4, 3).argmax(axis=2)
    hits = (best_buckets == hashes.table[Y.indices[rows]]).sum(axis=0)
    out = np.empty(4, np.int64)
    W = np.ascontiguousarray(weights_of(first).reshape(31, 12), np.float32)
    kernels.count_hits(
        csr_parts(X), csr_pattern(Y), hashes.table, frozen(rows, np.int64), np.float32(1), 3, W, np.ones(4),
        np.empty(12, np.float32), out,
    )  # fmt: skip
    assert out.tolist() == hits.tolist()
    assert np.isfinite(weights_of(best)).all()


def test_features_that_never_occur_take_no_room():
    X = sp.csr_array((np.ones(4, np.float32), [1, 3, 1, 3], np.arange(5)), shape=(4, 1000))
    Y = sp.csr_array((np.ones(4, np.int32), [0, 1, 0, 1], np.arange(5)), shape=(4, 2))
    buckets, _ = fitted(X, Y, Hashes(np.ones(1, int), np.zeros(1, int), 2, 2), "softmax")
    assert np.flatnonzero(np.diff(buckets.ends)).tolist() == [1, 3, 1000]
