"""Slow, obvious twins of what is compiled: one number at a time, nothing clever."""

from __future__ import annotations

import numpy as np


def scores(X: np.ndarray, W: np.ndarray, bias: float = 0.0) -> np.ndarray:
    """score[i, label] = bias share, then the features in their order, summed in float32 as the kernel does."""
    n_features = X.shape[1]
    out = np.zeros((len(X), len(W)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for i, x in enumerate(X.astype(np.float32)):
            for label, w in enumerate(W.astype(np.float32)):
                score = np.float32(bias) * w[n_features] if bias else np.float32(0)
                for j in range(n_features):
                    if x[j] != 0 and w[j] != 0:
                        score = np.float32(score + x[j] * w[j])
                out[i, label] = score
    return out


def top(row: np.ndarray, k: int) -> tuple[list[int], list[float]]:
    """Labels and scores of the k best of one row by sorting all; ties by label id, NaN counts as minus infinity."""
    row = [-np.inf if np.isnan(score) else float(score) for score in row]
    labels = sorted(range(len(row)), key=lambda label: (-row[label], label))[:k]
    return labels, [row[label] for label in labels]


def above(row: np.ndarray, threshold: float) -> list[int]:
    """Labels of one row that score more than the threshold."""
    return [label for label, score in enumerate(row) if score > np.float32(threshold)]
