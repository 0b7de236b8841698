"""The labels that an update of a one-vs-all model need not train again. methods/updating.py states the rule."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.matrix import take_rows
from longtail.methods.one_vs_all.parts import FIGURES, part_of
from longtail.methods.problem import Block, Part
from longtail.models import LabelWeights
from longtail.training import Status, Training

SCORES = 1 << 24  # scores that are held at a time
KEPT_BLOCK = -1  # comes before the blocks that are solved


def loss_sums(W: sp.csr_array, n_features: int, bias: float, X: sp.csr_array, loss: str) -> np.ndarray:
    """Return, for every label, the loss of all rows of X if none of them has the label."""
    n_labels = W.shape[0]
    total, by_feature = np.zeros(n_labels), sp.csr_array(W[:, :n_features].T)
    offset = bias * W[:, [n_features]].toarray().ravel() if bias > 0 else np.zeros(n_labels, np.float32)
    step = max(1, SCORES // max(n_labels, 1))
    for start in range(0, X.shape[0], step):
        scores = (X[start : start + step] @ by_feature).toarray() + offset
        losses = np.maximum(0, 1 + scores) ** 2 if loss == "squared_hinge" else np.logaddexp(0, scores)
        total += losses.sum(axis=0, dtype=np.float64)
    return total


def kept_part(
    model: LabelWeights,
    record: Training,
    added: sp.csr_array,
    touched: np.ndarray,
    retired: np.ndarray,
    *,
    C: float,
    loss: str,
    tol: float,
) -> Part:
    """Return the part of the labels that keep their weights, with their new objective and gap.

    added : the rows that are new
    touched, retired : boolean, one per label of the updated model
    tol : the gap that a label may have, or the growth of the gap for a record of Newton's method
    """
    old = np.flatnonzero(~touched[: model.n_labels])
    W = model.all_weights()
    n_iter, status = record.n_iter, record.status
    figures = np.full((model.n_labels, len(FIGURES)), np.nan)
    if len(status) == model.n_labels and set(FIGURES) <= set(record.figures):
        figures = np.stack([record.figures[name] for name in FIGURES], axis=1).astype(np.float64)
    else:
        n_iter, status = np.zeros(model.n_labels, np.int32), np.full(model.n_labels, Status.COMPLETED, np.uint8)
    stays = np.ones(len(old), bool)
    if added.shape[0]:
        more = C * loss_sums(take_rows(W, old), model.n_features, model.bias, added, loss)
        objective, gap = figures[old, 0], figures[old, 1]
        bound = objective * (1 - gap)
        with np.errstate(divide="ignore", invalid="ignore"):
            new_gap = (objective + more - bound) / (objective + more)
        limit = gap + tol if record.settings.get("solver") == "newton" else tol
        stays = (new_gap <= limit) | retired[old]  # a gap that is not known is not small enough
        figures[old, 0], figures[old, 1] = objective + more, new_gap
    kept = old[stays]
    rows = take_rows(W, kept)
    gone = retired[kept]
    if gone.any():
        rows = rows.copy()
        rows.data[np.repeat(gone, np.diff(rows.indptr))] = 0.0
        rows.eliminate_zeros()
    block = Block(KEPT_BLOCK, kept, 0.0)
    return part_of(block, kept, rows, status[kept], n_iter[kept], figures[kept])
