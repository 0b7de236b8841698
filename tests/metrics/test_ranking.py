"""metrics/ranking and metrics/multiclass: by hand, against brute force and scikit-learn, and by their invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse
from sklearn.metrics import accuracy_score, f1_score, ndcg_score, precision_score, recall_score, top_k_accuracy_score

from longtail import metrics
from longtail.errors import InputError
from longtail.metrics import accuracy, coverage_curve, macro_f1, maf1, ndcg_curve, precision_curve, recall_curve

from . import reference as ref

# Rows: one hit at rank 2 of three true labels; no true label; both predictions true, one label missed.
Y = sparse.csr_array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 1, 1]])
TOP = np.array([[3, 0], [1, 2], [4, 3]])
METRICS = [precision_curve, ndcg_curve, recall_curve, coverage_curve]


def test_by_hand():
    assert precision_curve(Y, TOP) == pytest.approx([(0 + 0 + 1) / 3, (1 / 2 + 0 + 1) / 3])
    second = 1 / np.log2(3)
    assert ndcg_curve(Y, TOP) == pytest.approx([1 / 3, (second / (1 + second) + 0 + 1) / 3])
    assert recall_curve(Y, TOP) == pytest.approx([(0 + 0 + 1 / 3) / 3, (1 / 3 + 0 + 2 / 3) / 3])
    assert coverage_curve(Y, TOP) == pytest.approx([1 / 5, 3 / 5])


def test_precision_divides_by_k_but_ndcg_and_recall_by_what_is_possible():
    one_label, top = sparse.csr_array([[0, 1, 0, 0, 0]]), [[1, 0, 2, 3, 4]]
    assert precision_curve(one_label, top) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert ndcg_curve(one_label, top) == pytest.approx([1] * 5)
    assert recall_curve(one_label, top) == pytest.approx([1] * 5)


def test_k_takes_the_first_columns():
    for metric in METRICS:
        assert metric(Y, TOP, 1).tolist() == metric(Y, TOP[:, :1]).tolist() == metric(Y, TOP)[:1].tolist()


@pytest.mark.parametrize("name", ["precision", "ndcg", "recall", "coverage"])
def test_at_k_is_one_point_of_the_curve(name):
    at_k, curve = getattr(metrics, f"{name}_at_k"), getattr(metrics, f"{name}_curve")
    for k in (1, 2):
        assert type(at_k(Y, TOP, k)) is float
        assert at_k(Y, TOP, k) == curve(Y, TOP)[k - 1]
    for k in (0, 3, None):
        with pytest.raises(InputError, match="k"):
            at_k(Y, TOP, k)


@pytest.mark.parametrize("metric", METRICS[:3])
def test_a_row_without_labels_counts_as_zero(metric):
    labelled = metric(Y[[0, 2]], TOP[[0, 2]])
    assert metric(Y, TOP) == pytest.approx(labelled * 2 / 3)


@pytest.mark.parametrize("metric", METRICS)
def test_a_truth_without_any_label_gives_zero(metric):
    assert metric(sparse.csr_array((3, 5)), TOP).tolist() == [0, 0]


@settings(deadline=None, max_examples=150)
@given(ref.cases())
def test_equal_to_brute_force(case):
    for metric, twin in zip(METRICS, [ref.precision, ref.ndcg, ref.recall, ref.coverage], strict=True):
        expected = [twin(case.truth, case.labels, k) for k in range(1, case.k + 1)]
        assert metric(case.Y, case.labels) == pytest.approx(expected)


@settings(deadline=None, max_examples=60)
@given(ref.cases())
def test_ndcg_equals_scikit_learn(case):
    scores = np.zeros(case.truth.shape)  # labels that were not predicted tie at zero, behind all that were
    np.put_along_axis(scores, case.labels, np.arange(case.k, 0, -1.0)[None], axis=1)
    expected = [ndcg_score(case.truth, scores, k=k, ignore_ties=True) for k in range(1, case.k + 1)]
    assert ndcg_curve(case.Y, case.labels) == pytest.approx(expected)


@settings(deadline=None, max_examples=60)
@given(ref.cases(multiclass=True))
def test_multiclass_equals_scikit_learn_and_brute_force(case):
    true, first, L = case.truth.argmax(axis=1), case.labels[:, 0], case.truth.shape[1]
    present = np.unique(true)
    options = {"labels": present, "average": "macro", "zero_division": 0}
    P, R = precision_score(true, first, **options), recall_score(true, first, **options)
    assert accuracy(case.Y, case.labels) == pytest.approx(accuracy_score(true, first))
    assert maf1(case.Y, case.labels) == pytest.approx(2 * P * R / (P + R) if P + R else 0.0)
    assert maf1(case.Y, case.labels) == pytest.approx(ref.maf1(case.truth, case.labels))
    assert macro_f1(case.Y, case.labels) == pytest.approx(f1_score(true, first, average="macro", zero_division=0))
    assert macro_f1(true, case.labels) == pytest.approx(macro_f1(case.Y, case.labels))
    scores = np.zeros((len(true), L))
    np.put_along_axis(scores, case.labels, np.arange(case.k, 0, -1.0)[None], axis=1)
    if L > 2:  # scikit-learn takes two classes as a binary problem with other scores
        expected = [
            top_k_accuracy_score(true, scores, k=k, labels=np.arange(L)) for k in range(1, min(case.k, L - 1) + 1)
        ]
        assert recall_curve(case.Y, case.labels)[: len(expected)] == pytest.approx(expected)
    assert recall_curve(true, case.labels) == pytest.approx(recall_curve(case.Y, case.labels)), "class ids are as good"


def test_macro_f1_and_maf1_by_hand():
    true, predicted = [0, 0, 0, 1, 2], [0, 0, 1, 1, 5]  # precision 1, 1/2, 0 and recall 2/3, 1, 0
    P, R = (1 + 1 / 2 + 0) / 3, (2 / 3 + 1 + 0) / 3
    assert maf1(true, predicted) == pytest.approx(2 * P * R / (P + R))
    assert macro_f1(true, predicted) == pytest.approx((4 / 5 + 2 / 3 + 0 + 0) / 4)  # classes 0, 1, 2 and 5
    assert accuracy(true, predicted) == pytest.approx(3 / 5)
    assert macro_f1([0, 1], [1, 0]) == maf1([0, 1], [1, 0]) == 0.0


@pytest.mark.parametrize("metric", [accuracy, macro_f1, maf1])
def test_multiclass_metrics_refuse_other_data(metric):
    with pytest.raises(InputError, match="row 0 of Y has 3 labels; accuracy, macro-F1 and MaF1 need exactly one"):
        metric(Y, TOP)


@settings(deadline=None, max_examples=60)
@given(ref.cases())
def test_between_zero_and_one_and_one_for_a_perfect_ranking(case):
    for metric in METRICS:
        curve = metric(case.Y, case.labels)
        assert ((curve >= 0) & (curve <= 1 + 1e-12)).all()
    labelled = case.truth[case.truth.any(axis=1)]
    if len(labelled):
        perfect = np.argsort(-labelled, axis=1, kind="stable")
        assert ndcg_curve(sparse.csr_array(labelled), perfect) == pytest.approx(1.0)
        assert recall_curve(sparse.csr_array(labelled), perfect)[-1] == pytest.approx(1.0)
        assert coverage_curve(sparse.csr_array(labelled), perfect)[-1] == 1.0
        assert precision_curve(sparse.csr_array(labelled), perfect)[0] == 1.0


@settings(deadline=None, max_examples=60)
@given(ref.cases())
def test_renaming_labels_and_reordering_rows_change_nothing(case):
    rng = np.random.default_rng(0)
    name, rows = rng.permutation(case.truth.shape[1]), rng.permutation(len(case.truth))
    renamed = np.zeros_like(case.truth)
    renamed[:, name] = case.truth
    for metric in METRICS:
        expected = metric(case.Y, case.labels)
        assert metric(sparse.csr_array(renamed[rows]), name[case.labels][rows]) == pytest.approx(expected)
