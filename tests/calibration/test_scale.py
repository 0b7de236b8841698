"""Scales of models: lines between margins, calibrators on another scale, and wrong labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.calibration import HeldOut, Scale, wrong_margins
from longtail.calibration.scale import N_WRONG
from longtail.topk import TopK
from tests.models.test_calibrator import calibrator


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(-2, 2), st.floats(0.1, 5), st.floats(0, 1))
def test_a_line_is_found_again(seed, shift, slope, share):
    s = np.random.default_rng(seed).normal(size=50)
    found = Scale.between(s, shift + slope * s)
    np.testing.assert_allclose(found, (shift, slope), atol=1e-6)
    weaker = found.weakened(share)
    np.testing.assert_allclose(
        weaker.shift + weaker.slope * s, s + share * (found.shift + found.slope * s - s), atol=1e-6
    )


@pytest.mark.parametrize("margins", [[], [1.0, 1.0]])
def test_margins_that_do_not_differ_have_no_scale(margins):
    some = np.array([1.0, 2.0])
    assert Scale.between(np.array(margins), some) == Scale.between(some, np.array(margins)) == Scale(0.0, 1.0)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(-2, 2), st.floats(0.1, 5), st.booleans())
def test_a_calibrator_on_another_scale_gives_the_probabilities_of_the_first(seed, shift, slope, log_scores):
    """Also if margins are logarithms. The probabilities still rise with the score, which Calibrator itself checks."""
    c = calibrator(seed=seed, log_scores=log_scores)
    s = -np.sort(-np.random.default_rng(seed).normal(size=(3, 4)), axis=1)
    to_scores = np.exp if log_scores else np.asarray
    labels = np.tile(np.arange(4), (3, 1))
    wanted = c.probabilities(labels, to_scores(shift + slope * s))
    np.testing.assert_allclose(Scale(shift, slope).applied(c).probabilities(labels, to_scores(s)), wanted, atol=1e-5)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(N_WRONG - 1, N_WRONG + 4))
def test_wrong_margins_are_those_of_the_best_wrong_labels(seed, k):
    rng = np.random.default_rng(seed)
    scores = -np.sort(-rng.random((8, k)), axis=1).astype(np.float32)
    hit = rng.random((8, k)) < 0.3
    slow = []
    for row, right in zip(scores, hit, strict=True):
        wrong = [score for score, is_right in zip(row, right, strict=True) if not is_right]
        slow += wrong[:N_WRONG] if len(wrong) >= N_WRONG else []
    found = HeldOut(TopK(np.zeros((8, k), np.int32), scores), hit, np.zeros((8, k)), np.zeros(1))
    np.testing.assert_array_equal(wrong_margins(found, log_scores=False), slow)
    np.testing.assert_allclose(wrong_margins(found, log_scores=True), np.log(slow), rtol=1e-6)
