"""Fitting calibrators: known probabilities are found again, signs are right, and hard cases have an answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.calibration import HeldOut, calibrated, fit_calibrator
from longtail.calibration.fitting import _clearly_better
from longtail.matrix import indicator
from longtail.topk import TopK

N_LABELS = 40


def sample(n: int = 3000, k: int = 5, seed: int = 0, scale: float = 1.0) -> tuple[HeldOut, np.ndarray, np.ndarray]:
    """Held-out rows whose labels are true with known probabilities; these, and the training rows of labels."""
    rng = np.random.default_rng(seed)
    counts = np.random.default_rng(99).integers(1, 200, N_LABELS)
    labels = np.argsort(rng.random((n, N_LABELS)), axis=1)[:, :k]
    scores = -np.sort(-rng.normal(size=(n, k)), axis=1)
    z = -3 + 1.5 * scores + 0.4 * np.log1p(counts[labels]) - 0.7 * np.log(np.arange(1, k + 1)) - 0.3 * scores[:, :1]
    p = 1 / (1 + np.exp(-z))
    hit = rng.random(p.shape) < p
    row = np.repeat(np.arange(n), hit.sum(axis=1))
    Y = indicator(sp.csr_array((np.ones(len(row), np.int32), (row, labels[hit])), shape=(n, N_LABELS)))
    top = TopK(labels.astype(np.int32), (scale * scores).astype(np.float32))
    return HeldOut.of(top, Y, counts), counts, p


def test_true_probabilities_are_found_again():
    held_out, counts, p = sample()
    fresh, _, truth = sample(seed=1)
    calibrator = fit_calibrator(held_out, counts, 1000, log_scores=False)
    found = calibrator.probabilities(fresh.top.labels, fresh.top.scores)
    constant = np.abs(p.mean() - truth).mean()
    assert np.abs(found - truth).mean() < 0.25 * constant
    assert np.abs(found.mean() - truth.mean()) < 0.02


def test_hits_are_those_of_the_labels():
    held_out, _, _ = sample(200)
    assert held_out.n_positives == held_out.hit.sum()
    assert held_out.hit.shape == held_out.frequency.shape == (200, 5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_probabilities_rise_with_the_score_whatever_the_data(seed):
    """Also if hits are random, or more frequent at low scores: Calibrator itself refuses wrong signs."""
    rng = np.random.default_rng(seed)
    held_out, counts, _ = sample(60, seed=seed)
    hit = rng.random(held_out.hit.shape) < (held_out.top.scores < 0) * rng.random()
    odd = HeldOut(held_out.top, hit, held_out.frequency, held_out.positives)
    calibrator = fit_calibrator(odd, counts, 1000, log_scores=False)
    p = calibrator.probabilities(np.zeros((60, 5), int), held_out.top.scores)
    assert (np.diff(p, axis=1) <= 0).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_only_hits_or_none_give_a_constant(share):
    held_out, counts, _ = sample(50)
    hit = np.full(held_out.hit.shape, bool(share))
    calibrator = fit_calibrator(
        HeldOut(held_out.top, hit, held_out.frequency, held_out.positives), counts, 1000, log_scores=False
    )
    p = calibrator.probabilities(held_out.top.labels, held_out.top.scores)
    assert np.ptp(p) == 0
    assert 0 < p[0, 0] < 1
    assert abs(p[0, 0] - share) < 0.01


def test_a_frequency_that_is_the_same_for_all_labels_has_no_coefficient():
    held_out, _, _ = sample(400)
    equal = HeldOut(held_out.top, held_out.hit, np.full_like(held_out.frequency, 7), held_out.positives)
    found = fit_calibrator(equal, np.full(N_LABELS, 7), 1000, log_scores=False).coefficients
    assert found.frequency == 0
    assert found.margin > 0


def test_a_frequency_that_lowers_precision_is_not_used():
    held_out, counts, _ = sample(400)
    first = np.zeros(held_out.hit.shape, bool)
    first[:, 0] = True  # the best score is always right, so no other order can be better
    noisy = HeldOut(held_out.top, first, held_out.frequency, held_out.positives)
    assert fit_calibrator(noisy, counts, 1000, log_scores=False).keeps_order


def test_a_frequency_needs_a_gain_that_is_more_than_chance():
    before = np.zeros((100, 5), bool)
    better = before.copy()
    better[:3] = True  # 3 rows of 100 gain: 1.7 standard errors
    assert not _clearly_better(better, before)
    better[:10] = True
    assert _clearly_better(better, before)
    better[:, 0] = before[:, 0]  # P@1 is as before
    assert not _clearly_better(better, before)
    assert not _clearly_better(before, before)


def test_the_best_labels_weigh_more_than_the_others():
    """The first five are less often right than others with their scores, which (1) cannot say."""
    rng = np.random.default_rng(0)
    n, k = 2000, 40
    scores = -np.sort(-rng.normal(size=(n, k)), axis=1).astype(np.float32)
    hit = rng.random((n, k)) < 1 / (1 + np.exp((np.arange(k) < 5) - scores))
    held_out = HeldOut(TopK(np.tile(np.arange(k), (n, 1)), scores), hit, np.full((n, k), 7), hit.sum(axis=0))
    found = calibrated(held_out, fit_calibrator(held_out, np.full(k, 7), 5000, log_scores=False))
    errors = found.top.probabilities - found.hit
    assert abs(errors[:, :5].mean()) < 0.03  # 0.05 if all had the same weight
    assert abs(errors.mean()) < 0.03


def test_scores_that_are_probabilities_are_taken_as_logarithms():
    held_out, counts, _ = sample(500)
    as_probabilities = TopK(held_out.top.labels, np.exp(held_out.top.scores.astype(np.float64) - 5))
    other = HeldOut(as_probabilities, held_out.hit, held_out.frequency, held_out.positives)
    a = fit_calibrator(held_out, counts, 1000, log_scores=False)
    b = fit_calibrator(other, counts, 1000, log_scores=True)
    np.testing.assert_allclose(
        a.probabilities(held_out.top.labels, held_out.top.scores),
        b.probabilities(other.top.labels, other.top.scores),
        atol=0.01,
    )


def test_the_scale_of_scores_does_not_matter():
    a, counts, _ = sample(500)
    b, _, _ = sample(500, scale=1000.0)
    p, q = (calibrated(each, fit_calibrator(each, counts, 1000, log_scores=False)) for each in (a, b))
    np.testing.assert_allclose(p.top.probabilities, q.top.probabilities, atol=0.01)


def test_calibrated_rows_are_sorted_together():
    held_out, counts, _ = sample(100)
    ranked = calibrated(held_out, fit_calibrator(held_out, counts, 1000, log_scores=False))
    assert (np.diff(ranked.top.probabilities, axis=1) <= 0).all()
    before = {
        (i, label): hit for i in range(100) for label, hit in zip(held_out.top.labels[i], held_out.hit[i], strict=True)
    }
    after = {
        (i, label): hit for i in range(100) for label, hit in zip(ranked.top.labels[i], ranked.hit[i], strict=True)
    }
    assert before == after


def test_folds_are_joined():
    a, _, _ = sample(30, seed=1)
    b, _, _ = sample(20, seed=2)
    both = HeldOut.joined([a, b])
    assert len(both.top) == 50
    np.testing.assert_array_equal(both.positives, a.positives + b.positives)
    np.testing.assert_array_equal(both.hit[30:], b.hit)
