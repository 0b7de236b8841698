"""Slow and obvious twins of the kernels of MACH, in float64 and plain loops."""

from __future__ import annotations

import numpy as np

PRIME = 2**31 - 1


def bucket(a: int, b: int, label: int, n_buckets: int) -> int:
    return (int(a) * int(label) + int(b)) % PRIME % n_buckets


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def targets(Y: np.ndarray, table: np.ndarray, n_buckets: int) -> np.ndarray:
    """1 where a row has a label of the bucket: (n, R, B)."""
    out = np.zeros((len(Y), table.shape[1], n_buckets))
    for i, label in zip(*np.nonzero(Y), strict=True):
        for r, b in enumerate(table[label]):
            out[i, r, b] = 1
    return out


def probabilities(z: np.ndarray, link: str) -> np.ndarray:
    return softmax(z) if link == "softmax" else sigmoid(z)


def loss(z: np.ndarray, t: np.ndarray, link: str) -> float:
    """The loss of one row: z and t are (R, B)."""
    P = probabilities(z, link)
    if link == "softmax":
        return float(-(t * np.log(P)).sum())
    return float(-(t * np.log(P) + (1 - t) * np.log(1 - P)).sum())


def descend(X, Y, table, n_buckets, order, rates, *, link, bias, lam=0.0, batch_size=1, falls=True, W=None):
    """W (d + 1, R, B) after one epoch over `order`, from zero or from the given W."""
    W = np.zeros((X.shape[1] + 1, table.shape[1], n_buckets)) if W is None else W.copy()
    rows, T = np.hstack([X, np.full((len(X), 1), bias)]), targets(Y, table, n_buckets)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        factor = 1 - start / len(order) if falls else 1.0
        errors = [probabilities(np.tensordot(rows[i], W, 1), link) - T[i] for i in batch]
        for i, error in zip(batch, errors, strict=True):
            rate = factor * rates[i] / len(batch)
            W *= 1 - rate * lam
            W -= rate * rows[i][:, None, None] * error
    return W


def hits(X, Y, table, n_buckets, chosen, W, bias):
    """For each repetition, the number of chosen rows whose best bucket holds one of the row's labels."""
    found = np.zeros(table.shape[1], int)
    for i in chosen:
        z = np.tensordot(np.append(X[i], bias), W, 1)
        for r in range(table.shape[1]):
            found[r] += z[r].argmax() in table[np.flatnonzero(Y[i]), r]
    return found


def stop_early(weights, scores, n_iter_no_change):
    """Of one repetition with these weights and held-out scores after each epoch: the weights to keep, the number of
    epochs until it stops, and the number of the best epoch."""
    best = 1
    for epoch in range(2, len(scores) + 1):
        if scores[epoch - 1] > scores[best - 1]:
            best = epoch
        elif epoch - best >= n_iter_no_change:
            return weights[best - 1], epoch, best
    return weights[best - 1], len(scores), best


def damping(Y: np.ndarray) -> np.ndarray:
    """The factor by which steps are shorter for rows with more than three labels, or where the average row has such."""
    average = Y.sum() / len(Y)
    return np.array([min(1.0, (3 / max(row.sum(), average, 1)) ** 0.5) for row in Y])


def values(bucket_values: np.ndarray, table: np.ndarray, n_buckets: int, aggregate: str) -> np.ndarray:
    """What labels are ranked by: (n, K), from P of the buckets (n, R B)."""
    n, R = len(bucket_values), table.shape[1]
    out = np.empty((n, len(table)), np.float32)
    for i in range(n):
        for label in range(len(table)):
            own = [bucket_values[i, r * n_buckets + table[label, r]] for r in range(R)]
            if aggregate == "median":
                out[i, label] = np.median(own)
            elif aggregate == "min":
                out[i, label] = min(own)
            else:
                total = np.float32(0)
                for value in own:
                    total += np.float32(value)
                out[i, label] = total
    return out


def aggregated(P: np.ndarray, n_buckets: int, aggregate: str, adds_up: bool) -> np.ndarray:
    """What is aggregated over the repetitions: log P, P, or the rate -log(1 - P) minus the mean rate of the buckets."""
    if aggregate == "geometric":
        return np.log(P)
    if aggregate == "rate" or (aggregate == "median" and not adds_up):
        rates = (-np.log1p(-P)).reshape(len(P), -1, n_buckets)
        return (rates - np.float32(1 / n_buckets) * rates.sum(axis=2, keepdims=True)).reshape(P.shape)
    return P
