"""Splits that treat rare labels fairly: sizes, guarantees for rare labels, no bias, determinism, errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import Dataset, split
from longtail.errors import InputError
from longtail.matrix import indicator


def long_tail(n: int = 400, n_labels: int = 150, seed: int = 0) -> sp.csr_array:
    """Rows with one to three labels; most labels have few rows."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_labels + 1)
    dense = np.zeros((n, n_labels), np.int32)
    for i in range(n):
        dense[i, rng.choice(n_labels, size=rng.integers(1, 4), p=share / share.sum())] = 1
    return indicator(sp.csr_array(dense))


def one_label(sizes: list[int]) -> sp.csr_array:
    """A label with each of these numbers of rows, one label per row, in random order."""
    columns = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return indicator(sp.csr_array((np.ones(len(columns), np.int32), (np.arange(len(columns)), columns))))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.floats(0.05, 0.5), st.integers(5, 60))
def test_a_label_alone_in_its_rows_is_divided_as_evenly_as_can_be(seed, fraction, n_labels):
    sizes = np.random.default_rng(seed).integers(1, 9, n_labels).tolist()
    Y = one_label(sizes)
    mask = split.held_out(Y, fraction, seed)
    share = mask.sum() / len(mask)
    assert mask.sum() == min(max(round(len(mask) * fraction), 1), len(mask) - 1)
    held = np.asarray(Y[mask].sum(axis=0)).ravel()
    for size, found in zip(sizes, held.tolist(), strict=True):
        assert np.floor(size * share - 1e-9) <= found <= np.ceil(size * share + 1e-9)
        if size >= 2 and share <= 0.5:
            assert found < size


def test_a_random_split_does_lose_rare_labels():
    """So the test above would fail for it."""
    Y = one_label([2] * 100)
    lost = 0
    for seed in range(5):
        mask = np.random.default_rng(seed).random(200) < 0.5
        lost += int((np.asarray(Y[mask].sum(axis=0)).ravel() == 2).sum())
    assert lost > 50


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(2, 7))
def test_folds_have_equal_sizes_and_spread_rare_labels(seed, n_folds):
    Y = one_label(np.random.default_rng(seed).integers(1, n_folds + 1, 40).tolist())
    fold = split.folds(Y, n_folds, seed)
    assert np.ptp(np.bincount(fold, minlength=n_folds)) <= 1
    for label in range(Y.shape[1]):
        rows = np.flatnonzero(Y[:, [label]].toarray().ravel())
        assert len(set(fold[rows])) == len(rows)


def test_every_row_is_held_out_equally_often():
    Y = long_tail(n=60)
    times = sum(split.held_out(Y, 0.25, seed).astype(int) for seed in range(800))
    assert times.min() > 140
    assert times.max() < 260


def test_multilabel_rows_keep_frequencies_close():
    Y = long_tail(2000)
    mask = split.held_out(Y, 0.2, 3)
    counts = np.asarray(Y.sum(axis=0)).ravel()
    held = np.asarray(Y[mask].sum(axis=0)).ravel()
    frequent = counts >= 50
    assert np.abs(held[frequent] / counts[frequent] - 0.2).max() < 0.1


def test_the_seed_decides():
    Y = long_tail()
    np.testing.assert_array_equal(split.held_out(Y, 0.2, 5), split.held_out(Y, 0.2, 5))
    assert (split.held_out(Y, 0.2, 5) != split.held_out(Y, 0.2, 6)).any()
    np.testing.assert_array_equal(split.folds(Y, 4, 5), split.folds(Y, 4, 5))


def test_rows_without_labels_are_split_too():
    Y = indicator(sp.csr_array((10, 3), dtype=np.int32))
    assert split.held_out(Y, 0.3).sum() == 3


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, True, "half"])
def test_a_fraction_outside_0_and_1_is_refused(fraction):
    with pytest.raises(InputError, match="between 0 and 1"):
        split.held_out(long_tail(), fraction)


@pytest.mark.parametrize("folds", [1, 0, 401, 2.5, True])
def test_impossible_folds_are_refused(folds):
    with pytest.raises(InputError, match="cannot be divided"):
        split.folds(long_tail(), folds)


def test_one_row_cannot_be_split():
    with pytest.raises(InputError, match="at least 2"):
        split.held_out(one_label([1]), 0.5)


def test_label_k_fold_works_as_cv_of_scikit_learn():
    splitter = split.LabelKFold(3)
    parts = list(splitter.split(np.zeros((9, 2)), list("aaabbbccc")))
    assert splitter.get_n_splits() == 3
    assert sorted(np.concatenate([test for _, test in parts]).tolist()) == list(range(9))
    for train, test in parts:
        assert sorted(test // 3) == [0, 1, 2]
        assert not set(train) & set(test)


def test_a_dataset_is_split_in_the_same_way():
    Y = one_label([2] * 50)
    data = Dataset(sp.csr_array(np.arange(100, dtype=np.float32)[:, None] + 1), Y)
    train, test = data.split(0.5, stratify=True)
    assert (np.asarray(train.Y.sum(axis=0)) == 1).all()
    assert (np.asarray(test.Y.sum(axis=0)) == 1).all()
    plain, _ = data.split(0.5)
    assert (np.asarray(plain.Y.sum(axis=0)) != 1).any()
    assert data.split(10, stratify=True)[1].n_samples == 10
