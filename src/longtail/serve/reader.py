"""Reads from all connections of a worker. While the queue is full, it refuses scoring requests without parsing them.

In an overload most requests are refused, and the time for refusals is not available for scoring. Three things keep it
small. The reader watches all connections with a selector of its own, which costs less per request than asyncio's. A
request that arrives in one piece is recognised by its first bytes and answered with prepared bytes. And refusals get a
share of the time only (`REFUSAL_SHARE`): in between, requests wait in the socket buffers of the kernel, whose number
and size are limited. The waiting ends early when there is room in the queue again.

A new connection is read at once, so a health check on a connection of its own does not wait behind the others.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from longtail.serve.wire import QUEUE_FULL, date_header, is_one_scoring_request

if TYPE_CHECKING:
    from longtail.serve.connection import Connection
    from longtail.serve.service import Service

CHUNK = 1 << 18  # bytes read at a time
ROUND_SECONDS = 0.005  # reading without a break
REFUSAL_SECONDS = 0.002  # the same, while the queue is full
REFUSAL_SHARE = 0.1  # of the time, while the queue is full
ROOM = 0.5  # the queue has room again when it is filled to this share


class Reader:
    """Passes data from sockets to their connections."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self.service = service
        self.loop = loop
        self._selector: Any = selectors.DefaultSelector()  # epoll or kqueue, which are files that asyncio can watch
        self._ready: deque[Connection] = deque()
        self._resting: asyncio.TimerHandle | None = None
        loop.add_reader(self._selector.fileno(), self._read)

    def add(self, connection: Connection) -> None:
        """Read from this connection from now on."""
        if not connection.is_read and not connection.eof and not connection.transport.is_closing():
            connection.is_read = True
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def remove(self, connection: Connection) -> None:
        """Stop reading from this connection, for some time or for good."""
        if connection.is_read:
            connection.is_read = False
            self._selector.unregister(connection.socket)

    def wake(self) -> None:
        """Called when a request leaves the queue. Ends the pause if there is room for others."""
        has_room = self.service.pending <= ROOM * self.service.limits.max_queue and not self.service.full
        if self._resting is not None and has_room:
            self._resting.cancel()
            self._begin()

    def _read(self) -> None:
        begin = now = time.perf_counter()
        before, quick = self.service.refusals, 0
        if not self._ready:
            self._ready.extend(key.data for key, _ in self._selector.select(0))
        while self._ready and now - begin < (REFUSAL_SECONDS if self.service.full else ROUND_SECONDS):
            connection = self._ready.popleft()
            if connection.is_read:
                quick += self._read_one(connection)
            now = time.perf_counter()
        if quick:
            self.service.refused_quickly(quick)
        if self.service.refusals > before:
            self._rest((now - begin) * (1 / REFUSAL_SHARE - 1))

    def _read_one(self, connection: Connection) -> bool:
        """Read what has arrived on a connection. Returns whether it was refused without parsing."""
        try:
            data = connection.socket.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self.remove(connection)
            connection.transport.abort()
            return False
        if not data:
            self.remove(connection)
            if not connection.eof_received():
                connection.transport.close()
            return False
        if self.service.full and connection.is_idle and is_one_scoring_request(data):
            connection.refuse_quickly(QUEUE_FULL % date_header())
            return True
        connection.data_received(data)
        return False

    def _rest(self, seconds: float) -> None:
        self.loop.remove_reader(self._selector.fileno())
        self._resting = self.loop.call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._resting = None
        self.loop.add_reader(self._selector.fileno(), self._read)
