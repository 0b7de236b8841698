"""The label tree: it links similar labels.   [Fang et al. 2019], Algorithm 1 (OvA-Primal++)

Vertices are the labels and a root, which stands for the all-negative problem. An edge weighs the Hamming distance of
its labels, the number of rows that have one of them but not both; N_p is the number of rows with label p:

    root - p   N_p                              for every label
    p - q      N_p + N_q - 2 |rows with both|   for labels that share a row

A minimum spanning tree of this graph is also one of all pairs (Lemma 3.2). The graph has at most L + sum over rows of
|labels of the row|^2 / 2 edges (Theorem 3.3). If no row has two labels (multi-class data), the root is the parent of
every label.

Differs from the paper:
  - If several labels have the same rows and the same weight, only the first is in the tree. The others are not solved.
  - p - q is left out if it is at least as long as both edges to the root, because some minimum tree does not need it.
    The remaining edges have 2 |rows with both| > min(N_p, N_q). The number of edges from a label to labels with more
    rows is therefore less than twice the mean number of labels on its rows.
  - Kruskal's algorithm needs only the order of the weights, so the weight of an edge is its rank. Ranks are never zero,
    which SciPy would treat as no edge. They are never equal, so every machine finds the same tree.
  - Subtrees of more than SUBTREE_LABELS labels are cut, with as few cuts as possible (Kundu & Misra 1977). The root
    becomes the parent of each piece that was cut off. There is then enough work to share among threads, and no chain
    of labels is long.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from longtail.methods.one_vs_all.inputs import LabelRows
from longtail.methods.one_vs_all.order import ROOT

SUBTREE_LABELS = 256
PAIRS = 1_000_000  # entries of the label-by-label product that are computed at a time


def label_tree(positives: LabelRows, n_samples: int, labels: np.ndarray) -> np.ndarray:
    """Return the parent of every label. It is ROOT for labels next to the root and for labels not in `labels`."""
    order, parent = spanning_tree(positives, n_samples, labels)
    return cut(order, parent, SUBTREE_LABELS)


def spanning_tree(positives: LabelRows, n_samples: int, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `labels` in an order with parents before children, and the parent of every label."""
    p, q, distance = edges(positives, n_samples, labels)
    root = len(positives.weight)
    rank = np.empty(len(distance))
    rank[np.argsort(distance, kind="stable")] = np.arange(1, len(distance) + 1)  # ties: edges to the root first
    graph = sp.coo_array((rank, (p, q)), shape=(root + 1, root + 1)).tocsr()
    order, found = breadth_first_order(minimum_spanning_tree(graph), root, directed=False)
    parent = np.full(root, ROOT, np.int64)
    parent[labels] = np.where(found[labels] == root, ROOT, found[labels])
    return order[1:].astype(np.int64), parent


def edges(positives: LabelRows, n_samples: int, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return p, q and the Hamming distance of all edges, between `labels` and to the root. The root has the number
    n_labels."""
    n_labels = len(positives.weight)
    pattern = positives.rows.view(np.int32), positives.indptr.view(np.int64)
    ones = np.ones(len(positives.rows), np.int32)
    by_label = sp.csr_array((ones, *pattern), shape=(n_labels, n_samples))[labels]
    by_row = by_label.T.tocsr()
    sizes = np.diff(by_label.indptr).astype(np.int64)
    found = [(labels, np.full(len(labels), n_labels), sizes)]
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
    """Return slices of labels with about PAIRS entries each. `work` is the cumulative sum over labels."""
    ends = np.flatnonzero(np.diff(work // PAIRS, append=-1)) + 1
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def cut(order: np.ndarray, parent: np.ndarray, most: int) -> np.ndarray:
    """Return the parents after the fewest cuts such that no subtree has more than `most` labels."""
    parent = parent.copy()
    size = np.ones(len(parent), np.int64)
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
