"""Propensity-scored precision and nDCG: hits on rare labels count more (Jain, Prabhu, Varma, KDD 2016).

Rare labels are missing from the truth more often than frequent ones. The propensity p_l, the chance that a true label
is recorded, is modelled from the number N_l of the N training rows with this label:

    1 / p_l = 1 + C (N_l + B)^-A,        C = (ln N - 1) (B + 1)^A

PSP@k and PSnDCG@k are P@k and nDCG@k where a hit on label l counts 1 / p_l instead of 1. This raw value can exceed 1.
Published tables therefore divide it by the raw value of the best possible predictions. Both values are first averaged
over rows; it is not the mean of the ratios. This is the default. `normalized=False` returns the raw value.

A row without true labels adds zero to both means. For one or two training rows, ln N - 1 is negative. C is then set to
0 and every propensity to 1, so that no weight is below 1. A label without training rows has N_l = 0 and the largest
weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from longtail import check
from longtail.errors import InputError
from longtail.metrics.hits import Hits, find_hits
from longtail.metrics.ranking import mean_gain, mean_ndcg
from longtail.metrics.truth import read_truth

DEFAULT_A, DEFAULT_B = 0.55, 1.5
# (A, B) of the benchmark datasets whose published figures do not use the defaults.
PROPENSITY_PRESETS = {
    "WikiLSHTC-325K": (0.5, 0.4),
    "Wikipedia-500K": (0.5, 0.4),
    "Amazon-670K": (0.6, 2.6),
    "Amazon-3M": (0.6, 2.6),
}


def inverse_propensity(train_Y: Any, *, A: float = DEFAULT_A, B: float = DEFAULT_B) -> np.ndarray:
    """Return 1 / p_l of each label, from the labels of the training rows. `PROPENSITY_PRESETS` has A and B for some
    datasets."""
    truth = read_truth(train_Y, name="train_Y")
    return weights_from_counts(truth.counts, truth.n_rows, A=A, B=B)


def psp_at_k(Y: Any, top: Any, k: int, *, inv_p: Any, normalized: bool = True) -> float:
    """PSP@k, with `inv_p` from `inverse_propensity`."""
    return float(psp_curve(Y, top, check.top_k(k), inv_p=inv_p, normalized=normalized)[-1])


def psp_curve(Y: Any, top: Any, k: int | None = None, *, inv_p: Any, normalized: bool = True) -> np.ndarray:
    """PSP@1, PSP@2, ..., PSP@k, with `inv_p` from `inverse_propensity`."""
    weights = _check_weights(inv_p)
    return psp(find_hits(Y, top, k, n_labels=weights.size), weights, normalized=normalized)


def psndcg_at_k(Y: Any, top: Any, k: int, *, inv_p: Any, normalized: bool = True) -> float:
    """PSnDCG@k, with `inv_p` from `inverse_propensity`."""
    return float(psndcg_curve(Y, top, check.top_k(k), inv_p=inv_p, normalized=normalized)[-1])


def psndcg_curve(Y: Any, top: Any, k: int | None = None, *, inv_p: Any, normalized: bool = True) -> np.ndarray:
    """PSnDCG@1, PSnDCG@2, ..., PSnDCG@k, with `inv_p` from `inverse_propensity`."""
    weights = _check_weights(inv_p)
    return psndcg(find_hits(Y, top, k, n_labels=weights.size), weights, normalized=normalized)


# --- curves from hits ------------------------------------------------------------------------------------------------


def weights_from_counts(counts: np.ndarray, n_rows: int, *, A: float, B: float) -> np.ndarray:
    """1 / p_l from the number of training rows of each label and of all training rows."""
    if not (math.isfinite(A) and A >= 0 and math.isfinite(B) and B > 0):
        raise InputError(f"A is {A} and B is {B}; propensities need A >= 0 and B > 0 (the defaults are 0.55 and 1.5)")
    C = max(math.log(n_rows) - 1, 0.0) * (B + 1) ** A
    return np.asarray(1 + C * (counts + B) ** -A, np.float64)


def psp(hits: Hits, inv_p: np.ndarray, *, normalized: bool = True) -> np.ndarray:
    reached = mean_gain(_gains(hits, inv_p))
    return _share(reached, mean_gain(_best_gains(hits, inv_p))) if normalized else reached


def psndcg(hits: Hits, inv_p: np.ndarray, *, normalized: bool = True) -> np.ndarray:
    sizes = hits.truth.sizes
    reached = mean_ndcg(_gains(hits, inv_p), sizes)
    return _share(reached, mean_ndcg(_best_gains(hits, inv_p), sizes)) if normalized else reached


def _gains(hits: Hits, inv_p: np.ndarray) -> Iterator[np.ndarray]:
    """Yield for each rank the weight of each row's predicted label if it is true, otherwise 0."""
    for labels, hit in zip(hits.labels.T, hits.hit.T, strict=True):
        yield inv_p[labels] * hit


def _best_gains(hits: Hits, inv_p: np.ndarray) -> Iterator[np.ndarray]:
    """Yield for each rank the gains of the best possible predictions: each row's true labels by decreasing weight."""
    truth = hits.truth
    rows, weights = truth.rows, inv_p[truth.indices]
    weights = weights[np.lexsort((-weights, rows))]  # rows stay together, so `rows` itself is unchanged
    rank = np.arange(rows.size) - truth.indptr[rows]
    for j in range(hits.k):
        column = np.zeros(truth.n_rows)
        column[rows[rank == j]] = weights[rank == j]
        yield column


def _share(reached: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return reached / best, or 0 if no row has a label. The result is at most 1, also after rounding."""
    return np.minimum(reached / np.where(best > 0, best, 1.0), 1.0)


def _check_weights(inv_p: Any) -> np.ndarray:
    weights = np.asarray(inv_p)
    if weights.ndim != 1 or weights.dtype.kind not in "iuf" or not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError("inv_p must hold one positive number per label; make it with inverse_propensity(train_Y)")
    return weights.astype(np.float64, copy=False)
