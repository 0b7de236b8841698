"""The order in which labels are solved: the blocks, and the order of labels within a block.

`parent` describes a forest of labels: parent[label] must be solved before the label, unless it is ROOT. The start
"tree" needs this forest (label_tree.py). For all other starts, every parent is ROOT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from longtail import parallel

if TYPE_CHECKING:
    from longtail.methods.one_vs_all.inputs import OneVsAllData
    from longtail.methods.one_vs_all.starts import Start

ROOT = -1
DENSE_WEIGHTS = 4_000_000  # entries of the dense (labels, D) buffer that a thread solves into before pruning


def subtree_blocks(labels: np.ndarray, parent: np.ndarray, size: int) -> list[np.ndarray]:
    """Divide the labels into blocks of whole subtrees with about `size` labels each. If all parents are ROOT, the
    blocks are ranges."""
    top = np.where(parent == ROOT, np.arange(len(parent)), parent)
    while (top != top[top]).any():
        top = top[top]
    labels = labels[np.argsort(top[labels], kind="stable")]
    _, first, inverse = np.unique(top[labels], return_index=True, return_inverse=True)
    block = (first // max(1, size))[inverse]
    return np.split(labels, np.flatnonzero(np.diff(block)) + 1)


def walk(
    data: OneVsAllData, start: Start, labels: np.ndarray, parent: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a few labels at a time, in the order to solve them, with their first weights W (labels, D).

    The caller replaces W by the solutions, in place, before it takes the next labels. Labels whose parent is ROOT start
    at the weights of `start`. Other labels start at the solution of their parent, which must also be in `labels`.

    Memory: the child whose subtree needs most memory is solved last, and it reuses the array of its parent. At most
    1 + log2(len(labels)) dense solutions are therefore held at a time, even if the tree is deep.
    """
    tops = [label for label in labels.tolist() if parent[label] == ROOT]
    children = _children(labels, parent, tops)
    alone = np.array([top for top in tops if top not in children], np.int64)
    for part in parallel.ranges(len(alone), DENSE_WEIGHTS // data.D):
        chunk = alone[part.start : part.stop]
        W = np.empty((len(chunk), data.D))
        start.weights(data, chunk, W)
        yield chunk, W
    waiting: list[tuple[int, np.ndarray | None, bool]] = [(top, None, False) for top in tops if top in children]
    while waiting:
        label, above, is_last_child = waiting.pop()
        if above is None:
            W = np.empty((1, data.D))
            start.weights(data, np.array([label]), W)
        else:
            W = above if is_last_child else above.copy()
        above = None  # frees the solution if no other label needs it
        yield np.array([label]), W
        below = children.get(label, [])
        waiting += [(child, W, child == below[0]) for child in below]  # the first is popped last and may keep W


def _children(labels: np.ndarray, parent: np.ndarray, tops: list[int]) -> dict[int, list[int]]:
    """Return the children of every label that has any. The child that needs most solutions in memory comes first."""
    children: dict[int, list[int]] = {}
    for label in labels.tolist():
        if parent[label] != ROOT:
            children.setdefault(int(parent[label]), []).append(label)
    parents_first = list(tops)
    for label in parents_first:  # grows while it is read
        parents_first += children.get(label, [])
    needs: dict[int, int] = {}  # the Strahler number
    for label in reversed(parents_first):
        below = children.get(label, [])
        below.sort(key=lambda child: (-needs[child], child))
        needs[label] = max((needs[child] + (child != below[0]) for child in below), default=1)
    return children
