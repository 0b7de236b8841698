"""metrics/propensity: the weights, PSP and PSnDCG by hand, against brute force, and by their invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from longtail.errors import InputError
from longtail.metrics import (
    PROPENSITY_PRESETS,
    inverse_propensity,
    ndcg_curve,
    precision_curve,
    psndcg_at_k,
    psndcg_curve,
    psp_at_k,
    psp_curve,
)

from . import reference as ref

Y = sparse.csr_array([[1, 1, 0], [0, 0, 1], [0, 0, 0]])
TOP = np.array([[0, 2], [2, 1], [0, 1]])
INV_P = np.array([2.0, 4.0, 10.0])


def test_psp_by_hand():
    assert psp_curve(Y, TOP, inv_p=INV_P, normalized=False) == pytest.approx([(2 + 10 + 0) / 3, (2 + 10 + 0) / 2 / 3])
    assert psp_curve(Y, TOP, inv_p=INV_P) == pytest.approx([(2 + 10) / (4 + 10), (2 + 10) / (4 + 2 + 10)])


def test_psndcg_by_hand():
    second = 1 / np.log2(3)
    reached, best = 2 / (1 + second) + 10, (4 + 2 * second) / (1 + second) + 10
    assert psndcg_curve(Y, TOP, inv_p=INV_P, normalized=False) == pytest.approx([(2 + 10) / 3, reached / 3])
    assert psndcg_curve(Y, TOP, inv_p=INV_P) == pytest.approx([12 / 14, reached / best])


def test_weights_by_hand():
    train = sparse.csr_array(np.vstack([[1, 0], np.zeros((999, 2))]).astype(int))
    C = (np.log(1000) - 1) * 2.5**0.55
    assert inverse_propensity(train) == pytest.approx([1 + C * 2.5**-0.55, 1 + C * 1.5**-0.55])
    assert inverse_propensity(train)[0] == pytest.approx(np.log(1000)), "a label with one row weighs ln N"
    A, B = PROPENSITY_PRESETS["Amazon-670K"]
    C = (np.log(1000) - 1) * 3.6**0.6
    assert inverse_propensity(train, A=A, B=B) == pytest.approx([np.log(1000), 1 + C * 2.6**-0.6])


@pytest.mark.parametrize(("N", "heavier"), [(1, False), (2, False), (3, True)])
def test_tiny_training_data_never_gives_a_weight_below_one(N, heavier):
    weights = inverse_propensity(sparse.csr_array((N, 4)))
    assert (weights > 1).all() if heavier else weights.tolist() == [1.0] * 4


@settings(deadline=None, max_examples=60)
@given(ref.cases())
def test_weights_equal_brute_force_and_fall_with_frequency(case):
    weights = inverse_propensity(case.train_Y, A=0.5, B=0.4)
    assert weights == pytest.approx(ref.inverse_propensity(case.train, A=0.5, B=0.4))
    assert (np.diff(weights[np.argsort(case.train.sum(axis=0))]) <= 0).all()
    assert (weights >= 1).all()


@settings(deadline=None, max_examples=150)
@given(ref.cases())
def test_equal_to_brute_force(case):
    weights = inverse_propensity(case.train_Y)
    for metric, twin in [(psp_curve, ref.psp), (psndcg_curve, ref.psndcg)]:
        for normalized in (True, False):
            expected = [twin(case.truth, case.labels, weights, k, normalized) for k in range(1, case.k + 1)]
            assert metric(case.Y, case.labels, inv_p=weights, normalized=normalized) == pytest.approx(expected)


@settings(deadline=None, max_examples=60)
@given(ref.cases())
def test_normalised_is_between_zero_and_one_and_one_for_the_best_possible(case):
    weights = inverse_propensity(case.train_Y)
    best = np.argsort(-(case.truth * weights), axis=1, kind="stable")
    for metric in (psp_curve, psndcg_curve):
        curve = metric(case.Y, case.labels, inv_p=weights)
        assert ((curve >= 0) & (curve <= 1)).all()
        assert metric(case.Y, best, inv_p=weights) == pytest.approx(1.0 if case.truth.any() else 0.0)


@settings(deadline=None, max_examples=30)
@given(ref.cases())
def test_equal_weights_give_back_precision_and_ndcg(case):
    raw = {"inv_p": np.ones(case.truth.shape[1]), "normalized": False}
    assert psp_curve(case.Y, case.labels, **raw) == pytest.approx(precision_curve(case.Y, case.labels))
    assert psndcg_curve(case.Y, case.labels, **raw) == pytest.approx(ndcg_curve(case.Y, case.labels))


def test_class_ids_are_as_good_as_a_matrix():
    ids = np.array([0, 2, 2, 1])
    matrix = sparse.csr_array(np.eye(3, dtype=int)[ids])
    assert inverse_propensity(ids).tolist() == inverse_propensity(matrix).tolist()
    top = [[0], [1], [2], [1]]
    assert psp_curve(ids, top, inv_p=INV_P).tolist() == psp_curve(matrix, top, inv_p=INV_P).tolist()


@pytest.mark.parametrize("inv_p", [[1.0, 2.0, 0.0], [1.0, np.nan, 1.0], [[1.0, 1.0, 1.0]], ["a", "b", "c"]])
def test_unusable_weights_are_refused(inv_p):
    with pytest.raises(InputError, match=r"make it with inverse_propensity\(train_Y\)"):
        psp_curve(Y, TOP, inv_p=inv_p)


def test_weights_of_another_label_set_are_refused():
    with pytest.raises(InputError, match="Y has 3 labels, but 2 are expected"):
        psp_curve(Y, TOP, inv_p=[1.0, 2.0])


@pytest.mark.parametrize(("A", "B"), [(-1, 1), (0.5, 0), (0.5, -1), (np.nan, 1), (0.5, np.inf)])
def test_unusable_parameters_are_refused(A, B):
    with pytest.raises(InputError, match="propensities need A >= 0 and B > 0"):
        inverse_propensity(Y, A=A, B=B)


def test_at_k_is_one_point_of_the_curve():
    for at_k, curve in ((psp_at_k, psp_curve), (psndcg_at_k, psndcg_curve)):
        for normalized in (True, False):
            point = at_k(Y, TOP, 2, inv_p=INV_P, normalized=normalized)
            assert type(point) is float
            assert point == curve(Y, TOP, inv_p=INV_P, normalized=normalized)[1]
