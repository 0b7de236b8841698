"""What a lane of the dual solver does between passes: first guess, coordinate descent, panel. See dual.py.

Contract: X and the positives come from inputs.py, all buffers from lanes.py.
"""

from __future__ import annotations

import math

import numpy as np

from longtail.compiled import (
    as_element,
    as_float,
    borrowing_kernel,
    larger,
    reordering_kernel,
    smaller,
)
from longtail.methods.one_vs_all.row_intrinsics import fetch, sparse_dot

DONE, MORE_ROWS, MORE_OUTPUT = 0, 1, 2  # what `prepare` had no room for
EMPTY, GUESSED, TO_SOLVE, TO_CHECK, TO_HOLD_OUT = 0, 1, 2, 3, 4  # where a lane stands
MIN_MORE_ROWS = 100  # a later round adds up to this number of rows,
MORE_ROWS_SHARE = 0.5  # or this share of the working set if that is more
FIRST_TOLERANCE = 2.0  # the first working set is solved to this multiple of `tol`: most labels need a second one
SECOND_TOLERANCE = 0.7  # the second working set; the multiple halves in each further round
UNCHECKED_SHARE = 0.25  # share of the gap allowed that may come from rows below the threshold `tau`
HELD_OUT_TOLERANCE = 2.0  # the solution without held-out rows if D is small,
HELD_OUT_GAP = 8.0  # else the gap may be this multiple of `tol`,
LEAST_TOLERANCE = 0.5  # or, for very large D, this multiple of tol D
MAX_PASSES = 300  # of coordinate descent over one working set
FIRST_ALPHA = 1.0  # of the positives at the even start, before scaling
FIRST_BIAS = -1.06  # at the even start: most rows of most labels lie just below the margin of -1
ROWS_AHEAD = 3  # rows by which the entries of a working set are fetched before they are read,
LINES_AHEAD = 16  # and features by which the lines of the panel are
LABEL_LANES = 32  # as in lane_intrinsics.py; a test compares them
PARALLEL = 1e-9  # as in starts/msi_kernels.py


# --- 1. coordinate descent on the working set ------------------------------------------------------------------------


@reordering_kernel
def dense_dot(dense, i, v):
    total = np.float32(0.0)
    for f in range(len(v)):
        total += dense[i, f] * v[f]
    return total


@borrowing_kernel
def add_dense(dense, i, factor, v):
    for f in range(len(v)):
        v[f] += factor * dense[i, f]


@borrowing_kernel
def row_dot(X, i, w):
    """The product of the sparse part of row i with w."""
    return sparse_dot(X.data, X.indices, X.indptr[i], X.indptr[i + np.uint32(1)], w)


@borrowing_kernel
def add_row(X, i, factor, w):
    """Add the sparse part of row i, multiplied, to w."""
    for p in range(X.indptr[i], X.indptr[i + np.uint32(1)]):
        w[X.indices[p]] += factor * X.data[p]


@borrowing_kernel
def fetch_row(X, i):
    """Ask for the sparse part of row i, which is needed soon."""
    for p in range(X.indptr[i], X.indptr[i + np.uint32(1)], np.uint64(16)):
        fetch(X.data, p)
        fetch(X.indices, p)


@borrowing_kernel
def list_features(b, X, rows, lanes):
    """Add the sparse features of these rows to the list of lane b, which has each feature once.

    Whether a feature is new is hard to predict, so there is no branch.
    """
    lane, features, users = lanes.each[b], lanes.features[b], lanes.users
    mine, count = np.uint32(1) << np.uint32(b), np.uint64(lane.n_features)
    for r in range(len(rows)):
        if r + ROWS_AHEAD < len(rows):
            fetch_row(X, rows[r + ROWS_AHEAD])
        for p in range(X.indptr[rows[r]], X.indptr[rows[r] + np.uint32(1)]):
            feature = X.indices[p]
            had = users[feature]
            features[count] = feature
            count += np.uint64((had & mine) == np.uint32(0))
            users[feature] = had | mine
    lane.n_features = np.int64(count)


@borrowing_kernel
def even_start(lane, X, rows, alpha, positive_half, negative_half, features, scratch):
    """Begin with one alpha for all positives, one for all negatives, and their weights. Returns D and the bias weight.

    Many sweeps would pass until all alphas, together, have the right size. The ratio of the two alphas is a guess: with
    it the bias weight would be FIRST_BIAS. Their size is the best one: D(s alpha) = s a - s^2 b / 2 is largest at
    s = a / b, and is s a / 2 there.
    """
    n_rows, n_positive, w = lane.n_rows, lane.n_positive, scratch.w
    negative = (FIRST_ALPHA * n_positive - FIRST_BIAS) / larger(n_rows - n_positive, 1)
    bias_weight, a, b = 0.0, 0.0, 0.0
    for r in range(n_rows):
        if r + ROWS_AHEAD < n_rows:
            fetch_row(X, rows[r + ROWS_AHEAD])
        alpha[r], half = (FIRST_ALPHA, positive_half) if r < n_positive else (negative, negative_half)
        bias_weight += add_alpha(lane, X, rows, r, alpha[r], scratch)
        a += alpha[r]
        b += alpha[r] * alpha[r] * half
    b += squared_norm(features, scratch) + bias_weight * bias_weight
    scale = a / b if b > 0.0 else 0.0
    for r in range(n_rows):
        alpha[r] *= scale
    for f in range(len(features)):
        w[features[f]] *= np.float32(scale)
    for f in range(len(scratch.w_dense)):
        scratch.w_dense[f] *= np.float32(scale)
    return 0.5 * scale * a, scale * bias_weight


@borrowing_kernel
def add_alpha(lane, X, rows, r, alpha, scratch):
    """Add row number r of the working set to the weights, by its alpha. Returns what the bias weight gains."""
    signed = alpha if r < lane.n_positive else -alpha
    add_row(X, rows[r], np.float32(signed), scratch.w)
    add_dense(X.dense, rows[r], np.float32(signed), scratch.w_dense)
    return signed * X.bias


@borrowing_kernel
def descend(lane, X, rows, alpha, C, tol, features, scratch):
    """Coordinate descent on D over the working set of a lane, from `alpha`, until the rows' violations sum to tol D.

    Row i alone is optimal at alpha_i - G / Q, cut at 0, with G = y_i x_i.w - 1 + alpha_i / 2c, Q = |x_i|^2 + 1 / 2c and
    c its cost: lane.cost for positives, else C. The gap is the sum of c G^2 over rows with slack. A pass sums these
    terms as it meets them, and the sum tells when to stop. Rows with alpha 0 and a large G leave (shrinking) until the
    other rows are done. `order` is shuffled by a fixed sequence. If alpha is 0, it begins with `even_start`.

    `features` are the sparse features of these rows. scratch.w and scratch.w_dense, zero before, become the weights.
    Writes D and the bias weight to the lane.
    """
    n_rows, n_positive, bias = lane.n_rows, lane.n_positive, X.bias
    dense, w, w_dense = X.dense, scratch.w, scratch.w_dense
    order, step = scratch.order, scratch.step
    positive_half, negative_half = 1.0 / (2.0 * lane.cost), 1.0 / (2.0 * C)
    bias_weight, D, begun = 0.0, 0.0, False
    for r in range(n_rows):
        if r + ROWS_AHEAD < n_rows:
            fetch_row(X, rows[r + ROWS_AHEAD])
        half = positive_half if r < n_positive else negative_half
        order[r], step[r] = r, 1.0 / (X.squares[rows[r]] + bias * bias + half)
        if alpha[r] > 0.0:
            bias_weight += add_alpha(lane, X, rows, r, alpha[r], scratch)
            D += alpha[r] - alpha[r] * alpha[r] * 0.5 * half
            begun = True
    if begun:
        D -= 0.5 * (squared_norm(features, scratch) + bias_weight * bias_weight)
    else:
        D, bias_weight = even_start(lane, X, rows, alpha, positive_half, negative_half, features, scratch)
    state = np.uint64(88172645463325252)
    n_active, limit = n_rows, np.inf
    for _ in range(MAX_PASSES):
        violation, worst = 0.0, 0.0
        for a in range(n_active - 1, 0, -1):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            other = np.int64(((state >> np.uint64(32)) * np.uint64(a + 1)) >> np.uint64(32))  # in 0 .. a
            order[a], order[other] = order[other], order[a]
        a = 0
        while a < n_active:
            r = order[a]
            y, half = (1.0, positive_half) if r < n_positive else (-1.0, negative_half)
            z = row_dot(X, rows[r], w) + bias * bias_weight
            if len(w_dense) > 0:
                z += dense_dot(dense, rows[r], w_dense)
            G = y * z - 1.0 + alpha[r] * half
            if alpha[r] == 0.0 and G >= 0.0:
                if limit < G:
                    n_active -= 1
                    order[a], order[n_active] = order[n_active], r
                else:
                    a += 1
                continue
            a += 1
            violation += G * G * 0.5 / half
            worst = larger(worst, abs(G))
            change = larger(-G * step[r], -alpha[r])
            if change != 0.0:
                alpha[r] += change
                if alpha[r] < 0.0:
                    alpha[r] = 0.0
                D -= G * change + 0.5 * change * change / step[r]
                add_row(X, rows[r], np.float32(y * change), w)
                add_dense(dense, rows[r], np.float32(y * change), w_dense)
                bias_weight += y * change * bias
        limit = worst if worst > 0.0 else np.inf
        if violation <= tol * larger(D, 1e-300):
            if n_active == n_rows:
                break
            n_active, limit = n_rows, np.inf  # the rows that left are checked before the lane is done
    D = -0.5 * (squared_norm(features, scratch) + bias_weight * bias_weight)
    for r in range(n_rows):
        D += alpha[r] - alpha[r] * alpha[r] * 0.5 * (positive_half if r < n_positive else negative_half)
    lane.dual, lane.bias_weight = D, bias_weight


@borrowing_kernel
def positive_loss(lane, X, rows, scratch):
    """The sum of max(0, 1 - z)^2 over the positives of a lane, the first rows of its working set, with the weights in
    `scratch`."""
    total, offset = 0.0, X.bias * lane.bias_weight
    for r in range(lane.n_positive):
        z = row_dot(X, rows[r], scratch.w) + offset
        if len(scratch.w_dense) > 0:
            z += dense_dot(X.dense, rows[r], scratch.w_dense)
        total += larger(0.0, 1.0 - z) ** 2
    return total


@borrowing_kernel
def clear(features, scratch):
    """Set the weights in `scratch` to 0. `features` are the sparse ones."""
    for f in range(len(features)):
        scratch.w[features[f]] = 0.0
    for f in range(len(scratch.w_dense)):
        scratch.w_dense[f] = 0.0


@borrowing_kernel
def squared_norm(features, scratch):
    """|w|^2 of the weights in `scratch`, of the sparse `features` and all dense ones. As `row_dot`, four sums."""
    w, w_dense = scratch.w, scratch.w_dense
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    n = len(features)
    for f in range(0, n - 3, 4):
        a += w[features[f]] * w[features[f]]
        b += w[features[f + 1]] * w[features[f + 1]]
        c += w[features[f + 2]] * w[features[f + 2]]
        d += w[features[f + 3]] * w[features[f + 3]]
    for f in range(n - n % 4, n):
        a += w[features[f]] * w[features[f]]
    for f in range(len(w_dense)):
        b += w_dense[f] * w_dense[f]
    return (a + b) + (c + d)


# --- 2. first guess --------------------------------------------------------------------------------------------------


@borrowing_kernel
def positive_mean(X, positives, scratch):
    """Add the mean of these rows to the weights in `scratch`."""
    share = np.float32(1.0 / larger(len(positives), 1))
    for a in range(len(positives)):
        add_row(X, positives[a], share, scratch.w)
        add_dense(X.dense, positives[a], share, scratch.w_dense)


@borrowing_kernel
def separating_coefficients(pp, xx, xp, n_positive, n, s, t):
    """A copy of the kernel in starts/msi_kernels.py; msi.py explains it; a test compares the two."""
    determinant = pp * xx - xp * xp
    if n_positive == 0 or determinant <= PARALLEL * pp * xx:
        return 0.0, 0.0
    a = t + (s - t) * n_positive / n
    return (s * xx - a * xp) / determinant, (a * pp - s * xp) / determinant


@borrowing_kernel
def guess(X, first, positives, features, scratch):
    """The first scores are u p.x_i + v base_i (see `FirstScores`). Returns u and v.

    p is the mean of the positives, whose sparse `features` are known, as `positive_mean` writes it. Without `separate`
    p has no part in the scores.
    """
    if not first.separate:
        return 0.0, 1.0
    positive_mean(X, positives, scratch)
    mp = 0.0
    for a in range(len(positives)):
        mp += first.base[positives[a]] / len(positives)
    pp = squared_norm(features, scratch) + X.bias * X.bias
    return separating_coefficients(
        pp, first.mean_square, mp, len(positives), len(first.base), first.positive, first.negative
    )


# --- 3. one lane -----------------------------------------------------------------------------------------------------


@borrowing_kernel
def fill_lane(b, lanes, scratch, factor):
    """Lane b of both panels = factor times the weights in `scratch`.

    The weights in `scratch` become what the panels hold, after rounding. Returns |w|^2 of that.
    """
    lane, features, panel = lanes.each[b], lanes.features[b], lanes.panel
    norm = 0.0
    for f in range(lane.n_features):
        fetch(panel, np.uint64(features[f + LINES_AHEAD]) * np.uint64(LABEL_LANES))
        feature = features[f]
        element = as_element(panel, factor * scratch.w[feature])
        panel[feature, b], held = element, as_float(element)
        scratch.w[feature] = held
        norm += held * held
    for f in range(len(scratch.w_dense)):
        held = as_float(as_element(panel, factor * scratch.w_dense[f]))
        lanes.dense_panel[f, b] = held
        scratch.w_dense[f] = held
        norm += held * held
    return norm


@borrowing_kernel
def begin_lane(b, positives, known, wanted, cost, lanes):
    """Lane b takes a label with these positives. Returns DONE or what it has no room for.

    The rows `known` are in the working set from the start, up to `wanted` of them.
    """
    lane = lanes.each[b]
    lane.want = wanted
    lane.need = len(positives) + lane.want
    if lane.need > lane.room:
        return MORE_ROWS
    at, mine = lane.start, np.uint32(1) << np.uint32(b)
    for a in range(len(positives)):
        i = positives[a]
        lanes.rows[at], lanes.alpha[at] = i, 0.0
        lanes.positive[i] |= mine
        lanes.member[i] |= mine
        at += 1
    for a in range(len(known)):
        i = known[a]
        if lane.want > 0 and not lanes.member[i] & mine:
            lanes.rows[at], lanes.alpha[at] = i, 0.0
            lanes.member[i] |= mine
            lane.want -= 1
            at += 1
    lane.n_rows, lane.n_positive = at - lane.start, len(positives)
    lane.cost = cost
    lane.rounds, lane.phase = 1, TO_SOLVE
    return DONE


@borrowing_kernel
def guess_lane(b, X, first, positives, lanes, scratch):
    """Lane b guesses its weights, for a pass that finds the rest of its first working set."""
    lane = lanes.each[b]
    list_features(b, X, positives, lanes)
    lane.n_listed = len(positives)
    features = lanes.features[b, : lane.n_features]
    u, v = guess(X, first, positives, features, scratch)
    fill_lane(b, lanes, scratch, np.float32(u))
    clear(features, scratch)
    lanes.factor[b], lanes.offset[b] = v, u * X.bias * X.bias
    lanes.tau[b] = 0.0
    lane.rounds, lane.phase = 0, GUESSED


@borrowing_kernel
def inner_tolerance(n_round):
    """To which multiple of `tol` the working set of this round is solved."""
    return FIRST_TOLERANCE if n_round == 1 else SECOND_TOLERANCE * 0.5 ** (n_round - 2)


@borrowing_kernel
def solve_lane(b, X, rule, lanes, scratch):
    """Solve the working set of lane b and put its weights in the panel; returns DONE or what it has no room for.

    The primal point is the weights as the panel holds them, so |w|^2 and all losses are taken from these.
    """
    lane = lanes.each[b]
    n, n_rows = len(lanes.member), lane.n_rows
    lane.want = smaller(larger(MIN_MORE_ROWS, np.int64(MORE_ROWS_SHARE * n_rows)), n - n_rows)
    lane.need = n_rows + lane.want
    if lane.need > lane.room:
        return MORE_ROWS
    rows, alpha = lanes.rows[lane.start :], lanes.alpha[lane.start :]
    list_features(b, X, rows[lane.n_listed : n_rows], lanes)
    lane.n_listed = n_rows
    features = lanes.features[b, : lane.n_features]
    descend(lane, X, rows, alpha, rule.C, rule.tol * inner_tolerance(lane.rounds), features, scratch)
    lane.norm = fill_lane(b, lanes, scratch, np.float32(1.0)) + lane.bias_weight**2
    lane.positive_loss = positive_loss(lane, X, rows, scratch)
    clear(features, scratch)
    lanes.factor[b], lanes.offset[b] = 0.0, X.bias * lane.bias_weight
    lanes.tau[b] = math.sqrt(UNCHECKED_SHARE * rule.tol * larger(lane.dual, 0.0) / (rule.C * n))
    lane.phase = TO_CHECK
    return DONE


# --- 4. all lanes -----------------------------------------------------------------------------------------------------


@borrowing_kernel
def prepare(X, positives, parent, labels, first, first_rows, rule, cursor, lanes, scratch, room):
    """Every empty lane takes the next label, and guesses if that needs a pass; every lane with a working set solves it.

    `room` is how many more weights the output has room for. Returns DONE, or which buffer was too small (then call
    again with a larger one).
    """
    for b in range(len(lanes.each)):
        lane, ended = lanes.each[b], DONE
        if lane.phase == EMPTY and cursor[0] < len(labels):
            k = cursor[0]
            label, start = labels[k], first_rows.starts[k]
            own = positives.rows[positives.indptr[label] : positives.indptr[label + np.uint64(1)]]
            known = first_rows.rows[start : start + first_rows.n_found[k]]
            cost = rule.C * positives.weight[label]
            if parent[label] >= 0:
                similar = positives.rows[positives.indptr[parent[label]] : positives.indptr[parent[label] + 1]]
                ended = begin_lane(b, own, similar, first_rows.wanted[k], cost, lanes)
            else:
                ended = begin_lane(b, own, known, first_rows.wanted[k], cost, lanes)
            if ended == DONE:
                lane.position = k
                cursor[0] += 1
                if not first_rows.ready[k]:
                    guess_lane(b, X, first, own, lanes, scratch)
        if lane.phase == TO_SOLVE and ended == DONE:
            ended = solve_lane(b, X, rule, lanes, scratch)
        if ended != DONE:
            return ended
        if lane.phase == EMPTY:
            lanes.tau[b], lane.need = np.inf, 0
        else:
            room -= lane.n_features + len(lanes.dense_panel) + 1
    return MORE_OUTPUT if room < 0 else DONE


# --- 5. held-out rows ------------------------------------------------------------------------------------------------


@borrowing_kernel
def find_more_rows(X, lanes):
    """The rows that the last pass found join the working sets of the solved lanes, in the place of held-out rows."""
    for b in range(len(lanes.each)):
        lane = lanes.each[b]
        if lane.phase == TO_HOLD_OUT:
            at, mine = lane.start + lane.n_rows, np.uint32(1) << np.uint32(b)
            for c in range(lane.n_found):
                i = lanes.found[2 * lane.start + c]
                lanes.rows[at + c], lanes.alpha[at + c] = i, 0.0
                lanes.member[i] |= mine
            lane.n_rows += lane.n_found
            list_features(b, X, lanes.rows[lane.start + lane.n_listed : lane.start + lane.n_rows], lanes)
            lane.n_listed = lane.n_rows


@borrowing_kernel
def held_out_tolerance(D):
    """To which multiple of `tol` the working set without held-out rows is solved.

    A gap that is small compared with D still moves the scores of single rows, so it is limited, too.
    """
    return larger(LEAST_TOLERANCE, smaller(HELD_OUT_TOLERANCE, HELD_OUT_GAP / larger(D, 1e-300)))


@borrowing_kernel
def hold_out(fold, fold_of, X, rule, lanes, scratch):
    """Solve the working sets of the solved lanes again, from their alphas, without the rows of a fold.

    The lanes keep their alphas, but the panel gets the new weights, small ones cut. A label without other positives
    gets a score of -1 everywhere, which is about the solution of the all-negative problem.
    """
    for b in range(len(lanes.each)):
        lane = lanes.each[b]
        if lane.phase == TO_HOLD_OUT:
            features, n_rows, n_positive = lanes.features[b, : lane.n_features], lane.n_rows, lane.n_positive
            kept, kept_positive = 0, 0
            for r in range(n_rows):
                i = lanes.rows[lane.start + r]
                if fold_of[i] != fold:
                    scratch.rows[kept], scratch.alpha[kept] = i, lanes.alpha[lane.start + r]
                    kept += 1
                    kept_positive += np.int64(r < n_positive)
            lane.n_rows, lane.n_positive, lane.bias_weight = kept, kept_positive, 0.0
            if kept_positive > 0:
                tol = rule.tol * held_out_tolerance(lane.dual)
                descend(lane, X, scratch.rows, scratch.alpha, rule.C, tol, features, scratch)
            cut(features, rule.prune, scratch)
            fill_lane(b, lanes, scratch, np.float32(1.0))
            clear(features, scratch)
            offset = X.bias * lane.bias_weight if abs(lane.bias_weight) >= rule.prune else 0.0
            lanes.offset[b] = offset if kept_positive > 0 else -1.0
            lane.n_rows, lane.n_positive = n_rows, n_positive


@borrowing_kernel
def cut(features, prune, scratch):
    """Set the weights in `scratch` that are smaller than `prune` to 0."""
    for f in range(len(features)):
        if abs(scratch.w[features[f]]) < prune:
            scratch.w[features[f]] = 0.0
    for f in range(len(scratch.w_dense)):
        if abs(scratch.w_dense[f]) < prune:
            scratch.w_dense[f] = 0.0
