"""What a problem will take, from a timed sample of its work: CPU time, working memory, and the size of the model.

Every method has its own kind of sample, because a sample must keep what determines the cost:

    one-vs-all   blocks of some labels, on all rows (one_vs_all/forecast.py)
    mach         some rows for the time, some buckets for the number of weights (mach/forecast.py)
    pd-sparse,   the first steps for the time, some labels with all their rows for the number of weights (`of_coupled`)
    memoir

Times are CPU times of the threads that solve the sample, so that other programs on the machine disturb little. The
first call of a kernel compiles it or loads it from the disk, so every sample begins with a small one that is not timed.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.models.sharded import WEIGHT_BYTES
from longtail.parallel import Stopped, Work
from longtail.store import stored_bytes

if TYPE_CHECKING:
    from longtail.methods.problem import CoupledProblem, Part

SAMPLE_SHARE, SAMPLE_SECONDS = 0.03, 10.0  # a sample takes at most this share of the work, and at most this time;
MIN_SAMPLE_SECONDS = 0.5  # but less time than this says little, and nobody notices it
TIMER = 0.10  # how far two timings of the same work may differ


class Range(NamedTuple):
    """An estimate: the likely value, and the values between which the true one should be."""

    low: float
    likely: float
    high: float

    @classmethod
    def around(cls, likely: float, doubt: float) -> Range:
        """The range from likely / (1 + doubt) to likely (1 + doubt)."""
        return cls(likely / (1 + doubt), likely, likely * (1 + doubt))

    def times(self, factor: float) -> Range:
        return Range(*(factor * value for value in self))

    def plus(self, amount: float) -> Range:
        return Range(*(amount + value for value in self))


@dataclass(frozen=True)
class Forecast:
    """What solving all blocks of a problem will take.

    cpu_seconds : of all threads together
    busy_threads : how many threads work at a time, on average; never more than there are
    model_bytes : the weights of the model in memory
    thread_bytes : the working memory of a thread, or of the only block
    stack_bytes : what the stack holds while parts arrive, with the model itself
    sample : the sample in words
    sample_seconds : CPU seconds of the sample
    disk_bytes : the weights in a model folder, without an index; None if they take as much as in memory
    block_threads : how many threads can work on a block
    """

    cpu_seconds: Range
    busy_threads: float
    model_bytes: Range
    thread_bytes: float
    stack_bytes: float
    sample: str
    sample_seconds: float
    disk_bytes: Range | None = None
    block_threads: int = 1


@dataclass
class Stopwatch:
    """Adds up the CPU time that samples have taken, and decides whether there is time for another one."""

    spent: float = 0.0
    laps: list[float] = field(default_factory=list)

    @contextmanager
    def lap(self) -> Iterator[None]:
        begin = time.thread_time()
        yield
        self.laps.append(time.thread_time() - begin)
        self.spent += self.laps[-1]

    def has_time_for(self, seconds: float, work: float) -> bool:
        """Whether another sample of `seconds` fits, if all the work takes `work` seconds."""
        limit = min(SAMPLE_SECONDS, max(MIN_SAMPLE_SECONDS, SAMPLE_SHARE * work))
        return self.spent + seconds <= limit


def allocated(task: Callable[[], object]) -> int:
    """The largest number of bytes that the arrays of `task` take at a time."""
    is_tracing = tracemalloc.is_tracing()
    if not is_tracing:
        tracemalloc.start(1)
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        task()
        return max(0, tracemalloc.get_traced_memory()[1] - before)
    finally:
        if not is_tracing:
            tracemalloc.stop()


def spread(total: int, count: int, offset: float = 0.5) -> np.ndarray:
    """`count` numbers from 0 to total - 1 at equal distances. The offset, from 0 to 1, shifts them."""
    return np.unique(((np.arange(count) + offset) * total / max(count, 1)).astype(np.int64))


def weights_of_all(labels: np.ndarray, weights: np.ndarray, n_positive: np.ndarray) -> float:
    """The number of weights of all labels, from the numbers `weights` of some labels.

    Labels with about the same number of positives have about the same number of weights. A label gets the mean of the
    sampled labels with about as many positives. Between these means, the function is linear.
    """
    size = np.log2(1 + n_positive)
    _, at = np.unique(np.round(2 * size[labels]), return_inverse=True)
    counts = np.bincount(at)
    means, places = np.bincount(at, weights) / counts, np.bincount(at, size[labels]) / counts
    return float(np.interp(size[n_positive > 0], places, means).sum())


def disk_bytes(weights: np.ndarray, features: np.ndarray, n_weights: Range, n_labels: int) -> Range:
    """The bytes of all weights in a model folder, given the weights of a sample and their features."""
    with np.errstate(over="ignore"):
        half = bool((weights.astype(np.float16) == weights).all())
    counts = np.bincount(features) * (n_weights.likely / max(len(features), 1))
    return n_weights.times(stored_bytes(counts, n_labels, half=half) / max(n_weights.likely, 1.0))


# --- problems of one block -------------------------------------------------------------------------------------------

WARM_ROWS = 50  # rows of the problem that compiles the kernels
FIRST_LABELS = 64  # labels of the first sample; each further sample has twice as many
MIN_LABELS = 512  # with fewer labels, rows are sampled instead
MIN_ROWS = 200
MAX_SHARE = 0.25  # the largest smaller problem
SMALL_BYTES = 150  # per weight; enough for a problem so small that all of it was solved
PACE = Range(0.7, 1.0, 1.5)  # mean time of a step of training, against the first steps
TOUCHED = 0.6  # resident memory of a large problem, against what smaller ones allocate per weight
WEIGHTS_DOUBT = 0.2


def of_coupled(problem: CoupledProblem, X: sp.csr_array, Y: sp.csr_array, n_threads: int) -> Forecast:
    """Begin to solve the problem, and stop after a while, for the time. Solve a smaller one to the end, for the size.

    The smaller problem has some of the labels, and all rows that have one of them. A label keeps all its rows, so it
    gets about as many weights as in the whole problem. The first steps of training take about as long as later ones:
    lists of weights become longer, but fewer rows violate their margin. PACE is what remains of the difference.
    """
    n_rows = WARM_ROWS
    while (small := _like(problem, X[:n_rows], Y[:n_rows])) is None and n_rows < X.shape[0]:
        n_rows *= 2
    if small is not None:
        small.solve(problem.blocks()[0], Work(n_threads))  # compiles
    watch = Stopwatch()
    with watch.lap():
        settled = problem.settled(n_threads)
    begun = _Begun()
    part = begun.solve(settled, n_threads)
    watch.spent += begun.spent
    if part is not None:  # all of it was quick
        n_weights, sample = Range.around(len(part.arrays["W_data"]), 0.0), "all of the work"
        arrays = part.arrays
        working, pace = SMALL_BYTES * n_weights.likely, Range.around(1.0, TIMER)
    else:
        sizes = _Sizes(settled, X, Y, n_threads, begun.seconds, watch)
        n_weights, working, arrays = sizes.n_weights, sizes.working_bytes, sizes.arrays
        pace = PACE.times(problem.effort(begun.share))
        sample = f"the first {begun.share:.1%} of the work, and {sizes.n_pairs:,} of {Y.nnz:,} pairs of row and label"
    return Forecast(
        cpu_seconds=Range(*(begun.seconds * factor for factor in pace)),
        busy_threads=max(1.0, min(begun.busy, n_threads)),
        model_bytes=n_weights.times(WEIGHT_BYTES).plus(8 * Y.shape[1]),
        thread_bytes=working,
        stack_bytes=0.0,  # the part becomes the model as it is
        sample=sample,
        sample_seconds=watch.spent,
        disk_bytes=disk_bytes(arrays["W_data"], arrays["W_indices"], n_weights, Y.shape[1]),
    )


class _Sizes:
    """The number of weights and the working memory, from smaller problems."""

    def __init__(
        self,
        problem: CoupledProblem,
        X: sp.csr_array,
        Y: sp.csr_array,
        n_threads: int,
        seconds: float,
        watch: Stopwatch,
    ) -> None:
        self.X, self.Y, self.n_threads = X, Y, n_threads
        self.counts = np.bincount(Y.indices, minlength=Y.shape[1])
        self.order = np.argsort(-self.counts, kind="stable")[: np.count_nonzero(self.counts)]
        share = min(MAX_SHARE / 4, max(FIRST_LABELS / max(len(self.order), 1), MIN_ROWS / max(X.shape[0], 1)))
        self.problem = problem
        memory, found = _Memory(), list[float]()
        while True:
            with watch.lap():
                used = allocated(lambda share=share: self._solve(share))  # type: ignore[misc]
            memory.add(int(self.weights.sum()), used)
            found.append(self._all_weights())
            share *= 2
            if share > MAX_SHARE or (memory.is_known and not watch.has_time_for(2 * watch.laps[-1], seconds)):
                break
        likely = float(np.mean(found[-2:]))
        self.n_weights = Range.around(likely, WEIGHTS_DOUBT)
        self.working_bytes = memory.of_weights(likely)

    def _all_weights(self) -> float:
        """The weights of all labels, from those of the last problem."""
        found = float(self.weights.sum()) * self.Y.nnz / max(self.n_pairs, 1)
        if len(self.order) >= MIN_LABELS:
            found = weights_of_all(self.columns, self.weights, self.counts)
        return float(min(found, len(self.order) * (self.X.shape[1] + 1.0)))

    def _solve(self, share: float) -> None:
        """Solve a smaller problem. Keep its labels, its weights, their number per label, and its number of pairs."""
        problem = None
        while problem is None and share < 1:
            rows, columns = _some(self.Y, self.order, share)
            some = sp.csr_array(self.Y[rows][:, columns])
            problem = _like(self.problem, self.X[rows], some)
            share *= 2
        if problem is None:  # no part of the rows will do
            problem, some, columns = self.problem, self.Y, np.arange(self.Y.shape[1])
        self.arrays = problem.solve(problem.blocks()[0], Work(self.n_threads)).arrays
        self.columns, self.weights, self.n_pairs = columns, np.diff(self.arrays["W_indptr"]), some.nnz


def _like(problem: CoupledProblem, X: sp.csr_array, Y: sp.csr_array) -> CoupledProblem | None:
    """The same problem on fewer rows. None if they are too few for its parameters, such as several values of C, which
    are compared on held-out rows."""
    try:
        return problem.like(X, Y)
    except InputError:
        return None


def _some(Y: sp.csr_array, order: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a sample: this share of the labels in `order` and their rows. If there are few labels, all of
    them and this share of the rows."""
    if len(order) < MIN_LABELS:
        return spread(Y.shape[0], math.ceil(share * Y.shape[0])), np.arange(Y.shape[1])
    columns = np.sort(order[spread(len(order), math.ceil(share * len(order)))])
    return np.flatnonzero(np.diff(Y[:, columns].indptr)), columns


@dataclass
class _Memory:
    """Working memory as a function of the weights: something for every feature, and something for every weight.

    The two largest problems determine both. In smaller ones, most of a table or list is empty. Arrays grow ahead of the
    need, and take no memory where nothing is written; and tables are fuller in large problems. TOUCHED is what remains.
    """

    weights: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)

    def add(self, weights: int, used: int) -> None:
        self.weights.append(weights)
        self.used.append(used)

    @property
    def is_known(self) -> bool:
        return len(self.weights) > 2

    def of_weights(self, n_weights: float) -> float:
        used, weights = self.used[-1], max(self.weights[-1], 1)
        more = weights - self.weights[-2] if len(self.weights) > 1 else 0
        per_weight = max(0.0, (used - self.used[-2]) / more) if more > 0 else used / weights
        return TOUCHED * (max(0.0, used - per_weight * weights) + per_weight * n_weights)


class _Begun:
    """Receives the progress of a block, and stops it when the sample is long enough.

    `seconds` is the CPU time of all of the block, at the pace of what was done.
    """

    def __init__(self) -> None:
        self.begin = self.clock = _process_clock()
        self.share = 0.0
        self.first: tuple[float, float] | None = None  # share and CPU seconds of the first report

    def report(self, share: float) -> None:
        self.clock, self.share = _process_clock(), share
        if self.first is None:
            self.first = share, self.spent
        elif self.spent >= max(MIN_SAMPLE_SECONDS, min(SAMPLE_SECONDS, SAMPLE_SHARE * self.seconds) / 3):
            raise Stopped

    def solve(self, problem: CoupledProblem, n_threads: int) -> Part | None:
        """Begin the problem. Return its part if it was solved before the sample was long enough."""
        try:
            part = problem.solve(problem.blocks()[0], Work(n_threads, self.report))
        except Stopped:
            return None
        self.clock, self.share = _process_clock(), 1.0
        return part

    @property
    def spent(self) -> float:
        return self.clock.cpu - self.begin.cpu

    @property
    def busy(self) -> float:
        """How many threads work at a time if the machine has nothing else to do.

        The thread that solves the block takes part in all that its team does, and does the rest alone. So its CPU time
        is the time that passes on an idle machine.
        """
        return self.spent / max(self.clock.own - self.begin.own, 1e-9)

    @property
    def seconds(self) -> float:
        share, before = self.first or (0.0, 0.0)
        if self.share >= 1.0 or self.share <= share:
            return self.spent
        return before + (self.spent - before) * (1.0 - share) / (self.share - share)


class _Clock(NamedTuple):
    cpu: float  # of all threads
    own: float  # of this thread


def _process_clock() -> _Clock:
    return _Clock(time.process_time(), time.thread_time())
