"""Compiled loops over the tables of V and the lists of W: scores of active labels, and the moves of a mini-batch.

`weights` is a WeightTables of weights.py. `members`, `batch`, `moves` and `columns` are Members, Batch, AlphaMoves and
Columns of mini_batch.py. A batch is processed feature by feature, because the table of a feature then stays in the
cache for all rows that have the feature. Features are divided into SHARDS shards. A shard has its own space in the
arrays, so that threads can change the tables of different shards at the same time.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(0xFFFFFFFF)  # the label of an empty slot
NOWHERE = np.uint32(0xFFFFFFFF)  # no list, no row, no label
NO_TABLE = np.uint64(0xFFFFFFFFFFFFFFFF)
DONE, MORE_SLOTS, MORE_ENTRIES = range(3)  # how a kernel ended, or which array is too small
SLOTS, SLOTS_END, ENTRIES, ENTRIES_END = range(4)  # columns of weights.room
SHARDS = 8
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
def shard_of(j):
    """The shard of feature j."""
    return np.int64(j % np.uint32(SHARDS))


@kernel
def take_table(weights, shard, bits):
    """Return the start of an empty table of 2^bits slots: an unused table of the shard, or a new one."""
    slots = weights.slots
    size = np.uint64(1) << np.uint64(bits)
    start = weights.free[shard, bits]
    if start != NO_TABLE:
        first = slots[start]
        weights.free[shard, bits] = np.uint64(first.label) | (np.uint64(first.at) << np.uint64(32))
    else:
        start = weights.room[shard, SLOTS]
        weights.room[shard, SLOTS] += size
    for slot in range(start, start + size):
        slots[slot].label = EMPTY
        slots[slot].v = np.float32(0.0)
        slots[slot].at = NOWHERE
    return start


@kernel
def give_back(weights, shard, start, bits):
    """Put a table at the front of the shard's list of unused tables of its size."""
    following = weights.free[shard, bits]
    weights.slots[start].label = np.uint32(following & LOW_BITS)
    weights.slots[start].at = np.uint32(following >> np.uint64(32))
    weights.free[shard, bits] = start


@kernel
def grow_table(weights, j):
    """Move feature j to a table with twice the slots."""
    slots = weights.slots
    start = weights.start[j]
    mask = weights.mask[j]
    bits = bits_of(mask)
    new_start = take_table(weights, shard_of(j), bits + 1)
    new_mask = np.uint32(2) * mask + np.uint32(1)
    for slot in range(start, start + np.uint64(mask) + ONE):
        if slots[slot].label != EMPTY:
            target = find(slots, new_start, new_mask, slots[slot].label)
            slots[target].label = slots[slot].label
            slots[target].v = slots[slot].v
            slots[target].at = slots[slot].at
    give_back(weights, shard_of(j), start, bits)
    weights.start[j] = new_start
    weights.mask[j] = new_mask


@kernel
def append_entry(weights, j, part, label, w):
    """Append a label to its list, and return its position there. A full list moves to a segment of twice the size."""
    size = weights.list_size[j, part]
    room = weights.list_room[j, part]
    if size == room:
        old = weights.list_start[j, part]
        new = weights.room[shard_of(j), ENTRIES]
        more = max(np.uint32(4), np.uint32(2) * room)
        for p in range(np.uint64(size)):
            weights.entries[new + p].label = weights.entries[old + p].label
            weights.entries[new + p].w = weights.entries[old + p].w
        weights.room[shard_of(j), ENTRIES] += np.uint64(more)
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
def change_feature(weights, j, x, first, last, lam, selected, moves):
    """v[j, label] += x step for the moves first .. last. w is updated by (23).

    If `selected`, labels that are not in the table have no weight and get none. Arrays of the inner loop are local
    variables, because passing a named tuple to a function there would cost more than the work.
    """
    slots = weights.slots
    entries = weights.entries
    labels = moves.label
    parts = moves.part
    steps = moves.step
    start = weights.start[j]
    mask = weights.mask[j]
    row = weights.row_of[j]
    for move in range(first, last):
        label = labels[move]
        slot = find(slots, start, mask, label)
        if slots[slot].label == EMPTY:
            if selected:
                continue
            slot = insert(weights, j, label)
            start = weights.start[j]
            mask = weights.mask[j]
        v = slots[slot].v + np.float32(steps[move] * x)
        slots[slot].v = v
        w = prox(v, lam)
        at = slots[slot].at
        if row != NOWHERE:
            weights.rows[row, label] = w
        elif at != NOWHERE:
            entries[weights.list_start[j, parts[move]] + np.uint64(at)].w = w
        elif w != np.float32(0.0):
            slots[slot].at = append_entry(weights, j, parts[move], label, w)


@kernel
def space_for(weights, j, n):
    """Return DONE if n labels can be added to feature j, otherwise which array is too small."""
    shard = shard_of(j)
    slots = weights.room[shard, SLOTS]
    size = np.int64(weights.mask[j]) + 1
    while not has_room(weights.filled[j] + np.uint32(n), size - 1, weights.K):
        size *= 2
        slots += np.uint64(size)
    if slots > weights.room[shard, SLOTS_END]:
        return MORE_SLOTS
    entries = weights.room[shard, ENTRIES]
    if weights.row_of[j] == NOWHERE:
        for part in range(weights.list_size.shape[1]):
            needed = min(np.int64(weights.list_size[j, part]) + n, weights.part_width)
            room = np.int64(weights.list_room[j, part])
            while needed > room:
                room = max(4, 2 * room)
                entries += np.uint64(room)
    return MORE_ENTRIES if entries > weights.room[shard, ENTRIES_END] else DONE


# --- a mini-batch ----------------------------------------------------------------------------------------------------


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
def by_feature(rows, begin, end, X, columns):
    """Sort the entries of the rows begin .. end by feature. Those of a feature keep the order of the rows. Returns the
    number of features. columns.count is zero before and after."""
    X_data, X_indices, X_indptr = X
    count = columns.count
    features = columns.feature
    n = 0
    for r in range(begin, end):
        for p in range(X_indptr[rows[r]], X_indptr[rows[r] + np.uint32(1)]):
            if count[X_indices[p]] == 0:
                features[n] = X_indices[p]
                n += 1
            count[X_indices[p]] += 1
    features[:n].sort()
    total = 0
    for f in range(n):
        size = count[features[f]]
        columns.first[f] = total
        count[features[f]] = total  # from here on, the place of the next entry
        total += size
    columns.first[n] = total
    for r in range(begin, end):
        for p in range(X_indptr[rows[r]], X_indptr[rows[r] + np.uint32(1)]):
            at = count[X_indices[p]]
            columns.row[at] = r
            columns.x[at] = X_data[p]
            count[X_indices[p]] = at + 1
    for f in range(n):
        count[features[f]] = 0
    return n


@kernel
def score_rows(rows, begin, end, X, found, members, lam, weights, batch, columns):
    """Step 3 of Algorithm 1 for the rows begin .. end of a batch: their active labels with the found ones, and the
    scores z = <w_k, x> of these labels. A score sums the features in their order, whatever the other rows."""
    slots = weights.slots
    z = batch.z
    labels = batch.labels
    sizes = batch.size
    for r in range(begin, end):
        sizes[r] = activate(rows[r], found[r], members, labels[r], batch.alpha[r])
        z[r, : sizes[r]] = 0.0
    for f in range(by_feature(rows, begin, end, X, columns)):
        table = weights.start[columns.feature[f]]
        mask = weights.mask[columns.feature[f]]
        for e in range(columns.first[f], columns.first[f + 1]):
            r = columns.row[e]
            x = columns.x[e]
            for a in range(sizes[r]):
                z[r, a] += x * prox(slots[find(slots, table, mask, labels[r, a])].v, lam)


@kernel
def apply_moves(begin, end, low, high, lam, selected, weights, moves, columns):
    """Step 6 of Algorithm 1 for the features begin .. end of `columns` that belong to the shards low .. high: V and W
    after the moves of a batch.

    Returns the number of features that are done, DONE or which array is too small for the next feature, and its shard.
    A v sums its moves in the order of the rows, whatever the shards.
    """
    firsts = moves.first
    rows = columns.row
    for f in range(begin, end):
        j = columns.feature[f]
        shard = shard_of(j)
        if shard < low or shard >= high:
            continue
        n = 0
        for e in range(columns.first[f], columns.first[f + 1]):
            n += firsts[rows[e] + 1] - firsts[rows[e]]
        if n == 0:
            continue
        status = DONE if selected else space_for(weights, j, n)
        if status != DONE:
            return f, status, shard
        for e in range(columns.first[f], columns.first[f + 1]):
            change_feature(weights, j, columns.x[e], firsts[rows[e]], firsts[rows[e] + 1], lam, selected, moves)
    return end, DONE, 0
