"""Metrics of single labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.metrics.hits import find_hits


def recall_of_labels(Y: Any, top: Any) -> np.ndarray:
    """Return, for each label, the share of its rows that have it among their predictions. NaN for a label without
    rows."""
    hits = find_hits(Y, top)
    found = np.bincount(hits.labels[hits.hit], minlength=hits.truth.n_labels)
    counts = hits.truth.counts.astype(float)
    recall = np.full(len(counts), np.nan)
    np.divide(found, counts, out=recall, where=counts > 0)
    return recall
