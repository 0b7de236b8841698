"""Hashes of rows and labels, and their way to disk and back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail import growth
from longtail.errors import ModelError
from longtail.growth import Growth
from longtail.matrix import canonical_csr

MASK = 2**64 - 1


def mix(z):
    """splitmix64 in Python's integers."""
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def row_hash(row):
    bits = {j: int(np.float32(value).view(np.uint32)) for j, value in enumerate(row) if value}
    return mix(sum(mix((mix(j) + each) & MASK) for j, each in bits.items()) & MASK)


@given(st.integers(0, 10_000), st.booleans())
def test_hashes_are_those_of_the_formula(seed, dense):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(9, 5)) * (rng.random((9, 5)) < 0.5)).astype(np.float32)
    X[4] = X[2]
    Y = (rng.random((9, 4)) < 0.4).astype(np.int32)
    hashes = growth.row_hashes(X if dense else canonical_csr(sp.csr_array(X)))
    assert hashes.tolist() == [row_hash(row) for row in X]
    labels = growth.label_hashes(sp.csr_array(Y), hashes)
    assert labels.tolist() == [sum(mix(int(h)) for h in hashes[column > 0]) & MASK for column in Y.T]


def test_hashes_of_many_rows_are_those_of_each_alone(monkeypatch):
    X = sp.random_array((50, 20), density=0.3, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
    whole = growth.row_hashes(X)
    monkeypatch.setattr(growth, "ENTRIES", 7)
    np.testing.assert_array_equal(growth.row_hashes(X), whole)


@given(st.integers(0, 10_000))
def test_relabelled_rows_are_those_of_labels_that_new_rows_do_not_explain(seed):
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, MASK, 12, dtype=np.uint64, endpoint=True)
    now = rng.random((12, 6)) < 0.3
    is_new = rng.random(12) < 0.3
    before = now & ~is_new[:, None]
    flipped = rng.random((12, 6)) < 0.03
    before ^= flipped & ~is_new[:, None]
    before[:, 5] = False  # a label that is new
    old = growth.label_hashes(sp.csr_array(before.astype(np.int32)), hashes)
    found = growth.relabelled(sp.csr_array(now.astype(np.int32)), hashes, is_new, old)
    differ = (before != (now & ~is_new[:, None])).any(axis=0)
    np.testing.assert_array_equal(found, now[:, differ].any(axis=1))


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_known_rows_are_counted_with_repetitions(known, now):
    found = growth.is_known(np.array(known, np.uint64), np.array(now, np.uint64))
    left, expected = Counter(known), []
    for each in now:
        expected.append(left[each] > 0)
        left[each] -= 1
    assert found.tolist() == expected


def sample() -> Growth:
    X, Y = sp.csr_array(np.eye(4, dtype=np.float32)), sp.csr_array(np.eye(4, 3, dtype=np.int32))
    return Growth(
        *(getattr(Growth.of(X, Y), name) for name in ("rows", "labels")), np.array([1]), ({"what": "update"},)
    )


def test_growth_goes_to_arrays_and_back():
    before = sample()
    arrays, meta = before.to_arrays()
    after = Growth.from_arrays(arrays, meta, 3, Path("model.json"))
    for name in ("rows", "labels", "retired"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert after.history == before.history


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"growth_rows": None}, "growth_rows is missing"),
        ({"growth_labels": np.zeros(2, np.int64)}, "2 entries for 3 labels"),
        ({"growth_labels": np.zeros(3, np.float32)}, "growth_labels is missing, or"),
        ({"growth_retired": np.array([3])}, "rising order"),
        ({"growth_retired": np.array([-1])}, "rising order"),
        ({"growth_retired": np.array([1, 1])}, "rising order"),
        ({"meta": None}, "list 'history'"),
        ({"meta": {"history": [3]}}, "texts and numbers only"),
        ({"meta": {"history": [{"what": ["x"]}]}}, "texts and numbers only"),
    ],
)
def test_hostile_growth_is_refused(change, message):
    arrays, meta = sample().to_arrays()
    meta = change.pop("meta", meta) if "meta" in change else meta
    arrays = {name: array for name, array in {**arrays, **change}.items() if array is not None}
    with pytest.raises(ModelError, match=message):
        Growth.from_arrays(arrays, meta, 3, Path("model.json"))
