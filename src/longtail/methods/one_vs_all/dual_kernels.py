"""Compiled loops of dual.py, which describes the method. Lane b of 16 works on one label at a time.

Contract: X canonical CSR as `csr_parts` gives it, bias feature implicit; every buffer is the caller's. `advance` returns
when all labels are done or a buffer is too small for the next step; the caller enlarges it and calls again.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel

LANES = 16
DONE, MORE_ROWS, MORE_ENTRIES, MORE_OUTPUT = 0, 1, 2, 3  # why `advance` returned
EMPTY, GUESSED, TO_SOLVE, TO_CHECK = 0, 1, 2, 3  # where a lane stands
SOLVED, GAVE_UP = 0, 1

MIN_FIRST_ROWS = 200  # the first working set has the positives and at least so many other rows,
FIRST_ROWS_PER_POSITIVE = 4  # or so many per positive
MIN_MORE_ROWS = 100  # a later round adds at most so many rows, or this share of the set
MORE_ROWS_SHARE = 0.5
INNER_TOLERANCE = 0.25  # the working set is solved this much closer than `tol`, and twice as close each round
UNCHECKED_SHARE = 0.25  # of the gap allowed may come from rows below the threshold `tau`
MAX_PASSES = 300  # of coordinate descent over one working set
MAX_ROUNDS = 12
GUESS_POSITIVE, GUESS_NEGATIVE = 1.0, -1.1  # scores of the two means at the first guess
PARALLEL = 1e-9


# --- 1. a row of X times a panel of 16 labels ------------------------------------------------------------------------


@intrinsic
def score_lanes(typing_context, X_data, X_indices, start, end, panel, base, factor, offset, positive, tau, loss, out):
    """The scores of one row for 16 labels, whose weights lie interleaved: one load and one multiply-add per nonzero.

    z = offset + base factor + sum over p in start .. end of X_data[p] panel[X_indices[p]];
    out = max(0, 1 - y z), y being +1 in the lanes whose bit is set in `positive`, else -1;
    loss += out^2; returns, as bits, the lanes where out > tau.
    Numba unrolls so short a loop and then fails to vectorise it, hence these lines of LLVM.
    """
    signature = types.int64(X_data, X_indices, start, end, panel, base, factor, offset, positive, tau, loss, out)

    def generate(context, builder, signature, args):
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        fused = ["contract"]  # a fused multiply-add where the processor has one

        def pointer(position):
            return context.make_array(signature.args[position])(context, builder, args[position]).data

        def lanes_at(address):
            return builder.bitcast(address, vector.as_pointer())

        def load(position):
            return builder.load(lanes_at(pointer(position)), align=4)

        def add_product(a, b, c):
            return builder.fadd(c, builder.fmul(a, b, flags=fused), flags=fused)

        def spread(scalar):
            nothing, zeros = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), LANES)
            first = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
            return builder.shuffle_vector(first, nothing, ir.Constant(zeros, [0] * LANES))

        data, indices, weights = pointer(0), pointer(1), pointer(4)
        initial, entry = add_product(spread(args[5]), load(6), load(7)), builder.block
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)

        builder.position_at_end(test)
        p, total = builder.phi(integer), builder.phi(vector)
        p.add_incoming(args[2], entry)
        total.add_incoming(initial, entry)
        builder.cbranch(builder.icmp_unsigned("<", p, args[3]), body, done)

        builder.position_at_end(body)
        x = builder.load(builder.gep(data, [p]))
        j = builder.zext(builder.load(builder.gep(indices, [p])), integer)
        lanes = builder.load(lanes_at(builder.gep(weights, [builder.mul(j, integer(LANES))])), align=4)
        p.add_incoming(builder.add(p, integer(1)), body)
        total.add_incoming(add_product(spread(x), lanes, total), body)
        builder.branch(test)

        builder.position_at_end(done)
        zero = ir.Constant(vector, [0.0] * LANES)
        is_positive = builder.bitcast(args[8], ir.VectorType(ir.IntType(1), LANES))
        margin = builder.select(is_positive, builder.fneg(total), total)
        slack = builder.fadd(margin, ir.Constant(vector, [1.0] * LANES))
        slack = builder.select(builder.fcmp_ordered(">", slack, zero), slack, zero)
        builder.store(slack, lanes_at(pointer(11)), align=4)
        builder.store(add_product(slack, slack, load(10)), lanes_at(pointer(10)), align=4)
        above = builder.fcmp_ordered(">", slack, load(9))
        return builder.zext(builder.bitcast(above, ir.IntType(LANES)), integer)

    return signature, generate


@kernel
def smallest_of_best(values, count, keep, scratch):
    """The `keep`-th largest of values[:count] (quickselect)."""
    scratch[:count] = values[:count]
    low, high, wanted = 0, count - 1, count - keep
    while low < high:
        pivot = scratch[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while scratch[i] < pivot:
                i += 1
            while scratch[j] > pivot:
                j -= 1
            if i <= j:
                scratch[i], scratch[j] = scratch[j], scratch[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return scratch[wanted]


@kernel
def keep_best(found, slack, count, keep, scratch):
    """Keep the `keep` rows of largest slack, ties by position; returns the new count and the smallest slack kept."""
    limit = smallest_of_best(slack, count, keep, scratch)
    ties = keep
    for c in range(count):
        if slack[c] > limit:
            ties -= 1
    kept = 0
    for c in range(count):
        if slack[c] > limit or (slack[c] == limit and ties > 0):
            if slack[c] == limit:
                ties -= 1
            found[kept], slack[kept] = found[c], slack[c]
            kept += 1
    return kept, limit


@kernel
def verify(
    X_data, X_indices, X_indptr, base, factor, offset, panel, positive, tau, want, found, found_slack, n_found, scratch,
    loss,
):  # fmt: skip
    """One pass over all rows for 16 labels: loss[b] = sum_i max(0, 1 - y_i z_i)^2, and the rows of largest slack above
    tau[b] (at least the `want[b]` best of them, at most twice as many). Bit b of positive[i] says y_i = +1."""
    part, slack = np.zeros(LANES, np.float32), np.empty(LANES, np.float32)
    loss[:] = 0.0
    n_found[:] = 0
    n = len(X_indptr) - 1
    for i in range(n):
        bits = score_lanes(
            X_data,
            X_indices,
            X_indptr[i],
            X_indptr[i + 1],
            panel,
            base[i],
            factor,
            offset,
            positive[i],
            tau,
            part,
            slack,
        )
        b = 0
        while bits:
            if bits & 1:
                if n_found[b] == 2 * want[b]:
                    n_found[b], tau[b] = keep_best(found[b], found_slack[b], n_found[b], want[b], scratch)
                if slack[b] > tau[b]:
                    found[b, n_found[b]], found_slack[b, n_found[b]] = i, slack[b]
                    n_found[b] += 1
            bits >>= 1
            b += 1
        if i & 255 == 255 or i == n - 1:  # short float32 sums, long float64 ones
            for b in range(LANES):
                loss[b] += part[b]
                part[b] = 0.0


# --- 2. coordinate descent on the working set ------------------------------------------------------------------------


@kernel
def dot_entries(x, j, start, end, w):
    """Four sums at a time: one alone would wait for its own last addition."""
    four, one = np.uint64(4), np.uint64(1)
    a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    p = start
    while p + four <= end:
        a += x[p] * w[j[p]]
        b += x[p + one] * w[j[p + one]]
        c += x[p + np.uint64(2)] * w[j[p + np.uint64(2)]]
        d += x[p + np.uint64(3)] * w[j[p + np.uint64(3)]]
        p += four
    while p < end:
        a += x[p] * w[j[p]]
        p += one
    return (a + b) + (c + d)


@kernel
def add_entries(x, j, start, end, factor, w):
    for p in range(start, end):
        w[j[p]] += factor * x[p]


@kernel
def gather(X_data, X_indices, X_indptr, rows, n_rows, slot, features, x, j, ends):
    """Copy the rows of the working set, with their features renumbered 0, 1, ... as they occur; returns how many."""
    count, at = np.uint32(0), np.uint64(0)
    ends[0] = 0
    for r in range(n_rows):
        i = rows[r]
        for p in range(X_indptr[i], X_indptr[i + np.uint32(1)]):
            feature = X_indices[p]
            if slot[feature] == np.uint32(0):  # slots count from 1; 0 means new
                features[count] = feature
                count += np.uint32(1)
                slot[feature] = count
            j[at] = slot[feature] - np.uint32(1)
            x[at] = X_data[p]
            at += np.uint64(1)
        ends[r + 1] = at
    for f in range(count):
        slot[features[f]] = 0
    return np.int64(count)


@kernel
def descend(x, j, ends, squares, rows, n_rows, n_positive, bias, C, tol, alpha, order, w):
    """Coordinate descent on D over the rows of the working set, from `alpha`, until their violations sum to tol D.

    Row i alone is optimal at alpha_i - G / Q, cut at 0, with G = y_i x_i.w - 1 + alpha_i / 2C, Q = |x_i|^2 + 1 / 2C.
    The gap is the sum of C G^2 over rows with slack, so that sum, as met in a pass, tells when to stop. Rows with alpha
    0 and a large G leave (shrinking) until the others are done. `order` is shuffled by a fixed sequence.
    Returns D, |w|^2 and the bias weight; w holds the weights of the renumbered features.
    """
    half = 1.0 / (2.0 * C)
    bias_weight, D = 0.0, 0.0
    for r in range(n_rows):
        order[r] = r
        if alpha[r] > 0.0:
            signed = alpha[r] if r < n_positive else -alpha[r]
            add_entries(x, j, ends[r], ends[r + 1], np.float32(signed), w)
            bias_weight += signed * bias
            D += alpha[r] - alpha[r] * alpha[r] * 0.5 * half
    D -= 0.5 * (squared_norm(w) + bias_weight * bias_weight)
    state = np.uint64(88172645463325252)
    n_active, limit = n_rows, np.inf
    for _ in range(MAX_PASSES):
        violation, worst = 0.0, 0.0
        for a in range(n_active - 1, 0, -1):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            other = np.int64(state % np.uint64(a + 1))
            order[a], order[other] = order[other], order[a]
        a = 0
        while a < n_active:
            r = order[a]
            y = 1.0 if r < n_positive else -1.0
            G = y * (dot_entries(x, j, ends[r], ends[r + 1], w) + bias * bias_weight) - 1.0 + alpha[r] * half
            if alpha[r] == 0.0 and G >= 0.0:
                if limit < G:
                    n_active -= 1
                    order[a], order[n_active] = order[n_active], r
                else:
                    a += 1
                continue
            a += 1
            violation += C * G * G
            worst = max(worst, abs(G))
            Q = squares[rows[r]] + bias * bias + half
            change = max(-G / Q, -alpha[r])
            if change != 0.0:
                alpha[r] += change
                if alpha[r] < 0.0:
                    alpha[r] = 0.0
                D -= G * change + 0.5 * Q * change * change
                add_entries(x, j, ends[r], ends[r + 1], np.float32(y * change), w)
                bias_weight += y * change * bias
        limit = worst if worst > 0.0 else np.inf
        if violation <= tol * max(D, 1e-300):
            if n_active == n_rows:
                break
            n_active, limit = n_rows, np.inf  # all rows once more, before it counts
    norm = squared_norm(w) + bias_weight * bias_weight
    D = -0.5 * norm
    for r in range(n_rows):
        D += alpha[r] - alpha[r] * alpha[r] * 0.5 * half
    return D, norm, bias_weight


@kernel
def squared_norm(w):
    total = 0.0
    for f in range(len(w)):
        total += w[f] * w[f]
    return total


# --- 3. first guess --------------------------------------------------------------------------------------------------


@kernel
def guess(X_data, X_indices, X_indptr, bias, positives, base, x_mean_square, slot, features, w):
    """The mean-separating vector u p + v x of starts/msi.py, with base = X x: returns u, v, and the number of features
    of p, whose values are in w. Scores of the means are -1.1 and 1: most negatives score just beyond their margin."""
    count, total = np.uint32(0), len(positives)
    xp = 0.0
    for a in range(total):
        i = positives[a]
        xp += base[i] / total
        for p in range(X_indptr[i], X_indptr[i + np.uint32(1)]):
            feature = X_indices[p]
            if slot[feature] == np.uint32(0):
                features[count] = feature
                w[count] = 0.0
                count += np.uint32(1)
                slot[feature] = count
            w[slot[feature] - np.uint32(1)] += X_data[p] / np.float32(total)
    for f in range(count):
        slot[features[f]] = 0
    pp = squared_norm(w[:count]) + bias * bias
    determinant = pp * x_mean_square - xp * xp
    if total == 0 or determinant <= PARALLEL * pp * x_mean_square:
        return 0.0, 0.0, np.int64(count)
    mixed = GUESS_NEGATIVE + (GUESS_POSITIVE - GUESS_NEGATIVE) * total / len(base)
    u = (GUESS_POSITIVE * x_mean_square - mixed * xp) / determinant
    v = (mixed * pp - GUESS_POSITIVE * xp) / determinant
    return u, v, np.int64(count)


# --- 4. sixteen labels at a time -------------------------------------------------------------------------------------


@kernel
def fill_lane(panel, b, lane_features, n_old, features, n_new, w, factor):
    """Lane b of the panel = factor w on `features`, zero elsewhere (it was nonzero on lane_features[:n_old] only)."""
    for f in range(n_old):
        panel[lane_features[f], b] = 0.0
    for f in range(n_new):
        panel[features[f], b] = factor * w[f]
        lane_features[f] = features[f]


@kernel
def join(found, slack, n_found, mark, stamp, rows, alpha, n_rows, most, scratch):
    """Add to the working set the found rows that are not in it, at most `most` of them; returns the new size."""
    for r in range(n_rows):
        stamp[rows[r]] = mark
    count = 0
    for c in range(n_found):
        if stamp[found[c]] != mark:
            found[count], slack[count] = found[c], slack[c]
            count += 1
    if count > most:
        count, _ = keep_best(found, slack, count, most, scratch)
    for c in range(count):
        rows[n_rows + c], alpha[n_rows + c] = found[c], 0.0
    return n_rows + count


@kernel
def advance(
    X_data, X_indices, X_indptr, squares, bias, base, x_mean_square, rows_of, rows_indptr, labels, C, tol, prune,
    cursor, lane, rows, alpha, found, found_slack, scratch, n_found, factor, offset, tau, lane_loss, lane_figures,
    panel, positive, lane_features, slot, features, x, j, ends, order, stamp, w, out_indices, out_data, out_ends, out_order,
    out_status, out_rounds, out_figures,
):  # fmt: skip
    """Solve `labels`, 16 at a time; returns DONE or which buffer is too small.

    cursor: [next label, labels finished, mark]. lane[b]: [phase, position in labels, rounds, rows, positives, features].
    lane_figures[b]: [dual value, |w|^2, bias weight]. Output k is label out_order[k]:
    out_indices, out_data [out_ends[k] : out_ends[k + 1]].
    """
    n, d = len(X_indptr) - 1, len(panel)
    while True:
        # 1) every lane without work takes the next label and guesses; every lane with a working set solves it
        for b in range(LANES):
            if lane[b, 0] == EMPTY and cursor[0] < len(labels):
                label = labels[cursor[0]]
                positives = rows_of[rows_indptr[label] : rows_indptr[label + np.uint64(1)]]
                first = max(MIN_FIRST_ROWS, FIRST_ROWS_PER_POSITIVE * len(positives))
                if len(positives) + min(first, n) > rows.shape[1] or 2 * first > found.shape[1]:
                    return MORE_ROWS
                u, v, count = guess(
                    X_data, X_indices, X_indptr, bias, positives, base, x_mean_square, slot, features, w
                )
                fill_lane(panel, b, lane_features[b], lane[b, 5], features, count, w, np.float32(u))
                factor[b], offset[b], tau[b] = v, u * bias * bias, 0.0
                for a in range(len(positives)):
                    rows[b, a], alpha[b, a] = positives[a], 0.0
                    positive[positives[a]] |= np.uint16(1) << np.uint16(b)
                lane[b, 0], lane[b, 1], lane[b, 2] = GUESSED, cursor[0], 0
                lane[b, 3], lane[b, 4], lane[b, 5] = len(positives), len(positives), count
                cursor[0] += 1
            elif lane[b, 0] == TO_SOLVE:
                n_rows = lane[b, 3]
                more = max(MIN_MORE_ROWS, np.int64(MORE_ROWS_SHARE * n_rows))
                entries = np.uint64(0)
                for r in range(n_rows):
                    i = rows[b, r]
                    entries += X_indptr[i + np.uint32(1)] - X_indptr[i]
                if min(n_rows + more, n) > rows.shape[1] or 2 * more > found.shape[1] or n_rows >= len(ends):
                    return MORE_ROWS
                if entries > np.uint64(len(x)):
                    return MORE_ENTRIES
                count = gather(X_data, X_indices, X_indptr, rows[b], n_rows, slot, features, x, j, ends)
                w[:count] = 0.0
                inner = INNER_TOLERANCE * tol * 0.5 ** (lane[b, 2] - 1)
                D, norm, bias_weight = descend(
                    x, j, ends, squares, rows[b], n_rows, lane[b, 4], bias, C, inner, alpha[b], order, w[:count]
                )
                lane_figures[b, 0], lane_figures[b, 1], lane_figures[b, 2] = D, norm, bias_weight
                fill_lane(panel, b, lane_features[b], lane[b, 5], features, count, w, np.float32(1.0))
                factor[b], offset[b] = 0.0, bias * bias_weight
                tau[b] = math.sqrt(UNCHECKED_SHARE * tol * max(D, 0.0) / (C * n))
                lane[b, 0], lane[b, 5] = TO_CHECK, count

        # 2) one pass over all rows for all lanes
        idle, room = 0, 0
        want = np.zeros(LANES, np.int64)
        for b in range(LANES):
            if lane[b, 0] == EMPTY:
                tau[b] = np.inf
                idle += 1
            elif lane[b, 0] == GUESSED:
                want[b] = max(MIN_FIRST_ROWS, FIRST_ROWS_PER_POSITIVE * lane[b, 4])
            else:
                want[b] = max(MIN_MORE_ROWS, np.int64(MORE_ROWS_SHARE * lane[b, 3]))
                room += lane[b, 5] + 1
        if idle == LANES:
            return DONE
        if out_ends[cursor[1]] + room > len(out_indices):
            return MORE_OUTPUT
        verify(
            X_data, X_indices, X_indptr, base, factor, offset, panel, positive, tau, want, found, found_slack, n_found,
            scratch, lane_loss,
        )  # fmt: skip

        # 3) the gap over all rows; solved labels leave, the others take in the rows they overlooked
        for b in range(LANES):
            if lane[b, 0] == EMPTY:
                continue
            solved = False
            if lane[b, 0] == TO_CHECK:
                P = 0.5 * lane_figures[b, 1] + C * lane_loss[b]
                gap = P - lane_figures[b, 0]
                solved = gap <= tol * P
                if solved or lane[b, 2] == MAX_ROUNDS:
                    k = cursor[1]
                    at = out_ends[k]
                    for f in range(lane[b, 5]):
                        weight = panel[lane_features[b, f], b]
                        if abs(weight) >= prune and weight != 0.0:
                            out_indices[at], out_data[at] = lane_features[b, f], weight
                            at += 1
                    if bias > 0.0 and abs(lane_figures[b, 2]) >= prune and lane_figures[b, 2] != 0.0:
                        out_indices[at], out_data[at] = d, lane_figures[b, 2]
                        at += 1
                    active = 0
                    for r in range(lane[b, 3]):
                        active += alpha[b, r] > 0.0
                    out_ends[k + 1], out_order[k] = at, lane[b, 1]
                    out_status[k], out_rounds[k] = SOLVED if solved else GAVE_UP, lane[b, 2]
                    out_figures[k, 0], out_figures[k, 1] = P, gap / P if P > 0.0 else 0.0
                    out_figures[k, 2], out_figures[k, 3] = np.nan, active
                    for r in range(lane[b, 4]):
                        positive[rows[b, r]] &= ~(np.uint16(1) << np.uint16(b))
                    cursor[1] += 1
                    lane[b, 0] = EMPTY
                    continue
            cursor[2] += 1
            lane[b, 3] = join(
                found[b], found_slack[b], n_found[b], cursor[2], stamp, rows[b], alpha[b], lane[b, 3], want[b], scratch
            )
            lane[b, 0] = TO_SOLVE
            lane[b, 2] += 1
