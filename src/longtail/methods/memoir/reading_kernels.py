"""Compiled loops that read all weights of some classes, and change none. weights_kernels explains the arrays."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(2**32 - 1)  # the key of a free slot; equal to weights_kernels.EMPTY


@kernel
def lost_squares(vectors, classes, amounts, out):
    """out[k] = the sum of v^2 over the weights of class classes[k] that truncation by amounts[k] sets to zero"""
    for k in range(len(classes)):
        c = classes[k]
        out[k] = 0.0
        if vectors.bits[c] > 0:
            for slot in range(vectors.starts[c], vectors.starts[c] + (np.int64(1) << np.int64(vectors.bits[c]))):
                if vectors.keys[slot] != EMPTY and abs(vectors.values[slot]) <= amounts[k]:
                    out[k] += np.float64(vectors.values[slot]) ** 2


@kernel
def truncated(value, amount):
    """The value moved towards zero by `amount`, at most to zero: eq. (13)."""
    return np.float32(np.sign(value) * max(abs(value) - amount, 0.0))


@kernel
def fill_csr(vectors, pending, indptr, indices, data):
    """Write the weights, truncated by pending[c], as rows of a CSR matrix. Features are in the order of the table."""
    for c in range(len(vectors.counts)):
        at = indptr[c]
        if vectors.bits[c] > 0:
            for slot in range(vectors.starts[c], vectors.starts[c] + (np.int64(1) << np.int64(vectors.bits[c]))):
                feature = vectors.keys[slot]
                if feature != EMPTY:
                    indices[at], data[at] = feature, truncated(vectors.scale[0] * vectors.values[slot], pending[c])
                    at += 1
