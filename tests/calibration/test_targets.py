"""Thresholds: each target against an exhaustive search, and targets that cannot be reached."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.calibration import HeldOut, choose
from longtail.calibration.targets import reached
from longtail.errors import InputError
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

N_LABELS = 8
COUNTS = np.array([500, 300, 50, 40, 30, 5, 4, 1])


def held_out(seed: int = 0, n: int = 80, k: int = 5, *, coarse: bool = False) -> HeldOut:
    """Probabilities that say something about the hits; with `coarse`, many of them are equal."""
    rng = np.random.default_rng(seed)
    labels = np.argsort(rng.random((n, N_LABELS)), axis=1)[:, :k].astype(np.int32)
    p = -np.sort(-rng.random((n, k)), axis=1)
    p = (np.round(p, 1) if coarse else p).astype(np.float32)
    hit = rng.random(p.shape) < p
    positives = np.bincount(labels[hit], minlength=N_LABELS) + rng.integers(0, 5, N_LABELS)
    return HeldOut(TopK(labels, p, p), hit, COUNTS[labels], positives)


def micro_f1(rows: HeldOut, limit: float) -> float:
    chosen = rows.top.probabilities > limit
    return 2 * (chosen & rows.hit).sum() / (chosen.sum() + rows.positives.sum())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.booleans())
def test_micro_f1_is_the_best_of_all_thresholds(seed, coarse):
    rows = held_out(seed, coarse=coarse)
    found = choose("micro-f1", "micro-f1", {}, rows, COUNTS)
    every = [-1.0, *np.unique(rows.top.probabilities).tolist()]
    assert found.figures["f1"] == pytest.approx(max(micro_f1(rows, limit) for limit in every))
    assert found.figures["f1"] == pytest.approx(micro_f1(rows, float(found.limits)))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.booleans(), st.floats(0.3, 0.9))
def test_precision_is_reached_with_as_much_recall_as_possible(seed, coarse, wanted):
    rows = held_out(seed, coarse=coarse)
    found = choose("precision", "precision", {"at_least": wanted}, rows, COUNTS)
    assert found.figures["precision"] >= wanted
    best = 0.0
    for limit in [-1.0, *np.unique(rows.top.probabilities).tolist()]:
        chosen = rows.top.probabilities > limit
        hits = (chosen & rows.hit).sum()
        if chosen.any() and hits / chosen.sum() >= wanted:
            best = max(best, hits / rows.positives.sum())
    assert found.figures["recall"] == pytest.approx(best)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.booleans(), st.floats(0.1, 0.7))
def test_recall_is_reached_with_as_few_labels_as_possible(seed, coarse, wanted):
    rows = held_out(seed, coarse=coarse)
    found = choose("recall", "recall", {"at_least": wanted}, rows, COUNTS)
    assert found.figures["recall"] >= wanted
    fewest = min(
        int((rows.top.probabilities > limit).sum())
        for limit in [-1.0, *np.unique(rows.top.probabilities).tolist()]
        if ((rows.top.probabilities > limit) & rows.hit).sum() / rows.positives.sum() >= wanted
    )
    assert found.figures["labels_per_row"] == pytest.approx(fewest / len(rows.top))


def macro_f1(rows: HeldOut, limits: np.ndarray) -> float:
    chosen = rows.top.probabilities > limits[rows.top.labels]
    total = 0.0
    for label in range(N_LABELS):
        mine = rows.top.labels == label
        hits = (chosen & rows.hit & mine).sum()
        total += 2 * hits / max((chosen & mine).sum() + rows.positives[label], 1)
    return total / N_LABELS


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_gains_with_thresholds_of_bands_and_labels(seed):
    rows = held_out(seed, n=400)
    micro = choose("micro-f1", "micro-f1", {}, rows, COUNTS)
    by_band = choose("macro-f1", "macro-f1", {"by": "band"}, rows, COUNTS)
    by_label = choose("macro-f1", "macro-f1", {"by": "label"}, rows, COUNTS)
    assert len(np.unique(by_band.limits)) <= 3
    assert by_band.limits[0] == by_band.limits[1]  # both are in the head
    plain = macro_f1(rows, np.full(N_LABELS, float(micro.limits)))
    assert macro_f1(rows, by_band.limits) >= plain - 0.005  # the grid has 200 thresholds
    assert macro_f1(rows, by_label.limits) >= macro_f1(rows, by_band.limits)


def test_a_label_with_few_held_out_rows_takes_the_threshold_of_its_band():
    rows = held_out(3, n=400)
    few = HeldOut(rows.top, rows.hit, rows.frequency, np.full(N_LABELS, 9))
    by_label = choose("macro-f1", "macro-f1", {"by": "label"}, few, COUNTS)
    assert len(np.unique(by_label.limits)) <= 3


def test_targets_that_cannot_be_reached():
    rows = held_out()
    with pytest.raises(InputError, match="highest is"):
        choose("precision", "precision", {"at_least": 1.1}, rows, COUNTS)
    with pytest.raises(InputError, match="5 candidates of a row have"):
        choose("recall", "recall", {"at_least": 0.99999}, rows, COUNTS)
    with pytest.raises(InputError, match="at least 1 label"):
        choose("top", "top", {"k": 0}, rows, COUNTS)


def test_targets_without_rows():
    top = choose("top:k=3", "top", {"k": 3}, None, None)
    assert (top.per_row, dict(top.figures)) == (3, {})
    assert float(choose("fixed", "fixed", {"value": 0.2}, None, None).limits) == 0.2


def test_what_thresholds_reach():
    top = TopK(np.array([[0, 1], [1, 2]]), np.zeros((2, 2)), np.array([[0.9, 0.6], [0.4, 0.3]]))
    rows = HeldOut(top, np.array([[True, False], [True, False]]), np.zeros((2, 2)), np.array([1, 2, 0]))
    figures = reached(choose("fixed", "fixed", {"value": 0.5}, None, None), rows)
    assert figures == {
        "precision": 0.5,
        "recall": pytest.approx(1 / 3),
        "f1": pytest.approx(0.4),
        "labels_per_row": 1.0,
    }


def test_figures_of_a_single_label_and_of_none():
    """One row with candidates of which one is returned, and it is right; then nothing is returned."""
    p = np.float32([[0.9, 0.2]])
    rows = HeldOut(TopK(np.int32([[3, 1]]), p, p), np.array([[True, False]]), COUNTS[[[3, 1]]], np.eye(8, dtype=int)[3])
    single = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "labels_per_row": 1.0}
    assert reached(choose("micro-f1", "micro-f1", {}, rows, COUNTS), rows) == single
    none = Thresholds("fixed", np.array(0.95, np.float32))
    assert set(reached(none, rows).values()) == {0.0}


def test_a_recall_that_cannot_be_reached_tells_what_can():
    p = np.float32([[0.9, 0.2], [0.8, 0.1]])
    labels = np.int32([[3, 1], [2, 0]])
    hit = np.array([[True, False], [False, True]])
    rows = HeldOut(TopK(labels, p, p), hit, COUNTS[labels], np.array([1, 1, 0, 1, 1, 0, 0, 0]))
    with pytest.raises(InputError, match=r"recall of at least 0.9 on these rows; the 2 candidates of a row have 0.5$"):
        choose("recall", "recall", {"at_least": 0.9}, rows, COUNTS)
