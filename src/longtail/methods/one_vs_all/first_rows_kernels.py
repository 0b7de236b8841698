"""Rows that share rare features with the positives of a label, by an inverted index. first_rows.py explains it."""

from __future__ import annotations

import numpy as np

from longtail.compiled import borrowing_kernel, larger, smaller
from longtail.methods.one_vs_all.row_intrinsics import fetch

N_BINS = 512  # of the histogram of scores that finds the best rows
FOUND_SHARE = 0.5  # of the rows wanted: a label for which fewer are found takes a pass to find the others
COLUMNS_AHEAD = 4  # by which columns of the index are fetched before they are read
THRESHOLD_FACTOR = 1.25  # by which the threshold grows until the features above it fit the budget


@borrowing_kernel
def rare_mean(X, index, own, scratch):
    """Write the mean of these rows on rare features to scratch.mean, and the features; returns how many these are."""
    slot, features, mean = scratch.slot, scratch.features, scratch.mean
    first, share = np.uint32(index.first), np.float32(1.0 / larger(len(own), 1))
    count = np.uint32(0)
    for a in range(len(own)):
        for p in range(X.indptr[own[a]], X.indptr[own[a] + np.uint32(1)]):
            feature = X.indices[p]
            if feature < first:
                continue
            if slot[feature] == np.uint32(0):
                features[count], mean[count] = feature, 0.0
                count += np.uint32(1)
                slot[feature] = count
            mean[slot[feature] - np.uint32(1)] += X.data[p] * share
    for f in range(count):
        slot[features[f]] = 0
    return np.int64(count)


@borrowing_kernel
def postings_above(index, count, threshold, scratch):
    """How many entries of the index have a feature whose mean is at least `threshold` in absolute value."""
    total = np.int64(0)
    for f in range(count):
        if abs(scratch.mean[f]) >= threshold:
            column = scratch.features[f] - np.uint32(index.first)
            total += np.int64(index.indptr[column + np.uint32(1)] - index.indptr[column])
    return total


@borrowing_kernel
def affordable_threshold(index, count, scratch):
    """The first of a rising sequence of thresholds for which the features above it fit the budget."""
    largest = np.float32(0.0)
    for f in range(count):
        largest = larger(largest, abs(scratch.mean[f]))
    threshold = np.float32(0.0)
    while postings_above(index, count, threshold, scratch) > index.budget:
        threshold = larger(np.float32(0.02) * largest, np.float32(THRESHOLD_FACTOR) * threshold)
        threshold = larger(threshold, np.float32(1e-30))
    return threshold


@borrowing_kernel
def add_scores(index, count, threshold, scratch):
    """scratch.scores += mean . x for all rows, over the features above the threshold. Returns how many rows it met.

    The rows are in scratch.touched. A row may stand there twice if its terms cancel out in between.
    """
    scores, touched, features, mean = scratch.scores, scratch.touched, scratch.features, scratch.mean
    chosen, k = np.uint64(0), np.int64(0)
    for f in range(count):
        features[chosen], mean[chosen] = features[f] - np.uint32(index.first), mean[f]
        chosen += np.uint64(abs(mean[f]) >= threshold)
    for f in range(chosen):
        ahead = index.indptr[features[smaller(f + np.uint64(COLUMNS_AHEAD), chosen - np.uint64(1))]]
        fetch(index.rows, ahead)
        fetch(index.data, ahead)
        for q in range(index.indptr[features[f]], index.indptr[features[f] + np.uint32(1)]):
            i = index.rows[q]
            touched[k] = i
            k += np.int64(scores[i] == np.float32(0.0))  # a branch would be hard to predict
            scores[i] += mean[f] * index.data[q]
    return k


@borrowing_kernel
def take_best(k, wanted, scratch, out):
    """Write up to `wanted` of the k rows in scratch.touched to `out`, and set the scores of all k to 0.

    Only rows of positive score count. Those of the highest bins of a histogram are taken, and of the bin that is too
    large for the rest the first rows. Returns how many were written.
    """
    scores, touched, bins = scratch.scores, scratch.touched, scratch.bins
    largest = np.float32(0.0)
    for c in range(k):
        largest = larger(largest, scores[touched[c]])
    scale = np.float32(N_BINS - 1) / larger(largest, np.float32(1e-30))
    for b in range(N_BINS):
        bins[b] = 0
    for c in range(k):
        if scores[touched[c]] > 0.0:
            bins[np.int64(scores[touched[c]] * scale)] += 1
    lowest, left = N_BINS - 1, wanted
    while lowest > 0 and bins[lowest] <= left:
        left -= bins[lowest]
        lowest -= 1
    count = 0
    for c in range(k):
        i = touched[c]
        score = scores[i]
        scores[i] = 0.0
        if score > 0.0:
            place = np.int64(score * scale)
            if place == lowest and left > 0:
                left -= 1
            elif place <= lowest:
                continue
            out[count] = i
            count += 1
    return count


@borrowing_kernel
def likely_rows(X, index, positives, labels, first_rows, scratch):
    """Fill the rows of first_rows for these labels, their numbers, and whether these are enough."""
    for k in range(len(labels)):
        own = positives.rows[positives.indptr[labels[k]] : positives.indptr[labels[k] + np.uint64(1)]]
        count = rare_mean(X, index, own, scratch)
        met = add_scores(index, count, affordable_threshold(index, count, scratch), scratch)
        for a in range(len(own)):
            scratch.scores[own[a]] = 0.0
        out = first_rows.rows[first_rows.starts[k] : first_rows.starts[k + 1]]
        first_rows.n_found[k] = take_best(met, first_rows.wanted[k], scratch, out)
        first_rows.ready[k] = first_rows.n_found[k] >= FOUND_SHARE * first_rows.wanted[k]
