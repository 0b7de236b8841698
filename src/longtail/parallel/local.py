"""Threads of this machine. Kernels release the GIL, so threads share X without copying it."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads(n_jobs: int | None) -> int:
    """A positive number means itself; None and -1 mean all cores, -2 all but one, and so on.

    Inside a worker of joblib (`GridSearchCV(n_jobs=-1)`) the cores are shared already. None then means the share of the
    worker, which joblib states in the environment, or a single thread.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_jobs is None:
        return min(cores, _share_of_worker()) if _inside_worker() else cores
    return max(1, cores + 1 + n_jobs) if n_jobs < 0 else n_jobs


def _inside_worker() -> bool:
    """Whether this code runs in a process or thread that joblib or multiprocessing started."""
    if multiprocessing.current_process().daemon:
        return True
    joblib = sys.modules.get("joblib.parallel")  # absent: joblib cannot have started us
    return joblib is not None and bool(joblib.get_active_backend()[0].nesting_level)


def _share_of_worker() -> int:
    share = os.environ.get("NUMBA_NUM_THREADS", "1")
    return int(share) if share.isdecimal() and int(share) > 0 else 1


# --- results in order ------------------------------------------------------------------------------------------------


def run(task: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None) -> Iterator[Result]:
    """The results of `task` on all items, in their order, each as soon as it and those before it are done.

    At most two items per thread are under way, so a long stream needs bounded memory. An error or Ctrl-C drops the
    items that have not begun. Kernels cannot be interrupted, so the ones under way finish first.
    """
    threads = n_threads(n_jobs)
    if threads == 1:
        yield from map(task, items)
        return
    pool = ThreadPoolExecutor(threads)
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(task, item))
            if len(pending) >= 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# --- many short rounds -----------------------------------------------------------------------------------------------


class Team:
    """Threads that stay together for many short rounds, where starting threads each time would cost more than the work.
    The calling thread is one of them. Use it as a context: the threads end with it."""

    def __init__(self, n_jobs: int | None) -> None:
        self.size = n_threads(n_jobs)
        self._pool = ThreadPoolExecutor(self.size - 1) if self.size > 1 else None

    def run(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results of `task` on all items, in their order, when all are done."""
        if self._pool is None or len(items) < 2:
            return [task(item) for item in items]
        results: dict[int, Result] = {}
        items_left = enumerate(items)  # gives each item once, to whichever thread comes first

        def work() -> None:
            for number, item in items_left:
                results[number] = task(item)

        others = [self._pool.submit(work) for _ in range(min(self.size, len(items)) - 1)]
        try:
            work()
        finally:
            for other in others:
                other.result()
        return [results[number] for number in range(len(items))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
