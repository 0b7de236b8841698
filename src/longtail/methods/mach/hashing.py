"""Drawing the hashes of a fit, and counting the labels that they cannot tell apart."""

from __future__ import annotations

import numpy as np

from longtail.models.hashing import PRIME, Hashes


def draw(n_labels: int, n_buckets: int, repetitions: range, seed: int) -> Hashes:
    """The hashes of some repetitions. A repetition's own do not depend on how many others there are."""
    generators = [np.random.default_rng([seed, r]) for r in repetitions]
    seeds = np.array([(g.integers(1, PRIME), g.integers(0, PRIME)) for g in generators], np.int64)
    return Hashes(seeds[:, 0], seeds[:, 1], n_labels, n_buckets)


def perfect(n_labels: int) -> Hashes:
    """One repetition with a bucket for every label: nothing is hashed."""
    return Hashes(np.ones(1, np.int64), np.zeros(1, np.int64), n_labels, n_labels)


def indistinguishable_pairs(table: np.ndarray) -> int:
    """Definition 1: the number of pairs of labels that share their bucket in every repetition."""
    rows = np.ascontiguousarray(table)
    keys = rows.view([("", rows.dtype)] * rows.shape[1]).ravel()
    sizes = np.unique(keys, return_counts=True)[1].astype(object)  # Python integers: no overflow
    return int((sizes * (sizes - 1) // 2).sum())
