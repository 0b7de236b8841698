"""The weights during training: one sparse vector per class that can grow and shrink.

Memory is O(number of non-zero weights + number of classes), plus a little per feature. `ClassVectors` is the interface.
weights_kernels describes the arrays and the loops over them. Rows may have a dense part. Every class then has weights
for all of its features, in a plain array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, csr_pattern, frozen
from longtail.errors import InputError
from longtail.hybrid import HybridRows, Rows
from longtail.matrix import canonical_csr
from longtail.methods.memoir import reading_kernels
from longtail.methods.memoir import weights_kernels as kernels
from longtail.methods.state import with_room
from longtail.models.dense_kernels import PANEL_LABELS

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
    dense: np.ndarray  # (rows, n_dense); most data have no dense features

    @classmethod
    def of(cls, X: Rows) -> CsrRows:
        if isinstance(X, HybridRows):
            return cls(*csr_parts(X.sparse), frozen(X.dense, np.float32))
        return cls(*csr_parts(X), frozen(np.empty((X.shape[0], 0)), np.float32))


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
    # (features, N_TOP), or empty if nothing reads them
    top_classes: np.ndarray
    top_values: np.ndarray
    dense: np.ndarray  # (groups, panels, n_dense, 32) values of the dense features; 32 classes of a group share a panel
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
    With `indexed=False`, only the top classes of each feature are known, unless `with_top=False`. A class is truncated
    only if the weights that become zero have at most `limit` times its length. `dense_columns` are the features of the
    dense part of the rows, if they have one. Their weights are never truncated.
    """

    def __init__(
        self,
        n_classes: int,
        n_features: int,
        *,
        indexed: bool,
        n_groups: int = 1,
        with_top: bool = True,
        limit: float = 1.0,
        dense_columns: np.ndarray | None = None,
    ) -> None:
        self.shape = (n_classes, n_features)
        self.dense_columns = np.empty(0, np.int64) if dense_columns is None else dense_columns
        n_panels = 2 * -(-n_classes // (2 * PANEL_LABELS * n_groups)) if len(self.dense_columns) else 0
        n_lists = n_features * n_groups if indexed else 0
        n_postings = FIRST_LENGTH if indexed else 0
        n_with_top = n_features if with_top and not indexed else 0
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
            dense=np.zeros((n_groups, n_panels, len(self.dense_columns), PANEL_LABELS), np.float32),
            free=np.full((2, 64), -1, np.int64),
            used=np.zeros(2, np.int64),
            scale=np.ones(1),
            total_square=np.zeros(1),
            indexed=indexed,
            n_groups=n_groups,
        )
        self.limit = limit
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

    def step(
        self, X: CsrRows, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray, step: float, rho: float = 1.0
    ) -> np.ndarray:
        """Pair by pair, if the margin of row i over its rival is below rho: w_rival -= step x_i, w_target += step x_i.

        Returns a boolean array with one entry per pair: whether its classes were moved.
        """
        moved = np.empty(len(rows), np.bool_)
        self._complete(
            len(rows),
            lambda begin: kernels.step_rows(self.arrays, X, rows, targets, rivals, rho, step, begin, moved),
        )
        return moved

    def add_rows(self, X: CsrRows, classes: np.ndarray, rows: np.ndarray, factors: np.ndarray) -> None:
        """v_c += factors[k] x_i for c = classes[k] and i = rows[k]. Only for vectors without inverted lists."""
        self._complete(len(classes), lambda begin: kernels.add_rows(self.arrays, X, classes, rows, factors, begin))

    def add_vectors(self, source: ClassVectors, classes: np.ndarray, factors: np.ndarray) -> None:
        """v_c += factors[k] s_c for c = classes[k], with the stored vectors s_c of `source`. The lengths of the vectors
        are not updated. Only for vectors without inverted lists."""
        self._complete(
            len(classes),
            lambda begin: kernels.add_vectors(self.arrays, source.arrays, classes, factors, begin),
        )

    def load(self, W: sp.csr_array) -> None:
        """Set the vectors, which must be empty, to the rows of W. All tables and lists get their final size at once."""
        counts = np.diff(W.indptr)
        table_bits = _bits(counts * 4 / 3, kernels.FIRST_TABLE)
        starts, n_slots = _segments(table_bits)
        arrays: dict[str, Any] = {"starts": starts, "bits": table_bits, "counts": counts.astype(np.uint32)}
        keys = np.full(max(n_slots, FIRST_LENGTH), kernels.EMPTY)
        arrays |= {"keys": keys, "values": np.empty(len(keys), np.float32), "places": np.empty(0, np.uint32)}
        n_postings = 0
        if self.arrays.indexed:
            groups = np.repeat(np.arange(W.shape[0]) % self.arrays.n_groups, counts)
            lists = W.indices.astype(np.int64) * self.arrays.n_groups + groups
            list_bits = _bits(np.bincount(lists, minlength=len(self.arrays.list_bits)), kernels.FIRST_LIST)
            list_starts, n_postings = _segments(list_bits)
            size = max(n_postings, FIRST_LENGTH)
            arrays |= {"list_starts": list_starts, "list_bits": list_bits, "places": np.empty(len(keys), np.uint32)}
            arrays |= {"posting_classes": np.empty(size, np.uint32), "posting_values": np.empty(size, np.float32)}
        self.arrays = self.arrays._replace(**arrays)
        self.arrays.used[:] = n_slots, n_postings
        kernels.load_rows(self.arrays, CsrRows.of(W))

    def _complete(self, n: int, work_from: Callable[[int], int]) -> None:
        """Call a kernel until all n items are done. It stops when an arena is too short, and returns the next item."""
        n_done = 0
        while n_done < n:
            n_done = work_from(n_done)
            if n_done < n:
                self._lengthen()

    def shrink(self, factor: float) -> float:
        """W *= factor, by changing the scale.

        Returns the factor by which the stored values were multiplied. It is 1 unless the scale became very small.
        """
        self.arrays.scale[0] *= factor
        scale = self.scale
        if scale >= SMALLEST_SCALE:
            return 1.0
        with np.errstate(all="ignore"):  # unused entries of the arenas hold arbitrary values
            for values in (self.arrays.values, self.arrays.posting_values, self.arrays.top_values, self.arrays.dense):
                values *= np.float32(scale)
        self.arrays.squares[:] *= scale**2
        self.arrays.total_square[0] *= scale**2
        self.arrays.scale[0] = 1.0
        return scale

    def due(self, classes: np.ndarray, amount: float, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Return which of these classes are to be truncated now, and by how much.

        Truncation reads all weights of a class, so it is postponed. A class is truncated at every `every`-th call that
        includes it, or when the postponed amounts add up to MAX_PENDING. It is then truncated by their sum, unless it
        would lose too much.
        """
        self.pending[classes] += amount
        self.n_pending[classes] += 1
        due = classes[(self.n_pending[classes] >= every) | (self.pending[classes] >= MAX_PENDING)]
        amounts = self._bearable(due, self.pending[due])
        self.pending[due] = 0.0
        self.n_pending[due] = 0
        return due[amounts > 0], amounts[amounts > 0]

    def _bearable(self, classes: np.ndarray, amounts: np.ndarray) -> np.ndarray:
        """Return the amounts, with 0 for classes where truncation would remove weights of too great a length."""
        if self.limit >= 1.0:
            return amounts
        lost = np.empty(len(classes))
        reading_kernels.lost_squares(self.arrays, classes, amounts / self.scale, lost)
        return np.where(lost <= self.limit**2 * np.maximum(self.arrays.squares[classes], 0.0), amounts, 0.0)

    def truncate(self, classes: np.ndarray, amounts: np.ndarray) -> None:
        """Move all weights of classes[k] towards zero by amounts[k], and remove those that become zero: eq. (13)."""
        size = int(self.arrays.counts[classes].max(initial=0))
        room = np.empty(size, np.uint32), np.empty(size, np.float32), np.empty(size, np.uint32)
        kernels.truncate_classes(self.arrays, classes, amounts / self.scale, *room)

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
        pending = self._bearable(np.arange(self.shape[0]), self.pending)
        reading_kernels.fill_csr(self.arrays, pending, indptr, indices, data)
        W = sp.csr_array((data, indices, indptr.astype(index_type)), shape=self.shape)
        W.sort_indices()
        W.eliminate_zeros()
        return canonical_csr(W + self._dense_csr()) if len(self.dense_columns) else W

    def _dense_csr(self) -> sp.csr_array:
        """The weights of the dense features."""
        by_class = self.arrays.dense.transpose(1, 3, 0, 2).reshape(-1, len(self.dense_columns))[: self.shape[0]]
        found = sp.coo_array(np.float32(self.scale) * by_class)
        return sp.csr_array((found.data, (found.row, self.dense_columns[found.col])), shape=self.shape)

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


def _bits(sizes: np.ndarray, least: int) -> np.ndarray:
    """log2 of the smallest segment for each size: a power of two of at least 2^least entries. 0 for the size 0."""
    exact = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.uint8)
    return np.where(sizes > 0, np.maximum(exact, np.uint8(least)), np.uint8(0))


def _segments(bits: np.ndarray) -> tuple[np.ndarray, int]:
    """The starts of consecutive segments of 2^bits entries, and their total length. There is none where bits is 0."""
    ends = np.cumsum(np.where(bits > 0, np.int64(1) << bits.astype(np.int64), 0))
    return np.concatenate([[0], ends[:-1]]).astype(np.int64), int(ends[-1]) if len(ends) else 0
