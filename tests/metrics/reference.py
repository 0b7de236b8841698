"""The slow, obvious twins: every metric from a dense n×L truth, row by row, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log2

import numpy as np
from hypothesis import strategies as st
from scipy import sparse


@dataclass
class Case:
    """A small random problem: dense 0/1 truth for train and test, and distinct predicted labels per row."""

    train: np.ndarray
    truth: np.ndarray
    labels: np.ndarray

    def __post_init__(self):
        self.Y, self.train_Y = sparse.csr_array(self.truth), sparse.csr_array(self.train)

    @property
    def k(self):
        return self.labels.shape[1]


@st.composite
def cases(draw, multiclass=False):
    """Random cases with empty rows, labels that never occur, and between 1 and L predictions per row."""
    L = draw(st.integers(2, 12))
    n, n_train, k = draw(st.integers(1, 12)), draw(st.integers(1, 30)), draw(st.integers(1, L))
    density = draw(st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if multiclass:
        train, truth = (
            np.eye(L, dtype=int)[rng.integers(L, size=n_train)],
            np.eye(L, dtype=int)[rng.integers(L, size=n)],
        )
    else:
        train, truth = (rng.random((n_train, L)) < density).astype(int), (rng.random((n, L)) < density).astype(int)
    noise = rng.random((n, L)) - 0.5 * truth * rng.integers(2, size=(n, 1))  # half of the rows are predicted well
    return Case(train, truth, np.argsort(noise, axis=1)[:, :k])


def mark_hits(truth, labels):
    return np.array([[truth[i, label] == 1 for label in row] for i, row in enumerate(labels)])


def precision(truth, labels, k):
    return np.mean([sum(t[label] for label in row[:k]) / k for t, row in zip(truth, labels, strict=True)])


def recall(truth, labels, k):
    return np.mean([sum(t[label] for label in row[:k]) / max(sum(t), 1) for t, row in zip(truth, labels, strict=True)])


def ndcg(truth, labels, k):
    return psndcg(truth, labels, np.ones(truth.shape[1]), k, normalized=False)


def coverage(truth, labels, k):
    present = {label for t in truth for label in np.flatnonzero(t)}
    hit = {label for t, row in zip(truth, labels, strict=True) for label in row[:k] if t[label]}
    return len(hit) / max(len(present), 1)


def inverse_propensity(train, A=0.55, B=1.5):
    N = len(train)
    C = max(log(N) - 1, 0) * (B + 1) ** A
    return np.array([1 + C / (count + B) ** A for count in train.sum(axis=0)])


def best_labels(t, inv_p):
    return sorted(np.flatnonzero(t), key=lambda label: -inv_p[label])


def psp(truth, labels, inv_p, k, normalized=True):
    reached = sum(inv_p[label] * t[label] for t, row in zip(truth, labels, strict=True) for label in row[:k])
    best = sum(inv_p[label] for t in truth for label in best_labels(t, inv_p)[:k])
    if not normalized:
        return reached / k / len(truth)
    return reached / best if best else 0.0


def psndcg(truth, labels, inv_p, k, normalized=True):
    reached = best = 0.0
    for t, row in zip(truth, labels, strict=True):
        ideal = sum(1 / log2(j + 2) for j in range(min(k, int(t.sum()))))
        if ideal:
            reached += sum(inv_p[label] * t[label] / log2(j + 2) for j, label in enumerate(row[:k])) / ideal
            best += sum(inv_p[label] / log2(j + 2) for j, label in enumerate(best_labels(t, inv_p)[:k])) / ideal
    if not normalized:
        return reached / len(truth)
    return reached / best if best else 0.0


def maf1(truth, labels):
    true, predicted = truth.argmax(axis=1), labels[:, 0]
    precisions, recalls = [], []
    for c in np.unique(true):
        correct = np.sum((true == c) & (predicted == c))
        precisions.append(correct / max(np.sum(predicted == c), 1))
        recalls.append(correct / np.sum(true == c))
    P, R = np.mean(precisions), np.mean(recalls)
    return 2 * P * R / (P + R) if P + R else 0.0


def in_band(case, members):
    """The case with the truth restricted to `members`, and without the rows that have no label left."""
    truth = case.truth * members
    kept = truth.sum(axis=1) > 0
    return Case(case.train, truth[kept], case.labels[kept])
