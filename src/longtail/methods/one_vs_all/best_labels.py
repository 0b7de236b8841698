"""The best labels of held-out rows, while the scores of more and more labels become known.

A score and its label are one number, a key (`rank_key`): a larger key is a better score or, among equal scores, a
smaller label. So the best labels of a row are its largest keys, in whatever order they arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from longtail.methods.problem import Folds
from longtail.topk import TopK

NONE = np.uint64(0)  # no key; that of a score is larger
HALF = np.uint64(32)  # bits of a score, and of a label
LOWER = np.uint64(2**32 - 1)
SIGN = np.uint32(2**31)


class RowKeys(NamedTuple):
    """The best keys of every row, for kernels."""

    keys: np.ndarray  # (rows, depth) uint64, each row a heap: no key is smaller than the one at half its place
    limit: np.ndarray  # (rows,) float32: labels with a smaller score are surely not among the best


class BestLabels:
    """The best labels of the rows to score, in the order of folds.

    limit : what is known of the scores of other labels: a score below which no label is among the best of a row
    """

    def __init__(self, folds: Folds, limit: np.ndarray | None = None) -> None:
        self.depth = folds.depth
        self.ends = np.cumsum([0, *map(len, folds.to_score)])
        limit = no_limit(folds.to_score) if limit is None else limit.copy()
        self.kept = RowKeys(np.full((len(limit), folds.depth), NONE), limit)

    def of_fold(self, fold: int) -> RowKeys:
        """The best keys of the rows of a fold."""
        rows = slice(*self.ends[fold : fold + 2])
        return RowKeys(*(each[rows] for each in self.kept))

    def add(self, keys: np.ndarray) -> None:
        """Add keys of shape (rows, any number), and keep the best of all."""
        rising = np.sort(np.concatenate([self.kept.keys, keys], axis=1), axis=1)  # rising keys are a heap
        self.kept.keys[:] = rising[:, -self.depth :]
        least = self.kept.keys[:, 0]
        raise_limit(self.kept.limit, np.where(least > NONE, scores_of(least), np.float32(-np.inf)))

    def best(self) -> np.ndarray:
        """The best keys of every row, best first: (rows, depth, or fewer if there are not so many labels)."""
        best = np.sort(self.kept.keys, axis=1)[:, ::-1]
        return best[:, (best > NONE).any(axis=0)]

    def top(self, twins: np.ndarray) -> list[TopK]:
        """The best labels of every fold, if label l has the score of label twins[l]."""
        best = with_twins(self.best(), twins, self.depth)
        return [best[start:end] for start, end in pairwise(self.ends.tolist())]


def no_limit(to_score: Sequence[np.ndarray]) -> np.ndarray:
    """The limit of every row to score while no label is known."""
    return np.full(sum(map(len, to_score)), -np.inf, np.float32)


def raise_limit(limit: np.ndarray, other: np.ndarray) -> None:
    """Raise limits to others that hold, too. Threads that do so at the same time leave limits that hold."""
    np.maximum(limit, other, out=limit)


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
