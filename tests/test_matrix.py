"""The facts about matrices: soundness, canonical form, indicators, lengths of rows, stacking."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import matrix
from longtail.errors import InputError
from longtail.metrics.truth import read_truth


def random_rows(seed: int, n: int = 6, d: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)).astype(np.float32)


def test_long_index_arrays_become_short_ones_and_the_callers_stay():
    X = sp.csr_array(random_rows(0))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    short = matrix.canonical_csr(X)
    assert (short.indices.dtype, short.indptr.dtype) == (np.int32, np.int32)
    assert (X.indices.dtype, X.indptr.dtype) == (np.int64, np.int64)
    assert np.shares_memory(short.data, X.data)
    assert short.toarray().tolist() == X.toarray().tolist()


@pytest.mark.parametrize(
    ("indptr", "indices", "fault"),
    [
        ([0, 2, 3], [0, 2, 1], None),
        ([0, 0, 3], [0, 1, 2], None),
        ([], [], "indptr does not span 2 rows and 0 entries"),
        ([0, 3], [0, 1, 2], "indptr does not span 2 rows and 3 entries"),
        ([1, 2, 3], [0, 1, 2], "indptr does not span 2 rows and 3 entries"),
        ([0, 2, 2], [0, 1, 2], "indptr does not span 2 rows and 3 entries"),
        ([0, 4, 3], [0, 1, 2], "indptr decreases"),
        ([0, 2, 3], [0, 3, 1], "indices leaves the range 0 to 2"),
        ([0, 2, 3], [-1, 2, 1], "indices leaves the range 0 to 2"),
        ([0, 2, 3], [2, 0, 1], "indices are not sorted and unique within a row"),
        ([0, 2, 3], [0, 0, 1], "indices are not sorted and unique within a row"),
        ([0.0, 2.0, 3.0], [0, 2, 1], "indptr has dtype float64, not integers"),
        ([0, 2, 3], [0.0, 2.0, 1.0], "indices has dtype float64, not integers"),
    ],
)
def test_the_first_fault_of_a_pattern(indptr, indices, fault):
    dtype = np.int64 if not indptr else None
    assert matrix.csr_fault(np.array(indptr, dtype), np.array(indices, dtype), (2, 3)) == fault


def test_unsigned_indices_are_ordered_as_well():
    ends = np.array([0, 1, 3], np.uint64)
    assert matrix.csr_fault(ends, np.array([2, 0, 1], np.uint16), (2, 3)) is None
    assert matrix.csr_fault(ends, np.array([2, 1, 0], np.uint16), (2, 3), names=("ends", "columns")) == (
        "columns are not sorted and unique within a row"
    )


def test_an_indicator_of_the_right_form_is_not_copied():
    Y = sp.csr_array(np.array([[1, 0], [0, 1]], np.int32))
    assert np.shares_memory(matrix.indicator(Y).indices, Y.indices)
    assert np.shares_memory(matrix.indicator(Y).data, Y.data)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int32, np.float64])
def test_stored_zeros_leave_an_indicator(dtype):
    Y = sp.csr_array((np.array([1, 0, 1], dtype), [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    ones = matrix.indicator(Y)
    assert ones.dtype == np.int32
    assert ones.data.tolist() == [1, 1]
    assert ones.toarray().tolist() == [[1, 0], [0, 1]]
    assert Y.nnz == 3


@pytest.mark.parametrize("value", [2.0, -1.0, 0.5, np.nan])
def test_other_values_are_no_indicator(value):
    with pytest.raises(InputError, match=f"an indicator train_Y holds only 0 and 1, but {value} was found"):
        matrix.indicator(sp.csr_array([[1.0, value]]), "train_Y")


@pytest.mark.parametrize(
    ("dense", "answer"), [([[1, 0], [0, 1]], True), ([[1, 1], [0, 1]], False), ([[1, 0], [0, 0]], False)]
)
def test_one_label_per_row(dense, answer):
    Y = sp.csr_array(dense)
    assert matrix.one_label_per_row(Y) is answer
    assert matrix.one_label_per_row(read_truth(Y)) is answer


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray])
def test_rows_have_length_one_afterwards_unless_they_are_zero(form):
    dense = random_rows(1)
    dense[2] = 0
    dense[3] *= np.float32(1e30)  # its squares overflow float32
    dense[4] *= np.float32(1e-30)
    squares = (dense.astype(np.float64) ** 2).sum(axis=1)
    np.testing.assert_allclose(matrix.row_squares(form(dense)), squares, rtol=1e-12)
    unit = matrix.normalize_rows(form(dense))
    assert unit.dtype == np.float32
    unit = unit if isinstance(unit, np.ndarray) else unit.toarray()
    expected = dense / np.where(squares > 0, np.sqrt(squares), 1)[:, None]
    np.testing.assert_array_equal(unit, expected.astype(np.float32))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_stack_rows_equals_vstack_and_indexing(heights, data):
    dense = [random_rows(data.draw(st.integers(0, 1000)), height) for height in heights]
    order = data.draw(st.lists(st.integers(0, sum(heights) - 1), min_size=1, max_size=9))
    stacked = matrix.stack_rows([sp.csr_array(part) for part in dense], np.array(order))
    np.testing.assert_array_equal(stacked.toarray(), np.vstack(dense)[order])
    stacked.check_format(full_check=True)


@pytest.mark.parametrize("rows", [[], [0], [2, 3, 4], [0, 1, 2, 3, 4, 5], [1, 4]])
def test_take_rows_equals_indexing(rows):
    A = sp.random_array((6, 9), density=0.4, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    taken = matrix.take_rows(A, np.array(rows, np.int64))
    taken.check_format(full_check=True)
    np.testing.assert_array_equal(taken.toarray(), A.toarray()[rows])
