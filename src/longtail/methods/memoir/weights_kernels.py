"""Compiled loops over the weight vectors during training. The vectors are sparse; they grow, shrink and are searched.

Each class has a hash table from feature to value (linear probing, a power of two of slots, at most three quarters
full), so one weight is found, changed or added in constant time. There are two ways to go from a feature to classes:

  indexed      inverted lists: for each feature the classes with a weight for it, and that weight. One such entry is a
               *posting*. With G groups of classes, a feature has one list per group. Class c is in group c mod G, and
               its number within the group is c div G. A slot of the hash table stores the place of its posting, so the
               two copies of a weight always change together.
  not indexed  for each feature a few *top classes*: classes whose weight for the feature is large. They are updated
               only when a weight changes, so a class that was replaced does not come back before its weight changes
               again.

Tables and lists lie in two long arrays, the arenas, in segments whose sizes are powers of two. Segments that become
free are used again. A kernel that may add weights stops when an arena could become too short; the caller makes the
arena longer and calls the kernel again. A weight is its stored value times `scale`, w = scale v, so multiplying all
weights by a number costs one multiplication.

The dense features of the rows, if there are any, have no tables. Their values lie in panels, as
models/dense_kernels.py needs them: 32 classes of a group, for each feature one after the other.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(2**32 - 1)  # the key of a free slot
TABLES, LISTS = 0, 1  # the two arenas: rows of `free`, entries of `used`
FIRST_TABLE, FIRST_LIST = 3, 1  # log2 of the first size of a table and of a list
PANEL = 32  # classes of a panel; equal to models.dense_kernels.PANEL_LABELS

# --- segments of the arenas ------------------------------------------------------------------------------------------


@kernel
def take_segment(vectors, arena, bits):
    """Take a segment of 2^bits entries and return its start: a free segment, or else the next entries of the arena."""
    start = vectors.free[arena, bits]
    if start >= 0:
        link = vectors.keys[start] if arena == TABLES else vectors.posting_classes[start]
        vectors.free[arena, bits] = np.int64(link) - 1
        return start
    start = vectors.used[arena]
    vectors.used[arena] = start + (np.int64(1) << bits)
    return start


@kernel
def free_segment(vectors, arena, bits, start):
    """Mark a segment as free. Its first entry links it to the next free segment of its size (0: there is none)."""
    link = np.uint32(vectors.free[arena, bits] + 1)
    if arena == TABLES:
        vectors.keys[start] = link
    else:
        vectors.posting_classes[start] = link
    vectors.free[arena, bits] = start


# --- hash tables -----------------------------------------------------------------------------------------------------


@kernel
def first_slot(feature, bits):
    """The slot where probing for a feature begins: the upper bits of a product (Knuth's multiplicative hash)."""
    return np.int64(np.uint32(feature * np.uint32(2654435769)) >> np.uint32(32 - bits))


@kernel
def find(vectors, c, feature):
    """The slot of the feature in the table of class c, or -1."""
    bits = np.int64(vectors.bits[c])
    if bits == 0:
        return np.int64(-1)
    start, mask = vectors.starts[c], (np.int64(1) << bits) - 1
    h = first_slot(feature, bits)
    while True:
        key = vectors.keys[start + h]
        if key == feature:
            return start + h
        if key == EMPTY:
            return np.int64(-1)
        h = (h + 1) & mask


@kernel
def place_key(vectors, c, feature):
    """Write a feature that is not in the table of class c into its first free slot, which is returned."""
    bits = np.int64(vectors.bits[c])
    start, mask = vectors.starts[c], (np.int64(1) << bits) - 1
    h = first_slot(feature, bits)
    while vectors.keys[start + h] != EMPTY:
        h = (h + 1) & mask
    vectors.keys[start + h] = feature
    return start + h


@kernel
def open_table(vectors, c, bits):
    """Give class c an empty table of 2^bits slots."""
    start = take_segment(vectors, TABLES, bits)
    vectors.keys[start : start + (np.int64(1) << bits)] = EMPTY
    vectors.starts[c], vectors.bits[c] = start, bits


@kernel
def grow_table(vectors, c):
    """Move class c to a table twice as large."""
    bits, start = np.int64(vectors.bits[c]), vectors.starts[c]
    if bits == 0:
        open_table(vectors, c, FIRST_TABLE)
        return
    open_table(vectors, c, bits + 1)
    for slot in range(start, start + (np.int64(1) << bits)):
        if vectors.keys[slot] != EMPTY:
            to = place_key(vectors, c, vectors.keys[slot])
            vectors.values[to] = vectors.values[slot]
            if vectors.indexed:
                vectors.places[to] = vectors.places[slot]
    free_segment(vectors, TABLES, bits, start)


# --- inverted lists --------------------------------------------------------------------------------------------------


@kernel
def list_of(vectors, c, feature):
    """The number of the inverted list for the feature and the group of class c."""
    return np.int64(feature) * vectors.n_groups + c % vectors.n_groups


@kernel
def append_posting(vectors, c, feature):
    """Append class c to the inverted list of the feature. Returns the place in the list. The caller sets the value."""
    number = list_of(vectors, c, feature)
    bits, start = np.int64(vectors.list_bits[number]), vectors.list_starts[number]
    count = np.int64(vectors.list_counts[number])
    if bits == 0 or count == np.int64(1) << bits:
        to = take_segment(vectors, LISTS, bits + 1 if bits else FIRST_LIST)
        for k in range(count):
            vectors.posting_classes[to + k] = vectors.posting_classes[start + k]
            vectors.posting_values[to + k] = vectors.posting_values[start + k]
        if bits:
            free_segment(vectors, LISTS, bits, start)
        vectors.list_bits[number] = bits + 1 if bits else FIRST_LIST
        vectors.list_starts[number] = start = to
    vectors.posting_classes[start + count] = c // vectors.n_groups
    vectors.list_counts[number] = count + 1
    return count


@kernel
def remove_posting(vectors, c, feature, place):
    """Remove class c from the inverted list of the feature. The last posting moves to the place that becomes free."""
    number = list_of(vectors, c, feature)
    start, last = vectors.list_starts[number], np.int64(vectors.list_counts[number]) - 1
    vectors.list_counts[number] = last
    if place != last:
        moved = vectors.posting_classes[start + last]
        vectors.posting_classes[start + place] = moved
        vectors.posting_values[start + place] = vectors.posting_values[start + last]
        vectors.places[find(vectors, np.int64(moved) * vectors.n_groups + c % vectors.n_groups, feature)] = place


# --- weights ---------------------------------------------------------------------------------------------------------


@kernel
def set_value(vectors, c, feature, slot, value):
    """Set the value of a slot of class c, and update the posting or the top classes of the feature."""
    vectors.values[slot] = value
    if vectors.indexed:
        number = list_of(vectors, c, feature)
        vectors.posting_values[vectors.list_starts[number] + np.int64(vectors.places[slot])] = value
    if len(vectors.top_classes):
        update_top(vectors, feature, c, value)


@kernel
def insert(vectors, c, feature):
    """Add a feature with value 0 to class c, which does not have it yet. Returns the slot."""
    count = np.int64(vectors.counts[c])
    if vectors.bits[c] == 0 or 4 * (count + 1) > 3 * (np.int64(1) << np.int64(vectors.bits[c])):
        grow_table(vectors, c)
    slot = place_key(vectors, c, feature)
    vectors.counts[c] = count + 1
    vectors.values[slot] = 0.0
    if vectors.indexed:
        vectors.places[slot] = append_posting(vectors, c, feature)
    return slot


@kernel
def score(vectors, X, i, c):
    """x_i.v_c, with the stored values v = w / scale."""
    total = 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        slot = find(vectors, c, X.indices[p])
        if slot >= 0:
            total += X.data[p] * vectors.values[slot]
    n_dense = X.dense.shape[1]
    if n_dense > 0:
        at = c // vectors.n_groups
        panel = vectors.dense[c % vectors.n_groups, at // PANEL]
        for f in range(n_dense):
            total += X.dense[i, f] * panel[f, at % PANEL]
    return total


@kernel
def update_top(vectors, feature, c, value):
    """Update the top classes of a feature after the value of class c changed. If c is not among them, it replaces the
    one with the smallest value, if its own value is larger."""
    least = 0
    for k in range(vectors.top_classes.shape[1]):
        if vectors.top_classes[feature, k] == c:
            vectors.top_values[feature, k] = value
            return
        if vectors.top_values[feature, k] < vectors.top_values[feature, least]:
            least = k
    if value > vectors.top_values[feature, least]:
        vectors.top_classes[feature, least], vectors.top_values[feature, least] = c, value


@kernel
def add_row(vectors, X, i, c, factor):
    """v_c += factor x_i; |v_c|^2 and |V|^2 are updated."""
    change = 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        feature = X.indices[p]
        slot = find(vectors, c, feature)
        if slot < 0:
            slot = insert(vectors, c, feature)
        old = np.float64(vectors.values[slot])
        new = np.float32(old + factor * X.data[p])
        set_value(vectors, c, feature, slot, new)
        change += np.float64(new) ** 2 - old**2
    n_dense = X.dense.shape[1]
    if n_dense > 0:
        at = c // vectors.n_groups
        panel = vectors.dense[c % vectors.n_groups, at // PANEL]
        for f in range(n_dense):
            old = np.float64(panel[f, at % PANEL])
            new = np.float32(old + factor * X.dense[i, f])
            panel[f, at % PANEL] = new
            change += np.float64(new) ** 2 - old**2
    vectors.total_square[0] += change
    vectors.squares[c] += change


@kernel
def table_room(vectors, c, more):
    """The number of arena entries that the table of class c may need when `more` features are added to it."""
    bits, wanted = np.int64(vectors.bits[c]), np.int64(vectors.counts[c]) + more
    room = np.int64(0)
    while bits == 0 or 4 * wanted > 3 * (np.int64(1) << bits):
        bits = bits + 1 if bits else np.int64(FIRST_TABLE)
        room += np.int64(1) << bits
    return room


@kernel
def has_room(vectors, X, i, y, r):
    """Whether both arenas are long enough for adding row i to the classes y and r."""
    n = np.int64(X.indptr[i + 1] - X.indptr[i])
    if vectors.used[TABLES] + table_room(vectors, y, n) + table_room(vectors, r, n) > len(vectors.keys):
        return False
    if vectors.indexed:
        room = np.int64(0)
        for p in range(X.indptr[i], X.indptr[i + 1]):
            for c in (y, r):
                number = list_of(vectors, c, X.indices[p])
                bits = np.int64(vectors.list_bits[number])
                if bits == 0 or np.int64(vectors.list_counts[number]) + 2 > np.int64(1) << bits:
                    room += np.int64(2) << bits  # + 2: y and r may be in the same group, and so in the same list
        if vectors.used[LISTS] + room > len(vectors.posting_classes):
            return False
    return True


# --- called from Python ----------------------------------------------------------------------------------------------


@kernel
def step_rows(vectors, X, rows, targets, rivals, rho, step, begin, moved):
    """The inner loop of Algorithms 1 and 2, from pair `begin` on: if rho + x.(w_r - w_y) > 0, then w_r -= step x and
    w_y += step x. moved[k] says whether pair k changed its classes. Returns the number of the first pair that was not
    processed because an arena was too short, or the number of all pairs."""
    scale = vectors.scale[0]
    for k in range(begin, len(rows)):
        i, y = rows[k], targets[k]
        r = rivals[k]
        moved[k] = False
        if r < 0 or rho + scale * (score(vectors, X, i, r) - score(vectors, X, i, y)) <= 0.0:
            continue
        if not has_room(vectors, X, i, y, r):
            return k
        add_row(vectors, X, i, r, -step / scale)
        add_row(vectors, X, i, y, step / scale)
        moved[k] = True
    return len(rows)


@kernel
def add_rows(vectors, X, classes, rows, factors, begin):
    """v_c += factors[k] x_i for c = classes[k] and i = rows[k], from k = `begin` on, without inverted lists. Returns
    the first k that was not processed because the arena was too short, or the number of all."""
    for k in range(begin, len(classes)):
        n = np.int64(X.indptr[rows[k] + 1] - X.indptr[rows[k]])
        if vectors.used[TABLES] + table_room(vectors, classes[k], n) > len(vectors.keys):
            return k
        add_row(vectors, X, rows[k], classes[k], factors[k])
    return len(classes)


@kernel
def load_rows(vectors, X):
    """v_c = row c of X. The tables and lists are empty and long enough for all weights."""
    for c in range(len(vectors.counts)):
        for p in range(X.indptr[c], X.indptr[c + 1]):
            slot = place_key(vectors, c, X.indices[p])
            if vectors.indexed:
                vectors.places[slot] = append_posting(vectors, c, X.indices[p])
            set_value(vectors, c, X.indices[p], slot, X.data[p])
            vectors.squares[c] += np.float64(X.data[p]) ** 2
        vectors.total_square[0] += vectors.squares[c]


@kernel
def add_vectors(vectors, source, classes, factors, begin):
    """v_c += factors[k] s_c for c = classes[k], where s_c are the vectors of `source`. See add_rows."""
    for k in range(begin, len(classes)):
        c = classes[k]
        if vectors.used[TABLES] + table_room(vectors, c, np.int64(source.counts[c])) > len(vectors.keys):
            return k
        if source.bits[c] == 0 or factors[k] == 0.0:
            continue
        for at in range(source.starts[c], source.starts[c] + (np.int64(1) << np.int64(source.bits[c]))):
            feature = source.keys[at]
            if feature != EMPTY:
                slot = find(vectors, c, feature)
                if slot < 0:
                    slot = insert(vectors, c, feature)
                vectors.values[slot] += np.float32(factors[k] * source.values[at])
    return len(classes)


@kernel
def best_of(vectors, X, Y, rows, candidates, group, n_groups, seen, out, out_scores):
    """out[k] = the candidate of row rows[k] with the largest score, or -1. out_scores[k] is its score.

    Candidates that are negative (padding), labels of the row, or outside the group (c mod n_groups) are skipped. The
    first of equal scores wins.

    seen : zeros, one per class. Classes that were scored for row k are marked by k + 1, so each is scored once.
    """
    for k in range(len(rows)):
        i = rows[k]
        out[k], out_scores[k] = -1, -np.inf
        for p in range(Y.indptr[i], Y.indptr[i + 1]):
            seen[Y.indices[p]] = k + 1
        for at in range(candidates.shape[1]):
            c = np.int64(candidates[k, at])
            if c < 0 or c % n_groups != group or seen[c] == k + 1:
                continue
            seen[c] = k + 1
            value = score(vectors, X, i, c)
            if value > out_scores[k]:
                out[k], out_scores[k] = c, value


@kernel
def score_pairs(vectors, X, rows, classes, out):
    """out[k] = x_i.v_c for row rows[k] and class classes[k]; -inf where the class is negative."""
    for k in range(len(rows)):
        out[k] = score(vectors, X, rows[k], classes[k]) if classes[k] >= 0 else -np.inf


@kernel
def truncated(value, amount):
    """The value moved towards zero by `amount`, at most to zero: eq. (13)."""
    return np.float32(np.sign(value) * max(abs(value) - amount, 0.0))


@kernel
def truncate_class(vectors, c, amount, keys, values, places):
    """Move every value of class c towards zero by `amount`, and remove those that become zero: eq. (13).

    keys, values, places : room for all entries of the class.
    """
    bits, start = np.int64(vectors.bits[c]), vectors.starts[c]
    if bits == 0:
        return
    kept = 0
    square = 0.0
    for slot in range(start, start + (np.int64(1) << bits)):
        feature = vectors.keys[slot]
        if feature == EMPTY:
            continue
        new = truncated(np.float64(vectors.values[slot]), amount)
        set_value(vectors, c, feature, slot, new)
        if new == 0.0:
            if vectors.indexed:
                remove_posting(vectors, c, feature, np.int64(vectors.places[slot]))
            continue
        square += np.float64(new) ** 2
        keys[kept], values[kept] = feature, new
        if vectors.indexed:
            places[kept] = vectors.places[slot]
        kept += 1
    if kept < vectors.counts[c]:
        refill_table(vectors, c, keys[:kept], values, places)
    vectors.total_square[0] += square - vectors.squares[c]
    vectors.squares[c] = square


@kernel
def refill_table(vectors, c, keys, values, places):
    """Replace the content of the table of class c by these entries. The table moves to a smaller segment if they fit
    into one and the arena has room for it."""
    bits, start = np.int64(vectors.bits[c]), vectors.starts[c]
    smaller = FIRST_TABLE
    while 4 * len(keys) > 3 * (np.int64(1) << smaller):
        smaller += 1
    vectors.keys[start : start + (np.int64(1) << bits)] = EMPTY
    if smaller < bits and (
        vectors.free[TABLES, smaller] >= 0 or vectors.used[TABLES] + (np.int64(1) << smaller) <= len(vectors.keys)
    ):
        open_table(vectors, c, smaller)
        free_segment(vectors, TABLES, bits, start)
    for k in range(len(keys)):
        slot = place_key(vectors, c, keys[k])
        vectors.values[slot] = values[k]
        if vectors.indexed:
            vectors.places[slot] = places[k]
    vectors.counts[c] = len(keys)


@kernel
def truncate_classes(vectors, classes, amounts, keys, values, places):
    """Truncate class classes[k] by amounts[k]; see truncate_class."""
    for k in range(len(classes)):
        truncate_class(vectors, classes[k], amounts[k], keys, values, places)
