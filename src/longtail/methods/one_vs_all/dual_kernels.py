"""What a lane of the dual solver does between passes: coordinate descent on its working set. See dual.py.

Contract: X and the positives come from inputs.py, all buffers from lanes.py.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel, reordering_kernel

DONE, MORE_ROWS, MORE_ENTRIES, MORE_OUTPUT = 0, 1, 2, 3  # what `prepare` had no room for
EMPTY, GUESSED, TO_SOLVE, TO_CHECK = 0, 1, 2, 3  # where a lane stands
MIN_MORE_ROWS = 100  # a later round adds up to this number of rows,
MORE_ROWS_SHARE = 0.5  # or this share of the working set if that is more
FIRST_TOLERANCE = 4.0  # the first working set is solved to this multiple of `tol`: most labels need a second one
SECOND_TOLERANCE = 1.0  # those of the first two rounds after it; the multiple halves in each further round
MAX_STEPS = 4  # of coordinate descent before the first pass, with more spare rows in each
SPARE_SHARE = 0.1  # share of the gap allowed that may come from spare rows that are left out
MAX_FAR = 0.1  # spare rows further beyond the margin are not looked at again
UNSHRINK_ROUND = 3  # from this round on, rows that left descent are checked before it ends
UNCHECKED_SHARE = 0.25  # share of the gap allowed that may come from rows below the threshold `tau`
MAX_PASSES = 300  # of coordinate descent over one working set
PARALLEL = 1e-9  # as in starts/msi_kernels.py


# --- 1. coordinate descent on the working set ------------------------------------------------------------------------


@reordering_kernel
def dot_dense(x, start, w):
    total = np.float32(0.0)
    for f in range(len(w)):
        total += x[start + np.uint64(f)] * w[f]
    return total


@kernel
def add_dense(x, start, factor, w):
    for f in range(len(w)):
        w[f] += factor * x[start + np.uint64(f)]


@kernel
def row_dot(x, j, start, end, w):
    """The product with a row as `gather` copies it. It is dense if j is None: Numba compiles one version for each kind.

    Sparse rows take four sums at a time, because each addition to a single sum would wait for the one before.
    """
    if j is None:
        return dot_dense(x, start, w)
    else:  # noqa: RET505 - Numba drops the branch that does not apply only where there are two
        one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
        a, b = np.float32(0.0), np.float32(0.0)
        c, d = np.float32(0.0), np.float32(0.0)
        for p in range(start, end, np.uint64(4)):
            a += x[p] * w[j[p]]
            b += x[p + one] * w[j[p + one]]
            c += x[p + two] * w[j[p + two]]
            d += x[p + three] * w[j[p + three]]
        return (a + b) + (c + d)


@kernel
def add_row(x, j, start, end, factor, w):
    if j is None:
        add_dense(x, start, factor, w)
    else:
        one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
        for p in range(start, end, np.uint64(4)):
            w[j[p]] += factor * x[p]
            w[j[p + one]] += factor * x[p + one]
            w[j[p + two]] += factor * x[p + two]
            w[j[p + three]] += factor * x[p + three]


@kernel
def gather(X, rows, start, end, count, features, w, scratch):
    """Copy rows[start:end] of the working set, with features renumbered 0, 1, ... in the order in which they occur.

    `count` features of earlier rows are known. Rows are padded with zeros at feature 0 to multiples of four entries,
    for `row_dot` and `add_row`. Dense rows keep their features and have no padding. Weights of new features become 0.
    Returns the number of features. There is no branch on whether a feature is new: it would be guessed wrong too often.
    """
    if X.is_dense:
        return gather_dense(X, rows, start, end, count, features, w, scratch)
    slot, known = scratch.slot, count
    count, at = np.uint32(count), scratch.ends[start]
    for r in range(start, end):
        i = rows[r]
        for p in range(X.indptr[i], X.indptr[i + np.uint32(1)]):
            feature = X.indices[p]
            number = slot[feature]
            is_new = np.uint32(number == np.uint32(0))
            features[count] = feature
            count += is_new
            number += is_new * count
            slot[feature] = number
            scratch.j[at], scratch.x[at] = number - np.uint32(1), X.data[p]
            at += np.uint64(1)
        while at & np.uint64(3):
            scratch.j[at], scratch.x[at] = np.uint32(0), np.float32(0.0)
            at += np.uint64(1)
        scratch.ends[r + 1] = at
    w[known : np.int64(count)] = 0.0
    return np.int64(count)


@kernel
def gather_dense(X, rows, start, end, count, features, w, scratch):
    d = X.indptr[1]
    for r in range(start, end):
        at, first = np.uint64(r) * d, X.indptr[rows[r]]
        for f in range(d):
            scratch.x[at + f] = X.data[first + f]
        scratch.ends[r + 1] = at + d
    if count == 0:
        for f in range(d):
            features[f], w[f] = f, 0.0
    return np.int64(d)


@kernel
def even_start(b, X, C, lanes, scratch, w):
    """Begin at the best alphas that are equal for all positives, p, and for all negatives, a.

    With u and v the sums of these rows, k and m their numbers, D is a quadratic in p and a, largest where

        (u.u + k / 2c) p - u.v a = k          (v.v + m / 2C) a - u.v p = m

    Without it, the first rows that descent meets would take the whole bias upon them. Alphas stay 0 if p or a would be
    negative. w, zero before, becomes p u - a v. Returns how many rows w and the bias weight now account for.
    """
    n_rows, k, bias = lanes.n_rows[b], lanes.n_positive[b], X.bias
    alpha, u, m = lanes.alpha[lanes.first[b] :], scratch.sum[: len(w)], n_rows - lanes.n_positive[b]
    u[:] = 0.0
    for r in range(n_rows):
        if alpha[r] > 0.0:
            return 0
    for r in range(n_rows):
        total = u if r < k else w
        if X.is_dense:
            add_row(scratch.x, None, scratch.ends[r], scratch.ends[r + 1], np.float32(1.0), total)
        else:
            add_row(scratch.x, scratch.j, scratch.ends[r], scratch.ends[r + 1], np.float32(1.0), total)
    uu = squared_norm(u) + (bias * k) ** 2 + k / (2.0 * lanes.cost[b])
    vv = squared_norm(w) + (bias * m) ** 2 + m / (2.0 * C)
    uv = dot_dense(u, np.uint64(0), w) + bias * bias * k * m
    determinant = uu * vv - uv * uv
    p, a = k * vv + m * uv, m * uu + k * uv
    if determinant <= PARALLEL * uu * vv or p <= 0.0 or a <= 0.0:
        w[:] = 0.0
        return 0
    p, a = p / determinant, a / determinant
    for f in range(len(w)):
        w[f] = np.float32(p) * u[f] - np.float32(a) * w[f]
    for r in range(n_rows):
        alpha[r] = p if r < k else a
    lanes.bias_weight[b] = bias * (p * k - a * m)
    return n_rows


@kernel
def descend(b, X, C, tol, lanes, scratch, j, w, n_known):
    """Coordinate descent on D over the working set of lane b, from `alpha`, until the rows' violations sum to tol D.

    Row i alone is optimal at alpha_i - G / Q, cut at 0, with G = y_i x_i.w - 1 + alpha_i / 2c, Q = |x_i|^2 + 1 / 2c and
    c its cost: lanes.cost[b] for positives, else C. The gap is the sum of c G^2 over rows with slack. A pass sums these
    terms as it meets them, and the sum tells when to stop. Rows with alpha 0 and a large G leave (shrinking). In late
    rounds they are checked at the end; before, the pass over all rows shows what was missed. `order` is shuffled by a
    fixed sequence.

    The rows are in `scratch`, with features j (None: dense). w and the bias weight of lane b, which hold the first
    n_known rows before, become those of all rows. Writes D to lane b.
    """
    n_rows, n_positive, bias = lanes.n_rows[b], lanes.n_positive[b], X.bias
    rows, alpha = lanes.rows[lanes.first[b] :], lanes.alpha[lanes.first[b] :]
    x, ends = scratch.x, scratch.ends
    order, step = scratch.order, scratch.step
    positive_half, negative_half = 1.0 / (2.0 * lanes.cost[b]), 1.0 / (2.0 * C)
    bias_weight, D = lanes.bias_weight[b] if n_known > 0 else 0.0, 0.0
    for r in range(n_rows):
        half = positive_half if r < n_positive else negative_half
        order[r], step[r] = r, 1.0 / (X.squares[rows[r]] + bias * bias + half)
        if alpha[r] > 0.0:
            signed = alpha[r] if r < n_positive else -alpha[r]
            if r >= n_known:
                add_row(x, j, ends[r], ends[r + 1], np.float32(signed), w)
                bias_weight += signed * bias
            D += alpha[r] - alpha[r] * alpha[r] * 0.5 * half
    D -= 0.5 * (squared_norm(w) + bias_weight * bias_weight)
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
            G = y * (row_dot(x, j, ends[r], ends[r + 1], w) + bias * bias_weight) - 1.0 + alpha[r] * half
            if alpha[r] == 0.0 and G >= 0.0:
                if limit < G:
                    n_active -= 1
                    order[a], order[n_active] = order[n_active], r
                else:
                    a += 1
                continue
            a += 1
            violation += G * G * 0.5 / half
            worst = max(worst, abs(G))
            change = max(-G * step[r], -alpha[r])
            if change != 0.0:
                alpha[r] += change
                if alpha[r] < 0.0:
                    alpha[r] = 0.0
                D -= G * change + 0.5 * change * change / step[r]
                add_row(x, j, ends[r], ends[r + 1], np.float32(y * change), w)
                bias_weight += y * change * bias
        limit = worst if worst > 0.0 else np.inf
        if violation <= tol * max(D, 1e-300):
            if n_active == n_rows or lanes.rounds[b] < UNSHRINK_ROUND:
                break
            n_active, limit = n_rows, np.inf
    D = -0.5 * (squared_norm(w) + bias_weight * bias_weight)
    for r in range(n_rows):
        D += alpha[r] - alpha[r] * alpha[r] * 0.5 * (positive_half if r < n_positive else negative_half)
    lanes.dual[b], lanes.bias_weight[b] = D, bias_weight


@kernel
def positive_loss(b, bias, lanes, scratch, j, w):
    """The sum of max(0, 1 - z)^2 over the positives of lane b, the first rows in `scratch`, with weights w."""
    total, offset = 0.0, bias * lanes.bias_weight[b]
    for r in range(lanes.n_positive[b]):
        z = row_dot(scratch.x, j, scratch.ends[r], scratch.ends[r + 1], w) + offset
        total += max(0.0, 1.0 - z) ** 2
    return total


@kernel
def squared_norm(w):
    total = 0.0
    for f in range(len(w)):
        total += w[f] * w[f]
    return total


# --- 2. one lane -----------------------------------------------------------------------------------------------------


@intrinsic
def as_in_panel(typing_context, panel, value):
    """The value as a panel of this type holds it: rounded to half precision (uint16), or float32 as it is."""
    signature = types.float32(panel, types.float32)

    def generate(context, builder, signature, args):
        if signature.args[0].dtype != types.uint16:
            return args[1]
        return builder.fpext(builder.fptrunc(args[1], ir.HalfType()), ir.FloatType())

    return signature, generate


@kernel
def round_weights(panel, w):
    """Round w to what the panel can hold. Returns |w|^2 of that."""
    norm = 0.0
    for f in range(len(w)):
        w[f] = as_in_panel(panel, w[f])
        norm += w[f] * w[f]
    return norm


@kernel
def inner_tolerance(n_round, is_first):
    """To which multiple of `tol` the working set of this round is solved, if it is the first one or not."""
    return FIRST_TOLERANCE if is_first else SECOND_TOLERANCE * 0.5 ** max(n_round - 2, 0)


@kernel
def spare_slack(X, i, bias_weight, slot, w):
    """1 + z for negative row i of X. w[0] is 0, for features without a number; w[1:] are the weights of the others."""
    a, b = np.float32(0.0), np.float32(0.0)
    p, end = X.indptr[i], X.indptr[i + np.uint32(1)]
    while p + np.uint64(2) <= end:
        a += X.data[p] * w[slot[X.indices[p]]]
        b += X.data[p + np.uint64(1)] * w[slot[X.indices[p + np.uint64(1)]]]
        p += np.uint64(2)
    if p < end:
        a += X.data[p] * w[slot[X.indices[p]]]
    return np.float32(1.0 + X.bias * bias_weight) + (a + b)


@kernel
def take_spare(b, X, rule, n_spare, lanes, scratch):
    """The spare rows that violate their margin most join lane b. Returns how many spare rows are left.

    None joins if their loss is a small share of the gap allowed.
    """
    spare, slack, n_rows = scratch.spare, scratch.values, lanes.n_rows[b]
    loss, worst = 0.0, np.float32(0.0)
    for c in range(n_spare):
        slack[c] = spare_slack(X, spare[c], lanes.bias_weight[b], scratch.slot, lanes.weights[b])
        if slack[c] > 0.0:
            loss += slack[c] * slack[c]
            worst = max(worst, slack[c])
    allowed = SPARE_SHARE * rule.tol * max(lanes.dual[b], 0.0) / rule.C
    if loss <= allowed:
        return 0
    limit = max(np.float32(0.02) * worst, np.float32(math.sqrt(0.5 * allowed / n_spare)))
    while count_above(slack, n_spare, limit) > max(MIN_MORE_ROWS, np.int64(MORE_ROWS_SHARE * n_rows)):
        limit *= np.float32(1.2)
    left, at, mine = 0, lanes.first[b] + n_rows, np.uint32(1) << np.uint32(b)
    for c in range(n_spare):
        i = spare[c]
        if slack[c] > limit:
            lanes.rows[at], lanes.alpha[at] = i, 0.0
            lanes.member[i] |= mine
            at += 1
        elif slack[c] > -MAX_FAR:
            spare[left] = i
            left += 1
    lanes.n_rows[b] = at - lanes.first[b]
    return left


@kernel
def count_above(values, count, limit):
    above = 0
    for c in range(count):
        above += values[c] > limit
    return above


@kernel
def make_room(b, X, spare, lanes, scratch):
    """Check that the working set of lane b can grow, by all spare rows and then by those that a pass finds."""
    n_rows, n = lanes.n_rows[b] + len(spare), len(lanes.member)
    lanes.need[b] = n_rows + min(max(MIN_MORE_ROWS, np.int64(MORE_ROWS_SHARE * n_rows)), n - lanes.n_rows[b])
    if lanes.need[b] > lanes.first[b + 1] - lanes.first[b]:
        return MORE_ROWS
    rows = lanes.rows[lanes.first[b] :]
    entries = np.uint64(0)
    for r in range(lanes.n_rows[b]):
        entries += X.indptr[rows[r] + np.uint32(1)] - X.indptr[rows[r]] + np.uint64(3)  # padding
    for c in range(len(spare)):
        entries += X.indptr[spare[c] + np.uint32(1)] - X.indptr[spare[c]] + np.uint64(3)
        scratch.spare[c] = spare[c]
    return DONE if entries <= np.uint64(len(scratch.x)) else MORE_ENTRIES


@kernel
def solve_lane(b, X, rule, spare, lanes, scratch):
    """Solve the working set of lane b; returns DONE or what it has no room for.

    Before the pass, rows of `spare` that violate their margin join, and descent goes on. The primal point is the
    weights as the panel will hold them, so |w|^2 and all losses are taken from these.
    """
    ended = make_room(b, X, spare, lanes, scratch)
    if ended != DONE:
        return ended
    rows, n, n_spare = lanes.rows[lanes.first[b] :], len(lanes.member), len(spare)
    features, weights = lanes.features[b], lanes.weights[b, 1:]
    count, n_known, gathered = np.int64(0), np.int64(0), np.int64(0)
    for step in range(MAX_STEPS):
        count = gather(X, rows, gathered, lanes.n_rows[b], count, features, weights, scratch)
        gathered, w = lanes.n_rows[b], weights[:count]
        if step == 0:
            n_known = even_start(b, X, rule.C, lanes, scratch, w)
        inner = rule.tol * inner_tolerance(lanes.rounds[b], step == 0 and n_known > 0)
        if X.is_dense:
            descend(b, X, rule.C, inner, lanes, scratch, None, w, n_known)
        else:
            descend(b, X, rule.C, inner, lanes, scratch, scratch.j, w, n_known)
        n_known = gathered
        if n_spare > 0 and step + 1 < MAX_STEPS:
            n_spare = take_spare(b, X, rule, n_spare, lanes, scratch)
        if lanes.n_rows[b] == gathered:
            break
    if not X.is_dense:
        for f in range(count):
            scratch.slot[features[f]] = 0
    w = weights[:count]
    lanes.n_weights[b] = count
    lanes.norm[b] = round_weights(lanes.panel, w) + lanes.bias_weight[b] ** 2
    if X.is_dense:
        lanes.positive_loss[b] = positive_loss(b, X.bias, lanes, scratch, None, w)
    else:
        lanes.positive_loss[b] = positive_loss(b, X.bias, lanes, scratch, scratch.j, w)
    n_rows = lanes.n_rows[b]
    lanes.want[b] = min(max(MIN_MORE_ROWS, np.int64(MORE_ROWS_SHARE * n_rows)), n - n_rows)
    lanes.factor[b], lanes.offset[b] = 0.0, X.bias * lanes.bias_weight[b]
    lanes.tau[b] = math.sqrt(UNCHECKED_SHARE * rule.tol * max(lanes.dual[b], 0.0) / (rule.C * n))
    lanes.phase[b] = TO_CHECK
    return DONE


# --- 3. all lanes -----------------------------------------------------------------------------------------------------


@kernel
def prepare(X, first_rows, rule, cursor, lanes, scratch, out):
    """Every lane with a working set solves it.

    Returns DONE, or which buffer was too small (then call again with a larger one).
    """
    room = 0
    for b in range(len(lanes.phase)):
        if lanes.phase[b] == TO_SOLVE:
            k, spare = lanes.position[b], first_rows.rows[:0]
            if lanes.n_weights[b] == 0:  # no pass has found further rows yet
                start = first_rows.starts[k]
                spare = first_rows.rows[start + first_rows.wanted[k] : start + first_rows.n_found[k]]
            ended = solve_lane(b, X, rule, spare, lanes, scratch)
            if ended != DONE:
                return ended
        if lanes.phase[b] == EMPTY:
            lanes.tau[b], lanes.need[b] = np.inf, 0
        else:
            room += lanes.n_weights[b] + 1
    return MORE_OUTPUT if out.ends[cursor[1]] + room > len(out.indices) else DONE
