"""Metrics of predicted label sets, and of the calibration of probabilities.

For the labels that `predict` returns, with hits = pairs of a row and a label that are predicted and true:

    micro     precision = hits / predicted pairs, recall = hits / true pairs, over all rows and labels
    macro     the mean over labels of the precision, recall and F1 of each label
    sample    the mean over rows of the precision, recall and F1 of each row

F1 = 2 precision recall / (precision + recall), and 0 / 0 counts as 0, as in scikit-learn. Macro averages run over the
labels that are true or predicted in at least one row. With zero_division = NaN, a precision or recall that is 0 / 0 is
left out of the averages instead: precision is that of labels that are predicted at all. This is the average over binary
problems of [Schultheis & Babbar 2022], Table 4.

For probabilities of the k best labels of each row:

    ECE@k       expected calibration error: labels are sorted by probability into 20 bins of equal size; the mean over
                bins of |mean probability - share of hits| (C. Guo et al., ICML 2017, with equal-count bins)
    log-loss@k  the mean of -log(p) for true labels and -log(1 - p) for others, with the probability p
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.matrix import indicator
from longtail.metrics.hits import find_hits

N_BINS = 20
SMALLEST = 1e-15  # smaller values are raised to this one before the logarithm, because the log-loss would be infinite


def set_metrics(Y: Any, predicted: Any, *, zero_division: float = 0.0) -> dict[str, float]:
    """Return micro, macro and sample precision, recall and F1. `Y` and `predicted` are 0/1 indicators (n, L).

    zero_division : what 0 / 0 counts as: 0, 1, or NaN, which leaves it out of the averages
    """
    if zero_division not in (0.0, 1.0) and not np.isnan(zero_division):
        raise InputError(f"zero_division must be 0, 1 or NaN, not {zero_division!r}")
    truth = indicator(Y)
    found = indicator(predicted, "prediction")
    if truth.shape != found.shape:
        raise InputError(f"the prediction has shape {found.shape}, but Y has shape {truth.shape}")
    hits = sp.csr_array(truth.multiply(found))
    metrics: dict[str, float] = {}
    total = _shares(np.array([hits.nnz]), np.array([found.nnz]), np.array([truth.nnz]), zero_division=zero_division)
    metrics |= {f"micro-{name}": float(values[0]) for name, values in total.items()}
    by_label = [np.bincount(each.indices, minlength=each.shape[1]) for each in (hits, found, truth)]
    used = (by_label[1] + by_label[2]) > 0
    per_label = _shares(*(counts[used] for counts in by_label), zero_division=zero_division)
    metrics |= {f"macro-{name}": _mean(values) for name, values in per_label.items()}
    per_row = _shares(*(np.diff(each.indptr) for each in (hits, found, truth)), zero_division=zero_division)
    metrics |= {f"sample-{name}": _mean(values) for name, values in per_row.items()}
    return metrics | {"labels per row": found.nnz / max(found.shape[0], 1)}


def _shares(
    hits: np.ndarray, predicted: np.ndarray, true: np.ndarray, *, zero_division: float
) -> dict[str, np.ndarray]:
    ratios = {"precision": (hits, predicted), "recall": (hits, true), "F1": (2 * hits, predicted + true)}
    return {
        name: np.where(below > 0, above / np.maximum(below, 1), zero_division)
        for name, (above, below) in ratios.items()
    }


def _mean(values: np.ndarray) -> float:
    """The mean of the values that are not NaN; 0 if there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


@dataclass(frozen=True)
class Reliability:
    """Probabilities and observed shares of true labels, in bins of equal size. Each field has one entry per bin.

    probability : mean probability of the labels in the bin
    share : share of the labels in the bin that are true
    count : number of labels in the bin
    """

    probability: np.ndarray
    share: np.ndarray
    count: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error."""
        return float(np.average(np.abs(self.probability - self.share), weights=self.count))


def reliability(Y: Any, top: Any, k: int = 5, *, n_bins: int = N_BINS) -> Reliability:
    """Return the reliability of the k best labels of each row. Fewer labels are used if `top` has fewer."""
    p, hit = _with_hits(Y, top, k)
    order = np.argsort(p, kind="stable")
    bins = [part for part in np.array_split(order, n_bins) if len(part)]
    return Reliability(
        np.array([p[part].mean() for part in bins]),
        np.array([hit[part].mean() for part in bins]),
        np.array([len(part) for part in bins]),
    )


def calibration_error(Y: Any, top: Any, k: int = 5) -> float:
    """ECE@k."""
    return reliability(Y, top, k).error


def log_loss(Y: Any, top: Any, k: int = 5) -> float:
    """log-loss@k."""
    p, hit = _with_hits(Y, top, k)
    happened = np.where(hit, p, 1 - p)
    return float(-np.log(np.maximum(happened, SMALLEST)).mean())


def _with_hits(Y: Any, top: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the first k labels of all rows, and whether they are true."""
    probabilities = getattr(top, "probabilities", None)
    if probabilities is None:
        raise InputError("top has no probabilities; train the model with calibrate=True")
    width = min(k, probabilities.shape[1])
    hit = find_hits(Y, top, width).hit
    return probabilities[:, :width].ravel().astype(np.float64), hit.ravel()
