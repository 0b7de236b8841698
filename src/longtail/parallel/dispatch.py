"""Which block runs when, how often, and for how long: the same rules for threads, processes and a cluster.

An *engine* runs blocks; it may lose them. Everything that decides the result of a run is here and not in the engine:
the largest blocks first, a bounded number under way, attempts, time-outs, a watchdog, and what is reported.
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


class Limits(NamedTuple):
    """When a block is given up. All times are in seconds."""

    attempts: int = 3  # per block; then the others go on without it
    timeout_factor: float = 10.0  # times the expected duration of a block, but
    min_timeout: float = 60.0  # never less than this
    silence: float = 60.0  # a worker without a sign of life for so long is frozen
    start: float = 60.0  # the same for a worker that starts: it gives none while it imports the user's script
    watchdog_factor: float = 3.0  # an engine without a sign of life for so many times the longest block, but
    min_watchdog: float = 60.0  # never less than this, is connected again
    first_block: float = 600.0  # the same, until a first block has begun
    reconnects: int = 3  # in a row, without a block being finished


class Costed(Protocol):
    """A block, as far as running it is concerned."""

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
    """A sign of life: the block has begun and is this far."""

    key: int
    share: float


class Engine(ABC):
    """Something that runs blocks. A key is the position of a block in the list that is dispatched."""

    killable: ClassVar[bool] = True  # whether `kill` ends a block
    reconnects: ClassVar[bool] = False  # whether `reconnect` can help
    slots: int  # how many blocks may be under way

    @abstractmethod
    def start(self, n_blocks: int, sign: Callable[[Sign], None]) -> None:
        """Get ready for `n_blocks`; call `sign` for every sign of life, at any time and from any thread."""

    @abstractmethod
    def submit(self, key: int, block: Any) -> None:
        """Begin a block; there are never more than `slots` under way."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Event]:
        """What ended; returns early when something did."""

    def kill(self, key: int, reason: str) -> None:  # noqa: B027 - an engine that is not killable needs none
        """End a block that is under way. No event follows."""

    def reconnect(self) -> None:  # noqa: B027 - an engine that does not reconnect needs none
        """Drop everything that is under way, and connect again."""

    @abstractmethod
    def close(self) -> None:
        """End everything that is under way."""


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
    limits: Limits = Limits(),  # noqa: B008 - immutable
    expected: Callable[[Any], float] | None = None,
    progress: Callable[[float], None] = lambda share: None,
    failed: Callable[[int, int, str], None] | None = None,
) -> Generator[Any, None, None]:
    """The results of all blocks, in the order in which they finish.

    expected : the seconds that a block takes, from a plan. Without a plan, the blocks seen so far tell.
    progress : called in the calling thread with the share of the work that is done, from 0 to 1.
    failed : called with key, attempt and reason when an attempt failed. Without it, the first failure ends the run.

    Raises `Unsolved` at the end if some blocks failed too often, and at once what is no fault of a block, such as a
    full disk. An error or Ctrl-C ends the blocks under way and drops those that have not begun.
    """
    return _Dispatch(engine, blocks, limits, expected, progress, failed).results()


class _Dispatch:
    def __init__(
        self,
        engine: Engine,
        blocks: Sequence[Costed],
        limits: Limits,
        expected: Callable[[Any], float] | None,
        progress: Callable[[float], None],
        failed: Callable[[int, int, str], None] | None,
    ) -> None:
        self.engine, self.blocks, self.limits = engine, blocks, limits
        self.expected, self.progress, self.failed = expected, progress, failed
        self.waiting = deque(sorted(range(len(blocks)), key=lambda key: -blocks[key].cost))
        self.running: dict[int, _Running] = {}
        self.attempts = [0] * len(blocks)
        self.unsolved: dict[int, str] = {}
        self.total = sum(block.cost for block in blocks) or 1.0
        self.done = 0.0  # cost of the blocks that are finished
        self.pace = 0.0  # largest number of seconds per unit of cost seen so far
        self.longest = 0.0
        self.news = time.monotonic()  # the last receipt or sign of life
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
                    if run is None:  # ended after it was given up
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
        """Note a sign of life. Called from any thread, so it only sets values, and reports where it may."""
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
        """Report progress from within a block. An error in the callback is no failure of the block."""
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
        self.news, self.begun_any, self.reconnected = now, True, 0

    def _failed(self, key: int, reason: str, error: BaseException | None) -> None:
        if isinstance(error, LongtailError) or (error is not None and self.failed is None):
            raise error
        if self.failed is None:
            raise RunError(f"block {self.blocks[key].number} failed: {reason}")
        self.attempts[key] += 1
        self.news = time.monotonic()
        self.failed(key, self.attempts[key], reason)
        if self.attempts[key] < self.limits.attempts:
            self.waiting.append(key)  # behind the others: whatever is wrong with it does not hold them up
        else:
            self.unsolved[key] = reason
            self.done += self.blocks[key].cost

    # --- what takes too long -----------------------------------------------------------------------------------------

    def timeout(self, key: int) -> float:
        """Seconds that a block may take; without end while nothing is known."""
        block = self.blocks[key]
        if self.expected is not None:
            seconds = self.expected(block)
        elif self.pace > 0:
            seconds = self.pace * block.cost
        else:
            return math.inf
        return max(self.limits.min_timeout, self.limits.timeout_factor * seconds)

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
