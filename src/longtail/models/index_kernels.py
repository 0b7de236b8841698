"""The kernels of models/index.py: exact scores of sparse rows, and the k best labels of each.

    score(label) = base(label) + sum_j x_j W[label, j]

summed in float32, the base first and then the sparse features of x in their order. The base of a row is the bias term,
plus the product of its dense part with the dense weights if there are any (dense_kernels.py). Every kernel that
computes a score sums in this order, so a score has the same bits whichever kernel found it. Equal scores rank by column
number. The answer therefore does not depend on the number of threads or on how rows are grouped. There is no array of
rows x labels: each thread has one buffer of L scores, or of some rows if there is a dense part.

Lists. W is stored by feature: the list of feature j holds the labels whose weight of j is not zero. `score_row` adds up
the lists of the features of x.

Columns. In text, nearly all the work comes from a few frequent features, which have weights for many labels. Each of
these features also has a column of L bytes,

    W[label, j] = step_j code[label, j] + e,   |e| <= step_j / 2,   code from -127 to 127

which the processor adds for 64 labels at once. A few weights are too large for such a code. The remainder of these
weights is in a separate list, the spill.

Estimates. Lists for the rare features, and columns and spill for the frequent ones, give an estimate of each score
(`estimate_row`). One bound on its error holds for all labels:

    |estimate - score| <= error = sum over columns j of |x_j| step_j / 2  +  4 (n + 8) 2^-24 A  +  tiny             (1)
    A = max over labels of |base(label)| + sum_j |x_j| max over labels of |W[label, j]|

The second term bounds the rounding errors of the score, a sum of n products, and of the estimate, a sum of at most 2 n
products (for m products: at most (m + 4) 2^-24 A, and terms of second order). The last term bounds underflow. If A
is close to overflow, only the lists are used for the row.

Search. The k labels with the best estimates are scored; let t be the worst of these scores. A label whose estimate is
below t - error cannot be among the k best, so only the other labels are scored, and t increases meanwhile
(`select_by_estimate`). Usually there are only a few such labels. If there are too many, or if estimates would save
little for the row, only the lists are used.

The kernels take X with the fields of models.index.IndexRows, an `index` with those of models.index.InvertedIndex, and
the buffers of the thread: `scores` of one row, and `factors` and `numbers` of its columns.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import intrinsic, ir, kernel, types

LABELS_AT_ONCE = 64  # labels that one instruction sequence adds
LEVELS = 127  # codes go from -LEVELS to LEVELS
GROUP = 8  # columns added in one pass over the labels; the prefetcher cannot follow more
TILE = 4096  # labels whose estimates stay in the first-level cache while all columns are added
TINY = 1e-35  # bounds the underflow in (1)
HUGE = 1e37  # (1) holds only for A < HUGE, because no sum overflows then
MANY = 1 << 20  # (1) holds only for n < MANY


# --- 64 labels at once -----------------------------------------------------------------------------------------------


def _pointer(context, builder, signature, args, position):
    """The address of the first element of the array at this position of the arguments."""
    return context.make_array(signature.args[position])(context, builder, args[position]).data


def _spread(builder, scalar, vector):
    """A vector with the scalar in every lane."""
    nothing = ir.Constant(vector, ir.Undefined)
    zeros = ir.VectorType(ir.IntType(32), LABELS_AT_ONCE)
    first = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(zeros, [0] * LABELS_AT_ONCE))


@intrinsic
def add_columns(typing_context, factors, numbers, start, end, codes, width, at, source, out):
    """out = source + sum over start <= p < end of factors[p] codes[numbers[p]], for the labels from `at` to `at` + 63.

    Written in LLVM's language because Numba unrolls such a short loop and then fails to vectorise it.
    """
    signature = types.void(factors, numbers, start, end, codes, width, at, source, out)

    def generate(context, builder, signature, args):
        integer = ir.IntType(64)
        vector = ir.VectorType(ir.FloatType(), LABELS_AT_ONCE)
        fused = ["contract"]  # a fused multiply-add where the processor has one
        start, end = args[2], args[3]
        width, at = args[5], args[6]

        def array(position):
            return _pointer(context, builder, signature, args, position)

        def vector_at(position):
            return builder.bitcast(builder.gep(array(position), [at]), vector.as_pointer())

        factors, numbers = array(0), array(1)
        codes = builder.gep(array(4), [at])
        source, out = vector_at(7), vector_at(8)
        initial, entry = builder.load(source, align=4), builder.block
        test = builder.append_basic_block("test")
        body = builder.append_basic_block("body")
        done = builder.append_basic_block("done")
        builder.branch(test)

        builder.position_at_end(test)
        p, total = builder.phi(integer), builder.phi(vector)
        p.add_incoming(start, entry)
        total.add_incoming(initial, entry)
        builder.cbranch(builder.icmp_signed("<", p, end), body, done)

        builder.position_at_end(body)
        factor = _spread(builder, builder.load(builder.gep(factors, [p])), vector)
        number = builder.zext(builder.load(builder.gep(numbers, [p])), integer)
        bytes_at = ir.VectorType(ir.IntType(8), LABELS_AT_ONCE).as_pointer()
        lanes = builder.load(builder.bitcast(builder.gep(codes, [builder.mul(number, width)]), bytes_at), align=1)
        product = builder.fmul(factor, builder.sitofp(lanes, vector), flags=fused)
        p.add_incoming(builder.add(p, integer(1)), body)
        total.add_incoming(builder.fadd(total, product, flags=fused), body)
        builder.branch(test)

        builder.position_at_end(done)
        builder.store(total, out, align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def any_above(typing_context, values, at, limit):
    """Whether any of values[at : at + 64] is above the limit."""
    signature = types.boolean(values, at, limit)

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.FloatType(), LABELS_AT_ONCE)
        values = builder.gep(_pointer(context, builder, signature, args, 0), [args[1]])
        lanes = builder.load(builder.bitcast(values, vector.as_pointer()), align=4)
        above = builder.fcmp_ordered(">", lanes, _spread(builder, args[2], vector))
        return builder.icmp_unsigned(
            "!=", builder.bitcast(above, ir.IntType(LABELS_AT_ONCE)), ir.IntType(LABELS_AT_ONCE)(0)
        )

    return signature, generate


@kernel
def next_above(values, at, limit):
    """The first position at or after `at` whose value is above `limit`; len(values) if there is none."""
    while at + LABELS_AT_ONCE <= len(values) and not any_above(values, at, limit):  # type: ignore[call-arg]
        at += LABELS_AT_ONCE
    while at < len(values) and not values[at] > limit:
        at += 1
    return at


# --- scores ----------------------------------------------------------------------------------------------------------


@kernel
def add_list(x, weights, labels, start, end, out):
    """out[label] += x times its weight, for the entries of a list."""
    for q in range(start, end):
        out[labels[q]] += x * weights[q]


@kernel
def base_row(i, X):
    """The position of the base of row i: all rows may share one."""
    return min(i, len(X.base) - 1)


@kernel
def score_row(i, X, index, out):
    """out[label] = the score of every label."""
    ends = index.ends
    out[:] = X.base[base_row(i, X)]
    for p in range(X.indptr[i], X.indptr[i + 1]):
        j = X.indices[p]
        add_list(X.data[p], index.weights, index.labels, ends[j], ends[j + np.uint32(1)], out)


@kernel
def score_label(i, label, base, X, index):
    """The score of one label, given its base.

    Each feature of x is looked up among the features of the label, both in rising order.
    """
    features = index.W_indices
    score, one = base, np.uint64(1)
    low, end = index.W_indptr[label], index.W_indptr[label + 1]
    for p in range(X.indptr[i], X.indptr[i + 1]):
        j, size = X.indices[p], end - low
        while size > np.uint64(0):  # the first position whose feature is not below j
            half = size >> one
            if features[low + half] < j:
                low += half + one
                size -= half + one
            else:
                size = half
        if low == end:
            break
        if features[low] == j:
            score += X.data[p] * index.W_data[low]
    return score


@kernel
def score_pairs(X, index, rows, labels, out):
    """out[c], the base of labels[c] for row rows[c] before, becomes its score."""
    for c in range(len(labels)):
        out[c] = score_label(rows[c], labels[c], out[c], X, index)


@kernel
def list_columns(i, X, index, factors, numbers):
    """Write the columns of row i into `numbers`, and the factors of their codes into `factors`.

    Returns the number of columns, the number of calls of `score_label` that cost as much as the lists of these columns,
    and the error (1), which is infinite if (1) does not hold.
    """
    ends = index.ends
    count, entries = 0, np.uint64(0)
    n = np.int64(X.indptr[i + 1] - X.indptr[i])
    A, error = np.float64(X.peaks[base_row(i, X)]), 0.0
    for p in range(X.indptr[i], X.indptr[i + 1]):
        x, j = X.data[p], X.indices[p]
        c, size = index.column_of[j], abs(np.float64(x))
        A += size * index.peaks[j]
        if c < len(index.codes):
            factors[count], numbers[count] = x * index.steps[c], c
            error += size * index.steps[c] / 2
            entries += ends[j + np.uint32(1)] - ends[j]
            count += 1
    error += 4.0 * (n + 8) * 2.0**-24 * A + TINY
    return count, entries / (index.price * max(n, 1)), error if A < HUGE and n < MANY else np.inf


@kernel
def estimate_row(i, X, index, factors, numbers, count, out):
    """out[label] = an estimate of the score within the error (1). The row has at least one column."""
    ends, spill_ends = index.ends, index.spill_ends
    width, base = len(out), X.base[base_row(i, X)]
    for tile in range(0, width, TILE):
        for p in range(0, count, GROUP):
            source, last = base if p == 0 else out, min(p + GROUP, count)
            for at in range(tile, min(tile + TILE, width), LABELS_AT_ONCE):
                add_columns(factors, numbers, p, last, index.codes, width, at, source, out)  # type: ignore[call-arg]
    for p in range(X.indptr[i], X.indptr[i + 1]):
        x, j = X.data[p], X.indices[p]
        c = index.column_of[j]
        if c < len(index.codes):
            add_list(x, index.spill_weights, index.spill_labels, spill_ends[c], spill_ends[c + np.uint32(1)], out)
        else:
            add_list(x, index.weights, index.labels, ends[j], ends[j + np.uint32(1)], out)


# --- the k best ------------------------------------------------------------------------------------------------------


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
def make_heap(scores, labels):
    """Order the entries as a heap with the worst at the root."""
    for start in range(len(scores) // 2 - 1, -1, -1):
        sift_down(scores, labels, len(scores), start)


@kernel
def sort_heap(scores, labels):
    """Sort the entries of a heap, best first."""
    for end in range(len(scores) - 1, 0, -1):  # the worst entry moves to the end
        scores[0], scores[end] = scores[end], scores[0]
        labels[0], labels[end] = labels[end], labels[0]
        sift_down(scores, labels, end, 0)


@kernel
def heap_top(scores, out_labels, out_scores):
    """The best entries of `scores` as a heap, ties by index. NaN (from inf - inf) ranks last, as minus infinity."""
    k = len(out_labels)
    for label in range(k):
        out_labels[label] = label
        out_scores[label] = scores[label] if scores[label] == scores[label] else -np.inf
    make_heap(out_scores, out_labels)
    label = next_above(scores, k, out_scores[0])
    while label < len(scores):  # of equal scores, the earlier label stays
        out_scores[0], out_labels[0] = scores[label], label
        sift_down(out_scores, out_labels, k, 0)
        label = next_above(scores, label + 1, out_scores[0])


@kernel
def select_top(scores, out_labels, out_scores):
    """The best entries of `scores`, best first."""
    heap_top(scores, out_labels, out_scores)
    sort_heap(out_scores, out_labels)


@kernel
def select_by_estimate(i, X, index, estimates, error, budget, out_labels, out_scores):
    """The best labels by score, best first. False if this needs more than `budget` calls of `score_label`."""
    base = X.base[base_row(i, X)]
    heap_top(estimates, out_labels, out_scores)
    for c in range(len(out_labels)):
        label = out_labels[c]
        out_scores[c] = score_label(i, label, base[label], X, index)
        estimates[label] = -np.inf
    make_heap(out_scores, out_labels)
    budget -= len(out_labels)
    label = next_above(estimates, 0, np.float32(out_scores[0] - error))
    while label < len(estimates):
        if budget < 1:
            return False
        budget -= 1
        score = score_label(i, label, base[label], X, index)
        if ranks_below(out_scores[0], out_labels[0], score, label):
            out_scores[0], out_labels[0] = score, label
            sift_down(out_scores, out_labels, len(out_labels), 0)
        label = next_above(estimates, label + 1, np.float32(out_scores[0] - error))
    sort_heap(out_scores, out_labels)
    return True


@kernel
def top_rows(X, index, scores, factors, numbers, out_labels, out_scores):
    """The best labels of every row. Returns the number of rows that were solved by estimates."""
    n, k = out_labels.shape
    L = len(index.W_indptr) - 1
    by_estimate = 0
    for i in range(n):
        count, budget, error = list_columns(i, X, index, factors, numbers)
        if count > 0 and error < np.inf and budget >= 2 * k:
            estimate_row(i, X, index, factors, numbers, count, scores)
            if select_by_estimate(i, X, index, scores[:L], error, budget, out_labels[i], out_scores[i]):
                by_estimate += 1
                continue
        score_row(i, X, index, scores)
        select_top(scores[:L], out_labels[i], out_scores[i])
    return by_estimate


# --- all above a threshold -------------------------------------------------------------------------------------------


@kernel
def append_above(scores, threshold, found, at):
    """Append the labels above `threshold`; returns the new end."""
    label = next_above(scores, 0, threshold)
    while label < len(scores):
        found[at] = label
        at += 1
        label = next_above(scores, label + 1, threshold)
    return at


@kernel
def append_by_estimate(i, X, index, estimates, error, budget, threshold, found, at):
    """Do the same as `append_above`, from estimates. Return -1 if this needs more than `budget` calls of
    `score_label`."""
    end = append_above(estimates, np.float32(threshold - error), found, at)
    if end - at > budget:
        return -1
    base = X.base[base_row(i, X)]
    for c in range(at, end):
        if score_label(i, found[c], base[found[c]], X, index) > threshold:
            found[at] = found[c]
            at += 1
    return at


@kernel
def rows_above(X, index, scores, factors, numbers, threshold, first_row, found, ends):
    """Append the labels above `threshold` of the rows from `first_row` on to `found`, while there is room for a row of
    L labels. Returns the first row that is not done."""
    n, L = len(ends) - 1, len(index.W_indptr) - 1
    for i in range(first_row, n):
        if ends[i] + L > len(found):
            return i
        end = -1
        count, budget, error = list_columns(i, X, index, factors, numbers)
        if count > 0 and error < np.inf:
            estimate_row(i, X, index, factors, numbers, count, scores)
            end = append_by_estimate(i, X, index, scores[:L], error, budget, threshold, found, ends[i])
        if end < 0:
            score_row(i, X, index, scores)
            end = append_above(scores[:L], threshold, found, ends[i])
        ends[i + 1] = end
    return n


# --- making an index -------------------------------------------------------------------------------------------------


@kernel
def find_peaks(weights, ends, out):
    """out[j] = the largest |weight| in list j."""
    for j in range(len(out)):
        peak = np.float32(0.0)
        for q in range(ends[j], ends[j + 1]):
            size = abs(weights[q])
            if size > peak or size != size:  # NaN stays NaN
                peak = size
        out[j] = peak


@kernel
def fill_columns(weights, labels, ends, features, steps, codes, spill_weights, spill_labels, spill_ends):
    """Fill codes[c], and the spill of column c, with the weights of feature features[c]."""
    at = 0
    for c in range(len(features)):
        j, step = features[c], np.float64(steps[c])
        for q in range(ends[j], ends[j + np.uint32(1)]):
            code = np.rint(weights[q] / step)
            if abs(code) > LEVELS:
                code = LEVELS if code > 0 else -LEVELS
                spill_weights[at], spill_labels[at] = weights[q] - code * step, labels[q]
                at += 1
            codes[c, labels[q]] = np.int8(code)
        spill_ends[c + 1] = at
