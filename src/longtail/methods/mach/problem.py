"""The training problem of MACH. Repetitions are independent of each other, so blocks are groups of repetitions.
The threads of a block divide its columns among themselves.

X, Y -> MachProblem (rows without unused features, learning rates, hashes) -> groups of repetitions
     -> stochastic gradient descent -> Part(packed weights) -> stack -> HashedModel
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.hybrid import HybridRows
from longtail.methods.forecast import Forecast
from longtail.methods.mach.descent import LAST_EPOCHS, Descent, DescentData, RepetitionGroup
from longtail.methods.mach.forecast import of_repetitions
from longtail.methods.mach.touched import TouchedBuckets
from longtail.methods.problem import Block, Part, Problem, Stack
from longtail.models import HashedModel
from longtail.models.buckets import Buckets, LinearBuckets
from longtail.models.hashing import Hashes
from longtail.parallel import Work
from longtail.training import Status, Training

COLUMNS_TOGETHER = 1024  # buckets trained together; 512 take 6 % more time, 256 take 30 % more, and 2048 are not faster
DENSE_COLUMNS_TOGETHER = 512  # the same if there are dense features, whose weights should stay in the cache


class Kept(NamedTuple):
    """The last fit, whose repetitions a warm start keeps."""

    model: HashedModel
    record: Training


class OldBuckets(NamedTuple):
    """The bucket classifiers that an update begins with, and which rows and labels have changed since."""

    hashes: Hashes  # of all labels, new ones included
    buckets: LinearBuckets
    changed: np.ndarray
    touched: np.ndarray


class RepetitionProblem(Problem):
    """Base class of the problems with the built-in base and with scikit-learn bases.

    `hashes` has all repetitions. The first ones may be kept from an earlier fit.
    """

    unit: ClassVar[str] = "repetition"
    figures: ClassVar[Mapping[str, Any]] = {}  # name -> value for repetitions that have no record

    def __init__(
        self, X: sp.csr_array | np.ndarray | HybridRows, hashes: Hashes, aggregate: str, kept: Kept | None
    ) -> None:
        self.n_features = int(X.shape[1])
        self.hashes = hashes
        self.aggregate = aggregate
        self.kept = kept
        self.first_new = 0 if kept is None else kept.model.hashes.n_repetitions
        _ = hashes.table  # computed here, so that threads do not compute it again

    def groups(self, n_groups: int) -> list[Block]:
        """Return blocks of the new repetitions, of about equal size. Block 0 is reserved for the kept repetitions."""
        new = np.arange(self.first_new, self.hashes.n_repetitions)
        first_number = 0 if self.kept is None else 1
        groups = np.array_split(new, n_groups) if len(new) else []
        return [Block(first_number + at, items, float(len(items))) for at, items in enumerate(groups)]

    def item_of(self) -> np.ndarray:
        return np.arange(self.hashes.n_repetitions)

    def earlier(self) -> list[Part]:
        if self.kept is None:
            return []
        record = self.kept.record
        size = self.first_new
        known = record.unit == self.unit and len(record.status) == size
        figures = {name: np.full(size, value) for name, value in self.figures.items()}
        if known:
            figures |= {name: record.figures[name] for name in figures if name in record.figures}
        part = Part(
            0,
            np.arange(size),
            arrays=self.arrays_of(self.kept.model.buckets),
            status=record.status if known else np.full(size, Status.COMPLETED, np.uint8),
            n_iter=record.n_iter if known else np.zeros(size, np.int32),
            figures=figures,
        )
        return [part]

    def arrays_of(self, buckets: Any) -> Mapping[str, np.ndarray]:
        """The arrays of a part with these bucket classifiers."""
        return LinearBuckets.to_arrays(buckets)

    @abstractmethod
    def buckets_of(self, parts: list[Part]) -> Buckets:
        """The bucket classifiers of all parts, which are in the order of their repetitions."""

    def stack(self) -> RepetitionStack:
        return RepetitionStack(self)


class RepetitionStack(Stack):
    """Collects parts in any order, and makes the model of them in the order of the repetitions."""

    def __init__(self, problem: RepetitionProblem) -> None:
        self.problem = problem
        self.parts: list[Part] = []

    def add(self, part: Part) -> None:
        self.parts.append(part)

    def model(self) -> HashedModel:
        problem = self.problem
        ordered = sorted(self.parts, key=lambda part: int(part.items[0]))
        self.parts = []
        return HashedModel(problem.hashes, problem.buckets_of(ordered), problem.n_features, problem.aggregate)


def n_groups(n_repetitions: int, n_buckets: int, columns_together: int = COLUMNS_TOGETHER) -> int:
    """Return the number of groups in which repetitions are trained. Only time and memory depend on it.

    Repetitions that would exactly fill one group are divided into two, so that two threads can train them.
    """
    together = max(1, columns_together // n_buckets)
    at_least = 2 if n_repetitions * n_buckets >= columns_together else 1
    return max(-(-n_repetitions // together), min(n_repetitions, at_least))


class MachProblem(RepetitionProblem):
    """Canonical X and Y with the built-in base. An update continues from `old` buckets."""

    figures: ClassVar[Mapping[str, Any]] = {"best_iter": np.int32(0), "validation_score": np.float32(np.nan)}

    def __init__(
        self,
        X: sp.csr_array | np.ndarray | HybridRows,
        Y: sp.csr_array,
        hashes: Hashes,
        descent: Descent,
        link: str,
        aggregate: str = "geometric",
        kept: Kept | None = None,
        old: OldBuckets | None = None,
    ) -> None:
        super().__init__(X, hashes, aggregate, kept)
        self.old_buckets = None if old is None else old.buckets
        self.touched = None
        changed = None
        if old is not None:
            _ = old.buckets.matrix  # computed here, so that threads do not compute it again
            changed = old.changed
            touched = TouchedBuckets(hashes, old.touched)
            if link == "sigmoid" and touched.share * descent.max_iter < LAST_EPOCHS:  # less work than to visit all rows
                self.touched = touched
                changed = None
        if isinstance(X, HybridRows) and (descent.early_stopping or old is not None):
            X = X.tocsr()  # held-out rows are scored, and old weights are loaded, in one matrix
        self.data = DescentData(descent, X, Y, link, changed)
        self.settings = {
            "n_buckets": hashes.n_buckets,
            "n_repetitions": hashes.n_repetitions,
            "aggregate": aggregate,
            "link": link,
            **vars(descent),
        }

    def blocks(self) -> list[Block]:
        together = COLUMNS_TOGETHER if self.data.dense is None else DENSE_COLUMNS_TOGETHER
        return self.groups(n_groups(self.hashes.n_repetitions - self.first_new, self.hashes.n_buckets, together))

    def solve(self, block: Block, work: Work) -> Part:
        if self.touched is None:
            group = RepetitionGroup(self.data, self.hashes, block.items, work.n_threads)
        else:
            positions = np.arange(len(block.items))
            group = RepetitionGroup(self.data, self.touched.table(block.items), positions, work.n_threads)
        if self.old_buckets is not None and self.touched is None:
            group.begin_with(self.old_buckets, block.items)
        with work.team() as team:
            group.fit(team, work.report)
        return Part(
            block.number,
            block.items,
            arrays=self.arrays_of(self._all_buckets(group, block).packed()),
            status=np.where(group.stopped, Status.EARLY_STOPPED, Status.COMPLETED).astype(np.uint8),
            n_iter=group.n_iter.astype(np.int32),
            figures={
                "best_iter": group.best_iter.astype(np.int32),
                "validation_score": group.best_score.astype(np.float32),
            },
        )

    def _all_buckets(self, group: RepetitionGroup, block: Block) -> RepetitionGroup:
        """Return the trained group, or all buckets if only those that an update touches were trained."""
        if self.touched is None:
            return group
        assert self.old_buckets is not None
        whole = RepetitionGroup(self.data, self.hashes, block.items)
        whole.begin_with(self.old_buckets, block.items)
        whole.take(group, [self.touched.buckets[r] for r in block.items])
        return whole

    def forecast(self, X: Any, Y: sp.csr_array, n_threads: int) -> Forecast:
        return of_repetitions(self, n_threads)

    def buckets_of(self, parts: list[Part]) -> LinearBuckets:
        n_buckets = self.hashes.n_buckets
        bias = self.data.descent.bias
        link = self.data.link
        return LinearBuckets.joined([LinearBuckets.from_arrays(part.arrays, n_buckets, bias, link) for part in parts])
