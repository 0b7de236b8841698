"""Early stopping: some rows are held out, and macro-F1 on these rows decides which weights are kept."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail import metrics
from longtail.matrix import ones
from longtail.models import LinearModel
from longtail.topk import TopK


class HeldOutRows:
    """Held-out rows and their labels, as pairs of a row and a label, as in training."""

    def __init__(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.X = X
        self.row_of_pair = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        self.truth = ones(Y.indices, np.arange(Y.nnz + 1), (Y.nnz, Y.shape[1]))

    def score(self, model: LinearModel, n_threads: int) -> float:
        """MEMOIR's macro-F1 (`metrics.maf1`) of the best label of each row."""
        top = model.predict_topk(self.X, 1, n_jobs=n_threads)
        of_pairs = TopK(top.labels[self.row_of_pair], top.scores[self.row_of_pair])
        return float(metrics.maf1(self.truth, of_pairs))


class EarlyStopping:
    """Keeps the best model so far. Training is over after `n_iter_no_change` consecutive scores without improvement."""

    def __init__(self, held_out: HeldOutRows, n_iter_no_change: int, n_threads: int) -> None:
        self.held_out = held_out
        self.n_iter_no_change = n_iter_no_change
        self.n_threads = n_threads
        self.scores: list[float] = []
        self.best: LinearModel | None = None

    def add(self, model: LinearModel) -> None:
        """Score a model, and keep it if its score is the best so far."""
        score = self.held_out.score(model, self.n_threads)
        if not self.scores or score > max(self.scores):
            self.best = model
        self.scores.append(score)

    @property
    def is_over(self) -> bool:
        return bool(self.scores) and len(self.scores) - 1 - int(np.argmax(self.scores)) >= self.n_iter_no_change
