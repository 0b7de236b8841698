"""Blocks on the threads of this process. Threads share all memory and cannot be killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from longtail.parallel.dispatch import Costed, Engine, Event, Sign, dispatch
from longtail.parallel.local import n_threads
from longtail.parallel.work import Stopped, Work


class Threads(Engine):
    """Runs `task(block, work)`. With a single thread or a single block, it runs in `wait`, without a new thread."""

    killable = False

    def __init__(self, task: Callable[[Any, Work], Any], n_jobs: int | None) -> None:
        self.task = task
        self.threads = n_threads(n_jobs)

    def start(self, n_blocks: int, sign: Callable[[Sign], None]) -> None:
        self.sign = sign
        self.stopped = threading.Event()
        self.inline = self.threads == 1 or n_blocks <= 1
        self.threads_each = self.threads if self.inline else max(1, self.threads // max(1, n_blocks))
        self.slots = 1 if self.inline else 2 * self.threads
        self.queue: list[tuple[int, Any]] = []
        self.pool = None if self.inline else ThreadPoolExecutor(max(1, min(self.threads, n_blocks)))
        self.pending: set[Future[Event]] = set()

    def submit(self, key: int, block: Any) -> None:
        if self.pool is None:
            self.queue.append((key, block))
        else:
            self.pending.add(self.pool.submit(self._attempt, key, block))

    def wait(self, seconds: float) -> list[Event]:
        if self.pool is None:
            queue, self.queue = self.queue, []
            return [self._attempt(key, block) for key, block in queue]
        done, self.pending = wait(self.pending, timeout=seconds, return_when=FIRST_COMPLETED)
        return [future.result() for future in done]

    def _attempt(self, key: int, block: Any) -> Event:
        def report(share: float) -> None:
            if self.stopped.is_set():
                raise Stopped
            self.sign(Sign(key, share))

        try:
            return Event(key, self.task(block, Work(self.threads_each, report)))
        except Exception as error:
            return Event(key, reason=f"{type(error).__name__}: {error}", error=error)

    def close(self) -> None:
        self.stopped.set()
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)


def solve(
    task: Callable[[Any, Work], Any],
    blocks: Sequence[Costed],
    n_jobs: int | None,
    progress: Callable[[float], None] = lambda share: None,
) -> Generator[Any, None, None]:
    """Yield the results of `task` on all blocks, in the order in which they finish. The first error stops all blocks.

    progress : called in the calling thread with the share of the whole work that is done, from 0 to 1.

    If there are fewer blocks than threads, each block gets several threads. An error or Ctrl-C stops the blocks that
    report their progress, and drops those that have not begun.
    """
    return dispatch(Threads(task, n_jobs), blocks, progress=progress)
