"""Metrics of predicted sets against scikit-learn, and of probabilities against slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import precision_recall_fscore_support

from longtail import metrics
from longtail.errors import InputError
from longtail.topk import TopK


def indicators(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (rng.random((30, 9)) < 0.2).astype(int), (rng.random((30, 9)) < 0.25).astype(int)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("average", ["micro", "macro", "samples"])
@pytest.mark.parametrize("zero_division", [0.0, 1.0, math.nan])
def test_sets_are_measured_as_in_scikit_learn(seed, average, zero_division):
    truth, found = indicators(seed)
    used = np.flatnonzero(truth.any(axis=0) | found.any(axis=0))
    labels = None if average == "samples" else used
    expected = precision_recall_fscore_support(
        truth, found, labels=labels, average=average, zero_division=zero_division
    )[:3]
    name = average.removesuffix("s")
    measured = metrics.set_metrics(sp.csr_array(truth), sp.csr_array(found), zero_division=zero_division)
    assert [measured[f"{name}-{each}"] for each in ("precision", "recall", "F1")] == pytest.approx(expected)


def test_nothing_predicted_and_nothing_true():
    nothing, truth = sp.csr_array((4, 3), dtype=int), sp.csr_array(np.eye(4, 3, dtype=int))
    assert set(metrics.set_metrics(truth, nothing).values()) == {0.0}
    assert set(metrics.set_metrics(nothing, nothing).values()) == {0.0}
    assert metrics.set_metrics(truth, truth)["micro-F1"] == 1.0


def test_a_label_that_is_only_predicted_counts_in_the_macro_average_and_one_of_neither_does_not():
    truth, found = np.array([[1, 0, 0], [1, 0, 0]]), np.array([[1, 1, 0], [1, 0, 0]])
    assert metrics.set_metrics(sp.csr_array(truth), sp.csr_array(found))["macro-F1"] == 0.5
    assert metrics.set_metrics(sp.csr_array(found), sp.csr_array(truth))["macro-F1"] == 0.5


def test_shapes_must_agree():
    with pytest.raises(InputError, match="shape"):
        metrics.set_metrics(sp.csr_array((4, 3), dtype=int), sp.csr_array((4, 2), dtype=int))


def predictions(seed: int, n: int = 200, k: int = 6) -> tuple[sp.csr_array, TopK]:
    rng = np.random.default_rng(seed)
    truth = sp.csr_array((rng.random((n, 12)) < 0.3).astype(int))
    labels = np.argsort(rng.random((n, 12)), axis=1)[:, :k]
    return truth, TopK(labels, np.zeros((n, k)), rng.random((n, k)).astype(np.float32))


def slow_pairs(truth: sp.csr_array, top: TopK, k: int) -> list[tuple[float, bool]]:
    dense = truth.toarray()
    return [
        (float(top.probabilities[i, j]), bool(dense[i, top.labels[i, j]])) for i in range(len(top)) for j in range(k)
    ]


@pytest.mark.parametrize("k", [1, 5])
def test_the_calibration_error_is_the_mean_over_bins(k):
    truth, top = predictions(1)
    pairs = sorted(slow_pairs(truth, top, k))
    size = len(pairs) // 20
    bins = [pairs[at : at + size] for at in range(0, len(pairs), size)]
    expected = np.mean([abs(np.mean([p for p, _ in each]) - np.mean([hit for _, hit in each])) for each in bins])
    assert metrics.calibration_error(truth, top, k) == pytest.approx(expected)


def test_log_loss():
    truth, top = predictions(2)
    pairs = slow_pairs(truth, top, 3)
    expected = -np.mean([math.log(p if hit else 1 - p) for p, hit in pairs])
    assert metrics.log_loss(truth, top, 3) == pytest.approx(expected)


def test_certain_and_wrong_is_costly_but_finite():
    truth = sp.csr_array(np.array([[0, 1]]))
    top = TopK(np.array([[0]]), np.zeros((1, 1)), np.ones((1, 1)))
    assert metrics.log_loss(truth, top, 1) == pytest.approx(-math.log(1e-15))


def test_true_probabilities_have_a_small_error_and_wrong_ones_a_large_one():
    rng = np.random.default_rng(0)
    p = rng.random((4000, 1)).astype(np.float32)
    truth = sp.csr_array((rng.random((4000, 1)) < p).astype(int))
    labels = np.zeros((4000, 1), int)
    assert metrics.calibration_error(truth, TopK(labels, p, p)) < 0.03
    assert metrics.calibration_error(truth, TopK(labels, p, 1 - p)) > 0.4
    diagram = metrics.reliability(truth, TopK(labels, p, p))
    assert diagram.count.sum() == 4000
    assert (np.diff(diagram.probability) > 0).all()


def test_scores_without_probabilities_are_refused():
    truth, top = predictions(1)
    with pytest.raises(InputError, match="calibrate=True"):
        metrics.calibration_error(truth, TopK(top.labels, top.scores))
