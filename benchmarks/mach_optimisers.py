"""Which optimiser trains the bucket classifiers of MACH best? Plain loops over single rows, each with its own rates.

Every optimiser makes 5 epochs from zero weights, with a rate that falls linearly to zero, on nine tenths of the
training rows. Its best first rate, a power of 2, is found on the other tenth by P@1: the search begins with a guess and
continues while the next rate is better. `python benchmarks/mach.py optimisers` also prints the precision of the winners
on the test rows.

SGD           w -= rate g
Adagrad       a += g^2,  w -= rate g / sqrt(a), from a = 0 as in PyTorch, from 0.1 as in TensorFlow, and from 1
by feature    the same with one a for all buckets of a feature: the mean of g^2
Adam          m and v move only where a feature occurs, as in PyTorch's SparseAdam; beta 0.9 and 0.999
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

import longtail as lt
from longtail import metrics
from longtail.compiled import csr_parts, csr_pattern
from longtail.matrix import one_label_per_row
from longtail.methods.mach import softmax_kernels as kernels
from longtail.methods.mach.descent import LINKS
from longtail.models import HashedModel
from longtail.models.buckets import LinearBuckets
from longtail.models.hashing import Hashes

SGD, ADAGRAD, BY_FEATURE, ADAM = range(4)
BIAS, BETA_1, BETA_2, EPS = np.float32(0.3), np.float32(0.9), np.float32(0.999), np.float32(1e-8)
OPTIMISERS = {  # kind, first value of the accumulators, first rate to be tried
    "SGD": (SGD, 0.0, 4.0),
    "Adagrad, from 0": (ADAGRAD, 0.0, 1.0),
    "Adagrad, from 0.1": (ADAGRAD, 0.1, 2.0),
    "Adagrad, from 1": (ADAGRAD, 1.0, 4.0),
    "Adagrad by feature": (BY_FEATURE, 0.0, 2.0),
    "Adam": (ADAM, 0.0, 1 / 32),
}


@njit(nogil=True, error_model="numpy", fastmath=True)
def update(kind, rate, step, x, g, w, a, m):
    """The weights of one feature of value x after a row with the errors g; a and m are its accumulators."""
    if kind == SGD:
        for c in range(len(w)):
            w[c] -= rate * x * g[c]
    elif kind == ADAGRAD:
        for c in range(len(w)):
            a[c] += (x * g[c]) ** 2
            w[c] -= rate * x * g[c] / (np.sqrt(a[c]) + EPS)
    elif kind == BY_FEATURE:
        total = np.float32(0)
        for c in range(len(w)):
            total += g[c] * g[c]
        a[0] += x * x * total / np.float32(len(w))
        factor = rate * x / (np.sqrt(a[0]) + EPS)
        for c in range(len(w)):
            w[c] -= factor * g[c]
    else:
        rate *= np.float32(np.sqrt(1 - 0.999**step) / (1 - 0.9**step))
        for c in range(len(w)):
            m[c] = BETA_1 * m[c] + (1 - BETA_1) * x * g[c]
            a[c] = BETA_2 * a[c] + (1 - BETA_2) * (x * g[c]) ** 2
            w[c] -= rate * m[c] / (np.sqrt(a[c]) + EPS)


@njit(nogil=True, error_model="numpy")
def train(kind, X, Y, table, link, order, rate, n_buckets, W, A, M):
    """One step for each row of `order`, with a rate that falls to zero."""
    (data, indices, indptr), columns = X, W.shape[1]
    g, scratch, bits = np.empty(columns, np.float32), np.empty(columns, np.float32), np.empty(columns, np.int32)
    powers, scales = bits.view(np.float32), np.ones(table.shape[1])
    for t in range(len(order)):
        i, now = order[t], np.float32(rate * (1 - t / len(order)))
        kernels.logits(i, X, BIAS, W, scales, n_buckets, g)
        kernels.errors(i, Y, table, link, 0, n_buckets, g, scratch, bits, powers)
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            update(kind, now, t + 1, data[p], g, W[j], A[j], M[j])
        update(kind, now, t + 1, BIAS, g, W[-1], A[-1], M[-1])


def fitted(name: str, data: lt.Dataset, hashes: Any, rate: float, epochs: int = 5) -> tuple[HashedModel, float]:
    """The model, and the CPU seconds of its training."""
    kind, start, _ = OPTIMISERS[name]
    shape = data.n_features + 1, hashes.n_repetitions * hashes.n_buckets
    W, nothing = np.zeros(shape, np.float32), np.zeros((shape[0], 1), np.float32)
    A = nothing if kind in (SGD, BY_FEATURE) else np.full(shape, start, np.float32)
    M = np.zeros(shape, np.float32) if kind == ADAM else nothing
    link = "softmax" if one_label_per_row(data.Y) else "sigmoid"
    order = np.concatenate([np.random.default_rng(epoch).permutation(data.n_samples) for epoch in range(epochs)])
    begin = time.process_time()
    train(
        kind, csr_parts(data.X), csr_pattern(data.Y), hashes.table, LINKS[link], order, rate, hashes.n_buckets, W, A, M
    )
    seconds = time.process_time() - begin
    W[~np.isfinite(W)] = 0
    buckets = LinearBuckets.packed(W, np.arange(len(W)), data.n_features, hashes.n_buckets, float(BIAS), link)
    return HashedModel(hashes, buckets, data.n_features), seconds


def precision(model: HashedModel, data: lt.Dataset) -> list[float]:
    found = metrics.evaluate(data.Y, model.predict_topk(data.X, 5, n_jobs=1))
    return [round(100 * found[f"P@{k}"], 2) for k in (1, 3, 5)]


def compare(data: lt.Dataset, test: lt.Dataset, B: int, R: int) -> list[dict[str, Any]]:
    rows = np.random.default_rng(0).permutation(data.n_samples)
    held_out, rest = (
        lt.Dataset(sp.csr_array(data.X[part]), sp.csr_array(data.Y[part]))
        for part in (np.sort(rows[: len(rows) // 10]), np.sort(rows[len(rows) // 10 :]))
    )
    hashes, table = Hashes.draw(data.n_labels, B, range(R), 0), []
    fitted("SGD", lt.Dataset(rest.X[:100], rest.Y[:100]), hashes, 1.0)  # compiles
    for name, (_, _, guess) in OPTIMISERS.items():
        tried: dict[float, Any] = {}

        def at(rate: float, name: str = name, tried: dict[float, Any] = tried) -> float:
            if rate not in tried:
                model, seconds = fitted(name, rest, hashes, rate)
                tried[rate] = precision(model, held_out), precision(model, test), seconds
                sys.stderr.write(f"{name}, rate {rate:g}: held out {tried[rate][0]}, {seconds:.1f} CPU s\n")
            return tried[rate][0][0]

        best = guess
        for factor in (2.0, 0.5):
            while at(best * factor) > at(best):
                best *= factor
        on_held_out, on_test, seconds = tried[best]
        table.append(
            {
                "optimiser": name, "B": B, "R": R, "best rate": best, "rates tried": len(tried),
                "held-out P@1/3/5": "/".join(map(str, on_held_out)), "test P@1/3/5": "/".join(map(str, on_test)),
                "train CPU s": round(seconds, 1),
            }
        )  # fmt: skip
    return table
