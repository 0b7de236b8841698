"""Compiled loops of Algorithm 1: the projection of a row's dual variables, and the updates of V that follow from it.

`weights`, `members` and `scratch` are WeightTables, Members and RowScratch of weights.py and frank_wolfe.py. Labels
are numbers from 0 to K - 1 that were drawn at random. Indices are unsigned. Scores are summed in float64.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(0xFFFFFFFF)  # the label of an empty slot
NOWHERE = np.uint32(0xFFFFFFFF)  # no list, no row, no label
NO_TABLE = np.uint64(0xFFFFFFFFFFFFFFFF)
DONE, MORE_SLOTS, MORE_ENTRIES, MORE_MEMBERS = range(4)  # how a kernel ended, or which array is too small
FULL = 0.7  # largest share of a table's slots that may be in use
ONE = np.uint64(1)
LOW_BITS = np.uint64(0xFFFFFFFF)


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


# --- tables and lists ------------------------------------------------------------------------------------------------


@kernel
def prox(v, lam):
    """w = prox(v): soft thresholding (15), (23)."""
    return v - lam if v > lam else v + lam if v < -lam else np.float32(0.0)


@kernel
def find(slots, start, mask, label):
    """The slot of `label`, or the empty slot where it belongs."""
    at = label & mask
    while True:
        slot = start + np.uint64(at)
        if slots[slot].label == label or slots[slot].label == EMPTY:
            return slot
        at = (at + np.uint32(1)) & mask


@kernel
def has_room(count, mask, K):
    """Whether a table may hold `count` labels: some slots must stay empty, unless each label has its own slot."""
    size = np.int64(mask) + 1
    return size >= K or count <= FULL * size


@kernel
def bits_of(mask):
    """b of a table with 2^b slots."""
    bits = 0
    while (np.int64(1) << bits) <= np.int64(mask):
        bits += 1
    return bits


@kernel
def take_table(weights, bits):
    """Return the start of an empty table of 2^bits slots: an unused table, or a new one."""
    slots = weights.slots
    size = np.uint64(1) << np.uint64(bits)
    start = weights.free[bits]
    if start != NO_TABLE:
        first = slots[start]
        weights.free[bits] = np.uint64(first.label) | (np.uint64(first.at) << np.uint64(32))
    else:
        start = weights.used[0]
        weights.used[0] += size
    for slot in range(start, start + size):
        slots[slot].label = EMPTY
        slots[slot].v = np.float32(0.0)
        slots[slot].at = NOWHERE
    return start


@kernel
def give_back(weights, start, bits):
    """Put a table at the front of the list of unused tables of its size."""
    following = weights.free[bits]
    weights.slots[start].label = np.uint32(following & LOW_BITS)
    weights.slots[start].at = np.uint32(following >> np.uint64(32))
    weights.free[bits] = start


@kernel
def grow_table(weights, j):
    """Move feature j to a table with twice the slots."""
    slots = weights.slots
    start = weights.start[j]
    mask = weights.mask[j]
    bits = bits_of(mask)
    new_start = take_table(weights, bits + 1)
    new_mask = np.uint32(2) * mask + np.uint32(1)
    for slot in range(start, start + np.uint64(mask) + ONE):
        if slots[slot].label != EMPTY:
            target = find(slots, new_start, new_mask, slots[slot].label)
            slots[target].label = slots[slot].label
            slots[target].v = slots[slot].v
            slots[target].at = slots[slot].at
    give_back(weights, start, bits)
    weights.start[j] = new_start
    weights.mask[j] = new_mask


@kernel
def append_entry(weights, j, part, label, w):
    """Append a label to its list, and return its position there. A full list moves to a segment of twice the size."""
    size = weights.list_size[j, part]
    room = weights.list_room[j, part]
    if size == room:
        old = weights.list_start[j, part]
        new = weights.used[1]
        more = max(np.uint32(4), np.uint32(2) * room)
        for p in range(np.uint64(size)):
            weights.entries[new + p].label = weights.entries[old + p].label
            weights.entries[new + p].w = weights.entries[old + p].w
        weights.used[1] += np.uint64(more)
        weights.list_start[j, part] = new
        weights.list_room[j, part] = more
    at = weights.list_start[j, part] + np.uint64(size)
    weights.entries[at].label = label
    weights.entries[at].w = w
    weights.list_size[j, part] = size + np.uint32(1)
    return size


@kernel
def insert(weights, j, label):
    """Give `label` a slot in the table of feature j, and return it."""
    slots = weights.slots
    count = weights.filled[j] + np.uint32(1)
    if not has_room(count, weights.mask[j], weights.K):
        grow_table(weights, j)
    slot = find(slots, weights.start[j], weights.mask[j], label)
    slots[slot].label = label
    weights.filled[j] = count
    return slot


@kernel
def change_feature(weights, j, x, n, lam, selected, scratch):
    """v[j, label] += x step for the n labels that moved. w is updated by (23).

    If `selected`, labels that are not in the table have no weight and get none. Arrays of the inner loop are local
    variables, because passing a named tuple to a function there would cost more than the work.
    """
    slots = weights.slots
    entries = weights.entries
    labels = scratch.moved
    parts = scratch.order
    steps = scratch.alpha
    start = weights.start[j]
    mask = weights.mask[j]
    row = weights.row_of[j]
    for a in range(n):
        label = labels[a]
        slot = find(slots, start, mask, label)
        if slots[slot].label == EMPTY:
            if selected:
                continue
            slot = insert(weights, j, label)
            start = weights.start[j]
            mask = weights.mask[j]
        v = slots[slot].v + np.float32(steps[a] * x)
        slots[slot].v = v
        w = prox(v, lam)
        at = slots[slot].at
        if row != NOWHERE:
            weights.rows[row, label] = w
        elif at != NOWHERE:
            entries[weights.list_start[j, parts[a]] + np.uint64(at)].w = w
        elif w != np.float32(0.0):
            slots[slot].at = append_entry(weights, j, parts[a], label, w)


@kernel
def space_for(weights, X_indices, start, end, n):
    """Return DONE if n labels can be added to each feature of a row, otherwise which array is too small."""
    slots = np.int64(weights.used[0])
    entries = np.int64(weights.used[1])
    for p in range(start, end):
        j = X_indices[p]
        size = np.int64(weights.mask[j]) + 1
        while not has_room(weights.filled[j] + np.uint32(n), size - 1, weights.K):
            size *= 2
            slots += size
        if weights.row_of[j] == NOWHERE:
            for part in range(weights.list_size.shape[1]):
                size = np.int64(weights.list_size[j, part])
                room = np.int64(weights.list_room[j, part])
                while size + n > room:
                    room = max(4, 2 * room)
                    entries += room
    if slots > len(weights.slots):
        return MORE_SLOTS
    return MORE_ENTRIES if entries > len(weights.entries) else DONE


# --- Algorithm 1 -----------------------------------------------------------------------------------------------------


@kernel
def activate(i, found, members, scratch):
    """Copy the active labels of row i and their alphas to `scratch`, and add the labels that the search found, with
    alpha = 0. Returns the number of labels."""
    start = members.start[i]
    n = np.int64(members.size[i])
    for a in range(n):
        scratch.labels[a] = members.held[start + np.uint64(a)].label
        scratch.alpha[a] = members.held[start + np.uint64(a)].alpha
    for label in found:
        known = label == NOWHERE
        for a in range(n):
            known |= scratch.labels[a] == label
        if not known:
            scratch.labels[n] = label
            scratch.alpha[n] = 0.0
            n += 1
    return n


@kernel
def score_active(X, start, end, n, weights, lam, scratch):
    """z[a] = <w_k, x> of the active labels, from the tables."""
    X_data, X_indices, _ = X
    z = scratch.z
    labels = scratch.labels
    slots = weights.slots
    z[:n] = 0.0
    for p in range(start, end):
        j = X_indices[p]
        x = X_data[p]
        table = weights.start[j]
        mask = weights.mask[j]
        for a in range(n):
            z[a] += x * prox(slots[find(slots, table, mask, labels[a])].v, lam)


@kernel
def keep_members(i, n_positive, n, members, scratch, out):
    """Store the alphas `out` of all positive labels, and of the negative labels whose alpha is not zero (step 5)."""
    kept = n_positive
    for a in range(n_positive, n):
        if out[a] != 0.0:
            scratch.labels[kept] = scratch.labels[a]
            out[kept] = out[a]
            kept += 1
    if kept > members.room[i]:
        room = np.uint32(2 * kept)
        members.start[i] = members.used[0]
        members.room[i] = room
        members.used[0] += np.uint64(room)
    for a in range(kept):
        at = members.start[i] + np.uint64(a)
        members.held[at].label = scratch.labels[a]
        members.held[at].alpha = out[a]
    members.size[i] = kept
    members.largest[0] = max(members.largest[0], kept)


@kernel
def update_rows(rows, begin, X, squares, n_positive, found, C, lam, selected, weights, members, scratch):
    """Steps 3 to 6 of Algorithm 1 for `rows` in their order, beginning with rows[begin].

    Returns the number of rows that are done, and DONE or which array is too small for the next row, which is then
    unchanged. The work, in visits of slots, is added to scratch.work.
    """
    X_data, X_indices, X_indptr = X
    out = scratch.solved
    for r in range(begin, len(rows)):
        i = rows[r]
        start = X_indptr[i]
        end = X_indptr[i + np.uint32(1)]
        own = np.int64(n_positive[i])
        Q = squares[i]
        n = activate(i, found[r], members, scratch)
        if own == 0 or n == own or Q == 0.0:
            continue
        status = DONE if selected else space_for(weights, X_indices, start, end, n)
        if status == DONE and members.used[0] + np.uint64(2 * n) > len(members.held):
            status = MORE_MEMBERS
        if status != DONE:
            return r, status
        score_active(X, start, end, n, weights, lam, scratch)
        solve_block(own, n, scratch.z, scratch.alpha, Q, C, scratch, out)
        moved = 0
        for a in range(n):
            by = out[a] - scratch.alpha[a]
            if by != 0.0:
                scratch.alpha[moved] = by
                scratch.moved[moved] = scratch.labels[a]
                scratch.order[moved] = scratch.labels[a] // weights.part_width
                moved += 1
        for p in range(start, end):
            change_feature(weights, X_indices[p], X_data[p], moved, lam, selected, scratch)
        keep_members(i, own, n, members, scratch, out)
        scratch.work[0] += np.float64(end - start) * (n + moved)
    return len(rows), DONE


@kernel
def restore_rows(rows, begin, X, weights, members, scratch):
    """V += X'A over `rows`, which fills the tables for given alphas. Returns the same as `update_rows`."""
    X_data, X_indices, X_indptr = X
    for r in range(begin, len(rows)):
        i = rows[r]
        start = X_indptr[i]
        end = X_indptr[i + np.uint32(1)]
        first = members.start[i]
        n = np.int64(members.size[i])
        status = space_for(weights, X_indices, start, end, n)
        if status != DONE:
            return r, status
        for a in range(n):
            member = members.held[first + np.uint64(a)]
            scratch.moved[a] = member.label
            scratch.alpha[a] = member.alpha
            scratch.order[a] = member.label // weights.part_width
        for p in range(start, end):
            change_feature(weights, X_indices[p], X_data[p], n, np.float32(np.inf), False, scratch)
    return len(rows), DONE
