"""What all labels of a one-vs-all fit share: the rows, who has which label, and sums over all rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_pattern, frozen, row_parts

Features: TypeAlias = "sp.csr_array | np.ndarray"


def as_dense(X: Features) -> Features:
    """X without its indices if every entry is stored, as in embeddings that were read from a file."""
    if isinstance(X, np.ndarray) or X.nnz < X.shape[0] * X.shape[1]:
        return X
    return X.data.reshape(X.shape)


@dataclass(frozen=True)
class Problem:
    """X as kernels take it, and who has which label: rows_of[rows_indptr[label] : rows_indptr[label + 1]].

    `x_sum` is the sum of all rows; `weights` multiply the cost of a label's own rows. Vectors over features have
    D = n_features + 1 entries, the last for the bias feature, or D = n_features without bias.
    """

    X: tuple[np.ndarray, np.ndarray, np.ndarray]
    n_samples: int
    n_features: int
    n_labels: int
    bias: float
    rows_of: np.ndarray
    rows_indptr: np.ndarray
    x_sum: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, X: Features, Y: sp.csr_array, bias: float, positive_weight: float | np.ndarray = 1.0) -> Problem:
        n, d = X.shape
        x_sum = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel()
        if bias > 0:
            x_sum = np.append(x_sum, n * bias)
        by_label = Y.T.tocsr()
        by_label.sort_indices()
        weights = np.broadcast_to(np.asarray(positive_weight, np.float64), Y.shape[1])
        return cls(
            row_parts(X),
            n,
            d,
            Y.shape[1],
            float(bias),
            *csr_pattern(by_label),
            frozen(x_sum, np.float64),
            frozen(weights, np.float64),
        )

    @property
    def D(self) -> int:  # noqa: N802 - the symbol of the kernels
        return len(self.x_sum)

    @property
    def is_dense(self) -> bool:
        return len(self.X[0]) > len(self.X[1])

    @cached_property
    def twins(self) -> np.ndarray:
        """For every label the first label that is on the very same rows with the same weight; itself for most."""
        rows, ends, weights = self.rows_of.tobytes(), (4 * self.rows_indptr).tolist(), self.weights.tolist()
        first: dict[tuple[bytes, float], int] = {}
        return np.array(
            [
                first.setdefault((rows[ends[label] : ends[label + 1]], weights[label]), label)
                for label in range(self.n_labels)
            ]
        )

    def newton_space(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The buffers of a thread that runs Newton: vectors over rows, over features, and a list of rows."""
        return np.empty((4, self.n_samples)), np.empty((6, self.D)), np.empty(self.n_samples, np.uint32)
