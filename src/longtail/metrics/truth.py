"""The true labels. Every accepted form of Y is checked and converted to sorted column numbers per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from longtail.errors import InputError
from longtail.matrix import MAX_COLUMNS, canonical_csr, indicator


@dataclass(frozen=True)
class Truth:
    """The true labels of row i are `indices[indptr[i]:indptr[i + 1]]`, sorted and unique, all below `n_labels`."""

    indices: np.ndarray
    indptr: np.ndarray
    n_labels: int

    @property
    def n_rows(self) -> int:
        return self.indptr.size - 1

    @property
    def sizes(self) -> np.ndarray:
        """The number of labels of each row."""
        return np.diff(self.indptr)

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry of `indices`."""
        return np.repeat(np.arange(self.n_rows), self.sizes)

    @property
    def counts(self) -> np.ndarray:
        """The number of rows of each label."""
        return np.bincount(self.indices, minlength=self.n_labels)


def read_truth(Y: Any, *, name: str = "Y", n_labels: int | None = None) -> Truth:
    """Check `Y` and convert it. If `Y` holds class numbers, `n_labels` is the number of classes. If it is None, the
    largest class number determines it."""
    truth = _from_sparse(Y, name) if sparse.issparse(Y) else _from_ids(Y, name, n_labels)
    if truth.n_rows == 0:
        raise InputError(f"{name} has no rows, so there is nothing to measure; give at least one row of true labels")
    if truth.n_labels > MAX_COLUMNS:
        raise InputError(
            f"{name} has {truth.n_labels:,} labels, more than the {MAX_COLUMNS:,} that can be numbered; "
            "number the labels that occur from 0, without gaps"
        )
    if n_labels is not None and truth.n_labels != n_labels:
        raise InputError(
            f"{name} has {truth.n_labels:,} labels, but {n_labels:,} are expected; "
            "all label matrices must have the same columns"
        )
    return truth


def _from_sparse(Y: Any, name: str) -> Truth:
    if Y.ndim != 2:
        raise InputError(f"{name} is sparse but has {Y.ndim} dimension; give a matrix with one column per label")
    try:
        matrix = canonical_csr(Y)
    except ValueError as error:
        raise InputError(f"{name} is not a valid sparse matrix ({error}); build it again") from error
    matrix = indicator(matrix, name)
    return Truth(matrix.indices, matrix.indptr, matrix.shape[1])


def _from_ids(Y: Any, name: str, n_labels: int | None) -> Truth:
    try:
        ids = np.asarray(Y)
    except ValueError as error:  # lists of unequal lengths
        raise InputError(f"{name} is a list of lists; give a sparse matrix with one column per label") from error
    if ids.ndim != 1:
        raise InputError(f"{name} is dense, of shape {ids.shape}; wrap a 0/1 matrix as scipy.sparse.csr_array({name})")
    if ids.size and ids.dtype.kind not in "iu":
        raise InputError(f"{name} holds {ids.dtype} values; give class ids, the whole numbers that `top` uses")
    if ids.size and ids.min() < 0:
        raise InputError(f"{name} holds the class id {ids.min()}; ids count from 0")
    found = int(ids.max()) + 1 if ids.size else 0
    if n_labels is not None and found > n_labels:
        raise InputError(f"{name} holds the class id {found - 1}, but there are only {n_labels:,} labels")
    return Truth(ids, np.arange(ids.size + 1), found if n_labels is None else n_labels)
