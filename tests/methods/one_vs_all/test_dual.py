"""The dual solver: its kernels against slow twins, and its certificate against the true optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.errors import InputError
from longtail.methods.one_vs_all import dual, dual_kernels, lanes, panel, settle_kernels, verify_kernels
from longtail.methods.one_vs_all.first_rows import first_rows as first_rows_of_block
from longtail.methods.one_vs_all.panel import FULL, SHORT
from longtail.methods.one_vs_all.parts import weights_of
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import FORMS, first_weights, in_form, problem_of, problems, solve_labels


def text_like(seed, n=400, d=120, L=30):
    """Rows of unit length with few, unevenly frequent features; labels depend on the features, most have few rows."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, d + 1)
    dense = np.zeros((n, d), np.float32)
    for row in dense:
        row[rng.choice(d, size=rng.integers(1, 9), replace=False, p=weights / weights.sum())] = rng.random()
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    scores = dense @ rng.normal(size=(d, L)) + rng.normal(size=(n, L)) * 0.3
    shares = rng.choice([0.005, 0.02, 0.2], size=L)
    Y = scores > [np.quantile(column, 1 - share) for column, share in zip(scores.T, shares, strict=True)]
    return sp.csr_array(dense), sp.csr_array(Y.astype(np.int32))


def signs(Y, label):
    return np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)


# --- the forms of X ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "loss"), [("dual", "squared_hinge"), ("newton", "squared_hinge"), ("newton", "logistic")]
)
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_all_forms_of_x_have_the_same_solution(solver, loss, bias):
    X, Y = text_like(4, n=150, d=40, L=8)
    params = {"solver": solver, "loss": loss, "bias": bias, "tol": 1e-6, "prune": 0.0}
    fits = [lt.OneVsAll(**params).fit(in_form(X, form), Y) for form in FORMS]
    for clf in fits[1:]:
        np.testing.assert_allclose(clf.training_.objective, fits[0].training_.objective, rtol=1e-5)
        np.testing.assert_allclose(clf.decision_function(X), fits[0].decision_function(X), atol=5e-3)


def test_hybrid_rows_have_the_same_bytes_on_any_number_of_threads_and_blocks():
    X, Y = text_like(4, n=300, d=60, L=70)
    rows = in_form(X, "hybrid")
    one = lt.OneVsAll(n_jobs=1).fit(rows, Y).model_.all_weights()
    for other in (lt.OneVsAll(n_jobs=2, block_size=9), lt.OneVsAll(n_jobs=4)):
        W = other.fit(rows, Y).model_.all_weights()
        assert all((getattr(W, part) == getattr(one, part)).all() for part in ("data", "indices", "indptr"))


# --- the certificate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [0.1, 1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_objective_is_within_tol_of_the_optimum_and_the_gap_says_so(tol, bias):
    X, Y = text_like(1, n=200, d=60, L=12)
    for C in (0.1, 1.0, 10.0):
        clf = lt.OneVsAll(C, tol=tol, bias=bias, prune=0.0, solver="dual").fit(X, Y)
        A, outcome = ref.augmented(X, bias), clf.training_
        assert outcome.converged.all()
        assert (outcome.gap <= tol).all()
        for label in range(Y.shape[1]):
            y, w = signs(Y, label), clf.model_.W[[label]].toarray().ravel().astype(float)
            P = ref.objective("squared_hinge", A, y, C, w)
            best = ref.optimum("squared_hinge", A, y, C)
            assert outcome.objective[label] == pytest.approx(P, rel=1e-5)
            assert best <= P * (1 + 1e-6)
            assert P - best <= P * (outcome.gap[label] + 2e-6)


@given(problems, st.sampled_from([0.1, 1.0, 30.0]), st.sampled_from([0.0, 1.0, 2.5]))
@settings(deadline=None, max_examples=25)
def test_every_label_of_any_problem_is_solved(problem, C, bias):
    """Empty rows, labels with no and with only positives, repeated rows, features without scale."""
    X, Y = problem
    clf = lt.OneVsAll(C, bias=bias, prune=0.0, solver="dual", tol=1e-3).fit(X, Y)
    for label in range(Y.shape[1]):
        best = ref.optimum("squared_hinge", ref.augmented(X, bias), signs(Y, label), C)
        assert clf.training_.converged[label]
        assert clf.training_.objective[label] <= best * (1 + 1.1e-3) + 1e-9


def test_the_solvers_agree():
    X, Y = text_like(2)
    tight = {"tol": 1e-7, "prune": 0.0}
    a, b = lt.OneVsAll(solver="dual", **tight).fit(X, Y), lt.OneVsAll(solver="newton", **tight).fit(X, Y)
    np.testing.assert_allclose(a.training_.objective, b.training_.objective, rtol=1e-6)
    np.testing.assert_allclose(a.model_.W.toarray(), b.model_.W.toarray(), atol=2e-3)


@pytest.mark.parametrize("start", ["zero", "bias:factor=0.9", "ova-primal", "tree", "msi:s=1,t=-3"])
def test_a_start_chooses_the_first_rows_and_not_the_optimum(start):
    X, Y = text_like(2, n=900)
    usual, other = lt.OneVsAll(tol=1e-4, prune=0.0).fit(X, Y), lt.OneVsAll(start=start, tol=1e-4, prune=0.0).fit(X, Y)
    assert other.training_.converged.all()
    np.testing.assert_allclose(other.training_.objective, usual.training_.objective, rtol=2e-4)
    assert (other.training_.objective != usual.training_.objective).any()


def first_rows(start, X, Y, label):
    """The working set that a lane has after the first pass: the rows of `label`, then others, at most 200.

    `start` is one that takes a pass.
    """
    problem = problem_of(X, Y, start=start)
    space = lanes.DualSpace(problem.X, 1, SHORT)
    rule, label = lanes.DualRule(1.0, 0.01, 0.0), np.array([label], np.uint64)
    rows = first_rows_of_block(problem.X, problem.rare_features, problem.positives, label)
    dual_kernels.prepare(
        problem.X, problem.positives, problem.parent, label, problem.first, rows, rule, space.cursor, space.lanes,
        space.scratch, space.room,
    )  # fmt: skip
    verify_kernels.verify(problem.X, problem.visiting_order, problem.first.base, space.lanes, space.pass_scratch, None)
    settle_kernels.settle(rule, space.cursor, space.lanes, space.out)
    return space.lanes.rows[: space.lanes.each["n_rows"][0]]


def test_first_rows_are_those_that_the_starts_weights_score_highest():
    X, Y = text_like(2, n=900)
    label, count = 3, int(Y[:, [3]].sum())
    y = signs(Y, label)
    for start in ("msi:t=-1.2", "ova-primal"):
        rows = first_rows(start, X, Y, label)
        assert (y[rows[:count]] > 0).all()
        assert (y[rows[count:]] < 0).all()
        A = ref.augmented(X, 1.0)
        w = ref.mean_separating(A, y, 1.0, -1.2)
        if start == "ova-primal":
            w = first_weights(problem_of(X, Y, start=start), [label])[0]
        scores = np.where(y > 0, -np.inf, A @ w)
        worst = np.sort(scores[rows[count:]])[0]
        assert len(rows) - count == min(max(200, 4 * count), int((scores > -1).sum()))
        assert (scores > worst + 1e-4).sum() <= len(rows) - count


def test_the_tree_begins_with_the_rows_of_the_parent():
    X, Y = text_like(2, n=900)
    parent = Y[:, [3]].toarray()
    child = parent.copy()
    child[np.flatnonzero(parent)[:3]] = 0
    child[np.flatnonzero(1 - parent)[:4]] = 1  # one row more than its parent, so that it is the one that hangs below
    rows = first_rows("tree", X, sp.csr_array(np.hstack([parent, child])), 1)
    assert set(np.flatnonzero(parent)) <= set(rows.tolist())
    assert not set(np.flatnonzero(parent)) <= set(first_rows("ova-primal", X, sp.csr_array(child), 0).tolist())


def test_newtons_gap_is_honest_for_both_losses():
    X, Y = text_like(3, n=200, d=60, L=12)
    for loss in ("squared_hinge", "logistic"):
        clf = lt.OneVsAll(1.0, loss=loss, solver="newton", tol=0.1, prune=0.0).fit(X, Y)
        for label in range(Y.shape[1]):
            best = ref.optimum(loss, ref.augmented(X, 1.0), signs(Y, label), 1.0)
            P, gap = clf.training_.objective[label], clf.training_.gap[label]
            assert -1e-9 <= (P - best) / P <= gap + 1e-7


def test_labels_stuck_in_float32_go_to_newton():
    X, Y = text_like(4)
    clf = lt.OneVsAll(tol=1e-9, prune=0.0, solver="dual").fit(X, Y)
    assert np.isfinite(clf.training_.gradient_ratio).all()  # float32 can certify no gap below 1e-6
    assert clf.training_.converged.all()
    assert (clf.training_.gap <= 1e-9).all()


def is_short(weights):
    """Which of these float32 numbers are bfloat16 numbers."""
    return (weights.view(np.uint32) & 0xFFFF) == 0


def test_bfloat16_and_float32_reach_the_same_objective(monkeypatch):
    X, Y = text_like(4)
    short = lt.OneVsAll(prune=0.0).fit(X, Y)
    monkeypatch.setattr(panel, "MIN_SHORT_TOL", 1.0)
    full = lt.OneVsAll(prune=0.0).fit(X, Y)
    assert is_short(short.model_.W.data).mean() > 0.9  # all but the bias weights
    assert is_short(full.model_.W.data).mean() < 0.3
    np.testing.assert_allclose(short.training_.objective, full.training_.objective, rtol=0.01)
    for clf in (short, full):
        assert (clf.training_.gap <= 0.01).all()


def test_the_panel_is_float32_for_small_tolerances():
    X, Y = text_like(4)
    assert problem_of(X, Y).panel_type == SHORT
    assert problem_of(X, Y, tol=1e-5).panel_type == FULL


@pytest.mark.parametrize(("scale", "C"), [(30, 1.0), (1e-3, 1e7), (1.0, 100.0)])
def test_large_and_small_weights_are_solved_in_bfloat16(scale, C):
    X, Y = text_like(4, L=5)
    clf = lt.OneVsAll(C, prune=0.0, solver="dual").fit(sp.csr_array(X * np.float32(scale)), Y)
    assert clf.training_.converged.all()
    assert (clf.training_.gap <= 0.01).all()


def test_labels_that_bfloat16_cannot_solve_are_solved_in_float32(monkeypatch):
    X, Y = text_like(4)
    monkeypatch.setattr(panel, "MIN_SHORT_TOL", 0.0)
    monkeypatch.setattr(dual, "_finish", lambda problem, block, part, work: part)
    clf = lt.OneVsAll(tol=5e-6, prune=0.0).fit(X, Y)
    assert clf.training_.converged.all()
    assert not is_short(clf.model_.W.data).all()


def test_badly_scaled_features_are_left_to_newton_by_auto():
    X = sp.csr_array(np.array([[1e8, 0.0], [0.0, 1.0], [2.0, 2.0]], np.float32))
    clf = lt.OneVsAll().fit(X, [0, 1, 1])
    assert np.isfinite(clf.training_.gradient_ratio).all()


def test_the_dual_solver_refuses_the_logistic_loss():
    with pytest.raises(InputError, match="solver='dual' solves loss='squared_hinge' only, not 'logistic'"):
        lt.OneVsAll(solver="dual", loss="logistic").fit(np.eye(2), [0, 1])


@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_positive_weights_multiply_the_cost_of_a_labels_own_rows(solver):
    X, Y = text_like(9, L=6)
    weights = np.array([1.0, 3.0, 0.2, 5.0, 1.0, 2.0])
    clf = lt.OneVsAll(C=0.5, positive_weight=weights, solver=solver, tol=1e-5, prune=0.0).fit(X, Y)
    for label in range(6):
        y = signs(Y, label)
        best = ref.optimum("squared_hinge", ref.augmented(X, 1.0), y, np.where(y > 0, 0.5 * weights[label], 0.5))
        assert clf.training_.objective[label] == pytest.approx(best, rel=1e-4)
    one = lt.OneVsAll(C=0.5, positive_weight=3.0, solver=solver, tol=1e-5, prune=0.0).fit(X, Y)
    assert one.training_.objective[1] == clf.training_.objective[1]


def test_labels_on_the_same_rows_with_different_weights_are_no_twins():
    X, Y = text_like(5, L=2)
    clf = lt.OneVsAll(positive_weight=[1.0, 9.0, 1.0]).fit(X, sp.csr_array(Y[:, [0, 0, 0]]))
    objective = clf.training_.objective
    assert objective[0] == objective[2] != objective[1]


def test_tiny_positive_weights_get_no_false_certificate():
    X, Y = text_like(3, n=200, d=60, L=12)
    for weight in (1e-3, 1e3):
        clf = lt.OneVsAll(1.0, positive_weight=weight, tol=1e-4, prune=0.0).fit(X, Y)
        for label in range(12):
            y = signs(Y, label)
            best = ref.optimum("squared_hinge", ref.augmented(X, 1.0), y, np.where(y > 0, weight, 1.0))
            assert best * (1 - 3e-6) <= clf.training_.objective[label] <= best * (1 + 1.1e-4)


def test_overflowing_scores_are_not_taken_for_solved():
    for bias in (1e12, 1e25):
        clf = lt.OneVsAll(bias=bias).fit(np.eye(30), [[i % 3] for i in range(30)])
        assert np.isfinite(clf.training_.gradient_ratio).all()  # left to Newton, in float64


@pytest.mark.parametrize("weight", ["two", True, [1.0, 2.0], 0.0, -1.0, float("nan"), [[1.0]]])
def test_bad_positive_weights_are_refused(weight):
    with pytest.raises(InputError, match="The 'positive_weight' parameter of OneVsAll must be"):
        lt.OneVsAll(positive_weight=weight).fit(np.eye(3), [0, 1, 2])


@pytest.mark.parametrize("weight", ["two", True, 0.0, -1.0, float("nan"), [[1.0]], [1.0, -2.0], []])
def test_bad_positive_weights_are_refused_before_the_data_is_read(weight):
    with pytest.raises(InputError, match="The 'positive_weight' parameter of OneVsAll must be"):
        lt.OneVsAll(positive_weight=weight)._check_parameters()


def test_an_array_of_positive_weights_is_not_saved(tmp_path):
    lt.OneVsAll(positive_weight=[1.0, 2.0]).fit(np.eye(2), [0, 1]).save(tmp_path / "model")
    assert lt.load(tmp_path / "model").positive_weight == 1.0


def test_twin_labels_are_solved_once_and_get_the_same_weights(monkeypatch):
    X, Y = text_like(5, L=6)
    doubled = sp.csr_array(sp.hstack([Y, Y[:, [3, 1]]]))
    seen, solve = [], dual.solve

    def counted(problem, first, block, work):
        seen.extend(block.items.tolist())
        return solve(problem, first, block, work)

    monkeypatch.setattr(dual, "solve", counted)
    clf = lt.OneVsAll(n_jobs=1).fit(X, doubled)
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]
    assert (clf.model_.W[[6, 7]] != clf.model_.W[[3, 1]]).nnz == 0
    assert clf.training_.objective[6] == clf.training_.objective[3]


def test_some_labels_alone_get_the_rows_of_the_whole_model():
    X, Y = text_like(6)
    whole, problem = lt.OneVsAll().fit(X, Y), problem_of(X, Y)
    part = solve_labels(problem, [7, 2, 19])
    assert sorted(part.items.tolist()) == [2, 7, 19]
    assert (whole.model_.W[part.items] != weights_of(part, problem.D)).nnz == 0
    np.testing.assert_array_equal(part.figures["gap"], whole.training_.gap[part.items])


def test_buffers_grow_for_labels_with_many_rows():
    X, Y = text_like(7, n=3000, L=5)
    half = sp.csr_array((np.arange(3000)[:, None] % 2 == np.arange(2)).astype(np.int32))
    clf = lt.OneVsAll(1.0, prune=0.0, tol=1e-3).fit(X, sp.csr_array(sp.hstack([half, Y])))
    assert clf.training_.converged.all()
    best = ref.optimum("squared_hinge", ref.augmented(X, 1.0), signs(half, 0), 1.0)
    assert clf.training_.objective[0] <= best * (1 + 1.1e-3)
