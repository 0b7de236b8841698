"""Compiled loops over the rows of a batch and the tables of their features: scores, and the changes of V that follow.

`weights`, `members`, `batch` and `columns` are WeightTables, Members, BatchRows and Columns of weights.py, rows.py and
batch.py. Labels are numbers from 0 to K - 1 that were drawn at random. Indices are unsigned. Scores are summed in
float64.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(0xFFFFFFFF)  # the label of an empty slot
NOWHERE = np.uint32(0xFFFFFFFF)  # no list, no row, no label, no column
NO_TABLE = np.uint64(0xFFFFFFFFFFFFFFFF)
DONE, MORE_SLOTS, MORE_ENTRIES = range(3)  # how a kernel ended, or which array is too small
FULL = 0.7  # largest share of a table's slots that may be in use
ONE = np.uint64(1)
LOW_BITS = np.uint64(0xFFFFFFFF)


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
def most_labels(mask, K):
    """How many labels a table may hold: some slots must stay empty, unless each label has its own slot."""
    size = np.int64(mask) + 1
    return size if size >= K else np.int64(FULL * size)


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
def grow_list(weights, j, subset):
    """Move a list to a segment of twice the size."""
    old = weights.list_start[j, subset]
    new = weights.used[1]
    more = max(np.uint32(4), np.uint32(2) * weights.list_room[j, subset])
    for p in range(np.uint64(weights.list_size[j, subset])):
        weights.entries[new + p].label = weights.entries[old + p].label
        weights.entries[new + p].w = weights.entries[old + p].w
    weights.used[1] += np.uint64(more)
    weights.list_start[j, subset] = new
    weights.list_room[j, subset] = more


# --- rows ------------------------------------------------------------------------------------------------------------


@kernel
def activate(i, found, members, labels, alpha):
    """Copy the active labels of row i and their alphas, and add the labels that the search found, with alpha = 0.
    Returns the number of labels."""
    start = members.start[i]
    n = np.int64(members.size[i])
    for a in range(n):
        labels[a] = members.held[start + np.uint64(a)].label
        alpha[a] = members.held[start + np.uint64(a)].alpha
    for label in found:
        known = label == NOWHERE
        for a in range(n):
            known |= labels[a] == label
        if not known:
            labels[n] = label
            alpha[n] = 0.0
            n += 1
    return n


@kernel
def score_rows(begin, end, found, X, members, weights, lam, batch):
    """Set the active labels of the rows begin .. end of a batch and their scores z = <w_k, x>, from the tables."""
    X_data, X_indices, X_indptr = X
    slots = weights.slots
    for r in range(begin, end):
        i = batch.rows[r]
        first = batch.first[r]
        labels = batch.labels[first:]
        z = batch.z[first:]
        n = activate(i, found[r], members, labels, batch.alpha[first:])
        batch.size[r] = n
        for a in range(n):
            z[a] = 0.0
        for p in range(X_indptr[i], X_indptr[i + np.uint32(1)]):
            j = X_indices[p]
            x = X_data[p]
            table = weights.start[j]
            mask = weights.mask[j]
            for a in range(n):
                z[a] += x * prox(slots[find(slots, table, mask, labels[a])].v, lam)


# --- columns ---------------------------------------------------------------------------------------------------------


@kernel
def transpose(rows, X, place, columns):
    """List the features of a batch in the order of their first use, each with its rows and values. Returns their
    number. place[j] becomes the position of feature j; it is NOWHERE for all features before."""
    X_data, X_indices, X_indptr = X
    count = np.uint32(0)
    for r in range(len(rows)):
        for p in range(X_indptr[rows[r]], X_indptr[rows[r] + np.uint32(1)]):
            j = X_indices[p]
            if place[j] == NOWHERE:
                place[j] = count
                columns.feature[count] = j
                columns.first[count + np.uint32(1)] = 0
                count += np.uint32(1)
            columns.first[place[j] + np.uint32(1)] += ONE
    columns.first[0] = 0
    before = np.uint64(0)  # first[f + 1] is where feature f begins, until its entries are there
    for f in range(np.uint32(1), count + np.uint32(1)):
        own = columns.first[f]
        columns.first[f] = before
        before += own
    for r in range(len(rows)):
        for p in range(X_indptr[rows[r]], X_indptr[rows[r] + np.uint32(1)]):
            f = place[X_indices[p]] + np.uint32(1)
            at = columns.first[f]
            columns.row[at] = r
            columns.x[at] = X_data[p]
            columns.first[f] = at + ONE
    return count


@kernel
def multiply_rows(begin, end, X, batch, place, columns, out):
    """out[r, s] = <x_r, x_s> for the rows begin .. end of a batch and all earlier rows s < r."""
    X_data, X_indices, X_indptr = X
    for r in range(begin, end):
        i = batch.rows[r]
        for s in range(r):
            out[r, s] = np.float32(0.0)
        for p in range(X_indptr[i], X_indptr[i + np.uint32(1)]):
            x = X_data[p]
            at = columns.first[place[X_indices[p]]]
            while columns.row[at] < r:
                out[r, columns.row[at]] += x * columns.x[at]
                at += ONE


@kernel
def change_features(begin, end, columns, batch, weights, lam, selected, left):
    """v[j, label] += x step for the features begin .. end of a batch and all labels that its rows moved, row by row.
    w is updated by (23).

    Features need nothing from each other here, so threads may divide them. Changes for which a table or a list has no
    room are written to `left`, whose number is returned. If `selected`, labels that are not in the table have no weight
    and get none.
    """
    slots = weights.slots
    entries = weights.entries
    n_left = 0
    for f in range(begin, end):
        j = columns.feature[f]
        start = weights.start[j]
        mask = weights.mask[j]
        row = weights.row_of[j]
        filled = np.int64(weights.filled[j])
        most = most_labels(mask, weights.K)
        for e in range(columns.first[f], columns.first[f + 1]):
            r = columns.row[e]
            x = columns.x[e]
            for m in range(batch.first[r], batch.first[r] + batch.n_moved[r]):
                label = batch.moved[m]
                change = np.float32(batch.steps[m] * x)
                slot = find(slots, start, mask, label)
                if slots[slot].label == EMPTY:
                    if selected:
                        continue
                    if filled == most:
                        left[n_left].feature = j
                        left[n_left].label = label
                        left[n_left].change = change
                        n_left += 1
                        continue
                    slots[slot].label = label
                    filled += 1
                v = slots[slot].v + change
                slots[slot].v = v
                w = prox(v, lam)
                at = slots[slot].at
                if row != NOWHERE:
                    weights.rows[row, label] = w
                elif at != NOWHERE:
                    entries[weights.list_start[j, batch.subsets[m]] + np.uint64(at)].w = w
                elif w != np.float32(0.0):
                    subset = batch.subsets[m]
                    at = weights.list_size[j, subset]
                    if at == weights.list_room[j, subset]:
                        left[n_left].feature = j
                        left[n_left].label = label
                        left[n_left].change = np.float32(0.0)
                        n_left += 1
                        continue
                    entry = weights.list_start[j, subset] + np.uint64(at)
                    entries[entry].label = label
                    entries[entry].w = w
                    slots[slot].at = at
                    weights.list_size[j, subset] = at + np.uint32(1)
        weights.filled[j] = np.uint32(filled)
    return n_left


@kernel
def finish_changes(left, begin, weights, lam):
    """Make the changes that `change_features` left, from number `begin` on. Tables and lists grow.

    Returns the number of changes that are done, and DONE or which array is too small for the next one.
    """
    slots = weights.slots
    entries = weights.entries
    for number in range(begin, len(left)):
        j = left[number].feature
        label = left[number].label
        slot = find(slots, weights.start[j], weights.mask[j], label)
        if slots[slot].label == EMPTY and np.int64(weights.filled[j]) == most_labels(weights.mask[j], weights.K):
            if weights.used[0] + np.uint64(2) * (np.uint64(weights.mask[j]) + ONE) > len(slots):
                return number, MORE_SLOTS
            grow_table(weights, j)
            slot = find(slots, weights.start[j], weights.mask[j], label)
        subset = label // np.uint32(weights.subset_width)
        v = slots[slot].v + left[number].change
        w = prox(v, lam)
        row = weights.row_of[j]
        at = slots[slot].at
        new = row == NOWHERE and at == NOWHERE and w != np.float32(0.0)
        if new and weights.list_size[j, subset] == weights.list_room[j, subset]:
            if weights.used[1] + np.uint64(4) + np.uint64(2) * np.uint64(weights.list_room[j, subset]) > len(entries):
                return number, MORE_ENTRIES
            grow_list(weights, j, subset)
        if slots[slot].label == EMPTY:
            slots[slot].label = label
            weights.filled[j] += np.uint32(1)
        slots[slot].v = v
        if new:
            at = weights.list_size[j, subset]
            weights.list_size[j, subset] = at + np.uint32(1)
            slots[slot].at = at
            entries[weights.list_start[j, subset] + np.uint64(at)].label = label
        if row != NOWHERE:
            weights.rows[row, label] = w
        elif at != NOWHERE:
            entries[weights.list_start[j, subset] + np.uint64(at)].w = w
    return len(left), DONE
