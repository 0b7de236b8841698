"""What a user hands in: every accepted form becomes the canonical one, every other is refused with a clear message."""

from __future__ import annotations

import copy
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning

from longtail import check, matrix
from longtail.errors import InputError

DENSE = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]])


def assert_canonical(X, expected: np.ndarray) -> None:
    assert type(X) is sp.csr_array
    assert X.dtype == np.float32
    assert X.dtype.isnative
    assert X.shape == expected.shape
    assert X.toarray().tolist() == expected.tolist()
    for a, b in pairwise(X.indptr):
        assert (np.diff(X.indices[a:b]) > 0).all()
    assert X.indptr[-1] == len(X.indices) == len(X.data)


def arrays_of(X) -> list[np.ndarray]:
    if not sp.issparse(X):
        return [X] if isinstance(X, np.ndarray) else []
    if X.format == "lil":
        return []  # its arrays hold lists
    return [getattr(X, name) for name in ("data", "indices", "indptr", "row", "col") if hasattr(X, name)]


def read_only(X):
    for array in arrays_of(X):
        array.flags.writeable = False
    return X


def with_index_type(X, dtype):
    X.indices, X.indptr = X.indices.astype(dtype), X.indptr.astype(dtype)
    return X


def reordered(X):
    """The same matrix with the entries of the first row in reverse order."""
    end = X.indptr[1]
    X.indices[:end], X.data[:end] = X.indices[:end][::-1].copy(), X.data[:end][::-1].copy()
    X.has_sorted_indices = X.has_canonical_format = True  # a lie that must not be believed
    return X


SPARSE = {
    f"{kind.__name__}-{np.dtype(dtype).name}": kind(DENSE.astype(dtype))
    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array, sp.coo_matrix, sp.coo_array)
    for dtype in (np.float32, np.float64, np.int64, np.int8, np.uint16)
}
FORMS = {
    **SPARSE,
    "bsr": sp.bsr_array(np.kron(DENSE, np.eye(1)), blocksize=(1, 1)),
    "dia": sp.dia_array(DENSE),
    "lil": sp.lil_array(DENSE),
    "dok": sp.dok_array(DENSE),
    "int32 indices": with_index_type(sp.csr_array(DENSE), np.int32),
    "int64 indices": with_index_type(sp.csr_array(DENSE), np.int64),
    "read-only csr": read_only(sp.csr_array(DENSE.astype(np.float32))),
    "read-only coo": read_only(sp.coo_array(DENSE)),
    "big-endian csr": sp.csr_array((np.array([1, 2, 3], ">f4"), [0, 2, 1], [0, 2, 2, 3]), shape=(3, 3)),
    "unsorted": reordered(sp.csr_array(DENSE)),
    "duplicates": sp.csr_array(([1.0, 1.5, 0.5, 3.0], [0, 2, 2, 1], [0, 3, 3, 4]), shape=(3, 3)),
    "unsorted duplicates": sp.csr_array(([1.5, 1.0, 0.5, 3.0], [2, 0, 2, 1], [0, 3, 3, 4]), shape=(3, 3)),
    "duplicate coo": sp.coo_array(([1, 1, 1, 3], ([0, 0, 0, 2], [0, 2, 2, 1])), shape=(3, 3)),
    "explicit zeros": sp.csr_array(([1.0, 0.0, 2.0, 0.0, 3.0], [0, 1, 2, 0, 1], [0, 3, 4, 5]), shape=(3, 3)),
    "spare places": sp.csr_array(([1.0, 2.0, 3.0, 9.0], [0, 2, 1, 0], [0, 2, 2, 3]), shape=(3, 3)),
    "dense": DENSE,
    "Fortran": np.asfortranarray(DENSE),
    "strided": np.repeat(np.repeat(DENSE, 2, axis=0), 2, axis=1)[::2, ::2],
    "reversed": DENSE[::-1].copy()[::-1],
    "big-endian": DENSE.astype(">f8"),
    "half": DENSE.astype(np.float16),
    "long double": DENSE.astype(np.longdouble),
    "objects": DENSE.astype(object),
    "read-only dense": read_only(DENSE.copy()),
    "list": DENSE.tolist(),
    "list of tuples": [tuple(row) for row in DENSE.tolist()],
    "list of arrays": list(DENSE),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_x_becomes_canonical_and_stays_untouched(form):
    X = FORMS[form]
    before, flags = copy.deepcopy(X), [array.flags.writeable for array in arrays_of(X)]
    assert_canonical(check.feature_matrix(X), DENSE)
    assert [array.flags.writeable for array in arrays_of(X)] == flags
    for array, copied in zip(arrays_of(X), arrays_of(before), strict=True):
        assert array.dtype == copied.dtype
        assert array.tobytes() == copied.tobytes()


def test_booleans_count_as_zero_and_one():
    expected = (DENSE != 0).astype(np.float32)
    for X in (DENSE != 0, sp.csr_array(DENSE != 0), sp.csc_matrix(DENSE != 0)):
        assert_canonical(check.feature_matrix(X), expected)


def test_rows_stay_dense_if_more_than_half_of_the_values_are_not_zero():
    half, more = np.float32([[1, 0], [0, 1]]), np.float32([[1, 2], [0, 1]])
    assert sp.issparse(check.feature_matrix(half, keep_dense=True))
    assert check.feature_matrix(more, keep_dense=True).tolist() == more.tolist()
    assert sp.issparse(check.feature_matrix(more))


def test_canonical_arrays_are_shared_not_copied():
    X = sp.csr_array(DENSE.astype(np.float32))
    assert all(np.shares_memory(a, b) for a, b in zip(arrays_of(X), arrays_of(check.feature_matrix(X)), strict=True))
    assert_canonical(matrix.canonical_csr(DENSE.astype(np.float32)), DENSE)


@settings(deadline=None, max_examples=100)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(-3, 3)),
    st.randoms(use_true_random=False),
    st.sampled_from([np.int32, np.int64]),
)
def test_any_way_to_spell_a_matrix_gives_the_same_csr(dense, random, index_type):
    entries = [(i, j, part) for i, j in np.argwhere(dense) for part in (dense[i, j] - 1, 1.0)]  # each one twice
    random.shuffle(entries)
    entries.sort(key=lambda entry: entry[0])
    indptr = np.searchsorted([i for i, _, _ in entries], range(len(dense) + 1))
    X = sp.csr_array(
        (np.array([v for *_, v in entries]), np.array([j for _, j, _ in entries], int), indptr), dense.shape
    )
    assert_canonical(check.feature_matrix(with_index_type(X, index_type)), dense)


def smuggled(kind, **arrays):
    """A sound matrix whose index arrays are exchanged behind SciPy's back."""
    X = kind(DENSE.astype(np.float32))
    for name, array in arrays.items():
        setattr(X, name, np.array(array))
    return X


M = 2**63 - 1
DAMAGED = {
    "index too large": smuggled(sp.csr_array, indices=[0, 10**6, 1]),
    "index one too large": smuggled(sp.csr_array, indices=[0, 3, 1]),
    "index negative": smuggled(sp.csr_array, indices=[0, -1, 1]),
    "index huge": smuggled(sp.csr_array, indices=np.array([0, 2**40, 1])),
    "indices too few": smuggled(sp.csr_array, indices=[0, 2]),
    "data too few": smuggled(sp.csr_array, data=np.ones(2, np.float32)),
    "indices of floats": smuggled(sp.csr_array, indices=[0.0, 2.0, 1.0]),
    "indptr decreases": smuggled(sp.csr_array, indptr=[0, 3, 2, 3]),
    "indptr returns to zero": smuggled(sp.csr_array, indptr=[0, 5, 5, 0]),
    "indptr negative": smuggled(sp.csr_array, indptr=[0, -5, 2, 3]),
    "indptr too long": smuggled(sp.csr_array, indptr=[0, 2, 2, 3, 3]),
    "indptr too far": smuggled(sp.csr_array, indptr=[0, 2, 2, 10**6]),
    "indptr starts late": smuggled(sp.csr_array, indptr=[1, 2, 2, 3]),
    "indptr wraps around": smuggled(sp.csr_array, indptr=np.array([0, M, -M - 1, 3])),
    "csc": smuggled(sp.csc_array, indices=[0, 10**6, 1]),
    "csc indptr": smuggled(sp.csc_matrix, indptr=[0, 10**6, 10**6, 3]),
    "coo row": smuggled(sp.coo_matrix, row=[0, 10**6, 2]),
    "coo column": smuggled(sp.coo_matrix, col=[0, 2, -7]),
    "coo lengths": smuggled(sp.coo_matrix, data=np.ones(7, np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_index_arrays_that_point_outside_are_refused_before_anything_follows_them(damage):
    for use in (check.feature_matrix, matrix.canonical_csr, lambda X: check.label_matrix(X, 3)):
        with pytest.raises(InputError, match=r"the index arrays of the c.. matrix are damaged"):
            use(DAMAGED[damage])


def test_an_indptr_that_wraps_around_is_refused():
    indptr = np.array([0, M, -M - 1, -(2**62), 0, 2])  # np.diff sees no decrease in it
    assert (np.diff(indptr) >= 0).all()
    X = sp.csr_array((5, 3), dtype=np.float32)
    X.data, X.indices, X.indptr = np.ones(2, np.float32), np.array([0, 1]), indptr
    with pytest.raises(InputError, match="damaged"):
        check.feature_matrix(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[np.nan, 1.0]], "contains NaN"),
        ([[np.inf, 1.0]], "contains infinity or a value too large for dtype"),
        ([[1e39, 1.0]], "contains infinity or a value too large for dtype"),
        (sp.csr_array([[np.nan, 1.0]]), "contains NaN"),
        (sp.csc_array([[-np.inf, 1.0]]), "contains infinity"),
        (sp.csr_array([[1e39, 1.0]]), "contains infinity or a value too large for dtype"),
        (sp.csr_array((np.full(2, 3e38, np.float32), [0, 0], [0, 2]), shape=(1, 1)), "contains infinity"),
        ([1.0, 2.0], "Expected 2D array, got 1D array instead"),
        (3.0, "Expected 2D array, got scalar array instead"),
        (None, "Expected 2D array, got scalar array instead"),
        (np.zeros((2, 2, 2)), "Found array with dim 3"),
        (sp.coo_array([1.0, 2.0]), r"expected a matrix of two dimensions, but the sparse array has shape \(2,\)"),
        (sp.csr_array((1, 2**31)), "2,147,483,648 columns are more than the 2,147,483,646 that can be numbered"),
        (np.array([[1j]]), "Complex data not supported"),
        (sp.csr_array([[1j]]), "Complex data not supported"),
        ([["a", "b"]], "could not convert string to float: 'a'"),
        ("text", r"one text was passed where several are expected; pass a list of texts: \['text'\]"),
        ("long " * 20, rf"pass a list of texts: \['{'long ' * 8}'\]"),  # its beginning is enough
        ([[1.0], [1.0, 2.0]], "inhomogeneous shape"),
        (np.zeros((0, 3)), r"Found array with 0 sample\(s\)"),
        (np.zeros((3, 0)), r"Found array with 0 feature\(s\)"),
        (sp.csr_array((3, 0)), r"Found array with 0 feature\(s\)"),
    ],
)
def test_x_that_cannot_be_used_is_refused_in_one_line(X, message):
    with pytest.raises(InputError, match=message) as caught:
        check.feature_matrix(X)
    assert "\n" not in str(caught.value)


def test_an_estimator_remembers_the_number_of_features():
    estimator = BaseEstimator()
    check.feature_matrix(DENSE, estimator=estimator, reset=True)
    assert estimator.n_features_in_ == 3
    assert_canonical(check.feature_matrix(sp.csc_array(DENSE), estimator=estimator), DENSE)
    with pytest.raises(InputError, match=r"is expecting 3 features as input; make it with .* like=model\)"):
        check.feature_matrix(DENSE[:, :2], estimator=estimator)


# --- labels ----------------------------------------------------------------------------------------------------------


def encoded(Y, n):
    matrix, names, multiclass = check.label_matrix(Y, n)
    assert type(matrix) is sp.csr_array
    assert matrix.dtype == np.int32
    assert (matrix.data == 1).all()
    assert matrix.has_canonical_format
    assert isinstance(names, np.ndarray)
    return [[names[j] for j in matrix[[i]].indices] for i in range(n)], names.tolist(), multiclass


@pytest.mark.parametrize(
    ("Y", "names", "kind"),
    [
        ([["b", "a"], [], ["b"]], ["a", "b"], "U"),
        ([("b", "a"), (), ("b", "b")], ["a", "b"], "U"),
        ([{"b", "a"}, set(), frozenset("b")], ["a", "b"], "U"),
        ([[30, -7], [], [30]], [-7, 30], "i"),
        ([np.array([30, -7]), np.array([], int), np.array([30])], [-7, 30], "i"),
        ([[np.int64(30), np.int64(-7)], [], [np.int32(30)]], [-7, 30], "i"),
        ([[("x", 2), ("x", 1)], [], [("x", 2)]], [("x", 1), ("x", 2)], "O"),
        ([["a", 1], [], [2.5]], [2.5, 1, "a"], "O"),
        ([["a\0", "a"], [], ["a"]], ["a", "a\0"], "O"),
        ([[2**70, 1], [], [1]], [1, 2**70], "O"),
        ([[False, True], [], [True]], [False, True], "O"),
        ([["", " "], [], ["ü\n"]], ["", " ", "ü\n"], "U"),
    ],
)
def test_lists_of_label_names(Y, names, kind):
    rows, found, multiclass = encoded(Y, 3)
    assert found == names
    assert check.label_matrix(Y, 3)[1].dtype.kind == kind
    assert [set(row) for row in rows] == [set(row.tolist() if isinstance(row, np.ndarray) else row) for row in Y]
    assert not multiclass


def test_one_label_is_enough():
    Y, names, multiclass = check.label_matrix([["a"], []], 2)
    assert (Y.toarray().tolist(), names.tolist(), multiclass) == ([[1], [0]], ["a"], False)


def test_an_array_of_lists_is_a_list_of_lists():
    Y = np.empty(2, object)
    Y[:] = [["a"], ["a", "b"]]
    assert encoded(Y, 2) == ([["a"], ["a", "b"]], ["a", "b"], False)


@pytest.mark.parametrize(
    "classes",
    [
        [3, 1, 3],
        ["b", "a", "b"],
        [True, False, True],
        [2.0, 1.0, 2.0],
        np.array(["b", "a", "b"], dtype=object),
        np.array([3, 1, 3], dtype=object),
        np.array([3, 1, 3], np.uint8),
        np.array([3, 1, 3], ">i4"),
        ("b", "a", "b"),
    ],
)
def test_a_row_of_classes_is_a_multiclass_problem(classes):
    rows, names, multiclass = encoded(classes, 3)
    assert rows == [[name] for name in np.asarray(classes).tolist()]
    assert names == sorted(set(np.asarray(classes).tolist()))
    assert multiclass


@pytest.mark.parametrize(
    ("wrap", "dtype"),
    [(wrap, dtype) for wrap in (sp.csr_array, sp.csc_matrix, sp.coo_array) for dtype in (int, float, bool, np.int8)]
    + [(wrap, dtype) for wrap in (np.array, np.asfortranarray) for dtype in (int, float, bool, np.int8, object)],
)
def test_indicators_name_their_columns_by_number(wrap, dtype):
    dense = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    assert encoded(wrap(dense.astype(dtype)), 3) == ([[0, 2], [], [1]], [0, 1, 2], False)
    assert encoded(wrap(np.eye(3, dtype=dtype)), 3) == ([[0], [1], [2]], [0, 1, 2], False)


def test_explicit_zeros_are_no_labels_and_stay_with_the_user():
    Y = sp.csr_array(([1, 0, 1], [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    assert encoded(Y, 2) == ([[0], [1]], [0, 1], False)
    assert Y.data.tolist() == [1, 0, 1]


def test_a_column_of_classes_is_taken_with_scikit_learns_warning():
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        assert encoded(np.array([[1], [2]]), 2) == ([[1], [2]], [1, 2], True)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (None, "the target y is None; give the labels of every row"),
        ([["a"], None], "row 1 of Y is NoneType 'None', but the first one is a list of labels"),
        ([["a"], "b"], "row 1 of Y is str 'b', but the first one is a list of labels; give a list for every row"),
        ([["a"], 3], "row 1 of Y is int '3', but the first one is a list"),
        ([[["a"]], ["b"]], r"row 0 of Y holds a label that is not hashable \(unhashable type: 'list'\)"),
        ([["a"], [{}]], "row 1 of Y holds a label that is not hashable"),
        ([None, None], r"row 0 of Y has no class \(None\); give it one, or drop the row"),
        (np.array(["a", np.nan], dtype=object), r"row 1 of Y has no class \(nan\)"),
        (np.array([1, "a"], dtype=object), "Unknown label type"),
        ([["a"], ["b"], ["a"]], "Y has 3 rows but X has 2; each row of Y labels one row of X"),
        ([[], []], "Y has no labels at all"),
        (sp.csr_array((2, 0)), "Y has no labels at all"),
        ([0.5, 1.5], "Unknown label type: continuous"),
        ([1.0, np.nan], r"row 1 of Y has no class \(nan\)"),
        (["b", np.nan], r"row 1 of Y has no class \(nan\)"),
        (np.array([1.0, np.nan]), "Y contains NaN or infinity; a class is a string or a whole number"),
        ([["a"]], "Y has 1 rows but X has 2; each row of Y labels one row of X"),
        ([1, 2, 3], "Y has 3 rows but X has 2"),
        (sp.csr_array(np.eye(3)), "Y has 3 rows but X has 2"),
        ([], "Y has 0 rows but X has 2"),
        (np.array([[0, 2], [1, 0]]), "an indicator Y holds only 0 and 1, but 2 was found"),
        (sp.csr_array([[0, -1], [1, 0]]), "holds only 0 and 1, but -1 was found"),
        (sp.csr_array([[0.5, 1], [1, 0]]), "holds only 0 and 1, but 0.5 was found"),
        (sp.csr_array([[np.nan, 1], [1, 0]]), "holds only 0 and 1, but nan was found"),
        (sp.csr_array(([1, 1, 1], [0, 0, 1], [0, 2, 3]), shape=(2, 2)), "holds only 0 and 1, but 2 was found"),
        (np.array([[np.nan, 1], [1, 0]]), "contains NaN"),
        (sp.coo_array([1, 1]), "expected a matrix of two dimensions"),
        (np.zeros((2, 2, 2)), "Found array with dim 3"),
        (np.array([["a", "b"], ["c", "d"]]), "not compatible with arrays of bytes/strings"),
        ("ab", "y should be a 1d array"),
        (3, "y should be a 1d array"),
        ((row for row in [["a"], ["b"]]), "y should be a 1d array"),
    ],
)
def test_labels_that_cannot_be_used_are_refused_in_one_line(Y, message):
    with pytest.raises(InputError, match=message) as caught:
        check.label_matrix(Y, 2)
    assert "\n" not in str(caught.value)


def test_given_names_fix_the_columns():
    Y, names = check.encode([["b"], ["c", "a"]], ["c", "b", "a"])
    assert Y.toarray().tolist() == [[0, 1, 0], [1, 0, 1]]
    assert names.tolist() == ["c", "b", "a"]
    with pytest.raises(InputError, match="label 'z' is not among the 3 known names"):
        check.encode([["z"]], ["c", "b", "a"])
    with pytest.raises(InputError, match="label names repeat"):
        check.encode([["a"]], ["a", "a"])


@settings(deadline=None, max_examples=80)
@given(st.lists(st.lists(st.one_of(st.text(max_size=3), st.integers(-3, 3)), max_size=4), min_size=1, max_size=5))
def test_every_row_gets_back_its_own_labels(rows):
    if not any(rows):
        rows[0].append("one")
    Y, names, multiclass = check.label_matrix(rows, len(rows))
    names = names.tolist()
    assert [{names[j] for j in Y[[i]].indices} for i in range(len(rows))] == [set(row) for row in rows]
    assert not multiclass  # the form of Y decides, not how many labels its rows have


def test_one_long_name_does_not_make_every_name_long():
    names = check.name_array(["x" * 10_000, *(f"label {i}" for i in range(2000))])
    assert names.dtype == object  # as fixed-width strings: 80 MB
    assert check.name_array(["short", "names"]).dtype.kind == "U"


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 1.0, 0.5, np.float32(2), np.int64(3), 10**300])
def test_numbers_that_will_do(value):
    check.number(SimpleNamespace(C=value), "C", above=0)


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, -np.inf, 10**400, "1", None, True, 1j, [1], np.array([1, 2])])
def test_numbers_that_will_not_do(value):
    with pytest.raises(InputError, match=r"The 'C' parameter of SimpleNamespace must be a number above 0\. Got"):
        check.number(SimpleNamespace(C=value), "C", above=0)


@pytest.mark.parametrize("value", [0, 1.0, np.float64(3), "3", None, True, 2**63])
def test_whole_numbers_that_will_not_do(value):
    with pytest.raises(InputError, match=r"The 'n' parameter of Method must be a whole number of at least 1\. Got"):
        check.number(type("Method", (), {"n": value})(), "n", least=1, whole=True)


def test_whole_numbers_that_will_do():
    for value in (1, np.int32(5), 2**63 - 1):
        check.number(SimpleNamespace(n=value), "n", least=1, whole=True)
    check.number(SimpleNamespace(n=-5.5), "n")
    check.number(SimpleNamespace(n=0), "n", least=0)


def test_choices():
    check.choice(SimpleNamespace(loss="hinge"), "loss", ("hinge", "log"))
    for value in ("square", None, 1, ["hinge"], np.array(["hinge", "log"])):
        with pytest.raises(InputError, match="The 'loss' parameter of SimpleNamespace must be one of 'hinge', 'log'"):
            check.choice(SimpleNamespace(loss=value), "loss", ("hinge", "log"))


def test_jobs():
    for value in (None, -1, -8, 1, 64, np.int64(2)):
        check.n_jobs(SimpleNamespace(n_jobs=value))
    for value in (0, 1.5, "2", True):
        with pytest.raises(
            InputError, match="The 'n_jobs' parameter of SimpleNamespace must be None, a positive number"
        ):
            check.n_jobs(SimpleNamespace(n_jobs=value))


@pytest.mark.parametrize("value", [1, 2.5, np.float32(3), [1.0, 2.0, 3.0], np.array([1, 2, 3]), (0.5, 1, 2)])
def test_positive_numbers_are_checked_before_their_length_can_be(value):
    owner = SimpleNamespace(w=value)
    assert check.positive_numbers(owner, "w").tolist() == np.asarray(value, np.float64).tolist()
    full = check.per_label(owner, "w", 3)
    assert full.dtype == np.float64
    assert full.tolist() == np.broadcast_to(value, 3).tolist()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "must be above 0 and finite. Got -1 instead"),
        (0, "must be above 0 and finite"),
        ([1, 0, 1], "must be above 0 and finite"),
        (np.inf, "must be above 0 and finite"),
        ([1, np.nan, 1], "must be above 0 and finite"),
        ("x", "must be a number above 0, 'auto', or an array with one such number per label. Got 'x' instead"),
        (None, "must be a number above 0, 'auto', or an array"),
        (True, "must be a number above 0, 'auto', or an array"),
        ([], "must be a number above 0, 'auto', or an array"),
        ([[1, 2]], "must be a number above 0, 'auto', or an array"),
        ([[1], [1, 2]], "must be a number above 0, 'auto', or an array"),
    ],
)
def test_positive_numbers_that_will_not_do(value, message):
    with pytest.raises(InputError, match=f"The 'w' parameter of SimpleNamespace {message}"):
        check.positive_numbers(SimpleNamespace(w=value), "w")


def test_one_number_for_each_label():
    with pytest.raises(InputError, match=r"must be a number or an array of 3 numbers.* Got an array of shape \(2,\)"):
        check.per_label(SimpleNamespace(w=[1, 2]), "w", 3)


def test_fractions():
    for value in (0.1, np.float32(0.5), 1 - 1e-12):
        check.fraction(SimpleNamespace(f=value), "f")
    for value in (0, 1, 0.0, 1.0, -0.1, 1.1, np.nan, "0.1", None, True, [0.1]):
        with pytest.raises(InputError, match="The 'f' parameter of SimpleNamespace must be a number above 0 and below"):
            check.fraction(SimpleNamespace(f=value), "f")


def test_random_states():
    for value in (None, 0, 2**32 - 1, np.int64(3), np.random.RandomState(0)):
        check.random_state(SimpleNamespace(random_state=value))
    for value in ("x", -1, 1.5, 2**32, [1]):
        with pytest.raises(
            InputError, match="The 'random_state' parameter of SimpleNamespace must be None, a whole num"
        ):
            check.random_state(SimpleNamespace(random_state=value))


def test_top_k():
    assert check.top_k(np.int64(3)) == 3
    for value in (0, -1, 2.5, 5.0, "5", True, None):
        with pytest.raises(InputError, match="k must be a whole number of at least 1, the number of labels to return"):
            check.top_k(value)


def test_texts_are_refused_with_the_way_to_use_them():
    with pytest.raises(InputError, match=r"X holds texts; fit a Dataset made of them, Dataset.from_texts"):
        check.feature_matrix(["a text", "another"])


# --- data frames, series and texts -----------------------------------------------------------------------------------

TEXTS = ["a text", "", "ü"]
TEXT_FORMS = {
    "list": TEXTS,
    "tuple": tuple(TEXTS),
    "strings": np.array(TEXTS),
    "StringDType": np.array(TEXTS, np.dtypes.StringDType()) if hasattr(np.dtypes, "StringDType") else np.array(TEXTS),
    "objects": np.array(TEXTS, object),
    "column": np.array(TEXTS, object)[:, None],
    "list of NumPy strings": [np.str_(text) for text in TEXTS],
    "pandas": pd.Series(TEXTS),
    "pandas objects": pd.Series(TEXTS, dtype=object),
    "pandas with an odd index": pd.Series(TEXTS, index=[7, 7, -1]),
    "pandas category": pd.Series(TEXTS, dtype="category"),
    "pandas arrow": pd.Series(TEXTS, dtype="string[pyarrow]"),
    "pandas frame": pd.DataFrame({"text": TEXTS}),
    "polars": pl.Series(TEXTS),
    "polars category": pl.Series(TEXTS, dtype=pl.Categorical),
    "polars frame": pl.DataFrame({"text": TEXTS}),
    "pyarrow": pa.array(TEXTS),
    "pyarrow chunks": pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
}


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_texts_in_every_form(form):
    found = check.texts(TEXT_FORMS[form])
    assert type(found) is list
    assert all(isinstance(text, str) for text in found)
    assert found == TEXTS
    with pytest.raises(InputError, match=r"X holds texts; fit a Dataset made of them, Dataset.from_texts"):
        check.feature_matrix(TEXT_FORMS[form])


@pytest.mark.parametrize(
    "X",
    [
        [],
        [[1.0]],
        [["a", "b"]],
        [1.0, 2.0],
        DENSE,
        DENSE.astype(object),
        np.array([["a", "b"]]),
        sp.csr_array(DENSE),
        pd.Series([1, 2]),
        pd.Series([["a"], ["b"]]),
        pd.DataFrame(DENSE),
        pd.DataFrame({"x": [1.0]}),
        pd.DataFrame({"a": ["x"], "b": ["y"]}),
        pl.Series([1, 2]),
        pl.DataFrame(DENSE),
        pa.array([1, 2]),
        None,
        3,
        (text for text in TEXTS),
    ],
    ids=lambda X: type(X).__name__,
)
def test_what_is_no_text(X):
    assert check.texts(X) is None


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (["a", None], r"text 1 is missing \(None\); put '' where there is no text, or drop the row"),
        (["a", np.nan], r"text 1 is missing \(nan\)"),
        (np.array([np.nan, "a"], object), r"text 0 is missing \(nan\)"),
        (pd.Series(["a", "b", None]), "text 2 is missing"),
        (pd.Series(["a", None], dtype="string"), r"text 1 is missing \(<NA>\)"),
        (pd.DataFrame({"text": ["a", None]}), "text 1 is missing"),
        (pl.Series(["a", None]), r"text 1 is missing \(None\)"),
        (pl.DataFrame({"text": [None, "a"]}), r"text 0 is missing \(None\)"),
        (pa.array(["a", None]), r"text 1 is missing \(None\)"),
        (["a", 3], "text 1 is int '3', not str, but other rows are texts; convert it"),
        ([3.5, "a"], "text 0 is float '3.5', not str"),
        (pd.Series(["a", ["b"]]), "text 1 is list"),
        ([b"a", "b"], "text 0 is bytes"),
        ("a", r"one text was passed where several are expected; pass a list of texts: \['a'\]"),
    ],
)
def test_texts_with_a_hole_or_a_stranger_are_refused_with_the_row(X, message):
    with pytest.raises(InputError, match=message):
        check.texts(X)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_data_frames_become_canonical(frame, dtype):
    assert_canonical(check.feature_matrix(frame(DENSE.astype(dtype))), DENSE)


def test_a_sparse_data_frame_becomes_canonical():
    assert_canonical(check.feature_matrix(pd.DataFrame.sparse.from_spmatrix(sp.csr_array(DENSE))), DENSE)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_names_of_features_are_compared_as_scikit_learn_does(frame):
    estimator, columns = BaseEstimator(), list("abc")
    rows = frame(dict(zip(columns, DENSE.T, strict=True)))
    check.feature_matrix(rows, estimator=estimator, reset=True)
    assert estimator.feature_names_in_.tolist() == columns
    assert_canonical(check.feature_matrix(rows, estimator=estimator), DENSE)
    with pytest.raises(InputError, match="Feature names must be in the same order as they were in fit"):
        check.feature_matrix(rows[["b", "a", "c"]], estimator=estimator)
    with pytest.raises(InputError, match="feature names should match those that were passed during fit"):
        check.feature_matrix(frame(dict(zip("abd", DENSE.T, strict=True))), estimator=estimator)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        check.feature_matrix(DENSE, estimator=estimator)


def test_a_data_frame_with_names_of_two_types_is_refused():
    with pytest.raises(TypeError, match="Feature names are only supported if all input features have string names"):
        check.feature_matrix(pd.DataFrame(DENSE, columns=["a", "b", 3]), estimator=BaseEstimator(), reset=True)


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
@pytest.mark.parametrize("classes", [["b", "a", "b"], [3, 1, 3], [True, False, True]])
def test_a_series_of_classes(series, classes):
    assert encoded(series(classes), 3) == ([[name] for name in classes], sorted(set(classes)), True)


def test_categories_are_classes():
    for series in (pd.Series(["b", "a", "b"], dtype="category"), pl.Series(["b", "a", "b"], dtype=pl.Categorical)):
        assert encoded(series, 3) == ([["b"], ["a"], ["b"]], ["a", "b"], True)


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_a_series_of_lists(series):
    assert encoded(series([["b", "a"], [], ["b"]]), 3) == ([["a", "b"], [], ["b"]], ["a", "b"], False)


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_a_series_with_a_missing_class_is_refused_with_the_row(series):
    with pytest.raises(InputError, match="row 1 of Y has no class"):
        check.label_matrix(series(["b", None]), 2)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("dtype", [int, bool, float])
def test_the_columns_of_a_frame_name_the_labels(frame, dtype):
    Y = frame({"dog": np.array([1, 0], dtype), "cat": np.array([1, 1], dtype)})
    assert encoded(Y, 2) == ([["dog", "cat"], ["cat"]], ["dog", "cat"], False)


def test_a_frame_without_string_columns_is_named_by_number():
    assert encoded(pd.DataFrame(np.eye(3, dtype=int)), 3) == ([[0], [1], [2]], [0, 1, 2], False)


def test_a_frame_that_is_no_indicator_is_refused():
    with pytest.raises(InputError, match="an indicator Y holds only 0 and 1, but 2 was found"):
        check.label_matrix(pl.DataFrame({"a": [0, 2], "b": [1, 0]}), 2)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_frame_of_one_column_holds_classes(frame):
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        assert encoded(frame({"class": [2, 1]}), 2) == ([[2], [1]], [1, 2], True)


def test_rows_that_need_no_conversion_take_the_short_way_and_others_are_refused_as_before(monkeypatch):
    clf = BaseEstimator()
    clf.n_features_in_ = 3
    good = sp.csr_array(np.eye(3, dtype=np.float32))
    long_way = check.feature_matrix(good.astype(np.float64), estimator=clf)
    bad = good.copy()
    bad.data[1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        check.feature_matrix(bad, estimator=clf)
    with pytest.raises(InputError, match="2 features"):
        check.feature_matrix(good[:, :2], estimator=clf)
    with pytest.raises(InputError, match="0 sample"):
        check.feature_matrix(good[:0], estimator=clf)

    def unused(*_, **__):
        raise AssertionError("scikit-learn was asked")

    monkeypatch.setattr("sklearn.utils.validation.validate_data", unused)
    unsorted = sp.csr_array((np.ones(2, np.float32), [2, 0], [0, 2]), shape=(1, 3))
    assert check.feature_matrix(unsorted, estimator=clf).indices.tolist() == [0, 2]
    assert (check.feature_matrix(good, estimator=clf) != long_way).nnz == 0
