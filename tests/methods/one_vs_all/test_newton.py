"""The Newton kernels: right, convergent, and honest about how they ended."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.methods.one_vs_all import Status, starts
from longtail.methods.one_vs_all import newton_kernels as newton
from longtail.methods.one_vs_all.newton import LOSSES
from longtail.methods.one_vs_all.problem import Problem
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import problems, random_problem, start_of

losses = st.sampled_from(sorted(LOSSES))
biases = st.sampled_from([0.0, 1.0, 0.3])


def signs(Y, label):
    return np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)


def solve(X, Y, label, *, loss="squared_hinge", bias=1.0, C=1.0, tol=1e-8, max_iter=500, start="msi", w=None):
    """Solve one label; returns w, status, steps, objective, gradient ratio."""
    problem = Problem.of(X, Y, bias)
    status, steps, figures = np.empty(1, np.int8), np.empty(1, np.int32), np.empty((1, 4))
    first = start_of(start, problem, loss=loss, C=C, tol=tol, max_iter=max_iter)
    for labels, W in first.walk(np.array([label])):  # the label itself comes last
        if w is not None:
            W[0] = w
        newton.newton_block(
            *problem.X,
            problem.bias,
            LOSSES[loss],
            problem.rows_of,
            problem.rows_indptr,
            problem.weights,
            labels,
            problem.x_sum,
            float(C),
            float(tol),
            max_iter,
            *problem.newton_space(),
            W,
            status,
            steps,
            figures,
        )
    assert labels.tolist() == [label]
    return W[0], Status(int(status[0])), int(steps[0]), figures[0, 0], figures[0, 2]


# --- kernels against their twins -------------------------------------------------------------------------------------


@given(problems, losses, biases, st.integers(0, 100))
@settings(deadline=None, max_examples=60)
def test_kernels_equal_their_twins(problem, loss, bias, seed):
    X, Y = problem
    p, A, y = Problem.of(X, Y, bias), ref.augmented(X, bias), signs(Y, 2)
    C, weight = 0.7, 2.5
    cost = np.where(y > 0, C * weight, C)
    rng = np.random.default_rng(seed)
    w, v = rng.normal(size=p.D), rng.normal(size=p.D)
    z, active, out = np.empty(p.n_samples), np.empty(p.n_samples, np.uint32), np.empty(p.D)
    code = LOSSES[loss]

    newton.margins(*p.X, p.bias, w, z)
    np.testing.assert_allclose(z, A @ w, rtol=1e-9, atol=1e-9)
    n_active = newton.find_active(code, y, z, active)
    np.testing.assert_array_equal(active[:n_active], np.flatnonzero(ref.loss_curvature(loss, y * z)))
    assert newton.objective(code, y, z, cost, w @ w) == pytest.approx(ref.objective(loss, A, y, cost, w), rel=1e-9)

    newton.gradient(*p.X, p.bias, code, y, z, cost, w, active, n_active, out)
    np.testing.assert_allclose(out, ref.gradient(loss, A, y, cost, w), rtol=1e-8, atol=1e-8)
    newton.hessian_times(*p.X, p.bias, code, y, z, cost, active, n_active, v, out)
    H = ref.hessian(loss, A, y, cost, w)
    np.testing.assert_allclose(out, H @ v, rtol=1e-8, atol=1e-8)
    newton.preconditioner(*p.X, p.bias, code, y, z, cost, active, n_active, out)
    np.testing.assert_allclose(out, 0.99 + 0.01 * np.diag(H), rtol=1e-8)

    positives = p.rows_of[p.rows_indptr[2] : p.rows_indptr[3]]
    norm = newton.gradient_norm_at_zero(*p.X, p.bias, code, positives, p.x_sum, C, weight, out)
    assert norm == pytest.approx(np.linalg.norm(ref.gradient(loss, A, y, cost, 0 * w)), rel=1e-6, abs=1e-6)


@given(losses, st.floats(-30, 30))
def test_loss_derivatives_by_finite_differences(loss, m):
    code, h = LOSSES[loss], 1e-6
    slope = (newton.loss_value(code, m + h) - newton.loss_value(code, m - h)) / (2 * h)
    assert newton.loss_slope(code, m) == pytest.approx(slope, rel=1e-4, abs=1e-5)
    if abs(m - 1) > 1e-3:  # the squared hinge has no second derivative at 1
        curvature = (newton.loss_slope(code, m + h) - newton.loss_slope(code, m - h)) / (2 * h)
        assert newton.loss_curvature(code, m) == pytest.approx(curvature, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("m", [-1e308, -1e5, -800.0, 800.0, 1e5, 1e308])
def test_the_logistic_loss_neither_overflows_nor_turns_nan(m):
    assert newton.loss_value(newton.LOGISTIC, m) == pytest.approx(max(0.0, -m))
    assert newton.loss_slope(newton.LOGISTIC, m) == (-1.0 if m < 0 else 0.0)
    assert newton.loss_curvature(newton.LOGISTIC, m) == 0.0


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_gradient_is_the_slope_of_the_objective_and_the_hessian_that_of_the_gradient(loss):
    X, Y = random_problem(5)
    A, y, rng = ref.augmented(X, 1.0), signs(Y, 3), np.random.default_rng(0)
    w, v, h = rng.normal(size=A.shape[1]), rng.normal(size=A.shape[1]), 1e-6
    slope = (ref.objective(loss, A, y, 2.0, w + h * v) - ref.objective(loss, A, y, 2.0, w - h * v)) / (2 * h)
    assert ref.gradient(loss, A, y, 2.0, w) @ v == pytest.approx(slope, rel=1e-5)
    change = (ref.gradient(loss, A, y, 2.0, w + h * v) - ref.gradient(loss, A, y, 2.0, w - h * v)) / (2 * h)
    np.testing.assert_allclose(ref.hessian(loss, A, y, 2.0, w) @ v, change, rtol=1e-4, atol=1e-4)


# --- the optimum -----------------------------------------------------------------------------------------------------


def liblinear_objective(X, y, *, loss, bias, C):
    """f at LIBLINEAR's own solution, bias convention and all."""
    common = {"C": C, "fit_intercept": bias > 0, "intercept_scaling": bias or 1.0, "tol": 1e-10, "max_iter": 100_000}
    if loss == "squared_hinge":
        fitted = LinearSVC(dual=False, **common).fit(X.toarray().astype(float), y)
    else:
        fitted = LogisticRegression(solver="liblinear", **common).fit(X.toarray().astype(float), y)
    w = fitted.coef_.ravel()
    if bias > 0:
        w = np.append(w, fitted.intercept_[0] / bias)
    return ref.objective(loss, ref.augmented(X, bias), y, C, w)


def usable(start, bias):
    return bias > 0 or not starts.STARTS[start].needs_bias


@pytest.mark.parametrize(
    ("start", "bias"), [(s, b) for s in sorted(starts.STARTS) for b in (0.0, 1.0, 2.5) if usable(s, b)]
)
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.filterwarnings("ignore:.*liblinear.*:FutureWarning")
def test_same_optimum_as_liblinear(start, loss, bias):
    for seed in range(8):
        X, Y = random_problem(seed, n=40, d=15)
        for label in range(2, 7):
            y = signs(Y, label)
            if len(set(y)) < 2:
                continue
            C = [0.1, 1.0, 10.0][seed % 3]
            w, status, _, f, ratio = solve(X, Y, label, loss=loss, bias=bias, C=C, start=start)
            assert status is Status.CONVERGED
            assert ratio <= 1e-6  # the certificate first, then the reference
            assert f == pytest.approx(ref.objective(loss, ref.augmented(X, bias), y, C, w), rel=1e-9)
            assert f <= liblinear_objective(X, y, loss=loss, bias=bias, C=C) * (1 + 1e-7)


@given(problems, losses, biases, st.sampled_from(sorted(starts.STARTS)), st.sampled_from([0.1, 1.0, 30.0]))
@settings(deadline=None, max_examples=40)
def test_optimum_of_labels_with_no_or_only_positives(problem, loss, bias, start, C):
    """LIBLINEAR refuses one-class problems, so a general-purpose minimiser is the reference."""
    X, Y = problem
    assume(usable(start, bias))
    for label in (0, 1, 2):
        _, status, _, f, _ = solve(X, Y, label, loss=loss, bias=bias, C=C, start=start)
        assert status is Status.CONVERGED
        best = ref.optimum(loss, ref.augmented(X, bias), signs(Y, label), C)
        assert best * (1 - 1e-4) - 1e-9 <= f <= best * (1 + 1e-6) + 1e-9  # the reference may stop a little short


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_the_default_stopping_rule_holds(loss):
    X, Y = random_problem(11, n=60, d=20)
    for label in range(Y.shape[1]):
        _, status, _, _, ratio = solve(X, Y, label, loss=loss, tol=0.01)
        positives = int((signs(Y, label) > 0).sum())
        assert status is Status.CONVERGED
        assert ratio <= 0.01 * max(1, min(positives, 60 - positives)) / 60


def test_objective_never_rises():
    X, Y = random_problem(2, n=40, d=15)
    A = ref.augmented(X, 1.0)
    for start in sorted(starts.STARTS):
        fs = [ref.objective("squared_hinge", A, signs(Y, 4), 10.0, solve(X, Y, 4, C=10, max_iter=t, start=start)[0])
              for t in range(1, 12)]  # fmt: skip
        assert all(after <= before for before, after in itertools.pairwise(fs))
        assert fs[-1] < fs[0]


def test_restart_at_the_solution_takes_no_step():
    X, Y = random_problem(4)
    w, _, steps, f, _ = solve(X, Y, 3, tol=1e-6)
    again, status, more, f_again, _ = solve(X, Y, 3, tol=1e-6, w=w)
    assert steps > 0
    assert (status, more, f_again) == (Status.CONVERGED, 0, pytest.approx(f, rel=1e-12))
    np.testing.assert_array_equal(again, w)


def test_repeating_all_rows_equals_doubling_the_cost():
    X, Y = random_problem(6)
    twice = sp.csr_array(sp.vstack([X, X])), sp.csr_array(sp.vstack([Y, Y]))
    for label in range(Y.shape[1]):
        once = solve(X, Y, label, C=2.0)[0]
        np.testing.assert_allclose(solve(*twice, label, C=1.0)[0], once, rtol=1e-4, atol=1e-5)


def test_stopping_early_is_reported():
    X, Y = random_problem(7, n=60, d=30)
    _, status, steps, _, ratio = solve(X, Y, 4, C=100.0, max_iter=1, start="zero")
    assert (status, steps) == (Status.MAX_ITER, 1)
    assert ratio > 1e-8


def test_status_mirrors_the_kernel_codes():
    assert [Status.CONVERGED, Status.MAX_ITER, Status.LINE_SEARCH_FAILED] == [
        newton.CONVERGED,
        newton.MAX_ITER,
        newton.LINE_SEARCH_FAILED,
    ]
