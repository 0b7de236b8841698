"""The weights during training: one sparse vector per class that can grow and shrink.

Memory is O(number of non-zero weights + number of classes), plus a little per feature. `ClassVectors` is the interface.
weights_kernels describes the arrays and the loops over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, csr_pattern
from longtail.errors import InputError
from longtail.methods.memoir import weights_kernels as kernels
from longtail.methods.state import with_room

FIRST_LENGTH = 1 << 16  # initial number of entries of an arena
N_TOP = 16  # top classes of a feature
MAX_PENDING = 0.05  # truncation is postponed up to this sum; typical weights are around 1
MAX_ENTRIES = 2**32 - 2  # most entries of an arena, because links between free segments are uint32
TABLES = ("keys", "values", "places")  # arrays with an entry per slot of the tables
POSTINGS = ("posting_classes", "posting_values")  # arrays with an entry per posting of the inverted lists
SMALLEST_SCALE = 1e-8  # below it, stored values are multiplied by the scale, or they would leave float32's range


class CsrRows(NamedTuple):
    """X in the form that kernels read."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    @classmethod
    def of(cls, X: sp.csr_array) -> CsrRows:
        return cls(*csr_parts(X))


class RowLabels(NamedTuple):
    """Y in the form that kernels read: the labels of each row."""

    indices: np.ndarray
    indptr: np.ndarray

    @classmethod
    def of(cls, Y: sp.csr_array) -> RowLabels:
        return cls(*csr_pattern(Y))


class VectorArrays(NamedTuple):
    """The arrays of `ClassVectors`. weights_kernels explains how they work together."""

    # one entry per class
    starts: np.ndarray  # first slot of the hash table
    bits: np.ndarray  # log2 of the number of slots; 0: there is no table
    counts: np.ndarray  # number of weights of the class
    squares: np.ndarray  # |v_c|^2
    # arena of the tables: one entry per slot
    keys: np.ndarray
    values: np.ndarray
    places: np.ndarray  # place of the posting in its list
    # one entry per inverted list, that is, per feature and group
    list_starts: np.ndarray
    list_bits: np.ndarray
    list_counts: np.ndarray
    # arena of the inverted lists: one entry per posting
    posting_classes: np.ndarray  # number of the class within its group
    posting_values: np.ndarray
    # (features, N_TOP), or empty if there are inverted lists
    top_classes: np.ndarray
    top_values: np.ndarray
    # bookkeeping
    free: np.ndarray  # (2, 64) first free segment of each arena and size; -1: none
    used: np.ndarray  # (2,) number of entries of each arena that are in use
    scale: np.ndarray  # (1,)
    total_square: np.ndarray  # (1,) |V|^2
    indexed: bool
    n_groups: int


class ClassVectors:
    """W = scale V, with one sparse vector v_c per class.

    With `indexed=True`, V can also be read by feature, through inverted lists for each of `n_groups` groups of classes.
    With `indexed=False`, only the top classes of each feature are known.
    """

    def __init__(self, n_classes: int, n_features: int, *, indexed: bool, n_groups: int = 1) -> None:
        self.shape = (n_classes, n_features)
        n_lists = n_features * n_groups if indexed else 0
        n_postings = FIRST_LENGTH if indexed else 0
        n_with_top = 0 if indexed else n_features
        self.arrays = VectorArrays(
            starts=np.zeros(n_classes, np.int64),
            bits=np.zeros(n_classes, np.uint8),
            counts=np.zeros(n_classes, np.uint32),
            squares=np.zeros(n_classes),
            keys=np.empty(FIRST_LENGTH, np.uint32),
            values=np.empty(FIRST_LENGTH, np.float32),
            places=np.empty(n_postings, np.uint32),
            list_starts=np.zeros(n_lists, np.int64),
            list_bits=np.zeros(n_lists, np.uint8),
            list_counts=np.zeros(n_lists, np.uint32),
            posting_classes=np.empty(n_postings, np.uint32),
            posting_values=np.empty(n_postings, np.float32),
            top_classes=np.full((n_with_top, N_TOP), -1, np.int32),
            top_values=np.zeros((n_with_top, N_TOP), np.float32),
            free=np.full((2, 64), -1, np.int64),
            used=np.zeros(2, np.int64),
            scale=np.ones(1),
            total_square=np.zeros(1),
            indexed=indexed,
            n_groups=n_groups,
        )
        self.pending = np.zeros(n_classes)  # postponed truncation of each class, in units of W
        self.n_pending = np.zeros(n_classes, np.int64)

    @property
    def scale(self) -> float:
        return float(self.arrays.scale[0])

    @property
    def norm(self) -> float:
        """|W|_F"""
        return self.scale * float(np.sqrt(max(self.arrays.total_square[0], 0.0)))

    @property
    def nnz(self) -> int:
        return int(self.arrays.counts.sum(dtype=np.int64))

    def lengths(self, classes: np.ndarray) -> np.ndarray:
        """|v_c| of these classes, in units of stored values."""
        return np.asarray(np.sqrt(np.maximum(self.arrays.squares[classes], 0.0)))

    def step(self, X: CsrRows, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray, rate: float) -> np.ndarray:
        """Pair by pair, if the margin of row i over its rival is below 1: w_rival -= rate x_i, w_target += rate x_i.

        Returns a boolean array with one entry per pair: whether its classes were moved.
        """
        moved = np.empty(len(rows), np.bool_)
        n_done = 0
        while n_done < len(rows):
            n_done = kernels.step_rows(self.arrays, X, rows, targets, rivals, rate, n_done, moved)
            if n_done < len(rows):
                self._lengthen()
        return moved

    def shrink(self, factor: float) -> float:
        """W *= factor, by changing the scale.

        Returns the factor by which the stored values were multiplied. It is 1 unless the scale became very small.
        """
        self.arrays.scale[0] *= factor
        scale = self.scale
        if scale >= SMALLEST_SCALE:
            return 1.0
        with np.errstate(all="ignore"):  # unused entries of the arenas hold arbitrary values
            for values in (self.arrays.values, self.arrays.posting_values, self.arrays.top_values):
                values *= np.float32(scale)
        self.arrays.squares[:] *= scale**2
        self.arrays.total_square[0] *= scale**2
        self.arrays.scale[0] = 1.0
        return scale

    def truncate(self, classes: np.ndarray, amount: float, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Move all weights of these classes towards zero by `amount`, and remove those that become zero: eq. (13).

        Truncation reads all weights of a class, so it is postponed. A class is truncated at every `every`-th call that
        includes it, or when the postponed amounts add up to MAX_PENDING. It is then truncated by their sum. Returns the
        classes that were truncated in this call, and by how much.
        """
        self.pending[classes] += amount
        self.n_pending[classes] += 1
        due = classes[(self.n_pending[classes] >= every) | (self.pending[classes] >= MAX_PENDING)]
        amounts = self.pending[due]
        self.pending[due] = 0.0
        self.n_pending[due] = 0
        size = int(self.arrays.counts[due].max(initial=0))
        room = np.empty(size, np.uint32), np.empty(size, np.float32), np.empty(size, np.uint32)
        kernels.truncate_classes(self.arrays, due, amounts / self.scale, *room)
        return due, amounts

    def scores(self, X: CsrRows, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """x_i.w_c for pairs of a row and a class; -inf where the class is negative."""
        out = np.empty(len(rows))
        kernels.score_pairs(self.arrays, X, rows, classes, out)
        return out * self.scale

    def to_csr(self) -> sp.csr_array:
        """Return a copy of W with one row per class and without zeros. Postponed truncation is done in the copy."""
        indptr = np.zeros(self.shape[0] + 1, np.int64)
        np.cumsum(self.arrays.counts, out=indptr[1:])
        index_type = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
        indices = np.empty(indptr[-1], index_type)
        data = np.empty(indptr[-1], np.float32)
        kernels.fill_csr(self.arrays, self.pending, indptr, indices, data)
        W = sp.csr_array((data, indices, indptr.astype(index_type)), shape=self.shape)
        W.sort_indices()
        W.eliminate_zeros()
        return W

    def take_csr(self) -> sp.csr_array:
        """Return the result of `to_csr` at the end of training.

        The inverted lists are deleted first, which lowers the peak memory. The vectors cannot be used afterwards.
        """
        nothing = np.empty(0, np.uint32)
        self.arrays = self.arrays._replace(
            places=nothing, posting_classes=nothing, posting_values=np.empty(0, np.float32)
        )
        return self.to_csr()

    def state(self) -> dict[str, np.ndarray]:
        """Return everything that training changes."""
        n_slots, n_postings = self.arrays.used.tolist()
        used = dict.fromkeys(TABLES, n_slots) | dict.fromkeys(POSTINGS, n_postings)
        arrays = {
            name: array[: used.get(name)]
            for name, array in self.arrays._asdict().items()
            if isinstance(array, np.ndarray)
        }
        return {**arrays, "pending": self.pending, "n_pending": self.n_pending}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state`."""
        arrays: dict[str, Any] = {name: array.copy() for name, array in state.items()}
        self.pending, self.n_pending = arrays.pop("pending"), arrays.pop("n_pending")
        for name in (*TABLES, *POSTINGS):
            arrays[name] = with_room(arrays[name], len(getattr(self.arrays, name)))
        self.arrays = self.arrays._replace(**arrays)

    def _lengthen(self) -> None:
        """Make the arenas 1.5 times as long.

        They are copied one after the other, because copying all at once would determine the peak memory. New pages
        take memory only when they are used. (`ndarray.resize` would need no copy. But the arrays would lose the huge
        pages that NumPy requests, and training would lose a third of its speed.)
        """
        for name in (*TABLES, *POSTINGS):
            arena = getattr(self.arrays, name)
            if len(arena) * 1.5 > MAX_ENTRIES:
                raise InputError(
                    "the model has grown to billions of weights, more than can be numbered; use penalty='l1'"
                )
            longer = np.empty(len(arena) + len(arena) // 2, arena.dtype)
            longer[: len(arena)] = arena
            grown: dict[str, Any] = {name: longer}
            self.arrays = self.arrays._replace(**grown)
