"""The search of an ensemble, against twins that score all pairs one at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.models import EnsembleModel, HashedModel, LinearModel, Rules
from longtail.models.buckets import LinearBuckets
from longtail.models.calibrator import Calibrator, Coefficients
from longtail.models.ensemble_index import Weighed
from longtail.models.ensemble_kernels import join_lists, weigh
from longtail.models.hashing import Hashes

L, D, N = 40, 12, 30


def calibrator(seed: int, log_scores: bool, frequency: float = 0.3) -> Calibrator:
    rng = np.random.default_rng(seed)
    knots = np.sort(rng.normal(scale=2, size=9))
    values = np.sort(rng.uniform(1e-7, 1, size=9))
    coefficients = Coefficients(rng.normal(), rng.uniform(0.5, 2), frequency, -rng.uniform(0, 1), -0.2)
    return Calibrator(coefficients, knots, values, rng.integers(0, 50, L), 100, log_scores, 5, rng.uniform(0, 3))


def linear(seed: int, **more: Any) -> LinearModel:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(L, D + 1)) * (rng.random((L, D + 1)) < 0.6)
    return LinearModel(sp.csr_array(W.astype(np.float32)), D, 1.0, calibrator=calibrator(seed, False), **more)


def hashed(seed: int) -> HashedModel:
    rng = np.random.default_rng(seed)
    hashes = Hashes.draw(L, 6, range(5), seed)
    W = rng.normal(size=(D + 1, 30)).astype(np.float32)
    buckets = LinearBuckets.packed(W, np.arange(D + 1), D, 6, 1.0, "sigmoid")
    return HashedModel(hashes, buckets, D, calibrator=calibrator(seed, True))


def ensemble(seed: int, depth: int, weights: tuple[float, ...] = (0.7, 0.4, 0.5)) -> EnsembleModel:
    members = (linear(seed), linear(seed + 1, normalize=True), hashed(seed + 2))
    return EnsembleModel(members, np.array(weights), 0.3, depth, D)


def rows(seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.5)).astype(np.float32))


def slow_log_odds(model: EnsembleModel, X: sp.csr_array, depth: int) -> tuple[np.ndarray, list[set[int]]]:
    """The log-odds of all labels, and the candidates of every row."""
    total = np.full((N, L), model.intercept)
    candidates: list[set[int]] = [set() for _ in range(N)]
    for member, weight in zip(model.members, model.weights, strict=True):
        scores = member.scores(X, np.arange(L))
        for i in range(N):
            order = sorted(range(L), key=lambda label: (-scores[i, label], label))
            ranks = np.full(L, depth + 1)
            ranks[order[:depth]] = np.arange(1, depth + 1)
            if weight:
                candidates[i] |= set(order[:depth])
            everything = np.append(np.arange(L), order[0])
            p = member.calibrator.probabilities(
                everything[None], np.append(scores[i], scores[i].max())[None], np.append(ranks, 1)[None]
            )[0, :L]
            p = np.clip(p.astype(np.float64), 1e-6, 1 - 1e-6)
            total[i] += weight * np.log(p / (1 - p))
    return total, candidates


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 12), st.sampled_from([(0.7, 0.4, 0.5), (1.0, 0.0, 0.2)]))
def test_the_best_labels_are_those_of_scoring_every_pair(seed, depth, k, weights):
    model, X = ensemble(seed, depth, weights), rows(seed + 9)
    total, candidates = slow_log_odds(model, X, max(depth, k))
    top = model.predict_topk(X, k)
    assert top.labels.shape == (N, k)
    for i in range(N):
        assert set(top.labels[i].tolist()) <= candidates[i]
        np.testing.assert_allclose(top.scores[i], total[i, top.labels[i]], atol=1e-4)
        np.testing.assert_allclose(
            top.scores[i], sorted((total[i, c] for c in candidates[i]), reverse=True)[:k], atol=1e-4
        )
    np.testing.assert_allclose(top.probabilities, 1 / (1 + np.exp(-top.scores.astype(np.float64))), rtol=1e-5)


def test_most_pairs_need_no_score(monkeypatch):
    model, X = ensemble(3, 10), rows(4)
    candidates = model.index.candidates(X, 10)
    candidates.best(2)
    there = candidates.labels >= 0
    unlisted = (candidates.ranks > 10).any(axis=0) & there
    assert 0 < (candidates.settled & unlisted).sum() < unlisted.sum() / 2


def test_labels_above_a_threshold_are_those_of_scoring_every_pair():
    model, X = ensemble(5, 6), rows(6)
    total, candidates = slow_log_odds(model, X, 6)
    limit = float(np.median([total[i, c] for i in range(N) for c in candidates[i]])) + 1e-3  # no ties
    found = model.predict_above(X, limit)
    assert found.nnz
    for i in range(N):
        assert found[[i]].indices.tolist() == sorted(c for c in candidates[i] if total[i, c] > limit)


def test_scores_of_given_labels(monkeypatch):
    model, X = ensemble(7, 6), rows(8)
    total, _ = slow_log_odds(model, X, 6)
    ids = np.array([39, 0, 7, 7])
    np.testing.assert_allclose(model.scores(X, ids), total[:, ids], atol=1e-4)
    monkeypatch.setattr("longtail.models.ensemble_index.SCORES_AT_ONCE", 7 * 3 * L)  # seven rows at a time
    np.testing.assert_allclose(model.scores(X, np.arange(L)), total, atol=1e-4)


def test_the_score_of_a_label_does_not_depend_on_the_number_of_answers():
    model, X = ensemble(9, 10), rows(10)
    few, many = model.predict_topk(X, 2), model.predict_topk(X, 10)
    np.testing.assert_array_equal(few.labels, many.labels[:, :2])
    np.testing.assert_array_equal(few.scores, many.scores[:, :2])
    everything = model.scores(X, np.arange(L))
    np.testing.assert_array_equal(many.scores, np.take_along_axis(everything, many.labels, axis=1))


def test_rules_are_part_of_the_search():
    model, X = ensemble(11, 8), rows(12)
    offsets = np.random.default_rng(0).normal(size=L).astype(np.float32)
    total, candidates = slow_log_odds(model, X, 8)
    top = replace(model, rules=Rules(offsets)).predict_topk(X, 4)
    for i in range(N):
        expected = sorted((total[i, c] + offsets[c] for c in candidates[i]), reverse=True)[:4]
        np.testing.assert_allclose(top.scores[i], expected, atol=1e-4)
    offsets[::2] = -np.inf
    top = replace(model, rules=Rules(offsets)).predict_topk(X, L)
    assert top.labels.shape == (N, L // 2)
    assert (top.labels % 2 == 1).all()


def test_no_rows_and_rows_without_features():
    model = ensemble(13, 5)
    assert model.predict_topk(sp.csr_array((0, D), dtype=np.float32), 3).labels.shape == (0, 3)
    assert np.isfinite(model.predict_topk(sp.csr_array((2, D), dtype=np.float32), 3).scores).all()


# --- kernels ---------------------------------------------------------------------------------------------------------


def slow_join(found: np.ndarray, values: np.ndarray, i: int) -> dict[int, list[tuple[int, float]]]:
    """For every candidate of row i: rank and score for each member."""
    M, _, k = found.shape
    union = dict.fromkeys(label for m in range(M) for label in found[m, i].tolist())
    lists = [found[m, i].tolist() for m in range(M)]
    return {
        label: [
            (own.index(label) + 1, values[m, i, own.index(label)]) if label in own else (k + 1, values[m, i, -1])
            for m, own in enumerate(lists)
        ]
        for label in union
    }


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 8))
def test_joined_lists_are_those_of_the_twin(seed, M, k):
    rng = np.random.default_rng(seed)
    found = np.stack([[rng.permutation(15)[:k] for _ in range(4)] for _ in range(M)]).astype(np.int32)
    values = -np.sort(-rng.normal(size=(M, 4, k)).astype(np.float32), axis=2)
    labels = np.full((4, M * k), -1, np.int32)
    ranks = np.empty((M, 4, M * k), np.int32)
    scores = np.empty((M, 4, M * k), np.float32)
    place = np.full(15, -1, np.int32)
    join_lists(found, values, place, labels, ranks, scores)
    assert (place == -1).all()
    for i in range(4):
        expected = slow_join(found, values, i)
        assert labels[i].tolist() == [*expected, *[-1] * (M * k - len(expected))]
        for at, figures in enumerate(expected.values()):
            assert [(ranks[m, i, at], scores[m, i, at]) for m in range(M)] == figures


@pytest.mark.parametrize(("log_scores", "frequency"), [(False, 0.4), (True, 0.0)])
def test_weighed_log_odds_are_those_of_the_calibrator(log_scores, frequency):
    model = replace(linear(1), calibrator=calibrator(2, log_scores, frequency))
    rng = np.random.default_rng(3)
    labels = rng.integers(0, L, (6, 7)).astype(np.int32)
    scores = rng.uniform(1e-3, 1, (6, 7)).astype(np.float32)
    best = scores.max(axis=1)
    ranks = rng.integers(1, 9, (6, 7)).astype(np.int32)
    wanted = rng.random((6, 7)) < 0.8
    out = np.full((6, 7), 99.0)
    weigh(Weighed.of(model, 0.5), labels, scores, ranks, best, wanted, out)
    p = np.clip(model.calibrator.probabilities(labels, scores, ranks).astype(np.float64), 1e-6, 1 - 1e-6)
    for i in range(6):
        for c in range(7):
            expected = 0.5 * math.log(p[i, c] / (1 - p[i, c])) if wanted[i, c] else 99.0
            assert out[i, c] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_log_odds_of_any_score_are_finite(score):
    for log_scores in (False, True):
        model = replace(linear(1), calibrator=calibrator(2, log_scores))
        out = np.full((1, 1), np.nan)
        one = np.ones((1, 1), np.int32)
        scores = np.full((1, 1), score, np.float32)
        weigh(Weighed.of(model, 1.0), one, scores, one, scores[0], np.ones((1, 1), bool), out)
        assert np.isfinite(out).all()
