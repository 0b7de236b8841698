"""The kernel of metrics/hits.py. It finds the predicted labels that are true, by binary search."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel


@kernel
def mark_hits(Y_indices, Y_indptr, labels, out):
    """out[i, j] = labels[i, j] is in row i of Y, by binary search in the sorted row."""
    n, k = labels.shape
    for i in range(n):
        start, end = np.int64(Y_indptr[i]), np.int64(Y_indptr[i + 1])
        for j in range(k):
            low, high = start, end
            while low < high:
                middle = (low + high) // 2
                if Y_indices[middle] < labels[i, j]:
                    low = middle + 1
                else:
                    high = middle
            out[i, j] = low < end and Y_indices[low] == labels[i, j]
