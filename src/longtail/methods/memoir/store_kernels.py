"""Compiled loops over the weights while they are trained: sparse vectors that grow, shrink and answer queries.

A class has a hash table (linear probing, a power of two of slots, at most three quarters full) from feature to value,
so that one weight is found, changed or made in constant time. When the store is indexed, a feature also has lists with
the classes that have a weight for it (postings), one list for each group of classes: class c belongs to group c mod G,
where it is number c div G. A slot of a table knows the place of its posting, so that both move together. A store that
is not indexed has champions instead: for each feature the few classes with the largest weights of those that have
moved since there was room for them.

Tables and lists lie in two arenas, in blocks of powers of two; freed blocks are used again. A kernel that may insert
stops where an arena might not suffice, and goes on after the caller has made it longer. Stored values times `scale` are
the weights: multiplying all of W is one multiplication.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(2**32 - 1)  # the key of a free slot
TABLES, LISTS = 0, 1  # the two arenas: rows of `free`, entries of `top`
FIRST_TABLE, FIRST_LIST = 3, 1  # log2 of the first size of a table and of a list

# --- blocks ----------------------------------------------------------------------------------------------------------


@kernel
def take_block(store, arena, bits):
    """The start of a block of 2^bits entries: a freed one, or the next of the arena."""
    start = store.free[arena, bits]
    if start >= 0:
        link = store.keys[start] if arena == TABLES else store.classes[start]
        store.free[arena, bits] = np.int64(link) - 1
        return start
    start = store.top[arena]
    store.top[arena] = start + (np.int64(1) << bits)
    return start


@kernel
def free_block(store, arena, bits, start):
    """The block may be taken again; its first entry links it to the next free one of its size (0: none)."""
    link = np.uint32(store.free[arena, bits] + 1)
    if arena == TABLES:
        store.keys[start] = link
    else:
        store.classes[start] = link
    store.free[arena, bits] = start


# --- tables ----------------------------------------------------------------------------------------------------------


@kernel
def first_slot(feature, bits):
    """Where the probing for a feature begins: the upper bits of a product (Knuth's multiplicative hash)."""
    return np.int64(np.uint32(feature * np.uint32(2654435769)) >> np.uint32(32 - bits))


@kernel
def find(store, c, feature):
    """The slot of the feature in the table of class c, or -1."""
    bits = np.int64(store.bits[c])
    if bits == 0:
        return np.int64(-1)
    start, mask = store.starts[c], (np.int64(1) << bits) - 1
    h = first_slot(feature, bits)
    while True:
        key = store.keys[start + h]
        if key == feature:
            return start + h
        if key == EMPTY:
            return np.int64(-1)
        h = (h + 1) & mask


@kernel
def place_key(store, c, feature):
    """The first free slot for a feature that the table of class c lacks; the key is written."""
    bits = np.int64(store.bits[c])
    start, mask = store.starts[c], (np.int64(1) << bits) - 1
    h = first_slot(feature, bits)
    while store.keys[start + h] != EMPTY:
        h = (h + 1) & mask
    store.keys[start + h] = feature
    return start + h


@kernel
def open_table(store, c, bits):
    """An empty table of 2^bits slots for class c."""
    start = take_block(store, TABLES, bits)
    store.keys[start : start + (np.int64(1) << bits)] = EMPTY
    store.starts[c], store.bits[c] = start, bits


@kernel
def grow_table(store, c):
    """Move class c to a table twice as large."""
    bits, start = np.int64(store.bits[c]), store.starts[c]
    if bits == 0:
        open_table(store, c, FIRST_TABLE)
        return
    open_table(store, c, bits + 1)
    for slot in range(start, start + (np.int64(1) << bits)):
        if store.keys[slot] != EMPTY:
            to = place_key(store, c, store.keys[slot])
            store.values[to] = store.values[slot]
            if store.indexed:
                store.places[to] = store.places[slot]
    free_block(store, TABLES, bits, start)


# --- lists -----------------------------------------------------------------------------------------------------------


@kernel
def list_of(store, c, feature):
    """The number of the list of the feature and of the group of class c."""
    return np.int64(feature) * store.n_groups + c % store.n_groups


@kernel
def append_posting(store, c, feature):
    """A posting for class c in the list of the feature and the class's group; its place in the list."""
    number = list_of(store, c, feature)
    bits, start = np.int64(store.list_bits[number]), store.list_starts[number]
    count = np.int64(store.list_counts[number])
    if bits == 0 or count == np.int64(1) << bits:
        to = take_block(store, LISTS, bits + 1 if bits else FIRST_LIST)
        for k in range(count):
            store.classes[to + k], store.postings[to + k] = store.classes[start + k], store.postings[start + k]
        if bits:
            free_block(store, LISTS, bits, start)
        store.list_bits[number] = bits + 1 if bits else FIRST_LIST
        store.list_starts[number] = start = to
    store.classes[start + count] = c // store.n_groups
    store.list_counts[number] = count + 1
    return count


@kernel
def remove_posting(store, c, feature, place):
    """Take out the posting of class c; the last one of the list moves to its place, and its slot learns so."""
    number = list_of(store, c, feature)
    start, last = store.list_starts[number], np.int64(store.list_counts[number]) - 1
    store.list_counts[number] = last
    if place != last:
        moved = store.classes[start + last]
        store.classes[start + place], store.postings[start + place] = moved, store.postings[start + last]
        store.places[find(store, np.int64(moved) * store.n_groups + c % store.n_groups, feature)] = place


# --- weights ---------------------------------------------------------------------------------------------------------


@kernel
def set_value(store, c, feature, slot, value):
    """The value of a slot of class c, and of its posting; or the class may become a champion."""
    store.values[slot] = value
    if store.indexed:
        store.postings[store.list_starts[list_of(store, c, feature)] + np.int64(store.places[slot])] = value
    if len(store.champions):
        promote(store, feature, c, value)


@kernel
def insert(store, c, feature):
    """A slot for a feature that class c lacks, with value 0."""
    count = np.int64(store.counts[c])
    if store.bits[c] == 0 or 4 * (count + 1) > 3 * (np.int64(1) << np.int64(store.bits[c])):
        grow_table(store, c)
    slot = place_key(store, c, feature)
    store.counts[c] = count + 1
    store.values[slot] = 0.0
    if store.indexed:
        store.places[slot] = append_posting(store, c, feature)
    return slot


@kernel
def score(store, X, i, c):
    """x_i.v_c, with the stored values v = w / scale."""
    total = 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        slot = find(store, c, X.indices[p])
        if slot >= 0:
            total += X.data[p] * store.values[slot]
    return total


@kernel
def promote(store, feature, c, value):
    """Class c, whose value of the feature has changed, becomes a champion of it if its value is among the largest."""
    least = 0
    for k in range(store.champions.shape[1]):
        if store.champions[feature, k] == c:
            store.champion_values[feature, k] = value
            return
        if store.champion_values[feature, k] < store.champion_values[feature, least]:
            least = k
    if value > store.champion_values[feature, least]:
        store.champions[feature, least], store.champion_values[feature, least] = c, value


@kernel
def add_row(store, X, i, c, factor):
    """v_c += factor x_i, and |V|^2 is kept up to date."""
    change = 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        feature = X.indices[p]
        slot = find(store, c, feature)
        if slot < 0:
            slot = insert(store, c, feature)
        old = np.float64(store.values[slot])
        new = np.float32(old + factor * X.data[p])
        set_value(store, c, feature, slot, new)
        change += np.float64(new) ** 2 - old**2
    store.square[0] += change
    store.norms[c] += change


@kernel
def table_room(store, c, more):
    """At most how many entries of the arena the table of class c takes for so many more features."""
    bits, wanted, room = np.int64(store.bits[c]), np.int64(store.counts[c]) + more, np.int64(0)
    while bits == 0 or 4 * wanted > 3 * (np.int64(1) << bits):
        bits = bits + 1 if bits else np.int64(FIRST_TABLE)
        room += np.int64(1) << bits
    return room


@kernel
def has_room(store, X, i, y, r):
    """Whether both arenas suffice for adding row i to the classes y and r."""
    n = np.int64(X.indptr[i + 1] - X.indptr[i])
    if store.top[TABLES] + table_room(store, y, n) + table_room(store, r, n) > len(store.keys):
        return False
    if store.indexed:
        room = np.int64(0)
        for p in range(X.indptr[i], X.indptr[i + 1]):
            for c in (y, r):
                number = list_of(store, c, X.indices[p])
                bits = np.int64(store.list_bits[number])
                if bits == 0 or np.int64(store.list_counts[number]) + 2 > np.int64(1) << bits:
                    room += np.int64(2) << bits  # for both, should they be of one group
        if store.top[LISTS] + room > len(store.classes):
            return False
    return True


# --- what the rest of the package calls ------------------------------------------------------------------------------


@kernel
def step_rows(store, X, rows, targets, rivals, step, begin, moved):
    """The inner loop of Algorithms 1 and 2 from pair `begin` on: where 1 + x.(w_r - w_y) > 0, w_r loses and w_y gains
    step x. moved[k] tells whether. Returns the pair for which an arena was too short, or their number."""
    scale = store.scale[0]
    for k in range(begin, len(rows)):
        i, y, r = rows[k], targets[k], rivals[k]
        moved[k] = False
        if r < 0 or 1.0 + scale * (score(store, X, i, r) - score(store, X, i, y)) <= 0.0:
            continue
        if not has_room(store, X, i, y, r):
            return k
        add_row(store, X, i, r, -step / scale)
        add_row(store, X, i, y, step / scale)
        moved[k] = True
    return len(rows)


@kernel
def consider(store, X, i, k, c, group, n_groups, seen, out, out_scores):
    """Class c takes the place of out[k] if it scores more for row i; not if it is a blank, was seen, or is of another
    group."""
    if c < 0 or c % n_groups != group or seen[c] == k + 1:
        return
    seen[c] = k + 1
    value = score(store, X, i, c)
    if value > out_scores[k]:
        out[k], out_scores[k] = c, value


@kernel
def best_of(store, X, Y, rows, candidates, group, n_groups, seen, out, out_scores):
    """For every row the best of its candidates (blanks are below 0) that belongs to the group (mod n_groups) and is no
    label of the row; the first of equal ones; -1 if there is none.

    seen : zeros, one for each class.
    """
    for k in range(len(rows)):
        i = rows[k]
        out[k], out_scores[k] = -1, -np.inf
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            seen[Y.indices[p]] = k + 1
        for at in range(candidates.shape[1]):
            consider(store, X, i, k, np.int64(candidates[k, at]), group, n_groups, seen, out, out_scores)


@kernel
def best_of_all(store, X, Y, rows, line_of, panel, scores, out, out_scores):
    """For every row the best of all classes that is no label of it; the first of equal ones; -1 if there is none. All
    weights are read once.

    line_of : zeros, one for each feature.
    panel : zeros, for the rows side by side, with a line for each entry of the rows.
    scores : room for one class.
    """
    n_lines = 0
    for k in range(len(rows)):
        out[k], out_scores[k] = -1, -np.inf
        for p in range(X.indptr[rows[k]], X.indptr[rows[k] + 1]):
            if line_of[X.indices[p]] == 0:
                n_lines += 1
                line_of[X.indices[p]] = n_lines
            panel[line_of[X.indices[p]] - 1, k] = X.data[p]
    for c in range(len(store.counts)):
        scores[:] = 0.0
        if store.bits[c] > 0:
            for slot in range(store.starts[c], store.starts[c] + (np.int64(1) << np.int64(store.bits[c]))):
                feature = store.keys[slot]
                if feature != EMPTY and line_of[feature] > 0:
                    value, line = store.values[slot], line_of[feature] - 1
                    for k in range(len(rows)):
                        scores[k] += value * panel[line, k]
        for k in range(len(rows)):
            if scores[k] > out_scores[k]:
                is_label = False
                for p in range(Y.indptr[rows[k]], Y.indptr[rows[k] + 1]):
                    is_label |= Y.indices[p] == c
                if not is_label:
                    out[k], out_scores[k] = c, scores[k]


@kernel
def score_pairs(store, X, rows, classes, out):
    """out[k] = x_i.v_c of row rows[k] and class classes[k]; -inf for a class below 0."""
    for k in range(len(rows)):
        out[k] = score(store, X, rows[k], classes[k]) if classes[k] >= 0 else -np.inf


@kernel
def truncated(value, amount):
    """The value, moved towards zero by `amount`: eq. (13)."""
    return np.float32(np.sign(value) * max(abs(value) - amount, 0.0))


@kernel
def truncate_class(store, c, amount, keys, values, places):
    """Every value of class c moves towards zero by `amount` and leaves the table when it gets there: eq. (13).

    keys, values, places : room for all entries of the class.
    """
    bits, start, kept = np.int64(store.bits[c]), store.starts[c], 0
    if bits == 0:
        return
    square = 0.0
    for slot in range(start, start + (np.int64(1) << bits)):
        feature = store.keys[slot]
        if feature == EMPTY:
            continue
        new = truncated(np.float64(store.values[slot]), amount)
        set_value(store, c, feature, slot, new)
        if new == 0.0:
            if store.indexed:
                remove_posting(store, c, feature, np.int64(store.places[slot]))
            continue
        square += np.float64(new) ** 2
        keys[kept], values[kept] = feature, new
        if store.indexed:
            places[kept] = store.places[slot]
        kept += 1
    if kept < store.counts[c]:
        refill_table(store, c, keys[:kept], values, places)
    store.square[0] += square - store.norms[c]
    store.norms[c] = square


@kernel
def refill_table(store, c, keys, values, places):
    """The table of class c holds just these entries, and is no larger than they need if the arena has a place for
    it."""
    bits, start = np.int64(store.bits[c]), store.starts[c]
    smaller = FIRST_TABLE
    while 4 * len(keys) > 3 * (np.int64(1) << smaller):
        smaller += 1
    store.keys[start : start + (np.int64(1) << bits)] = EMPTY
    if smaller < bits and (
        store.free[TABLES, smaller] >= 0 or store.top[TABLES] + (np.int64(1) << smaller) <= len(store.keys)
    ):
        open_table(store, c, smaller)
        free_block(store, TABLES, bits, start)
    for k in range(len(keys)):
        slot = place_key(store, c, keys[k])
        store.values[slot] = values[k]
        if store.indexed:
            store.places[slot] = places[k]
    store.counts[c] = len(keys)


@kernel
def truncate_classes(store, classes, amounts, keys, values, places):
    """Truncate class classes[k] by amounts[k]; see truncate_class."""
    for k in range(len(classes)):
        truncate_class(store, classes[k], amounts[k], keys, values, places)


@kernel
def fill_csr(store, debts, indptr, indices, data):
    """The weights, truncated by debts[c], as rows of a CSR matrix, features of a row in the order of its table."""
    for c in range(len(store.counts)):
        at = indptr[c]
        if store.bits[c] > 0:
            for slot in range(store.starts[c], store.starts[c] + (np.int64(1) << np.int64(store.bits[c]))):
                feature = store.keys[slot]
                if feature != EMPTY:
                    indices[at], data[at] = feature, truncated(store.scale[0] * store.values[slot], debts[c])
                    at += 1
