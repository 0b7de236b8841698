"""The plan of a fit: time, peak memory and size of the model before training, and what to do if it is too much.

estimator.plan(X, y) -> problem -> forecast (methods/forecast.py: a timed sample of the work) -> Plan
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numba.core import event
from sklearn.base import clone

from longtail import memory, parallel
from longtail.data import TextFeatures
from longtail.errors import InputError
from longtail.matrix import normalize_rows
from longtail.methods import calibrating
from longtail.methods.forecast import Range
from longtail.methods.problem import NO_EXTRAS, Extras
from longtail.models.sharded import SHARD_BYTES
from longtail.words import duration, size

if TYPE_CHECKING:
    from longtail.methods.solving import Job

MEMORY_DOUBT = 0.1  # of the memory beside the model: pages of libraries, and what the allocator keeps
START_SECONDS = 5.0  # until the worker processes of a cluster are ready
LABEL_BYTES, ROW_BYTES = 64, 8  # of a model folder beside the weights: names, records, hashes
EXAMPLE = 4, 16  # nodes and cores of the cluster that an advice mentions
LONG = 3600.0  # a fit of this many seconds should have a run folder


@dataclass(frozen=True)
class Plan:
    """What a fit will take, before it begins. `str(plan)` is readable; `plan.short()` is one line.

    method : name of the method
    n_samples, n_features, n_labels : sizes of the data
    n_blocks : number of independent pieces of work
    n_threads : number of threads
    seconds : wall time
    cpu_seconds : CPU time of all threads together
    block_seconds : CPU time of the longest block
    peak_bytes : largest resident memory of the process, with the data and the libraries
    model_bytes : weights of the model in memory
    disk_bytes : the model folder without an index, in the form that `save` chooses
    needed_bytes : memory that training needs in addition to what the process has now
    free_bytes : memory that is free now
    sample : what was timed
    sample_seconds : CPU time of the sample

    Each of `seconds`, `cpu_seconds`, `peak_bytes`, `model_bytes` and `disk_bytes` has `low`, `likely` and `high`.
    """

    method: str
    n_samples: int
    n_features: int
    n_labels: int
    n_blocks: int
    n_threads: int
    seconds: Range
    cpu_seconds: Range
    block_seconds: float
    setup_seconds: float
    peak_bytes: Range
    model_bytes: Range
    disk_bytes: Range
    needed_bytes: Range
    thread_bytes: float
    block_threads: int  # threads that can work on a block
    shares_memory: bool  # whether the model can be written shard by shard while it is trained
    free_bytes: float
    sample: str
    sample_seconds: float

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def fits(self) -> bool:
        """Whether the likely memory is free."""
        return self.needed_bytes.likely <= self.free_bytes

    @property
    def needed_in_shards(self) -> float:
        """The likely memory if there is a run folder, where a large linear model is written shard by shard."""
        spared = max(0.0, self.model_bytes.likely - SHARD_BYTES) if self.shares_memory else 0.0
        return self.needed_bytes.likely - spared

    def on_cluster(self, nodes: int, cores: int) -> Range:
        """Return the wall seconds on `nodes` machines with `cores` cores each, as fast as the cores of this one."""
        if nodes < 1 or cores < 1:
            raise InputError(f"a cluster has at least one node of one core; got {nodes} x {cores}")
        if self.n_blocks == 1:  # a single machine solves it, with as many threads as can be busy
            at_once = min(cores, max(1.0, self.cpu_seconds.likely / max(self.seconds.likely, 1e-9)))
        else:
            each = min(cores, self.block_threads)
            most = each * self.cpu_seconds.likely / max(self.block_seconds, 1e-9)  # the longest block bounds the time
            at_once = min(nodes * cores, most)
        return self.cpu_seconds.times(1.0 / max(at_once, 1.0)).plus(START_SECONDS + self.setup_seconds)

    def advice(self) -> list[str]:
        """Return what to do if there is too little memory, or if the fit takes long. May be empty."""
        said = []
        if not self.fits:
            fewer = self._threads_that_fit()
            if fewer:
                said.append(f"use fewer threads: --n-jobs {fewer} needs {size(self._needed(fewer))}")
            if self.shares_memory and self.model_bytes.likely > SHARD_BYTES:
                said.append("give a run folder (--run FOLDER): the model is then written shard by shard")
            if self.method == "one-vs-all":
                said.append("store fewer weights: a larger --prune")
            if self.method != "mach":
                said.append("--method mach: Mach.suggest_sizes(…, memory=BYTES) chooses a model for a memory budget")
            else:
                said.append("fewer buckets: Mach.suggest_sizes(…, memory=BYTES) chooses them for a memory budget")
            said.append(f"use a machine with more memory{self._or_cluster()}")
        if self.seconds.likely > LONG:
            said.append(f"training takes long: --run FOLDER keeps what is finished{self._or_cluster()}")
        return said

    def _or_cluster(self) -> str:
        """What a cluster would take, in words. A single block gains nothing from it."""
        if self.n_blocks == 1:
            return ""
        nodes, cores = EXAMPLE
        took = duration(self.on_cluster(nodes, cores).likely)
        return f"; or use a cluster (--workers ray:ADDRESS): {nodes} machines of {cores} cores take about {took}"

    def _needed(self, n_threads: int) -> float:
        return self.needed_bytes.likely - (self.n_threads - n_threads) * self.thread_bytes

    def _threads_that_fit(self) -> int:
        """The largest number of threads that fits into memory, or 0."""
        if self.n_blocks == 1:
            return 0
        return next((n for n in range(self.n_threads - 1, 0, -1) if self._needed(n) <= self.free_bytes), 0)

    def times(self, factor: float) -> Plan:
        """Return the plan of a fit that consists of several fits with `factor` times the work."""
        return replace(
            self,
            seconds=self.seconds.times(factor),
            cpu_seconds=self.cpu_seconds.times(factor),
            setup_seconds=factor * self.setup_seconds,
        )

    # --- words -------------------------------------------------------------------------------------------------------

    def short(self) -> str:
        """Return the plan in one line."""
        return (
            f"Plan: {_span(self.seconds, duration)}, peak memory {_span(self.peak_bytes, size)} "
            f"({size(self.free_bytes)} free), model {_span(self.disk_bytes, size)} on disk, {self.n_blocks:,} "
            f"block{'' if self.n_blocks == 1 else 's'} on {self.n_threads} thread{'' if self.n_threads == 1 else 's'}"
        )

    def facts(self) -> dict[str, str]:
        """Return the plan as names and texts."""
        return {
            "method": self.method,
            "data": f"{self.n_samples:,} rows, {self.n_features:,} features, {self.n_labels:,} labels",
            "blocks": f"{self.n_blocks:,} on {self.n_threads} thread{'' if self.n_threads == 1 else 's'}",
            "time": _span(self.seconds, duration),
            "CPU time": _span(self.cpu_seconds, duration),
            "peak memory": f"{_span(self.peak_bytes, size)}; training adds {size(self.needed_bytes.likely)}, "
            f"and {size(self.free_bytes)} are free",
            "model": f"{_span(self.disk_bytes, size)} on disk, {_span(self.model_bytes, size)} in memory",
            "sample": f"{self.sample}, {duration(self.sample_seconds)} of CPU time",
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        names = ("method", "n_samples", "n_features", "n_labels", "n_blocks", "n_threads", "sample", "fits")
        ranges = ("seconds", "cpu_seconds", "peak_bytes", "model_bytes", "disk_bytes", "needed_bytes")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: {key: round(value, 3) for key, value in getattr(self, name)._asdict().items()} for name in ranges},
            "block_seconds": round(self.block_seconds, 3),
            "free_bytes": self.free_bytes if math.isfinite(self.free_bytes) else None,
            "sample_seconds": round(self.sample_seconds, 3),
            "advice": self.advice(),
        }

    def __str__(self) -> str:
        lines = [f"{name:<12} {text}" for name, text in self.facts().items()]
        return "\n".join([*lines, *(f"{'advice':<12} {text}" for text in self.advice())])


def plan_of(job: Job) -> Plan:
    """Time a sample of the job's work, and return its plan."""
    blocks = job.problem.blocks()
    n_threads = parallel.n_threads(job.n_jobs)
    before = memory.resident()
    found = job.problem.forecast(job.X, job.Y, n_threads)
    at_once = max(1, min(n_threads, len(blocks)))
    working = at_once * found.thread_bytes
    doubt = found.model_bytes.high / max(found.model_bytes.likely, 1.0) - 1.0
    needed = Range.around(working + found.stack_bytes, MEMORY_DOUBT + max(0.0, doubt))
    wall = found.cpu_seconds.times(1.0 / max(found.busy_threads, 1.0)).plus(job.setup_seconds)
    total_cost = sum(block.cost for block in blocks) or 1.0
    longest = max((block.cost for block in blocks), default=0.0) / total_cost
    rows, features = job.X.shape
    peak = Range(*(max(memory.peak(), before + amount) for amount in needed))
    return Plan(
        method=job.maker.method,
        n_samples=int(rows),
        n_features=int(features),
        n_labels=int(job.Y.shape[1]),
        n_blocks=len(blocks),
        n_threads=n_threads,
        seconds=wall,
        cpu_seconds=found.cpu_seconds.plus(job.setup_seconds),
        block_seconds=longest * found.cpu_seconds.likely,
        setup_seconds=job.setup_seconds,
        peak_bytes=peak,
        model_bytes=found.model_bytes,
        disk_bytes=(found.disk_bytes or found.model_bytes).plus(LABEL_BYTES * job.Y.shape[1] + ROW_BYTES * rows),
        needed_bytes=needed,
        thread_bytes=found.thread_bytes,
        block_threads=found.block_threads,
        shares_memory=job.problem.unit == "label",
        free_bytes=memory.free(),
        sample=found.sample,
        sample_seconds=found.sample_seconds,
    )


T = TypeVar("T")


def timed(task: Callable[[], T]) -> tuple[T, float]:
    """Return the result of `task` and its CPU seconds, without the time of compiling kernels."""
    compiling: list[float] = []
    with event.install_timer("numba:compile", compiling.append):
        begin = time.thread_time()
        result = task()
        seconds = time.thread_time() - begin
    return result, max(0.0, seconds - sum(compiling))


class Announcement:
    """Makes the plan of a fit from its first job and passes it on. A fit with calibration has several jobs."""

    def __init__(self, tell: Callable[[Plan], object] | None, n_fits: float) -> None:
        self.tell = tell
        self.n_fits = n_fits
        self.plan: Plan | None = None

    def __call__(self, job: Job) -> Plan | None:
        """Return the plan, which is made once. None if nobody wants it."""
        if self.tell is not None and self.plan is None:
            self.plan = plan_of(job).times(self.n_fits)
            self.tell(self.plan)
        return self.plan


class Planning:
    """The part of an estimator that makes plans."""

    _effort_of_repeating = 1.0  # time of a fit without held-out rows, compared with a first fit on the same rows
    calibrate: bool | str
    normalize: bool
    random_state: Any

    if TYPE_CHECKING:

        def _check_all_parameters(self) -> None: ...
        def _canonical(self, *given: Any) -> Any: ...
        def _job(self, X: Any, Y: sp.csr_array, label_names: np.ndarray, extras: Extras) -> Job: ...

    def plan(self, X: Any, y: Any = None, *, text_features: TextFeatures | None = None) -> Plan:
        """Return what `fit` will take: time, peak memory and size of the model, each with a range.

        A small sample of the work is solved and timed: at most about 3 % of it (or some seconds), and at most about 10
        seconds. The arguments are those of `fit`. The estimator is not changed.

        Examples
        --------
        >>> import numpy as np
        >>> import longtail as lt
        >>> X = np.random.default_rng(0).random((100, 20))
        >>> plan = lt.OneVsAll().plan(X, np.arange(100) % 50)
        >>> plan.n_blocks
        1
        """
        self._check_all_parameters()
        maker: Self = clone(self)
        data = maker._canonical(X, y, text_features, None, None)
        rows = normalize_rows(data.X) if self.normalize else data.X
        n_fits = self._n_fits(data.Y)
        return plan_of(maker._job(rows, data.Y, data.label_names, NO_EXTRAS)).times(n_fits)

    def _n_fits(self, Y: sp.csr_array) -> float:
        """Return how many fits on all rows take as long as this one, which may hold rows out to calibrate."""
        if self.calibrate is False:
            return 1.0
        same_seed = deepcopy(self.random_state)  # a RandomState must give the fit the same numbers as without a plan
        masks = calibrating.rows_to_hold_out(self.calibrate, Y, same_seed)
        return 1.0 + self._effort_of_repeating * float(sum(1.0 - mask.mean() for mask in masks))


# --- words -----------------------------------------------------------------------------------------------------------


def _span(value: Range, text: Any) -> str:
    """A range in words: the likely value, and its ends."""
    return f"{text(value.likely)} ({text(value.low)} to {text(value.high)})"
