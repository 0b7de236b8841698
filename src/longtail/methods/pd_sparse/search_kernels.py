"""Compiled loops of the search: the negative labels of a row that violate its margin most, (20), (24) and (25)."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

NOWHERE = np.uint32(0xFFFFFFFF)
ROW_SPEED = 16.0  # labels of a row of all labels that are added in the time of one list entry
STRETCH = 512  # labels whose largest score is found at once
SPARSE = 16  # if the lists hold fewer than 1 / SPARSE of the labels, the search reads only these labels


@kernel
def random_bits(state):
    """splitmix64: a random-looking number from a counter."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@kernel
def sample_features(X_data, start, end, rate, seed, out):
    """out[p] = the factor of the p-th feature of a row. If rate = 1, it is x itself. Otherwise it is |x|_1 sign(x) / d~
    times the number of times that the feature is drawn. Then sum_j out_j w_kj is the unbiased estimate (25).

    The d~ = d / rate draws have the probabilities |x_j| / |x|_1. They are evenly spaced, after a random first one.
    """
    d = end - start
    if rate <= 1.0 or d <= np.uint64(1):
        for p in range(d):
            out[p] = X_data[start + np.uint64(p)]
        return
    norm = 0.0
    for p in range(start, end):
        norm += abs(X_data[p])
    draws = np.int64(np.ceil(d / rate))
    step = norm / draws
    following = step * (np.float64(random_bits(seed) >> np.uint64(11)) * 2.0**-53)
    reached = 0.0
    for p in range(d):
        x = X_data[start + np.uint64(p)]
        reached += abs(x)
        times = 0
        while following < reached and times < draws:
            times += 1
            following += step
        out[p] = times * step if x > 0 else -times * step


@kernel
def add_row(factor, w, out):
    """out += factor w"""
    for label in range(len(out)):
        out[label] += factor * w[label]


@kernel
def add_postings(X_indices, start, end, factors, subset, low, high, weights, z):
    """z[label] += sum_j factor_j w[j, label] for the labels low .. high of the subset."""
    entries = weights.entries
    for p in range(start, end):
        factor = factors[p - start]
        if factor == np.float32(0.0):
            continue
        j = X_indices[p]
        row = weights.row_of[j]
        if row != NOWHERE:
            add_row(factor, weights.rows[row, low:high], z[low:high])
        else:
            first = weights.list_start[j, subset]
            for q in range(first, first + np.uint64(weights.list_size[j, subset])):
                z[entries[q].label] += factor * entries[q].w


@kernel
def largest(numbers):
    """The largest of some int32 numbers."""
    best = np.int32(-0x80000000)
    for at in range(len(numbers)):
        best = max(best, numbers[at])
    return best


@kernel
def first_best(z, bits, low, high):
    """Return the label with the largest z in low .. high, the first one if several are equal. NOWHERE if all are -inf.

    `bits` is the memory of z, viewed as int32. Of two nonnegative floats, the larger one has the larger bits, and
    integers are compared with vector instructions.
    """
    best = np.int32(-1)
    at_best = low
    for at in range(low, high, STRETCH):
        peak = largest(bits[at : min(at + STRETCH, high)])
        if peak > best:
            best = peak
            at_best = at
    if best >= 0:
        while bits[at_best] != best:
            at_best += 1
        return np.uint32(at_best)
    chosen = NOWHERE
    score = np.float32(-np.inf)
    for label in range(low, high):
        if z[label] > score:
            chosen = np.uint32(label)
            score = z[label]
    return chosen


@kernel
def take_best(z, bits, low, high, turn, out):
    """out = the labels with the largest z in low .. high, or NOWHERE if too few are above -inf. Sets their z to -inf.

    If several labels have the same score (zero, at the beginning), the first one from `turn` on is taken. Otherwise all
    rows that search with the same weights would find the same label.
    """
    for rank in range(len(out)):
        late = first_best(z, bits, turn, high)
        early = first_best(z, bits, low, turn)
        chosen = late if early == NOWHERE or (late != NOWHERE and z[late] >= z[early]) else early
        out[rank] = chosen
        if chosen != NOWHERE:
            z[chosen] = -np.inf


@kernel
def take_touched(X_indices, start, end, factors, subset, low, high, turn, weights, z, peaks, out):
    """Do the same as `take_best`, but read only the labels in the row's lists. All others score zero. Clears z."""
    entries = weights.entries
    found = 0
    for p in range(start, end):
        first = weights.list_start[X_indices[p], subset]
        for q in range(first, first + np.uint64(weights.list_size[X_indices[p], subset])):
            label = entries[q].label
            score = z[label]
            if score > 0.0 and (found < len(out) or score > peaks[found - 1]):
                z[label] = -np.inf  # it may be in several lists
                at = min(found, len(out) - 1)
                found = min(found + 1, len(out))
                while at > 0 and peaks[at - 1] < score:
                    peaks[at] = peaks[at - 1]
                    out[at] = out[at - 1]
                    at -= 1
                peaks[at] = score
                out[at] = label
    label = turn
    for _ in range(low, high):
        if found == len(out):
            break
        if z[label] == 0.0:
            out[found] = label
            z[label] = -np.inf
            found += 1
        label = label + 1 if label + 1 < high else low
    out[found:] = NOWHERE
    for p in range(start, end):
        first = weights.list_start[X_indices[p], subset]
        for q in range(first, first + np.uint64(weights.list_size[X_indices[p], subset])):
            z[entries[q].label] = 0.0
    for label in out[:found]:
        z[label] = 0.0


@kernel
def count_postings(X_indices, start, end, subset, weights):
    """The number of entries in the lists of a row's features, and the number of features with a row of all labels."""
    entries = 0
    rows = 0
    for p in range(start, end):
        if weights.row_of[X_indices[p]] != NOWHERE:
            rows += 1
        else:
            entries += np.int64(weights.list_size[X_indices[p], subset])
    return entries, rows


@kernel
def search_rows(rows, subsets, X, members, rate, seed, weights, z, factors, peaks, out):
    """out[r] = the labels of subset subsets[r] with the highest scores on row rows[r] that are not active yet, best
    first, or NOWHERE if there are too few. z is zero before and after. Returns the work, in list entries."""
    X_data, X_indices, X_indptr = X
    bits = z.view(np.int32)
    work = 0.0
    for r in range(len(rows)):
        i = rows[r]
        subset = np.int64(subsets[r])
        start = X_indptr[i]
        end = X_indptr[i + np.uint32(1)]
        first = members.start[i]
        low = subset * weights.subset_width
        high = min(low + weights.subset_width, weights.K)
        state = random_bits(seed + np.uint64(i))
        turn = low + np.int64((random_bits(state) >> np.uint64(32)) % np.uint64(high - low))
        sample_features(X_data, start, end, rate, state, factors)
        for at in range(first, first + np.uint64(members.size[i])):
            z[members.held[at].label] = -np.inf
        add_postings(X_indices, start, end, factors, subset, low, high, weights, z)
        entries, full = count_postings(X_indices, start, end, subset, weights)
        if full == 0 and SPARSE * entries < high - low:
            take_touched(X_indices, start, end, factors, subset, low, high, turn, weights, z, peaks, out[r])
            work += 3.0 * entries
        else:
            take_best(z, bits, low, high, turn, out[r])
            z[low:high] = 0.0
            work += entries + (high - low) * (1.0 + full + len(out[r])) / ROW_SPEED
        for at in range(first, first + np.uint64(members.size[i])):
            z[members.held[at].label] = 0.0
    return work


@kernel
def top_rows(rows, X, weights, z, out):
    """out[r] = the labels with the largest scores of row rows[r], best first."""
    X_data, X_indices, X_indptr = X
    k = out.shape[1]
    scores = np.empty(k, np.float32)
    for r in range(len(rows)):
        i = rows[r]
        start = X_indptr[i]
        end = X_indptr[i + np.uint32(1)]
        for subset in range(weights.list_size.shape[1]):
            low = subset * weights.subset_width
            high = min(low + weights.subset_width, weights.K)
            add_postings(X_indices, start, end, X_data[start:end], subset, low, high, weights, z)
        size = 0
        worst = np.float32(-np.inf)
        for label in range(weights.K):
            score = z[label]
            if size == k and not score > worst:
                continue
            at = size if size < k else k - 1
            size = min(size + 1, k)
            while at > 0 and scores[at - 1] < score:
                scores[at] = scores[at - 1]
                out[r, at] = out[r, at - 1]
                at -= 1
            scores[at] = score
            out[r, at] = label
            worst = scores[size - 1]
        z[:] = 0.0
