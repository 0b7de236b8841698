"""The parts of a one-vs-all problem, which hold weight rows, and the stack that joins them into a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from longtail.matrix import LARGEST_INT32, stack_rows
from longtail.methods.problem import Block, Part, Stack
from longtail.models import LinearModel

FIGURES = ("objective", "gap", "gradient_ratio", "n_active")  # the columns of `figures` in the kernels' output
GROWTH = 1.05  # factor by which arrays grow; small, because NumPy fills the new entries


def part_of(
    block: Block, labels: np.ndarray, W: sp.csr_array, status: np.ndarray, n_iter: np.ndarray, figures: np.ndarray
) -> Part:
    """Make a part from the rows of W. W and `figures` have one row per label."""
    columns = {name: np.ascontiguousarray(column) for name, column in zip(FIGURES, figures.T, strict=True)}
    return Part(block.number, labels, _arrays(W), status, n_iter, columns)


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
        figures={name: np.concatenate([part.figures[name] for part in parts])[chosen] for name in FIGURES},
    )


class WeightStack(Stack):
    """Puts weight rows in the order of labels while parts arrive, so that a large model is never held twice.

    twins : for every label, the label whose row it takes: itself or an earlier one.

    A row waits in `pending`, as a view of its part, until all rows before it have arrived. Parts of consecutive labels
    wait for earlier parts only. Parts of subtrees may wait until the end.
    """

    def __init__(self, twins: np.ndarray, n_features: int, bias: float) -> None:
        self.twins = twins
        self.n_features = n_features
        self.bias = bias
        self.pending: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.indices = np.empty(0, np.int32)
        self.data = np.empty(0, np.float32)
        self.indptr = np.zeros(len(twins) + 1, np.int64)
        self.n_rows = 0

    def add(self, part: Part) -> None:
        data, indices, indptr = (part.arrays[name] for name in ("data", "indices", "indptr"))
        for row, label in enumerate(part.items.tolist()):
            taken = slice(*indptr[row : row + 2])
            self.pending[label] = indices[taken], data[taken]
        while self.n_rows < len(self.twins) and self._append(self.n_rows, int(self.twins[self.n_rows])):
            self.n_rows += 1

    def _append(self, label: int, source: int) -> bool:
        """Add the row of `label`, which is the row of `source`. Returns False if that row has not arrived."""
        start = self.indptr[label]
        if source == label:
            if label not in self.pending:
                return False
            indices, data = self.pending.pop(label)
            self._make_room(start + len(data))
        else:
            taken = slice(*self.indptr[source : source + 2])
            self._make_room(start + taken.stop - taken.start)
            indices, data = self.indices[taken], self.data[taken]
        end = start + len(data)
        self.indptr[label + 1] = end
        self.indices[start:end] = indices
        self.data[start:end] = data
        return True

    def _make_room(self, size: int) -> None:
        if size > len(self.data):
            self._resize(int(GROWTH * size))

    def _resize(self, size: int) -> None:
        for array in (self.indices, self.data):  # in place: the system moves large arrays without copying them
            array.resize(size, refcheck=False)

    def model(self) -> LinearModel:
        self._resize(int(self.indptr[-1]))
        index_type = np.int32 if self.indptr[-1] <= LARGEST_INT32 else np.int64
        arrays = self.data, self.indices.astype(index_type, copy=False), self.indptr.astype(index_type)
        W = sp.csr_array(arrays, shape=(len(self.twins), self.n_features + (self.bias > 0)))
        return LinearModel(W, self.n_features, self.bias)
