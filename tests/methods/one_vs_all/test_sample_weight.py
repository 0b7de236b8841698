"""Weights of rows, against scikit-learn and against the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import longtail as lt
from longtail.errors import InputError
from longtail.hybrid import split
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import random_problem, text_like

TIGHT = {"tol": 1e-6, "prune": 0.0, "n_jobs": 1}


def weights_of(n, seed=0):
    return np.random.default_rng(seed).choice([0.0, 0.3, 1.0, 4.0], size=n)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("dense", [False, True])
def test_weights_are_those_of_scikit_learn(loss, dense):
    X, Y = random_problem(5, n=60, d=8, L=4, density=0.7)
    weight = weights_of(60)
    rows = X.toarray() + np.float32(0.1) if dense else X
    clf = lt.OneVsAll(C=0.7, loss=loss, positive_weight=2.0, **TIGHT).fit(rows, Y, sample_weight=weight)
    for label in (2, 3):
        y = Y[:, [label]].toarray().ravel()
        other = (
            LinearSVC(C=0.7, dual=False, tol=1e-8, class_weight={1: 2.0})
            if loss == "squared_hinge"
            else LogisticRegression(C=0.7, solver="liblinear", tol=1e-8, class_weight={1: 2.0})
        )
        other.fit(rows, y, sample_weight=weight)
        expected = np.append(other.coef_[0], other.intercept_[0])
        np.testing.assert_allclose(clf.model_.all_weights()[[label]].toarray().ravel(), expected, atol=2e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_rows_of_weight_zero_count_as_absent(loss):
    X, Y = text_like(1, n=150, L=8)
    X = split(X)  # of all rows, so that both fits have the same dense columns and sum in the same order
    weight = weights_of(150)
    used = weight > 0
    clf = lt.OneVsAll(loss=loss, n_jobs=1).fit(X, Y, weight)
    without = lt.OneVsAll(loss=loss, n_jobs=1).fit(X[used], Y[used], sample_weight=weight[used])
    assert (clf.model_.all_weights() != without.model_.all_weights()).nnz == 0


@pytest.mark.parametrize("start", ["msi", "ova-primal", "bias"])
def test_the_objective_is_that_of_the_weighted_rows(start):
    X, Y = text_like(2, n=150, L=6)
    weight = weights_of(150)
    clf = lt.OneVsAll(start=start, **TIGHT).fit(X, Y, sample_weight=weight)
    A = ref.augmented(X, 1.0)
    for label in range(6):
        y = np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
        best = ref.optimum("squared_hinge", A, y, weight)
        assert clf.training_.objective[label] == pytest.approx(best, rel=1e-5)
        assert clf.training_.gap[label] < 1e-3


def test_equal_weights_multiply_c():
    X, Y = text_like(2, n=100, L=5)
    weighted = lt.OneVsAll(C=1.0, **TIGHT).fit(X, Y, sample_weight=np.full(100, 3.0))
    plain = lt.OneVsAll(C=3.0, solver="newton", **TIGHT).fit(X, Y)
    np.testing.assert_allclose(weighted.model_.all_weights().toarray(), plain.model_.all_weights().toarray(), atol=1e-4)


def test_weights_go_through_calibration_and_run_folders(tmp_path):
    X, Y = text_like(2, n=120, L=5)
    weight = weights_of(120) + 0.1
    one = lt.OneVsAll(calibrate="held-out", n_jobs=1).fit(X, Y, sample_weight=weight)
    two = lt.OneVsAll(calibrate="held-out", n_jobs=1).fit(X, Y, sample_weight=weight, run=tmp_path / "run")
    assert (one.model_.all_weights() != two.model_.all_weights()).nnz == 0
    assert "sample_weight" in one.training_.settings
    with pytest.raises(InputError, match="cannot know the weights of rows"):
        one.update(X, Y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0], r"sample_weight must be 4 numbers, one per row. Got an array of shape \(1,\)"),
        ([1, 2, -1, 3], "sample_weight must be finite and at least 0. Got -1.0 for row 2"),
        ([1, np.nan, 1, 1], "sample_weight must be finite and at least 0. Got nan for row 1"),
        (np.zeros(4), "sample_weight is zero for all rows"),
        ("heavy", "could not convert"),
    ],
)
def test_bad_weights_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        lt.OneVsAll().fit(np.eye(4), [0, 1, 0, 1], sample_weight=weight)


def test_the_dual_solver_takes_no_weights():
    with pytest.raises(InputError, match="solver='dual' takes no sample_weight"):
        lt.OneVsAll(solver="dual").fit(sp.csr_array(np.eye(2)), [0, 1], sample_weight=[1, 2])
