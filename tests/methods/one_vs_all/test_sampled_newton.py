"""Newton with sampled Hessians: the sample, the first point, the certificate and the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import longtail as lt
from longtail.methods.one_vs_all import newton as newton_solver
from longtail.methods.one_vs_all import newton_kernels as newton
from longtail.methods.one_vs_all import starts
from longtail.methods.one_vs_all.inputs import LOSSES
from longtail.training import Status
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import (
    FORMS,
    first_weights,
    in_form,
    problem_of,
    problems,
    random_problem,
    text_like,
)

losses = st.sampled_from(sorted(LOSSES))
biases = st.sampled_from([0.0, 1.0, 0.3])


def signs(Y, label):
    return np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)


# --- the sample ------------------------------------------------------------------------------------------------------


def drawn(curvature, q, theta, first):
    """The twin: rows with q >= theta, and the rows at which the sum of all smaller q passes a multiple of theta."""
    rows, weights, passed = [], [], first * theta
    for i, (h, share) in enumerate(zip(curvature, q, strict=True)):
        if h > 0 and share >= theta:
            rows, weights = [*rows, i], [*weights, h]
        elif h > 0:
            before, passed = passed // theta, passed + share
            if passed // theta > before:
                rows, weights = [*rows, i], [*weights, h * theta / share]
    return rows, weights


@given(problems, losses, biases, st.sampled_from([0.01, 0.25, 2.0]), st.floats(0, 0.99))
@settings(deadline=None, max_examples=60)
def test_the_sample_equals_its_twin(problem, loss, bias, theta, first):
    X, Y = problem
    p = problem_of(X, Y, loss=loss, bias=bias, solver="sampled-newton")
    space, rng = p.newton_space(), np.random.default_rng(0)
    space.curvature[:] = rng.random(p.n_samples) * (rng.random(p.n_samples) < 0.8)
    q = space.curvature * (ref.augmented(X, bias) ** 2).sum(axis=1)
    assume(np.abs(q - theta).min() > 1e-6)
    sums = (first * theta + np.cumsum(np.where(q < theta, q, 0.0))) / theta
    assume(np.abs(sums - np.round(sums)).min() > 1e-6)  # else rounding decides
    count = newton.find_active(p.X, space, theta, first)
    rows, weights = drawn(space.curvature, q, theta, first)
    np.testing.assert_array_equal(space.active[:count], rows)
    np.testing.assert_allclose(space.weight[:count], weights, rtol=1e-5)


def test_the_sampled_hessian_is_right_in_the_mean():
    X, Y = random_problem(3, n=40, d=6, density=1.0)
    p = problem_of(X, Y, solver="sampled-newton", loss="logistic")
    space, rng = p.newton_space(), np.random.default_rng(1)
    space.curvature[:] = rng.random(p.n_samples)
    v, out, total = rng.normal(size=p.D), np.empty(p.D), np.zeros(p.D)
    n_draws = 4000
    for first in (np.arange(n_draws) + 0.5) / n_draws:  # evenly spaced first draws, so the mean is exact up to 1 / n
        count = newton.find_active(p.X, space, 40.0, first)
        assert count < p.n_samples / 2
        newton.hessian_times(p.X, space, count, v, out)
        total += out
    A = ref.augmented(X, 1.0)
    np.testing.assert_allclose(total / n_draws, v + A.T @ (space.curvature * (A @ v)), rtol=0.01, atol=0.01)


# --- the first point -------------------------------------------------------------------------------------------------


@given(problems, losses, biases, st.sampled_from(["msi", "zero", "ova-primal"]), st.sampled_from([0.1, 1.0, 30.0]))
@settings(deadline=None, max_examples=60)
def test_the_first_point_is_the_best_in_its_span(problem, loss, bias, start, C):
    X, Y = problem
    p = problem_of(X, Y, loss=loss, bias=bias, start=start, C=C, solver="sampled-newton")
    rule, space, A = p.newton_rule(p.tol, sampled=True), p.newton_space(sampled=True), ref.augmented(X, bias)
    assume(np.linalg.norm(A.sum(axis=0)) > 1e-3)
    labels = np.arange(3)  # without positives, with positives only, with one positive
    W = first_weights(p, labels)
    before = W.copy()
    for label, w, first in zip(labels, W, before, strict=True):
        y = signs(Y, label)
        newton_solver.move_in_span(p, label, rule, space, w)
        np.testing.assert_allclose(space.z, A @ w, rtol=1e-6, atol=1e-6)
        directions = [first, A.sum(axis=0), np.eye(p.D)[-1]][: 3 if bias else 2]
        vectors, sizes, _ = np.linalg.svd(np.stack(directions).T, full_matrices=False)
        basis = vectors[:, sizes > 1e-6 * sizes[0]]
        np.testing.assert_allclose(basis @ (basis.T @ w), w, rtol=1e-4, atol=1e-4)
        best = minimize(
            lambda c, basis=basis, y=y: ref.objective(loss, A, y, C, basis @ c),
            np.zeros(basis.shape[1]),
            jac=lambda c, basis=basis, y=y: basis.T @ ref.gradient(loss, A, y, C, basis @ c),
        ).fun
        f = ref.objective(loss, A, y, C, w)
        assert f <= best * 1.1 + 1e-9  # a few Newton steps are made
        assert f <= ref.objective(loss, A, y, C, first) * 1.03 + 1e-9


# --- certificate and optimum -----------------------------------------------------------------------------------------


@given(
    problems, losses, biases, st.sampled_from(FORMS), st.sampled_from([0.1, 1.0, 30.0]), st.sampled_from([0.1, 1e-6])
)
@settings(deadline=None, max_examples=40)
def test_every_label_reaches_its_gap_and_the_gap_is_true(problem, loss, bias, form, C, tol):
    X, Y = problem
    clf = lt.OneVsAll(C, loss=loss, bias=bias, solver="sampled-newton", tol=tol, prune=0.0)
    clf.fit(in_form(X, form), Y)
    record, A = clf.training_, ref.augmented(X, bias)
    assert (record.status == Status.CONVERGED).all()
    assert (record.gap <= tol).all()
    W = np.asarray(clf.model_.all_weights().todense(), float)
    for label in range(Y.shape[1]):
        y = signs(Y, label)
        f, best = ref.objective(loss, A, y, C, W[label, : A.shape[1]]), ref.optimum(loss, A, y, C)
        assert f == pytest.approx(record.objective[label], rel=1e-5, abs=1e-9)
        assert f - best <= max(record.gap[label], 1e-5) * f + 1e-9


@pytest.mark.parametrize("start", sorted(starts.STARTS))
@pytest.mark.filterwarnings("ignore:.*liblinear.*:FutureWarning")
def test_same_optimum_as_logistic_regression_on_texts(start):
    X, Y = text_like(0)
    clf = lt.OneVsAll(10, loss="logistic", start=start, tol=1e-9, prune=0.0, n_jobs=1).fit(X, Y)
    assert (clf.training_.settings["solver"], clf.training_.settings["tol"]) == ("sampled-newton", 1e-9)
    W = clf.model_.W.toarray()
    for label in range(0, Y.shape[1], 7):
        exact = LogisticRegression(C=10, solver="liblinear", tol=1e-9, max_iter=10_000).fit(X, signs(Y, label))
        np.testing.assert_allclose(W[label], np.append(exact.coef_, exact.intercept_), rtol=1e-3, atol=1e-4)


def test_the_sample_leaves_out_rows_and_grows():
    X, Y = text_like(1, n=3000, L=12)
    record = lt.OneVsAll(loss="logistic", tol=1e-9, trace=10).fit(X, Y).training_
    active = record.trace_n_active
    assert (active[:, 0] < 1000).all()
    last = active[np.arange(len(active)), record.n_iter]
    assert (last > 2 * active[:, 0]).all()


def test_the_model_does_not_depend_on_threads_or_blocks():
    X, Y = text_like(2)
    one = lt.OneVsAll(10, loss="logistic", n_jobs=1).fit(X, Y)
    two = lt.OneVsAll(10, loss="logistic", n_jobs=2, block_size=3).fit(X, Y)
    np.testing.assert_array_equal(one.model_.W.data, two.model_.W.data)
    np.testing.assert_array_equal(one.model_.W.indices, two.model_.W.indices)


def test_max_iter_is_reported():
    X, Y = text_like(0, L=5)
    with pytest.warns(UserWarning, match="max_iter"):
        clf = lt.OneVsAll(100, loss="logistic", tol=1e-12, max_iter=1).fit(X, Y)
    assert (clf.training_.status == Status.MAX_ITER).any()
