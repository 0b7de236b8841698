"""The weights while they are trained: one growing sparse vector per class, memory O(nnz(W) + number of classes)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, csr_pattern
from longtail.errors import InputError
from longtail.methods.memoir import store_kernels as kernels

FIRST_ROOM = 1 << 16  # entries of an arena before the first time it gets longer
N_CHAMPIONS = 16  # classes
LARGEST_DEBT = 0.05  # truncation that is not put off; weights are around 1
MOST_ENTRIES = 2**32 - 2  # of an arena: links between free blocks are uint32
SMALLEST_SCALE = 1e-8  # stored values are multiplied out before they outgrow float32


class Rows(NamedTuple):
    """X for kernels."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    @staticmethod
    def of(X: sp.csr_array) -> Rows:
        return Rows(*csr_parts(X))


class Labels(NamedTuple):
    """Y for kernels: the labels of row i, none of which can be its rival."""

    indices: np.ndarray
    indptr: np.ndarray

    @staticmethod
    def of(Y: sp.csr_array) -> Labels:
        return Labels(*csr_pattern(Y))


class Store(NamedTuple):
    """The arrays behind `Weights`; see store_kernels. Arrays of the first block have one entry per class, `list_` ones
    one per feature and group; `keys` to `places` are the arena of tables, `classes` and `postings` that of lists."""

    starts: np.ndarray
    bits: np.ndarray  # log2 of the number of slots; 0: no table
    counts: np.ndarray
    norms: np.ndarray  # |v_c|^2
    keys: np.ndarray
    values: np.ndarray
    places: np.ndarray
    list_starts: np.ndarray
    list_bits: np.ndarray
    list_counts: np.ndarray
    classes: np.ndarray
    postings: np.ndarray
    champions: np.ndarray  # (features, a few) classes with large values, or empty
    champion_values: np.ndarray
    free: np.ndarray  # (2, 64) first free block of every size, -1: none
    top: np.ndarray  # (2,) used length of the arenas
    scale: np.ndarray  # (1,)
    square: np.ndarray  # (1,) |V|^2
    indexed: bool
    n_groups: int


class Weights:
    """W = scale V. With `indexed`, V can also be read by feature, for each of `n_groups` groups of classes; without,
    the champions of every feature are known."""

    def __init__(self, n_classes: int, n_features: int, *, indexed: bool, n_groups: int = 1) -> None:
        self.shape = (n_classes, n_features)
        n_lists, room, n_champions = (n_features * n_groups, FIRST_ROOM, 0) if indexed else (0, 0, n_features)
        self.store = Store(
            starts=np.zeros(n_classes, np.int64),
            bits=np.zeros(n_classes, np.uint8),
            counts=np.zeros(n_classes, np.uint32),
            norms=np.zeros(n_classes),
            keys=np.empty(FIRST_ROOM, np.uint32),
            values=np.empty(FIRST_ROOM, np.float32),
            places=np.empty(room, np.uint32),
            list_starts=np.zeros(n_lists, np.int64),
            list_bits=np.zeros(n_lists, np.uint8),
            list_counts=np.zeros(n_lists, np.uint32),
            classes=np.empty(room, np.uint32),
            postings=np.empty(room, np.float32),
            champions=np.full((n_champions, N_CHAMPIONS), -1, np.int32),
            champion_values=np.zeros((n_champions, N_CHAMPIONS), np.float32),
            free=np.full((2, 64), -1, np.int64),
            top=np.zeros(2, np.int64),
            scale=np.ones(1),
            square=np.zeros(1),
            indexed=indexed,
            n_groups=n_groups,
        )
        self.debts = np.zeros(n_classes)  # truncation of W that is still to be done
        self.n_debts = np.zeros(n_classes, np.int64)

    @property
    def scale(self) -> float:
        return float(self.store.scale[0])

    @property
    def norm(self) -> float:
        """|W|_F"""
        return self.scale * float(np.sqrt(max(self.store.square[0], 0.0)))

    @property
    def nnz(self) -> int:
        return int(self.store.counts.sum(dtype=np.int64))

    def step(self, X: Rows, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray, eta: float) -> np.ndarray:
        """Where the margin of x_i over its rival is below 1: w_rival -= eta x_i, w_target += eta x_i. Where it was."""
        moved, done = np.empty(len(rows), np.bool_), 0
        while done < len(rows):
            done = kernels.step_rows(self.store, X, rows, targets, rivals, eta, done, moved)
            if done < len(rows):
                self._lengthen()
        return moved

    def shrink(self, factor: float) -> float:
        """W *= factor, lazily; returns by how much the stored values were multiplied, which is 1 nearly always."""
        self.store.scale[0] *= factor
        scale = self.scale
        if scale >= SMALLEST_SCALE:
            return 1.0
        with np.errstate(all="ignore"):  # free slots hold anything
            for values in (self.store.values, self.store.postings, self.store.champion_values):
                values *= np.float32(scale)
        self.store.norms[:] *= scale**2
        self.store.square[0] *= scale**2
        self.store.scale[0] = 1.0
        return scale

    def truncate(self, classes: np.ndarray, amount: float, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Move all weights of these classes towards zero by `amount`; those that get there are gone: eq. (13).

        Costs all weights of a class, and so a class only pays when it owes for the `every`-th time, or much, all at
        once. Returns the classes that did, and how much.
        """
        self.debts[classes] += amount
        self.n_debts[classes] += 1
        due = classes[(self.n_debts[classes] >= every) | (self.debts[classes] >= LARGEST_DEBT)]
        amounts = self.debts[due]
        self.debts[due], self.n_debts[due] = 0.0, 0
        most = int(self.store.counts[due].max(initial=0))
        room = np.empty(most, np.uint32), np.empty(most, np.float32), np.empty(most, np.uint32)
        kernels.truncate_classes(self.store, due, amounts / self.scale, *room)
        return due, amounts

    def scores(self, X: Rows, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """x_i.w_c for pairs of a row and a class; -inf for a class below 0."""
        out = np.empty(len(rows))
        kernels.score_pairs(self.store, X, rows, classes, out)
        return out * self.scale

    def to_csr(self) -> sp.csr_array:
        """W, one row per class, without zeros; debts are paid in it."""
        indptr = np.zeros(self.shape[0] + 1, np.int64)
        np.cumsum(self.store.counts, out=indptr[1:])
        index_type = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
        indices, data = np.empty(indptr[-1], index_type), np.empty(indptr[-1], np.float32)
        kernels.fill_csr(self.store, self.debts, indptr, indices, data)
        W = sp.csr_array((data, indices, indptr.astype(index_type)), shape=self.shape)
        W.sort_indices()
        W.eliminate_zeros()
        return W

    def last_csr(self) -> sp.csr_array:
        """`to_csr`, after which the weights are of no more use: lists go first, to make room."""
        nothing = np.empty(0, np.uint32)
        self.store = self.store._replace(places=nothing, classes=nothing, postings=np.empty(0, np.float32))
        return self.to_csr()

    def _lengthen(self) -> None:
        """Make the arenas half as long again, one after the other: copies of all at once would be the peak of memory.

        Pages that are never touched take none. (In place, by `resize`, arrays would lose the large pages that NumPy
        asks for, and training a third of its speed.)
        """
        for name in ("keys", "values", "places", "classes", "postings"):
            arena = getattr(self.store, name)
            if len(arena) * 1.5 > MOST_ENTRIES:
                raise InputError(
                    "the model has grown to billions of weights, more than can be numbered; use penalty='l1'"
                )
            longer = np.empty(len(arena) + len(arena) // 2, arena.dtype)
            longer[: len(arena)] = arena
            grown: dict[str, Any] = {name: longer}
            self.store = self.store._replace(**grown)
