"""The working state of the dual solver: sixteen labels at a time, one to a lane, and the buffers they need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.methods.one_vs_all.dual_kernels import MORE_ENTRIES, MORE_OUTPUT, MORE_ROWS
from longtail.methods.one_vs_all.verify_kernels import LANES

MIN_ROOM = 1024  # rows that a lane has room for


class Rows(NamedTuple):
    """X as `row_parts` gives it, and |x_i|^2 of its rows."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    bias: float
    squares: np.ndarray
    dense: bool


class Lanes(NamedTuple):
    """Sixteen labels being solved: arrays are (16,) except where noted.

    Lists of rows lie one behind the other: lane b has room for the working set at first[b] .. first[b + 1] of `rows`
    and `alpha`, and for twice as many rows found at 2 first[b] of `found`. So lanes with few rows need little room.

    The scores of lane b are factor[b] base + offset[b] + X panel[line_of, b]. Features without a weight in any lane,
    the most by far, all point to line 0 of the panel, which is zero: so what a pass reads of it stays in cache. Bit b
    of positive[i] says that row i has the label, bit b of member[i] that it is in the working set.
    """

    phase: np.ndarray
    position: np.ndarray  # of the label among those to solve
    rounds: np.ndarray
    cost: np.ndarray  # of the label's own rows; C for all others
    first: np.ndarray  # (17,)
    need: np.ndarray  # room for how many rows
    n_rows: np.ndarray  # the working set: rows, the positives first, and their alphas
    n_positive: np.ndarray
    rows: np.ndarray  # (first[16],)
    alpha: np.ndarray  # (first[16],)
    n_features: np.ndarray  # features with a weight in the panel
    features: np.ndarray  # (16, n_features)
    panel: np.ndarray  # (1 + n_features, 16)
    line_of: np.ndarray  # (n_features,)
    users: np.ndarray  # (n_features,) how many lanes have a weight for it
    free: np.ndarray  # (n_features,) a stack of lines that are not in use, and its height
    n_free: np.ndarray  # (1,)
    factor: np.ndarray
    offset: np.ndarray
    positive: np.ndarray  # (n,)
    member: np.ndarray  # (n,)
    tau: np.ndarray  # rows with less slack do not matter
    want: np.ndarray  # how many rows may join the working set
    n_found: np.ndarray  # rows outside the working set with large slack, and their slack
    found: np.ndarray  # (2 first[16],)
    found_slack: np.ndarray  # (2 first[16],)
    loss: np.ndarray  # sums of squared slacks, of the negative rows and of the positive ones
    positive_loss: np.ndarray
    dual: np.ndarray  # D(alpha), |w|^2 and the bias weight
    norm: np.ndarray
    bias_weight: np.ndarray


class Scratch(NamedTuple):
    """Room for one lane at work: the rows of its working set, with features renumbered, and so on."""

    slot: np.ndarray  # feature -> 1 + its number in the working set, 0 outside `gather` and `guess`
    features: np.ndarray
    w: np.ndarray
    x: np.ndarray
    j: np.ndarray
    ends: np.ndarray
    order: np.ndarray
    values: np.ndarray


class Output(NamedTuple):
    """Solved labels as they come: number k is labels[order[k]], with weights indices, data [ends[k] : ends[k + 1]]."""

    indices: np.ndarray
    data: np.ndarray
    ends: np.ndarray
    order: np.ndarray
    status: np.ndarray
    rounds: np.ndarray
    figures: np.ndarray  # objective, relative gap, NaN (the gradient is not known), active rows


class Space:
    """The buffers of one thread; those for working sets and output grow as labels need them."""

    def __init__(self, n: int, d: int, n_labels: int, *, dense: bool = False) -> None:
        def floats() -> np.ndarray:
            return np.zeros(LANES, np.float32)

        def whole() -> np.ndarray:
            return np.zeros(LANES, np.int64)

        self.dense = dense
        self.cursor = np.zeros(2, np.int64)  # next label, labels done
        lines = np.arange(1, d + 1, dtype=np.uint32)  # where rows are dense, all are in use, by a lane beyond the 16
        self.lanes = Lanes(
            phase=whole(), position=whole(), rounds=whole(), cost=np.zeros(LANES),
            first=np.zeros(LANES + 1, np.int64), need=whole(), n_rows=whole(), n_positive=whole(),
            rows=np.zeros(0, np.uint32), alpha=np.zeros(0), n_features=whole(),
            features=np.zeros((LANES, d), np.uint32), panel=_on_cache_lines(d + 1),
            line_of=lines if dense else np.zeros(d, np.uint32), users=np.full(d, dense, np.uint8),
            free=lines[::-1].copy(), n_free=np.full(1, 0 if dense else d), factor=floats(), offset=floats(),
            positive=np.zeros(n, np.uint16), member=np.zeros(n, np.uint16), tau=floats(),
            want=whole(), n_found=whole(), found=np.zeros(0, np.uint32), found_slack=np.zeros(0, np.float32),
            loss=np.zeros(LANES), positive_loss=np.zeros(LANES),
            dual=np.zeros(LANES), norm=np.zeros(LANES), bias_weight=np.zeros(LANES),
        )  # fmt: skip
        self.scratch = Scratch(
            slot=np.zeros(d, np.uint32), features=np.zeros(d, np.uint32), w=np.zeros(d, np.float32),
            x=np.zeros(0, np.float32), j=np.zeros(0, np.uint32), ends=np.zeros(1, np.uint64),
            order=np.zeros(0, np.uint32), values=np.zeros(0, np.float32),
        )  # fmt: skip
        self.out = Output(
            indices=np.zeros(0, np.uint32), data=np.zeros(0, np.float32), ends=np.zeros(n_labels + 1, np.int64),
            order=np.zeros(n_labels, np.int64), status=np.zeros(n_labels, np.int8),
            rounds=np.zeros(n_labels, np.int32), figures=np.zeros((n_labels, 4)),
        )  # fmt: skip
        for more in (MORE_ROWS, MORE_ENTRIES, MORE_OUTPUT):
            self.grow(more)

    def grow(self, which: int) -> None:
        """Double what `prepare` had no room for."""
        lanes, scratch, out = self.lanes, self.scratch, self.out
        if which == MORE_ROWS:
            self._make_room_for_rows()
        elif which == MORE_ENTRIES:
            size = max(1 << 16, 2 * len(scratch.x))
            j = np.zeros(0 if self.dense else size, np.uint32)
            self.scratch = scratch._replace(x=np.zeros(size, np.float32), j=j)
        else:
            size = max(2 * len(out.indices), LANES * (len(lanes.panel) + 1))
            self.out = out._replace(indices=_widened(out.indices, size), data=_widened(out.data, size))

    def _make_room_for_rows(self) -> None:
        """Lay the lists of all lanes out anew, with twice what each needs."""
        old = self.lanes
        room = np.maximum(MIN_ROOM, 2 * old.need)
        first = np.concatenate([[0], np.cumsum(room)])
        rows, alpha = np.zeros(first[-1], np.uint32), np.zeros(first[-1])
        for start, old_start, n_rows in zip(first[:-1], old.first[:-1], old.n_rows, strict=True):
            rows[start : start + n_rows] = old.rows[old_start : old_start + n_rows]
            alpha[start : start + n_rows] = old.alpha[old_start : old_start + n_rows]
        found, slack = np.zeros(2 * first[-1], np.uint32), np.zeros(2 * first[-1], np.float32)
        self.lanes = old._replace(first=first, rows=rows, alpha=alpha, found=found, found_slack=slack)
        most = room.max()
        self.scratch = self.scratch._replace(
            ends=np.zeros(most + 1, np.uint64),
            order=np.zeros(most, np.uint32),
            values=np.zeros(2 * most, np.float32),
        )


def _on_cache_lines(d: int) -> np.ndarray:
    """A panel (d, 16) of zeros whose every row is one cache line of 64 bytes; astride two it would cost two loads."""
    space = np.zeros(d * LANES + LANES, np.float32)
    skip = -space.ctypes.data % 64 // 4
    return space[skip : skip + d * LANES].reshape(d, LANES)


def _widened(array: np.ndarray, size: int) -> np.ndarray:
    wide = np.zeros((*array.shape[:-1], size), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide
