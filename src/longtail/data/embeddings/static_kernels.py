"""The kernel of static embeddings: the mean vector of the tokens of each text."""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel


@kernel
def mean_vectors(tokens, ends, table, out):
    """out[i] = the mean of table[t] over the tokens t of text i, tokens[ends[i] : ends[i + 1]]; zero without tokens."""
    for i in range(len(ends) - 1):
        start, end = ends[i], ends[i + 1]
        out[i] = 0.0
        for p in range(start, end):
            vector = table[tokens[p]]
            for f in range(out.shape[1]):
                out[i, f] += vector[f]
        if end > start:
            share = np.float32(1.0) / np.float32(end - start)
            for f in range(out.shape[1]):
                out[i, f] *= share
