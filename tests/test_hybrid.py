"""HybridRows: the same rows as one matrix, found by density, sliced, normalised; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail import hybrid
from longtail.errors import InputError
from longtail.hybrid import HybridRows

VALUES = st.floats(-4, 4, width=32)


def mixed(n: int = 30, d: int = 40, m: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A matrix whose columns are partly dense, and the numbers of these columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.1)
    columns = np.sort(rng.choice(d, m, replace=False))
    X[:, columns] = rng.normal(size=(n, m))
    return X.astype(np.float32), columns


@settings(deadline=None, max_examples=50)
@given(hnp.arrays(np.float32, (4, 7), elements=VALUES), st.sets(st.integers(0, 6)))
def test_any_columns_can_be_the_dense_part(X, columns):
    columns = np.array(sorted(columns), np.int64)
    rows = hybrid.take_columns(sp.csr_array(X), columns)
    np.testing.assert_array_equal(rows.dense, X[:, columns])
    np.testing.assert_array_equal(rows.tocsr().toarray(), X)
    assert rows.shape == X.shape
    np.testing.assert_array_equal(rows[[2, 0]].tocsr().toarray(), X[[2, 0]])
    np.testing.assert_allclose(hybrid.squares(rows), (X.astype(float) ** 2).sum(axis=1), rtol=1e-6)


def test_dense_columns_are_found_wherever_they_stand():
    X, columns = mixed()
    rows = hybrid.split(sp.csr_array(X))
    assert isinstance(rows, HybridRows)
    np.testing.assert_array_equal(rows.columns, columns)
    np.testing.assert_array_equal(rows.tocsr().toarray(), X)


def test_a_few_frequent_words_are_no_dense_part():
    X, _ = mixed(m=hybrid.MIN_DENSE_COLUMNS - 1)
    csr = sp.csr_array(X)
    assert hybrid.split(csr) is csr


def test_a_pair_puts_the_dense_columns_last_and_does_not_copy_them():
    X, _ = mixed()
    dense = np.ones((30, 3), np.float32)
    rows = HybridRows(sp.csr_array(X), dense)
    assert rows.shape == (30, 43)
    assert np.shares_memory(rows.dense, dense)
    np.testing.assert_array_equal(rows.columns, [40, 41, 42])
    np.testing.assert_array_equal(rows.tocsr().toarray(), np.hstack([X, dense]))
    assert rows.nnz == np.count_nonzero(X) + 90


def test_rows_have_length_one_after_normalising():
    X, _ = mixed()
    X[3] = 0
    rows = hybrid.normalized(hybrid.split(sp.csr_array(X)))
    lengths = np.sqrt(hybrid.squares(rows))
    np.testing.assert_allclose(np.delete(lengths, 3), 1, rtol=1e-6)
    assert lengths[3] == 0


def test_splitting_again_moves_columns_between_the_parts():
    X, columns = mixed()
    rows = hybrid.split(sp.csr_array(X))
    assert rows.split_as(columns) is rows
    fewer = rows.split_as(columns[3:])
    np.testing.assert_array_equal(fewer.dense, X[:, columns[3:]])
    np.testing.assert_array_equal(fewer.tocsr().toarray(), X)


@pytest.mark.parametrize(
    ("sparse", "dense", "columns", "message"),
    [
        (np.eye(2), np.eye(2), None, "the sparse part must be a SciPy sparse matrix, but is ndarray"),
        (sp.eye_array(3), np.eye(2), None, "the sparse part has 3 rows and the dense part 2"),
        (sp.eye_array(2), np.ones(2), None, r"two dimensions, but has shape \(2,\)"),
        (sp.eye_array(2), np.array([["a"], ["b"]]), None, "the dense part must be an array of numbers"),
        (sp.eye_array(2), np.array([[1.0], [np.nan]]), None, "row 1 of the dense part contains NaN"),
        (sp.eye_array(2), np.array([[1e39], [0]]), None, "row 0 of the dense part contains NaN or infinity"),
        (sp.csr_array(np.diag([1.0, np.inf])), np.eye(2), None, "the sparse part contains NaN or infinity"),
        (sp.csr_array((2, 3)), np.eye(2), [0], "columns must hold 2 column numbers"),
        (sp.csr_array((2, 3)), np.eye(2), [1, 0], "columns must increase and lie between 0 and 2"),
        (sp.csr_array((2, 3)), np.eye(2), [1, 3], "columns must increase and lie between 0 and 2"),
        (sp.eye_array(2, 3), np.eye(2), [1, 2], "the sparse part has entries in a column of the dense part"),
    ],
)
def test_parts_that_do_not_fit_are_refused(sparse, dense, columns, message):
    with pytest.raises(InputError, match=message):
        HybridRows(sparse, dense, None if columns is None else np.array(columns))


def test_its_length_is_not_guessed():
    with pytest.raises(TypeError, match=r"use shape\[0\]"):
        len(HybridRows(sp.eye_array(2), np.eye(2)))
