"""Compiled loops of models/ensemble_index.py: the union of the members' lists, and the members' log-odds."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

MOST_CERTAIN = 1e-6  # probabilities of members are clipped to this distance from 0 and 1
SMALLEST_SCORE = 1e-30  # as in models/calibrator.py
LARGEST_MARGIN = 1e30  # margins are clipped to this size, so that sums of them stay finite


@kernel
def join_lists(found, values, place, out_labels, out_ranks, out_scores):
    """Write the union of the members' lists of every row, in the order in which labels are found.

    found, values : (members, rows, k), the labels and scores of the members, best first
    place : (n_labels,) scratch that is -1 before and after
    out_labels : (rows, members k), -1 before, and after the last candidate
    out_ranks : (members, rows, members k), the rank in the member's list; k + 1 if the label is not in it
    out_scores : the same shape, the score; the last score of the list, which is a bound, if the label is not in it
    """
    n_members, n, k = found.shape
    for i in range(n):
        count = 0
        for m in range(n_members):
            for r in range(k):
                label = found[m, i, r]
                at = place[label]
                if at < 0:
                    at = count
                    place[label] = at
                    out_labels[i, at] = label
                    count += 1
                    for other in range(n_members):
                        out_ranks[other, i, at] = k + 1
                        out_scores[other, i, at] = values[other, i, k - 1]
                out_ranks[m, i, at] = r + 1
                out_scores[m, i, at] = values[m, i, r]
        for at in range(count):
            place[out_labels[i, at]] = -1


@kernel
def margin_of(score, log_scores):
    """The margin of a score. NaN becomes the smallest margin."""
    s = np.float64(score)
    if log_scores:
        s = np.log(max(s, SMALLEST_SCORE))
    if s != s:
        return -LARGEST_MARGIN
    return min(max(s, -LARGEST_MARGIN), LARGEST_MARGIN)


@kernel
def interpolate(z, knots, values):
    """The value at z of the function that is linear between the knots and constant outside."""
    last = len(knots) - 1
    if z <= knots[0]:
        return values[0]
    if z >= knots[last]:
        return values[last]
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= z:
            low = middle
        else:
            high = middle
    return values[low] + (values[high] - values[low]) * ((z - knots[low]) / (knots[high] - knots[low]))


@kernel
def weigh(member, labels, scores, ranks, best, wanted, out):
    """out[i, c] = the weight of the member times its log-odds of labels[i, c], where wanted[i, c].

    `member` has the fields of models.ensemble_index.Weighed. `best` is the best score of every row.
    """
    for i in range(labels.shape[0]):
        top = member.best * margin_of(best[i], member.log_scores)
        for c in range(labels.shape[1]):
            if wanted[i, c]:
                z = member.intercept + member.margin * margin_of(scores[i, c], member.log_scores) + top
                if member.rank != 0.0:
                    z += member.rank * np.log(ranks[i, c] + member.rank_offset)
                if member.frequency != 0.0:
                    z += member.frequency * np.log1p(np.float64(member.counts[labels[i, c]]))
                p = interpolate(z, member.knots, member.values)
                p = min(max(p, MOST_CERTAIN), 1.0 - MOST_CERTAIN)
                out[i, c] = member.weight * np.log(p / (1.0 - p))
