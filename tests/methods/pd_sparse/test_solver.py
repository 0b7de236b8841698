"""The solver: right tables, right search, an objective that never rises, and the optimum of (13) and (14)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from longtail.matrix import canonical_csr
from longtail.methods.pd_sparse import frank_wolfe, search_kernels
from tests.methods.one_vs_all.problems import problems, random_problem, text_like
from tests.methods.pd_sparse import reference as ref
from tests.methods.pd_sparse.solver import dense_alphas, dense_lists, dense_tables, make, trained


def multiclass(seed, n=40, d=8, K=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    Y = np.eye(K, dtype=np.int32)[rng.integers(K, size=n)]
    return canonical_csr(sp.csr_array(X)), canonical_csr(sp.csr_array(Y))


def check_state(solver, X):
    """The active sets are feasible (16), and tables and lists are what follows from them (23)."""
    A, V, C = dense_alphas(solver), dense_tables(solver), solver.C
    Y = np.zeros(A.shape)
    for i, labels in enumerate(np.split(solver.samples.positives, np.cumsum(solver.samples.n_positive)[:-1])):
        Y[i, np.isin(solver.samples.number_of, labels)] = 1
    assert (A[Y == 0] <= 0).all()
    assert (A[Y > 0] >= 0).all()
    np.testing.assert_allclose(A.sum(axis=1), 0, atol=1e-9 * C)
    assert (np.where(Y > 0, A, 0).sum(axis=1) <= C * (1 + 1e-12)).all()
    np.testing.assert_allclose(V, X.T @ A, atol=2e-5 * C)
    np.testing.assert_allclose(dense_lists(solver), ref.prox(V, solver.lam), atol=1e-6 * C)
    np.testing.assert_array_equal(solver.W().toarray().T, dense_lists(solver).astype(np.float32))
    assert solver.dual() == pytest.approx(ref.dual(X, Y, A, solver.lam), rel=1e-4, abs=1e-5 * C)
    return A, Y


@given(problems, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.5, 10.0]), st.integers(1, 3))
@settings(deadline=None, max_examples=12)
def test_tables_and_lists_follow_the_active_sets(problem, lam, C, subsets):
    X, Y = problem
    solver = trained(X, Y, 3, C=C, lam=lam, subsets=subsets, returned=2, bias=0.5)
    check_state(solver, np.hstack([X.toarray(), np.full((X.shape[0], 1), 0.5)]).astype(float))


def test_large_tables_grow_and_give_back_their_space():
    X, Y = text_like(1, n=500, d=40, L=300)
    solver = trained(X, Y, 4, C=10.0, lam=0.01, returned=8)
    assert (solver.weights.mask > 127).any()
    assert (solver.weights.row_of != search_kernels.NOWHERE).any()
    check_state(solver, X.toarray().astype(float))
    used = int((solver.weights.mask.astype(np.int64) + 1).sum())
    assert used <= solver.weights.used[0] < 2 * used  # tables that were left are used again


def test_a_point_can_be_gone_back_to_and_other_strengths_taken_up():
    X, Y = text_like(2, n=200)
    solver = trained(X, Y, 2, C=2.0, lam=0.05)
    point, W = solver.point(), solver.W().toarray()
    solver.run_pass(solver.samples.with_loss)
    solver.set_strength(10.0, 0.2)
    solver.run_pass(solver.samples.with_loss)
    check_state(solver, X.toarray().astype(float))
    solver.set_strength(1.0, 0.0)
    check_state(solver, X.toarray().astype(float))
    solver.go_back(point)
    assert (solver.C, solver.lam) == (2.0, 0.05)
    check_state(solver, X.toarray().astype(float))
    np.testing.assert_allclose(solver.W().toarray(), W, atol=1e-5)


# --- search ----------------------------------------------------------------------------------------------------------


def searched(solver, rows, subsets, returned, rate=1.0, seed=0):
    K, widest = solver.samples.n_labels, int(np.diff(solver.samples.X[2].view(np.int64)).max())
    out, z = np.zeros((len(rows), returned), np.uint32), np.zeros(K, np.float32)
    search_kernels.search_rows(
        rows, subsets, solver.samples.X, solver.members, rate, np.uint64(seed), solver.weights, z,
        np.empty(widest, np.float32), np.empty(returned, np.float32), out,
    )  # fmt: skip
    assert not z.any()
    return out


@pytest.mark.parametrize(("subsets", "words"), [(1, 40), (3, 40), (1, 2), (3, 2)])
def test_the_search_finds_the_best_labels_that_are_not_active(subsets, words):
    """With two words a row, so few of 3,000 labels are met that only those are looked at."""
    rng = np.random.default_rng(subsets)
    n, K = 80, 3000
    X = sp.random_array((n, 500), density=words / 500, rng=rng, dtype=np.float32, format="csr")
    Y = sp.csr_array((np.ones(n, np.int32), (np.arange(n), rng.integers(K, size=n))), shape=(n, K))
    solver = trained(canonical_csr(X), Y, 3, C=5.0, lam=0.0, subsets=subsets)
    number_of, width = solver.samples.number_of, solver.weights.subset_width
    Z, A = X.toarray() @ dense_lists(solver), dense_alphas(solver) != 0
    A |= Y.toarray() > 0
    chosen = np.arange(n) % subsets
    found = searched(solver, np.arange(n, dtype=np.uint32), chosen, 3)
    for i in range(n):
        allowed = ~A[i] & (number_of // width == chosen[i])
        labels = [np.flatnonzero(number_of == number)[0] for number in found[i]]
        assert len(set(labels)) == 3
        assert allowed[labels].all()
        np.testing.assert_allclose(Z[i, labels], -np.sort(-Z[i, allowed])[:3], atol=1e-5)


def test_top_labels_of_rows():
    X, Y = text_like(4, n=60)
    solver = trained(X, Y, 3, C=5.0, lam=0.02, subsets=3)
    Z = X.toarray() @ dense_lists(solver)
    top = solver.top(np.arange(20, 60), 5)
    np.testing.assert_allclose(np.take_along_axis(Z[20:], top, 1), -np.sort(-Z[20:], axis=1)[:, :5], atol=1e-5)


def test_sampled_scores_are_unbiased():
    """The mean over many draws is the score, within five standard errors (25)."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=30).astype(np.float32), rng.normal(size=30)
    for rate in (1.0, 2.0, 7.0, 100.0):
        estimates = np.empty(4000)
        for seed in range(len(estimates)):
            out = np.empty(30, np.float32)
            bits = search_kernels.random_bits(np.uint64(seed))
            search_kernels.sample_features(x, np.uint64(0), np.uint64(30), rate, np.uint64(bits), out)
            estimates[seed] = out @ w
        error = estimates.std() / np.sqrt(len(estimates))
        assert abs(estimates.mean() - x @ w) <= 5 * error + 1e-5
        assert (error == 0) == (rate == 1.0) or error < 1e-7


def test_the_sampling_rate_is_that_of_section_4_4():
    X, Y = text_like(5, n=300, d=600, L=60)
    samples = make(X, Y).samples
    by_weights = 5 * 600 * 60 / (2.0 * X.nnz * np.log(60))
    assert samples.sampling_rate(2.0) == np.ceil(min(by_weights, X.nnz / (5 * 300)))
    assert samples.sampling_rate(1e9) == 1.0


def test_searches_return_more_labels_when_they_take_most_of_the_time(monkeypatch):
    X, Y = text_like(6, n=150)
    monkeypatch.setattr(frank_wolfe, "SLOT_WORK", 0.0)
    assert trained(X, Y, 3, returned=2).returned == 16
    monkeypatch.setattr(frank_wolfe, "SLOT_WORK", 1e9)
    assert trained(X, Y, 3, returned=2).returned == 2


# --- the optimum -----------------------------------------------------------------------------------------------------


@pytest.fixture
def one_batch(monkeypatch):
    """A pass is one batch, so that many passes over few rows are quick."""
    monkeypatch.setattr(frank_wolfe, "MIN_BATCHES", 1)


def test_rows_are_searched_in_batches_of_at_most_this_size(monkeypatch, one_batch):
    X, Y = multiclass(0)
    searched = []
    visit = frank_wolfe.FrankWolfe._visit

    def counted(solver, rows, subsets, seed):
        searched.append(len(rows))
        return visit(solver, rows, subsets, seed)

    monkeypatch.setattr(frank_wolfe.FrankWolfe, "_visit", counted)
    for batch_size, expected in ((1, [1] * 40), (16, [16, 16, 8]), (256, [40])):
        searched.clear()
        solver = make(X, Y, batch_size=batch_size)
        solver.run_pass(solver.samples.with_loss)
        assert searched == expected
        check_state(solver, X.toarray().astype(float))


@given(problems, st.sampled_from([0.0, 0.1]), st.sampled_from([0.3, 3.0]))
@settings(deadline=None, max_examples=10)
def test_the_dual_objective_never_rises(problem, lam, C):
    X, Y = problem
    solver = make(X, Y, C=C, lam=lam)
    values = [solver.dual()]
    for _ in range(8):
        solver.run_pass(solver.samples.with_loss)
        values.append(solver.dual())
    assert (np.diff(values) <= 1e-5 * (1 + np.abs(values[1:]))).all()


@pytest.mark.parametrize("C", [0.3, 5.0])
@pytest.mark.parametrize("lam", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["multi-class", "multi-label"])
def test_primal_and_dual_meet_at_the_optimum_of_another_solver(kind, lam, C, one_batch):
    X, Y = multiclass(1, n=10, K=4) if kind == "multi-class" else random_problem(11, n=12, d=8, L=4, density=0.6)
    solver = trained(X, Y, 600, C=C, lam=lam)
    dense_X, dense_Y = X.toarray().astype(float), Y.toarray()
    proper = (dense_Y.sum(axis=1) > 0) & (dense_Y.sum(axis=1) < dense_Y.shape[1])
    W = solver.W().toarray().T.astype(float)
    upper, lower = ref.primal(dense_X[proper], dense_Y[proper], W, C, lam), -solver.dual()
    assert abs(upper - lower) <= 2e-4 * upper
    best = ref.optimum(dense_X[proper], dense_Y[proper], C, lam)
    assert lower == pytest.approx(-best, rel=1e-4)


@pytest.mark.parametrize("C", [0.1, 2.0])
def test_without_l1_penalty_it_is_the_svm_of_crammer_and_singer(C, one_batch):
    X, Y = multiclass(3, n=60, d=6, K=4)
    dense_X, dense_Y = X.toarray().astype(float), Y.toarray()
    other = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=100_000)
    other.fit(dense_X, dense_Y.argmax(axis=1))
    solver = trained(X, Y, 1000, C=C, lam=0.0)
    ours = ref.primal(dense_X, dense_Y, solver.W().toarray().T.astype(float), C, 0.0)
    assert ours == pytest.approx(ref.primal(dense_X, dense_Y, other.coef_.T, C, 0.0), rel=1e-4)
    np.testing.assert_allclose(solver.W().toarray(), other.coef_, atol=5e-3)


def test_parts_and_samples_lead_to_the_same_optimum(one_batch):
    X, Y = random_problem(4, n=25, d=8, L=6, density=0.6)
    exact = trained(X, Y, 400, C=2.0, lam=0.1).dual()
    assert trained(X, Y, 400, C=2.0, lam=0.1, subsets=3).dual() == pytest.approx(exact, rel=1e-4)
    sampled = make(X, Y, C=2.0, lam=0.1, subsets=2, sampled=True)
    sampled.rate = 3.0
    for _ in range(400):
        sampled.run_pass(sampled.samples.with_loss)
    assert sampled.dual() == pytest.approx(exact, rel=1e-3)


def test_primal_and_dual_are_sparse_together(one_batch):
    """At the optimum only confusing labels have a dual variable, and only |v| > lam makes a weight (8) to (12)."""
    X, Y = multiclass(5, n=30, d=40, K=6)
    C, lam = 20.0, 3.0  # large, so that the l2 penalty counts for little, as in (7)
    solver = trained(X, Y, 3000, C=C, lam=lam)
    A, V, W = dense_alphas(solver), dense_tables(solver), solver.W().toarray().T
    np.testing.assert_array_equal(W != 0, np.abs(V) > lam)
    Z, dense_Y = X.toarray() @ W, Y.toarray()
    others = np.where(dense_Y > 0, -np.inf, Z)
    active = A < -1e-6 * C
    gap = others.max(axis=1)[:, None] - others
    assert (gap[active] <= 1e-3 * np.abs(Z).max()).all()
    assert 0 < (W != 0).sum() <= (np.abs(A) > 1e-9 * C).sum()


def test_the_post_solve_is_the_l2_problem_on_the_selected_weights(one_batch):
    X, Y = multiclass(7, n=12, d=10, K=4)
    solver = trained(X, Y, 200, C=1.0, lam=0.3)
    selected = solver.W().toarray().T != 0
    assert 0 < selected.sum() < selected.size
    dense_X, dense_Y = X.toarray().astype(float), Y.toarray()
    solver.select()
    for _ in range(500):
        solver.run_pass(solver.samples.with_loss)
    W, A = solver.W().toarray().T, dense_alphas(solver)
    assert not W[~selected].any()
    np.testing.assert_allclose(W, (dense_X.T @ A) * selected, atol=1e-4)
    # dual variables are limited to the active sets, so the value lies between that optimum and zero
    best = ref.optimum(dense_X, dense_Y, 1.0, 0.0, selected=selected)
    assert best * (1 + 1e-6) <= solver.dual() <= 0.98 * best


def test_a_solver_starts_from_given_weights():
    X, Y = random_problem(4, n=40, d=15, L=9)
    rng = np.random.default_rng(0)
    W = sp.csr_array((rng.normal(size=(9, 16)) * (rng.random((9, 16)) < 0.5)).astype(np.float32))
    solver = make(X, Y, bias=1.0, subsets=2, lam=0.2)
    solver.start_from(1.0, 0.2, W)
    np.testing.assert_allclose(solver.W().toarray(), W.toarray(), atol=1e-6)
    np.testing.assert_allclose(dense_lists(solver), W.toarray().T, atol=1e-6)
    V = dense_tables(solver)
    solver.run_pass(solver.samples.with_loss)
    A = sp.csr_array(sp.hstack([X, np.ones((40, 1), np.float32)]))
    np.testing.assert_allclose(dense_tables(solver), V + A.T @ dense_alphas(solver), atol=1e-4)
