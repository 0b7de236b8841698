"""The working state of the dual solver: 32 labels at a time, one in each lane, and the buffers that they need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longtail.methods.one_vs_all.dual_kernels import LINES_AHEAD, MORE_OUTPUT, MORE_ROWS
from longtail.methods.one_vs_all.inputs import Samples
from longtail.methods.one_vs_all.lane_intrinsics import DENSE_ROWS, LABEL_LANES

MIN_ROOM = 1024  # rows that a lane has room for


class DualRule(NamedTuple):
    """The parameters that the kernels of the dual solver read."""

    C: float
    tol: float  # relative duality gap at which a label is solved
    prune: float
    holds_out: bool = False  # whether solved labels score held-out rows before they leave their lane


LANE = np.dtype(  # what is known of one lane; one array instead of many keeps kernels quick to compile
    [
        ("phase", np.int64),
        ("position", np.int64),  # of the label in the block
        ("rounds", np.int64),
        ("start", np.int64),  # of its working set in `rows` and `alpha`, and for how many rows there is room
        ("room", np.int64),
        ("need", np.int64),  # rows that it needs room for
        ("n_rows", np.int64),  # of the working set, the positives first
        ("n_positive", np.int64),
        ("n_listed", np.int64),  # rows of the working set whose sparse features are listed
        ("n_features", np.int64),  # sparse features that are listed; they have weights in the panel
        ("want", np.int64),  # how many rows may join the working set
        ("n_found", np.int64),  # rows outside the working set with large slack
        ("cost", np.float64),  # of the label's own rows; C for all others
        ("loss", np.float64),  # sums of squared slacks, of the negative rows and of the positive ones
        ("positive_loss", np.float64),
        ("dual", np.float64),  # D(alpha), |w|^2 and the bias weight
        ("norm", np.float64),
        ("bias_weight", np.float64),
    ]
)


class Lanes(NamedTuple):
    """The labels being solved, one per lane.

    The lists of rows of all lanes share one array. A lane has room for its working set at start .. start + room of
    `rows` and `alpha`, and for twice as many rows found from 2 start on in `found`. Lanes with few rows thus need
    little room.

    The scores of lane b are factor[b] base + offset[b] + X panel[:, b] + dense dense_panel[:, b]. Bit b of positive[i]
    says that row i has the label, bit b of member[i] that it is in the working set, and bit b of users[f] that feature
    f is in the list of the lane.
    """

    each: np.ndarray  # (32,) of LANE
    rows: np.ndarray  # the working sets, and their alphas
    alpha: np.ndarray
    features: np.ndarray  # (32, n_sparse + LINES_AHEAD) the lists of sparse features of the working sets
    users: np.ndarray  # (n_sparse,)
    panel: np.ndarray  # (n_sparse, 32), bfloat16 as uint16, or float32
    dense_panel: np.ndarray  # (n_dense, 32)
    factor: np.ndarray  # (32,)
    offset: np.ndarray  # (32,)
    tau: np.ndarray  # (32,) rows with less slack do not matter
    positive: np.ndarray  # (n,)
    member: np.ndarray  # (n,)
    found: np.ndarray  # rows outside the working sets with large slack, and their slack
    found_slack: np.ndarray
    found_bits: np.ndarray  # the same memory as unsigned integers


class LaneScratch(NamedTuple):
    """Buffers for one lane at a time: its weights, and what `descend` and `hold_out` need for the rows of its working
    set."""

    w: np.ndarray  # (n_sparse,) and (n_dense,), zero between two lanes
    w_dense: np.ndarray
    order: np.ndarray
    step: np.ndarray  # 1 / Q of `descend`
    rows: np.ndarray  # the working set without held-out rows, and its alphas
    alpha: np.ndarray


class PassScratch(NamedTuple):
    """Buffers of a pass: for a row (32,) arrays over lanes, and the products of some dense rows."""

    part: np.ndarray  # losses of the last rows
    slack: np.ndarray
    offset: np.ndarray
    dense_rows: np.ndarray  # (DENSE_ROWS,)
    products: np.ndarray  # (DENSE_ROWS, 32)


class DualOutput(NamedTuple):
    """Labels in the order in which they end: entry k is label number order[k] of the block.

    Its weights are data[ends[k] : ends[k + 1]] at the features `indices`.
    """

    indices: np.ndarray
    data: np.ndarray
    ends: np.ndarray
    order: np.ndarray
    status: np.ndarray
    n_iter: np.ndarray
    figures: np.ndarray  # objective, relative gap, NaN (the gradient is not known), active rows


class DualSpace:
    """The buffers of one thread for `n_labels` labels; those for working sets and output grow as labels need them.

    `begin` makes them ready for other labels of the same X, so that a thread needs them only once.
    """

    def __init__(self, X: Samples, n_labels: int, panel_type: type) -> None:
        def floats() -> np.ndarray:
            return np.zeros(LABEL_LANES, np.float32)

        (n, n_dense), d = X.dense.shape, X.n_sparse
        self.lanes = Lanes(
            each=np.zeros(LABEL_LANES, LANE), rows=np.zeros(0, np.uint32), alpha=np.zeros(0),
            features=np.zeros((LABEL_LANES, d + LINES_AHEAD), np.uint32), users=np.zeros(d, np.uint32),
            panel=_on_cache_lines(d, panel_type),
            dense_panel=_on_cache_lines(n_dense, np.float32), factor=floats(), offset=floats(), tau=floats(),
            positive=np.zeros(n, np.uint32), member=np.zeros(n, np.uint32),
            found=np.zeros(0, np.uint32), found_slack=np.zeros(0, np.float32), found_bits=np.zeros(0, np.uint32),
        )  # fmt: skip
        self.scratch = LaneScratch(
            w=np.zeros(d, np.float32), w_dense=np.zeros(n_dense, np.float32),
            order=np.zeros(0, np.uint32), step=np.zeros(0), rows=np.zeros(0, np.uint32), alpha=np.zeros(0),
        )  # fmt: skip
        self.pass_scratch = PassScratch(
            part=floats(), slack=floats(), offset=floats(), dense_rows=np.zeros(DENSE_ROWS, np.uint64),
            products=np.zeros((DENSE_ROWS, LABEL_LANES), np.float32),
        )  # fmt: skip
        self.out = DualOutput(
            indices=np.zeros(0, np.uint32), data=np.zeros(0, np.float32), ends=np.zeros(1, np.int64),
            order=np.zeros(0, np.int64), status=np.zeros(0, np.uint8), n_iter=np.zeros(0, np.int32),
            figures=np.zeros((0, 4)),
        )  # fmt: skip
        self.begin(n_labels)
        for more in (MORE_ROWS, MORE_OUTPUT):
            self.grow(more)

    def begin(self, n_labels: int) -> None:
        """Make the output ready for `n_labels` labels. All lanes are empty before the first and after the last."""
        self.cursor = np.zeros(2, np.int64)  # next label, labels done
        self.out = self.out._replace(
            ends=np.zeros(n_labels + 1, np.int64), order=np.zeros(n_labels, np.int64),
            status=np.zeros(n_labels, np.uint8), n_iter=np.zeros(n_labels, np.int32), figures=np.zeros((n_labels, 4)),
        )  # fmt: skip

    def grow(self, which: int) -> None:
        """Double what `prepare` had no room for."""
        if which == MORE_ROWS:
            self._make_room_for_rows()
        else:
            out = self.out
            size = max(2 * len(out.indices), LABEL_LANES * (len(self.lanes.panel) + len(self.lanes.dense_panel) + 1))
            self.out = out._replace(indices=_widened(out.indices, size), data=_widened(out.data, size))

    @property
    def room(self) -> int:
        """How many more weights fit into the output."""
        return len(self.out.indices) - int(self.out.ends[self.cursor[1]])

    def _make_room_for_rows(self) -> None:
        """Give every lane room for twice as many rows as it needs, and move what it has."""
        old = self.lanes
        each = old.each.copy()
        each["room"] = np.maximum(MIN_ROOM, 2 * each["need"])
        each["start"] = np.cumsum(each["room"]) - each["room"]
        total = each["room"].sum()
        rows, alpha = np.zeros(total, np.uint32), np.zeros(total)
        for lane, start in zip(old.each, each["start"], strict=True):
            have = slice(lane["start"], lane["start"] + lane["n_rows"])
            rows[start : start + lane["n_rows"]] = old.rows[have]
            alpha[start : start + lane["n_rows"]] = old.alpha[have]
        found, slack = np.zeros(2 * total, np.uint32), np.zeros(2 * total, np.float32)
        self.lanes = old._replace(
            each=each, rows=rows, alpha=alpha, found=found, found_slack=slack, found_bits=slack.view(np.uint32)
        )
        most = each["room"].max()
        self.scratch = self.scratch._replace(
            order=np.zeros(most, np.uint32),
            step=np.zeros(most),
            rows=np.zeros(most, np.uint32),
            alpha=np.zeros(most),
        )


def _on_cache_lines(n_lines: int, panel_type: type) -> np.ndarray:
    """A panel (n_lines, 32) of zeros that begins on a cache line of 64 bytes, so that each line takes few loads."""
    size = n_lines * LABEL_LANES * np.dtype(panel_type).itemsize
    space = np.zeros(size + 64, np.uint8)
    skip = -space.ctypes.data % 64
    return space[skip : skip + size].view(panel_type).reshape(n_lines, LABEL_LANES)


def _widened(array: np.ndarray, size: int) -> np.ndarray:
    wide = np.zeros((*array.shape[:-1], size), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide
