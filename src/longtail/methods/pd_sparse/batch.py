"""The rows of a batch while they are visited: their active labels, the steps of the alphas, and their features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.methods.pd_sparse import batch_kernels as kernels
from longtail.methods.pd_sparse.rows import Members

LEFT = np.dtype([("feature", np.uint32), ("label", np.uint32), ("change", np.float32)])

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # as `csr_parts` returns them


def row_lengths(rows: np.ndarray, X: Rows) -> np.ndarray:
    """Number of entries of these rows of X."""
    ends = X[2].view(np.int64)
    lengths: np.ndarray = ends[rows + np.uint32(1)] - ends[rows]
    return lengths


class BatchRows(NamedTuple):
    """Row r of the batch has room for active labels, and for steps, from first[r] to first[r + 1]."""

    rows: np.ndarray
    first: np.ndarray
    size: np.ndarray  # number of active labels of each row
    labels: np.ndarray  # active labels, positive ones first
    alpha: np.ndarray
    z: np.ndarray  # their scores
    n_moved: np.ndarray  # number of labels of each row whose alpha changes
    moved: np.ndarray  # these labels
    steps: np.ndarray  # how much the alpha changes
    subsets: np.ndarray  # the subset of the label
    row: np.ndarray  # the row of the step
    previous: np.ndarray  # the step before, in this batch, on the same label

    @classmethod
    def of(cls, rows: np.ndarray, sizes: np.ndarray) -> BatchRows:
        """Room for active sets of these sizes."""
        first = np.zeros(len(rows) + 1, np.uint64)
        np.cumsum(sizes, out=first[1:])
        room = int(first[-1])
        return cls(
            rows=rows,
            first=first,
            size=np.zeros(len(rows), np.int64),
            labels=np.empty(room, np.uint32),
            alpha=np.empty(room),
            z=np.empty(room),
            n_moved=np.zeros(len(rows), np.uint64),
            moved=np.empty(room, np.uint32),
            steps=np.empty(room),
            subsets=np.empty(room, np.uint32),
            row=np.empty(room, np.uint32),
            previous=np.empty(room, np.uint32),
        )

    @property
    def room(self) -> np.ndarray:
        """The number of active labels that each row has room for."""
        return np.diff(self.first.view(np.int64))

    @classmethod
    def from_zero(cls, rows: np.ndarray, members: Members, subset_width: int) -> BatchRows:
        """The steps that lead from alpha = 0 to the alphas of `members`."""
        sizes = members.size[rows].astype(np.uint64)
        batch = cls.of(rows, sizes)
        batch.n_moved[:] = sizes
        ends = np.arange(len(batch.steps), dtype=np.uint64)
        held = members.held[np.repeat(members.start[rows] - batch.first[:-1], sizes.astype(np.int64)) + ends]
        batch.moved[:] = held["label"]
        batch.steps[:] = held["alpha"]
        batch.subsets[:] = held["label"] // subset_width
        return batch


class Columns(NamedTuple):
    """The features of a batch: feature[f] has the values x in the rows `row`, from first[f] to first[f + 1]."""

    feature: np.ndarray
    first: np.ndarray
    row: np.ndarray
    x: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, X: Rows, entries: int, place: np.ndarray) -> Columns:
        """Transpose these rows of X, which have this many entries. place[j] becomes the position of feature j, and
        stays NOWHERE for all others."""
        columns = cls(
            feature=np.empty(entries, np.uint32),
            first=np.empty(entries + 1, np.uint64),
            row=np.empty(entries, np.uint32),
            x=np.empty(entries, np.float32),
        )
        used = kernels.transpose(rows, X, place, columns)
        return columns._replace(feature=columns.feature[:used], first=columns.first[: used + 1])


class RowScratch(NamedTuple):
    """Working space for the update of one row: arrays over its active labels."""

    values: np.ndarray
    order: np.ndarray
    solved: np.ndarray

    @classmethod
    def of(cls, size: int) -> RowScratch:
        return cls(values=np.zeros(size), order=np.zeros(size, np.int64), solved=np.zeros(size))
