"""V = X'A and W = prox(V) during training: a hash table per feature, and lists for the search.

Sections 4.1 and 4.2 of the paper, laid out for compiled loops. Everything lives in a few large arrays that grow:

    tables   Feature j has a table of 2^b slots. A slot is one record (label, v, at) of 12 bytes. The first slot to try
             for a label is given by the last b bits of its number. Numbers are drawn at random when training begins:
             this is the permutation hash of section 4.2, evaluated once. A table of at least K slots has no
             collisions. v and w share a table, because w = prox(v) is cheap to compute.
    lists    The search reads these: the labels with w != 0 and their w, per feature and subset of the labels (29). `at`
             is the position of a label in its list. A label whose w returns to zero stays, with w = 0, until `rebuild`.
    rows     If more than 1 / ROW_SHARE of the labels have a weight for a feature, the feature stores w of all labels in
             a row instead of a list. Rows are added with vector instructions.

Memory is proportional to the nonzeros of V.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from longtail.methods.pd_sparse import batch_kernels as kernels
from longtail.methods.pd_sparse import table_kernels
from longtail.methods.state import with_room
from longtail.parallel import Team, ranges

SLOT = np.dtype([("label", np.uint32), ("v", np.float32), ("at", np.uint32)])
ENTRY = np.dtype([("label", np.uint32), ("w", np.float32)])
FIRST_SLOTS = 4  # slots of a feature's first table
SIZES = 33  # tables have 2^0 to 2^32 slots
ROW_SHARE = 8
SPARE = 1 << 16  # an array grows by at least this many records
RANGES = 64  # ranges of features, which threads share when they go through all tables

Result = TypeVar("Result")


class WeightTables(NamedTuple):
    """Tables, lists and rows of D features and K labels, in the form that kernels take."""

    slots: np.ndarray
    start: np.ndarray  # (D,) first slot of a feature's table
    mask: np.ndarray  # (D,) number of slots of the table, minus one
    filled: np.ndarray  # (D,) number of labels in the table
    free: np.ndarray  # (SIZES,) for each size, the first unused table; its first slot gives the next unused table
    used: np.ndarray  # (2,) slots and entries reserved so far
    entries: np.ndarray
    list_start: np.ndarray  # (D, subsets)
    list_size: np.ndarray
    list_room: np.ndarray
    row_of: np.ndarray  # (D,) the feature's row, or NOWHERE
    rows: np.ndarray  # (features with a row, K)
    K: int
    subset_width: int  # subset q has the labels from q subset_width on

    @classmethod
    def empty(cls, n_features: int, n_labels: int, subsets: int, capacity: np.ndarray | None = None) -> WeightTables:
        """Empty tables, with room for `capacity` labels per feature."""
        needed = np.full(n_features, 1) if capacity is None else capacity
        sizes = np.maximum(FIRST_SLOTS, 2 ** np.ceil(np.log2(np.maximum(needed, 1) / kernels.FULL)).astype(np.int64))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        slots = np.empty(starts[-1] + SPARE, SLOT)
        slots["label"] = kernels.EMPTY
        slots["v"] = 0.0
        slots["at"] = kernels.NOWHERE
        return cls(
            slots=slots,
            start=starts[:-1].astype(np.uint64),
            mask=(sizes - 1).astype(np.uint32),
            filled=np.zeros(n_features, np.uint32),
            free=np.full(SIZES, kernels.NO_TABLE, np.uint64),
            used=np.array([starts[-1], 0], np.uint64),
            entries=np.empty(SPARE, ENTRY),
            list_start=np.zeros((n_features, subsets), np.uint64),
            list_size=np.zeros((n_features, subsets), np.uint32),
            list_room=np.zeros((n_features, subsets), np.uint32),
            row_of=np.full(n_features, kernels.NOWHERE, np.uint32),
            rows=np.zeros((0, n_labels), np.float32),
            K=n_labels,
            subset_width=-(-n_labels // subsets),
        )

    @property
    def n_subsets(self) -> int:
        return int(self.list_size.shape[1])

    @property
    def n_weights(self) -> int:
        """Number of w != 0 at the last `rebuild`."""
        return int(self.list_size.sum()) + int(np.count_nonzero(self.rows))

    def over_features(self, team: Team, task: Callable[..., Result], *args: Any) -> list[Result]:
        """Run task(begin, end, *args) on ranges of the features. The ranges do not depend on the number of threads."""
        n = len(self.start)
        return team.run(lambda some: task(some.start, some.stop, *args), ranges(n, -(-n // RANGES)))

    def nonzeros(self, lam: float, team: Team) -> np.ndarray:
        """Number of labels with w != 0, by feature and subset."""
        counts = np.empty_like(self.list_size)
        self.over_features(team, table_kernels.count_nonzeros, self, np.float32(lam), counts)
        return counts

    def rebuild(self, lam: float, team: Team) -> WeightTables:
        """The same tables with new lists and rows, for this lam."""
        counts = self.nonzeros(lam, team)
        frequent = np.flatnonzero(counts.sum(axis=1) * ROW_SHARE > self.K)
        row_of = np.full(len(counts), kernels.NOWHERE, np.uint32)
        row_of[frequent] = np.arange(len(frequent))
        counts[frequent] = 0
        room = counts + counts // 4  # spare room, so that few lists have to move
        ends = np.concatenate([[0], np.cumsum(room.ravel(), dtype=np.uint64)])
        new = self._replace(
            entries=np.empty(int(ends[-1]) + max(SPARE, int(ends[-1]) // 4), ENTRY),
            list_start=ends[:-1].astype(np.uint64).reshape(counts.shape),
            list_size=np.zeros_like(counts),
            list_room=room,
            row_of=row_of,
            rows=np.zeros((len(frequent), self.K), np.float32),
        )
        new.used[1] = ends[-1]
        self.over_features(team, table_kernels.fill_lists, new, np.float32(lam))
        return new

    def selected(self, lam: float, team: Team) -> WeightTables:
        """Return tables with only the v whose weight is not zero, |v| > lam (section 4.3)."""
        chosen = WeightTables.empty(len(self.start), self.K, self.n_subsets, self.nonzeros(lam, team).sum(axis=1))
        self.over_features(team, table_kernels.copy_selected, self, np.float32(lam), chosen)
        return chosen

    def square(self, lam: float, team: Team) -> float:
        """sum_k |w_k|^2, with the same bytes for any number of threads."""
        return float(sum(self.over_features(team, table_kernels.square_weights, self, np.float32(lam))))

    def to_csr(self, lam: float, number_of: np.ndarray, team: Team) -> sp.csr_array:
        """W with a row per label. number_of[k] is the number that label k has in these tables."""
        total = int(self.nonzeros(lam, team).sum())
        features = np.empty(total, np.int32)
        labels = np.empty(total, np.int32)
        values = np.empty(total, np.float32)
        table_kernels.list_weights(self, np.float32(lam), features, labels, values)
        by_number = sp.csr_array(sp.coo_array((values, (labels, features)), shape=(self.K, len(self.start))))
        W = sp.csr_array(by_number[number_of])
        W.sort_indices()
        return W

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays without their unused ends. Records are returned as bytes."""
        n_slots, n_entries = self.used.tolist()
        arrays = {name: array for name, array in self._asdict().items() if isinstance(array, np.ndarray)}
        return {
            **arrays,
            "slots": self.slots[:n_slots].view(np.uint8),
            "entries": self.entries[:n_entries].view(np.uint8),
        }

    def restored(self, state: Mapping[str, np.ndarray]) -> WeightTables:
        """Tables with the arrays of a `state`."""
        arrays: dict[str, Any] = {name: array.copy() for name, array in state.items()}
        arrays["slots"] = with_room(arrays["slots"].view(SLOT), SPARE)
        arrays["entries"] = with_room(arrays["entries"].view(ENTRY), SPARE)
        return self._replace(**arrays)

    def grow(self, status: int) -> None:
        """Enlarge the array that a kernel reported as too small. Nothing is copied if the system can remap memory."""
        array = self.slots if status == kernels.MORE_SLOTS else self.entries
        array.resize(len(array) + len(array) // 4 + SPARE, refcheck=False)
