"""The hash family: 2-universal, even, repeatable, and counted where it cannot tell labels apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.models.hash_kernels import hash_labels
from longtail.models.hashing import Hashes, indistinguishable_pairs
from tests.methods.mach import reference


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 2**31 - 2), st.integers(0, 2**31 - 2), st.integers(1, 200), st.integers(1, 65_536))
def test_the_table_is_the_formula(a, b, n_labels, n_buckets):
    table = Hashes(np.array([a, 1]), np.array([b, 0]), n_labels, n_buckets).table
    assert table.dtype == (np.uint8 if n_buckets <= 256 else np.uint16)
    assert table[:, 0].tolist() == [reference.bucket(a, b, label, n_buckets) for label in range(n_labels)]
    assert table[:, 1].tolist() == [label % n_buckets for label in range(n_labels)]
    later = np.empty((5, 1), np.uint16)
    hash_labels(np.array([a], np.uint64), np.array([b], np.uint64), np.uint64(n_buckets), 10**6, later)
    assert later[:, 0].tolist() == [
        reference.bucket(a, b, label, n_buckets) % 2**16 for label in range(10**6, 10**6 + 5)
    ]


@pytest.mark.parametrize("n_buckets", [2, 10, 32, 300])
def test_two_labels_collide_in_one_of_as_many_hashes_as_buckets(n_buckets):
    """Over 20,000 hashes, each of some pairs of labels collides in 1/B of them, to five standard errors."""
    R, q = 20_000, 1 / n_buckets
    table = Hashes.draw(1000, n_buckets, range(R), seed=1).table
    for i, j in [(0, 1), (0, 999), (7, 14), (500, 501), (123, 456)]:
        rate = (table[i] == table[j]).mean()
        assert abs(rate - q) < 5 * np.sqrt(q * (1 - q) / R)


@pytest.mark.parametrize("n_buckets", [8, 100])
def test_buckets_are_evenly_loaded(n_buckets):
    K = 20_000
    table = Hashes.draw(K, n_buckets, range(20), seed=3).table
    loads = np.array([np.bincount(column, minlength=n_buckets) for column in table.T])
    assert loads.sum() == 20 * K
    assert abs(loads / (K / n_buckets) - 1).max() < 0.5
    assert abs(loads.mean(axis=0) / (K / n_buckets) - 1).max() < 0.1


def test_a_repetition_does_not_depend_on_the_others():
    whole = Hashes.draw(50, 7, range(6), seed=5)
    for r in range(6):
        np.testing.assert_array_equal(Hashes.draw(50, 7, range(r, r + 1), seed=5).table[:, 0], whole.table[:, r])
    assert len({tuple(column) for column in whole.table.T}) == 6
    assert not np.array_equal(Hashes.draw(50, 7, range(6), seed=6).table, whole.table)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000))
def test_indistinguishable_pairs_are_counted(n_labels, n_repetitions, n_buckets, seed):
    table = np.random.default_rng(seed).integers(0, n_buckets, (n_labels, n_repetitions)).astype(np.uint8)
    pairs = sum((table[i] == table[j]).all() for i, j in combinations(range(n_labels), 2))
    assert indistinguishable_pairs(table) == pairs


def test_a_table_from_a_file_is_taken_only_if_it_is_the_same():
    hashes, table = Hashes(np.array([5]), np.array([2]), 100, 9), Hashes(np.array([5]), np.array([2]), 100, 9).table
    for wrong in (table[:-1], table[:, :0], table.astype(np.uint16), (table + 1) % 9):
        assert not hashes.adopt(wrong)
    assert hashes.adopt(table, step=7)
    assert hashes.table.base is table or hashes.table is table or np.shares_memory(hashes.table, table)


def test_the_identity():
    hashes = Hashes.identity(300)
    assert hashes.is_identity
    assert hashes.table.ravel().tolist() == list(range(300))
    assert not Hashes.draw(300, 299, range(1), 0).is_identity
    assert hashes.n_indistinguishable == 0


def test_grown_hashes_keep_the_buckets_of_old_labels():
    old = Hashes.draw(50, 8, range(3), seed=1)
    new = old.grown(70)
    np.testing.assert_array_equal(new.table[:50], old.table)
    np.testing.assert_array_equal(new.table, Hashes.draw(70, 8, range(3), seed=1).table)
    assert Hashes.identity(5).grown(7).is_identity
