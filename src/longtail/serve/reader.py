"""Reads from all connections of a worker. While the queue is full, it refuses scoring requests without parsing them.

In an overload most requests are refused, and the time for refusals is not available for scoring. Three things keep it
small. The reader watches all connections with a selector of its own, which costs less per request than asyncio's. A
request that arrives in one piece is recognised by its first bytes and answered with prepared bytes. And refusals get a
share of the CPU time only (`REFUSAL_SHARE`): in between, requests wait in the socket buffers of the kernel, whose
number and size are limited. The waiting ends early when there is room in the queue again. A refusal takes 10 to 30 µs,
most of them in the kernel, so a worker refuses 3,000 to 9,000 requests per second.

A connection is read at once until its first request is answered, so a health check on a connection of its own does not
wait behind the others. Only connections that ask again take part in the pauses.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from longtail.serve.wire import QUEUE_FULL, date_header, is_one_scoring_request

if TYPE_CHECKING:
    from longtail.serve.connection import Connection
    from longtail.serve.service import Service

CHUNK = 1 << 18  # bytes read at a time
ROUND_SECONDS = 0.005  # reading without a break
REFUSAL_SECONDS = 0.004  # refusing without a break
TIMED_TOGETHER = 16  # connections between two looks at the clock of the thread, which is a slow system call
REFUSAL_SHARE = 0.08  # of the CPU time that refusals may take
IDLE_SHARE = 0.25  # wall time counts as at least this share of CPU time
SPINS = 50  # turns of the event loop in a pause after which it does not watch the sockets
ROOM = 0.5  # the queue has room again when it is filled to this share


class Reader:
    """Passes data from sockets to their connections."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self.service = service
        self.loop = loop
        self._new: Any = selectors.DefaultSelector()  # epoll or kqueue, which are files that asyncio can watch
        self._selector: Any = selectors.DefaultSelector()
        self._ready: deque[Connection] = deque()
        self._buffer = memoryview(bytearray(CHUNK))  # `recv` would allocate as much for every request
        self._credit = REFUSAL_SECONDS  # seconds that refusals may take now
        self._earned = time.process_time(), time.perf_counter()  # CPU and wall time up to which `_credit` has grown
        self._resting: asyncio.TimerHandle | None = None  # ends the pause
        self._turns = 0  # of the event loop in this pause
        loop.add_reader(self._new.fileno(), self._read_new)
        loop.add_reader(self._selector.fileno(), self._read)

    def add(self, connection: Connection) -> None:
        """Read from this connection from now on."""
        if connection.is_read and connection.is_new and connection.served:
            self.remove(connection)
        if not connection.is_read and not connection.eof and not connection.transport.is_closing():
            connection.is_read = True
            connection.is_new = not connection.served
            selector = self._new if connection.is_new else self._selector
            selector.register(connection.socket, selectors.EVENT_READ, connection)

    def remove(self, connection: Connection) -> None:
        """Stop reading from this connection, for some time or for good."""
        if connection.is_read:
            connection.is_read = False
            (self._new if connection.is_new else self._selector).unregister(connection.socket)

    def wake(self) -> None:
        """Called when a request leaves the queue. Ends the pause if there is room for others."""
        has_room = self.service.pending <= ROOM * self.service.limits.max_queue and not self.service.full
        if self._resting is not None and has_room:
            self._resting.cancel()
            self._begin()

    def _read_new(self) -> None:
        stop = time.perf_counter() + ROUND_SECONDS
        for key, _ in self._new.select(0):
            if self._read_together([key.data]):
                self.service.refused_quickly(1)
                self.add(key.data)
            if time.perf_counter() > stop:
                return

    def _read(self) -> None:
        if self._resting is not None:
            self._look_away()
            return
        begin = now = time.thread_time()  # an answer may wake up its client, and the system may let that run first
        self._earn()
        quick = 0
        if not self._ready:
            self._ready.extend(key.data for key, _ in self._selector.select(0))
        while self._ready and now - begin < ROUND_SECONDS and (self._credit > 0 or not self.service.full):
            count, before = min(TIMED_TOGETHER, len(self._ready)), self.service.refusals
            refused = self._read_together([self._ready.popleft() for _ in range(count)])
            quick += refused
            refused += self.service.refusals - before  # those that were parsed
            last, now = now, time.thread_time()
            self._credit -= (now - last) * min(1.0, refused / count)
        if quick:
            self.service.refused_quickly(quick)
        if self._credit <= 0 and self.service.full:
            self._turns = 0
            self._resting = self.loop.call_later((REFUSAL_SECONDS / 2 - self._credit) / REFUSAL_SHARE, self._begin)

    def _earn(self) -> None:
        """Add the time for refusals that has become available since the last call.

        It is a share of the CPU time of the process, because other programs may use the cores. But if the process has
        little to do, and waits for bodies for example, there is time enough.
        """
        (cpu, wall), self._earned = self._earned, (time.process_time(), time.perf_counter())
        used, passed = self._earned[0] - cpu, self._earned[1] - wall
        self._credit = min(REFUSAL_SECONDS, self._credit + REFUSAL_SHARE * max(used, IDLE_SHARE * passed))

    def _look_away(self) -> None:
        """Stop watching the sockets in a pause if the event loop has nothing else to do, and would spin.

        Otherwise they are watched all the time: to add a selector with many sockets to another selector is slow.
        """
        self._turns += 1
        if self._turns == SPINS:
            self.loop.remove_reader(self._selector.fileno())

    def _begin(self) -> None:
        self._resting = None
        if self._turns >= SPINS:
            self.loop.add_reader(self._selector.fileno(), self._read)

    def _read_together(self, connections: Sequence[Connection]) -> int:
        """Read what has arrived on these connections. Returns how many were refused without parsing."""
        service, buffer, refused = self.service, self._buffer, 0
        full, refusal, now = service.full, QUEUE_FULL % date_header(), self.loop.time()
        for connection in connections:
            if not connection.is_read:
                continue
            try:
                n_bytes = connection.socket.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                self.remove(connection)
                connection.transport.abort()
                continue
            if not n_bytes:
                self.remove(connection)
                if not connection.eof_received():
                    connection.transport.close()
                continue
            data = bytes(buffer[:n_bytes])
            if full and connection.is_idle and is_one_scoring_request(data):
                connection.refuse_quickly(refusal, now)
                refused += 1
            else:
                connection.data_received(data)
                full = service.full
        return refused
