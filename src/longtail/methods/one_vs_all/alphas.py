"""Alphas of an earlier solution: what a label of the dual solver begins with, and what it can hand out.

Alphas are a csr_array with one row per label and one column per row of X. An entry is y_i alpha_i: above 0 if the row
was a positive of the label, below 0 if not. Rows without an entry have alpha 0. Entries of 0 are rows that the last
pass found, so that they would join the working set. A label has few entries; their rows and the positives are the
working set that the label begins with.

Any alphas lead to the same certificate, because a label is verified on all rows. Entries whose row has changed its side
since are taken into the working set with alpha 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import frozen


class EarlierAlphas(NamedTuple):
    """Label l begins with signed[indptr[l] : indptr[l + 1]] at `rows`, in rising order; if there are none, as usual."""

    indptr: np.ndarray
    rows: np.ndarray
    signed: np.ndarray


def earlier_alphas(alphas: sp.csr_array | None, n_labels: int) -> EarlierAlphas:
    """Return alphas in the form of the kernels. None means that no label has any."""
    if alphas is None:
        return EarlierAlphas(frozen(np.zeros(n_labels + 1), np.uint64), frozen([], np.uint32), frozen([], np.float32))
    alphas = alphas.sorted_indices()
    return EarlierAlphas(
        frozen(alphas.indptr, np.uint64), frozen(alphas.indices, np.uint32), frozen(alphas.data, np.float32)
    )
