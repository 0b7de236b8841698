"""TopK: a sequence of rows that compares, prints and becomes a DataFrame."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.topk import SHOWN, Prediction, TopK

LABELS = np.array([[1, 0], [2, 1], [0, 2]], np.int32)
SCORES = np.array([[0.5, 0.25], [1.5, -1], [2, 0]], np.float32)
NAMES = np.array(["a", "b", "c"])


def test_rows_one_by_one():
    top = TopK(LABELS, SCORES)
    assert top[0] == [Prediction(1, 0.5, None), Prediction(0, 0.25, None)]
    assert list(top)[2] == top[-1] == [(0, 2.0, None), (2, 0.0, None)]
    named = TopK(LABELS, SCORES, 0 * SCORES, NAMES)
    assert [[each.label for each in row] for row in named] == [["b", "a"], ["c", "b"], ["a", "c"]]
    assert named[1][0].probability == 0
    with pytest.raises(IndexError):
        top[3]


def test_parts_compare():
    top = TopK(LABELS, SCORES, names=NAMES)
    part = TopK(LABELS[1:], SCORES[1:])
    assert top[1:] == top[[1, 2]] == top[np.array([False, True, True])] == part
    assert top != part
    assert top != TopK(LABELS, SCORES, SCORES)
    assert top != "top"
    assert len(top[[]]) == 0
    assert top[1:].names is NAMES


def test_prints_as_a_table():
    assert str(TopK(LABELS, SCORES, names=NAMES)) == (
        "row  label 1  label 2\n0    b 0.500  a 0.250\n1    c 1.500  b -1.000\n2    a 2.000  c 0.000"
    )
    many = TopK(np.zeros((12, 1), np.int32), np.zeros((12, 1), np.float32))
    assert repr(many).startswith("TopK(12 rows, 1 labels each)\nrow  label 1\n0    0 0.000")
    assert repr(many).endswith("\n(12 rows)")
    assert not repr(many[:SHOWN]).endswith("rows)")  # all are shown


@pytest.mark.parametrize("chances", [None, np.float32([[0.9, 0.5, 0.1], [0.8, 0.6, 0.2]])])
def test_pairs_are_left_out_and_what_fills_up_is_never_predicted(chances):
    labels, scores = np.int32([[1, 0, 2], [2, 1, 0]]), np.float32([[3, 2, 1], [6, 5, 4]])
    left_out = sp.csr_array(np.array([[0, 1, 0], [1, 0, 1]]))
    found = TopK(labels, scores, chances, NAMES).without(left_out, 2)
    assert found.labels.tolist() == [[0, 2], [1, 2]]
    assert found.scores.tolist() == [[2, 1], [5, -np.inf]]
    assert found.names is NAMES
    if chances is None:
        assert found.probabilities is None
    else:
        np.testing.assert_array_equal(found.probabilities, np.float32([[0.5, 0.1], [0.6, 0]]))


def test_a_frame():
    frame = TopK(LABELS, SCORES, SCORES, NAMES).to_frame()
    assert frame.columns.tolist() == ["row", "rank", "label", "score", "probability"]
    assert frame.label.tolist() == ["b", "a", "c", "b", "a", "c"]
    assert frame["row"].tolist() == [0, 0, 1, 1, 2, 2]
    assert "probability" not in TopK(LABELS, SCORES).to_frame()


def test_an_estimator_names_its_labels_and_takes_no_rows():
    clf = lt.OneVsAll().fit(["red apple", "green leaf", "red leaf"], [["fruit"], ["plant"], ["plant"]])
    top = clf.predict_topk(["red apple"], 2)
    assert [each.label for each in top[0]] == ["fruit", "plant"]
    none = clf.predict_topk([], 2)
    assert (len(none), none.labels.shape, list(none)) == (0, (0, 2), [])
    assert str(none) == "row  label 1  label 2"
    assert clf.predict([]).shape == (0, 2)


def test_wrong_columns_are_explained():
    clf = lt.OneVsAll().fit(["red apple", "green leaf"], [["fruit"], ["plant"]])
    other = lt.Dataset.from_texts(["one two three four five"], [["fruit"]])
    with pytest.raises(ValueError, match=r"X has 5 features, but OneVsAll is expecting 4 .*read\(path, like=model\)"):
        clf.predict_topk(other)
