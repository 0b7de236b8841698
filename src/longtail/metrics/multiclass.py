"""Accuracy and macro-F1 for data with exactly one label per row, from the first predicted label.

Macro-F1 as the MEMOIR experiments define it (MaF1): the harmonic mean of macro-precision and macro-recall,

    P = mean over classes c of (rows predicted c and truly c) / (rows predicted c), 0 for a class never predicted
    R = mean over classes c of (rows predicted c and truly c) / (rows truly c)
    macro-F1 = 2 P R / (P + R), 0 when there is no hit at all

over the classes that occur in the truth. It is not the mean of the F1 of each class, which scikit-learn's
`f1_score(average="macro")` computes.
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
    """Harmonic mean of macro-precision and macro-recall over the classes that occur in the truth."""
    return macro_f1_of(_one_label_each(find_hits(Y, top, 1)))


def accuracy_of(hits: Hits) -> float:
    return float(hits.hit[:, 0].mean())


def macro_f1_of(hits: Hits) -> float:
    n_labels, first = hits.truth.n_labels, hits.labels[:, 0]
    true = hits.truth.counts
    present = true > 0
    predicted = np.bincount(first, minlength=n_labels)[present]
    correct = np.bincount(first[hits.hit[:, 0]], minlength=n_labels)[present]
    precision = (correct / np.maximum(predicted, 1)).mean()
    recall = (correct / true[present]).mean()
    return float(2 * precision * recall / (precision + recall)) if correct.any() else 0.0


def _one_label_each(hits: Hits) -> Hits:
    if not one_label_per_row(hits.truth):
        sizes = hits.truth.sizes
        row = int((sizes != 1).argmax())
        raise InputError(
            f"row {row} of Y has {sizes[row]} labels; accuracy and macro-F1 need exactly one; use precision_at_k"
        )
    return hits
