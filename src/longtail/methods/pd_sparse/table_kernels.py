"""Compiled loops over the tables of weights.py, between batches and passes: of the features begin .. end.

w != 0 where |v| > lam, and then w = v -+ lam (15).
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

EMPTY = np.uint32(0xFFFFFFFF)  # the label of an empty slot
NOWHERE = np.uint32(0xFFFFFFFF)  # no list, no row
ONE = np.uint64(1)


@kernel
def shrunk(slot, lam):
    """w of a slot; zero if it is empty."""
    if slot.label == EMPTY or abs(slot.v) <= lam:
        return np.float32(0.0)
    return slot.v - lam if slot.v > lam else slot.v + lam


@kernel
def count_nonzeros(begin, end, weights, lam, out):
    """out[j, subset] = the number of labels of the subset with w != 0."""
    slots = weights.slots
    for j in range(begin, end):
        out[j, :] = 0
        start = weights.start[j]
        for slot in range(start, start + np.uint64(weights.mask[j]) + ONE):
            if shrunk(slots[slot], lam) != np.float32(0.0):
                out[j, slots[slot].label // weights.subset_width] += np.uint32(1)


@kernel
def fill_lists(begin, end, weights, lam):
    """Fill lists and rows from the tables. They are empty before, and have enough room."""
    slots = weights.slots
    entries = weights.entries
    for j in range(begin, end):
        start = weights.start[j]
        row = weights.row_of[j]
        for slot in range(start, start + np.uint64(weights.mask[j]) + ONE):
            label = slots[slot].label
            w = shrunk(slots[slot], lam)
            slots[slot].at = NOWHERE
            if w == np.float32(0.0):
                continue
            if row != NOWHERE:
                weights.rows[row, label] = w
                continue
            subset = label // weights.subset_width
            at = weights.list_size[j, subset]
            entry = weights.list_start[j, subset] + np.uint64(at)
            entries[entry].label = label
            entries[entry].w = w
            slots[slot].at = at
            weights.list_size[j, subset] = at + np.uint32(1)


@kernel
def copy_selected(begin, end, weights, lam, out):
    """Copy the v with |v| > lam to the tables `out`, which are empty and have enough room."""
    slots = weights.slots
    target = out.slots
    for j in range(begin, end):
        start = weights.start[j]
        for slot in range(start, start + np.uint64(weights.mask[j]) + ONE):
            if shrunk(slots[slot], lam) == np.float32(0.0):
                continue
            at = slots[slot].label & out.mask[j]
            while target[out.start[j] + np.uint64(at)].label != EMPTY:
                at = (at + np.uint32(1)) & out.mask[j]
            copy = out.start[j] + np.uint64(at)
            target[copy].label = slots[slot].label
            target[copy].v = slots[slot].v
            out.filled[j] += np.uint32(1)


@kernel
def list_weights(weights, lam, features, labels, values):
    """Write the feature, label and value of every nonzero of W."""
    at = 0
    for j in range(len(weights.start)):
        start = weights.start[j]
        for slot in range(start, start + np.uint64(weights.mask[j]) + ONE):
            w = shrunk(weights.slots[slot], lam)
            if w != np.float32(0.0):
                features[at] = j
                labels[at] = weights.slots[slot].label
                values[at] = w
                at += 1


@kernel
def square_weights(begin, end, weights, lam):
    """sum_k |w_k|^2 over some features: the first term of the dual objective (14)."""
    square = 0.0
    for j in range(begin, end):
        start = weights.start[j]
        for slot in range(start, start + np.uint64(weights.mask[j]) + ONE):
            square += np.float64(shrunk(weights.slots[slot], lam)) ** 2
    return square


@kernel
def add_alphas(begin, end, members):
    """The sum of the positive alphas of the rows begin .. end, which is the second term of (14) with the other sign."""
    total = 0.0
    for i in range(begin, end):
        first = members.start[i]
        for at in range(first, first + np.uint64(members.size[i])):
            total += max(members.held[at].alpha, 0.0)
    return total
