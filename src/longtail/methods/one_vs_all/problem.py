"""What all labels of a one-vs-all fit share: the rows, who has which label, and sums over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, csr_pattern, frozen


@dataclass(frozen=True)
class Problem:
    """X as kernels take it; `rows_of[rows_indptr[label]:rows_indptr[label + 1]]` are the rows with that label; `x_sum`
    is the sum of all rows. Vectors over features have D = n_features + 1 entries, the last for the bias feature, or
    D = n_features without bias."""

    X: tuple[np.ndarray, np.ndarray, np.ndarray]
    n_samples: int
    n_features: int
    n_labels: int
    bias: float
    rows_of: np.ndarray
    rows_indptr: np.ndarray
    x_sum: np.ndarray

    @classmethod
    def of(cls, X: sp.csr_array, Y: sp.csr_array, bias: float) -> Problem:
        n, d = X.shape
        x_sum = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel()
        if bias > 0:
            x_sum = np.append(x_sum, n * bias)
        by_label = Y.T.tocsr()
        by_label.sort_indices()
        return cls(csr_parts(X), n, d, Y.shape[1], float(bias), *csr_pattern(by_label), frozen(x_sum, np.float64))

    @property
    def D(self) -> int:  # noqa: N802 - the symbol of the kernels
        return len(self.x_sum)

    @cached_property
    def twins(self) -> np.ndarray:
        """For every label the first label that is on the very same rows; itself for most."""
        rows, ends, first = self.rows_of.tobytes(), (4 * self.rows_indptr).tolist(), dict[bytes, int]()
        return np.array(
            [first.setdefault(rows[ends[label] : ends[label + 1]], label) for label in range(self.n_labels)]
        )


def stack_rows(parts: Sequence[sp.csr_array], order: np.ndarray) -> sp.csr_array:
    """The rows of all parts, one after the other, taken in this order."""
    return sp.csr_array(sp.vstack(parts, format="csr")[order])
