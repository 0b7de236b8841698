"""Compiled loops of models/ensemble_index.py: the union of the members' lists, and the terms of the log-odds."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

MOST_CERTAIN = 1e-6  # probabilities in (2) of mixture.py are clipped to this distance from 0 and 1
SMALLEST_SCORE = 1e-30  # as in models/calibrator.py
LARGEST_MARGIN = 1e30  # margins are clipped to this size, so that sums of them stay finite


@kernel
def join_lists(found, values, others, other_values, place, out_labels, out_ranks, out_scores, out_known):
    """Write the union of the members' lists of every row, in the order in which labels are found.

    found, values : (members, rows, k), the labels and scores of the members, best first
    others, other_values : (members, rows, any number), labels of other lists and the member's scores; -1 is none
    place : (n_labels,) scratch that is -1 before and after
    out_labels : (rows, members k), -1 before, and after the last candidate
    out_ranks : (members, rows, members k), the rank in the member's list; k + 1 if the label is not in it
    out_scores : the same shape, the score; the last score of the list, which is a bound, if it is not known
    out_known : the same shape, whether it is known
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
                        out_known[other, i, at] = False
                out_ranks[m, i, at] = r + 1
                out_scores[m, i, at] = values[m, i, r]
                out_known[m, i, at] = True
        for m in range(n_members):
            for c in range(others.shape[2]):
                if others[m, i, c] >= 0:
                    at = place[others[m, i, c]]
                    out_scores[m, i, at] = other_values[m, i, c]
                    out_known[m, i, at] = True
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
def weigh(member, log_ranks, labels, scores, ranks, best, wanted, out):
    """out[i, c] = the term of the member in the log-odds of labels[i, c], where wanted[i, c]: (1) or (2) of mixture.py.

    `member` has the fields of models.ensemble_index.Member. `best` is the best score of every row.
    log_ranks[r] is the logarithm of rank r with the rank offset.
    """
    last = len(member.lines) - 1
    for i in range(labels.shape[0]):
        t = margin_of(best[i], member.log_scores)
        for c in range(labels.shape[1]):
            if wanted[i, c]:
                place = np.float64(member.places[labels[i, c]])
                k = int(place)
                h = place - k
                low, high = member.lines[k], member.lines[min(k + 1, last)]
                z = (1.0 - h) * low[0] + h * high[0]
                z += ((1.0 - h) * low[1] + h * high[1]) * margin_of(scores[i, c], member.log_scores)
                z += ((1.0 - h) * low[2] + h * high[2]) * log_ranks[ranks[i, c]]
                z += ((1.0 - h) * low[3] + h * high[3]) * t
                if len(member.curve_knots):
                    p = interpolate(z, member.curve_knots, member.curve_values)
                    p = min(max(p, MOST_CERTAIN), 1.0 - MOST_CERTAIN)
                    z = member.curve_weight * np.log(p / (1.0 - p))
                out[i, c] = z
