"""Running blocks on the threads of this machine. Kernels release the GIL, so threads share X without copying it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

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


class Team:
    """Threads that stay together for many short rounds of blocks, where starting threads anew would cost more than the
    work. The calling thread is one of them. Use as a context: the threads end with it."""

    def __init__(self, n_jobs: int | None) -> None:
        self.size = n_threads(n_jobs)
        self._pool = ThreadPoolExecutor(self.size - 1) if self.size > 1 else None

    def run(self, task: Callable[[Block], Result], blocks: Sequence[Block]) -> list[Result]:
        """The results of `task` on all blocks, in their order, when all are done."""
        if self._pool is None or len(blocks) < 2:
            return [task(block) for block in blocks]
        results: dict[int, Result] = {}
        blocks_left = enumerate(blocks)  # hands out each block once, whichever thread asks

        def work() -> None:
            for number, block in blocks_left:
                results[number] = task(block)

        others = [self._pool.submit(work) for _ in range(min(self.size, len(blocks)) - 1)]
        try:
            work()
        finally:
            for other in others:
                other.result()
        return [results[number] for number in range(len(blocks))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
