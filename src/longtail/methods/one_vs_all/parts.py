"""The parts of a one-vs-all problem, which hold weight rows, and the stack that joins them into a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.matrix import LARGEST_INT32, stack_rows
from longtail.methods.one_vs_all.best_labels import BestLabels
from longtail.methods.problem import Block, Folds, Part, Stack
from longtail.models import LinearModel, ShardedModel
from longtail.models.sharded import MAX_SHARDS, WEIGHT_BYTES
from longtail.store import Shelf
from longtail.topk import TopK

FIGURES = ("objective", "gap", "gradient_ratio", "n_active")  # the columns of `figures` in the kernels' output
GROWTH = 1.05  # factor by which arrays grow; small, because NumPy fills the new entries


def part_of(
    block: Block,
    labels: np.ndarray,
    W: sp.csr_array,
    status: np.ndarray,
    n_iter: np.ndarray,
    figures: np.ndarray,
    trace: Mapping[str, np.ndarray] | None = None,
) -> Part:
    """Make a part from the rows of W. W, `figures` and the arrays of `trace` have one row per label."""
    columns = {name: np.ascontiguousarray(column) for name, column in zip(FIGURES, figures.T, strict=True)}
    return Part(block.number, labels, _arrays(W), status, n_iter, {**columns, **(trace or {})})


def _arrays(W: sp.csr_array) -> dict[str, np.ndarray]:
    indices, indptr = W.indices.astype(np.int32, copy=False), W.indptr.astype(np.int64, copy=False)
    return {"data": W.data, "indices": indices, "indptr": indptr}


def weights_of(part: Part, n_columns: int) -> sp.csr_array:
    """The weight rows of a part."""
    arrays = part.arrays["data"], part.arrays["indices"], part.arrays["indptr"]
    return sp.csr_array(arrays, shape=(len(part.items), n_columns))


def merged(parts: Sequence[Part], chosen: np.ndarray, n_columns: int) -> Part:
    """Make one part of the chosen labels. `chosen` holds positions in the concatenation of all parts."""
    W = stack_rows([weights_of(part, n_columns) for part in parts], chosen)
    return replace(
        parts[0],
        items=np.concatenate([part.items for part in parts])[chosen],
        arrays=_arrays(W),
        status=np.concatenate([part.status for part in parts])[chosen],
        n_iter=np.concatenate([part.n_iter for part in parts])[chosen],
        figures={name: np.concatenate([part.figures[name] for part in parts])[chosen] for name in parts[0].figures},
    )


class WeightStack(Stack):
    """Puts weight rows in the order of labels while parts arrive, so that a large model is never held twice.

    twins : for every label, the label whose row it takes: itself or an earlier one.

    A row waits in `pending`, as a view of its part, until all rows before it have arrived. Parts of consecutive labels
    wait for earlier parts only. Parts of subtrees may wait until the end. With a shelf, only the rows of one shard are
    in memory: `data` and `indices` begin with label `first`, and earlier labels are in `shards`.
    folds : the held-out rows whose best labels parts have beside the weights
    """

    def __init__(self, twins: np.ndarray, n_features: int, bias: float, folds: Folds | None = None) -> None:
        self.twins = twins
        self.n_features = n_features
        self.bias = bias
        self.pending: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.indices = np.empty(0, np.int32)
        self.data = np.empty(0, np.float32)
        self.indptr = np.zeros(len(twins) + 1, np.int64)  # over all labels; weights of earlier shards count
        self.n_rows = 0
        self.first = 0
        self.shards: list[LinearModel] = []
        self.shelf: Shelf | None = None
        self.best = None if folds is None else BestLabels(folds)

    def use_shelf(self, shelf: Shelf, most: int) -> None:
        self.shelf = shelf
        self.most = most

    def add(self, part: Part) -> None:
        if self.best is not None and "best" in part.arrays:
            self.best.add(part.arrays["best"])
        else:  # not all labels were scored
            self.best = None
        data, indices, indptr = (part.arrays[name] for name in ("data", "indices", "indptr"))
        done = 0
        while self.shelf is None and (n_next := self._add_next(part.items[done:], data, indices, indptr[done:])):
            done += n_next
            self._append_waiting()
        for row, label in enumerate(part.items[done:].tolist(), done):
            taken = slice(*indptr[row : row + 2])
            self.pending[label] = indices[taken], data[taken]
        self._append_waiting()

    def _append_waiting(self) -> None:
        """Add the rows that are the next ones: those that wait, and copies of earlier rows."""
        while self.n_rows < len(self.twins) and self._append(self.n_rows, int(self.twins[self.n_rows])):
            self.n_rows += 1

    def _add_next(self, labels: np.ndarray, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> int:
        """Add the rows at the beginning of a part that are the next ones, all at once. Returns how many there are."""
        possible = labels[: len(self.twins) - self.n_rows]
        is_next = (possible == self.n_rows + np.arange(len(possible))) & (self.twins[possible] == possible)
        n_next = len(possible) if is_next.all() else int(is_next.argmin())
        first, begun = int(indptr[0]), int(self.indptr[self.n_rows])
        more = int(indptr[n_next]) - first
        self._make_room(begun + more)
        self.indices[begun : begun + more] = indices[first : first + more]
        self.data[begun : begun + more] = data[first : first + more]
        self.indptr[self.n_rows + 1 : self.n_rows + n_next + 1] = begun + indptr[1 : n_next + 1] - first
        self.n_rows += n_next
        return n_next

    def _append(self, label: int, source: int) -> bool:
        """Add the row of `label`, which is the row of `source`. Returns False if that row has not arrived."""
        if source == label and label not in self.pending:
            return False
        indices, data = self.pending.pop(label) if source == label else self._row(source)
        begun = int(self.indptr[label] - self.indptr[self.first])  # weights of the shard so far
        if self.shelf is not None and label > self.first and begun + len(data) > self.most:
            self._put_away(self.shelf, label)
            begun = 0
        self._make_room(begun + len(data))
        self.indices[begun : begun + len(data)] = indices
        self.data[begun : begun + len(data)] = data
        self.indptr[label + 1] = self.indptr[label] + len(data)
        return True

    def _row(self, label: int) -> tuple[np.ndarray, np.ndarray]:
        """A copy of the row of a label that was added before. A view would not survive the next `_resize`."""
        if label >= self.first:
            taken = slice(*(self.indptr[label : label + 2] - self.indptr[self.first]))
            return self.indices[taken].copy(), self.data[taken].copy()
        starts = np.cumsum([0, *(shard.n_labels for shard in self.shards)])
        number = int(np.searchsorted(starts, label, side="right")) - 1
        W = self.shards[number].W
        taken = slice(*W.indptr[label - starts[number] : label - starts[number] + 2])
        return W.indices[taken], W.data[taken]

    def _put_away(self, shelf: Shelf, stop: int) -> None:
        """Write the labels from `first` to `stop` - 1 to the shelf as a shard."""
        if len(self.shards) == MAX_SHARDS:
            raise InputError(
                f"the model has more than {MAX_SHARDS} shards of {WEIGHT_BYTES * self.most:,} bytes; start the run "
                "again with a larger shard_size, which solves no block again"
            )
        self.shards.append(shelf.put(self._piece(stop)))
        self.indices = np.empty(0, np.int32)
        self.data = np.empty(0, np.float32)
        self.first = stop

    def _piece(self, stop: int) -> LinearModel:
        """The model of the labels from `first` to `stop` - 1, which are in memory."""
        indptr = self.indptr[self.first : stop + 1] - self.indptr[self.first]
        self._resize(int(indptr[-1]))
        index_type = np.int32 if indptr[-1] <= LARGEST_INT32 else np.int64
        arrays = self.data, self.indices.astype(index_type, copy=False), indptr.astype(index_type)
        W = sp.csr_array(arrays, shape=(stop - self.first, self.n_features + (self.bias > 0)))
        return LinearModel(W, self.n_features, self.bias)

    def _make_room(self, size: int) -> None:
        if size > len(self.data):
            self._resize(int(GROWTH * size))

    def _resize(self, size: int) -> None:
        for array in (self.indices, self.data):  # in place: the system moves large arrays without copying them
            array.resize(size, refcheck=False)

    def held_out(self) -> list[TopK] | None:
        return None if self.best is None else self.best.top(self.twins)

    def model(self) -> LinearModel | ShardedModel:
        if self.shelf is None or not self.shards:
            return self._piece(len(self.twins))
        self._put_away(self.shelf, len(self.twins))
        return ShardedModel(tuple(self.shards), self.n_features)
