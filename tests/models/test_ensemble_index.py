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

from longtail.models import EnsembleModel, HashedModel, LinearModel, Mixture, Rules
from longtail.models.buckets import LinearBuckets
from longtail.models.calibrator import Calibrator, Coefficients
from longtail.models.compact import compacted
from longtail.models.compact_weights import HALF
from longtail.models.ensemble_index import Member, log_ranks
from longtail.models.ensemble_kernels import join_lists, weigh
from longtail.models.hashing import Hashes

L, D, N = 40, 12, 30
ALL = True, True, True  # members are used


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


def mixture(seed: int, used: tuple[bool, ...] = ALL) -> Mixture:
    rng = np.random.default_rng(seed)
    shape = len(used), 4
    of = np.array(used)[:, None]
    margin = rng.uniform(0, 2, shape) * (rng.random(shape) < 0.8)
    best = np.where(rng.random(shape) < 0.5, -margin, rng.normal(size=shape).clip(-margin))
    a, w, r, b = rng.normal(size=shape) * of, margin * of, -rng.uniform(0, 1, shape) * of, best * of
    return Mixture(np.log1p([1, 4, 20, 30]), a, w, r, b)


def earlier(members: tuple[Any, ...], weights: tuple[float, ...] = (0.7, 0.4, 0.5)) -> Mixture:
    """The mixture of a folder of an earlier version."""
    return Mixture.calibrated([member.calibrator for member in members], np.array(weights), 0.3)


def ensemble(seed: int, depth: int, used: tuple[bool, ...] | None = ALL, *, compact: bool = False) -> EnsembleModel:
    members: tuple[Any, ...] = (linear(seed), linear(seed + 1, normalize=True), hashed(seed + 2))
    if compact:  # these score the labels of other lists while they search
        members = tuple(compacted(member, HALF) for member in members)
    combined = earlier(members) if used is None else mixture(seed, used)
    return EnsembleModel(members, combined, depth, D)


def rows(seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.5)).astype(np.float32))


def slow_term(model: EnsembleModel, m: int, label: int, s: float, rank: int, t: float) -> float:
    """The term of member m in (1) or (2) of mixture.py."""
    c, mix = model.members[m].calibrator, model.mixture
    s, t = (math.log(max(x, 1e-30)) if c.log_scores else x for x in (s, t))
    if mix.curved is None:
        f = math.log(1 + c.counts[label])
        a, w, r, b = (float(np.interp(f, mix.knots, each[m])) for each in mix.lines)
        return a + w * s + r * math.log(rank + c.rank_offset) + b * t
    intercept, margin, frequency, rank_slope, best = c.coefficients
    z = intercept + margin * s + frequency * math.log(1 + c.counts[label])
    z += rank_slope * math.log(rank + c.rank_offset) + best * t
    p = min(max(float(np.interp(z, c.knots, c.values)), 1e-6), 1 - 1e-6)
    return float(mix.curved[m]) * math.log(p / (1 - p))


def slow_log_odds(model: EnsembleModel, X: sp.csr_array, depth: int) -> tuple[np.ndarray, list[set[int]]]:
    """The log-odds of all labels, and the candidates of every row."""
    total = np.full((N, L), model.mixture.shift)
    candidates: list[set[int]] = [set() for _ in range(N)]
    for m in model.mixture.used:
        scores = model.members[m].scores(X, np.arange(L)).astype(np.float64)
        for i in range(N):
            order = sorted(range(L), key=lambda label: (-scores[i, label], label))
            candidates[i] |= set(order[:depth])
            for label in range(L):
                rank = order.index(label) + 1
                term = slow_term(model, m, label, scores[i, label], min(rank, depth + 1), scores[i, order[0]])
                total[i, label] += term
    return total, candidates


@settings(max_examples=16, deadline=None)
@given(
    st.integers(0, 50),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from([ALL, (True, False, True), (True, True, False), None]),
    st.booleans(),
)
def test_the_best_labels_are_those_of_scoring_every_pair(seed, depth, k, used, compact):
    model, X = ensemble(seed, depth, used, compact=compact), rows(seed + 9)
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
    assert 0 < (candidates.settled() & unlisted).sum() < unlisted.sum() / 2


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


def slow_join(
    found: np.ndarray, values: np.ndarray, others: list[dict[int, float]], i: int
) -> dict[int, list[tuple[int, float, bool]]]:
    """For every candidate of row i: rank and score for each member, and whether the score is known."""
    M, _, k = found.shape
    union = dict.fromkeys(label for m in range(M) for label in found[m, i].tolist())
    lists = [found[m, i].tolist() for m in range(M)]
    return {
        label: [
            (own.index(label) + 1, values[m, i, own.index(label)], True)
            if label in own
            else (k + 1, others[m].get(label, values[m, i, -1]), label in others[m])
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
    known = np.empty((M, 4, M * k), np.bool_)
    others = np.where(rng.random((M, 4, k)) < 0.6, found[::-1], -1).astype(np.int32)  # from the lists of other members
    for m in range(M):
        for i in range(4):
            others[m, i, np.isin(others[m, i], found[m, i])] = -1
    other_values = rng.normal(size=others.shape).astype(np.float32)
    place = np.full(15, -1, np.int32)
    join_lists(found, values, others, other_values, place, labels, ranks, scores, known)
    assert (place == -1).all()
    for i in range(4):
        more = [dict(zip(others[m, i].tolist(), other_values[m, i], strict=True)) for m in range(M)]
        expected = slow_join(found, values, more, i)
        assert labels[i].tolist() == [*expected, *[-1] * (M * k - len(expected))]
        for at, figures in enumerate(expected.values()):
            assert [(ranks[m, i, at], scores[m, i, at], known[m, i, at]) for m in range(M)] == figures


@pytest.mark.parametrize("used", [ALL, None])
@pytest.mark.parametrize("m", [0, 2])
def test_terms_are_those_of_the_twin(used, m):
    model = ensemble(1, 5, used)
    rng = np.random.default_rng(3)
    labels = rng.integers(0, L, (6, 7)).astype(np.int32)
    scores = rng.uniform(1e-3, 1, (6, 7)).astype(np.float32)
    best = scores.max(axis=1)
    ranks = rng.integers(1, 9, (6, 7)).astype(np.int32)
    wanted = rng.random((6, 7)) < 0.8
    out = np.full((6, 7), 99.0)
    member = Member.of(model.members[m], model.mixture, m)
    weigh(member, log_ranks(8, member.rank_offset), labels, scores, ranks, best, wanted, out)
    for i in range(6):
        for c in range(7):
            given = int(labels[i, c]), float(scores[i, c]), int(ranks[i, c]), float(best[i])
            expected = slow_term(model, m, *given) if wanted[i, c] else 99.0
            assert out[i, c] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf, 3e38, -3e38])
@pytest.mark.parametrize("used", [ALL, None])
def test_log_odds_of_any_score_are_finite(score, used):
    model = ensemble(1, 5, used)
    for m in (0, 2):
        out = np.full((1, 1), np.nan)
        one = np.ones((1, 1), np.int32)
        scores = np.full((1, 1), score, np.float32)
        member = Member.of(model.members[m], model.mixture, m)
        weigh(member, log_ranks(1, 1.0), one, scores, one, scores[0], np.ones((1, 1), bool), out)
        assert np.isfinite(out).all()
