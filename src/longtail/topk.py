"""The k best labels of sparse rows, exactly: what a prediction is, and the compiled loops of models/index.py.

    score(label) = bias * W[label, bias column] + sum_j x_j W[label, j]

summed in float32, the bias first and then the features of x in their order. This is the one score there is: whatever
way a label was found, its score has the same bits. Equal scores rank by label id. So the answer depends neither on
threads nor on how rows are grouped. No array of rows x labels exists: a thread owns one buffer of L scores.

W is held by feature: a list per feature j has the labels whose weight of j is not zero, and the features of x lead to
their lists (`score_row`). In text nearly all the work lies in few features that many labels have a weight for. Each of
these also has a column of L bytes,

    W[label, j] = step_j code[label, j] + e,   |e| <= step_j / 2,   code from -127 to 127

which the processor adds for 64 labels at once. The few weights too large for such a code put what is left of them into
a list of their own, the spill. Lists for the rare features, columns and spill for the frequent ones give an estimate of
each score (`estimate_row`), and its error has one bound for all labels:

    |estimate - score| <= error = sum over columns j of |x_j| step_j / 2  +  4 (n + 8) 2^-24 A  +  tiny             (1)
    A = max over labels of |bias score| + sum_j |x_j| max over labels of |W[label, j]|

The second term is more than what rounding can do to the score, a sum of n products, and to the estimate, a sum of at
most 2 n (for m products at most (m + 4) 2^-24 A, and terms of second order); the last is more than what underflow can.
Where A comes near overflow, the lists alone decide.

The k labels of best estimate get their scores; let t be the worst of these. A label whose estimate is below t - error
cannot be among the k best, so only the others need a score, and t grows on the way (`select_by_estimate`). Usually that
is a handful; where it becomes too many, or the row has too little to save, the row takes the lists alone.

Arguments of kernels, tuples of read-only arrays: X, W as `csr_parts` gives them, W by label and canonical;
lists: weights, labels, ends of the list of each feature; columns: codes (columns x L rounded up to 64), number of each
feature's column (their count: it has none), steps; spill: weights, labels, ends of the spill of each column;
peaks: largest |bias score| (1,), largest |weight| of each feature; bias_scores: of each label, then zeros as in codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel

LEVELS = 127  # codes go from -LEVELS to LEVELS
LANES = 64  # labels added at once
GROUP = 8  # columns added at once: with more, the prefetcher loses track
TILE = 4096  # labels whose estimates stay in the nearest cache while all columns are added
TINY, HUGE, MANY = 1e-35, 1e37, 1 << 20  # where (1) holds: no sum of A < HUGE overflows, and n < MANY


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first: `labels` (n, k) int32 column numbers of Y, `scores` (n, k) float32."""

    labels: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


# --- making columns --------------------------------------------------------------------------------------------------


@kernel
def find_peaks(weights, ends, out):
    for j in range(len(out)):
        peak = np.float32(0.0)
        for q in range(ends[j], ends[j + 1]):
            size = abs(weights[q])
            if not size <= peak:  # NaN stays
                peak = size
        out[j] = peak


@kernel
def fill_columns(weights, labels, ends, features, steps, codes, spill_weights, spill_labels, spill_ends):
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


# --- 64 labels at once -----------------------------------------------------------------------------------------------


def _pointer(context, builder, signature, args, position):
    return context.make_array(signature.args[position])(context, builder, args[position]).data


def _spread(builder, scalar, vector):
    nothing, zeros = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), LANES)
    first = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(zeros, [0] * LANES))


@intrinsic
def add_columns(typing_context, factors, numbers, start, end, codes, width, at, source, out):
    """out[at : at + 64] = source[at : at + 64] + sum over p in start .. end of factors[p] codes[numbers[p], at : at + 64].

    Numba unrolls so short a loop and then fails to vectorise it, hence these lines of LLVM.
    """
    signature = types.void(factors, numbers, start, end, codes, width, at, source, out)

    def generate(context, builder, signature, args):
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        fused = ["contract"]  # a fused multiply-add where the processor has one
        factors, numbers, codes, source, out = (
            _pointer(context, builder, signature, args, position) for position in (0, 1, 4, 7, 8)
        )
        start, end, width, at = args[2], args[3], args[5], args[6]
        codes = builder.gep(codes, [at])
        source, out = (builder.bitcast(builder.gep(array, [at]), vector.as_pointer()) for array in (source, out))
        initial, entry = builder.load(source, align=4), builder.block
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)

        builder.position_at_end(test)
        p, total = builder.phi(integer), builder.phi(vector)
        p.add_incoming(start, entry)
        total.add_incoming(initial, entry)
        builder.cbranch(builder.icmp_signed("<", p, end), body, done)

        builder.position_at_end(body)
        factor = _spread(builder, builder.load(builder.gep(factors, [p])), vector)
        number = builder.zext(builder.load(builder.gep(numbers, [p])), integer)
        bytes_at = ir.VectorType(ir.IntType(8), LANES).as_pointer()
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
    """Whether one of values[at : at + 64] > limit."""
    signature = types.boolean(values, at, limit)

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.FloatType(), LANES)
        values = builder.gep(_pointer(context, builder, signature, args, 0), [args[1]])
        lanes = builder.load(builder.bitcast(values, vector.as_pointer()), align=4)
        above = builder.fcmp_ordered(">", lanes, _spread(builder, args[2], vector))
        return builder.icmp_unsigned("!=", builder.bitcast(above, ir.IntType(LANES)), ir.IntType(LANES)(0))

    return signature, generate


@kernel
def next_above(values, at, limit):
    """The first position from `at` on whose value is above `limit`; len(values) if there is none."""
    while at + LANES <= len(values) and not any_above(values, at, limit):
        at += LANES
    while at < len(values) and not values[at] > limit:
        at += 1
    return at


# --- scores ----------------------------------------------------------------------------------------------------------


@kernel
def add_list(x, weights, labels, start, end, out):
    for q in range(start, end):
        out[labels[q]] += x * weights[q]


@kernel
def score_row(i, X, lists, bias_scores, out):
    """out[label] = the score of every label."""
    (X_data, X_indices, X_indptr), (weights, labels, ends) = X, lists
    out[:] = bias_scores
    for p in range(X_indptr[i], X_indptr[i + 1]):
        j = X_indices[p]
        add_list(X_data[p], weights, labels, ends[j], ends[j + np.uint32(1)], out)


@kernel
def score_label(i, label, X, W, bias_scores):
    """The score of one label: the features of x are looked up among the label's, both in order."""
    (X_data, X_indices, X_indptr), (W_data, W_indices, W_indptr) = X, W
    score, one = bias_scores[label], np.uint64(1)
    low, end = W_indptr[label], W_indptr[label + 1]
    for p in range(X_indptr[i], X_indptr[i + 1]):
        j, size = X_indices[p], end - low
        while size > np.uint64(0):  # the first position whose feature is not below j
            half = size >> one
            if W_indices[low + half] < j:
                low += half + one
                size -= half + one
            else:
                size = half
        if low == end:
            break
        if W_indices[low] == j:
            score += X_data[p] * W_data[low]
    return score


@kernel
def list_columns(i, X, lists, columns, peaks, price, factors, numbers):
    """Put the columns of row i and their factors into `numbers` and `factors`. Returns how many, how many scores by
    label cost as much as their lists would, and the error (1), which is infinite where (1) does not hold."""
    (X_data, X_indices, X_indptr), (codes, column_of, steps), (bias_peak, feature_peaks) = X, columns, peaks
    ends, count, entries = lists[2], 0, np.uint64(0)
    size, error, n = np.float64(bias_peak[0]), 0.0, np.int64(X_indptr[i + 1] - X_indptr[i])
    for p in range(X_indptr[i], X_indptr[i + 1]):
        x, j = X_data[p], X_indices[p]
        c = column_of[j]
        size += abs(np.float64(x)) * feature_peaks[j]
        if c < len(codes):
            factors[count], numbers[count] = x * steps[c], c
            error += 0.5 * abs(np.float64(x)) * steps[c]
            entries += ends[j + np.uint32(1)] - ends[j]
            count += 1
    error += 4.0 * (n + 8) * 2.0**-24 * size + TINY
    return count, entries / (price * max(n, 1)), error if size < HUGE and n < MANY else np.inf


@kernel
def estimate_row(i, X, lists, columns, spill, bias_scores, factors, numbers, count, out):
    """out[label] = the score but for the error (1); there is at least one column."""
    (X_data, X_indices, X_indptr), (weights, labels, ends), (codes, column_of, _) = X, lists, columns
    spill_weights, spill_labels, spill_ends = spill
    for tile in range(0, len(out), TILE):
        for p in range(0, count, GROUP):
            source, last = bias_scores if p == 0 else out, min(p + GROUP, count)
            for at in range(tile, min(tile + TILE, len(out)), LANES):
                add_columns(factors, numbers, p, last, codes, len(out), at, source, out)
    for p in range(X_indptr[i], X_indptr[i + 1]):
        j = X_indices[p]
        c = column_of[j]
        if c < len(codes):
            add_list(X_data[p], spill_weights, spill_labels, spill_ends[c], spill_ends[c + np.uint32(1)], out)
        else:
            add_list(X_data[p], weights, labels, ends[j], ends[j + np.uint32(1)], out)


# --- the k best ------------------------------------------------------------------------------------------------------


@kernel
def ranks_below(score, label, other_score, other_label):
    return score < other_score or (score == other_score and label > other_label)


@kernel
def sift_down(scores, labels, end, start):
    """Restore the heap of `end` entries, worst first, below position `start`."""
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
    for start in range(len(scores) // 2 - 1, -1, -1):
        sift_down(scores, labels, len(scores), start)


@kernel
def sort_heap(scores, labels):
    for end in range(len(scores) - 1, 0, -1):  # the worst goes last
        scores[0], scores[end] = scores[end], scores[0]
        labels[0], labels[end] = labels[end], labels[0]
        sift_down(scores, labels, end, 0)


@kernel
def heap_top(scores, out_labels, out_scores):
    """A heap of the best entries of `scores`, ties by index; NaN (inf - inf) ranks last, as minus infinity."""
    k = len(out_labels)
    for label in range(k):
        out_labels[label] = label
        out_scores[label] = scores[label] if scores[label] == scores[label] else -np.inf
    make_heap(out_scores, out_labels)
    label = next_above(scores, k, out_scores[0])
    while label < len(scores):  # at equal scores the earlier label stays
        out_scores[0], out_labels[0] = scores[label], label
        sift_down(out_scores, out_labels, k, 0)
        label = next_above(scores, label + 1, out_scores[0])


@kernel
def select_top(scores, out_labels, out_scores):
    """The best entries of `scores`, best first."""
    heap_top(scores, out_labels, out_scores)
    sort_heap(out_scores, out_labels)


@kernel
def select_by_estimate(i, X, W, bias_scores, estimates, error, budget, out_labels, out_scores):
    """The best labels by score, best first; False where that would take more than `budget` scores."""
    heap_top(estimates, out_labels, out_scores)
    for c in range(len(out_labels)):
        label = out_labels[c]
        out_scores[c] = score_label(i, label, X, W, bias_scores)
        estimates[label] = -np.inf
    make_heap(out_scores, out_labels)
    budget -= len(out_labels)
    label = next_above(estimates, 0, np.float32(out_scores[0] - error))
    while label < len(estimates):
        if budget < 1:
            return False
        budget -= 1
        score = score_label(i, label, X, W, bias_scores)
        if ranks_below(out_scores[0], out_labels[0], score, label):
            out_scores[0], out_labels[0] = score, label
            sift_down(out_scores, out_labels, len(out_labels), 0)
        label = next_above(estimates, label + 1, np.float32(out_scores[0] - error))
    sort_heap(out_scores, out_labels)
    return True


@kernel
def top_rows(X, lists, W, columns, spill, peaks, bias_scores, price, buffer, work, out_labels, out_scores):
    """Returns how many rows were done by estimate."""
    (factors, numbers), (n, k), L, by_estimate = work, out_labels.shape, len(W[2]) - 1, 0
    for i in range(n):
        count, budget, error = list_columns(i, X, lists, columns, peaks, price, factors, numbers)
        if count > 0 and error < np.inf and budget >= 2 * k:
            estimate_row(i, X, lists, columns, spill, bias_scores, factors, numbers, count, buffer)
            if select_by_estimate(i, X, W, bias_scores, buffer[:L], error, budget, out_labels[i], out_scores[i]):
                by_estimate += 1
                continue
        score_row(i, X, lists, bias_scores, buffer)
        select_top(buffer[:L], out_labels[i], out_scores[i])
    return by_estimate


# --- all above a threshold -------------------------------------------------------------------------------------------


@kernel
def append_by_estimate(i, X, W, bias_scores, estimates, error, budget, threshold, found, at):
    """Append the labels above `threshold`; returns the new end, or -1 where it would take more than `budget` scores."""
    limit = np.float32(threshold - error)
    label = next_above(estimates, 0, limit)
    while label < len(estimates):
        if budget < 1:
            return -1
        budget -= 1
        if score_label(i, label, X, W, bias_scores) > threshold:
            found[at] = label
            at += 1
        label = next_above(estimates, label + 1, limit)
    return at


@kernel
def rows_above(X, lists, W, columns, spill, peaks, bias_scores, price, buffer, work, threshold, first_row, found, ends):
    """Append to `found` the labels above `threshold` of the rows from `first_row` on, while there is room for a whole
    row; returns the first row that is not done."""
    (factors, numbers), n, L = work, len(ends) - 1, len(W[2]) - 1
    estimates = buffer[:L]
    for i in range(first_row, n):
        if ends[i] + L > len(found):
            return i
        at = -1
        count, budget, error = list_columns(i, X, lists, columns, peaks, price, factors, numbers)
        if count > 0 and error < np.inf:
            estimate_row(i, X, lists, columns, spill, bias_scores, factors, numbers, count, buffer)
            at = append_by_estimate(i, X, W, bias_scores, estimates, error, budget, threshold, found, ends[i])
        if at < 0:
            at = ends[i]
            score_row(i, X, lists, bias_scores, buffer)
            label = next_above(buffer[:L], 0, threshold)
            while label < L:
                found[at] = label
                at += 1
                label = next_above(buffer[:L], label + 1, threshold)
        ends[i + 1] = at
    return n
