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

import longtail as lt
from longtail.errors import InputError
from longtail.methods.one_vs_all import newton as newton_solver
from longtail.methods.one_vs_all import newton_kernels as newton
from longtail.methods.one_vs_all import newton_span_kernels as span
from longtail.methods.one_vs_all import starts
from longtail.methods.one_vs_all.inputs import LOSSES
from longtail.methods.one_vs_all.newton_space import newton_output
from longtail.methods.one_vs_all.order import walk
from longtail.training import Status
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import first_weights, problem_of, problems, random_problem

losses = st.sampled_from(sorted(LOSSES))
biases = st.sampled_from([0.0, 1.0, 0.3])


def signs(Y, label):
    return np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)


def solve(X, Y, label, *, start="msi", w=None, tol=1e-8, max_iter=500, **params):
    """Solve one label; returns w, status, steps, objective, gradient ratio."""
    problem = problem_of(X, Y, solver="newton", start=start, tol=tol, max_iter=max_iter, **params)
    space, out = problem.newton_space(), newton_output(1)
    rule = problem.newton_rule(problem.tol)
    label = problem.item_of()[label]
    for labels, W in walk(problem, problem.start, problem.labels, problem.parent):
        for b in range(len(labels)):
            if w is not None and labels[b] == label:
                W[b] = w
            newton.newton_block(problem.X, problem.positives, labels[b:], problem.x_sum, rule, space, W[b : b + 1], out)
            if labels[b] == label:
                return W[b], Status(int(out.status[0])), int(out.n_iter[0]), out.figures[0, 0], out.figures[0, 2]
    raise AssertionError(f"label {label} is not in the walk")


# --- kernels against their twins -------------------------------------------------------------------------------------


def state_of(problem, loss, label, seed):
    """The buffers of `label` at random weights; returns them with w, the dense rows, y and the costs of rows."""
    X, Y, bias, dense = problem
    weight = np.full(Y.shape[1], 2.5)
    p = problem_of(X.toarray() if dense else X, Y, bias=bias, C=0.7, loss=loss, solver="newton", positive_weight=weight)
    A, y = ref.augmented(X, bias), signs(Y, label)
    space = p.newton_space()
    w = np.random.default_rng(seed).normal(size=p.D)
    space.y[:] = y
    space.cost[:] = np.where(y > 0, 0.7 * 2.5, 0.7)
    newton.margins(p.X, w, space.z)
    space.Xs[:] = 0.0
    return p, space, w, A, y, space.cost


rows = st.tuples(problems, biases, st.booleans()).map(lambda drawn: (*drawn[0], drawn[1], drawn[2]))


@given(rows, losses, st.integers(0, 100))
@settings(deadline=None, max_examples=60)
def test_kernels_equal_their_twins(problem, loss, seed):
    p, space, w, A, y, cost = state_of(problem, loss, 2, seed)
    v, out = np.random.default_rng(seed + 1).normal(size=p.D), np.empty(p.D)
    np.testing.assert_allclose(space.z, A @ w, rtol=1e-9, atol=1e-9)
    i = seed % p.n_samples
    out[:] = v
    newton.add_row(i, p.X, -1.5, out)
    np.testing.assert_allclose(out, v - 1.5 * A[i], rtol=1e-9, atol=1e-9)

    f = 0.5 * w @ w + newton.evaluate(p.loss, space, 0.0)
    assert f == pytest.approx(ref.objective(loss, A, y, cost, w), rel=1e-9)
    gTg = newton.gradient(p.X, space, w)
    np.testing.assert_allclose(space.g, ref.gradient(loss, A, y, cost, w), rtol=1e-8, atol=1e-8)
    assert f - 0.5 * gTg == pytest.approx(ref.dual_value(loss, A, y, cost, w), rel=1e-7, abs=1e-7)
    n_active = newton.find_active(p.X, space, 0.0, 0.0)
    curvature = ref.loss_curvature(loss, y * space.z)
    np.testing.assert_array_equal(space.active[:n_active], np.flatnonzero(curvature))
    np.testing.assert_allclose(space.weight[:n_active], (cost * curvature)[curvature > 0])
    newton.hessian_times(p.X, space, n_active, v, out)
    H = ref.hessian(loss, A, y, cost, w)
    np.testing.assert_allclose(out, H @ v, rtol=1e-8, atol=1e-8)
    newton.preconditioner(p.X, space, n_active)
    np.testing.assert_allclose(space.M, 0.99 + 0.01 * np.diag(H), rtol=1e-8)

    own = p.positives.rows[p.positives.indptr[2] : p.positives.indptr[3]]
    norm = newton.gradient_norm_at_zero(p.X, p.loss, own, 2.5, space.sample_weight, p.x_sum, 0.7, out)
    assert norm == pytest.approx(np.linalg.norm(ref.gradient(loss, A, y, cost, 0 * w)), rel=1e-6, abs=1e-6)


@given(rows, losses, st.integers(0, 100))
@settings(deadline=None, max_examples=40)
def test_the_direction_equals_its_twin_and_the_line_search_lowers_the_objective(problem, loss, seed):
    p, space, w, A, y, cost = state_of(problem, loss, 2, seed)
    newton.evaluate(p.loss, space, 0.0)
    newton.gradient(p.X, space, w)
    n_active = newton.find_active(p.X, space, 0.0, 0.0)
    newton.preconditioner(p.X, space, n_active)
    gTs, n_cg = newton.newton_direction(p.X, space, n_active)
    g, H = ref.gradient(loss, A, y, cost, w), ref.hessian(loss, A, y, cost, w)
    s, expected_steps = ref.newton_direction(H, g)
    assert n_cg == expected_steps
    np.testing.assert_allclose(space.s, s, rtol=1e-4, atol=1e-6 * np.abs(space.s).max())
    assert gTs == pytest.approx(g @ space.s, rel=1e-6)
    assert gTs < 0

    newton.margins(p.X, space.s, space.Xs)
    f = ref.objective(loss, A, y, cost, w)
    step, f_new = newton.line_search(p.loss, space, w, w @ w, gTs, f)
    assert step == ref.line_search(lambda t: ref.objective(loss, A, y, cost, w + t * space.s), f, gTs)
    assert f_new == pytest.approx(ref.objective(loss, A, y, cost, w + step * space.s), rel=1e-9)
    assert newton.line_search(p.loss, space, w, w @ w, -1e30, f) == (0.0, f)  # no step can lower f by so much


@given(losses, st.floats(-30, 30))
def test_loss_derivatives_by_finite_differences(loss, m):
    code, h = LOSSES[loss], 1e-6
    value, slope, curvature = newton.loss_at(code, m)
    (above, slope_above, _), (below, slope_below, _) = newton.loss_at(code, m + h), newton.loss_at(code, m - h)
    assert value == pytest.approx(ref.loss_value(loss, m), rel=1e-12)
    assert slope == pytest.approx((above - below) / (2 * h), rel=1e-4, abs=1e-5)
    if abs(m - 1) > 1e-3:  # the squared hinge has no second derivative at 1
        assert curvature == pytest.approx((slope_above - slope_below) / (2 * h), rel=1e-4, abs=1e-5)
    assert span.loss_at(code, m) == (value, slope, curvature)  # a copy, because a kernel calls only its own file


@pytest.mark.parametrize("m", [-1e308, -1e5, -800.0, 800.0, 1e5, 1e308])
def test_the_logistic_loss_neither_overflows_nor_turns_nan(m):
    value, slope, curvature = newton.loss_at(newton.LOGISTIC, m)
    assert value == pytest.approx(max(0.0, -m))
    assert (slope, curvature) == (-1.0 if m < 0 else 0.0, 0.0)


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


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_the_rule_of_ova_primal_plus_plus_is_tol_with_a_largest_value(loss):
    """eps = min(eps_1 min(|P|, |N|) / n, eps_2), section 2.1 of the supplement of Fang et al."""
    X, Y = random_problem(11, n=60, d=20)
    stricter = 0
    for label in range(2, Y.shape[1]):
        positives = int((signs(Y, label) > 0).sum())
        balance = min(positives, 60 - positives) / 60
        for max_tol in (0.1, 1e-4):
            *_, steps, _, ratio = solve(X, Y, label, loss=loss, tol=1.0, max_tol=max_tol)
            assert ratio <= min(balance, max_tol)
            stricter += steps > solve(X, Y, label, loss=loss, tol=1.0)[2]
    assert stricter


def test_objective_never_rises():
    X, Y = random_problem(2, n=40, d=15)
    A = ref.augmented(X, 1.0)
    for start in sorted(starts.STARTS):
        fs = [ref.objective("squared_hinge", A, signs(Y, 4), 10.0, solve(X, Y, 4, C=10, max_iter=t, start=start)[0])
              for t in range(1, 12)]  # fmt: skip
        assert all(after <= before for before, after in itertools.pairwise(fs))
        assert fs[-1] < fs[0]


# --- the trace -------------------------------------------------------------------------------------------------------


def traced(X, Y, *, trace=60, max_iter=60, **params):
    return lt.OneVsAll(solver="newton", prune=0.0, trace=trace, max_iter=max_iter, **params).fit(X, Y)


@pytest.mark.parametrize("start", ["zero", "bias:factor=1", "msi", "tree"])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_the_trace_equals_that_of_the_twin(loss, start):
    X, Y = random_problem(3, n=40, d=15)
    record = traced(X, Y, loss=loss, start=start).training_
    problem = problem_of(X, Y, solver="newton", loss=loss, start=start)
    A, solutions = ref.augmented(X, 1.0), {}
    order = [label for labels, _ in walk(problem, problem.start, problem.labels, problem.parent) for label in labels]
    for label in order:
        w = solutions.get(problem.parent[label], first_weights(problem, [label])[0])
        y = signs(Y, label)
        balance = max(1, min((y > 0).sum(), (y < 0).sum())) / 40
        end, steps = ref.newton(loss, A, y, 1.0, w, 0.01 * balance, 60)
        solutions[label] = end
        assert record.n_iter[label] == len(steps) - 1
        for name, expected in zip(newton_solver.TRACE, zip(*steps, strict=True), strict=True):
            found = record.figures[name][label]
            expected = np.array([np.nan if value is None else value for value in expected])
            np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-6)
            assert np.isnan(found[len(expected) :]).all()
        assert record.start_distance[label] == pytest.approx(np.linalg.norm(end - w), rel=1e-5, abs=1e-7)
        assert record.trace_objective[label, len(steps) - 1] == pytest.approx(record.objective[label])


@given(problems, losses, st.sampled_from(sorted(starts.STARTS)))
@settings(deadline=None, max_examples=20)
def test_every_recorded_step_lowers_the_objective_by_a_multiplier_that_is_a_power_of_two(problem, loss, start):
    record = traced(*problem, loss=loss, start=start).training_
    multiplier, objective = record.trace_multiplier, record.trace_objective
    taken = np.arange(60) < record.n_iter[:, None]
    np.testing.assert_array_equal(~np.isnan(multiplier), taken)
    assert np.isin(multiplier[taken], 0.5 ** np.arange(20)).all()
    assert (record.trace_n_cg[taken] >= 1).all()
    assert (np.diff(objective, axis=1)[taken[:, :-1]] <= 0).all()  # 0 if the last gain is below rounding
    mean = np.where(taken, record.trace_n_active, 0).sum(axis=1) / np.maximum(record.n_iter, 1)
    np.testing.assert_allclose(mean, record.n_active)


def test_a_trace_changes_nothing_else_and_keeps_the_first_steps():
    X, Y = random_problem(5, n=40, d=15)
    plain = lt.OneVsAll(solver="newton", prune=0.0).fit(X, Y)
    long, short = traced(X, Y, max_iter=100), traced(X, Y, trace=2, max_iter=100)
    assert not {name for name in plain.training_.figures if "trace" in name or "start" in name}
    for clf in (long, short):
        np.testing.assert_array_equal(clf.model_.W.toarray(), plain.model_.W.toarray())
        for name, values in plain.training_.figures.items():
            np.testing.assert_array_equal(clf.training_.figures[name], values)
    assert (plain.training_.n_iter > 2).any()
    for name in newton_solver.TRACE:
        np.testing.assert_array_equal(short.training_.figures[name], long.training_.figures[name][:, :2])


def test_the_trace_survives_threads_blocks_and_the_disk(tmp_path):
    X, Y = random_problem(1, n=50, d=12, L=23)
    one = traced(X, Y, trace=4, start="tree", n_jobs=1)
    two = traced(X, Y, trace=4, start="tree", n_jobs=2, block_size=2)
    two.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    assert loaded.trace == 4
    for name, values in one.training_.figures.items():
        np.testing.assert_array_equal(two.training_.figures[name], values)
        np.testing.assert_array_equal(loaded.training_.figures[name], values)
    assert "trace objective" in str(loaded.training_)


@pytest.mark.parametrize(
    "given", [{"trace": 5}, {"max_tol": 0.1}, {"trace": 5, "solver": "dual"}, {"max_tol": 0.1, "loss": "logistic"}]
)
def test_only_newton_has_a_trace_and_only_the_rule_of_the_papers_a_largest_tolerance(given):
    X, Y = random_problem(1)
    with pytest.raises(InputError, match=r"is for (Newton|solver='newton') only"):
        lt.OneVsAll(**given).fit(X, Y)
    assert lt.OneVsAll(**{**given, "solver": "newton"}).fit(X, Y).model_.n_labels == 7


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
