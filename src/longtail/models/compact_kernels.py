"""The kernels of models/compact.py: scores of sparse rows from weights in 8 bits or half precision, by feature.

    score(label) = base(label) + sum_j (x_j step_j) w[label, j]

summed in float32 in the order of the features of x, each product rounded before it is added. In half precision there
are no steps, and a score has the same bits as in index_kernels.py. Equal scores rank by column number.

Columns. A feature with weights for many labels has a column with one number for every label, which the processor adds
for 64 labels at once.

Lists. The weights of any other feature are a list in the order of their labels. Each entry has the distance to the
label of the entry before it (to 0 for the first), in one byte. A distance above 255 is divided: entries with the weight
0 stand between. They change no score, so the kernels do not know them.

Tiles. The scores of one row are made for some thousand labels at a time, which stay in the second-level cache, and the
best of them are kept. Lists are read on from where the tile before stopped. So there is no buffer of L scores, and
every weight of a feature of x is read once, in order. Nothing is estimated: one pass gives the scores themselves.

The kernels take X with the fields of models.index.IndexRows, an `index` with those of models.compact.CompactIndex, and
the buffers of the thread with those of models.compact.Buffers.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import intrinsic, ir, kernel, types

LABELS_AT_ONCE = 64  # labels that one instruction sequence adds
GROUP = np.uint64(8)  # columns added in one pass over the labels; the prefetcher cannot follow more
ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
TILE = 16384  # labels whose scores stay in the second-level cache; with fewer, columns are read in too short pieces


def _pointer(context, builder, signature, args, position):
    """The address of the first element of the array at this position of the arguments."""
    return context.make_array(signature.args[position])(context, builder, args[position]).data


def _as_float(builder, number, kind, wanted):
    """A weight, or a vector of them, as float32: a signed byte, or the bits of a half-precision number."""
    if kind == types.int8:
        return builder.sitofp(number, wanted)
    half = ir.VectorType(ir.HalfType(), wanted.count) if isinstance(wanted, ir.VectorType) else ir.HalfType()
    return builder.fpext(builder.bitcast(number, half), wanted)


@intrinsic
def weight_at(typing_context, weights, q):
    """weights[q] as float32."""
    signature = types.float32(weights, q)

    def generate(context, builder, signature, args):
        number = builder.load(builder.gep(_pointer(context, builder, signature, args, 0), [args[1]]))
        return _as_float(builder, number, signature.args[0].dtype, ir.FloatType())

    return signature, generate


@intrinsic
def add_columns(typing_context, factors, numbers, start, end, columns, first, at, out):
    """out += factors[p] columns[numbers[p]] for p = start, ..., end - 1 in this order, for 64 labels.

    These are at `at` in `out`, and at `first` in a column. Written in LLVM's language because Numba unrolls such a
    short loop and then fails to vectorise it.
    """
    signature = types.void(factors, numbers, start, end, columns, first, at, out)

    def generate(context, builder, signature, args):
        integer = ir.IntType(64)
        vector = ir.VectorType(ir.FloatType(), LABELS_AT_ONCE)
        kind = signature.args[4].dtype
        stored = ir.VectorType(ir.IntType(8 if kind == types.int8 else 16), LABELS_AT_ONCE).as_pointer()
        array = context.make_array(signature.args[4])(context, builder, args[4])
        width = builder.extract_value(array.shape, 1)
        columns = builder.gep(array.data, [args[5]])
        factors, numbers, out = (_pointer(context, builder, signature, args, position) for position in (0, 1, 7))
        place = builder.bitcast(builder.gep(out, [args[6]]), vector.as_pointer())
        initial, entry = builder.load(place, align=4), builder.block
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)

        builder.position_at_end(test)
        p, total = builder.phi(integer), builder.phi(vector)
        p.add_incoming(args[2], entry)
        total.add_incoming(initial, entry)
        builder.cbranch(builder.icmp_unsigned("<", p, args[3]), body, done)

        builder.position_at_end(body)
        nothing = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LABELS_AT_ONCE), [0] * LABELS_AT_ONCE)
        lane = builder.insert_element(nothing, builder.load(builder.gep(factors, [p])), ir.IntType(32)(0))
        factor = builder.shuffle_vector(lane, nothing, everywhere)
        number = builder.zext(builder.load(builder.gep(numbers, [p])), integer)
        weights = builder.load(builder.bitcast(builder.gep(columns, [builder.mul(number, width)]), stored), align=1)
        product = builder.fmul(factor, _as_float(builder, weights, kind, vector))
        p.add_incoming(builder.add(p, integer(1)), body)
        total.add_incoming(builder.fadd(total, product), body)
        builder.branch(test)

        builder.position_at_end(done)
        builder.store(total, place, align=4)
        return context.get_dummy_value()

    return signature, generate


# --- scores ----------------------------------------------------------------------------------------------------------


@kernel
def open_row(i, X, index, row):
    """Write the features of row i into the buffers `row`, each list at its first entry."""
    first = X.indptr[i]
    for n in range(X.indptr[i + 1] - first):
        x, j = X.data[first + n], X.indices[first + n]
        row.factors[n] = x * index.steps[j] if len(index.steps) else x
        row.numbers[n] = index.column_of[j]
        row.entries[n], row.ends[n], row.labels[n] = index.ends[j], index.ends[j + np.uint32(1)], np.uint64(0)


@kernel
def add_list(p, row, index, start, stop, out):
    """Add the entries of list p for the labels below `stop`; out[0] is the score of label `start`.

    Four entries at a time share the test for the end of the tile, because labels rise.
    """
    gaps, weights = index.gaps, index.weights
    x, q, end, label = row.factors[p], row.entries[p], row.ends[p], row.labels[p]
    while q + FOUR <= end:
        first = label + np.uint64(gaps[q])
        second = first + np.uint64(gaps[q + ONE])
        third = second + np.uint64(gaps[q + TWO])
        fourth = third + np.uint64(gaps[q + THREE])
        if fourth >= stop:
            break
        out[first - start] += x * weight_at(weights, q)  # type: ignore[call-arg]
        out[second - start] += x * weight_at(weights, q + ONE)  # type: ignore[call-arg]
        out[third - start] += x * weight_at(weights, q + TWO)  # type: ignore[call-arg]
        out[fourth - start] += x * weight_at(weights, q + THREE)  # type: ignore[call-arg]
        label, q = fourth, q + FOUR
    while q < end:
        there = label + np.uint64(gaps[q])
        if there >= stop:
            break
        out[there - start] += x * weight_at(weights, q)  # type: ignore[call-arg]
        label, q = there, q + ONE
    row.entries[p], row.labels[p] = q, label


@kernel
def score_tile(i, start, X, index, row, scores):
    """The scores of row i for the labels of the tile at `start`, in a part of `scores`. All rows may share one base."""
    base = X.base[min(i, len(X.base) - 1)]
    out = scores[: min(TILE, len(base) - start)]
    out[:] = base[start : start + len(out)]
    p, end = np.uint64(0), X.indptr[i + 1] - X.indptr[i]
    while p < end:
        if row.numbers[p] == len(index.columns):
            add_list(p, row, index, np.uint64(start), np.uint64(start + len(out)), out)
            p += ONE
            continue
        begin, limit = p, min(p + GROUP, end)
        while p < limit and row.numbers[p] < len(index.columns):
            p += ONE
        for at in range(0, len(out), LABELS_AT_ONCE):
            add_columns(row.factors, row.numbers, begin, p, index.columns, start + at, at, out)  # type: ignore[call-arg]
    return out


@kernel
def score_labels(i, X, index, labels, out):
    """Add the products of row i with the weights of these labels, which rise, to `out`.

    Lists are read once for all labels, up to the last of them.
    """
    n = len(labels)
    for p in range(X.indptr[i], X.indptr[i + 1]):
        x, j = X.data[p], X.indices[p]
        factor = x * index.steps[j] if len(index.steps) else x
        number = index.column_of[j]
        if number < len(index.columns):
            for c in range(n):
                out[c] += factor * weight_at(index.columns[number], labels[c])  # type: ignore[call-arg]
            continue
        place, c = np.uint64(0), 0
        for q in range(index.ends[j], index.ends[j + np.uint32(1)]):
            place += np.uint64(index.gaps[q])
            if place >= labels[c]:
                while c < n and labels[c] < place:
                    c += 1
                while c < n and labels[c] == place:
                    out[c] += factor * weight_at(index.weights, q)  # type: ignore[call-arg]
                    c += 1
                if c == n:
                    break


@kernel
def score_pairs(X, index, rows, labels, out):
    """out[c], the base of labels[c] for row rows[c] before, becomes its score. Pairs are sorted by row, then label."""
    end = 0
    while end < len(rows):
        start = end
        while end < len(rows) and rows[end] == rows[start]:
            end += 1
        score_labels(rows[start], X, index, labels[start:end], out[start:end])


@kernel
def score_rows(X, index, row, scores, out):
    """out[i] = the scores of all labels for row i."""
    for i in range(len(out)):
        open_row(i, X, index, row)
        for start in range(0, X.base.shape[1], TILE):
            tile = score_tile(i, start, X, index, row, scores)
            own = out[i, start : start + len(tile)]
            own[:] = tile[: len(own)]


# --- the k best ------------------------------------------------------------------------------------------------------
# The heap of index_kernels.py once more: a kernel calls only kernels of its own file. A test compares the two.


@intrinsic
def any_above(typing_context, values, at, limit):
    """Whether any of values[at : at + 64] is above the limit."""
    signature = types.boolean(values, at, limit)

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.FloatType(), LABELS_AT_ONCE)
        nothing = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LABELS_AT_ONCE), [0] * LABELS_AT_ONCE)
        lane = builder.insert_element(nothing, args[2], ir.IntType(32)(0))
        values = builder.gep(_pointer(context, builder, signature, args, 0), [args[1]])
        lanes = builder.load(builder.bitcast(values, vector.as_pointer()), align=4)
        above = builder.fcmp_ordered(">", lanes, builder.shuffle_vector(lane, nothing, everywhere))
        bits = ir.IntType(LABELS_AT_ONCE)
        return builder.icmp_unsigned("!=", builder.bitcast(above, bits), bits(0))

    return signature, generate


@kernel
def next_above(values, at, limit):
    """The first position at or after `at` whose value is above `limit`; len(values) if there is none."""
    while at + LABELS_AT_ONCE <= len(values) and not any_above(values, at, limit):  # type: ignore[call-arg]
        at += LABELS_AT_ONCE
    while at < len(values) and not values[at] > limit:
        at += 1
    return at


@kernel
def ranks_below(score, label, other_score, other_label):
    """Whether the first label ranks after the other: by score, then by column number."""
    return score < other_score or (score == other_score and label > other_label)


@kernel
def sift_down(scores, labels, end, start):
    """Restore the heap of the first `end` entries, with the worst at the root, below position `start`."""
    root = start
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and ranks_below(scores[child + 1], labels[child + 1], scores[child], labels[child]):
            child += 1
        if not ranks_below(scores[child], labels[child], scores[root], labels[root]):
            return
        scores[root], scores[child] = scores[child], scores[root]
        labels[root], labels[child] = labels[child], labels[root]
        root = child


@kernel
def sort_heap(scores, labels):
    """Sort the entries of a heap, best first."""
    for end in range(len(scores) - 1, 0, -1):  # the worst entry moves to the end
        scores[0], scores[end] = scores[end], scores[0]
        labels[0], labels[end] = labels[end], labels[0]
        sift_down(scores, labels, end, 0)


@kernel
def keep_best(tile, start, labels, scores):
    """Put the best labels of a tile into the heap of the best labels so far, those before label `start`.

    NaN (from inf - inf) ranks last, as minus infinity.
    """
    k = len(labels)
    n_first = min(max(0, k - start), len(tile))  # there is room for these
    for at in range(n_first):
        labels[start + at], scores[start + at] = start + at, tile[at] if tile[at] == tile[at] else -np.inf
    if n_first and start + n_first == k:
        for root in range(k // 2 - 1, -1, -1):
            sift_down(scores, labels, k, root)
    at = next_above(tile, n_first, scores[0])
    while at < len(tile):  # of equal scores, the earlier label stays
        labels[0], scores[0] = start + at, tile[at]
        sift_down(scores, labels, k, 0)
        at = next_above(tile, at + 1, scores[0])


@kernel
def top_rows(X, index, row, scores, wanted, out_labels, out_scores, out_wanted):
    """The best labels of every row, best first, and the scores of the labels `wanted`, (rows, any number), which rise
    in every row."""
    for i in range(len(out_labels)):
        open_row(i, X, index, row)
        c = 0
        for start in range(0, X.base.shape[1], TILE):
            tile = score_tile(i, start, X, index, row, scores)
            keep_best(tile[: max(0, index.n_labels - start)], start, out_labels[i], out_scores[i])
            while c < wanted.shape[1] and wanted[i, c] < start + len(tile):
                out_wanted[i, c] = tile[wanted[i, c] - start]
                c += 1
        sort_heap(out_scores[i], out_labels[i])


@kernel
def rows_above(X, index, row, scores, threshold, first_row, found, ends):
    """Append the labels above `threshold` of the rows from `first_row` on to `found`, while there is room for a row of
    L labels. Returns the first row that is not done."""
    for i in range(first_row, len(ends) - 1):
        if ends[i] + index.n_labels > len(found):
            return i
        open_row(i, X, index, row)
        end = ends[i]
        for start in range(0, X.base.shape[1], TILE):
            tile = score_tile(i, start, X, index, row, scores)
            tile = tile[: max(0, index.n_labels - start)]
            at = next_above(tile, 0, threshold)
            while at < len(tile):
                found[end] = start + at
                end += 1
                at = next_above(tile, at + 1, threshold)
        ends[i + 1] = end
    return len(ends) - 1


# --- the weights of one label ----------------------------------------------------------------------------------------


@kernel
def weights_of(label, index, out):
    """out[j] = the weight of feature j for the label, without its step."""
    for j in range(len(out)):
        c, place = index.column_of[j], np.uint64(0)
        out[j] = 0.0
        if c < len(index.columns):
            out[j] = weight_at(index.columns[c], label)  # type: ignore[call-arg]
            continue
        for q in range(index.ends[j], index.ends[j + 1]):
            place += np.uint64(index.gaps[q])
            if place >= label:
                if place == label:
                    out[j] = weight_at(index.weights, q)  # type: ignore[call-arg]
                break
