"""The kernels of MACH's descent one by one, each against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.compiled import csr_parts, csr_pattern, frozen, row_parts
from longtail.methods.mach import softmax_kernels as kernels
from longtail.methods.mach.descent import LINKS, GroupBuffers, GroupWeights, RatedRows, StepRule
from longtail.models.hashing import Hashes
from tests.methods.mach import reference
from tests.methods.mach.test_descent import problem, rates_of
from tests.methods.one_vs_all.problems import random_problem


def numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64])
def test_vectors(size):
    a, rows, out = numbers(0, size), numbers(1, 6, size), numbers(2, size)
    expected = out.astype(np.float64) + 0.5 * a
    kernels.add_product(np.float32(0.5), a, out)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    x, chosen = np.float32([0.5, -1, 2, 0.25]), np.array([5, 0, 3, 0], np.uint32)
    one_by_one = out.copy()
    for factor, row in zip(x, chosen, strict=True):
        kernels.add_product(factor, rows[row], one_by_one)
    kernels.add_four(x, *rows[chosen], out)
    np.testing.assert_array_equal(out, one_by_one)  # the same sums in the same order
    assert kernels.largest(a) == a.max()
    assert kernels.total(a) == pytest.approx(a.astype(np.float64).sum(), abs=1e-5)
    kernels.multiply(out, np.float32(3))
    np.testing.assert_array_equal(out, 3 * one_by_one)


@pytest.mark.parametrize("bias", [0.0, 0.7])
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_logits_steps_and_scales(bias, form):
    X, _ = random_problem(0, n=12, d=9)
    parts = row_parts(X if form == "sparse" else X.toarray())
    dense, V, scales = X.toarray().astype(np.float64), numbers(3, 10, 12), np.array([1.0, 0.5, 0.25])
    columns = np.repeat(scales, 4)
    for i in range(12):
        x = np.append(dense[i], bias)
        z = np.empty(12, np.float32)
        kernels.logits(i, parts, np.float32(bias), V, scales, 4, z)
        np.testing.assert_allclose(z, (x @ V) * columns, atol=1e-5)
        g, rates, moved = numbers(i, 12), np.float32([0.1, 0.2, 0.3]), V.copy()
        wanted = V - np.outer(x, np.repeat(rates, 4) * g)
        kernels.step(i, parts, np.float32(bias), rates, 4, g, moved)
        np.testing.assert_allclose(moved, wanted, atol=1e-6)
    W = V * columns
    for r in range(3):
        kernels.absorb(r, 4, V, scales)
    np.testing.assert_allclose(V, W, rtol=1e-6)
    assert scales.tolist() == [1, 1, 1]


@pytest.mark.parametrize("link", LINKS)
def test_the_best_buckets_of_rows_are_counted(link):
    X, Y = problem(link)
    hashes, V = Hashes.draw(9, 4, range(3), 0), numbers(4, 9, 12)
    rows = RatedRows(csr_parts(X), csr_pattern(Y), np.ones(30, np.float32))
    rule = StepRule(30, True, 0.0, np.float32(0.5), LINKS[link], 4, 1)
    scales = np.array([2.0, 1.0, 0.5])
    weights = GroupWeights(V, scales, np.ones(3), hashes.table)
    chosen, out = np.arange(5, 25), np.empty(3, np.int64)
    best = np.empty((20, 3), np.float32), np.empty((20, 3), np.int64)
    kernels.best_buckets(rows, rule, weights, frozen(chosen, np.int64), np.empty(12, np.float32), *best)
    kernels.count_hits(rows.Y, weights.table, frozen(chosen, np.int64), frozen(best[1], np.int64), out)
    W = (V.astype(np.float64) * np.repeat(scales, 4)).reshape(9, 3, 4)
    assert out.tolist() == reference.hits(X.toarray(), Y.toarray(), hashes.table, 4, chosen, W, 0.5).tolist()
    assert 0 < out.sum() < 60


def test_a_repetition_that_has_stopped_keeps_its_weights():
    X, Y = problem("softmax")
    hashes, V = Hashes.draw(9, 4, range(2), 0), numbers(5, 9, 8)
    rates = frozen(rates_of(X.toarray(), Y.toarray(), type("Rate", (), {"learning_rate": 0.5})), np.float32)
    rows = RatedRows(csr_parts(X), csr_pattern(Y), rates)
    rule = StepRule(30, False, 0.1, np.float32(1), LINKS["softmax"], 4, 3)
    weights = GroupWeights(V.copy(), np.ones(2), np.array([0.0, 1.0]), hashes.table)
    kernels.train(rows, rule, weights, GroupBuffers.of(3, 8), frozen(np.arange(30), np.int64), 0)
    np.testing.assert_array_equal(weights.V[:, :4], V[:, :4])
    assert weights.scales[0] == 1
    W = reference.descend(
        X.toarray(), Y.toarray(), hashes.table[:, 1:], 4, np.arange(30), rates, link="softmax", bias=1.0, lam=0.1,
        batch_size=3, falls=False, W=V[:, None, 4:].astype(np.float64),
    )  # fmt: skip
    np.testing.assert_allclose(weights.V[:, 4:] * weights.scales[1], W[:, 0], atol=2e-5)
