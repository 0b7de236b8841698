"""Scores of sparse rows against all labels, and the k best of them, exactly.

    score(label) = bias * W[label, bias column] + sum_j x_j W[label, j]

summed in float32, the bias first and then the features of x in their order. This is the one score there is: whatever
way a label was found, its score has the same bits. Equal scores rank by label id. So the answer depends neither on
threads nor on how rows are grouped. No array of rows x labels exists: a thread owns one buffer of L scores.

W is held by feature: a list per feature j has the labels whose weight of j is not zero, and the features of x lead to
their lists (`score_row`). In text nearly all the work lies in few features that nearly all labels have a weight for.
Every feature that more than L / DENSE_SHARE labels have therefore also has a column of L bytes,

    W[label, j] = step_j code[label, j] + e,   |e| <= step_j / 2,   code from -127 to 127

which the processor adds for many labels at once. The few weights too large for such a code put what is left of them
into a list of their own, the spill. Lists for the rare features, columns and spill for the frequent ones give an
estimate of each score, and its error has the same bound for all labels:

    |estimate - score| <= error = sum over frequent j of |x_j| step_j / 2  +  4 (n + 8) 2^-24 A  +  tiny            (1)
    A = max over labels of |bias score| + sum_j |x_j| max over labels of |W[label, j]|

The second term is more than what rounding can do to the score, a sum of n products, and to the estimate, a sum of at
most 2 n (for m products at most (m + 4) 2^-24 A, and terms of second order), the last more than what underflow can.
Where A comes near overflow, the lists alone decide.

The k best estimates get their scores; let t be the worst of these. A label whose estimate is below t - error cannot be
among the k best, so only the others need a score, and t grows on the way. Usually that is a handful; where it becomes
too many, or the row has too little to save, the row takes the lists alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import csr_parts, frozen, kernel

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DENSE_SHARE = 8  # a list of more than L / DENSE_SHARE labels gets a column: then columns take no more room than W
SCORE_PRICE = 1024.0  # one score by label costs as much as so many entries of lists
TINY = 1e-30  # a smaller step is not worth the care for underflow
LANES = 64  # labels added at once
GROUP = 8  # columns added at once: more would outrun the prefetcher
TILE = 4096  # labels whose estimates stay in the nearest cache while all columns are added
LEVELS = 127  # codes go from -LEVELS to LEVELS
SPILL_SHARE = 256  # at most L / SPILL_SHARE weights of a feature spill: they keep the steps of all others small


@dataclass(frozen=True)
class TopK:
    """The k best labels of each row, best first: `labels` (n, k) int32 column numbers of Y, `scores` (n, k) float32."""

    labels: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class InvertedIndex:
    """W for scoring. Each field is a tuple of read-only arrays, as the kernels take them.

    lists: weights, labels, ends of the list of each feature.       W: by label, as `csr_parts`.
    columns: codes (columns x L rounded up to LANES), number of each feature's column (or their count: none), steps.
    spill: weights, labels, ends of the spill of each column.
    peaks: largest |bias score| (1,), largest |weight| of each feature.       bias_scores: of each label.
    """

    lists: tuple[np.ndarray, ...]
    W: tuple[np.ndarray, ...]
    columns: tuple[np.ndarray, ...]
    spill: tuple[np.ndarray, ...]
    peaks: tuple[np.ndarray, ...]
    bias_scores: np.ndarray

    @classmethod
    def of(cls, W: csr_array, n_features: int, bias: float) -> InvertedIndex:
        if not W.has_canonical_format:
            W = W.copy()
            W.sum_duplicates()
        by_feature = W.T.tocsr()
        weights, labels, ends = csr_parts(by_feature)
        bias_scores = np.zeros(W.shape[0], np.float32)
        if bias:
            bias_scores[by_feature.indices[ends[-2] :]] = np.float32(bias) * weights[ends[-2] :]
        lists, peaks = (weights, labels, ends[: n_features + 1]), np.zeros(n_features, np.float32)
        find_peaks(*lists, peaks)
        bias_peak = np.abs(bias_scores).max(initial=0, keepdims=True)
        return cls(
            lists,
            csr_parts(W),
            *_columns(lists, peaks, W.shape[0]),
            (frozen(bias_peak, np.float32), frozen(peaks, np.float32)),
            frozen(bias_scores, np.float32),
        )

    @property
    def n_labels(self) -> int:
        return len(self.bias_scores)

    def top(self, X: csr_array, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X."""
        k = min(k, self.n_labels)
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        if k:
            top_rows(csr_parts(X), *self._arrays(), *self._buffers(X), labels, scores)
        return TopK(labels, scores)

    def above(self, X: csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels scoring more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        n, arrays = X.shape[0], (csr_parts(X), *self._arrays(), *self._buffers(X))
        found, ends, row = np.empty(max(1024, 8 * n), np.int32), np.zeros(n + 1, np.int64), 0
        while True:  # the number of labels above is known only after the fact: go on where the space ran out
            row = rows_above(*arrays, np.float32(threshold), row, found, ends)
            if row == n:
                return found[: ends[n]].copy(), ends  # a view would keep the whole space alive
            found = np.concatenate([found, np.empty(max(len(found), self.n_labels), np.int32)])

    def _arrays(self) -> tuple:
        return self.lists, self.W, self.columns, self.spill, self.peaks, self.bias_scores, SCORE_PRICE

    def _buffers(self, X: csr_array) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """What a thread works in: the scores of one row, and the factor and number of each of its columns."""
        most = int(np.diff(X.indptr).max(initial=0))
        scores = np.empty(_round_up(self.n_labels), np.float32)
        return scores, (np.empty(most, np.float32), np.empty(most, np.uint32))


def _round_up(n_labels: int) -> int:
    return -(-n_labels // LANES) * LANES


def _columns(lists: tuple[np.ndarray, ...], peaks: np.ndarray, n_labels: int) -> tuple[tuple[np.ndarray, ...], ...]:
    """Columns and spill of the frequent features."""
    (weights, _, ends), n_spill = lists, n_labels // SPILL_SHARE
    features = np.flatnonzero((np.diff(ends) * np.uint64(DENSE_SHARE) > n_labels) & np.isfinite(peaks))
    tops = [np.partition(np.abs(weights[ends[j] : ends[j + 1]]), -1 - n_spill)[-1 - n_spill] for j in features]
    steps = np.array(tops, np.float32) / np.float32(LEVELS)
    features, steps = features[steps > TINY], steps[steps > TINY]
    column_of = np.full(len(peaks), len(features), np.uint32)
    column_of[features] = np.arange(len(features), dtype=np.uint32)
    codes, room = np.zeros((len(features), _round_up(n_labels)), np.int8), len(features) * n_spill
    spill = np.empty(room, np.float32), np.empty(room, np.uint32), np.zeros(len(features) + 1, np.uint64)
    fill_columns(*lists, features.astype(np.uint32), steps, codes, *spill)
    columns = frozen(codes, np.int8), frozen(column_of, np.uint32), frozen(steps, np.float32)
    return columns, (frozen(spill[0], np.float32), frozen(spill[1], np.uint32), frozen(spill[2], np.uint64))


# --- kernels: making columns -----------------------------------------------------------------------------------------


@kernel
def find_peaks(weights, labels, ends, out):
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


# --- kernels: 64 labels at once --------------------------------------------------------------------------------------


def _pointer(context, builder, signature, args, position):
    return context.make_array(signature.args[position])(context, builder, args[position]).data


def _spread(builder, scalar, vector):
    nothing, zeros = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), LANES)
    first = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(zeros, [0] * LANES))


@intrinsic
def add_columns(typing_context, factors, numbers, start, end, codes, width, at, out):
    """out[at : at + 64] += sum over p in start .. end of factors[p] codes[numbers[p], at : at + 64].

    Numba unrolls so short a loop and then fails to vectorise it, hence these lines of LLVM.
    """
    signature = types.void(factors, numbers, start, end, codes, width, at, out)

    def generate(context, builder, signature, args):
        integer, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        fused = ["contract"]  # a fused multiply-add where the processor has one
        factors, numbers, codes, out = (_pointer(context, builder, signature, args, k) for k in (0, 1, 4, 7))
        start, end, width, at = args[2], args[3], args[5], args[6]
        codes = builder.gep(codes, [at])
        out = builder.bitcast(builder.gep(out, [at]), vector.as_pointer())
        initial, entry = builder.load(out, align=4), builder.block
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
def any_reaches(typing_context, values, at, limit):
    """Whether one of values[at : at + 64] >= limit."""
    signature = types.boolean(values, at, limit)

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.FloatType(), LANES)
        values = builder.gep(_pointer(context, builder, signature, args, 0), [args[1]])
        lanes = builder.load(builder.bitcast(values, vector.as_pointer()), align=4)
        reached = builder.fcmp_ordered(">=", lanes, _spread(builder, args[2], vector))
        return builder.icmp_unsigned("!=", builder.bitcast(reached, ir.IntType(LANES)), ir.IntType(LANES)(0))

    return signature, generate


# --- kernels: scores -------------------------------------------------------------------------------------------------


@kernel
def add_list(x, weights, labels, start, end, out):
    for q in range(start, end):
        out[labels[q]] += x * weights[q]


@kernel
def score_row(i, X, lists, bias_scores, out):
    """out[label] = the score of every label."""
    (X_data, X_indices, X_indptr), (weights, labels, ends) = X, lists
    out[: len(bias_scores)] = bias_scores
    for p in range(X_indptr[i], X_indptr[i + 1]):
        j = X_indices[p]
        add_list(X_data[p], weights, labels, ends[j], ends[j + np.uint32(1)], out)


@kernel
def score_label(i, label, X, W, bias_scores):
    """The score of one label: features of x are looked up among the label's, both in order."""
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
def list_columns(i, X, lists, columns, peaks, factors, numbers):
    """Put the columns of row i and their factors into `factors` and `numbers`; returns how many, how many entries of
    lists they stand for, and the error (1) of the estimates, which is infinite where (1) does not hold."""
    (X_data, X_indices, X_indptr), (codes, column_of, steps), (bias_peak, feature_peaks) = X, columns, peaks
    ends, count, entries = lists[2], 0, np.uint64(0)
    size, error, n = np.float64(bias_peak[0]), 0.0, np.int64(X_indptr[i + 1] - X_indptr[i])
    for p in range(X_indptr[i], X_indptr[i + 1]):
        x, j = X_data[p], X_indices[p]
        size += abs(np.float64(x)) * feature_peaks[j]
        c = column_of[j]
        if c < len(codes):
            factors[count], numbers[count] = x * steps[c], c
            error += 0.5 * abs(np.float64(x)) * steps[c]
            entries += ends[j + np.uint32(1)] - ends[j]
            count += 1
    error += 4.0 * (n + 8) * 2.0**-24 * size + 1e-35
    return count, np.int64(entries), error if size < 1e37 and n < 1 << 20 else np.inf


@kernel
def estimate_row(i, X, lists, columns, spill, bias_scores, factors, numbers, count, out):
    """out[label] = the score but for (1)."""
    (X_data, X_indices, X_indptr), (weights, labels, ends), (codes, column_of, steps) = X, lists, columns
    spill_weights, spill_labels, spill_ends = spill
    out[: len(bias_scores)] = bias_scores
    for p in range(X_indptr[i], X_indptr[i + 1]):
        j = X_indices[p]
        c = column_of[j]
        if c < len(codes):
            add_list(X_data[p], spill_weights, spill_labels, spill_ends[c], spill_ends[c + np.uint32(1)], out)
        else:
            add_list(X_data[p], weights, labels, ends[j], ends[j + np.uint32(1)], out)
    for tile in range(0, len(out), TILE):
        for p in range(0, count, GROUP):
            for at in range(tile, min(tile + TILE, len(out)), LANES):
                add_columns(factors, numbers, p, min(p + GROUP, count), codes, len(out), at, out)


# --- kernels: the k best ---------------------------------------------------------------------------------------------


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
    for start in range(k, len(scores), LANES):
        end = min(start + LANES, len(scores))
        if end - start == LANES and not any_reaches(scores, start, out_scores[0]):
            continue
        for label in range(start, end):
            if scores[label] > out_scores[0]:  # at equal scores the earlier label stays
                out_scores[0], out_labels[0] = scores[label], label
                sift_down(out_scores, out_labels, k, 0)


@kernel
def select_top(scores, out_labels, out_scores):
    """The best entries of `scores`, best first."""
    heap_top(scores, out_labels, out_scores)
    sort_heap(out_scores, out_labels)


@kernel
def select_by_estimate(i, X, W, bias_scores, estimates, error, budget, out_labels, out_scores):
    """The best labels by score, best first, or False where that would take more than `budget` scores."""
    heap_top(estimates, out_labels, out_scores)
    for c in range(len(out_labels)):
        label = out_labels[c]
        out_scores[c] = score_label(i, label, X, W, bias_scores)
        estimates[label] = -np.inf
    make_heap(out_scores, out_labels)
    budget -= len(out_labels)
    for start in range(0, len(estimates), LANES):
        end = min(start + LANES, len(estimates))
        if end - start == LANES and not any_reaches(estimates, start, np.float32(out_scores[0] - error)):
            continue
        for label in range(start, end):
            if estimates[label] >= np.float32(out_scores[0] - error):
                if budget <= 0:
                    return False
                budget -= 1
                score = score_label(i, label, X, W, bias_scores)
                if ranks_below(out_scores[0], out_labels[0], score, label):
                    out_scores[0], out_labels[0] = score, label
                    sift_down(out_scores, out_labels, len(out_labels), 0)
    sort_heap(out_scores, out_labels)
    return True


# --- kernels: rows ---------------------------------------------------------------------------------------------------


@kernel
def top_rows(X, lists, W, columns, spill, peaks, bias_scores, price, buffer, work, out_labels, out_scores):
    """Returns how many rows were done by estimate."""
    (factors, numbers), (n, k), L, by_estimate = work, out_labels.shape, len(bias_scores), 0
    for i in range(n):
        count, entries, error = list_columns(i, X, lists, columns, peaks, factors, numbers)
        budget = entries / price
        if error < np.inf and budget >= 2 * k:  # at least half of the scores may be wasted
            estimate_row(i, X, lists, columns, spill, bias_scores, factors, numbers, count, buffer)
            if select_by_estimate(i, X, W, bias_scores, buffer[:L], error, budget, out_labels[i], out_scores[i]):
                by_estimate += 1
                continue
        score_row(i, X, lists, bias_scores, buffer)
        select_top(buffer[:L], out_labels[i], out_scores[i])
    return by_estimate


@kernel
def append_by_estimate(i, X, W, bias_scores, estimates, error, budget, threshold, found, at):
    """Append the labels above `threshold`; returns the new end, or -1 where that would take more than `budget`
    scores."""
    limit = np.float32(threshold - error)
    for start in range(0, len(estimates), LANES):
        end = min(start + LANES, len(estimates))
        if end - start == LANES and not any_reaches(estimates, start, limit):
            continue
        for label in range(start, end):
            if estimates[label] >= limit:
                if budget <= 0:
                    return -1
                budget -= 1
                if score_label(i, label, X, W, bias_scores) > threshold:
                    found[at] = label
                    at += 1
    return at


@kernel
def rows_above(X, lists, W, columns, spill, peaks, bias_scores, price, buffer, work, threshold, first_row, found, ends):
    """Append to `found` the labels above `threshold` of the rows from `first_row` on, while there is room for a whole
    row; returns the first row that is not done."""
    (factors, numbers), n, L = work, len(ends) - 1, len(bias_scores)
    for i in range(first_row, n):
        if ends[i] + L > len(found):
            return i
        at = -1
        count, entries, error = list_columns(i, X, lists, columns, peaks, factors, numbers)
        if error < np.inf and entries > 0:
            estimate_row(i, X, lists, columns, spill, bias_scores, factors, numbers, count, buffer)
            estimates, budget = buffer[:L], entries / price
            at = append_by_estimate(i, X, W, bias_scores, estimates, error, budget, threshold, found, ends[i])
        if at < 0:
            at = ends[i]
            score_row(i, X, lists, bias_scores, buffer)
            for label in range(L):
                if buffer[label] > threshold:
                    found[at] = label
                    at += 1
        ends[i + 1] = at
    return n
