"""The weights while they are trained: equal to a dense matrix, whatever is done to them, and never larger than need
be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.methods.memoir import store as store_module
from longtail.methods.memoir.store import Rows, Weights
from tests.methods.memoir import reference
from tests.methods.memoir.problems import classes_problem

actions = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 10**6)),
        st.tuples(st.just("truncate"), st.floats(0.01, 0.4)),
        st.tuples(st.just("owe"), st.floats(0.01, 0.04)),
        st.tuples(st.just("shrink"), st.sampled_from([0.5, 0.9, 1e-5])),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(actions, st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 3]))
def test_any_sequence_of_changes_equals_a_dense_matrix(actions, seed, indexed, n_groups):
    X, _ = classes_problem(seed, n=25, d=30, C=11)
    dense, rows = X.toarray().astype(np.float64), Rows.of(X)
    weights, W = Weights(11, 30, indexed=indexed, n_groups=n_groups if indexed else 1), np.zeros((11, 30))
    debts, n_debts = np.zeros(11), np.zeros(11)
    for action, value in actions:
        if action == "step":
            rng = np.random.default_rng(value)
            chosen, (targets, rivals) = rng.integers(25, size=20), rng.integers(11, size=(2, 20))
            rivals = np.where(rivals == targets, -1, rivals)
            moved = weights.step(rows, chosen, targets, rivals, 0.3)
            np.testing.assert_array_equal(moved, reference.step(W, dense, chosen, targets, rivals, 0.3))
        elif action in ("truncate", "owe"):
            some, every = np.unique(np.random.default_rng(seed).integers(11, size=6)), 3 if action == "owe" else 1
            amount = value * max(weights.scale, 1e-3)
            paid, amounts = weights.truncate(some, amount, every)
            debts[some] += amount
            n_debts[some] += 1
            due = [c for c in some if n_debts[c] >= every or debts[c] >= store_module.LARGEST_DEBT]
            assert paid.tolist() == due
            np.testing.assert_allclose(amounts, debts[due])
            W[due] = reference.truncate(W[due], debts[due, None])
            debts[due], n_debts[due] = 0, 0
        else:
            weights.shrink(value)
            W *= value
        entries = reference.check_store(weights.store)
        assert len(entries) == weights.nnz
        after = reference.truncate(W, debts[:, None])
        np.testing.assert_allclose(
            weights.to_csr().toarray(), after, rtol=1e-4, atol=1e-5 * max(np.abs(W).max(), 1e-30)
        )
        assert weights.norm == pytest.approx(np.linalg.norm(W), rel=1e-4, abs=1e-30)


def test_scores_are_those_of_the_matrix():
    X, y = classes_problem(1)
    weights = Weights(9, 20, indexed=False)
    rows, others = np.arange(60), (y + 1) % 9
    weights.step(Rows.of(X), rows, y, others, 0.7)
    weights.shrink(0.25)
    scores = X.toarray() @ weights.to_csr().toarray().T
    np.testing.assert_allclose(weights.scores(Rows.of(X), rows, others), scores[rows, others], atol=1e-6)
    assert weights.scores(Rows.of(X), rows[:2], np.array([-1, 3]))[0] == -np.inf


@pytest.mark.parametrize("indexed", [False, True])
def test_the_last_matrix_is_as_any(indexed):
    X, y = classes_problem(1)
    weights = Weights(9, 20, indexed=indexed)
    weights.step(Rows.of(X), np.arange(60), y, (y + 1) % 9, 0.7)
    W = weights.to_csr().toarray()
    np.testing.assert_array_equal(weights.last_csr().toarray(), W)


def test_more_weights_than_can_be_numbered_are_refused(monkeypatch):
    monkeypatch.setattr(store_module, "FIRST_ROOM", 64)
    monkeypatch.setattr(store_module, "MOST_ENTRIES", 100)
    X, y = classes_problem(5, n=400, d=300, C=50, density=0.1)
    with pytest.raises(InputError, match="penalty='l1'"):
        Weights(50, 300, indexed=True).step(Rows.of(X), np.arange(400), y, (y + 1) % 50, 0.5)


@pytest.mark.parametrize("indexed", [False, True])
def test_arenas_grow_from_nothing_and_stay_within_a_few_times_the_weights(monkeypatch, indexed):
    monkeypatch.setattr(store_module, "FIRST_ROOM", 256)
    X, y = classes_problem(5, n=400, d=300, C=50, density=0.1)
    weights = Weights(50, 300, indexed=indexed)
    for round_ in range(4):
        weights.step(Rows.of(X), np.arange(400), y, (y + 1 + round_) % 50, 0.5)
    reference.check_store(weights.store)
    assert weights.store.top[0] <= 6 * weights.nnz + 50 * 16
    assert max(len(weights.store.keys), len(weights.store.classes)) <= 10 * weights.nnz + 1000
    weights.truncate(np.arange(50), 10.0)  # nothing is left
    reference.check_store(weights.store)
    assert weights.nnz == weights.to_csr().nnz == 0
    before = weights.store.top.copy()
    weights.step(Rows.of(X), np.arange(400), y, (y + 1) % 50, 0.5)  # freed blocks are taken again
    reference.check_store(weights.store)
    assert (weights.store.top <= 1.2 * before).all()
