"""Compiled loops of a mini-batch: the projection of a row's dual variables, and the rows of the batch one by one.

`members`, `batch`, `moves` and `scratch` are Members, Batch, AlphaMoves and Scratch of mini_batch.py. Labels are
numbers from 0 to K - 1 that were drawn at random. Indices are unsigned. Scores are summed in float64.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

NO_MOVE = np.int64(-1)  # the end of a chain of moves


# --- projections -----------------------------------------------------------------------------------------------------


@kernel
def sort_down(values, order):
    """Sort `values` in decreasing order by Shell's method. order[r] = the old position of the r-th value."""
    n = len(values)
    gap = 1
    for r in range(n):
        order[r] = r
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for r in range(gap, n):
            value = values[r]
            source = order[r]
            at = r
            while at >= gap and values[at - gap] < value:
                values[at] = values[at - gap]
                order[at] = order[at - gap]
                at -= gap
            values[at] = value
            order[at] = source
        gap //= 3


@kernel
def project_simplex(d, C, order, out):
    """out = argmin |out - d|^2 with out >= 0 and sum out = C > 0. Sorts d."""
    sort_down(d, order)
    total = 0.0
    theta = 0.0
    for n in range(len(d)):
        if d[n] * n - total <= -C:  # d[n] is not above the threshold of the entries before it
            break
        total += d[n]
        theta = (total - C) / (n + 1)
    for r in range(len(d)):
        out[order[r]] = max(d[r] - theta, 0.0)


@kernel
def project_pair(b, c, C, order_b, order_c, x, y):
    """x, y = argmin |x - b|^2 + |y - c|^2 with x, y >= 0 and sum x = sum y = t, t in [0, C]: Algorithm 2, problem (22).

    Let the n largest entries of b and the m largest of c be in use, with sums S_b and S_c. Then the best t is
    (m S_b + n S_c) / (n + m). Entry n of b comes into use at t = D_b(n) = S_b - n b_n, and the same holds for c. The
    optimum is convex in t, so the first interval between such points that contains its own best t has the answer.
    Sorts b and c.
    """
    sort_down(b, order_b)
    sort_down(c, order_c)
    n = 1
    m = 1
    S_b = b[0]
    S_c = c[0]
    while True:
        to_b = S_b - n * b[n] if n < len(b) else np.inf
        to_c = S_c - m * c[m] if m < len(c) else np.inf
        best = (m * S_b + n * S_c) / (n + m)
        right = min(to_b, to_c)
        if best <= right or right >= C:
            break
        if to_b <= to_c:
            S_b += b[n]
            n += 1
        else:
            S_c += c[m]
            m += 1
    t = min(max(best, 0.0), C)
    for r in range(len(b)):
        x[order_b[r]] = max(b[r] + (t - S_b) / n, 0.0) if r < n and t > 0.0 else 0.0
    for r in range(len(c)):
        y[order_c[r]] = max(c[r] + (t - S_c) / m, 0.0) if r < m and t > 0.0 else 0.0


@kernel
def solve_block(n_positive, n, z, alpha, Q, C, scratch, out):
    """out = the alphas of a row that minimise (21), given the scores z and alphas of its n active labels.

    The first n_positive labels are the row's own. With one positive label, the point (C - alpha_p, -alpha_n) is
    projected to the simplex of size C; with several, Algorithm 2 solves the problem.
    """
    d = scratch.values
    order = scratch.order
    for a in range(n):
        d[a] = alpha[a] - z[a] / Q if a < n_positive else (z[a] + 1.0) / Q - alpha[a]
    if n_positive == 1:
        d[0] = C - d[0]
        project_simplex(d[:n], C, order[:n], out[:n])
        out[0] = C - out[0]
    else:
        own = slice(0, n_positive)
        others = slice(n_positive, n)
        project_pair(d[others], d[own], C, order[others], order[own], out[others], out[own])
    for a in range(n_positive, n):
        out[a] = -out[a]


# --- Algorithm 1 -----------------------------------------------------------------------------------------------------


@kernel
def dot(X_data, X_indices, start, end, dense):
    """<x, dense> of a row of X."""
    total = 0.0
    for p in range(start, end):
        total += np.float64(X_data[p]) * dense[X_indices[p]]
    return total


@kernel
def add_earlier_moves(r, rows, X, n, batch, moves, scratch):
    """z[r, a] += sum over the earlier rows s of the batch of step_sk <x_r, x_s>, where k is the a-th active label.

    The scores were computed with the weights from before the batch. This is what the moves of the earlier rows add to
    them, as far as no weight is cut off at zero. AlphaMoves of a label are a chain that begins at scratch.chain[label].
    """
    X_data, X_indices, X_indptr = X
    start = X_indptr[rows[r]]
    end = X_indptr[rows[r] + np.uint32(1)]
    spread = False
    for a in range(n):
        move = scratch.chain[batch.labels[r, a]]
        while move != NO_MOVE:
            s = moves.row[move]
            if scratch.seen[s] != r:
                if not spread:
                    for p in range(start, end):
                        scratch.dense[X_indices[p]] = X_data[p]
                    spread = True
                other = rows[s]
                scratch.dots[s] = dot(X_data, X_indices, X_indptr[other], X_indptr[other + np.uint32(1)], scratch.dense)
                scratch.seen[s] = r
            batch.z[r, a] += moves.step[move] * scratch.dots[s]
            move = moves.following[move]
    if spread:
        for p in range(start, end):
            scratch.dense[X_indices[p]] = np.float32(0.0)


@kernel
def keep_members(i, n_positive, n, members, labels, out):
    """Store the alphas `out` of all positive labels, and of the negative labels whose alpha is not zero (step 5)."""
    kept = n_positive
    for a in range(n_positive, n):
        if out[a] != 0.0:
            labels[kept] = labels[a]
            out[kept] = out[a]
            kept += 1
    if kept > members.room[i]:
        room = np.uint32(2 * kept)
        members.start[i] = members.used[0]
        members.room[i] = room
        members.used[0] += np.uint64(room)
    for a in range(kept):
        at = members.start[i] + np.uint64(a)
        members.held[at].label = labels[a]
        members.held[at].alpha = out[a]
    members.size[i] = kept
    members.largest[0] = max(members.largest[0], kept)


@kernel
def solve_rows(rows, X, squares, n_positive, C, part_width, members, batch, moves, scratch):
    """Steps 4 and 5 of Algorithm 1 for the rows of a batch in their order, given the scores of their active labels.

    The moves of the alphas go to `moves`, and the weights are not touched. Returns the work of the whole update, in
    visits of slots. scratch.chain is NO_MOVE before and after.
    """
    X_indptr = X[2]
    out = scratch.solved
    count = 0
    work = 0.0
    scratch.seen[:] = NO_MOVE
    for r in range(len(rows)):
        i = rows[r]
        own = np.int64(n_positive[i])
        n = batch.size[r]
        moves.first[r] = count
        if own == 0 or n == own or squares[i] == 0.0:
            continue
        add_earlier_moves(r, rows, X, n, batch, moves, scratch)
        solve_block(own, n, batch.z[r], batch.alpha[r], squares[i], C, scratch, out)
        for a in range(n):
            step = out[a] - batch.alpha[r, a]
            if step != 0.0:
                label = batch.labels[r, a]
                moves.label[count] = label
                moves.part[count] = label // part_width
                moves.step[count] = step
                moves.row[count] = r
                moves.following[count] = scratch.chain[label]
                scratch.chain[label] = count
                count += 1
        keep_members(i, own, n, members, batch.labels[r], out)
        work += np.float64(X_indptr[i + np.uint32(1)] - X_indptr[i]) * (n + count - moves.first[r])
    moves.first[len(rows)] = count
    for move in range(count):
        scratch.chain[moves.label[move]] = NO_MOVE
    return work


@kernel
def all_members(rows, part_width, members, moves):
    """The moves that lead from alpha = 0 to the present alphas of `rows`."""
    count = 0
    for r in range(len(rows)):
        first = members.start[rows[r]]
        moves.first[r] = count
        for at in range(first, first + np.uint64(members.size[rows[r]])):
            moves.label[count] = members.held[at].label
            moves.part[count] = members.held[at].label // part_width
            moves.step[count] = members.held[at].alpha
            count += 1
    moves.first[len(rows)] = count
