"""The search over bucket values, kernel by kernel, against sorting and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.models import index_kernels
from longtail.models import scan_kernels as scan
from longtail.models.hashing import Hashes


def ranked(values, labels):
    """Best first: by value, then by label."""
    return sorted(zip(values.tolist(), labels.tolist(), strict=True), key=lambda pair: (-pair[0], pair[1]))


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=40), st.integers(1, 12))
@settings(deadline=None, max_examples=100)
def test_the_heap_keeps_the_best_labels(given_values, k):
    values, k = np.array(given_values, np.float32), min(k, len(given_values))
    best_values, best_labels, limit = np.empty(k, np.float32), np.empty(k, np.int32), -np.inf
    for label, value in enumerate(values):
        if value > limit:
            limit = scan.put(value, label, best_values, best_labels)
            seen = ranked(values[: label + 1], np.arange(label + 1))
            assert limit == (seen[k - 1][0] if label >= k - 1 else -np.inf)
    scan.sort_heap(best_values, best_labels)
    assert (
        list(zip(best_values.tolist(), best_labels.tolist(), strict=True)) == ranked(values, np.arange(len(values)))[:k]
    )


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=2, max_size=30), st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_heaps_here_and_in_the_index_agree(given_values, seed):
    """The kernels stand twice, because a kernel calls only kernels of its own file."""
    values = np.array(given_values, np.float32)
    labels = np.random.default_rng(seed).permutation(len(values)).astype(np.int32)
    heaps = []
    for module in (scan, index_kernels):
        heap_values, heap_labels = values.copy(), labels.copy()
        for start in range(len(values) // 2 - 1, -1, -1):
            module.sift_down(heap_values, heap_labels, len(values), start)
        module.sort_heap(heap_values, heap_labels)
        heaps.append(list(zip(heap_values.tolist(), heap_labels.tolist(), strict=True)))
    assert heaps[0] == heaps[1] == ranked(values, labels)
    for pair in zip(values, values[::-1], labels, labels[::-1], strict=True):
        below = scan.ranks_below(pair[0], pair[2], pair[1], pair[3])
        assert below == index_kernels.ranks_below(pair[0], pair[2], pair[1], pair[3])
        assert below == ((-pair[0], pair[2]) > (-pair[1], pair[3]))


@pytest.mark.parametrize("rule", [scan.SUM, scan.LEAST, scan.MEDIAN])
def test_the_best_labels_and_those_above_limits(rule):
    """Eleven of sixteen lanes are in use, and the space for labels above the limits runs out."""
    rng, B, K, R, n, k = np.random.default_rng(0), 6, 50, 3, 11, 4
    codes = Hashes.draw(K, B, range(R), 0).table
    tables = rng.choice(np.float32([0.125, 0.25, 0.5, 1]), (R * B, scan.SCAN_LANES))
    own = tables[codes.astype(int) + B * np.arange(R)]
    values = {scan.SUM: own.sum(axis=1), scan.LEAST: own.min(axis=1), scan.MEDIAN: np.median(own, axis=1)}[rule]
    labels, best = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    scratch = np.empty(R, np.float32)
    scan.best_labels(rule, codes, B, tables, scratch, labels, best)
    for lane in range(n):
        assert (
            list(zip(best[lane].tolist(), labels[lane].tolist(), strict=True))
            == ranked(values[:, lane], np.arange(K))[:k]
        )
    limits = np.full(scan.SCAN_LANES, np.inf, np.float32)
    limits[:n] = 0.3
    wanted = [(label, lane) for label in range(K) for lane in range(n) if values[label, lane] > limits[lane]]
    found, label = [], 0
    while label < K:
        found_labels, found_lanes = np.empty(40, np.int32), np.empty(40, np.int32)
        label, end = scan.labels_above(rule, codes, B, tables, limits, scratch, label, found_labels, found_lanes, 0)
        found += list(zip(found_labels[:end].tolist(), found_lanes[:end].tolist(), strict=True))
    assert found == wanted
    assert len(wanted) > 40


@pytest.mark.parametrize("rule", [scan.SUM, scan.LEAST, scan.MEDIAN])
@pytest.mark.parametrize("R", [1, 4, 5])
def test_the_next_label_above_the_limits(rule, R):
    rng, B, K = np.random.default_rng(R), 6, 50
    codes = Hashes.draw(K, B, range(R), R).table
    tables = rng.normal(size=(R * B, scan.SCAN_LANES)).astype(np.float32)
    own = tables[codes.astype(int) + B * np.arange(R)]  # (K, R, lanes)
    values = {scan.SUM: own.sum(axis=1), scan.LEAST: own.min(axis=1), scan.MEDIAN: np.median(own, axis=1)}[rule]
    limits = np.quantile(values, 0.97, axis=0).astype(np.float32)
    half, scratch = np.full(scan.SCAN_LANES, (R + 1) // 2 - 0.5, np.float32), np.empty(R, np.float32)
    wanted = [label for label in range(K) if (values[label] > limits).any()]
    found, label = [], 0
    while True:
        out = np.full(scan.SCAN_LANES, np.nan, np.float32)
        label, lanes = scan.next_label(rule, codes, label, B, tables, limits, half, scratch, out)
        if label == K:
            assert lanes == 0
            break
        above = [lane for lane in range(scan.SCAN_LANES) if lanes >> lane & 1]
        assert above == np.flatnonzero(values[label] > limits).tolist()
        np.testing.assert_allclose(out[above], values[label, above], rtol=1e-5, atol=1e-6)
        found.append(label)
        label += 1
    assert found == wanted
    for lane in range(3):
        median = scan.median_of(codes, 7, B, tables, lane, scratch)
        assert median == pytest.approx(np.median(own[7, :, lane]), rel=1e-5)
    out = np.zeros(scan.SCAN_LANES, np.float32)
    kept = scan.put_medians(codes, 7, 0b1011, B, tables, limits, scratch, out)
    medians = np.median(own[7], axis=0)
    np.testing.assert_allclose(out[[0, 1, 3]], medians[[0, 1, 3]], rtol=1e-5)
    assert kept == sum(1 << lane for lane in (0, 1, 3) if medians[lane] > limits[lane])
    assert out[2] == 0
