"""The best labels of held-out rows, while the scores of more and more labels become known.

A score and its label are one number, a key (`rank_key`): a larger key is a better score or, among equal scores, a
smaller label. So the best labels of a row are its largest keys, in whatever order they arrive.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from longtail.methods.one_vs_all.lane_intrinsics import LABEL_LANES
from longtail.methods.problem import Folds
from longtail.topk import TopK

NONE = np.uint64(0)  # no key; that of a score is larger
ROOM = 8  # keys of a row that there is room for, as a multiple of the depth; more than 1, to drop them seldom
HALF = np.uint64(32)  # bits of a score, and of a label
LOWER = np.uint64(2**32 - 1)
SIGN = np.uint32(2**31)


class RowKeys(NamedTuple):
    """The keys of every row, for kernels."""

    keys: np.ndarray  # (rows, width) uint64; NONE where there is no key
    n_kept: np.ndarray  # (rows,) int64, how many of them are in use
    limit: np.ndarray  # (rows,) float32, the least score that may be among the best


class BestLabels:
    """The best labels of the rows to score, in the order of folds."""

    def __init__(self, folds: Folds) -> None:
        self.depth = folds.depth
        self.ends = np.cumsum([0, *map(len, folds.to_score)])
        n = int(self.ends[-1])
        keys = np.full((n, ROOM * folds.depth + LABEL_LANES), NONE)
        self.kept = RowKeys(keys, np.zeros(n, np.int64), np.full(n, -np.inf, np.float32))

    def of_fold(self, fold: int) -> RowKeys:
        """The keys of the rows of a fold, with room for those of 32 more labels."""
        self.make_room()
        rows = slice(*self.ends[fold : fold + 2])
        return RowKeys(*(each[rows] for each in self.kept))

    def make_room(self) -> None:
        keys, n_kept, _ = self.kept
        if n_kept.max(initial=0) + LABEL_LANES > keys.shape[1]:
            self.add(keys[:, :0])

    def add(self, keys: np.ndarray) -> None:
        """Add keys of shape (rows, any number), and keep the best of all."""
        kept, n_kept, limit = self.kept
        all_keys = np.concatenate([kept[:, : n_kept.max(initial=0)], keys], axis=1)
        if all_keys.shape[1] > self.depth:
            all_keys = np.partition(all_keys, all_keys.shape[1] - self.depth, axis=1)[:, -self.depth :]
            limit[:] = np.where(all_keys[:, 0] > NONE, scores_of(all_keys[:, 0]), -np.inf)
        n = all_keys.shape[1]
        kept[:, :n], kept[:, n:] = all_keys, NONE
        n_kept[:] = n

    def best(self) -> np.ndarray:
        """The best keys of every row, best first."""
        self.add(self.kept.keys[:, :0])
        return np.sort(self.kept.keys[:, : self.kept.n_kept.max(initial=0)], axis=1)[:, ::-1]

    def top(self, twins: np.ndarray) -> list[TopK]:
        """The best labels of every fold, if label l has the score of label twins[l]."""
        best = with_twins(self.best(), twins, self.depth)
        return [best[start:end] for start, end in pairwise(self.ends.tolist())]


def keys_of(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The keys of these scores and labels; `rank_key` for arrays."""
    bits = np.asarray(scores, np.float32).view(np.uint32)
    ordered = np.where(bits & SIGN, ~bits, bits | SIGN)
    return np.asarray(ordered.astype(np.uint64) << HALF | ~labels.astype(np.uint32))


def scores_of(keys: np.ndarray) -> np.ndarray:
    """The scores of keys, as float32."""
    ordered = (keys >> HALF).astype(np.uint32)
    return np.where(ordered & SIGN, ordered ^ SIGN, ~ordered).view(np.float32)


def labels_of(keys: np.ndarray) -> np.ndarray:
    """The labels of keys, as int32."""
    return (~(keys & LOWER).astype(np.uint32)).astype(np.int32)


def with_twins(keys: np.ndarray, twins: np.ndarray, depth: int) -> TopK:
    """The `depth` best labels of every row, where label l has the score of label twins[l].

    keys : the best keys of every row, of labels that are their own twins
    """
    by_twin = np.argsort(twins, kind="stable")
    wanted = labels_of(keys).ravel()
    first, last = (np.searchsorted(twins, wanted, side, sorter=by_twin) for side in ("left", "right"))
    n_twins = np.minimum(last - first, depth)
    at = np.arange(n_twins.sum()) - np.repeat(np.cumsum(n_twins) - n_twins, n_twins)  # counts the twins of each key
    labels = by_twin[np.repeat(first, n_twins) + at]
    found = keys_of(np.repeat(scores_of(keys).ravel(), n_twins), labels)
    row = np.repeat(np.arange(len(keys)), n_twins.reshape(keys.shape).sum(axis=1))
    found = found[np.lexsort((~found, row))]
    place = np.arange(len(found)) - np.searchsorted(row, row)
    best = found[place < depth].reshape(len(keys), -1)
    return TopK(labels_of(best), scores_of(best))
