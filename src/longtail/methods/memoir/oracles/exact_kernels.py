"""Compiled loops that find the best class exactly: from inverted lists for the exact oracle, and from all weights for
the measurement of the other oracles."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

SCORE_LANES = 64  # scores compared at once
EMPTY = np.uint32(2**32 - 1)  # the key of a free slot; equal to weights_kernels.EMPTY


@kernel
def best_in_group(vectors, X, Y, rows, group, size, salt, base, scores, out):
    """out[k] = the class of the group with the largest score that is not a label of row rows[k], or -1.

    size : number of classes in the group.
    salt : any number; it decides which of several equal scores wins.
    base : the scores of every row by its dense features, or nothing if there are none.
    scores : room for the scores of the group, in a multiple of SCORE_LANES.
    """
    n_groups = vectors.n_groups
    for k in range(len(rows)):
        i = rows[k]
        if len(base) > 0:
            for at in range(len(scores)):
                scores[at] = base[k, at]
        else:
            scores[:] = 0.0
        for p in range(X.indptr[i], X.indptr[i + 1]):
            number = np.int64(X.indices[p]) * n_groups + group
            start = np.uint64(vectors.list_starts[number])
            x = X.data[p]
            for q in range(start, start + np.uint64(vectors.list_counts[number])):
                scores[vectors.posting_classes[q]] += x * vectors.posting_values[q]
        scores[size:] = -np.inf
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            c = np.int64(Y.indices[p])
            if c % n_groups == group:
                scores[c // n_groups] = -np.inf
        at = first_best(scores, (salt + i * 7919) % size)
        out[k] = at * n_groups + group if at >= 0 else -1


@kernel
def first_best(scores, begin):
    """Return the first position at or after `begin` with the largest score. If there is none, the search starts again
    at 0. Returns -1 if all scores are -inf.

    The largest score is found by SCORE_LANES separate maxima, which the processor can update at once.
    """
    lanes = np.empty(SCORE_LANES, np.float32)
    lanes[:] = -np.inf
    for at in range(0, len(scores), SCORE_LANES):
        for lane in range(SCORE_LANES):
            value = scores[at + lane]
            lanes[lane] = value if value > lanes[lane] else lanes[lane]
    best = np.float32(-np.inf)
    for value in lanes:
        best = max(best, value)
    if best == -np.inf:
        return np.int64(-1)
    for at in range(begin, len(scores)):
        if scores[at] == best:
            return np.int64(at)
    for at in range(begin):
        if scores[at] == best:
            return np.int64(at)
    return np.int64(-1)


@kernel
def best_of_all(vectors, X, Y, rows, line_of, panel, scores, out, out_scores):
    """out[k] = the class with the largest score for row rows[k] that is not one of its labels, or -1. The first of
    equal scores wins. All rows are scored together, so all weights are read once.

    line_of : zeros, one per feature.
    panel : zeros, (total number of entries of the rows, number of rows): the rows as columns, over their features only.
    scores : room for the scores of one class.
    """
    n_lines = 0
    for k in range(len(rows)):
        out[k], out_scores[k] = -1, -np.inf
        for p in range(X.indptr[rows[k]], X.indptr[rows[k] + 1]):
            if line_of[X.indices[p]] == 0:
                n_lines += 1
                line_of[X.indices[p]] = n_lines
            panel[line_of[X.indices[p]] - 1, k] = X.data[p]
    for c in range(len(vectors.counts)):
        scores[:] = 0.0
        if vectors.bits[c] > 0:
            for slot in range(vectors.starts[c], vectors.starts[c] + (np.int64(1) << np.int64(vectors.bits[c]))):
                feature = vectors.keys[slot]
                if feature != EMPTY and line_of[feature] > 0:
                    value, line = vectors.values[slot], line_of[feature] - 1
                    for k in range(len(rows)):
                        scores[k] += value * panel[line, k]
        for k in range(len(rows)):
            if scores[k] > out_scores[k]:
                is_label = False
                for p in range(Y.indptr[rows[k]], Y.indptr[rows[k] + 1]):
                    is_label |= Y.indices[p] == c
                if not is_label:
                    out[k], out_scores[k] = c, scores[k]
