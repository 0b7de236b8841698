"""Running blocks on the threads of this machine. Kernels release the GIL, so threads share X without copying it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Block = TypeVar("Block")
Result = TypeVar("Result")


def n_threads(n_jobs: int | None) -> int:
    """None and -1 mean every core this process may use, -2 all but one, and so on; a positive number means itself."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_jobs is None:
        return cores
    return max(1, cores + 1 + n_jobs) if n_jobs < 0 else n_jobs


def run(task: Callable[[Block], Result], blocks: Iterable[Block], n_jobs: int | None) -> Iterator[Result]:
    """The results of `task` on every block, in the order of the blocks, each as soon as it and those before are done.

    At most two blocks a thread are under way, so a long stream of blocks needs bounded memory. An error, or Ctrl-C,
    drops the blocks that have not begun; kernels cannot be interrupted, so the ones under way end first.
    """
    threads = n_threads(n_jobs)
    if threads == 1:
        yield from map(task, blocks)
        return
    pool, pending = ThreadPoolExecutor(threads), deque[Future[Result]]()
    try:
        for block in blocks:
            pending.append(pool.submit(task, block))
            if len(pending) >= 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def team(n_jobs: int | None) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]]:
    """Threads that stay, for work in many short rounds: `with team(2) as each: results = each(task, blocks)`."""
    threads = n_threads(n_jobs)
    if threads == 1:
        yield lambda task, blocks: list(map(task, blocks))
        return
    with ThreadPoolExecutor(threads) as pool:
        yield lambda task, blocks: list(pool.map(task, blocks))
