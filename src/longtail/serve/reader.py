"""Reads from all connections of a worker. While the queue is full, it refuses scoring requests without parsing them.

In an overload most requests are refused, and the time for refusals is not available for scoring. Three things keep it
small. The reader watches all connections with a selector of its own, which costs less per request than asyncio's. A
request that arrives in one piece is recognised by its first bytes and answered with prepared bytes. And refusals get a
share of the time only (`REFUSAL_SHARE`): in between, requests wait in the socket buffers of the kernel, whose number
and size are limited. The waiting ends early when there is room in the queue again.

A connection is read at once until its first request is answered, so a health check on a connection of its own does not
wait behind the others. Only connections that ask again take part in the pauses.
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
REFUSAL_SECONDS = 0.002  # refusing without a break
REFUSAL_SHARE = 0.1  # of the time that refusals may take
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
        self._resting: asyncio.TimerHandle | None = None
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
            if key.data.is_read and self._read_one(key.data):
                self.service.refused_quickly(1)
                self.add(key.data)
            if time.perf_counter() > stop:
                return

    def _read(self) -> None:
        begin = now = time.thread_time()  # an answer may wake up its client, and the system may let that run first
        refused, quick = self.service.refusals, 0
        refusing = 0.0  # seconds
        if not self._ready:
            self._ready.extend(key.data for key, _ in self._selector.select(0))
        while self._ready and now - begin < ROUND_SECONDS and refusing < REFUSAL_SECONDS:
            connection = self._ready.popleft()
            if not connection.is_read:
                continue
            before = self.service.refusals + quick
            quick += self._read_one(connection)
            last, now = now, time.thread_time()
            if self.service.refusals + quick > before:
                refusing += now - last
        if quick:
            self.service.refused_quickly(quick)
        if self.service.refusals > refused:
            self._rest(refusing * (1 / REFUSAL_SHARE - 1))

    def _read_one(self, connection: Connection) -> bool:
        """Read what has arrived on a connection. Returns whether it was refused without parsing."""
        try:
            n_bytes = connection.socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self.remove(connection)
            connection.transport.abort()
            return False
        if not n_bytes:
            self.remove(connection)
            if not connection.eof_received():
                connection.transport.close()
            return False
        data = bytes(self._buffer[:n_bytes])
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
