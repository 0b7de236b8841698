"""Accuracy, macro-F1 and MaF1 for data with exactly one label per row, from the first predicted label.

For a class c let t = rows predicted c and truly c, p = rows predicted c, r = rows truly c:

    macro-F1 = mean over classes c of 2 t / (p + r)         over the classes that are true or predicted in some row

as scikit-learn's `f1_score(average="macro", zero_division=0)`. The MEMOIR experiments report another measure, MaF1, the
harmonic mean of macro-precision and macro-recall over the classes that are true in some row:

    P = mean over classes c of t / p, 0 for a class that is never predicted
    R = mean over classes c of t / r
    MaF1 = 2 P R / (P + R), 0 if there is no hit
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.errors import InputError
from longtail.matrix import one_label_per_row
from longtail.metrics.hits import Hits, find_hits


def accuracy(Y: Any, top: Any) -> float:
    """The fraction of the rows whose first predicted label is the true one."""
    return accuracy_of(_one_label_each(find_hits(Y, top, 1)))


def macro_f1(Y: Any, top: Any) -> float:
    """The mean of the F1 of each class, over the classes that occur in the truth or in the first predictions."""
    return macro_f1_of(_one_label_each(find_hits(Y, top, 1)))


def maf1(Y: Any, top: Any) -> float:
    """The harmonic mean of macro-precision and macro-recall over the classes that occur in the truth (MEMOIR)."""
    return maf1_of(_one_label_each(find_hits(Y, top, 1)))


def accuracy_of(hits: Hits) -> float:
    return float(hits.hit[:, 0].mean())


def macro_f1_of(hits: Hits, among: np.ndarray | None = None) -> float:
    """Macro-F1 over all classes, or over those marked in the boolean array `among` (L,)."""
    predicted, correct = _counts(hits)
    both = predicted + hits.truth.counts
    used = (both > 0) if among is None else (both > 0) & among
    return float((2 * correct[used] / both[used]).mean())


def maf1_of(hits: Hits) -> float:
    present = hits.truth.counts > 0
    predicted, correct = (counts[present] for counts in _counts(hits))
    precision = (correct / np.maximum(predicted, 1)).mean()
    recall = (correct / hits.truth.counts[present]).mean()
    return float(2 * precision * recall / (precision + recall)) if correct.any() else 0.0


def _counts(hits: Hits) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each class, the number of rows with this class as first prediction, and how many are right."""
    first = hits.labels[:, 0]
    predicted = np.bincount(first, minlength=hits.truth.n_labels)
    correct = np.bincount(first[hits.hit[:, 0]], minlength=hits.truth.n_labels)
    return predicted, correct


def _one_label_each(hits: Hits) -> Hits:
    if not one_label_per_row(hits.truth):
        sizes = hits.truth.sizes
        row = int((sizes != 1).argmax())
        raise InputError(
            f"row {row} of Y has {sizes[row]} labels; accuracy, macro-F1 and MaF1 need exactly one; use precision_at_k"
        )
    return hits
