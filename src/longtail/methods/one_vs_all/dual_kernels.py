"""What a lane of the dual solver does between passes: first guess, coordinate descent, panel. See dual.py.

Contract: X and the positives come from inputs.py, all buffers from lanes.py.
"""

from __future__ import annotations

import math

import numpy as np

from longtail.compiled import as_element, as_float, borrowing_kernel, larger, reordering_kernel, smaller

DONE, MORE_ROWS, MORE_ENTRIES, MORE_OUTPUT = 0, 1, 2, 3  # what `prepare` had no room for
EMPTY, GUESSED, TO_SOLVE, TO_CHECK = 0, 1, 2, 3  # where a lane stands
MIN_MORE_ROWS = 100  # a later round adds up to this number of rows,
MORE_ROWS_SHARE = 0.5  # or this share of the working set if that is more
FIRST_TOLERANCE = 2.0  # the first working set is solved to this multiple of `tol`: most labels need a second one
SECOND_TOLERANCE = 0.7  # the second working set; the multiple halves in each further round
UNCHECKED_SHARE = 0.25  # share of the gap allowed that may come from rows below the threshold `tau`
MAX_PASSES = 300  # of coordinate descent over one working set
FIRST_ALPHA = 1.0  # of the positives at the even start, before scaling
FIRST_BIAS = -1.06  # at the even start: most rows of most labels lie just below the margin of -1
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
def row_dot(x, j, start, end, w):
    """The product with a sparse row as `gather` copies it.

    Four sums are taken at a time, because each addition to a single sum would wait for the one before.
    """
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    a, b = np.float32(0.0), np.float32(0.0)
    c, d = np.float32(0.0), np.float32(0.0)
    for p in range(start, end, np.uint64(4)):
        a += x[p] * w[j[p]]
        b += x[p + one] * w[j[p + one]]
        c += x[p + two] * w[j[p + two]]
        d += x[p + three] * w[j[p + three]]
    return (a + b) + (c + d)


@borrowing_kernel
def add_row(x, j, start, end, factor, w):
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for p in range(start, end, np.uint64(4)):
        w[j[p]] += factor * x[p]
        w[j[p + one]] += factor * x[p + one]
        w[j[p + two]] += factor * x[p + two]
        w[j[p + three]] += factor * x[p + three]


@borrowing_kernel
def gather(X, rows, n_rows, scratch):
    """Copy the sparse part of the working set, with features renumbered 0, 1, ... in the order in which they occur.

    Rows are padded with zeros at feature 0 to multiples of four entries, for `row_dot` and `add_row`. Returns the
    number of features. The dense part is read in place.
    """
    slot, features = scratch.slot, scratch.features
    count, at = np.uint32(0), np.uint64(0)
    scratch.ends[0] = 0
    for r in range(n_rows):
        i = rows[r]
        for p in range(X.indptr[i], X.indptr[i + np.uint32(1)]):
            feature = X.indices[p]
            if slot[feature] == np.uint32(0):
                features[count] = feature
                count += np.uint32(1)
                slot[feature] = count
            scratch.j[at], scratch.x[at] = slot[feature] - np.uint32(1), X.data[p]
            at += np.uint64(1)
        while at & np.uint64(3):
            scratch.j[at], scratch.x[at] = np.uint32(0), np.float32(0.0)
            at += np.uint64(1)
        scratch.ends[r + 1] = at
    for f in range(count):
        slot[features[f]] = 0
    return np.int64(count)


@borrowing_kernel
def even_start(lane, X, rows, alpha, positive_half, negative_half, scratch, w):
    """Begin with one alpha for all positives, one for all negatives, and their weights. Returns D and the bias weight.

    Many sweeps would pass until all alphas, together, have the right size. The ratio of the two alphas is a guess: with
    it the bias weight would be FIRST_BIAS. Their size is the best one: D(s alpha) = s a - s^2 b / 2 is largest at
    s = a / b, and is s a / 2 there.
    """
    n_rows, n_positive = lane.n_rows, lane.n_positive
    negative = (FIRST_ALPHA * n_positive - FIRST_BIAS) / larger(n_rows - n_positive, 1)
    bias_weight, a, b = 0.0, 0.0, 0.0
    for r in range(n_rows):
        alpha[r], half = (FIRST_ALPHA, positive_half) if r < n_positive else (negative, negative_half)
        bias_weight += add_alpha(lane, X, rows, r, alpha[r], scratch, w)
        a += alpha[r]
        b += alpha[r] * alpha[r] * half
    b += squared_norm(w) + squared_norm(scratch.w_dense) + bias_weight * bias_weight
    scale = a / b if b > 0.0 else 0.0
    for r in range(n_rows):
        alpha[r] *= scale
    for f in range(len(w)):
        w[f] *= np.float32(scale)
    for f in range(len(scratch.w_dense)):
        scratch.w_dense[f] *= np.float32(scale)
    return 0.5 * scale * a, scale * bias_weight


@borrowing_kernel
def add_alpha(lane, X, rows, r, alpha, scratch, w):
    """Add row number r of the working set to the weights, by its alpha. Returns what the bias weight gains."""
    signed = alpha if r < lane.n_positive else -alpha
    add_row(scratch.x, scratch.j, scratch.ends[r], scratch.ends[r + 1], np.float32(signed), w)
    add_dense(X.dense, rows[r], np.float32(signed), scratch.w_dense)
    return signed * X.bias


@borrowing_kernel
def descend(lane, X, rows, alpha, C, tol, scratch, w):
    """Coordinate descent on D over the working set of a lane, from `alpha`, until the rows' violations sum to tol D.

    Row i alone is optimal at alpha_i - G / Q, cut at 0, with G = y_i x_i.w - 1 + alpha_i / 2c, Q = |x_i|^2 + 1 / 2c and
    c its cost: lane.cost for positives, else C. The gap is the sum of c G^2 over rows with slack. A pass sums these
    terms as it meets them, and the sum tells when to stop. Rows with alpha 0 and a large G leave (shrinking) until the
    other rows are done. `order` is shuffled by a fixed sequence. If alpha is 0, it begins with `even_start`.

    The sparse rows are in `scratch`. w and scratch.w_dense, zero before, become the weights of their features and of
    the dense ones. Writes D and the bias weight to the lane.
    """
    n_rows, n_positive, bias = lane.n_rows, lane.n_positive, X.bias
    x, j, ends = scratch.x, scratch.j, scratch.ends
    dense, w_dense = X.dense, scratch.w_dense
    order, step = scratch.order, scratch.step
    positive_half, negative_half = 1.0 / (2.0 * lane.cost), 1.0 / (2.0 * C)
    bias_weight, D, begun = 0.0, 0.0, False
    for r in range(n_rows):
        half = positive_half if r < n_positive else negative_half
        order[r], step[r] = r, 1.0 / (X.squares[rows[r]] + bias * bias + half)
        if alpha[r] > 0.0:
            bias_weight += add_alpha(lane, X, rows, r, alpha[r], scratch, w)
            D += alpha[r] - alpha[r] * alpha[r] * 0.5 * half
            begun = True
    if begun:
        D -= 0.5 * (squared_norm(w) + squared_norm(w_dense) + bias_weight * bias_weight)
    else:
        D, bias_weight = even_start(lane, X, rows, alpha, positive_half, negative_half, scratch, w)
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
            z = row_dot(x, j, ends[r], ends[r + 1], w) + bias * bias_weight
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
                add_row(x, j, ends[r], ends[r + 1], np.float32(y * change), w)
                add_dense(dense, rows[r], np.float32(y * change), w_dense)
                bias_weight += y * change * bias
        limit = worst if worst > 0.0 else np.inf
        if violation <= tol * larger(D, 1e-300):
            if n_active == n_rows:
                break
            n_active, limit = n_rows, np.inf  # the rows that left are checked before the lane is done
    D = -0.5 * (squared_norm(w) + squared_norm(w_dense) + bias_weight * bias_weight)
    for r in range(n_rows):
        D += alpha[r] - alpha[r] * alpha[r] * 0.5 * (positive_half if r < n_positive else negative_half)
    lane.dual, lane.bias_weight = D, bias_weight


@borrowing_kernel
def positive_loss(lane, X, rows, scratch, w):
    """The sum of max(0, 1 - z)^2 over the positives of a lane, the first rows of its working set, with the weights w
    and scratch.w_dense."""
    total, offset = 0.0, X.bias * lane.bias_weight
    for r in range(lane.n_positive):
        z = row_dot(scratch.x, scratch.j, scratch.ends[r], scratch.ends[r + 1], w) + offset
        if len(scratch.w_dense) > 0:
            z += dense_dot(X.dense, rows[r], scratch.w_dense)
        total += larger(0.0, 1.0 - z) ** 2
    return total


@borrowing_kernel
def clear(w):
    for f in range(len(w)):
        w[f] = 0.0


@borrowing_kernel
def squared_norm(w):
    total = 0.0
    for f in range(len(w)):
        total += w[f] * w[f]
    return total


# --- 2. first guess --------------------------------------------------------------------------------------------------


@borrowing_kernel
def positive_mean(X, positives, scratch):
    """Write the mean of these rows to scratch.w and scratch.w_dense, and its sparse features to scratch.features.

    Returns the number of these features.
    """
    slot, features, w = scratch.slot, scratch.features, scratch.w
    share = np.float32(1.0 / larger(len(positives), 1))
    count = np.uint32(0)
    clear(scratch.w_dense)
    for a in range(len(positives)):
        i = positives[a]
        add_dense(X.dense, i, share, scratch.w_dense)
        for p in range(X.indptr[i], X.indptr[i + np.uint32(1)]):
            feature = X.indices[p]
            if slot[feature] == np.uint32(0):
                features[count], w[count] = feature, 0.0
                count += np.uint32(1)
                slot[feature] = count
            w[slot[feature] - np.uint32(1)] += X.data[p] * share
    for f in range(count):
        slot[features[f]] = 0
    return np.int64(count)


@borrowing_kernel
def separating_coefficients(pp, xx, xp, n_positive, n, s, t):
    """A copy of the kernel in starts/msi_kernels.py; msi.py explains it; a test compares the two."""
    determinant = pp * xx - xp * xp
    if n_positive == 0 or determinant <= PARALLEL * pp * xx:
        return 0.0, 0.0
    a = t + (s - t) * n_positive / n
    return (s * xx - a * xp) / determinant, (a * pp - s * xp) / determinant


@borrowing_kernel
def guess(X, first, positives, scratch):
    """The first scores are u p.x_i + v base_i (see `FirstScores`). Returns u, v and the number of sparse features of p.

    p is the mean of the positives, as `positive_mean` writes it. Without `separate` p has no part in the scores.
    """
    if not first.separate:
        clear(scratch.w_dense)
        return 0.0, 1.0, np.int64(0)
    count, mp = positive_mean(X, positives, scratch), 0.0
    for a in range(len(positives)):
        mp += first.base[positives[a]] / len(positives)
    pp = squared_norm(scratch.w[:count]) + squared_norm(scratch.w_dense) + X.bias * X.bias
    u, v = separating_coefficients(
        pp, first.mean_square, mp, len(positives), len(first.base), first.positive, first.negative
    )
    return u, v, count if u != 0.0 else np.int64(0)


# --- 3. one lane -----------------------------------------------------------------------------------------------------


@borrowing_kernel
def fill_lane(b, lanes, scratch, count, factor):
    """Lane b of both panels = factor times the weights in `scratch`: w on `count` features, w_dense on all dense ones.

    The weights in `scratch` become what the panels hold, after rounding. Returns |w|^2 of that.
    """
    lane, mine, users = lanes.each[b], lanes.features[b], lanes.users
    line_of, n_free = lanes.line_of, lanes.n_free[0]
    for f in range(lane.n_features):
        feature = mine[f]
        lanes.panel[line_of[feature], b] = 0
        users[feature] -= np.uint8(1)
        if users[feature] == 0:
            lanes.free[n_free], line_of[feature] = line_of[feature], 0
            n_free += 1
    norm = 0.0
    for f in range(count):
        feature = scratch.features[f]
        mine[f] = feature
        if users[feature] == 0:
            n_free -= 1
            line_of[feature] = lanes.free[n_free]
        users[feature] += np.uint8(1)
        element = as_element(lanes.panel, factor * scratch.w[f])
        lanes.panel[line_of[feature], b], held = element, as_float(element)
        scratch.w[f] = held
        norm += held * held
    for f in range(len(scratch.w_dense)):
        held = as_float(as_element(lanes.panel, factor * scratch.w_dense[f]))
        lanes.dense_panel[f, b] = held
        scratch.w_dense[f] = held
        norm += held * held
    lane.n_features, lanes.n_free[0] = count, n_free
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
    u, v, count = guess(X, first, positives, scratch)
    fill_lane(b, lanes, scratch, count, np.float32(u))
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
    entries = np.uint64(0)
    for r in range(n_rows):
        entries += X.indptr[rows[r] + np.uint32(1)] - X.indptr[rows[r]] + np.uint64(3)  # padding
    if entries > np.uint64(len(scratch.x)):
        return MORE_ENTRIES
    count = gather(X, rows, n_rows, scratch)
    w = scratch.w[:count]
    clear(w)
    clear(scratch.w_dense)
    descend(lane, X, rows, alpha, rule.C, rule.tol * inner_tolerance(lane.rounds), scratch, w)
    lane.norm = fill_lane(b, lanes, scratch, count, np.float32(1.0)) + lane.bias_weight**2
    lane.positive_loss = positive_loss(lane, X, rows, scratch, w)
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
