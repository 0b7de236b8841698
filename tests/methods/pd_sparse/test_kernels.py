"""The kernels of PD-Sparse one by one, each against a slow, obvious twin."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import parallel
from longtail.compiled import csr_parts
from longtail.matrix import canonical_csr
from longtail.methods.pd_sparse import batch_kernels as kernels
from longtail.methods.pd_sparse import frank_wolfe, frank_wolfe_kernels, search_kernels, table_kernels
from longtail.methods.pd_sparse.batch import LEFT, BatchRows, Columns, RowScratch
from longtail.methods.pd_sparse.rows import LabelledRows, Members
from longtail.methods.pd_sparse.weights import WeightTables
from tests.methods.one_vs_all.problems import random_problem, text_like
from tests.methods.pd_sparse import reference as ref
from tests.methods.pd_sparse.solver import dense_alphas, dense_lists, dense_tables, make, trained

U64 = np.uint64
ONE_THREAD = parallel.Team(1)
MASK = 2**64 - 1


def test_copies_of_constants_and_kernels_agree():
    """Kernels call only kernels of their own file, so some constants and formulas stand twice."""
    assert kernels.NOWHERE == search_kernels.NOWHERE == table_kernels.NOWHERE == frank_wolfe_kernels.NOWHERE
    assert kernels.EMPTY == table_kernels.EMPTY
    slots = WeightTables.empty(1, 4, 1).slots
    for v in np.float32([-2, -0.5, -0.3, 0, 0.2, 0.3, 0.31, 5]):
        slots[0]["label"], slots[0]["v"] = 3, v
        for lam in np.float32([0, 0.3, 1]):
            assert kernels.prox(v, lam) == table_kernels.shrunk(slots[0], lam) == np.float32(ref.prox(v, lam))
    assert table_kernels.shrunk(slots[1], np.float32(0)) == 0  # an empty slot


# --- projections -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 12), st.sampled_from([0.3, 2.0]))
@settings(deadline=None, max_examples=100)
def test_a_block_is_a_projected_gradient_step(seed, n_positive, n_negative, C):
    """(21) is |out - (alpha - (z + [negative]) / Q)|^2 up to a constant."""
    rng = np.random.default_rng(seed)
    n = n_positive + n_negative
    positive = np.arange(n) < n_positive
    z, Q = rng.normal(size=n), rng.uniform(0.2, 3)
    alpha = ref.project_row(rng.normal(size=n), positive, C)
    out = np.full(n, np.nan)
    frank_wolfe_kernels.solve_block(n_positive, n, z, alpha, Q, C, RowScratch.of(n), out)
    np.testing.assert_allclose(out, ref.project_row(alpha - (z + ~positive) / Q, positive, C), atol=1e-9)


def columns_of(X):
    X = csr_parts(canonical_csr(sp.csr_array(X)))
    return Columns.of(np.arange(len(X[2]) - 1, dtype=np.uint32), X, len(X[0]), np.full(100, kernels.NOWHERE, np.uint32))


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", range(20))
def test_bits_of_a_table(bits):
    assert kernels.bits_of(np.uint32(2**bits - 1)) == bits


def test_tables_keep_empty_slots_unless_each_label_has_its_own():
    assert kernels.most_labels(np.uint32(15), 1000) == 11
    assert kernels.most_labels(np.uint32(15), 16) == 16


def test_unused_tables_are_used_again_last_in_first_out():
    weights = WeightTables.empty(3, 50, 1)
    first, second = kernels.take_table(weights, 3), kernels.take_table(weights, 3)
    assert second == first + 8
    weights.slots[int(first)]["label"] = 5
    kernels.give_back(weights, first, 3)
    kernels.give_back(weights, second, 3)
    assert [kernels.take_table(weights, 3) for _ in range(3)] == [second, first, second + 8]
    assert (weights.slots["label"][int(first) : int(second) + 8] == kernels.EMPTY).all()


def test_slots_are_searched_from_the_last_bits_of_a_label_on():
    slots = WeightTables.empty(1, 100, 1).slots
    for label, slot in ((5, 1), (9, 2), (3, 3), (1, 0)):  # of four slots, each where the search ends
        found = kernels.find(slots, U64(0), np.uint32(3), np.uint32(label))
        assert found == slot
        slots[int(found)]["label"] = label
    assert kernels.find(slots, U64(0), np.uint32(3), np.uint32(9)) == 2


def steps_of(labels, steps, subset_width):
    """A batch of one row per list of labels, with these steps."""
    batch = BatchRows.of(np.arange(len(labels), dtype=np.uint32), np.array([len(own) for own in labels], np.uint64))
    batch.n_moved[:] = batch.room
    batch.moved[:] = np.concatenate(labels)
    batch.steps[:] = np.concatenate(steps)
    batch.subsets[:] = batch.moved // subset_width
    return batch


def change(weights, columns, batch, lam, selected=False):
    """Change every feature by itself, the last one first, and then what was left."""
    lam, waiting = np.float32(lam), []
    for f in reversed(range(len(columns.feature))):
        left = np.empty(int(batch.n_moved.sum()), LEFT)
        n = kernels.change_features(f, f + 1, columns, batch, weights, lam, selected, left)
        waiting.append(left[:n])
    left, done = np.concatenate(waiting), 0
    while done < len(left):
        done, status = kernels.finish_changes(left, done, weights, lam)
        if status != kernels.DONE:
            weights.grow(status)
    return len(left)


@given(st.integers(0, 10**6), st.sampled_from([20, 300]), st.integers(1, 3), st.sampled_from([0.0, 0.375]))
@settings(deadline=None, max_examples=30)
def test_tables_and_lists_are_dictionaries(seed, K, subsets, lam):
    """Random changes of v in batches, against one dictionary per feature."""
    rng = np.random.default_rng(seed)
    D = 4
    weights = WeightTables.empty(D, K, subsets).rebuild(lam, ONE_THREAD)
    V = [{} for _ in range(D)]
    n_left = 0
    for _ in range(12):
        X = rng.choice(np.float32([0, 0, -2, 0.5, 1]), (5, D))
        X[0, 0] = 1
        labels = [rng.choice(K, int(rng.integers(1, 8)), replace=False) for _ in X]
        steps = [rng.integers(-3, 4, len(own)) / 4 for own in labels]
        columns = columns_of(X)
        n_left += change(weights, columns, steps_of(labels, steps, weights.subset_width), lam)
        for x, own, by in zip(X, labels, steps, strict=True):
            for j in np.flatnonzero(x):
                for label, step in zip(own.tolist(), by.tolist(), strict=True):
                    V[j][label] = V[j].get(label, 0.0) + step * float(x[j])
    assert n_left > 0
    for j in range(D):
        start = int(weights.start[j])
        table = weights.slots[start : start + int(weights.mask[j]) + 1]
        used = table[table["label"] != kernels.EMPTY]
        assert dict(zip(used["label"].tolist(), used["v"].tolist(), strict=True)) == V[j]
        assert len(used) == weights.filled[j] <= kernels.most_labels(weights.mask[j], K)
        listed = {}
        for subset in range(subsets):
            start, size = int(weights.list_start[j, subset]), int(weights.list_size[j, subset])
            entries = weights.entries[start : start + size]
            assert (entries["label"] // weights.subset_width == subset).all()
            listed |= dict(zip(entries["label"].tolist(), entries["w"].tolist(), strict=True))
        wanted = {label: np.float32(ref.prox(v, lam)) for label, v in V[j].items()}
        assert {label: w for label, w in listed.items() if w} == {label: w for label, w in wanted.items() if w}


def test_if_weights_are_selected_no_label_joins_a_table():
    weights = WeightTables.empty(1, 50, 1)
    columns = columns_of(np.ones((2, 1), np.float32))
    change(weights, columns, steps_of([[3], [7]], [[0.5], [0.25]], 50), 0.0)
    change(weights, columns, steps_of([[3], [9]], [[1.0], [1.0]], 50), 0.0, selected=True)
    used = weights.slots[weights.slots["label"] != kernels.EMPTY]
    assert sorted(used[["label", "v"]].tolist()) == [(3, 1.5), (7, 0.25)]


def test_missing_space_is_reported_before_it_is_used():
    weights = WeightTables.empty(1, 10**6, 1)
    full = weights._replace(slots=weights.slots[:10], entries=weights.entries[:6])
    left = np.array([(0, label, 1.0) for label in range(5)], LEFT)
    zero = np.float32(0)
    assert kernels.finish_changes(left, 0, full, zero) == (2, kernels.MORE_SLOTS)  # 4 slots have room for 2 labels
    more = full._replace(slots=weights.slots[:20])
    assert kernels.finish_changes(left, 2, more, zero) == (4, kernels.MORE_ENTRIES)  # lists of 4 and then 8 entries
    assert kernels.finish_changes(left, 4, weights, zero) == (5, kernels.DONE)
    assert weights.filled[0] == weights.list_size[0, 0] == 5
    assert weights.entries[4:9].tolist() == [(label, 1.0) for label in range(5)]


@pytest.mark.parametrize("lam", [0.0, 0.05, 0.4])
def test_passes_over_all_tables_equal_dense_arrays(lam):
    X, Y = text_like(3, n=150, d=60, L=40)
    solver = trained(X, Y, 2, C=3.0, lam=0.02, subsets=3)
    solver.set_strength(3.0, lam)
    V, weights = dense_tables(solver), solver.weights
    W = np.where(np.abs(V) > np.float32(lam), V, 0)
    subset_of = solver.samples.number_of // weights.subset_width
    counts = np.empty_like(weights.list_size)
    table_kernels.count_nonzeros(0, 25, weights, np.float32(lam), counts)
    table_kernels.count_nonzeros(25, 60, weights, np.float32(lam), counts)
    for subset in range(3):
        np.testing.assert_array_equal(counts[:, subset], (W[:, subset_of == subset] != 0).sum(axis=1))
    weights.entries["w"] = np.nan
    weights.list_size[:] = 0
    weights.rows[:] = 0
    table_kernels.fill_lists(30, 60, weights, np.float32(lam))
    table_kernels.fill_lists(0, 30, weights, np.float32(lam))
    np.testing.assert_array_equal(dense_lists(solver), ref.prox(V, np.float32(lam)).astype(np.float32))
    solver.weights = WeightTables.empty(60, 40, 3, counts.sum(axis=1))
    table_kernels.copy_selected(0, 1, weights, np.float32(lam), solver.weights)
    table_kernels.copy_selected(1, 60, weights, np.float32(lam), solver.weights)
    np.testing.assert_array_equal(dense_tables(solver), W)
    A = dense_alphas(solver)
    square = table_kernels.square_weights(10, 20, weights, np.float32(lam))
    assert square == pytest.approx((ref.prox(V[10:20], lam) ** 2).sum(), rel=1e-5)
    assert table_kernels.add_alphas(50, 150, solver.members) == pytest.approx(A[50:][A[50:] > 0].sum(), rel=1e-12)
    n = int(weights.nonzeros(lam, ONE_THREAD).sum())
    features, labels, values = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    table_kernels.list_weights(weights, np.float32(lam), features, labels, values)
    dense = np.zeros_like(V)
    dense[features, np.argsort(solver.samples.number_of)[labels]] = values
    np.testing.assert_array_equal(dense, ref.prox(V, np.float32(lam)).astype(np.float32))


# --- a batch of rows -------------------------------------------------------------------------------------------------


def test_found_labels_join_the_active_set_once():
    X, Y = random_problem(1, n=6, L=5)
    members = Members.of(LabelledRows.of(X, Y, 0.0, np.random.default_rng(0)))
    for i in range(6):
        start, size = int(members.start[i]), int(members.size[i])
        own = members.held["label"][start : start + size].tolist()
        found = np.array([0, kernels.NOWHERE, 4, 0], np.uint32)
        labels, alpha = np.zeros(size + 4, np.uint32), np.ones(size + 4)
        n = kernels.activate(i, found, members, labels, alpha)
        assert labels[:n].tolist() == own + [label for label in (0, 4) if label not in own]
        assert not alpha[:n].any()


def test_negative_labels_with_alpha_zero_leave_the_active_set():
    X, Y = random_problem(1, n=3, L=5)
    members = Members.of(LabelledRows.of(X, Y, 0.0, np.random.default_rng(0)))
    room = int(members.room[1])
    many = 2 + room
    for alphas in ([0.0, 0.5, -0.25, 0.0, -0.25], [0.5, 0.0, *[-0.5] * many]):
        labels = np.arange(len(alphas), dtype=np.uint32) + np.uint32(7)
        frank_wolfe_kernels.keep_members(1, 2, len(alphas), labels, np.array(alphas), members)
        kept = [(7 + a, alpha) for a, alpha in enumerate(alphas) if a < 2 or alpha]
        start, size = int(members.start[1]), int(members.size[1])
        assert members.held[start : start + size].tolist() == kept
    assert members.room[1] == 2 * size > room  # the set moved to twice the room


def test_columns_and_products_of_the_rows_of_a_batch():
    X, _ = text_like(6, n=30, d=25)
    rows = np.array([4, 17, 9, 22, 3], np.uint32)
    dense, parts = X.toarray()[rows], csr_parts(X)
    place = np.full(25, kernels.NOWHERE, np.uint32)
    columns = Columns.of(rows, parts, int((dense != 0).sum()), place)
    transposed = np.zeros_like(dense)
    for f, j in enumerate(columns.feature):
        own = slice(int(columns.first[f]), int(columns.first[f + 1]))
        assert (np.diff(columns.row[own].astype(int)) > 0).all()
        transposed[columns.row[own], j] = columns.x[own]
        assert place[j] == f
    np.testing.assert_array_equal(transposed, dense)
    assert (place[~dense.any(axis=0)] == kernels.NOWHERE).all()
    products = np.full((6, 6), np.nan, np.float32)
    batch = BatchRows.of(rows, np.ones(5, np.uint64))
    for begin, end in ((3, 5), (0, 3)):
        kernels.multiply_rows(begin, end, parts, batch, place, columns, products)
    for r in range(5):
        np.testing.assert_allclose(products[r, :r], dense[r] @ dense[:r].T, rtol=1e-5)


@pytest.mark.parametrize("lam", [0.0, 0.1])
@pytest.mark.parametrize("threads", [1, 3])
def test_each_row_of_a_batch_minimises_a_bound_of_the_objective(lam, threads, monkeypatch):
    """score_rows, solve_rows and the changes of V, against dense arrays."""
    X, Y = random_problem(5, n=20, d=8, L=6, density=0.6)
    solver = trained(X, Y, 2, C=1.5, lam=lam, threads=threads)
    dense_X, dense_Y = X.toarray().astype(float), Y.toarray() > 0
    label_of = np.argsort(solver.samples.number_of)
    rows = solver.samples.with_loss.astype(np.uint32)

    def search_rows(some, subsets, *others):
        others[-1][:] = 3
        return 1.0

    monkeypatch.setattr(frank_wolfe, "search_rows", search_rows)
    monkeypatch.setattr(frank_wolfe, "SHARE_WORK", 1)
    for batch in (rows[:1], rows[1:4], rows[4:]):
        A, V, before = dense_alphas(solver), dense_tables(solver), solver.dual()
        W, D = ref.prox(V, lam), np.zeros_like(V)
        wanted = A.copy()
        for i in batch:
            active = (A[i] != 0) | dense_Y[i]
            active[label_of[3]] = True
            gradient = dense_X[i] @ (W + D) + ~dense_Y[i]
            Q = (dense_X[i] ** 2).sum()
            if Q > 0 and not dense_Y[i][active].all():
                wanted[i, active] = ref.project_row((A[i] - gradient / Q)[active], dense_Y[i][active], 1.5)
            D += np.outer(dense_X[i], wanted[i] - A[i])
        searched, updated = solver._visit(batch, np.zeros(len(batch), np.int64), 0)
        assert searched == threads
        assert updated > 0
        np.testing.assert_allclose(dense_alphas(solver), wanted, atol=1e-5)
        np.testing.assert_allclose(dense_tables(solver), V + D, atol=1e-5)
        assert solver.dual() <= before + 1e-5


def test_tables_are_restored_from_alphas():
    X, Y = text_like(2, n=80, d=50, L=30)
    solver = trained(X, Y, 2, C=2.0, lam=0.05, subsets=2, threads=2)
    point, A = solver.point(), dense_alphas(solver)
    solver.start(1.0, 0.0)
    solver.go_back(point)
    np.testing.assert_allclose(dense_tables(solver), X.toarray().T @ A, atol=1e-5)
    batch = BatchRows.from_zero(np.arange(10, 30, dtype=np.uint32), solver.members, 15)
    steps = np.zeros((20, 30))
    for r in range(20):
        own = slice(int(batch.first[r]), int(batch.first[r] + batch.n_moved[r]))
        steps[r, batch.moved[own]] = batch.steps[own]
    np.testing.assert_array_equal(steps[:, solver.samples.number_of], A[10:30])
    np.testing.assert_array_equal(batch.subsets, batch.moved // 15)


# --- search ----------------------------------------------------------------------------------------------------------


def splitmix64(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


@given(st.integers(0, MASK))
@settings(deadline=None, max_examples=50)
def test_random_bits_are_those_of_splitmix64(state):
    assert int(search_kernels.random_bits(U64(state))) == splitmix64(state)


@given(st.integers(0, 1000), st.integers(2, 30), st.sampled_from([1.5, 3.0, 50.0]))
@settings(deadline=None, max_examples=50)
def test_features_are_drawn_at_even_distances(seed, d, rate):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=d).astype(np.float32)
    out = np.empty(d, np.float32)
    search_kernels.sample_features(x, U64(0), U64(d), rate, U64(seed), out)
    draws = int(np.ceil(d / rate))
    step = np.abs(x.astype(float)).sum() / draws
    first = step * ((splitmix64(seed) >> 11) * 2.0**-53)
    ends = np.cumsum(np.abs(x.astype(float)))
    times = np.bincount(np.searchsorted(ends, first + step * np.arange(draws), side="right"), minlength=d)[:d]
    np.testing.assert_allclose(out, times * step * np.sign(x), rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 1300), st.integers(1, 6))
@settings(deadline=None, max_examples=60)
def test_the_best_labels_are_taken_from_a_turn_on(seed, K, returned):
    rng = np.random.default_rng(seed)
    z = rng.choice(np.float32([-np.inf, -1.5, -0.5, 0, 0, 0.25, 2]), K)
    low = int(rng.integers(K))
    high = int(rng.integers(low, K)) + 1
    turn = int(rng.integers(low, high))
    order = sorted(range(low, high), key=lambda label: (-z[label], label < turn, label))
    wanted = [label for label in order if z[label] > -np.inf][:returned]
    wanted += [int(kernels.NOWHERE)] * (returned - len(wanted))
    out, left = np.zeros(returned, np.uint32), z.copy()
    search_kernels.take_best(left, left.view(np.int32), low, high, turn, out)
    assert out.tolist() == wanted
    taken = [label for label in wanted if label != kernels.NOWHERE]
    assert np.isinf(left[taken]).all()
    if high > low:
        best = search_kernels.first_best(z, z.view(np.int32), low, high)
        finite = [label for label in range(low, high) if z[label] > -np.inf]
        assert best == (max(finite, key=lambda label: (z[label], -label)) if finite else kernels.NOWHERE)
    assert search_kernels.largest(z.view(np.int32)) == z.view(np.int32).max()


@pytest.mark.parametrize("subsets", [1, 3])
def test_reading_the_lists_alone_finds_the_same_labels(subsets):
    """take_touched against take_best, and scores and counts against dense arrays."""
    X, Y = text_like(8, n=60, d=200, L=90)
    solver = trained(X, Y, 2, C=5.0, lam=0.05, subsets=subsets)
    weights, (X_data, X_indices, X_indptr) = solver.weights, solver.samples.X
    assert (weights.row_of == kernels.NOWHERE).any()
    W = np.zeros((200, 90), np.float32)
    W[:, solver.samples.number_of] = dense_lists(solver)
    listed = np.flatnonzero(weights.row_of == kernels.NOWHERE)
    for i in range(60):
        start, end = X_indptr[i], X_indptr[i + 1]
        indices, factors = X_indices[int(start) : int(end)], X_data[int(start) : int(end)]
        for subset in range(subsets):
            low, high = subset * weights.subset_width, min((subset + 1) * weights.subset_width, 90)
            z = np.zeros(90, np.float32)
            search_kernels.add_postings(X_indices, start, end, factors, subset, low, high, weights, z)
            np.testing.assert_allclose(z[low:high], factors @ W[indices, low:high], atol=1e-5)
            entries, rows = search_kernels.count_postings(X_indices, start, end, subset, weights)
            own = indices[np.isin(indices, listed)]
            assert (entries, rows) == (weights.list_size[own, subset].sum(), len(indices) - len(own))
            if rows:
                continue
            turn = low + (high - low) // 2
            best, touched = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
            z[z < 0] = 0  # take_touched fills up with zeros, take_best with whatever is largest
            other = z.copy()
            search_kernels.take_best(z, z.view(np.int32), low, high, turn, best)
            search_kernels.take_touched(
                X_indices,
                start,
                end,
                factors,
                subset,
                low,
                high,
                turn,
                weights,
                other,
                np.empty(4, np.float32),
                touched,
            )
            before = factors @ W[indices]
            np.testing.assert_allclose(np.maximum(before[touched], 0), np.maximum(before[best], 0), atol=1e-5)
            assert len(set(touched.tolist())) == 4
            assert not other.any()


def test_the_highest_scores_of_rows():
    X, Y = text_like(9, n=40, d=100, L=50)
    solver = trained(X, Y, 2, C=5.0, lam=0.02, subsets=3)
    rows, out, z = np.arange(7, 37, dtype=np.uint32), np.empty((30, 6), np.uint32), np.zeros(50, np.float32)
    search_kernels.top_rows(rows, solver.samples.X, solver.weights, z, out)
    Z = X.toarray()[7:37] @ dense_lists(solver)
    labels = np.argsort(solver.samples.number_of)[out]
    np.testing.assert_allclose(np.take_along_axis(Z, labels, 1), -np.sort(-Z, axis=1)[:, :6], atol=1e-5)
    assert not z.any()


def test_a_row_of_all_labels_is_added():
    out = np.arange(20, dtype=np.float32)
    search_kernels.add_row(np.float32(0.5), np.full(20, 4, np.float32), out)
    np.testing.assert_array_equal(out, np.arange(20) + 2)


def test_a_larger_table_keeps_its_labels():
    weights = WeightTables.empty(2, 100, 1)
    start = int(weights.start[1])
    for slot, label in ((start, 4), (start + 1, 8), (start + 2, 1)):
        weights.slots[slot] = label, label / 2, label
    weights.filled[1] = 3
    kernels.grow_table(weights, 1)
    start = int(weights.start[1])
    table = weights.slots[start : start + int(weights.mask[1]) + 1]
    used = table[table["label"] != kernels.EMPTY]
    assert sorted(used.tolist()) == [(1, 0.5, 1), (4, 2.0, 4), (8, 4.0, 8)]
    assert weights.filled.tolist() == [0, 3]


def test_full_lists_move_to_twice_the_room():
    weights = WeightTables.empty(1, 100, 2)
    for room in (4, 8, 16):
        size = int(weights.list_size[0, 1])
        kernels.grow_list(weights, 0, 1)
        assert weights.list_room[0].tolist() == [0, room]
        start = int(weights.list_start[0, 1])
        assert weights.entries[start : start + size].tolist() == [(50 + at, float(at)) for at in range(size)]
        for at in range(room):
            weights.entries[start + at] = 50 + at, at
        weights.list_size[0, 1] = room
    assert weights.used[1] == 4 + 8 + 16


def test_a_solver_begins_without_weights():
    X, Y = random_problem(2)
    solver = make(X, Y)
    assert not dense_alphas(solver).any()
    assert solver.W().nnz == 0
