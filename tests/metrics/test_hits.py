"""metrics/hits and metrics/truth: the kernel equals its twin, and bad input stops at the door with a remedy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from longtail.errors import InputError
from longtail.metrics.hits import find_hits
from longtail.metrics.truth import read_truth
from longtail.topk import TopK

from . import reference as ref

TRUTH = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]])
LABELS = np.array([[2, 1], [0, 3], [3, 1]], np.int32)
HIT = [[True, False], [False, False], [True, True]]


@settings(deadline=None, max_examples=100)
@given(ref.cases())
def test_kernel_equals_its_twin(case):
    hits = find_hits(case.Y, case.labels)
    assert np.array_equal(hits.hit, ref.mark_hits(case.truth, case.labels))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32])
def test_every_sparse_form_is_accepted(form, kind, dtype):
    Y = getattr(sparse, f"{form}_{kind}")(TRUTH.astype(dtype))
    assert find_hits(Y, LABELS).hit.tolist() == HIT


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint8, ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_integer_type_and_layout_of_predictions_is_accepted(dtype, order):
    labels = np.array(LABELS, dtype, order=order)
    labels.flags.writeable = False
    assert find_hits(sparse.csr_array(TRUTH), labels).hit.tolist() == HIT
    assert find_hits(sparse.csr_array(TRUTH), labels[::-1][::-1]).hit.tolist() == HIT


def test_top_k_objects_lists_and_single_predictions_are_accepted():
    Y = sparse.csr_array(TRUTH)
    assert find_hits(Y, TopK(LABELS, np.zeros(LABELS.shape, np.float32))).hit.tolist() == HIT
    assert find_hits(Y, LABELS.tolist()).hit.tolist() == HIT
    assert find_hits(Y, LABELS[:, 0]).hit.tolist() == [[True], [False], [True]]


def test_unsorted_entries_explicit_zeros_wide_and_read_only_indices_do_not_matter():
    data, indices, indptr = (
        np.array([1, 0, 1, 1, 1]),
        np.array([2, 3, 0, 3, 1], np.int64),
        np.array([0, 3, 3, 5], np.int64),
    )
    for array in (data, indices, indptr):
        array.flags.writeable = False
    Y = sparse.csr_array((data, indices, indptr), shape=(3, 4))
    Y.has_sorted_indices = Y.has_canonical_format = True  # a lie that must not be believed
    hits = find_hits(Y, LABELS)
    assert hits.hit.tolist() == HIT
    assert hits.truth.sizes.tolist() == [2, 0, 2]
    assert indices.tolist() == [2, 3, 0, 3, 1], "the user's arrays are left as they were"


def test_class_ids_need_not_contain_the_predicted_class():
    hits = find_hits([0, 2], [[2, 0], [5, 2]])
    assert hits.hit.tolist() == [[False, True], [False, True]]
    assert hits.truth.n_labels == 6


def test_restriction_keeps_rows_with_a_chosen_label_and_all_predictions():
    part = find_hits(sparse.csr_array(TRUTH), LABELS).restricted(np.array([True, True, False, False]))
    assert part.labels.tolist() == [[2, 1], [3, 1]]
    assert part.hit.tolist() == [[False, False], [False, True]]
    assert part.truth.indices.tolist() == [0, 1]
    assert part.truth.indptr.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("top", "k", "message"),
    [
        (LABELS[:1], None, "top has 1 rows, but Y has 3"),
        (LABELS[:2], None, "top has 2 rows, but Y has 3"),
        ([[0, 4], [0, 1], [0, 1]], None, "label id 4, but the 4 columns of Y count from 0"),
        ([[0, -1], [0, 1], [0, 1]], None, "label id -1"),
        ([[0, 1], [0, 1], [3, 3]], None, "row 2 of top names a label twice"),
        (LABELS, 3, "k is 3, but top holds 2 labels per row; predict them with predict_topk(X, k=3)"),
        (LABELS, 0, "k must be a whole number of at least 1"),
        (LABELS, True, "k must be a whole number of at least 1"),
        (LABELS.astype(float), None, "top has dtype float64"),
        (LABELS[None], None, "shape (1, 3, 2)"),
        ([[0, 1], [0], [0, 1]], None, "top has rows of unequal lengths"),
    ],
)
def test_wrong_predictions_are_refused_with_a_remedy(top, k, message):
    with pytest.raises(InputError, match=re.escape(message)):
        find_hits(sparse.csr_array(TRUTH), top, k)


def _broken_csr():
    Y = sparse.csr_array(TRUTH)
    Y.indices[0] = 99
    return Y


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (TRUTH, "wrap a 0/1 matrix as scipy.sparse.csr_array(Y)"),
        ([[0, 1], [2]], "Y is a list of lists; give a sparse matrix"),
        (["cat", "dog"], "give class ids, the whole numbers that `top` uses"),
        ([0.0, 1.0], "Y holds float64 values"),
        ([0, -3], "class id -3; ids count from 0"),
        ([0, 10**12], "more than the 2,147,483,646 that can be numbered"),
        ([], "Y has no rows"),
        (sparse.csr_array((0, 5)), "Y has no rows"),
        (
            sparse.csr_array([[0, 2]]),
            "an indicator Y holds only 0 and 1, but 2 was found; mark each label of a row by 1",
        ),
        (sparse.csr_array([[0, -1]]), "an indicator Y holds only 0 and 1, but -1 was found"),
        (sparse.csr_array([[0, np.nan]]), "an indicator Y holds only 0 and 1, but nan was found"),
        (sparse.coo_array(np.array([0, 1])), "Y is sparse but has 1 dimension"),
        (_broken_csr(), "not a valid sparse matrix"),
    ],
)
def test_wrong_truth_is_refused_with_a_remedy(Y, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_truth(Y)


def test_label_counts_must_agree():
    with pytest.raises(InputError, match="train_Y has 4 labels, but 5 are expected"):
        read_truth(sparse.csr_array(TRUTH), name="train_Y", n_labels=5)
    with pytest.raises(InputError, match="class id 7, but there are only 5 labels"):
        read_truth([0, 7], n_labels=5)
