"""The weight rows of all labels put in order while blocks of them arrive, so that a large model is never held twice."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

GROWTH = 1.05  # little, because NumPy fills what it adds


class Assembly:
    """Rows in the order of labels; `twins[label]` is the label, itself or an earlier one, whose row a label takes.

    A row waits in `pending`, a view of the block that it came with, until all rows before it are there. Blocks of
    consecutive labels therefore leave nothing waiting; those of a tree may wait to the end.
    """

    def __init__(self, twins: np.ndarray, n_columns: int) -> None:
        self.twins, self.n_columns = twins, n_columns
        self.pending: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.indices, self.data = np.empty(0, np.int32), np.empty(0, np.float32)
        self.indptr, self.n_rows = np.zeros(len(twins) + 1, np.int64), 0

    def add(self, labels: np.ndarray, W: sp.csr_array) -> None:
        """The rows of W belong to these labels."""
        for row, label in enumerate(labels.tolist()):
            taken = slice(*W.indptr[row : row + 2])
            self.pending[label] = W.indices[taken], W.data[taken]
        while self.n_rows < len(self.twins) and self._append(self.n_rows, int(self.twins[self.n_rows])):
            self.n_rows += 1

    def _append(self, label: int, source: int) -> bool:
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
        self.indptr[label + 1] = end = start + len(data)
        self.indices[start:end], self.data[start:end] = indices, data
        return True

    def _make_room(self, size: int) -> None:
        if size > len(self.data):
            self._resize(int(GROWTH * size))

    def _resize(self, size: int) -> None:
        for array in (self.indices, self.data):  # in place: the system moves large arrays without copying them
            array.resize(size, refcheck=False)

    def matrix(self) -> sp.csr_array:
        """All rows; nothing can be added after."""
        self._resize(int(self.indptr[-1]))
        index_type = np.int32 if self.indptr[-1] <= np.iinfo(np.int32).max else np.int64
        parts = self.data, self.indices.astype(index_type, copy=False), self.indptr.astype(index_type)
        return sp.csr_array(parts, shape=(len(self.twins), self.n_columns))
