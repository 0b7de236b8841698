"""Precision, nDCG, recall and coverage at 1 to k.

Symbols for one row: h_j = 1 if the j-th predicted label is true, else 0; m = number of true labels.

    P@k       sum of h_1..h_k / k                                     divided by k even when m < k
    nDCG@k    sum of h_j / log2(j + 1)  /  the same sum for min(k, m) ones      as the Extreme Classification Repository
    recall@k  sum of h_1..h_k / m

each averaged over all rows. A row without true labels counts as zero in all three. Coverage is not a mean over rows:

    coverage@k    of the labels that are true in some row, the fraction predicted correctly in the top k of some row
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from longtail import check
from longtail.metrics.hits import Hits, find_hits


def precision_at_k(Y: Any, top: Any, k: int) -> float:
    """P@k: the fraction of the first k predictions that are true."""
    return float(precision_curve(Y, top, check.top_k(k))[-1])


def precision_curve(Y: Any, top: Any, k: int | None = None) -> np.ndarray:
    """P@1, P@2, ..., P@k."""
    return precision(find_hits(Y, top, k))


def ndcg_at_k(Y: Any, top: Any, k: int) -> float:
    """nDCG@k: like precision, but earlier hits count more. The best possible ranking has the value 1."""
    return float(ndcg_curve(Y, top, check.top_k(k))[-1])


def ndcg_curve(Y: Any, top: Any, k: int | None = None) -> np.ndarray:
    """nDCG@1, nDCG@2, ..., nDCG@k."""
    return ndcg(find_hits(Y, top, k))


def recall_at_k(Y: Any, top: Any, k: int) -> float:
    """Recall@k: the fraction of a row's true labels that are among its first k predictions."""
    return float(recall_curve(Y, top, check.top_k(k))[-1])


def recall_curve(Y: Any, top: Any, k: int | None = None) -> np.ndarray:
    """Recall@1, Recall@2, ..., Recall@k."""
    return recall(find_hits(Y, top, k))


def coverage_at_k(Y: Any, top: Any, k: int) -> float:
    """Coverage@k: the fraction of the labels in Y that are predicted correctly in at least one row."""
    return float(coverage_curve(Y, top, check.top_k(k))[-1])


def coverage_curve(Y: Any, top: Any, k: int | None = None) -> np.ndarray:
    """Coverage@1, Coverage@2, ..., Coverage@k."""
    return coverage(find_hits(Y, top, k))


# --- curves from hits: loops over the k columns, so that no array of floats is larger than (n,) ----------------------


def precision(hits: Hits) -> np.ndarray:
    return mean_gain(hits.hit.T)


def ndcg(hits: Hits) -> np.ndarray:
    return mean_ndcg(hits.hit.T, hits.truth.sizes)


def recall(hits: Hits) -> np.ndarray:
    per_row = 1.0 / np.maximum(hits.truth.sizes, 1)
    return np.cumsum([per_row[column].sum() for column in hits.hit.T]) / hits.truth.n_rows


def coverage(hits: Hits) -> np.ndarray:
    found = np.zeros(hits.truth.n_labels, np.bool_)
    curve = np.zeros(hits.k)
    for j in range(hits.k):
        found[hits.labels[hits.hit[:, j], j]] = True
        curve[j] = np.count_nonzero(found)
    return curve / max(int(np.count_nonzero(hits.truth.counts)), 1)


def mean_gain(gains: Iterable[np.ndarray]) -> np.ndarray:
    """Mean over rows of (gain at 1 + ... + gain at k) / k, for each k; `gains` yields one (n,) column per rank."""
    totals = np.cumsum([column.mean() for column in gains])
    return totals / np.arange(1, totals.size + 1)


def mean_ndcg(gains: Iterable[np.ndarray], sizes: np.ndarray) -> np.ndarray:
    """Mean over rows of the discounted gains up to k over the discounts of min(k, m) ones, for each k."""
    dcg, ideal = np.zeros(sizes.size), np.zeros(sizes.size)
    curve: list[float] = []
    for j, column in enumerate(gains):
        discount = 1.0 / np.log2(j + 2)
        dcg += discount * column
        ideal += discount * (sizes > j)
        curve.append((dcg / np.where(ideal > 0, ideal, 1.0)).mean())
    return np.array(curve)
