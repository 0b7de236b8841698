"""The first working sets of the labels of a block: how many rows, and for the default start which.

Rows that share rare features with a label's positives are the ones that its classifier has to tell apart from them. An
inverted index finds these without a pass over X: row i scores p.x_i, where p is the mean of the positives and only
features in at most RARE of all rows count. A label whose rare features lead to few rows takes the pass of the other
starts instead (`FirstScores`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import frozen
from longtail.methods.one_vs_all.first_rows_kernels import N_BINS, likely_rows
from longtail.methods.one_vs_all.inputs import LabelRows, Samples

MIN_FIRST_ROWS = 200  # the first working set has the positives, and up to this number of other rows,
FIRST_ROWS_PER_POSITIVE = 4  # or this number per positive if that is more
RARE = 0.05  # share of rows that a feature of the index may occur in
BUDGET_SHARE = 1 / 160  # share of the entries of X that a label may read in the index,
MIN_BUDGET = 10_000  # or this number if that is more


class RareFeatures(NamedTuple):
    """The columns of X, with features by frequency, from feature number `first` on: rows and values, as CSC."""

    first: int
    indptr: np.ndarray
    rows: np.ndarray
    data: np.ndarray
    budget: int


class FirstRows(NamedTuple):
    """Label k of a block begins with at most wanted[k] rows beside its positives.

    n_found[k] of them are known: rows[starts[k] : starts[k] + n_found[k]]. If ready[k], these are enough; else a pass
    over X finds the others.
    """

    wanted: np.ndarray
    starts: np.ndarray
    n_found: np.ndarray
    ready: np.ndarray
    rows: np.ndarray


class IndexScratch(NamedTuple):
    """Buffers for one label at a time."""

    slot: np.ndarray  # feature -> 1 + its number in `features`, 0 outside `rare_mean`
    features: np.ndarray
    mean: np.ndarray
    scores: np.ndarray  # of all rows, 0 outside `likely_rows_of`
    touched: np.ndarray
    bins: np.ndarray


def rare_features(X: Samples) -> RareFeatures:
    """The index of sparse X, whose features are numbered by falling frequency."""
    n = len(X.squares)
    first = int(np.count_nonzero(np.bincount(X.indices, minlength=X.n_sparse) > RARE * n))
    rare = X.indices >= first
    ends = np.concatenate([[0], np.cumsum(rare)])[X.indptr.view(np.int64)]
    rows = sp.csr_array((X.data[rare], X.indices[rare].view(np.int32) - first, ends), shape=(n, X.n_sparse - first))
    columns = rows.tocsc()
    budget = max(MIN_BUDGET, int(BUDGET_SHARE * len(X.data)))
    return RareFeatures(
        first,
        frozen(columns.indptr, np.uint64),
        frozen(columns.indices, np.uint32),
        frozen(columns.data, np.float32),
        budget,
    )


def first_rows(X: Samples, index: RareFeatures | None, positives: LabelRows, labels: np.ndarray) -> FirstRows:
    """The first rows of these labels; without an index only their number."""
    n, n_positive = len(X.squares), positives.n_positive[labels.view(np.int64)]
    wanted = np.minimum(np.maximum(MIN_FIRST_ROWS, FIRST_ROWS_PER_POSITIVE * n_positive), n - n_positive)
    ready = np.zeros(len(labels), np.bool_)
    starts = np.concatenate([[0], np.cumsum(wanted)])
    n_rows = 0 if index is None else starts[-1]
    n_found = np.zeros(len(labels), np.int64)
    found = FirstRows(wanted, starts, n_found, ready, np.zeros(n_rows, np.uint32))
    if index is not None:
        d = index.first + len(index.indptr) - 1
        scratch = IndexScratch(
            slot=np.zeros(d, np.uint32), features=np.zeros(d, np.uint32), mean=np.zeros(d, np.float32),
            scores=np.zeros(n, np.float32), touched=np.zeros(index.budget + 1, np.uint32),
            bins=np.zeros(N_BINS, np.int64),
        )  # fmt: skip
        likely_rows(X, index, positives, labels, found, scratch)
    return found._replace(rows=frozen(found.rows, np.uint32))  # as all rows that `begin_lane` takes
