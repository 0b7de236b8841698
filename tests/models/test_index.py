"""The index: lists, columns and spill hold all of W, within what index_kernels.py promises, in modest room."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.models.index import COLUMN_SHARE, SPILL_SHARE, InvertedIndex
from longtail.models.index_kernels import LEVELS


def weights(seed: int = 0, L: int = 1000, d: int = 40) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    W = rng.standard_cauchy(size=(L, d)) * (rng.random((L, d)) < rng.random(d) ** 3)  # few weights are very large
    return sp.csr_array(W.astype(np.float32))


def test_columns_and_spill_restore_every_weight_to_half_a_step():
    W, L = weights(), 1000
    index, dense = InvertedIndex.of(W, 40, 0.0), W.toarray().astype(np.float64)
    n_columns, lengths = len(index.codes), np.diff(index.ends)
    assert ((index.column_of < n_columns) == (lengths * COLUMN_SHARE > L)).all()
    assert 0 < n_columns < 40
    for j in np.flatnonzero(index.column_of < n_columns):
        c = index.column_of[j]
        mine = slice(int(index.spill_ends[c]), int(index.spill_ends[c + 1]))
        restored = index.codes[c, :L] * np.float64(index.steps[c])
        restored[index.spill_labels[mine]] += index.spill_weights[mine]
        assert 0 < mine.stop - mine.start <= L // SPILL_SHARE
        assert np.abs(index.codes[c].astype(int)).max() == LEVELS
        np.testing.assert_array_less(np.abs(restored - dense[:, j]), 0.5001 * index.steps[c] + 1e-7 * index.peaks[j])
        assert not index.codes[c, L:].any()


def test_lists_peaks_and_bias_are_those_of_w():
    W = weights(d=41)
    index, dense = InvertedIndex.of(W, 40, 2.0), W.toarray()
    np.testing.assert_array_equal(index.peaks, np.abs(dense[:, :40]).max(axis=0))
    np.testing.assert_array_equal(index.bias_scores[:1000], 2 * dense[:, 40])
    assert index.bias_peak == np.abs(2 * dense[:, 40]).max()
    assert len(index.bias_scores) == index.codes.shape[1] == 1024
    for j in range(40):
        mine = slice(int(index.ends[j]), int(index.ends[j + 1]))
        assert index.labels[mine].tolist() == np.flatnonzero(dense[:, j]).tolist()
        assert index.weights[mine].tolist() == dense[dense[:, j] != 0, j].tolist()


def test_w_in_any_order_makes_the_same_index():
    W = weights()
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(W.indptr[:-1], W.indptr[1:], strict=True)])
    shuffled = sp.csr_array((W.data[order], W.indices[order], W.indptr), shape=W.shape)
    twice = sp.csr_array((np.repeat(W.data / 2, 2), np.repeat(W.indices, 2), 2 * W.indptr), shape=W.shape)
    for other in (shuffled, twice):
        before = other.indices.tolist()
        for mine, theirs in zip(InvertedIndex.of(W, 40, 0.0), InvertedIndex.of(other, 40, 0.0), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert other.indices.tolist() == before  # the caller's W is left alone


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e-40])
def test_a_feature_that_no_code_can_hold_keeps_its_list(value):
    W = np.ones((300, 2), np.float32)
    W[:, 1] = value
    index = InvertedIndex.of(sp.csr_array(W), 2, 0.0)
    assert index.column_of.tolist() == [0, 1]
    assert len(index.codes) == 1


def test_columns_never_outgrow_w_and_arrays_cannot_be_written():
    for seed in range(5):
        W = weights(seed)
        index = InvertedIndex.of(W, 40, 0.0)
        rounding = index.codes.shape[1] / 1000
        assert index.codes.nbytes <= rounding * (W.data.nbytes + W.indices.nbytes)
        assert not any(array.flags.writeable for array in index if isinstance(array, np.ndarray))


def test_no_features_and_no_labels():
    assert InvertedIndex.of(sp.csr_array((3, 0), dtype=np.float32), 0, 0.0).codes.shape == (0, 64)
    assert InvertedIndex.of(sp.csr_array((0, 3), dtype=np.float32), 3, 0.0).codes.shape == (0, 0)
