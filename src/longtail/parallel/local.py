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
    """Return the number of threads for `n_jobs`. None and -1 mean all cores, -2 means all cores except one, and so on.

    Inside a joblib worker (`GridSearchCV(n_jobs=-1)`), the workers already share the cores. None then means the share
    of the worker, which joblib sets in the environment, or a single thread.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_jobs is None:
        return min(cores, _share_of_worker()) if _inside_worker() else cores
    return max(1, cores + 1 + n_jobs) if n_jobs < 0 else n_jobs


def _inside_worker() -> bool:
    """Whether this code runs in a process or thread that joblib or multiprocessing started."""
    if multiprocessing.current_process().daemon:
        return True
    joblib = sys.modules.get("joblib.parallel")  # if absent, joblib cannot have started this process
    return joblib is not None and bool(joblib.get_active_backend()[0].nesting_level)


def _share_of_worker() -> int:
    share = os.environ.get("NUMBA_NUM_THREADS", "1")
    return int(share) if share.isdecimal() and int(share) > 0 else 1


# --- results in order ------------------------------------------------------------------------------------------------


def run(task: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None) -> Iterator[Result]:
    """Yield the results of `task` on all items, in their order, as soon as they are available.

    At most two items per thread are in progress, so a long stream needs bounded memory. An error or Ctrl-C drops the
    items that have not begun. Kernels cannot be interrupted, so items in progress finish first.
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
    """Threads that are reused for many short rounds, because starting threads each time would cost more than the work.
    The calling thread is one of them. A team is a context manager, which ends the threads."""

    def __init__(self, n_jobs: int | None) -> None:
        self.size = n_threads(n_jobs)
        self._pool = ThreadPoolExecutor(self.size - 1) if self.size > 1 else None

    def run(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Run `task` on all items and return the results in their order."""
        if self._pool is None or len(items) < 2:
            return [task(item) for item in items]
        results: dict[int, Result] = {}
        items_left = enumerate(items)  # threads take items from this iterator, so each item is taken once

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
