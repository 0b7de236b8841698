"""Compiled loops of candidates.py: recent rivals of a class, and candidates from the top classes of features."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel


@kernel
def add_recent(targets, found, rivals, counts):
    """Write found[k] into the row of class targets[k], where it replaces the oldest entry. Skip it if it is negative or
    already in the row."""
    for k in range(len(targets)):
        y, known = targets[k], found[k] < 0
        for at in range(rivals.shape[1]):
            known |= rivals[y, at] == found[k]
        if not known:
            rivals[y, counts[y] % rivals.shape[1]] = found[k]
            counts[y] += 1


@kernel
def candidates_of_features(vectors, X, Y, rows, group, n_groups, sums, best, out):
    """out[k] = candidates for the rival of row x = rows[k], best first, -1 in unused places.

    Each top class c of a feature of x gets a partial score: the sum of x_j w_cj over those features j of x that have c
    as a top class. The classes with the largest positive partial scores are the candidates. Labels of the row and
    classes outside the group (c mod n_groups) are left out.

    sums : zeros, one per class, for the partial scores; zeros again at the end.
    best : room for the partial scores of a row's candidates.
    """
    for k in range(len(rows)):
        i, n = rows[k], 0
        room = out.shape[1]
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            sums[Y.indices[p]] = -np.inf
        for p in range(X.indptr[i], X.indptr[i + 1]):
            for at in range(vectors.top_classes.shape[1]):
                c = np.int64(vectors.top_classes[X.indices[p], at])
                if c >= 0 and c % n_groups == group:
                    sums[c] += X.data[p] * vectors.top_values[X.indices[p], at]
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            sums[Y.indices[p]] = 0.0
        for p in range(X.indptr[i], X.indptr[i + 1]):
            for c in vectors.top_classes[X.indices[p]]:
                if c < 0 or sums[c] == 0.0:
                    continue
                partial, sums[c] = sums[c], 0.0
                if partial < 0.0 or (n == room and partial <= best[n - 1]):
                    continue
                at = n if n < room else n - 1
                while at > 0 and best[at - 1] < partial:
                    out[k, at], best[at] = out[k, at - 1], best[at - 1]
                    at -= 1
                out[k, at], best[at] = c, partial
                n = min(n + 1, room)
        out[k, n:] = -1
