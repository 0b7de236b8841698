"""The fit of a mixture, against a general minimiser on the dense problem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from longtail.calibration import Joint, fit_mixture
from longtail.calibration.mixing import KNOTS, RIDGE, SIGNS, SMOOTH, Regression


def joint(noise: tuple[float, ...], n: int = 400, seed: int = 0) -> Joint:
    """Candidates of members that see the truth with this noise: eight per row, one of which is right."""
    rng = np.random.default_rng(seed)
    hit = np.tile(np.arange(8) == 0, (n, 1))
    margin = 2.0 * hit[:, :, None] + rng.normal(size=(n, 8, len(noise))) * noise
    rank = np.argsort(np.argsort(-margin, axis=1), axis=1) + 1
    best = np.broadcast_to(margin.max(axis=1, keepdims=True), margin.shape)
    flat = (each.reshape(n * 8, -1) for each in (margin, best, rank))
    frequency = np.log1p(rng.integers(1, 60, n * 8))
    return Joint(*flat, np.full(len(noise), 2.0), frequency, hit.ravel())


def regression(n_knots: int, seed: int = 0) -> Regression:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(300, 8))
    frequency = rng.uniform(0, 5, 300)
    hit = rng.random(300) < 1 / (1 + np.exp(-columns[:, 0] * (frequency - 2) - columns[:, 3]))
    return Regression(columns, frequency, hit, rng.uniform(0.1, 1, 300), KNOTS[:n_knots])


def slow_loss(theta: np.ndarray, seed: int, n_knots: int) -> float:
    """The penalised loss, one candidate at a time."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(300, 8))
    frequency = rng.uniform(0, 5, 300)
    hit = rng.random(300) < 1 / (1 + np.exp(-columns[:, 0] * (frequency - 2) - columns[:, 3]))
    weights = rng.uniform(0.1, 1, 300)
    theta = theta.reshape(n_knots, 9)
    total = 0.5 * RIDGE * (theta**2).sum() + 0.5 * SMOOTH * (np.diff(theta, axis=0) ** 2).sum()
    for i in range(300):
        own = [np.interp(frequency[i], KNOTS[:n_knots], theta[:, j]) for j in range(9)]
        z = own[0] + own[1:] @ columns[i]
        total += weights[i] * (np.logaddexp(0, z) - hit[i] * z)
    return float(total)


@pytest.mark.parametrize("n_knots", [1, 2, 5])
def test_loss_and_derivatives(n_knots):
    given = regression(n_knots)
    theta = np.random.default_rng(1).normal(size=(n_knots, 9))
    assert given.loss(theta, given.predictor(theta)) == pytest.approx(slow_loss(theta, 0, n_knots))

    def loss(flat):
        return given.loss(flat.reshape(n_knots, 9), given.predictor(flat.reshape(n_knots, 9)))

    def gradient(flat):
        return given.derivatives(flat.reshape(n_knots, 9), given.predictor(flat.reshape(n_knots, 9)))[0]

    assert check_grad(loss, gradient, theta.ravel()) < 1e-6 * max(1.0, SMOOTH) * theta.size
    hessian = given.derivatives(theta, given.predictor(theta))[1]
    for at in range(0, theta.size, 7):
        step = 1e-5 * (np.arange(theta.size) == at)
        slope = (gradient(theta.ravel() + step) - gradient(theta.ravel() - step)) / 2e-5
        np.testing.assert_allclose(hessian[at], slope, atol=1e-7 * max(100.0, SMOOTH))


@pytest.mark.parametrize("n_knots", [1, 2, 5])
def test_the_optimum_is_that_of_a_general_minimiser(n_knots):
    given = regression(n_knots)
    signs = np.tile(SIGNS, 2)
    found = given.solved(signs)
    assert (found[:, 1:] * signs >= 0).all()

    def loss(flat):
        theta = flat.reshape(n_knots, 9)
        z = given.predictor(theta)
        return given.loss(theta, z), given.derivatives(theta, z)[0]

    bounds = n_knots * [(None, None), *((0, None) if sign > 0 else (None, 0) for sign in signs)]
    slow = minimize(loss, np.zeros(found.size), jac=True, bounds=bounds, options={"maxiter": 5000, "ftol": 1e-15})
    assert given.loss(found, given.predictor(found)) <= slow.fun + 1e-4
    np.testing.assert_allclose(found.ravel(), slow.x, atol=0.02)


def test_better_members_have_larger_coefficients():
    mixture = fit_mixture(joint((1.0, 2.0, 20.0)))
    assert (mixture.margin[0] > mixture.margin[1]).all()
    assert (mixture.margin[1] > mixture.margin[2]).all()
    assert mixture.knots.tolist() == KNOTS[:4].tolist()  # 30 rows are reached, 100 are not


def test_a_member_whose_scores_mislead_is_left_out():
    given = joint((1.0, 1.0))
    flipped = given._replace(margin=given.margin * [1, -1], best=np.abs(given.best), rank=given.rank)
    mixture = fit_mixture(flipped._replace(rank=np.where([True, False], given.rank, 9 - given.rank)))
    assert mixture.used.tolist() == [0]
    assert not any(each[1].any() for each in mixture.lines)
    alone = fit_mixture(given.of(np.array([True, False])))
    for found, wanted in zip(mixture.lines, alone.lines, strict=True):
        np.testing.assert_allclose(found[0], wanted[0])


def test_coefficients_follow_the_frequency():
    """The first member knows rare labels only, the second one frequent ones."""
    rng = np.random.default_rng(0)
    given = joint((1.0, 1.0), 40_000)
    rare = given.frequency < np.log1p(8)
    noise = rng.normal(size=given.margin.shape)
    margin = np.where(np.stack([rare, ~rare], axis=1), given.margin, noise)
    flat = np.ones(margin.shape)
    mixture = fit_mixture(given._replace(margin=margin, best=flat, rank=flat))
    assert mixture.margin[0, 0] > 2 * mixture.margin[1, 0]
    assert mixture.margin[1, -1] > 2 * mixture.margin[0, -1]


def test_nothing_to_learn():
    given = joint((1.0,))
    for hit in (np.zeros_like(given.hit), np.ones_like(given.hit)):
        assert fit_mixture(given._replace(hit=hit)) is None
    wrong = given._replace(margin=-given.margin, best=0 * given.best, rank=9 - given.rank)
    assert fit_mixture(wrong) is None


def test_labels_without_training_rows_and_constant_columns():
    given = joint((1.0, 1.0))
    mixture = fit_mixture(given._replace(frequency=0 * given.frequency, best=0 * given.best))
    assert mixture.margin.shape == (2, 1)
    assert np.isfinite(np.stack(mixture.lines)).all()


def test_the_fit_does_not_vary():
    first, second = fit_mixture(joint((1.0, 2.0))), fit_mixture(joint((1.0, 2.0)))
    np.testing.assert_array_equal(np.stack(first.lines), np.stack(second.lines))
