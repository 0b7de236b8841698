"""How lanes of the dual solver take labels: first working sets, and first guesses of weights. See dual.py.

Contract: X and the positives come from inputs.py, all buffers from lanes.py.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

DONE, MORE_ROWS = 0, 1  # as in dual_kernels.py, like the phases; a test compares them
EMPTY, GUESSED, TO_SOLVE = 0, 1, 2
PARALLEL = 1e-9  # as in starts/msi_kernels.py


@kernel
def begin_lane(b, positives, known, wanted, cost, lanes):
    """Lane b takes a label with these positives. Returns DONE or what it has no room for.

    The rows `known` are in the working set from the start, up to `wanted` of them.
    """
    lanes.want[b] = wanted
    lanes.need[b] = len(positives) + lanes.want[b]
    if lanes.need[b] > lanes.first[b + 1] - lanes.first[b]:
        return MORE_ROWS
    at, mine = lanes.first[b], np.uint32(1) << np.uint32(b)
    for a in range(len(positives)):
        i = positives[a]
        lanes.rows[at], lanes.alpha[at] = i, 0.0
        lanes.positive[i] |= mine
        lanes.member[i] |= mine
        at += 1
    for a in range(len(known)):
        i = known[a]
        if lanes.want[b] > 0 and not lanes.member[i] & mine:
            lanes.rows[at], lanes.alpha[at] = i, 0.0
            lanes.member[i] |= mine
            lanes.want[b] -= 1
            at += 1
    lanes.n_rows[b], lanes.n_positive[b] = at - lanes.first[b], len(positives)
    lanes.cost[b] = cost
    lanes.rounds[b], lanes.phase[b] = 1, TO_SOLVE
    return DONE


@kernel
def positive_mean(X, positives, features, w, slot):
    """Write the mean of these rows to w, and its features to `features`; returns how many these are."""
    share, count = np.float32(1.0 / max(len(positives), 1)), np.uint32(0)
    if X.is_dense:
        d = X.indptr[1]
        for f in range(d):
            features[f], w[f] = f, 0.0
        for a in range(len(positives)):
            for f in range(d):
                w[f] += share * X.data[X.indptr[positives[a]] + f]
        return np.int64(d)
    for a in range(len(positives)):
        for p in range(X.indptr[positives[a]], X.indptr[positives[a] + np.uint32(1)]):
            feature = X.indices[p]
            if slot[feature] == np.uint32(0):
                features[count], w[count] = feature, 0.0
                count += np.uint32(1)
                slot[feature] = count
            w[slot[feature] - np.uint32(1)] += X.data[p] * share
    for f in range(count):
        slot[features[f]] = 0
    return np.int64(count)


@kernel
def separating_coefficients(pp, xx, xp, n_positive, n, s, t):
    """A copy of the kernel in starts/msi_kernels.py; msi.py explains it; a test compares the two."""
    determinant = pp * xx - xp * xp
    if n_positive == 0 or determinant <= PARALLEL * pp * xx:
        return 0.0, 0.0
    a = t + (s - t) * n_positive / n
    return (s * xx - a * xp) / determinant, (a * pp - s * xp) / determinant


@kernel
def guess_lane(b, X, first, positives, lanes, slot):
    """Lane b guesses its weights, for a pass that finds the rest of its first working set.

    The first scores are u p.x_i + v base_i (see `FirstScores`), p being the mean of the positives. Without `separate`,
    or if u is 0, p has no part in them.
    """
    u, v, count, w = 0.0, 1.0, np.int64(0), lanes.weights[b, 1:]
    if first.separate:
        count, xp, pp = positive_mean(X, positives, lanes.features[b], w, slot), 0.0, X.bias * X.bias
        for a in range(len(positives)):
            xp += first.base[positives[a]] / len(positives)
        for f in range(count):
            pp += w[f] * w[f]
        u, v = separating_coefficients(
            pp, first.mean_square, xp, len(positives), len(first.base), first.positive, first.negative
        )
    for f in range(count):
        w[f] *= np.float32(u)
    lanes.n_weights[b] = count if u != 0.0 else 0
    lanes.factor[b], lanes.offset[b] = v, u * X.bias * X.bias
    lanes.tau[b] = 0.0
    lanes.rounds[b], lanes.phase[b] = 0, GUESSED


@kernel
def begin(X, positives, parent, labels, first, first_rows, C, cursor, lanes, slot):
    """Every empty lane takes the next label, and guesses if that needs a pass.

    Returns DONE, or MORE_ROWS (then call again with more room).
    """
    for b in range(len(lanes.phase)):
        if lanes.phase[b] != EMPTY or cursor[0] == len(labels):
            continue
        k = cursor[0]
        label, start = labels[k], first_rows.starts[k]
        known = first_rows.rows[start : start + first_rows.n_found[k]]
        if parent[label] >= 0:
            known = positives_of(positives, np.uint64(parent[label]))
        own, cost = positives_of(positives, label), C * positives.weight[label]
        if begin_lane(b, own, known, first_rows.wanted[k], cost, lanes) != DONE:
            return MORE_ROWS
        lanes.position[b] = k
        cursor[0] += 1
        if not first_rows.ready[k]:
            guess_lane(b, X, first, own, lanes, slot)
    return DONE


@kernel
def positives_of(positives, label):
    return positives.rows[positives.indptr[label] : positives.indptr[label + np.uint64(1)]]
