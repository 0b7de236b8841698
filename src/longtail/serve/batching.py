"""Scores requests that arrive together in one batch.

If the scorer is idle, a request is scored at once, together with all other requests that were read in the same
iteration of the event loop. Requests that arrive while a batch is being scored form the next batch. A single request
therefore never waits for others, and under load the batches become larger. Turning 32 texts into features and scoring
them in one batch costs about a third of 32 single calls.

A batch has as many rows as are expected to take `BATCH_SECONDS`, estimated from earlier batches. A request with many
rows therefore does not delay others: after every `TURN_ROWS` of its rows, others have their turn. Smaller requests are
scored to their end in the order of arrival, because if all progressed together, none would be finished in time. A batch
is scored in the event loop. A scoring thread beside it would cost more: the loop gives up Python's lock at every
call of the system, and would wait for the scoring thread each time to get it back. Only a single row that takes longer
than `INLINE_SECONDS` is scored in the scoring thread, so that health checks are answered meanwhile.

Between two long batches the loop runs `GAP` times without scoring. This is how many rounds it takes to accept a
connection, read its request and answer it, so a health check waits for one batch, not for several.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longtail.serve.messages import overloaded

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.01
INLINE_SECONDS = 0.015
LONG_SECONDS = 0.002
GAP = 5  # rounds of the event loop
TURN_ROWS = 64
MAX_BATCH_ROWS = 256
ROW_UNITS = 100.0  # a row costs about as much as this many characters
RISE, FALL = 0.2, 0.5  # how quickly the estimated cost follows the measured one
OUTLIER = 4.0  # a cost above this many times the estimate counts as this


@dataclass(slots=True, eq=False)
class QueuedRows:
    """Rows of one request for one model. `units` is the cost of each row, `parts` are the results so far."""

    model: Any
    rows: Any  # list of texts, or csr_array
    k: int
    units: np.ndarray
    future: asyncio.Future[list[Any]]
    deadline: float
    allow: np.ndarray | None = None
    done: int = 0
    turn: int = 0  # rows that were scored since its turn began
    parts: list[Any] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        return len(self.units)


@dataclass(slots=True)
class Piece:
    """Consecutive rows of one request that are part of a batch."""

    job: QueuedRows
    start: int
    stop: int

    @property
    def rows(self) -> Any:
        whole = self.stop - self.start == self.job.n_rows
        return self.job.rows if whole else self.job.rows[self.start : self.stop]


Score = Callable[[list[Piece]], list[Any]]


class Batcher:
    """The queue of one worker process, for all its models."""

    def __init__(self, score: Score, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self.score = score
        self.loop = loop
        self.executor = executor
        self.waiting: deque[QueuedRows] = deque()
        self.busy_since: float | None = None
        self.n_batches = self.n_rows = 0
        self._units: dict[Any, float] = {}  # of waiting rows, per model
        self._unit_seconds: dict[Any, float] = {}  # per model
        self._scheduled = False

    @property
    def backlog(self) -> float:
        """Seconds that the waiting rows are expected to take."""
        return sum(units * self._cost(model) for model, units in self._units.items())

    def put(self, job: QueuedRows) -> None:
        self.waiting.append(job)
        self._units[job.model] = self._units.get(job.model, 0.0) + float(job.units.sum())
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        pieces = self._take()
        if not pieces:
            self._scheduled = False
            return
        units = float(sum(piece.job.units[piece.start : piece.stop].sum() for piece in pieces))
        self.busy_since = time.monotonic()
        if units * self._cost(pieces[0].job.model) <= INLINE_SECONDS:
            self._end(pieces, units, *_timed(self.score, pieces))
        else:
            future = self.loop.run_in_executor(self.executor, _timed, self.score, pieces)
            future.add_done_callback(lambda done: self._end(pieces, units, *done.result()))

    def _take(self) -> list[Piece]:
        """Take the rows of the next batch: for one model, in the order of arrival, with a limited share per request."""
        now = time.monotonic()
        while self.waiting and (self.waiting[0].future.done() or self.waiting[0].deadline < now):
            self._drop(self.waiting.popleft())
        if not self.waiting:
            return []
        model = self.waiting[0].model
        room = BATCH_SECONDS / self._cost(model)
        pieces: list[Piece] = []
        later: deque[QueuedRows] = deque()
        unfinished: QueuedRows | None = None
        n_rows = 0
        while self.waiting and n_rows < MAX_BATCH_ROWS and (room > 0 or not pieces) and unfinished is None:
            job = self.waiting.popleft()
            if job.future.done() or job.deadline < now:
                self._drop(job)
                continue
            if job.model is not model:
                later.append(job)
                continue
            upto = np.cumsum(job.units[job.done :])
            count = max(1, min(int(np.searchsorted(upto, room, side="right")), MAX_BATCH_ROWS - n_rows))
            pieces.append(Piece(job, job.done, job.done + count))
            job.done += count
            job.turn += count
            n_rows += count
            room -= float(upto[count - 1])
            self._units[model] -= float(upto[count - 1])
            if job.done < job.n_rows:
                unfinished = job
        self.waiting.extendleft(reversed(later))
        if unfinished is not None and unfinished.turn < TURN_ROWS:
            self.waiting.appendleft(unfinished)
        elif unfinished is not None:
            unfinished.turn = 0
            self.waiting.append(unfinished)
        return pieces

    def _drop(self, job: QueuedRows) -> None:
        self._units[job.model] -= float(job.units[job.done :].sum())
        if not job.future.done():
            job.future.set_exception(overloaded("the request waited too long to be scored; send it again later"))

    def _cost(self, model: Any) -> float:
        return self._unit_seconds.get(model, 1e-6)

    def _end(self, pieces: list[Piece], units: float, results: list[Any], seconds: float) -> None:
        self.busy_since = None
        model = pieces[0].job.model
        measured = seconds / max(units, 1.0)
        known = self._unit_seconds.get(model, measured)
        change = min(measured, OUTLIER * known) - known  # the system may have stopped the process within a batch
        self._unit_seconds[model] = known + (RISE if change > 0 else FALL) * change
        self.n_batches += 1
        self.n_rows += sum(piece.stop - piece.start for piece in pieces)
        for piece, result in zip(pieces, results, strict=True):
            job = piece.job
            if job.future.done():
                continue
            if isinstance(result, Exception):
                job.future.set_exception(result)
                continue
            job.parts.append(result)
            if piece.stop == job.n_rows:
                job.future.set_result(job.parts)
        self._pause(GAP if seconds > LONG_SECONDS else 0)

    def _pause(self, rounds: int) -> None:
        """Score the next batch after this many rounds of the event loop."""
        if rounds:
            self.loop.call_soon(self._pause, rounds - 1)
        else:
            self.loop.call_soon(self._begin)


def _timed(score: Score, pieces: list[Piece]) -> tuple[list[Any], float]:
    begin = time.perf_counter()
    return _isolated(score, pieces), time.perf_counter() - begin


def _isolated(score: Score, pieces: list[Piece]) -> list[Any]:
    """Return the results of all pieces. If the batch fails, each piece is scored separately, so that only the faulty
    piece fails."""
    try:
        return score(pieces)
    except Exception as error:
        if len(pieces) == 1:
            return [error]
        log.exception("a batch of %d requests failed; scoring them one by one", len(pieces))
    return [_isolated(score, [piece])[0] for piece in pieces]
