"""Scheduling of blocks, with the same rules for threads, processes and a cluster.

An *engine* runs blocks, and may lose them. All decisions are made here and not in the engine: the largest blocks run
first, a bounded number of blocks runs at a time, and attempts, time-outs, a watchdog and reports are handled here.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from longtail.errors import LongtailError, RunError

LOOK_SECONDS = 0.2  # between two reports of progress


class AttemptLimits(NamedTuple):
    """When an attempt at a block is stopped. All times are in seconds."""

    attempts: int = 3  # attempts per block; after that, the other blocks continue without it
    timeout_factor: float = 10.0  # a block may take this many times its expected duration
    min_timeout: float = 60.0  # a block may always take this long
    silence: float = 60.0  # a worker without a sign of life for this long counts as frozen
    start: float = 60.0  # the same for a worker that is starting, which is silent while it imports the user's script
    watchdog_factor: float = 3.0  # reconnect if an engine is silent for this many times the longest block
    min_watchdog: float = 60.0  # never reconnect after a shorter silence
    first_block: float = 600.0  # silence that is allowed before the first block has begun, and time that it may take
    reconnects: int = 3  # reconnections in a row without a finished block


class Costed(Protocol):
    """The attributes of a block that scheduling needs."""

    @property
    def number(self) -> int: ...

    @property
    def cost(self) -> float: ...


class Event(NamedTuple):
    """How an attempt at a block ended: with a result, or with a reason and perhaps the error itself."""

    key: int
    result: Any = None
    reason: str | None = None
    error: BaseException | None = None


class Sign(NamedTuple):
    """A sign of life: the block has begun, and this share of it is done."""

    key: int
    share: float


class Engine(ABC):
    """Something that runs blocks. A key is the position of a block in the list that is dispatched."""

    killable: ClassVar[bool] = True  # whether `kill` ends a block
    reconnects: ClassVar[bool] = False  # whether `reconnect` can help
    slots: int  # how many blocks may run at a time

    @abstractmethod
    def start(self, n_blocks: int, sign: Callable[[Sign], None]) -> None:
        """Prepare for `n_blocks`. The engine calls `sign` for every sign of life, at any time and from any thread."""

    @abstractmethod
    def submit(self, key: int, block: Any) -> None:
        """Start a block. Never more than `slots` blocks run at a time."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Event]:
        """Wait for up to `seconds` and return the attempts that ended. Returns early when one ends."""

    def kill(self, key: int, reason: str) -> None:  # noqa: B027 - an engine that is not killable needs none
        """Stop a running block. No event follows."""

    def reconnect(self) -> None:  # noqa: B027 - an engine that does not reconnect needs none
        """Drop all running blocks, and connect again."""

    @abstractmethod
    def close(self) -> None:
        """Stop all running blocks."""


class Unsolved(Exception):  # noqa: N818 - carries the blocks for the caller's own error
    """Some blocks used up their attempts: `blocks` maps their keys to the reason of the last failure."""

    def __init__(self, blocks: dict[int, str]) -> None:
        super().__init__(f"{len(blocks)} blocks were not solved")
        self.blocks = blocks


@dataclass
class _Running:
    sent: float
    begun: float | None = None
    sign: float = 0.0
    share: float = 0.0


def dispatch(
    engine: Engine,
    blocks: Sequence[Costed],
    *,
    limits: AttemptLimits = AttemptLimits(),  # noqa: B008 - immutable
    expected: Callable[[Any], float] | None = None,
    progress: Callable[[float], None] = lambda share: None,
    failed: Callable[[int, int, str], None] | None = None,
) -> Generator[Any, None, None]:
    """Yield the results of all blocks, in the order in which they finish.

    expected : the seconds that a block takes, from a plan. Finished blocks may raise them. Without a plan, they are
        estimated from the finished blocks.
    progress : called in the calling thread with the share of the work that is done, from 0 to 1.
    failed : called with key, attempt and reason when an attempt failed. Without it, the first failure ends the run.

    Raises `Unsolved` at the end if some blocks failed too often. Errors that no block caused, such as a full disk, are
    raised at once. An error or Ctrl-C stops the running blocks and drops those that have not begun.
    """
    return _Dispatch(engine, blocks, limits, expected, progress, failed).results()


class _Dispatch:
    def __init__(
        self,
        engine: Engine,
        blocks: Sequence[Costed],
        limits: AttemptLimits,
        expected: Callable[[Any], float] | None,
        progress: Callable[[float], None],
        failed: Callable[[int, int, str], None] | None,
    ) -> None:
        self.engine = engine
        self.blocks = blocks
        self.limits = limits
        self.expected = expected
        self.progress = progress
        self.failed = failed
        self.waiting = deque(sorted(range(len(blocks)), key=lambda key: -blocks[key].cost))
        self.running: dict[int, _Running] = {}
        self.attempts = [0] * len(blocks)
        self.unsolved: dict[int, str] = {}
        self.total = sum(block.cost for block in blocks) or 1.0
        self.done = 0.0  # cost of the blocks that are finished
        self.pace = 0.0  # largest number of seconds per unit of cost seen so far
        self.longest = 0.0
        self.news = time.monotonic()  # time of the last receipt or sign of life
        self.begun_any = False
        self.callback_error: Exception | None = None
        self.reconnected = 0

    def results(self) -> Generator[Any, None, None]:
        self.thread = threading.get_ident()
        self.engine.start(len(self.blocks), self._sign)
        try:
            self.news = time.monotonic()
            while self.waiting or self.running:
                self._fill()
                events = self.engine.wait(LOOK_SECONDS)
                if self.callback_error is not None:
                    raise self.callback_error
                for event in events:
                    run = self.running.pop(event.key, None)
                    if run is None:  # it ended after it was stopped
                        continue
                    if event.reason is None:
                        self._finished(event.key, run)
                        self.progress(self._share())
                        yield event.result
                    else:
                        self._failed(event.key, event.reason, event.error)
                self._end_overdue()
                self._watch()
                self.progress(self._share())
        finally:
            self.engine.close()
        if self.unsolved:
            raise Unsolved(self.unsolved)

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self.engine.slots:
            key = self.waiting.popleft()
            now = time.monotonic()
            self.running[key] = _Running(sent=now, sign=now)
            self.engine.submit(key, self.blocks[key])

    def _sign(self, sign: Sign) -> None:
        """Record a sign of life. This may be called from any thread, so it only sets values. It reports progress only
        in the calling thread of `dispatch`."""
        run = self.running.get(sign.key)
        if run is not None:
            now = time.monotonic()
            run.begun = now if run.begun is None else run.begun
            run.sign = self.news = now
            run.share = min(1.0, max(run.share, sign.share))
            self.begun_any = True
            if threading.get_ident() == self.thread:
                self._report_inside()

    def _report_inside(self) -> None:
        """Report progress from within a block. An error in the callback does not count as a failure of the block."""
        try:
            self.progress(self._share())
        except Exception as error:
            self.callback_error = error
            raise

    def _share(self) -> float:
        under_way = sum(run.share * self.blocks[key].cost for key, run in list(self.running.items()))
        return min(1.0, (self.done + under_way) / self.total)

    def _finished(self, key: int, run: _Running) -> None:
        now = time.monotonic()
        seconds, cost = now - (run.begun or run.sent), self.blocks[key].cost
        self.done += cost
        self.longest = max(self.longest, seconds)
        self.pace = max(self.pace, seconds / cost if cost > 0 else 0.0)
        self.news = now
        self.begun_any = True
        self.reconnected = 0

    def _failed(self, key: int, reason: str, error: BaseException | None) -> None:
        if isinstance(error, LongtailError) or (error is not None and self.failed is None):
            raise error
        if self.failed is None:
            raise RunError(f"block {self.blocks[key].number} failed: {reason}")
        self.attempts[key] += 1
        self.news = time.monotonic()
        self.failed(key, self.attempts[key], reason)
        if self.attempts[key] < self.limits.attempts:
            self.waiting.append(key)  # last, so that its problem does not delay the others
        else:
            self.unsolved[key] = reason
            self.done += self.blocks[key].cost

    # --- what takes too long -----------------------------------------------------------------------------------------

    def timeout(self, key: int) -> float:
        """Return the seconds that a block may take. It is infinite as long as no duration is known."""
        block = self.blocks[key]
        seconds = self.pace * block.cost
        if self.expected is not None:
            seconds = max(seconds, self.expected(block))
        elif not self.pace:
            return math.inf
        least = self.limits.min_timeout if self.pace else self.limits.first_block  # the first block may compile kernels
        return max(least, self.limits.timeout_factor * seconds)

    def _end_overdue(self) -> None:
        if not self.engine.killable:
            return
        now = time.monotonic()
        for key, run in list(self.running.items()):
            if run.begun is None:
                continue
            if now - run.begun > self.timeout(key):
                reason = f"no result after {now - run.begun:.0f} s"
            elif now - run.sign > self.limits.silence:
                reason = f"no sign of life for {now - run.sign:.0f} s"
            else:
                continue
            self.engine.kill(key, reason)
            del self.running[key]
            self._failed(key, reason, None)

    def _watch(self) -> None:
        """Connect again when the whole engine is silent."""
        limits = self.limits
        if not self.engine.reconnects or not self.running:
            return
        limit = max(limits.watchdog_factor * self.longest, limits.min_watchdog)
        limit = limit if self.begun_any else max(limit, limits.first_block)
        silent = time.monotonic() - self.news
        if silent <= limit:
            return
        if not self.begun_any or self.reconnected >= limits.reconnects:
            raise RunError(f"the cluster began no block in {silent:.0f} s; is it up, and does it have free CPUs?")
        self.reconnected += 1
        self.waiting.extendleft(reversed(self.running))
        self.running.clear()
        self.engine.reconnect()
        self.news = time.monotonic()
