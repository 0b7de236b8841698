"""What a model remembers of its training data and of later updates, so that it can be updated again.

An update gets all rows as they are now. It has to know which of them are new, and which labels have other rows than
before. The model keeps no rows, only a hash of each:

    h(x) = mix(sum over j of mix(mix(j) + bits of x_j)),     a label has sum of mix(h(x_i)) over its rows, modulo 2^64

with the bits of x_j in float32. Both sums do not depend on an order. Two different rows or lists of rows have the same
hash with a probability of 2^-64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import ModelError
from longtail.hybrid import HybridRows, as_csr

ENTRIES = 1 << 20  # entries of X that are hashed at a time
MAX_HISTORY = 100_000
_ARRAYS = ("growth_rows", "growth_labels", "growth_retired")  # in a folder; hashes have the same bits as int64


@dataclass(frozen=True, eq=False)
class Growth:
    """rows : the hash of every training row, in rising order
    labels : the hash of the rows of every label
    retired : columns of the labels that are no longer predicted, in rising order
    history : one mapping per update, of names to texts and numbers
    """

    rows: np.ndarray
    labels: np.ndarray
    retired: np.ndarray
    history: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, X: Any, Y: sp.csr_array) -> Growth:
        """Return what a model trained on canonical X and Y remembers."""
        hashes = row_hashes(X)
        return cls(np.sort(hashes), label_hashes(Y, hashes), np.empty(0, np.int64))

    @classmethod
    def common(cls, known: Sequence[Growth | None]) -> Growth | None:
        """Return what all models remember. None if they were not trained on the same rows, or if it is not known."""
        first = known[0]
        for other in known[1:]:
            if first is None or other is None:
                return None
            pairs = ((first.rows, other.rows), (first.labels, other.labels), (first.retired, other.retired))
            if not all(np.array_equal(one, two) for one, two in pairs):
                return None
        return first

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = (self.rows.view(np.int64), self.labels.view(np.int64), self.retired)
        return dict(zip(_ARRAYS, arrays, strict=True)), {"history": [dict(entry) for entry in self.history]}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], meta: Any, n_labels: int, where: Path) -> Growth:
        """Rebuild from the values of `to_arrays`. Raise ModelError about `where` if they are invalid."""
        history = meta.get("history") if isinstance(meta, dict) else None
        if not isinstance(history, list) or len(history) > MAX_HISTORY:
            raise ModelError(where, "the member growth must have a list 'history'")
        for entry in history:
            if not isinstance(entry, dict) or not all(isinstance(value, str | int | float) for value in entry.values()):
                raise ModelError(where, "an entry of the history must hold texts and numbers only")
        for name in _ARRAYS:
            array = arrays.get(name)
            if array is None or array.dtype != np.int64 or array.ndim != 1:
                raise ModelError(where, f"the array {name} is missing, or is not a 1-d array of int64")
        rows, labels, retired = (arrays[name] for name in _ARRAYS)
        if len(labels) != n_labels:
            raise ModelError(where, f"growth_labels has {len(labels)} entries for {n_labels} labels")
        if len(retired) and (retired[0] < 0 or retired[-1] >= n_labels or (np.diff(retired) <= 0).any()):
            raise ModelError(where, "growth_retired must hold columns of labels in rising order")
        return cls(rows.view(np.uint64), labels.view(np.uint64), retired, tuple(history))


def row_hashes(X: sp.csr_array | np.ndarray | HybridRows) -> np.ndarray:
    """Return the hash of every row of canonical X. Zeros do not count, so dense and sparse rows have equal hashes."""
    n = X.shape[0]
    per_row = X.shape[1] if isinstance(X, np.ndarray) else max(1, X.nnz // max(n, 1))
    step = max(1, ENTRIES // max(per_row, 1))
    parts = [_hashes_of(as_csr(X[start : start + step])) for start in range(0, n, step)]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _hashes_of(rows: sp.csr_array) -> np.ndarray:
    bits = rows.data.astype(np.float32).view(np.uint32).astype(np.uint64)
    terms = mix(mix(rows.indices.astype(np.uint64)) + bits)
    terms[rows.data == 0] = 0
    return mix(_sums(terms, rows.indptr))


def label_hashes(Y: sp.csr_array, hashes: np.ndarray) -> np.ndarray:
    """Return the hash of the rows of every label, given the hash of every row. It is 0 for a label without rows."""
    columns = Y.tocsc()
    return _sums(mix(hashes)[columns.indices], columns.indptr)


def relabelled(Y: sp.csr_array, hashes: np.ndarray, is_new: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return which rows may have other labels than before, given the label hashes `before`.

    The hash of a label is a sum over its rows, so the new rows explain a part of its change. If this is not all, the
    label is new, or it has lost or gained other rows. All its rows are then returned, because the lost ones are gone.
    """
    added = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=Y.shape)[is_new]
    unexplained = label_hashes(Y, hashes) - label_hashes(added, hashes[is_new]) != before
    counts = np.concatenate([[0], np.cumsum(unexplained[Y.indices])])
    return np.asarray(counts[Y.indptr[1:]] > counts[Y.indptr[:-1]])


def _sums(terms: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Return the sums of terms[indptr[i] : indptr[i + 1]], modulo 2^64."""
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return np.asarray(totals[indptr[1:]] - totals[indptr[:-1]])


def mix(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers after the finalizer of splitmix64, which is one to one and changes every bit."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def n_missing(known: np.ndarray, now: np.ndarray) -> int:
    """Return how many of the hashes `known`, counted with repetitions, are not among the hashes `now`."""
    return len(known) - int(is_known(known, now).sum())


def is_known(known: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return, for each hash of `now`, whether it is among `known`. A hash that is known twice is found twice."""
    order = np.argsort(now, kind="stable")
    ordered = now[order]
    copy = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)  # 0 for the first row with a hash, 1, …
    known = np.sort(known)
    found = np.empty(len(now), bool)
    found[order] = copy < np.searchsorted(known, ordered, side="right") - np.searchsorted(known, ordered)
    return found
