"""Updates that touch few buckets: only the buckets of labels whose rows changed are trained, if the link is a sigmoid.

The weights of a sigmoid depend on no other bucket. The touched buckets are trained from zero on all rows, so they get
the weights that a fit would give them. All other buckets keep theirs; in 8 bits up to rounding, because the step of a
repetition depends on its largest weight. They do not learn that new rows are negative for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.models.hashing import Hashes


class BucketTable(NamedTuple):
    """The buckets of labels in some repetitions, with the numbers that training uses."""

    table: np.ndarray  # (labels, repetitions)
    n_buckets: int
    dtype: np.dtype[Any]


class TouchedBuckets:
    """The buckets of the touched labels.

    buckets : their numbers in each repetition, in increasing order
    n_buckets : the largest number of them in a repetition, at least 1
    """

    def __init__(self, hashes: Hashes, labels: np.ndarray) -> None:
        self.hashes = hashes
        self.buckets = [np.unique(column) for column in hashes.table[labels].T]
        self.n_buckets = max(1, *(len(some) for some in self.buckets))

    @property
    def share(self) -> float:
        """The share of all buckets that is trained."""
        return self.n_buckets / self.hashes.n_buckets

    def table(self, repetitions: np.ndarray) -> BucketTable:
        """Number the touched buckets of each repetition from 0. Labels in other buckets get a number beyond them."""
        table = np.empty((self.hashes.n_labels, len(repetitions)), self.hashes.dtype)
        for at, r in enumerate(repetitions.tolist()):
            number = np.full(self.hashes.n_buckets, self.n_buckets)
            number[self.buckets[r]] = np.arange(len(self.buckets[r]))
            table[:, at] = number[self.hashes.table[:, r]]
        return BucketTable(table, self.n_buckets, self.hashes.dtype)
