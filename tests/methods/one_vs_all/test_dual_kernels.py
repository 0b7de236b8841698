"""The kernels of the dual solver against slow twins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.compiled import frozen
from longtail.methods.one_vs_all import (
    best_labels_kernels,
    dual_kernels,
    lane_intrinsics,
    lanes,
    settle_kernels,
    verify_kernels,
)
from longtail.methods.one_vs_all.inputs import samples
from longtail.methods.one_vs_all.panel import FULL, SHORT
from longtail.methods.one_vs_all.verify_kernels import LABEL_LANES
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import FORMS, in_form, problem_of, problems, random_problem
from tests.methods.one_vs_all.test_dual import signs, text_like

PANEL_TYPES = [SHORT, FULL]
panel_types = st.sampled_from(PANEL_TYPES)
forms = st.sampled_from(FORMS)


def as_floats(panel):
    """The panel as float32."""
    return (panel.astype(np.uint32) << 16).view(np.float32) if panel.dtype == SHORT else panel


def rounded(values, panel_type):
    """Values as the panel holds them: in bfloat16, the upper half of a float32, or as they are. Ties go to even."""
    values = np.asarray(values, np.float32)
    if panel_type == FULL:
        return values
    whole = values.astype(float)
    exponent = np.floor(np.log2(np.abs(whole), where=whole != 0, out=np.zeros_like(whole)))
    unit = 2.0 ** (exponent - 7)  # of the last of eight binary digits
    return (np.round(whole / unit) * unit).astype(np.float32)


def elements(values, panel_type):
    """These values as elements of a panel."""
    held = rounded(values, panel_type)
    return held if panel_type == FULL else (held.view(np.uint32) >> 16).astype(np.uint16)


@given(
    st.integers(0, 1000), st.integers(1, 40), st.integers(1, 12), st.booleans(), forms, panel_types,
    st.sampled_from([None, np.uint64(3)]),
)  # fmt: skip
@settings(deadline=None, max_examples=80)
def test_verify_equals_its_twin(seed, n, d, tiny_room, form, panel_type, ahead):
    """Scores, loss and the rows overlooked, for 32 lanes with different numbers of rows wanted."""
    rng = np.random.default_rng(seed)
    X, _ = random_problem(seed, n=max(n, 4), d=d)
    n = X.shape[0]
    rows, columns = samples(in_form(X, form), 1.0)
    base = rng.normal(size=n).astype(np.float32)
    space = lanes.DualSpace(rows, 1, panel_type)
    space.lanes.each["need"][:] = 40
    space.grow(dual_kernels.MORE_ROWS)
    L = space.lanes
    L.panel[:] = elements(rng.normal(size=L.panel.shape), panel_type)
    L.dense_panel[:] = rng.normal(size=L.dense_panel.shape)
    L.factor[:], L.offset[:] = rng.normal(size=LABEL_LANES), rng.normal(size=LABEL_LANES)
    L.tau[:] = rng.choice([0.0, 0.5, np.inf], size=LABEL_LANES)
    L.each["want"][:] = rng.integers(1, 3 if tiny_room else 40, size=LABEL_LANES)
    L.positive[:] = rng.integers(0, 2**32, size=n)
    L.member[:] = rng.integers(0, 2**32, size=n)
    tau = L.tau.copy()
    order = frozen(rng.permutation(n), np.uint32)
    verify_kernels.verify(rows, order, base, L, space.pass_scratch, ahead)

    weights = np.concatenate([as_floats(L.panel).astype(float), L.dense_panel])
    z = X.toarray()[:, columns[:d]].astype(float) @ weights + np.outer(base, L.factor) + L.offset
    bit = (L.positive[:, None] >> np.arange(LABEL_LANES)) & 1
    slack = np.maximum(0, 1 - np.where(bit, 1, -1) * z)
    np.testing.assert_allclose(L.each["loss"], (np.where(bit, 0, slack) ** 2).sum(0), rtol=1e-4, atol=1e-4)
    outside = ((L.member[:, None] >> np.arange(LABEL_LANES)) & 1) == 0
    for b in range(LABEL_LANES):
        eligible = np.flatnonzero(outside[:, b] & (slack[:, b] > tau[b] + 1e-5))
        found = L.found[2 * L.each["start"][b] :][: L.each["n_found"][b]]
        assert len(set(found.tolist())) == len(found)
        assert len(found) >= min(len(eligible), L.each["want"][b])
        assert len(found) <= L.each["want"][b]
        assert outside[found, b].all()
        np.testing.assert_allclose(
            L.found_slack[2 * L.each["start"][b] :][: len(found)], slack[found, b], rtol=1e-4, atol=1e-4
        )
        best = np.sort(slack[eligible, b])[::-1][: L.each["want"][b]]
        np.testing.assert_allclose(np.sort(slack[found, b])[::-1][: len(best)], best, rtol=1e-4, atol=1e-4)


@given(st.integers(0, 1000), st.lists(st.integers(0, 31), min_size=1, max_size=12), panel_types)
@settings(deadline=None, max_examples=40)
def test_lanes_list_features_once_and_the_panel_holds_their_weights(seed, taken, panel_type):
    """Lanes take rows up, in two rounds, and are emptied; after every step the panel says what a dense one would."""
    rng = np.random.default_rng(seed)
    X, _ = random_problem(seed, n=12, d=9)
    rows, _ = samples(in_form(X, "hybrid", [7, 8]), 1.0)
    whole = rows_of(rows)
    space, dense = lanes.DualSpace(rows, len(taken), panel_type), np.zeros((rows.n_sparse, LABEL_LANES), np.float32)
    L, s = space.lanes, space.scratch
    rule = lanes.DualRule(1.0, 0.01, 0.0)
    for step, b in enumerate(taken):
        met = []
        for _ in range(2):
            chosen = rng.permutation(12)[:3].astype(np.uint32)
            dual_kernels.list_features(b, rows, chosen, L)
            met = list(dict.fromkeys([*met, *(f for i in chosen for f in np.flatnonzero(whole[i]))]))
            features = L.features[b, : L.each["n_features"][b]]
            assert features.tolist() == met
            s.w[met], s.w_dense[:] = rng.normal(size=len(met)), rng.normal(size=2)
            expected = np.zeros(rows.n_sparse, np.float32)
            expected[met] = rounded(np.float32(2.0) * s.w[met], panel_type)
            expected_dense = rounded(np.float32(2.0) * s.w_dense, panel_type)
            norm = dual_kernels.fill_lane(b, L, s, np.float32(2.0))
            dense[:, b] = expected
            np.testing.assert_array_equal(as_floats(L.panel), dense)
            np.testing.assert_array_equal(s.w, expected)
            np.testing.assert_array_equal(s.w_dense, expected_dense)
            np.testing.assert_array_equal(L.dense_panel[:, b], expected_dense)
            assert norm == pytest.approx((expected**2).sum() + (expected_dense**2).sum(), rel=1e-5)
            assert dual_kernels.squared_norm(features, s) == pytest.approx(norm, rel=1e-5)
            dual_kernels.clear(features, s)
            assert not s.w.any()
            assert not s.w_dense.any()
        settle_kernels.close_lane(b, 1.0, 0.0, True, rule, L, space.out, step)
        dense[:, b] = 0.0
        np.testing.assert_array_equal(as_floats(L.panel), dense)
        assert not L.users.any()
        assert L.each["n_features"][b] == 0


def rows_of(rows):
    """The sparse part of X as a plain array."""
    return sp.csr_array(
        (rows.data, rows.indices.view(np.int32), rows.indptr.view(np.int64)), shape=(len(rows.squares), rows.n_sparse)
    ).toarray()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_keep_best_keeps_the_best_and_the_first_of_equals(values, data):
    keep = data.draw(st.integers(1, len(values)))
    slack, found = np.array(values, np.float32), np.arange(len(values), dtype=np.uint32)
    last = verify_kernels.keep_best(found, slack.view(np.uint32), keep)
    expected = sorted(sorted(range(len(values)), key=lambda i: (-values[i], i))[:keep])
    assert found[:keep].tolist() == expected
    assert slack[:keep].tolist() == [values[i] for i in expected]
    assert slack[last] == min(values[i] for i in expected)


def lane_with(X, y, cost, panel_type=FULL):
    """A space whose lane 0 has all rows of X in its working set, positives first; `cost` is that of the positives."""
    rows, _ = samples(X, 1.0)
    space, n = lanes.DualSpace(rows, 1, panel_type), X.shape[0]
    L = space.lanes
    L.rows[:n] = np.argsort(-y, kind="stable")
    L.each["n_rows"][0], L.each["n_positive"][0] = n, (y > 0).sum()
    L.each["cost"][0] = cost
    return rows, space


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("form", FORMS)
def test_descend_reaches_the_optimum_of_the_working_set(C, form):
    X, Y = text_like(8, n=60)
    y = signs(Y, 2)
    rows, space = lane_with(in_form(X, form), y, 3 * C)
    _, columns = samples(in_form(X, form), 1.0)
    L, s = space.lanes, space.scratch
    dual_kernels.list_features(0, rows, L.rows[:60], L)
    features = L.features[0, : L.each["n_features"][0]]
    dual_kernels.descend(L.each[0], rows, L.rows, L.alpha, C, 1e-6, features, s)
    order, alpha = L.rows[:60], L.alpha[:60]
    cost, A = np.where(y > 0, 3 * C, C), ref.augmented(X, 1.0)
    full = np.zeros(A.shape[1])
    full[columns[: rows.n_sparse]], full[-1] = s.w, L.each["bias_weight"][0]
    full[columns[rows.n_sparse : -1]] = s.w_dense
    np.testing.assert_allclose(full, A[order].T @ (alpha * y[order]), atol=1e-4)  # w = sum alpha y x
    expected = alpha.sum() - 0.5 * full @ full - (alpha**2 / (4 * cost[order])).sum()
    assert L.each["dual"][0] == pytest.approx(expected, rel=1e-4)
    slack = np.maximum(0, 1 - A @ full)[y > 0]
    loss = dual_kernels.positive_loss(L.each[0], rows, L.rows, s)
    assert loss == pytest.approx((slack**2).sum(), rel=1e-3, abs=1e-6)
    best = ref.optimum("squared_hinge", A, y, cost)
    assert L.each["dual"][0] == pytest.approx(best, rel=1e-4)
    assert ref.objective("squared_hinge", A, y, cost, full) == pytest.approx(best, rel=1e-4)
    w, dense_weights = s.w.copy(), s.w_dense.copy()
    dual_kernels.clear(features, s)
    dual_kernels.descend(L.each[0], rows, L.rows, L.alpha, C, 1e-6, features, s)  # from the solution
    np.testing.assert_allclose(s.w, w, atol=1e-3)
    np.testing.assert_allclose(s.w_dense, dense_weights, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_positive", [0, 7, 60])
def test_the_even_start_is_the_best_multiple_of_two_alphas(form, n_positive):
    X, _ = text_like(8, n=60)
    y = np.where(np.arange(60) < n_positive, 1.0, -1.0)
    rows, space = lane_with(in_form(X, form), y, 3.0)
    _, columns = samples(in_form(X, form), 1.0)
    L, s = space.lanes, space.scratch
    dual_kernels.list_features(0, rows, L.rows[:60], L)
    features = L.features[0, : L.each["n_features"][0]]
    D, bias_weight = dual_kernels.even_start(L.each[0], rows, L.rows, L.alpha, 1 / 6, 1 / 2, features, s)
    order, alpha, A = L.rows[:60], L.alpha[:60], ref.augmented(X, 1.0)
    assert len(set(alpha[:n_positive])) <= 1
    assert len(set(alpha[n_positive:])) <= 1
    full = np.zeros(A.shape[1])
    full[columns[: rows.n_sparse]], full[-1] = s.w, bias_weight
    full[columns[rows.n_sparse : -1]] = s.w_dense
    np.testing.assert_allclose(full, A[order].T @ (alpha * y[order]), atol=1e-4)

    def dual(size):
        v = size * alpha
        return v.sum() - 0.5 * size**2 * full @ full - (v**2 / (4 * np.where(y[order] > 0, 3.0, 1.0))).sum()

    assert dual(1.0) == pytest.approx(D, rel=1e-5)
    assert dual(1.0) > max(dual(0.99), dual(1.01), 0.0)


@given(st.integers(0, 1000), st.integers(6, 60))
@settings(deadline=None, max_examples=40)
def test_sparse_rows_are_added_and_multiplied_in_place(seed, d):
    rng = np.random.default_rng(seed)
    X, _ = random_problem(seed, n=12, d=d)
    X.data[0] = 0.0
    X.eliminate_zeros()  # a matrix that stores every entry would be dense
    rows, _ = samples(X, 1.0)
    w = rng.normal(size=d).astype(np.float32)
    for i in range(12):
        row = X[[i]].toarray().ravel()
        assert dual_kernels.row_dot(rows, np.uint32(i), w) == pytest.approx(row @ w, rel=1e-4, abs=1e-5)
        changed = w.copy()
        dual_kernels.add_row(rows, np.uint32(i), np.float32(2), changed)
        np.testing.assert_allclose(changed, w + 2 * row, rtol=1e-5, atol=1e-6)


def test_dense_rows_are_added_and_multiplied_in_place():
    rng = np.random.default_rng(3)
    dense, v = rng.normal(size=(5, 37)).astype(np.float32), rng.normal(size=37).astype(np.float32)
    assert dual_kernels.dense_dot(dense, np.uint32(3), v) == pytest.approx(dense[3] @ v, rel=1e-5)
    changed = v.copy()
    dual_kernels.add_dense(dense, np.uint32(3), np.float32(0.5), changed)
    np.testing.assert_allclose(changed, v + np.float32(0.5) * dense[3], rtol=1e-6)


@given(problems, forms, st.sampled_from([0.0, 1.0]))
@settings(deadline=None, max_examples=40)
def test_the_first_guess_scores_as_the_mean_separating_weights_do(problem, form, bias):
    X, Y = problem
    p = problem_of(in_form(X, form), Y, bias=bias, solver="dual")
    space = lanes.DualSpace(p.X, 1, FULL)
    L, s = space.lanes, space.scratch
    A = ref.augmented(X, bias)[:, p.column_of[: p.D]]
    for label in range(Y.shape[1]):
        own = p.positives.rows[p.positives.indptr[label] : p.positives.indptr[label + 1]]
        L.each["n_features"][0] = L.users[:] = 0
        dual_kernels.list_features(0, p.X, own, L)
        features = L.features[0, : L.each["n_features"][0]]
        dual_kernels.positive_mean(p.X, own, s)
        mean = np.concatenate([s.w, s.w_dense]).astype(float)
        expected = A[own, : X.shape[1]].mean(0) if len(own) else 0
        np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-6)
        dual_kernels.clear(features, s)
        u, v = dual_kernels.guess(p.X, p.first, own, features, s)
        np.testing.assert_array_equal(np.concatenate([s.w, s.w_dense]), mean)
        dual_kernels.clear(features, s)
        w = u * np.append(mean, bias)[: p.D] + v * A.mean(0) if bias else u * mean + v * A.mean(0)
        W = np.empty((1, p.D))
        p.start.weights(p, np.array([label]), W)
        if not own.size:
            assert (u, v) == (0.0, 0.0)
        elif ref.sine(A[own].mean(0), A.mean(0)) > 0.05:  # else float32 sums lose too many digits
            np.testing.assert_allclose(w, W[0], rtol=1e-3, atol=1e-3 * np.abs(W).max())


@given(st.lists(st.floats(0, 9, width=32), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_smallest_of_best_equals_sorting(values, data):
    keep = data.draw(st.integers(1, len(values)))
    bits = np.abs(np.array(values, np.float32)).view(np.uint32)
    limit = np.array([verify_kernels.smallest_of_best(bits, keep)], np.uint32).view(np.float32)
    assert limit[0] == sorted(values, reverse=True)[keep - 1]


@pytest.mark.parametrize(("density", "wide"), [(0.1, 99), (0.9, 99), (0.1, 79)])
def test_a_pass_visits_short_rows_by_length_among_neighbours(density, wide, monkeypatch):
    monkeypatch.setattr(verify_kernels, "WIDE", wide)
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.random((500, 80)) < density, dtype=np.float32)
    rows, _ = samples(X, 1.0)
    order = verify_kernels.visiting_order(rows)
    assert sorted(order.tolist()) == list(range(500))
    lengths, window = np.diff(X.indptr)[order], (X.indptr[:-1] // verify_kernels.WINDOW)[order]
    if density > 0.5 or wide < 80:
        assert order.tolist() == list(range(500))
    else:
        assert (np.diff(window) >= 0).all()
        assert (np.diff(lengths)[np.diff(window) == 0] >= 0).all()


@pytest.mark.parametrize("panel_type", PANEL_TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_solved_lane_has_the_figures_of_the_weights_in_its_panel(panel_type, form):
    X, Y = text_like(8, n=60)
    y = signs(Y, 2)
    rows, space = lane_with(in_form(X, form), y, 3.0, panel_type)
    _, column_of = samples(in_form(X, form), 1.0)
    L = space.lanes
    L.positive[y > 0] = 1
    L.each["rounds"][0], L.each["phase"][0] = 1, dual_kernels.TO_SOLVE
    dual_kernels.solve_lane(0, rows, lanes.DualRule(1.0, 0.01, 0.05), L, space.scratch)
    L.member[:], L.tau[1:] = 1, np.inf
    verify_kernels.verify(
        rows, verify_kernels.visiting_order(rows), np.zeros(60, np.float32), L, space.pass_scratch, None
    )
    w = np.concatenate([as_floats(L.panel)[:, 0].astype(float), L.dense_panel[:, 0], L.each["bias_weight"][:1]])
    P = 0.5 * L.each["norm"][0] + L.each["loss"][0] + 3.0 * L.each["positive_loss"][0]
    A, cost = ref.augmented(X, 1.0)[:, column_of], np.where(y > 0, 3.0, 1.0)
    assert L.each["norm"][0] == pytest.approx(w @ w, rel=1e-6)
    objective = ref.objective("squared_hinge", A, y, cost, w)
    assert objective == pytest.approx(P, rel=1e-6)


def test_constants_are_the_same_in_both_files():
    files = dual_kernels, settle_kernels, verify_kernels, best_labels_kernels
    assert {each.LABEL_LANES for each in files} == {lane_intrinsics.LABEL_LANES}
    for name in ("EMPTY", "TO_SOLVE", "TO_CHECK", "LINES_AHEAD"):
        assert getattr(settle_kernels, name) == getattr(dual_kernels, name)


def test_inner_tolerances_fall():
    assert [dual_kernels.inner_tolerance(k) for k in (1, 2, 3, 4)] == [2.0, 0.7, 0.35, 0.175]


@given(st.integers(0, 1000), forms, st.booleans())
@settings(deadline=None, max_examples=40)
def test_samples_have_the_columns_of_x_in_another_order(seed, form, by_frequency):
    X, _ = random_problem(seed, n=12, d=9)
    rows, column_of = samples(in_form(X, form), 1.0, by_frequency=by_frequency)
    assert sorted(column_of.tolist()) == list(range(10))
    assert column_of[9] == 9
    whole = np.zeros((12, 9), np.float32)
    for i in range(12):
        entries = slice(int(rows.indptr[i]), int(rows.indptr[i + 1]))
        assert (np.diff(rows.indices[entries].astype(int)) > 0).all()
        whole[i, column_of[rows.indices[entries]]] = rows.data[entries]
    whole[:, column_of[rows.n_sparse : -1]] = rows.dense
    np.testing.assert_array_equal(whole, X.toarray())
    np.testing.assert_allclose(rows.squares, (X.toarray() ** 2).sum(1), rtol=1e-6)
    frequency = np.bincount(rows.indices, minlength=rows.n_sparse)
    assert (np.diff(frequency) <= 0).all() if by_frequency else (np.diff(column_of[: rows.n_sparse]) > 0).all()


@pytest.mark.parametrize("panel_type", PANEL_TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_lanes_that_are_solved_are_written_and_emptied_and_others_grow(panel_type, form):
    X, Y = text_like(8, n=60)
    y = signs(Y, 2)
    rows, space = lane_with(in_form(X, form), y, 1.0, panel_type)
    rule, L = lanes.DualRule(1.0, 0.01, 0.05), space.lanes
    L.each["n_rows"][0] = 40
    L.member[L.rows[:40]] = 1
    L.positive[y > 0] = 1
    L.each["rounds"][0], L.each["position"][0], L.each["phase"][0] = 1, 0, dual_kernels.TO_SOLVE
    assert dual_kernels.solve_lane(0, rows, rule, L, space.scratch) == dual_kernels.DONE
    assert L.each["phase"][0] == dual_kernels.TO_CHECK
    weights = np.concatenate([as_floats(L.panel)[:, 0], L.dense_panel[:, 0]])

    L.each["loss"][0] = 1e6  # far from solved
    L.each["n_found"][0] = 2
    L.found[:2] = L.rows[40:42]
    n_positive = (y > 0).sum()
    stay = (L.alpha[:40] > 0) | (np.arange(40) < n_positive)  # other negatives leave
    assert stay.sum() < 40
    expected, n_rows = [*L.rows[:40][stay], *L.found[:2]], stay.sum() + 2
    alphas = [*L.alpha[:40][stay], 0, 0]
    settle_kernels.settle(rule, space.cursor, L, space.out)
    assert L.each[["phase", "rounds", "n_rows"]][0].tolist() == (dual_kernels.TO_SOLVE, 2, n_rows)
    assert space.cursor[1] == 0
    assert L.rows[:n_rows].tolist() == expected
    assert L.alpha[:n_rows].tolist() == alphas
    assert np.flatnonzero(L.member).tolist() == sorted(expected)
    settle_kernels.grow_lane(0, L)  # later no row leaves
    assert L.rows[:n_rows].tolist() == expected
    L.each["n_rows"][0], L.each["rounds"][0] = n_rows, 2

    L.each["phase"][0] = dual_kernels.TO_CHECK
    L.each["loss"][0] = L.each["dual"][0] - 0.5 * L.each["norm"][0] - L.each["positive_loss"][0]  # P = D
    active = (L.alpha[:n_rows] > 0).sum()
    settle_kernels.settle(rule, space.cursor, L, space.out)
    assert (L.each["phase"][0], L.each["n_rows"][0], space.cursor[1]) == (dual_kernels.EMPTY, 0, 1)
    assert not L.member.any()
    assert not L.positive[L.rows[:n_rows]].any()
    written = np.zeros(X.shape[1] + 1)
    written[space.out.indices[: space.out.ends[1]]] = space.out.data[: space.out.ends[1]]
    expected = np.append(weights, L.each["bias_weight"][0])
    np.testing.assert_allclose(written, np.where(np.abs(expected) < 0.05, 0, expected))
    assert space.out.status[0] == settle_kernels.SOLVED
    assert space.out.n_iter[0] == 2
    np.testing.assert_allclose(space.out.figures[0], [L.each["dual"][0], 1e-6, np.nan, active], rtol=1e-6)
