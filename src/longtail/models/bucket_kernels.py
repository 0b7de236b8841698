"""Compiled loops of models/buckets.py: packing weights, joining packed weights, and logits from them.

Weights are packed by feature: feature j has the codes codes[ends[j] : ends[j + 1]]. If columns are given, they say
which column each code belongs to. Otherwise a feature has either a code for every column or no codes. A code is a
float32 weight, or an int8 that is multiplied by the step of its repetition.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel


@kernel
def find_peaks(W, B, out):
    """out[r] = the largest |weight| of repetition r"""
    out[:] = 0
    for j in range(W.shape[0]):
        for r in range(len(out)):
            peak = out[r]
            for c in range(r * B, r * B + B):
                peak = max(peak, abs(W[j, c]))
            out[r] = peak


@kernel
def code_of(w, cut, inverse_step, quantised):
    """The code of a weight; 0 for a weight below the cut."""
    if not abs(w) >= cut:
        return np.float32(0)
    if not quantised:
        return w
    return min(max(np.rint(w * inverse_step), np.float32(-127)), np.float32(127))


@kernel
def count_codes(W, B, cut, inverse_steps, quantised, out):
    """out[j] = the number of codes of feature j that are not 0"""
    for j in range(W.shape[0]):
        count = 0
        for r in range(len(inverse_steps)):
            for c in range(r * B, r * B + B):
                count += code_of(W[j, c], cut, inverse_steps[r], quantised) != 0
        out[j] = count


@kernel
def put(code, column, at, codes, columns, sparse):
    """Write a code of a feature and return the next free position.

    If columns are stored, the code is written at `at`, and the next position is `at` + 1. Otherwise `at` is the first
    position of the feature and does not change.
    """
    if not sparse:
        codes[at + column] = code
        return at
    codes[at] = code
    columns[at] = column
    return at + 1


@kernel
def fill_codes(W, B, cut, inverse_steps, quantised, starts, codes, columns, sparse):
    """Write the codes that are not 0. Those of row j of W begin at starts[j]."""
    for j in range(W.shape[0]):
        at = starts[j]
        for r in range(len(inverse_steps)):
            for c in range(r * B, r * B + B):
                code = code_of(W[j, c], cut, inverse_steps[r], quantised)
                if code != 0:
                    at = put(code, c, at, codes, columns, sparse)


@kernel
def count_kept(codes, ends, out):
    """out[j] += the number of codes of feature j that are not 0"""
    for j in range(len(out)):
        for q in range(ends[j], ends[j + 1]):
            out[j] += codes[q] != 0


@kernel
def copy_codes(part_codes, part_columns, part_ends, part_sparse, first, places, codes, columns, sparse):
    """Write the codes of a part to the next free positions of their features. `first` is the column that the first
    column of the part has in the whole."""
    for j in range(len(places)):
        at = places[j]
        for q in range(part_ends[j], part_ends[j + 1]):
            if part_codes[q] != 0:
                column = np.int64(part_columns[q]) if part_sparse else q - part_ends[j]
                at = put(part_codes[q], first + column, at, codes, columns, sparse)
        places[j] = at


@kernel
def add_dense(x, codes, out):
    """out += x codes"""
    for c in range(len(codes)):
        out[c] += x * np.float32(codes[c])


@kernel
def add_sparse(x, codes, columns, out):
    """out[columns] += x codes"""
    for q in range(len(codes)):
        out[columns[q]] += x * np.float32(codes[q])


@kernel
def add_feature(j, x, codes, columns, ends, sparse, out):
    """out += x times the codes of feature j"""
    start = ends[j]
    end = ends[j + np.uint64(1)]
    if sparse:
        add_sparse(x, codes[start:end], columns[start:end], out)
    elif end > start:
        add_dense(x, codes[start:end], out)


@kernel
def fill_logits(X, bias, codes, columns, ends, steps, sparse, B, out):
    """out[i, r B + b] = the logit of bucket b of repetition r: the bias first, then the features of row i in order"""
    X_data, X_indices, X_indptr = X
    for i in range(out.shape[0]):
        z = out[i]
        z[:] = 0
        if bias > 0:
            add_feature(np.uint64(len(ends) - 2), bias, codes, columns, ends, sparse, z)
        for p in range(X_indptr[i], X_indptr[i + 1]):
            add_feature(np.uint64(X_indices[p]), X_data[p], codes, columns, ends, sparse, z)
        for r in range(len(steps)):
            for c in range(r * B, r * B + B):
                z[c] *= steps[r]
