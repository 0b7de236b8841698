"""Chooses the length of embeddings on held-out rows. The columns of words have length 1.

The search starts from the scale of the data. It tries scales that differ by a factor of sqrt(2), and goes on in the
direction that is better. Every trial trains one-vs-all on the rows that are not held out. Labels are trained
independently of each other, so a sample of them is enough. The rows are not sampled, unless there are very many: with
fewer rows, words that are rare tell less, and embeddings would seem to be better than they are.

Scores are noisy, so another scale wins only if it is better than the first by more than a standard error.
"""

from __future__ import annotations

import math
import time

import numpy as np
import scipy.sparse as sp

from longtail.data import Dataset, split
from longtail.errors import InputError
from longtail.hybrid import HybridRows
from longtail.methods import OneVsAll
from longtail.tuning.search import KS, compared
from longtail.tuning.trials import Trial, difference

N_LABELS = 1000
MAX_ROWS = 50_000
FRACTION = 0.2  # of the rows are held out
STEPS = 4  # most steps of sqrt(2) in one direction


def choose_embedding_scale(data: Dataset, *, n_jobs: int | None = None, random_state: int = 0) -> Dataset:
    """Return the dataset with embeddings of the length that is best on held-out rows.

    Read test data with `like` set to the result, or to the model that is trained on it. The chosen number is
    `text_features.embedding_scale` of the result. It is stored in the model.

    Parameters
    ----------
    data : Dataset of texts with embeddings
    n_jobs : threads, as in the estimators
    random_state : seed of the choice of rows and labels
    """
    if data.text_features is None or not isinstance(data.X, HybridRows):
        raise InputError(
            "the embedding scale can be chosen for texts with embeddings only: give TextFeatures(embeddings=...), or "
            "dense beside texts"
        )
    factor = best_factor(data.X, data.Y, n_jobs=n_jobs, random_state=random_state)
    return data.with_embedding_scale(float(f"{factor * data.text_features.embedding_scale:.3g}"))


def best_factor(X: HybridRows, Y: sp.csr_array, *, n_jobs: int | None = None, random_state: int = 0) -> float:
    """Return the factor of the dense part of X that is best on held-out rows."""
    if X.shape[0] < 2 or not Y.nnz:
        raise InputError("the embedding scale is chosen on held-out rows; at least two rows and a label are needed")
    rng = np.random.RandomState(random_state)
    rows = np.sort(rng.permutation(X.shape[0])[:MAX_ROWS])
    X, Y = X[rows], Y[rows]
    is_held_out = split.held_out(Y, FRACTION, random_state)
    columns = _some_labels(Y[is_held_out], rng)
    if not len(columns):
        return 1.0
    train, test = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
    Y = sp.csr_array(Y[:, columns])
    test = test[np.diff(Y[test].indptr) > 0]
    metric = ",".join(f"P@{k}" for k in KS if k <= len(columns))

    def trial(step: int) -> Trial:
        start, factor = time.perf_counter(), math.sqrt(2) ** step
        clf = OneVsAll(n_jobs=n_jobs).fit(_scaled(X[train], factor), Y[train])
        top = clf.predict_topk(_scaled(X[test], factor), min(max(KS), len(columns)))
        score, groups = compared(Y[test], top, metric)
        return Trial("one-vs-all", {"factor": factor}, len(train), score, time.perf_counter() - start, 0, groups)

    tried = {step: trial(step) for step in (0, -1, 1)}
    best = max(tried, key=lambda step: tried[step].score)
    direction = best
    while direction and STEPS > abs(best) == max(map(abs, tried)):
        tried[best + direction] = trial(best + direction)
        best = max(tried, key=lambda step: tried[step].score)
    gain, error = difference([tried[best]], [tried[0]])
    return math.sqrt(2) ** best if gain > error else 1.0


def _some_labels(Y: sp.csr_array, rng: np.random.RandomState) -> np.ndarray:
    """The columns of a sample of labels. A label is drawn the more likely, the more rows have it."""
    labels, first = np.unique(rng.permutation(Y.indices), return_index=True)
    return np.sort(labels[np.argsort(first)[:N_LABELS]])


def _scaled(X: HybridRows, factor: float) -> HybridRows:
    return HybridRows(X.sparse, X.dense * np.float32(factor), X.columns)
