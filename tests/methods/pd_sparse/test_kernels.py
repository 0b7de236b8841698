"""The kernels of PD-Sparse one by one, each against a slow, obvious twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.methods.pd_sparse import frank_wolfe_kernels as kernels
from longtail.methods.pd_sparse import search_kernels, table_kernels
from longtail.methods.pd_sparse.frank_wolfe import LabelledRows, Members, RowScratch
from longtail.methods.pd_sparse.weights import WeightTables
from tests.methods.one_vs_all.problems import random_problem, text_like
from tests.methods.pd_sparse import reference as ref
from tests.methods.pd_sparse.solver import dense_alphas, dense_lists, dense_tables, make, trained

U64 = np.uint64
MASK = 2**64 - 1


def test_copies_of_constants_and_kernels_agree():
    """Kernels call only kernels of their own file, so some constants and formulas stand twice."""
    assert kernels.NOWHERE == search_kernels.NOWHERE == table_kernels.NOWHERE
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
    kernels.solve_block(n_positive, n, z, alpha, Q, C, RowScratch.of(n), out)
    np.testing.assert_allclose(out, ref.project_row(alpha - (z + ~positive) / Q, positive, C), atol=1e-9)


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", range(20))
def test_bits_of_a_table(bits):
    assert kernels.bits_of(np.uint32(2**bits - 1)) == bits


def test_tables_keep_empty_slots_unless_each_label_has_its_own():
    assert [kernels.has_room(count, np.uint32(15), 1000) for count in (11, 12)] == [True, False]
    assert kernels.has_room(16, np.uint32(15), 16)


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


@given(st.integers(0, 10**6), st.sampled_from([20, 300]), st.integers(1, 3), st.sampled_from([0.0, 0.375]))
@settings(deadline=None, max_examples=30)
def test_tables_and_lists_are_dictionaries(seed, K, parts, lam):
    """Random changes of v, against one dictionary per feature."""
    rng = np.random.default_rng(seed)
    D = 4
    weights = WeightTables.empty(D, K, parts).rebuild(lam)
    V = [{} for _ in range(D)]
    for _ in range(60):
        j, n = int(rng.integers(D)), int(rng.integers(1, 8))
        scratch = RowScratch.of(n)
        scratch.moved[:] = rng.choice(K, n, replace=False)
        scratch.order[:] = scratch.moved // weights.part_width
        scratch.alpha[:] = rng.integers(-3, 4, n) / 4
        x = np.float32(rng.choice([-2, 0.5, 1]))
        features = np.array([j], np.uint32)
        while (status := kernels.space_for(weights, features, U64(0), U64(1), n)) != kernels.DONE:
            weights.grow(status)
        kernels.change_feature(weights, np.uint32(j), x, n, np.float32(lam), False, scratch)
        for label, step in zip(scratch.moved.tolist(), scratch.alpha.tolist(), strict=True):
            V[j][label] = V[j].get(label, 0.0) + step * float(x)
    for j in range(D):
        start = int(weights.start[j])
        table = weights.slots[start : start + int(weights.mask[j]) + 1]
        used = table[table["label"] != kernels.EMPTY]
        assert dict(zip(used["label"].tolist(), used["v"].tolist(), strict=True)) == V[j]
        listed = {}
        for part in range(parts):
            start, size = int(weights.list_start[j, part]), int(weights.list_size[j, part])
            entries = weights.entries[start : start + size]
            assert (entries["label"] // weights.part_width == part).all()
            listed |= dict(zip(entries["label"].tolist(), entries["w"].tolist(), strict=True))
        wanted = {label: np.float32(ref.prox(v, lam)) for label, v in V[j].items()}
        assert {label: w for label, w in listed.items() if w} == {label: w for label, w in wanted.items() if w}


def test_space_is_reported_missing_before_it_is_used():
    weights = WeightTables.empty(1, 10**6, 1)
    features = np.zeros(1, np.uint32)
    ends = U64(0), U64(1)
    assert kernels.space_for(weights, features, *ends, 10) == kernels.DONE
    assert kernels.space_for(weights, features, *ends, len(weights.slots)) == kernels.MORE_SLOTS
    few_entries = weights._replace(entries=weights.entries[:30])
    assert kernels.space_for(few_entries, features, *ends, 8) == kernels.DONE  # lists of 4 and then 8 entries
    assert kernels.space_for(few_entries, features, *ends, 32) == kernels.MORE_ENTRIES


@pytest.mark.parametrize("lam", [0.0, 0.05, 0.4])
def test_passes_over_all_tables_equal_dense_arrays(lam):
    X, Y = text_like(3, n=150, d=60, L=40)
    solver = trained(X, Y, 2, C=3.0, lam=0.02, parts=3)
    solver.set_strength(3.0, lam)
    V, weights = dense_tables(solver), solver.weights
    W = np.where(np.abs(V) > np.float32(lam), V, 0)
    part_of = solver.samples.number_of // weights.part_width
    counts = np.empty_like(weights.list_size)
    table_kernels.count_nonzeros(weights, np.float32(lam), counts)
    for part in range(3):
        np.testing.assert_array_equal(counts[:, part], (W[:, part_of == part] != 0).sum(axis=1))
    weights.entries["w"] = np.nan
    weights.list_size[:] = 0
    weights.rows[:] = 0
    table_kernels.fill_lists(weights, np.float32(lam))
    np.testing.assert_array_equal(dense_lists(solver), ref.prox(V, np.float32(lam)).astype(np.float32))
    solver.weights = WeightTables.empty(60, 40, 3, counts.sum(axis=1))
    table_kernels.copy_selected(weights, np.float32(lam), solver.weights)
    np.testing.assert_array_equal(dense_tables(solver), W)
    A = dense_alphas(solver)
    square, total = table_kernels.dual_parts(weights, np.float32(lam), solver.members)
    assert square == pytest.approx((ref.prox(V, lam) ** 2).sum(), rel=1e-5)
    assert total == pytest.approx(A[A > 0].sum(), rel=1e-12)
    n = int(weights.nonzeros(lam).sum())
    features, labels, values = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    table_kernels.list_weights(weights, np.float32(lam), features, labels, values)
    dense = np.zeros_like(V)
    dense[features, np.argsort(solver.samples.number_of)[labels]] = values
    np.testing.assert_array_equal(dense, ref.prox(V, np.float32(lam)).astype(np.float32))


# --- one row ---------------------------------------------------------------------------------------------------------


def test_found_labels_join_the_active_set_once():
    X, Y = random_problem(1, n=6, L=5)
    members = Members.of(LabelledRows.of(X, Y, 0.0, np.random.default_rng(0)))
    for i in range(6):
        start, size = int(members.start[i]), int(members.size[i])
        own = members.held["label"][start : start + size].tolist()
        found = np.array([0, kernels.NOWHERE, 4, 0], np.uint32)
        scratch = RowScratch.of(size + 4)
        n = kernels.activate(i, found, members, scratch)
        assert scratch.labels[:n].tolist() == own + [label for label in (0, 4) if label not in own]
        assert not scratch.alpha[:n].any()


def test_negative_labels_with_alpha_zero_leave_the_active_set():
    X, Y = random_problem(1, n=3, L=5)
    members = Members.of(LabelledRows.of(X, Y, 0.0, np.random.default_rng(0)))
    room = int(members.room[1])
    many = 2 + room
    for alphas in ([0.0, 0.5, -0.25, 0.0, -0.25], [0.5, 0.0, *[-0.5] * many]):
        scratch = RowScratch.of(len(alphas))
        scratch.labels[:] = np.arange(len(alphas)) + 7
        kernels.keep_members(1, 2, len(alphas), members, scratch, np.array(alphas))
        kept = [(7 + a, alpha) for a, alpha in enumerate(alphas) if a < 2 or alpha]
        start, size = int(members.start[1]), int(members.size[1])
        assert members.held[start : start + size].tolist() == kept
    assert members.room[1] == 2 * size > room  # the set moved to twice the room
    assert members.largest[0] == size


@pytest.mark.parametrize("lam", [0.0, 0.1])
def test_the_update_of_a_row_is_its_exact_minimum(lam):
    """update_rows and score_active on one row, against dense arrays."""
    X, Y = random_problem(5, n=20, d=8, L=6, density=0.6)
    solver = trained(X, Y, 2, C=1.5, lam=lam)
    dense_X, dense_Y = X.toarray().astype(float), Y.toarray() > 0
    label_of = np.argsort(solver.samples.number_of)
    for i in solver.samples.with_loss:
        A, W = dense_alphas(solver), ref.prox(dense_tables(solver), lam)
        found = np.array([[0, 3]], np.uint32)
        active = (A[i] != 0) | dense_Y[i]
        active[label_of[[0, 3]]] = True
        gradient = dense_X[i] @ W + ~dense_Y[i]
        wanted, Q = A[i].copy(), (dense_X[i] ** 2).sum()
        if Q > 0:
            wanted[active] = ref.project_row((A[i] - gradient / Q)[active], dense_Y[i][active], 1.5)
        samples, scratch = solver.samples, RowScratch.of(20)
        done, status = kernels.update_rows(
            np.array([i], np.uint32), 0, samples.X, samples.squares, samples.n_positive, found, 1.5, np.float32(lam),
            False, solver.weights, solver.members, scratch,
        )  # fmt: skip
        assert (done, status) == (1, kernels.DONE)
        np.testing.assert_allclose(dense_alphas(solver)[i], wanted, atol=1e-5)


def test_tables_are_restored_from_alphas():
    X, Y = text_like(2, n=80, d=50, L=30)
    solver = trained(X, Y, 2, C=2.0, lam=0.05, parts=2)
    point, A = solver.point(), dense_alphas(solver)
    solver.start(1.0, 0.0)
    solver.go_back(point)
    np.testing.assert_allclose(dense_tables(solver), X.toarray().T @ A, atol=1e-5)
    rows = np.arange(10, 30, dtype=np.uint32)
    solver.weights = WeightTables.empty(50, 30, 2)
    done, status = kernels.restore_rows(rows, 5, solver.samples.X, solver.weights, solver.members, RowScratch.of(40))
    assert (done, status) == (20, kernels.DONE)
    np.testing.assert_allclose(dense_tables(solver), X.toarray()[15:30].T @ A[15:30], atol=1e-5)


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


@pytest.mark.parametrize("parts", [1, 3])
def test_reading_the_lists_alone_finds_the_same_labels(parts):
    """take_touched against take_best, and scores and counts against dense arrays."""
    X, Y = text_like(8, n=60, d=200, L=90)
    solver = trained(X, Y, 2, C=5.0, lam=0.05, parts=parts)
    weights, (X_data, X_indices, X_indptr) = solver.weights, solver.samples.X
    assert (weights.row_of == kernels.NOWHERE).any()
    W = np.zeros((200, 90), np.float32)
    W[:, solver.samples.number_of] = dense_lists(solver)
    listed = np.flatnonzero(weights.row_of == kernels.NOWHERE)
    for i in range(60):
        start, end = X_indptr[i], X_indptr[i + 1]
        indices, factors = X_indices[int(start) : int(end)], X_data[int(start) : int(end)]
        for part in range(parts):
            low, high = part * weights.part_width, min((part + 1) * weights.part_width, 90)
            z = np.zeros(90, np.float32)
            search_kernels.add_postings(X_indices, start, end, factors, part, low, high, weights, z)
            np.testing.assert_allclose(z[low:high], factors @ W[indices, low:high], atol=1e-5)
            entries, rows = search_kernels.count_postings(X_indices, start, end, part, weights)
            own = indices[np.isin(indices, listed)]
            assert (entries, rows) == (weights.list_size[own, part].sum(), len(indices) - len(own))
            if rows:
                continue
            turn = low + (high - low) // 2
            best, touched = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
            z[z < 0] = 0  # take_touched fills up with zeros, take_best with whatever is largest
            other = z.copy()
            search_kernels.take_best(z, z.view(np.int32), low, high, turn, best)
            search_kernels.take_touched(
                X_indices, start, end, factors, part, low, high, turn, weights, other, np.empty(4, np.float32), touched
            )
            before = factors @ W[indices]
            np.testing.assert_allclose(np.maximum(before[touched], 0), np.maximum(before[best], 0), atol=1e-5)
            assert len(set(touched.tolist())) == 4
            assert not other.any()


def test_the_highest_scores_of_rows():
    X, Y = text_like(9, n=40, d=100, L=50)
    solver = trained(X, Y, 2, C=5.0, lam=0.02, parts=3)
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
    for label in (4, 8, 1):
        slot = int(kernels.insert(weights, 1, np.uint32(label)))
        weights.slots[slot]["v"], weights.slots[slot]["at"] = label / 2, label
    kernels.grow_table(weights, 1)
    start = int(weights.start[1])
    table = weights.slots[start : start + int(weights.mask[1]) + 1]
    used = table[table["label"] != kernels.EMPTY]
    assert sorted(used.tolist()) == [(1, 0.5, 1), (4, 2.0, 4), (8, 4.0, 8)]
    assert weights.filled.tolist() == [0, 3]


def test_full_lists_move_to_twice_the_room():
    weights = WeightTables.empty(1, 100, 2)
    places = [kernels.append_entry(weights, 0, 1, np.uint32(label), np.float32(label)) for label in range(50, 59)]
    assert places == list(range(9))
    start = int(weights.list_start[0, 1])
    assert weights.entries[start : start + 9].tolist() == [(label, float(label)) for label in range(50, 59)]
    assert (weights.list_size[0].tolist(), weights.list_room[0].tolist()) == ([0, 9], [0, 16])


def test_a_solver_begins_without_weights():
    X, Y = random_problem(2)
    solver = make(X, Y)
    assert not dense_alphas(solver).any()
    assert solver.W().nnz == 0
