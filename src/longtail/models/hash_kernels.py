"""The compiled loop of hashing.py: 2-universal hashes of many labels."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel


@kernel
def hash_labels(a, b, n_buckets, first, out):
    """out[i, r] = h_r(first + i)"""
    prime = np.uint64(2**31 - 1)
    for i in range(out.shape[0]):
        label = np.uint64(first + i)
        for r in range(out.shape[1]):
            out[i, r] = (a[r] * label + b[r]) % prime % n_buckets
