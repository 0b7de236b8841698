"""Hits: the (n, k) boolean array that says which predicted labels are true. All metrics are computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from longtail import check
from longtail.compiled import frozen
from longtail.errors import InputError
from longtail.metrics.hits_kernel import mark_hits
from longtail.metrics.truth import Truth, read_truth


@dataclass(frozen=True)
class Hits:
    """The k best labels of each row and which of them are true."""

    truth: Truth
    labels: np.ndarray  # (n, k) column numbers, best first, distinct within a row
    hit: np.ndarray  # (n, k) bool: labels[i, j] is a true label of row i

    @property
    def k(self) -> int:
        return int(self.labels.shape[1])

    def restricted(self, chosen: np.ndarray) -> Hits:
        """Hits for which only the labels marked in `chosen` (L,) can be true, on the rows that have such a label."""
        inside = chosen[self.truth.indices]
        sizes = np.bincount(self.truth.rows[inside], minlength=self.truth.n_rows)
        kept = sizes > 0
        indptr = np.concatenate([[0], np.cumsum(sizes[kept])])
        labels = self.labels[kept]
        truth = Truth(self.truth.indices[inside], indptr, self.truth.n_labels)
        return Hits(truth, labels, self.hit[kept] & chosen[labels])


def find_hits(Y: Any, top: Any, k: int | None = None, *, n_labels: int | None = None) -> Hits:
    """The hits of the first k columns of `top` (all if None), after checks of the truth `Y` and of `top`."""
    labels = first_columns(top, k)
    if n_labels is None and not sparse.issparse(Y):  # a predicted class number may be absent from Y
        n_labels = max(read_truth(Y).n_labels, int(labels.max(initial=-1)) + 1)
    truth = read_truth(Y, n_labels=n_labels)
    _check_labels(labels, truth)
    hit = np.empty(labels.shape, np.bool_)
    mark_hits(frozen(truth.indices, np.uint32), frozen(truth.indptr, np.uint64), frozen(labels, np.uint32), hit)
    return Hits(truth, labels, hit)


def first_columns(top: Any, k: int | None = None) -> np.ndarray:
    """The column numbers of the k best predictions (all if None), as an (n, k) array."""
    try:
        labels = np.asarray(getattr(top, "labels", top))
    except ValueError as error:  # lists of unequal lengths
        raise InputError("top has rows of unequal lengths; give k labels for every row") from error
    if labels.ndim == 1:
        labels = labels[:, None]
    if labels.ndim != 2 or labels.dtype.kind not in "iu":
        raise InputError(
            f"top has dtype {labels.dtype} and shape {labels.shape}; give label ids, whole numbers of shape (rows, k)"
        )
    width = labels.shape[1]
    wanted = check.top_k(width if k is None else k)
    if wanted > width:
        raise InputError(
            f"k is {wanted}, but top holds {width} labels per row; predict them with predict_topk(X, k={wanted})"
        )
    return labels[:, :wanted]


def _check_labels(labels: np.ndarray, truth: Truth) -> None:
    if labels.shape[0] != truth.n_rows:
        raise InputError(
            f"top has {labels.shape[0]:,} rows, but Y has {truth.n_rows:,}; each row of top predicts one row of Y"
        )
    if labels.min() < 0 or labels.max() >= truth.n_labels:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"top holds the label id {wrong}, but the {truth.n_labels:,} columns of Y count from 0")
    if labels.shape[1] > 1:
        ordered = np.sort(labels, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any():
            raise InputError(f"row {int(twice.argmax())} of top names a label twice; a label counts once per row")
