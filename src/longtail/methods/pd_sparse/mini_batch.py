"""Active sets, and the arrays of a mini-batch of rows, in the form that kernels take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np

from longtail.methods.pd_sparse.frank_wolfe_kernels import NO_MOVE
from longtail.methods.state import with_room

MEMBER = np.dtype([("label", np.uint32), ("alpha", np.float64)])
SPARE_MEMBERS = 4  # room for negative labels in a row's first active set


class Members(NamedTuple):
    """The active sets. Row i has held[start[i] : start[i] + size[i]], its positive labels first."""

    held: np.ndarray  # records of MEMBER
    start: np.ndarray
    size: np.ndarray
    room: np.ndarray  # records reserved for each row
    used: np.ndarray  # (1,) records reserved so far
    largest: np.ndarray  # (1,) size of the largest set so far

    @classmethod
    def of(cls, n_positive: np.ndarray, positives: np.ndarray) -> Self:
        """The positive labels of every row, with alpha = 0."""
        sizes = n_positive.astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(sizes + SPARE_MEMBERS)])
        held = np.zeros(ends[-1] + ends[-1] // 2 + 1024, MEMBER)
        first = np.repeat(ends[:-1] - np.cumsum(sizes) + sizes, sizes)
        held["label"][first + np.arange(sizes.sum())] = positives
        return cls(
            held=held,
            start=ends[:-1].astype(np.uint64),
            size=n_positive.copy(),
            room=(sizes + SPARE_MEMBERS).astype(np.uint32),
            used=ends[-1:].astype(np.uint64),
            largest=np.array([sizes.max(initial=0)]),
        )

    def copy(self) -> Members:
        return Members(*(part.copy() for part in self))

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays without the unused end of `held`. Records are returned as bytes."""
        return {**self._asdict(), "held": self.held[: int(self.used[0])].view(np.uint8)}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Members:
        """Rebuild the members from a `state`."""
        arrays = {name: state[name].copy() for name in cls._fields}
        arrays["held"] = with_room(arrays["held"].view(MEMBER), 1024)
        return cls(**arrays)

    def reserve(self, more: int) -> None:
        """Make room for this many records."""
        if int(self.used[0]) + more > len(self.held):
            self.held.resize(len(self.held) + len(self.held) // 2 + more, refcheck=False)


class Batch(NamedTuple):
    """The active labels of the rows of a mini-batch: label a of row r at [r, a], positive labels first."""

    size: np.ndarray  # (rows,) number of active labels
    labels: np.ndarray
    alpha: np.ndarray
    z: np.ndarray  # scores

    @classmethod
    def of(cls, n_rows: int, width: int) -> Self:
        return cls(
            size=np.zeros(n_rows, np.int64),
            labels=np.zeros((n_rows, width), np.uint32),
            alpha=np.zeros((n_rows, width)),
            z=np.zeros((n_rows, width)),
        )


class AlphaMoves(NamedTuple):
    """How alphas move: those of the r-th row of a mini-batch at first[r] .. first[r + 1]."""

    first: np.ndarray
    label: np.ndarray
    part: np.ndarray  # the part of the labels that the label belongs to
    step: np.ndarray
    row: np.ndarray
    following: np.ndarray  # the earlier move of the same label, or NO_MOVE

    @classmethod
    def of(cls, n_rows: int, size: int) -> Self:
        return cls(
            first=np.zeros(n_rows + 1, np.int64),
            label=np.zeros(size, np.uint32),
            part=np.zeros(size, np.uint32),
            step=np.zeros(size),
            row=np.zeros(size, np.int64),
            following=np.zeros(size, np.int64),
        )


class Columns(NamedTuple):
    """The entries of some rows, sorted by feature: those of the f-th feature at first[f] .. first[f + 1]."""

    count: np.ndarray  # type: ignore[assignment]  # (features of X,) zero, except while entries are sorted
    feature: np.ndarray
    first: np.ndarray
    row: np.ndarray  # position of the row in the batch
    x: np.ndarray

    @classmethod
    def of(cls, n_features: int, n_entries: int) -> Self:
        return cls(
            count=np.zeros(n_features, np.int64),
            feature=np.zeros(n_entries, np.uint32),
            first=np.zeros(n_entries + 1, np.int64),
            row=np.zeros(n_entries, np.int64),
            x=np.zeros(n_entries, np.float32),
        )


class Scratch(NamedTuple):
    """Working space for the rows of a mini-batch, one after the other."""

    values: np.ndarray  # (width,)
    order: np.ndarray
    solved: np.ndarray
    seen: np.ndarray  # (rows,) the row that dots[s] was computed for
    dots: np.ndarray  # (rows,) <x_r, x_s>
    dense: np.ndarray  # (features,) x_r, and zero between rows
    chain: np.ndarray  # (labels,) the last move of a label

    @classmethod
    def of(cls, n_rows: int, width: int, n_features: int, n_labels: int) -> Self:
        return cls(
            values=np.zeros(width),
            order=np.zeros(width, np.int64),
            solved=np.zeros(width),
            seen=np.zeros(n_rows, np.int64),
            dots=np.zeros(n_rows),
            dense=np.zeros(n_features, np.float32),
            chain=np.full(n_labels, NO_MOVE),
        )
