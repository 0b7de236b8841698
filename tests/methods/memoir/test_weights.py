"""The class vectors: equal to a dense matrix after any sequence of changes, in little memory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.hybrid import take_columns
from longtail.methods.memoir import weights as weights_module
from longtail.methods.memoir import weights_kernels as kernels
from longtail.methods.memoir.weights import ClassVectors, CsrRows
from tests.methods.memoir import reference
from tests.methods.memoir.problems import classes_problem, one_hot, oracle_of

actions = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 10**6)),
        st.tuples(st.just("truncate"), st.floats(0.01, 0.4)),
        st.tuples(st.just("postpone"), st.floats(0.01, 0.04)),
        st.tuples(st.just("shrink"), st.sampled_from([0.5, 0.9, 1e-5])),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(actions, st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 3]))
def test_any_sequence_of_changes_equals_a_dense_matrix(actions, seed, indexed, n_groups):
    X, _ = classes_problem(seed, n=25, d=30, C=11)
    dense, rows = X.toarray().astype(np.float64), CsrRows.of(X)
    vectors, W = ClassVectors(11, 30, indexed=indexed, n_groups=n_groups if indexed else 1), np.zeros((11, 30))
    pending, n_pending = np.zeros(11), np.zeros(11)
    for action, value in actions:
        if action == "step":
            rng = np.random.default_rng(value)
            chosen, (targets, rivals) = rng.integers(25, size=20), rng.integers(11, size=(2, 20))
            rivals = np.where(rivals == targets, -1, rivals)
            moved = vectors.step(rows, chosen, targets, rivals, 0.3)
            np.testing.assert_array_equal(moved, reference.step(W, dense, chosen, targets, rivals, 0.3))
        elif action in ("truncate", "postpone"):
            some, every = np.unique(np.random.default_rng(seed).integers(11, size=6)), 3 if action == "postpone" else 1
            amount = value * max(vectors.scale, 1e-3)
            paid, amounts = vectors.due(some, amount, every)
            vectors.truncate(paid, amounts)
            pending[some] += amount
            n_pending[some] += 1
            due = [c for c in some if n_pending[c] >= every or pending[c] >= weights_module.MAX_PENDING]
            assert paid.tolist() == due
            np.testing.assert_allclose(amounts, pending[due])
            W[due] = reference.truncate(W[due], pending[due, None])
            pending[due], n_pending[due] = 0, 0
        else:
            vectors.shrink(value)
            W *= value
        entries = reference.check_vectors(vectors.arrays)
        assert len(entries) == vectors.nnz
        after = reference.truncate(W, pending[:, None])
        np.testing.assert_allclose(
            vectors.to_csr().toarray(), after, rtol=1e-4, atol=1e-5 * max(np.abs(W).max(), 1e-30)
        )
        assert vectors.norm == pytest.approx(np.linalg.norm(W), rel=1e-4, abs=1e-30)


@pytest.mark.parametrize("n_groups", [1, 3])
def test_dense_features_equal_a_dense_matrix(n_groups):
    X, y = classes_problem(4, n=50, d=30, C=70)
    rows, W = CsrRows.of(take_columns(X, np.arange(5, 25))), np.zeros((70, 30))
    vectors = ClassVectors(70, 30, indexed=True, n_groups=n_groups, dense_columns=np.arange(5, 25))
    dense, chosen = X.toarray().astype(np.float64), np.arange(50)
    for turn in range(1, 5):
        rivals = (y + turn) % 70
        moved = vectors.step(rows, chosen, y, rivals, 0.4)
        np.testing.assert_array_equal(moved, reference.step(W, dense, chosen, y, rivals, 0.4))
        vectors.shrink(1e-5 if turn == 2 else 0.9)
        W *= 1e-5 if turn == 2 else 0.9
        np.testing.assert_allclose(vectors.to_csr().toarray(), W, rtol=1e-4, atol=1e-5 * np.abs(W).max())
        np.testing.assert_allclose(vectors.scores(rows, chosen, rivals), (dense @ W.T)[chosen, rivals], atol=1e-6)
        assert vectors.norm == pytest.approx(np.linalg.norm(W), rel=1e-4)
    other = ClassVectors(70, 30, indexed=True, n_groups=n_groups, dense_columns=np.arange(5, 25))
    other.restore(vectors.state())
    np.testing.assert_array_equal(other.to_csr().toarray(), vectors.to_csr().toarray())


def test_scores_are_those_of_the_matrix():
    X, y = classes_problem(1)
    vectors = ClassVectors(9, 20, indexed=False)
    rows, others = np.arange(60), (y + 1) % 9
    vectors.step(CsrRows.of(X), rows, y, others, 0.7)
    vectors.shrink(0.25)
    scores = X.toarray() @ vectors.to_csr().toarray().T
    np.testing.assert_allclose(vectors.scores(CsrRows.of(X), rows, others), scores[rows, others], atol=1e-6)
    assert vectors.scores(CsrRows.of(X), rows[:2], np.array([-1, 3]))[0] == -np.inf


@pytest.mark.parametrize("indexed", [False, True])
def test_taking_the_matrix_gives_the_same_as_copying_it(indexed):
    X, y = classes_problem(1)
    vectors = ClassVectors(9, 20, indexed=indexed)
    vectors.step(CsrRows.of(X), np.arange(60), y, (y + 1) % 9, 0.7)
    W = vectors.to_csr().toarray()
    np.testing.assert_array_equal(vectors.take_csr().toarray(), W)


def test_more_weights_than_can_be_numbered_are_refused(monkeypatch):
    monkeypatch.setattr(weights_module, "FIRST_LENGTH", 64)
    monkeypatch.setattr(weights_module, "MAX_ENTRIES", 100)
    X, y = classes_problem(5, n=400, d=300, C=50, density=0.1)
    with pytest.raises(InputError, match="penalty='l1'"):
        ClassVectors(50, 300, indexed=True).step(CsrRows.of(X), np.arange(400), y, (y + 1) % 50, 0.5)


@pytest.mark.parametrize("indexed", [False, True])
def test_arenas_grow_from_nothing_and_stay_within_a_few_times_the_weights(monkeypatch, indexed):
    monkeypatch.setattr(weights_module, "FIRST_LENGTH", 256)
    X, y = classes_problem(5, n=400, d=300, C=50, density=0.1)
    vectors = ClassVectors(50, 300, indexed=indexed)
    for round_ in range(4):
        vectors.step(CsrRows.of(X), np.arange(400), y, (y + 1 + round_) % 50, 0.5)
    reference.check_vectors(vectors.arrays)
    assert vectors.arrays.used[0] <= 6 * vectors.nnz + 50 * 16
    assert max(len(vectors.arrays.keys), len(vectors.arrays.posting_classes)) <= 10 * vectors.nnz + 1000
    vectors.truncate(np.arange(50), np.full(50, 10.0))  # nothing is left
    reference.check_vectors(vectors.arrays)
    assert vectors.nnz == vectors.to_csr().nnz == 0
    before = vectors.arrays.used.copy()
    vectors.step(CsrRows.of(X), np.arange(400), y, (y + 1) % 50, 0.5)  # free segments are taken again
    reference.check_vectors(vectors.arrays)
    assert (vectors.arrays.used <= 1.2 * before).all()


def test_a_class_that_would_lose_too_much_is_not_truncated():
    X, y = classes_problem(1)
    vectors = ClassVectors(9, 20, indexed=True, limit=0.2)
    vectors.step(CsrRows.of(X), np.arange(60), y, (y + 1) % 9, 0.7)
    vectors.shrink(0.25)
    W = vectors.to_csr().toarray().astype(np.float64)
    amount = float(np.quantile(np.abs(W[W != 0]), 0.4))
    shares = np.array([reference.lost_share(w, amount) for w in W])
    expected = np.flatnonzero(shares <= 0.2)
    assert 0 < len(expected) < 9
    due, amounts = vectors.due(np.arange(9), amount)
    assert due.tolist() == expected.tolist()
    np.testing.assert_array_equal(amounts, amount)
    vectors.truncate(due, amounts)
    W[expected] = reference.truncate(W[expected], amount)
    np.testing.assert_allclose(vectors.to_csr().toarray(), W, atol=1e-6)
    vectors.due(np.arange(9), amount, every=2)  # postponed: the copy at the end keeps to the limit as well
    late = [reference.truncate(w, amount) if reference.lost_share(w, amount) <= 0.2 else w for w in W]
    np.testing.assert_allclose(vectors.to_csr().toarray(), late, atol=1e-6)


def test_rows_and_vectors_can_be_added(monkeypatch):
    monkeypatch.setattr(weights_module, "FIRST_LENGTH", 64)  # the arena grows on the way
    X, y = classes_problem(1)
    dense, rows = X.toarray().astype(np.float64), CsrRows.of(X)
    rng = np.random.default_rng(0)
    source, W = ClassVectors(9, 20, indexed=False, with_top=False), np.zeros((9, 20))
    factors = rng.normal(size=60)
    source.add_rows(rows, y, np.arange(60), factors)
    np.add.at(W, y, factors[:, None] * dense)
    np.testing.assert_allclose(source.to_csr().toarray(), W, atol=1e-5)
    sums, total = ClassVectors(9, 20, indexed=False, with_top=False), np.zeros((9, 20))
    for _ in range(3):
        some, factors = rng.permutation(9)[:5], rng.normal(size=5)
        sums.add_vectors(source, some, factors)
        total[some] += factors[:, None] * W[some]
    np.testing.assert_allclose(sums.to_csr().toarray(), total, atol=1e-5)


# --- kernels that are used by others of their file -------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.floats(-1, 1, width=32)), max_size=120))
def test_top_classes_are_those_of_a_replay(changes):
    vectors = ClassVectors(41, 3, indexed=False)
    lists = [[[-1, 0.0] for _ in range(weights_module.N_TOP)] for _ in range(3)]
    for feature, c, value in changes:
        kernels.update_top(vectors.arrays, feature, c, np.float32(value))
        reference.update_top(lists[feature], c, value)
    for feature in range(3):
        found = zip(
            vectors.arrays.top_classes[feature].tolist(), vectors.arrays.top_values[feature].tolist(), strict=True
        )
        assert [list(pair) for pair in found] == lists[feature]


@pytest.mark.parametrize("indexed", [False, True])
def test_arenas_are_never_shorter_than_a_row_may_need(indexed):
    X, y = classes_problem(2, n=300, d=200, C=20)
    vectors, rows = ClassVectors(20, 200, indexed=indexed, n_groups=2 if indexed else 1), CsrRows.of(X)
    n_grown = 0
    for i in range(300):
        target, rival = int(y[i]), int((y[i] + 1 + i % 18) % 20)
        n = int(rows.indptr[i + 1] - rows.indptr[i])
        room = sum(kernels.table_room(vectors.arrays, c, n) for c in (target, rival))
        used = int(vectors.arrays.used[kernels.TABLES])
        if kernels.has_room(vectors.arrays, rows, i, target, rival):
            for c in (target, rival):
                kernels.add_row(vectors.arrays, rows, i, c, 0.1)
            grown = int(vectors.arrays.used[kernels.TABLES]) - used
            assert grown <= room
            n_grown += grown > 0
        else:
            vectors._lengthen()
        if i % 25 == 0:
            reference.check_vectors(vectors.arrays)
    assert n_grown > 10


def test_the_score_of_a_class_without_weights_is_zero_and_its_table_is_empty():
    X, _ = classes_problem(2)
    vectors, rows = ClassVectors(9, 20, indexed=False), CsrRows.of(X)
    assert kernels.find(vectors.arrays, 3, np.uint32(5)) == -1
    assert kernels.score(vectors.arrays, rows, 0, 3) == 0.0


@pytest.mark.parametrize(("group", "n_groups"), [(0, 1), (1, 3)])
def test_the_best_candidate_is_found(group, n_groups):
    X, y = classes_problem(3, n=80, d=25, C=13)
    Y = one_hot(y, 13)
    oracle, rows = oracle_of("sw-graph", X, Y), np.arange(80)
    for shift in (1, 5):
        oracle.vectors.step(oracle.X, rows, y, (y + shift) % 13, 0.5)
    W, dense = oracle.vectors.to_csr().toarray().astype(np.float64), X.toarray()
    candidates = np.random.default_rng(0).integers(-1, 13, size=(80, 6))
    candidates[0] = -1
    found = oracle._best_of(rows, candidates, group, n_groups)
    expected = [
        reference.best_candidate(W, dense[i], Y.toarray()[i], candidates[i].tolist(), group, n_groups) for i in rows
    ]
    assert found.tolist() == expected
    assert found[0] == -1
    assert (found >= 0).sum() > 40


@pytest.mark.parametrize(("indexed", "n_groups", "with_top"), [(True, 3, False), (False, 1, True), (False, 1, False)])
def test_loaded_weights_can_be_trained_like_their_own(indexed, n_groups, with_top):
    rng = np.random.default_rng(2)
    W = rng.normal(size=(11, 30)) * (rng.random((11, 30)) < 0.4)
    W[[4, 10]] = 0
    vectors = ClassVectors(11, 30, indexed=indexed, n_groups=n_groups, with_top=with_top)
    vectors.load(sp.csr_array(W.astype(np.float32)))
    assert len(reference.check_vectors(vectors.arrays)) == vectors.nnz == np.count_nonzero(W)
    np.testing.assert_array_equal(vectors.to_csr().toarray(), W.astype(np.float32))
    assert vectors.norm == pytest.approx(np.linalg.norm(W), rel=1e-6)
    if with_top:  # 11 classes, and room for 16
        np.testing.assert_array_equal(
            vectors.arrays.top_values.max(axis=1), np.maximum(W, 0).astype(np.float32).max(axis=0)
        )
    X, _ = classes_problem(3, n=25, d=30, C=11)
    chosen, (targets, rivals) = rng.integers(25, size=40), rng.integers(11, size=(2, 40))
    rivals = np.where(rivals == targets, -1, rivals)
    vectors.step(CsrRows.of(X), chosen, targets, rivals, 0.3)
    reference.step(W, X.toarray().astype(np.float64), chosen, targets, rivals, 0.3)
    reference.check_vectors(vectors.arrays)
    np.testing.assert_allclose(vectors.to_csr().toarray(), W, atol=1e-5)
