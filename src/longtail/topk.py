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

Kernels take X as `csr_parts` gives it, an `index` with the fields of models.index.InvertedIndex, and buffers of the
thread: `scores` of one row, and `factors` and `numbers` of its columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel

LANES = 64  # labels added at once
GROUP = 8  # columns added at once: with more, the prefetcher loses track
TILE = 4096  # labels whose estimates stay in the nearest cache while all columns are added
TINY, HUGE, MANY = 1e-35, 1e37, 1 << 20  # where (1) holds: no sum of A < HUGE overflows, and n < MANY


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first.

    labels : (n, k) int32, column numbers of Y
    scores : (n, k) float32
    probabilities : (n, k) float32, how likely each label is right; None if the model is not calibrated
    """

    labels: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def values(self) -> np.ndarray:
        """Probabilities if there are some, else scores: what thresholds are compared with."""
        return self.scores if self.probabilities is None else self.probabilities

    def first(self, k: int) -> TopK:
        """The k best labels only."""
        probabilities = None if self.probabilities is None else self.probabilities[:, :k]
        return TopK(self.labels[:, :k], self.scores[:, :k], probabilities)


# --- 64 labels at once -----------------------------------------------------------------------------------------------


def _pointer(context, builder, signature, args, position):
    return context.make_array(signature.args[position])(context, builder, args[position]).data


def _spread(builder, scalar, vector):
    nothing, zeros = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), LANES)
    first = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(zeros, [0] * LANES))


@intrinsic
def add_columns(typing_context, factors, numbers, start, end, codes, width, at, source, out):
    """out = source + sum over p in start .. end of factors[p] codes[numbers[p]], for the labels at .. at + 64.

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
    while at + LANES <= len(values) and not any_above(values, at, limit):  # type: ignore[call-arg]
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
def score_row(i, X, index, out):
    """out[label] = the score of every label."""
    (X_data, X_indices, X_indptr), ends = X, index.ends
    out[:] = index.bias_scores
    for p in range(X_indptr[i], X_indptr[i + 1]):
        j = X_indices[p]
        add_list(X_data[p], index.weights, index.labels, ends[j], ends[j + np.uint32(1)], out)


@kernel
def score_label(i, label, X, index):
    """The score of one label: the features of x are looked up among the label's, both in order."""
    (X_data, X_indices, X_indptr), features = X, index.W_indices
    score, one = index.bias_scores[label], np.uint64(1)
    low, end = index.W_indptr[label], index.W_indptr[label + 1]
    for p in range(X_indptr[i], X_indptr[i + 1]):
        j, size = X_indices[p], end - low
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
            score += X_data[p] * index.W_data[low]
    return score


@kernel
def list_columns(i, X, index, factors, numbers):
    """Put the columns of row i into `numbers`, and what their codes are to be multiplied with into `factors`.

    Returns how many, how many scores by label cost as much as their lists would, and the error (1), which is infinite
    where (1) does not hold."""
    (X_data, X_indices, X_indptr), ends = X, index.ends
    count, entries, n = 0, np.uint64(0), np.int64(X_indptr[i + 1] - X_indptr[i])
    A, error = index.bias_peak, 0.0
    for p in range(X_indptr[i], X_indptr[i + 1]):
        x, j = X_data[p], X_indices[p]
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
    """out[label] = the score but for the error (1); there is at least one column."""
    (X_data, X_indices, X_indptr), ends, spill_ends, width = X, index.ends, index.spill_ends, len(out)
    for tile in range(0, width, TILE):
        for p in range(0, count, GROUP):
            source, last = index.bias_scores if p == 0 else out, min(p + GROUP, count)
            for at in range(tile, min(tile + TILE, width), LANES):
                add_columns(factors, numbers, p, last, index.codes, width, at, source, out)  # type: ignore[call-arg]
    for p in range(X_indptr[i], X_indptr[i + 1]):
        x, j = X_data[p], X_indices[p]
        c = index.column_of[j]
        if c < len(index.codes):
            add_list(x, index.spill_weights, index.spill_labels, spill_ends[c], spill_ends[c + np.uint32(1)], out)
        else:
            add_list(x, index.weights, index.labels, ends[j], ends[j + np.uint32(1)], out)


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
def select_by_estimate(i, X, index, estimates, error, budget, out_labels, out_scores):
    """The best labels by score, best first; False where that would take more than `budget` scores."""
    heap_top(estimates, out_labels, out_scores)
    for c in range(len(out_labels)):
        label = out_labels[c]
        out_scores[c] = score_label(i, label, X, index)
        estimates[label] = -np.inf
    make_heap(out_scores, out_labels)
    budget -= len(out_labels)
    label = next_above(estimates, 0, np.float32(out_scores[0] - error))
    while label < len(estimates):
        if budget < 1:
            return False
        budget -= 1
        score = score_label(i, label, X, index)
        if ranks_below(out_scores[0], out_labels[0], score, label):
            out_scores[0], out_labels[0] = score, label
            sift_down(out_scores, out_labels, len(out_labels), 0)
        label = next_above(estimates, label + 1, np.float32(out_scores[0] - error))
    sort_heap(out_scores, out_labels)
    return True


@kernel
def top_rows(X, index, scores, factors, numbers, out_labels, out_scores):
    """The best labels of every row; returns how many rows were done by estimate."""
    (n, k), L, by_estimate = out_labels.shape, len(index.W_indptr) - 1, 0
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
    """The same from estimates; -1 where that would take more than `budget` scores."""
    end = append_above(estimates, np.float32(threshold - error), found, at)
    if end - at > budget:
        return -1
    for c in range(at, end):
        if score_label(i, found[c], X, index) > threshold:
            found[at] = found[c]
            at += 1
    return at


@kernel
def rows_above(X, index, scores, factors, numbers, threshold, first_row, found, ends):
    """Append to `found` the labels above `threshold` of the rows from `first_row` on, while there is room for a whole
    row; returns the first row that is not done."""
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
