"""The dual solver: its kernels against slow twins, and its certificate against the true optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.errors import InputError
from longtail.methods.one_vs_all import dual, dual_kernels, lanes, verify_kernels
from longtail.methods.one_vs_all.inputs import samples
from longtail.methods.one_vs_all.parts import weights_of
from longtail.methods.one_vs_all.starts import msi
from longtail.methods.one_vs_all.verify_kernels import LABEL_LANES
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import problem_of, problems, random_problem, solve_labels


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
    """The working set that a lane has after the first pass: the rows of `label`, then others, at most 200."""
    problem, space = problem_of(X, Y, start=start), lanes.DualSpace(*X.shape, 1, is_dense=False)
    rule, label = lanes.DualRule(1.0, 0.01, 0.0), np.array([label], np.uint64)
    dual_kernels.prepare(
        problem.X, problem.positives, problem.parent, label, problem.first, rule, space.cursor, space.lanes,
        space.scratch, space.out,
    )  # fmt: skip
    verify_kernels.verify(problem.X, problem.first.base, space.lanes, space.scratch.values)
    dual_kernels.settle(rule, space.cursor, space.lanes, space.out)
    return space.lanes.rows[: space.lanes.n_rows[0]]


def test_first_rows_are_those_that_the_starts_weights_score_highest():
    X, Y = text_like(2, n=900)
    label, count = 3, int(Y[:, [3]].sum())
    y = signs(Y, label)
    for start in ("msi", "ova-primal"):
        rows = first_rows(start, X, Y, label)
        assert (y[rows[:count]] > 0).all()
        assert (y[rows[count:]] < 0).all()
        A = ref.augmented(X, 1.0)
        w = ref.mean_separating(A, y, 1.0, msi.DUAL_NEGATIVE_SCORE)
        if start == "ova-primal":
            w = problem_of(X, Y, start=start).start.w
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


# --- kernels ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 12), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=80)
def test_verify_equals_its_twin(seed, n, d, tiny_room, dense):
    """Scores, loss and the rows overlooked, for sixteen lanes with different numbers of rows wanted."""
    rng = np.random.default_rng(seed)
    X, _ = random_problem(seed, n=max(n, 4), d=d)
    n = X.shape[0]
    X = X.toarray() if dense else X
    rows, base = samples(X, 1.0), rng.normal(size=n).astype(np.float32)
    space = lanes.DualSpace(n, d, 1, is_dense=rows.is_dense)
    space.lanes.need[:] = 40
    space.grow(dual_kernels.MORE_ROWS)
    L = space.lanes
    L.panel[1:] = rng.normal(size=(d, LABEL_LANES))
    if not rows.is_dense:
        L.line_of[:] = rng.permutation(d + 1)[:d]  # some feature may point to line 0, which is zero
    L.factor[:], L.offset[:] = rng.normal(size=LABEL_LANES), rng.normal(size=LABEL_LANES)
    L.tau[:] = rng.choice([0.0, 0.5, np.inf], size=LABEL_LANES)
    L.want[:] = rng.integers(1, 3 if tiny_room else 40, size=LABEL_LANES)
    L.positive[:] = rng.integers(0, 2**16, size=n)
    L.member[:] = rng.integers(0, 2**16, size=n)
    tau = L.tau.copy()
    verify_kernels.verify(rows, base, L, space.scratch.values)

    whole = X if dense else X.toarray()
    z = whole.astype(float) @ L.panel[L.line_of] + np.outer(base, L.factor) + L.offset
    bit = (L.positive[:, None] >> np.arange(LABEL_LANES)) & 1
    slack = np.maximum(0, 1 - np.where(bit, 1, -1) * z)
    np.testing.assert_allclose(L.loss, (np.where(bit, 0, slack) ** 2).sum(0), rtol=1e-4, atol=1e-4)
    outside = ((L.member[:, None] >> np.arange(LABEL_LANES)) & 1) == 0
    for b in range(LABEL_LANES):
        eligible = np.flatnonzero(outside[:, b] & (slack[:, b] > tau[b] + 1e-5))
        found = L.found[2 * L.first[b] :][: L.n_found[b]]
        assert len(set(found.tolist())) == len(found)
        assert len(found) >= min(len(eligible), L.want[b])
        assert len(found) <= L.want[b]
        assert outside[found, b].all()
        np.testing.assert_allclose(L.found_slack[2 * L.first[b] :][: len(found)], slack[found, b], rtol=1e-4, atol=1e-4)
        best = np.sort(slack[eligible, b])[::-1][: L.want[b]]
        np.testing.assert_allclose(np.sort(slack[found, b])[::-1][: len(best)], best, rtol=1e-4, atol=1e-4)


@given(st.lists(st.tuples(st.integers(0, 15), st.sets(st.integers(0, 6))), max_size=30))
@settings(deadline=None)
def test_the_panel_has_a_line_for_every_feature_in_use_and_no_other(steps):
    """Lanes take features up and drop them; after every step the panel says what a dense one would."""
    space, dense = lanes.DualSpace(1, 7, 1, is_dense=False), np.zeros((7, LABEL_LANES), np.float32)
    L, s = space.lanes, space.scratch
    for value, (b, features) in enumerate(steps, start=1):
        s.features[: len(features)], s.w[: len(features)] = sorted(features), value
        dual_kernels.fill_lane(b, L, s, len(features), np.float32(2.0))
        dense[:, b] = 0.0
        dense[sorted(features), b] = 2.0 * value
        np.testing.assert_array_equal(L.panel[L.line_of], dense)
        used = (dense != 0).any(1)
        assert (L.line_of[~used] == 0).all()
        assert (L.panel[0] == 0).all()
        assert L.n_free[0] == 7 - used.sum()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_keep_best_keeps_the_best_and_the_first_of_equals(values, data):
    keep = data.draw(st.integers(1, len(values)))
    slack, found = np.array(values, np.float32), np.arange(len(values), dtype=np.uint32)
    count, limit = verify_kernels.keep_best(found, slack, 0, len(values), keep, np.empty(len(values), np.float32))
    expected = sorted(sorted(range(len(values)), key=lambda i: (-values[i], i))[:keep])
    assert found[:count].tolist() == expected
    assert limit == min(values[i] for i in expected)


def lane_with(X, y, cost):
    """A space whose lane 0 has all rows of X in its working set, positives first; `cost` is that of the positives."""
    n, d = X.shape
    space, rows = lanes.DualSpace(n, d, 1, is_dense=isinstance(X, np.ndarray)), samples(X, 1.0)
    L = space.lanes
    L.rows[:n] = np.argsort(-y, kind="stable")
    L.n_rows[0], L.n_positive[0] = n, (y > 0).sum()
    L.cost[0] = cost
    return rows, space


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("dense", [False, True])
def test_descend_reaches_the_optimum_of_the_working_set(C, dense):
    X, Y = text_like(8, n=60)
    y = signs(Y, 2)
    rows, space = lane_with(X.toarray() if dense else X, y, 3 * C)
    L, s = space.lanes, space.scratch
    count = dual_kernels.gather(rows, L.rows, 60, s)
    w = np.zeros(count, np.float32)
    dual_kernels.descend(0, rows, C, 1e-6, L, s, None if dense else s.j, w)
    order, alpha = L.rows[:60], L.alpha[:60]
    cost, A = np.where(y > 0, 3 * C, C), ref.augmented(X, 1.0)
    full = np.zeros(A.shape[1])
    full[s.features[:count]], full[-1] = w, L.bias_weight[0]
    np.testing.assert_allclose(full, A[order].T @ (alpha * y[order]), atol=1e-4)  # w = sum alpha y x
    assert L.norm[0] == pytest.approx(full @ full, rel=1e-5)
    expected = alpha.sum() - 0.5 * full @ full - (alpha**2 / (4 * cost[order])).sum()
    assert L.dual[0] == pytest.approx(expected, rel=1e-4)
    slack = np.maximum(0, 1 - A @ full)[y > 0]
    assert L.positive_loss[0] == pytest.approx((slack**2).sum(), rel=1e-3, abs=1e-6)
    best = ref.optimum("squared_hinge", A, y, cost)
    assert L.dual[0] == pytest.approx(best, rel=1e-4)
    assert ref.objective("squared_hinge", A, y, cost, full) == pytest.approx(best, rel=1e-4)
    again = np.zeros(count, np.float32)
    dual_kernels.descend(0, rows, C, 1e-6, L, s, None if dense else s.j, again)  # from the solution
    np.testing.assert_allclose(again, w, atol=1e-3)


@given(st.integers(0, 1000), st.booleans())
@settings(deadline=None, max_examples=40)
def test_gather_copies_rows_and_renumbers_features_as_they_occur(seed, dense):
    X, _ = random_problem(seed, n=12, d=9)
    chosen = np.random.default_rng(seed).permutation(12)[:5].astype(np.uint32)
    rows, space = lane_with(X.toarray() if dense else X, np.ones(12), 1.0)
    s = space.scratch
    count = dual_kernels.gather(rows, chosen, 5, s)
    met = np.concatenate([X[[i]].indices for i in chosen]).tolist()
    assert s.features[:count].tolist() == (list(range(9)) if dense else list(dict.fromkeys(met)))
    assert not s.slot.any()
    for r, i in enumerate(chosen):
        start, end = int(s.ends[r]), int(s.ends[r + 1])
        copied = np.zeros(9, np.float32)
        copied[s.features[np.arange(9) if dense else s.j[start:end]]] = s.x[start:end]
        np.testing.assert_array_equal(copied, X[[i]].toarray().ravel())
        w = np.random.default_rng(seed).normal(size=count).astype(np.float32)
        ends, j = (s.ends[r], s.ends[r + 1]), None if dense else s.j
        product = X[[i]].toarray().ravel()[s.features[:count]] @ w
        assert dual_kernels.row_dot(s.x, j, *ends, w) == pytest.approx(product, rel=1e-4, abs=1e-5)
        changed = w.copy()
        dual_kernels.add_row(s.x, j, *ends, np.float32(2), changed)
        np.testing.assert_allclose(changed, w + 2 * X[[i]].toarray().ravel()[s.features[:count]], rtol=1e-5, atol=1e-6)


@given(problems, st.booleans(), st.sampled_from([0.0, 1.0]))
@settings(deadline=None, max_examples=40)
def test_the_first_guess_scores_as_the_mean_separating_weights_do(problem, dense, bias):
    X, Y = problem
    p = problem_of(X.toarray() if dense else X, Y, bias=bias, solver="dual")
    space = lanes.DualSpace(*X.shape, 1, is_dense=p.X.is_dense)
    A = ref.augmented(X, bias)
    for label in range(Y.shape[1]):
        own = p.positives.rows[p.positives.indptr[label] : p.positives.indptr[label + 1]]
        count = dual_kernels.positive_mean(p.X, own, space.scratch)
        mean = np.zeros(X.shape[1])
        mean[space.scratch.features[:count]] = space.scratch.w[:count]
        np.testing.assert_allclose(mean, X.toarray()[own].mean(0) if len(own) else 0, rtol=1e-4, atol=1e-6)
        u, v, n_features = dual_kernels.guess(p.X, p.first, own, space.scratch)
        w = u * np.append(mean, bias)[: p.D] + v * A.mean(0) if bias else u * mean + v * A.mean(0)
        W = np.empty((1, p.D))
        p.start.weights(p, np.array([label]), W)
        assert n_features == (count if u else 0)
        if not own.size:
            assert (u, v) == (0.0, 0.0)
        elif ref.sine(A[own].mean(0), A.mean(0)) > 0.05:  # else float32 sums lose too many digits
            np.testing.assert_allclose(w, W[0], rtol=1e-3, atol=1e-3 * np.abs(W).max())


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_smallest_of_best_equals_sorting(values, data):
    keep = data.draw(st.integers(1, len(values)))
    scratch = np.empty(len(values), np.float32)
    found = verify_kernels.smallest_of_best(np.array(values, np.float32), len(values), keep, scratch)
    assert found == sorted(values, reverse=True)[keep - 1]


def test_lanes_that_are_solved_are_written_and_emptied_and_others_grow():
    X, Y = text_like(8, n=60)
    y = signs(Y, 2)
    rows, space = lane_with(X, y, 1.0)
    rule, L = lanes.DualRule(1.0, 0.01, 0.05), space.lanes
    L.n_rows[0] = 40
    L.member[L.rows[:40]] = 1
    L.positive[y > 0] = 1
    L.rounds[0], L.position[0], L.phase[0] = 1, 0, dual_kernels.TO_SOLVE
    assert dual_kernels.solve_lane(0, rows, rule, L, space.scratch) == dual_kernels.DONE
    assert L.phase[0] == dual_kernels.TO_CHECK
    weights = L.panel[L.line_of, 0].copy()

    L.loss[0] = 1e6  # far from solved
    L.n_found[0] = 2
    L.found[:2] = L.rows[40:42]
    dual_kernels.settle(rule, space.cursor, L, space.out)
    assert (L.phase[0], L.rounds[0], L.n_rows[0], space.cursor[1]) == (dual_kernels.TO_SOLVE, 2, 42, 0)
    assert L.alpha[40:42].tolist() == [0, 0]
    assert L.member[L.rows[:42]].all()

    L.phase[0] = dual_kernels.TO_CHECK
    L.loss[0] = L.dual[0] - 0.5 * L.norm[0] - L.positive_loss[0]  # P = D
    active = (L.alpha[:42] > 0).sum()
    dual_kernels.settle(rule, space.cursor, L, space.out)
    assert (L.phase[0], L.n_rows[0], space.cursor[1]) == (dual_kernels.EMPTY, 0, 1)
    assert not L.member.any()
    assert not L.positive[L.rows[:42]].any()
    written = np.zeros(X.shape[1] + 1)
    written[space.out.indices[: space.out.ends[1]]] = space.out.data[: space.out.ends[1]]
    expected = np.append(weights, L.bias_weight[0])
    np.testing.assert_allclose(written, np.where(np.abs(expected) < 0.05, 0, expected))
    assert space.out.status[0] == dual_kernels.SOLVED
    assert space.out.n_iter[0] == 2
    np.testing.assert_allclose(space.out.figures[0], [L.dual[0], 1e-6, np.nan, active], rtol=1e-6)
