"""Calibrators: the formula against a slow twin, monotone probabilities, ranking, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.models import Calibrator, LinearModel
from longtail.models.calibrator import Coefficients
from longtail.topk import TopK


def calibrator(n_labels: int = 6, *, seed: int = 0, **fields) -> Calibrator:
    rng = np.random.default_rng(seed)
    margin = rng.uniform(0.1, 4)
    coefficients = Coefficients(rng.normal(), margin, rng.normal(), -rng.uniform(0, 2), rng.uniform(-margin, 1))
    made = Calibrator(
        coefficients,
        knots=np.sort(rng.normal(size=7) * 4),
        values=np.sort(rng.random(7)),
        counts=rng.integers(0, 50, n_labels),
        n_samples=100,
        log_scores=False,
        depth=4,
        rank_offset=rng.uniform(0, 3),
    )
    return replace(made, **fields)


def slow_probability(c: Calibrator, label: int, score: float, rank: int, best: float) -> float:
    s, t = (math.log(max(v, 1e-30)) if c.log_scores else v for v in (score, best))
    k = c.coefficients
    z = k.intercept + k.margin * s + k.frequency * math.log(1 + c.counts[label]) + k.best * t
    z += k.rank * math.log(rank + c.rank_offset)
    points = list(zip(c.knots, c.values, strict=True))
    if z <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if z <= x1:
            return y0 + (y1 - y0) * (z - x0) / (x1 - x0)
    return points[-1][1]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_probabilities_follow_the_formula(seed, log_scores):
    rng = np.random.default_rng(seed)
    c = calibrator(seed=seed, log_scores=log_scores)
    labels = np.array([rng.permutation(6)[:4] for _ in range(3)])
    scores = -np.sort(-rng.random((3, 4)).astype(np.float32), axis=1)
    found = c.probabilities(labels, scores)
    for i in range(3):
        for j in range(4):
            expected = slow_probability(c, labels[i, j], float(scores[i, j]), j + 1, float(scores[i, 0]))
            assert found[i, j] == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(0, 3))
def test_a_higher_score_never_lowers_the_probability_of_a_label(seed, score, more):
    """The other scores of the row stay; the rank and the best score of the row follow."""
    c = calibrator(seed=seed)
    others = np.sort(np.random.default_rng(seed + 1).normal(size=3))[::-1]

    def probability(value: float) -> float:
        rank = 1 + int((others > value).sum())
        scores = np.array([[value, max(value, others[0])]])
        return float(c.probabilities(np.array([[2, 0]]), scores, np.array([[rank, 1]]))[0, 0])

    assert probability(score + more) >= probability(score)


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_labels_of_equal_frequency_rank_by_score(seed):
    c = calibrator(seed=seed, counts=np.full(6, 7))
    scores = -np.sort(-np.random.default_rng(seed).normal(size=(5, 6)), axis=1).astype(np.float32)
    p = c.probabilities(np.tile(np.arange(6), (5, 1)), scores)
    assert (np.diff(p, axis=1) <= 0).all()


def test_ranking_sorts_by_probability_and_keeps_labels_with_their_scores():
    flat = calibrator(
        coefficients=Coefficients(0, 1, 1, 0, 0), counts=np.array([0, 90, 5, 0, 0, 0]), knots=np.array([-9.0, 9.0]),
        values=np.array([0.0, 1.0]),
    )  # fmt: skip
    top = flat.rank(TopK(np.array([[0, 1, 2]]), np.array([[0.5, 0.4, 0.3]], np.float32)))
    assert top.labels.tolist() == [[1, 2, 0]]
    np.testing.assert_allclose(top.scores, [[0.4, 0.3, 0.5]])
    assert (np.diff(top.probabilities) < 0).all()
    assert not flat.keeps_order


def test_equal_probabilities_rank_by_score():
    constant = calibrator(knots=np.array([0.0]), values=np.array([0.3]))
    top = constant.rank(TopK(np.array([[4, 2, 5]]), np.array([[3, 2, 1]], np.float32)))
    assert top.labels.tolist() == [[4, 2, 5]]
    np.testing.assert_allclose(top.probabilities, 0.3)


def test_labels_with_the_same_share_of_more_rows_keep_their_probabilities():
    counts = np.array([1000, 2000, 3000, 4000, 5000, 6000])
    before = calibrator(seed=4, counts=counts, n_samples=9000)
    after = before.with_counts(3 * counts, 27_000)
    scores = np.random.default_rng(0).normal(size=(5, 6))
    labels = np.tile(np.arange(6), (5, 1))
    np.testing.assert_allclose(after.probabilities(labels, scores), before.probabilities(labels, scores), atol=1e-3)
    assert after.counts[0] == 3000
    assert after.n_samples == 27_000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"coefficients": Coefficients(0, -1, 0, 0, 0)}, "rise with the score"),
        ({"coefficients": Coefficients(0, 1, 0, 0.1, 0)}, "rise with the score"),
        ({"coefficients": Coefficients(0, 1, 0, 0, -1.5)}, "rise with the score"),
        ({"coefficients": Coefficients(math.nan, 1, 0, 0, 0)}, "rise with the score"),
        ({"knots": np.zeros(7)}, "knots do not rise"),
        ({"knots": np.arange(3.0)}, "3 knots have 7 values"),
        ({"values": np.linspace(1, 0, 7)}, "rising probabilities"),
        ({"values": np.linspace(0, 1.1, 7)}, "rising probabilities"),
        ({"counts": np.array([-1] * 6)}, "training rows"),
        ({"counts": np.array([101] * 6)}, "training rows"),
        ({"depth": 0}, "depth 0"),
        ({"rank_offset": -1.0}, "rank offset -1.0"),
        ({"rank_offset": math.nan}, "rank offset nan"),
    ],
)
def test_what_a_calibrator_refuses(fields, message):
    assert calibrator(depth=1, values=np.linspace(0, 1, 7)).depth == 1
    with pytest.raises(InputError, match=message):
        calibrator(**fields)


# --- in a model ------------------------------------------------------------------------------------------------------


def model(seed: int = 0, n_labels: int = 30, **fields) -> LinearModel:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n_labels, 9)) * (rng.random((n_labels, 9)) < 0.7)
    return LinearModel(sp.csr_array(W.astype(np.float32)), 8, 1.0, **fields)


def rows(seed: int = 1, n: int = 40) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.normal(size=(n, 8)) * (rng.random((n, 8)) < 0.6)).astype(np.float32))


def test_top_labels_have_the_probabilities_of_all_labels():
    c = calibrator(30, seed=3, depth=30)
    calibrated = model(calibrator=c)
    X = rows()
    everything = calibrated.probabilities(X)
    top = calibrated.predict_topk(X, 7)
    np.testing.assert_allclose(top.probabilities, np.take_along_axis(everything, top.labels, axis=1), atol=1e-6)
    np.testing.assert_allclose(top.probabilities, -np.sort(-everything, axis=1)[:, :7], atol=1e-6)
    np.testing.assert_allclose(
        top.scores, np.take_along_axis(calibrated.scores(X, np.arange(30)), top.labels, 1), atol=1e-5
    )


def test_only_candidates_are_ranked_by_probability():
    c = calibrator(30, seed=3, depth=5)
    plain, calibrated = model(), model(calibrator=c)
    X = rows()
    best = plain.predict_topk(X, 5).labels
    found = calibrated.predict_topk(X, 2).labels
    assert all(set(two) <= set(five) for two, five in zip(found.tolist(), best.tolist(), strict=True))
    np.testing.assert_array_equal(calibrated.predict_topk(X, 5).labels[:, :2], found)


def test_an_explanation_has_the_probability():
    calibrated = model(calibrator=calibrator(30, seed=5, depth=30))
    X = rows()
    everything = calibrated.probabilities(X)
    for i, label in ((0, 3), (5, 29), (7, 11)):
        explanation = calibrated.explain(X[[i]], label)
        assert explanation.probability == pytest.approx(everything[i, label], abs=1e-5)
        assert f"probability {explanation.probability:.3f}" in str(explanation)
    assert model().explain(X[[0]], 3).probability is None


def test_a_model_without_calibrator_has_no_probabilities():
    assert model().predict_topk(rows(), 3).probabilities is None
    with pytest.raises(InputError, match="calibrate=True"):
        model().probabilities(rows())


def test_a_calibrator_of_other_labels_is_refused():
    with pytest.raises(InputError, match="6 labels, but the model has 30"):
        model(calibrator=calibrator(6))
