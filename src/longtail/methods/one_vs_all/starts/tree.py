"""OvA-Primal++: each label begins at the solution of the label most like it.   [Fang et al. 2019], Algorithm 1

Vertices are the labels and a root, the label that no row has. An edge weighs the Hamming distance of its labels, the
number of rows that have one of them but not both; N_p is the number of rows with label p:

    root - p   N_p                              for every label
    p - q      N_p + N_q - 2 |rows with both|   for labels that share a row

A minimum spanning tree of this graph is one of all pairs, too (Lemma 3.2). The graph has at most L + sum over rows of
|labels of the row|^2 / 2 edges (Theorem 3.3). The root is solved first, as for OvA-Primal, and every other label from
the unpruned solution of its parent. Where no row has two labels (multi-class data), this is OvA-Primal.

Differs from the paper:
  - Labels on the very same rows hang below the first of them, and only that one is in the graph.
  - p - q is left out where it is no shorter than both ways to the root: some minimum tree does without. What is left
    has 2 |rows with both| > min(N_p, N_q), so a label keeps fewer edges to labels with more rows than twice the mean
    number of labels on its rows, however the labels are spread.
  - Kruskal's algorithm needs the order of the weights only, so edges are weighed by their rank. Ranks are never zero,
    which SciPy takes for no edge, and never equal, so every machine finds the same tree.
  - Subtrees of more than SUBTREE_LABELS labels are cut, with as few cuts as can be (Kundu & Misra 1977); what was cut
    off begins at the root's solution. So threads have enough to share, and one label takes no long chain of others.
  - Labels stop by (12), (13), as with every start, not by a rule of their own.

Memory: children that need most go last and the last one takes over its parent's weights, so at most
1 + log2(SUBTREE_LABELS) dense solutions are held at a time, however deep the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from longtail.methods.one_vs_all.problem import Problem
from longtail.methods.one_vs_all.starts.base import First, Task
from longtail.methods.one_vs_all.starts.ova_primal import OvaPrimal

ROOT = -1
SUBTREE_LABELS = 256
PAIRS = 1_000_000  # entries of the product of labels and labels that are made at a time


class Tree(OvaPrimal):
    def __init__(self, task: Task, *, stop: Literal["loose", "strict"] = "loose") -> None:
        super().__init__(task, stop=stop)
        self.parent = cut(*spanning_tree(task.problem), SUBTREE_LABELS)

    def first(self) -> First:
        return super().first()._replace(parent=self.parent)

    def blocks(self, size: int) -> list[np.ndarray]:
        """Whole subtrees, about `size` labels of them together."""
        top = np.where(self.parent == ROOT, np.arange(len(self.parent)), self.parent)
        while (top != top[top]).any():
            top = top[top]
        labels = np.argsort(top, kind="stable")
        _, first, inverse = np.unique(top[labels], return_index=True, return_inverse=True)
        block = (first // max(1, size))[inverse]
        return np.split(labels, np.flatnonzero(np.diff(block)) + 1)

    def walk(self, labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Depth first from the subtrees' tops. Parents that were not asked for are solved, too: the answer for a label
        does not depend on the labels that were asked for with it."""
        tops, children = self._subtrees(labels)
        yield from super().walk(np.array([top for top in tops if top not in children], np.int64))
        stack = [(top, self.w[None], False) for top in tops if top in children]
        while stack:
            label, W, is_mine = stack.pop()
            W = W if is_mine else W.copy()
            yield np.array([label]), W
            below = children.get(label, [])
            stack += [(child, W, child == below[0]) for child in below]  # the first is popped last and may keep W

    def _subtrees(self, labels: np.ndarray) -> tuple[list[int], dict[int, list[int]]]:
        """The tops of the subtrees with these labels, and every label's children, first the one that needs most
        solutions to be held (its Strahler number)."""
        tops, children, order, seen = list[int](), dict[int, list[int]](), list[int](), set[int]()
        for label in labels.tolist():
            path = []
            while label != ROOT and label not in seen:
                seen.add(label)
                path.append(label)
                label = int(self.parent[label])
            if path and label == ROOT:
                tops.append(path[-1])
            for child in reversed(path):
                order.append(child)
                if self.parent[child] != ROOT:
                    children.setdefault(int(self.parent[child]), []).append(child)
        needs = dict[int, int]()
        for label in reversed(order):  # children before parents
            below = children.get(label, [])
            below.sort(key=lambda child: (-needs[child], child))
            needs[label] = max((needs[child] + (child != below[0]) for child in below), default=1)
        return tops, children


# --- the tree --------------------------------------------------------------------------------------------------------


def spanning_tree(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Labels with parents before children, and the parent of every label, ROOT for those next to the root."""
    p, q, distance = edges(problem)
    root, rank = problem.n_labels, np.empty(len(distance))
    rank[np.argsort(distance, kind="stable")] = np.arange(1, len(distance) + 1)  # of equals, edges to the root first
    graph = sp.coo_array((rank, (p, q)), shape=(root + 1, root + 1)).tocsr()
    order, parent = breadth_first_order(minimum_spanning_tree(graph), root, directed=False)
    twins = problem.twins
    (later,) = np.nonzero(twins != np.arange(root))
    parent = np.where(parent[:root] == root, ROOT, parent[:root]).astype(np.int64)
    parent[later] = twins[later]
    return np.concatenate([order[1:], later]).astype(np.int64), parent


def edges(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p, q and the Hamming distance of the edges between first twins and to the root, whose number is n_labels."""
    labels = np.unique(problem.twins)
    indptr, rows = problem.rows_indptr.view(np.int64), problem.rows_of.view(np.int32)
    shape = (problem.n_labels, problem.n_samples)
    by_label = sp.csr_array((np.ones(len(rows), np.int32), rows, indptr), shape=shape)[labels]
    by_row = by_label.T.tocsr()
    sizes = np.diff(by_label.indptr).astype(np.int64)
    found = [(labels, np.full(len(labels), problem.n_labels), sizes)]
    work = np.cumsum(by_label @ np.diff(by_row.indptr).astype(np.int64))
    for part in _steps(work):
        both = (by_label[part] @ by_row).tocoo()
        p, q = both.row + part.start, both.col
        distance = sizes[p] + sizes[q] - 2 * both.data.astype(np.int64)
        kept = np.flatnonzero((p < q) & (distance < np.maximum(sizes[p], sizes[q])))
        kept = kept[np.lexsort((q[kept], p[kept]))]
        found.append((labels[p[kept]], labels[q[kept]], distance[kept]))
    p, q, distance = (np.concatenate(each) for each in zip(*found, strict=True))
    return p, q, distance


def _steps(work: np.ndarray) -> list[slice]:
    """Slices of labels with about PAIRS of work each."""
    ends = np.flatnonzero(np.diff(work // PAIRS, append=-1)) + 1
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def cut(order: np.ndarray, parent: np.ndarray, most: int) -> np.ndarray:
    """The parents after the fewest cuts that leave no subtree with more than `most` labels."""
    parent, size = parent.copy(), np.ones(len(parent), np.int64)
    by_parent = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[by_parent], np.arange(len(parent) + 1))
    for label in order[::-1]:  # children before parents
        if size[label] > most:
            children = by_parent[first[label] : first[label + 1]]
            for child in children[np.argsort(-size[children], kind="stable")]:
                parent[child] = ROOT
                size[label] -= size[child]
                if size[label] <= most:
                    break
        if parent[label] != ROOT:
            size[parent[label]] += size[label]
    return parent
