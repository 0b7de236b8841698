"""Compiled loops of Algorithm 1: the new dual variables of the rows of a batch, by projections.

`members`, `batch` and `scratch` are Members, BatchRows and RowScratch of rows.py and batch.py.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

NOWHERE = np.uint32(0xFFFFFFFF)  # no earlier change of a label


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
def keep_members(i, n_positive, n, labels, alpha, members):
    """Store the alphas of all positive labels, and of the negative labels whose alpha is not zero (step 5)."""
    kept = n_positive
    for a in range(n_positive, n):
        if alpha[a] != 0.0:
            kept += 1
    if kept > members.room[i]:
        room = np.uint32(2 * kept)
        members.start[i] = members.used[0]
        members.room[i] = room
        members.used[0] += np.uint64(room)
    at = members.start[i]
    for a in range(n):
        if a < n_positive or alpha[a] != 0.0:
            members.held[at].label = labels[a]
            members.held[at].alpha = alpha[a]
            at += np.uint64(1)
    members.size[i] = kept


@kernel
def solve_rows(squares, n_positive, C, products, subset_width, batch, last, members, scratch):
    """Steps 3 to 5 of Algorithm 1 for the rows of a batch in their order.

    The scores z are those before the batch. For each step of an earlier row s of the batch on the same label,
    z += <x_r, x_s> step. Without l1 penalty, this is the score after that step. With it, it is the gradient of an upper
    bound of G, see frank_wolfe.py. `last` is the last step on each label, or NOWHERE; so it is again at the end.
    """
    out = scratch.solved
    for r in range(len(batch.rows)):
        i = batch.rows[r]
        own = np.int64(n_positive[i])
        n = batch.size[r]
        batch.n_moved[r] = 0
        if own == 0 or n == own or squares[i] == 0.0:
            continue
        first = batch.first[r]
        end = first + np.uint64(n)
        labels = batch.labels[first:end]
        alpha = batch.alpha[first:end]
        z = batch.z[first:end]
        for a in range(n):
            step = last[labels[a]]
            while step != NOWHERE:
                z[a] += products[r, batch.row[step]] * batch.steps[step]
                step = batch.previous[step]
        solve_block(own, n, z, alpha, squares[i], C, scratch, out)
        at = np.uint32(first)
        for a in range(n):
            by = out[a] - alpha[a]
            if by != 0.0:
                batch.moved[at] = labels[a]
                batch.steps[at] = by
                batch.subsets[at] = labels[a] // np.uint32(subset_width)
                batch.row[at] = r
                batch.previous[at] = last[labels[a]]
                last[labels[a]] = at
                at += np.uint32(1)
        batch.n_moved[r] = np.uint64(at) - first
        keep_members(i, own, n, labels, out, members)
    for r in range(len(batch.rows)):
        for at in range(batch.first[r], batch.first[r] + batch.n_moved[r]):
            last[batch.moved[at]] = NOWHERE
