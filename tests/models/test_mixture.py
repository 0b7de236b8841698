"""Mixtures: scales, weights, and the average of calibrators. The tests of the store have those that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.models.mixture import Mixture
from tests.models.test_ensemble_index import L, ensemble, mixture


def test_rescaled_margins_give_the_same_log_odds():
    before = mixture(1)
    scales = [(0.3, 2.0), (0.0, 1.0), (-1.0, 0.5)]
    after = before.rescaled(scales)
    s, t = np.random.default_rng(0).normal(size=(2, 3))
    for m, (shift, slope) in enumerate(scales):
        for k in range(len(before.knots)):
            a, w, _, b = (each[m, k] for each in before.lines)
            expected = a + w * (shift + slope * s[m]) + b * (shift + slope * t[m])
            a, w, _, b = (each[m, k] for each in after.lines)
            assert a + w * s[m] + b * t[m] == pytest.approx(expected)


def test_slopes_are_linear_between_knots_and_constant_outside():
    margin = np.array([[1.0, 3.0]])
    given = Mixture(np.log1p([1, 7]), 0 * margin, margin, 0 * margin, 0 * margin)
    np.testing.assert_allclose(given.slopes(np.array([0, 1, 3, 7, 100]))[0], [1, 1, 2, 3, 3])
    np.testing.assert_allclose(given.places(np.array([0, 1, 3, 7, 100])), [0, 0, 0.5, 1, 1])


def test_equal_shares_are_equal_weights():
    model = ensemble(0, 5)
    calibrators = [member.calibrator for member in model.members]
    average = Mixture.average(calibrators)
    same = type(model)(model.members, average, 5, model.n_features)
    np.testing.assert_allclose(same.weights, 1 / 3)
    alone = type(model)(model.members[:1], Mixture.average(calibrators[:1]), 5, model.n_features)
    np.testing.assert_allclose(alone.weights, 1)


def test_a_weight_is_the_mean_slope_over_training_pairs():
    model = ensemble(0, 5, (True, False, True))
    for m, member in enumerate(model.members):
        c = member.calibrator
        knots = model.mixture.knots
        total = sum(
            c.counts[label] * np.interp(np.log1p(c.counts[label]), knots, model.mixture.margin[m]) for label in range(L)
        )
        assert model.weights[m] == pytest.approx(total / c.counts.sum() / c.coefficients.margin)
    assert model.weights[1] == 0


def test_label_weights_have_the_slope_of_the_label():
    model = ensemble(0, 5, (True, False, False))
    for label in (0, 7):
        features, weights, bias = model.label_weights(label)
        own, plain, share = model.members[0].label_weights(label)
        slope = model.mixture.slopes(model.members[0].calibrator.counts[[label]])[0, 0]
        if slope:
            np.testing.assert_array_equal(features, own)
            np.testing.assert_allclose(weights, slope * plain, rtol=1e-6)
            assert bias == pytest.approx(slope * share)
