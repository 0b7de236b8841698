"""A worker process. It accepts connections on the shared sockets until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from longtail.serve.board import READY, Board
from longtail.serve.connection import Connection
from longtail.serve.predictor import ServedModel
from longtail.serve.service import TICK, Service, Settings

ACCEPTS = 16  # connections taken at a time
EVEN = 4  # a worker with this many connections more than the least busy worker lets other workers accept first
EVEN_PAUSE = 0.002  # seconds that it waits in this case
SWITCH_SECONDS = 0.001  # switch interval of Python's threads; the default of 5 ms would delay every answer
RETIRE, STOP = signal.SIGUSR1, signal.SIGTERM  # stop accepting; the same, and close idle connections


class Worker:
    """The event loop of a worker."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        settings: Settings,
        board: Board,
        number: int,
        listeners: Sequence[socket.socket],
    ) -> None:
        self.models = models
        self.settings = settings
        self.board = board
        self.slot = board.slots[number]
        self.generation = int(self.slot["generation"])
        self.listeners = list(listeners)
        self.master = os.getppid()

    def run(self) -> None:
        gc.freeze()  # otherwise the collector would write to, and so copy, the shared pages
        sys.setswitchinterval(SWITCH_SECONDS)
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = self.loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="score") as executor:
            self.service = Service(self.models, self.settings, self.board, self.slot, executor, loop)
            self.service.begin()
            self.stopped = asyncio.Event()
            self._stop_by: float | None = None
            loop.add_signal_handler(RETIRE, self.stop, False)
            loop.add_signal_handler(STOP, self.stop, True)
            for name in (signal.SIGHUP, signal.SIGINT):  # the master handles them; a terminal sends SIGINT to all
                loop.add_signal_handler(name, lambda: None)
            for listener in self.listeners:
                listener.setblocking(False)
                loop.add_reader(listener, self._accept, listener, True)
            self.slot["state"] = READY
            self._tick()
            await self.stopped.wait()
            self.service.flush_log()
        sys.stderr.flush()

    # --- accepting ---------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, polite: bool) -> None:
        """Accept the next connections, unless other workers have fewer connections. They are woken up, too."""
        if polite and len(self.service.connections) > self._fewest() + EVEN:
            self.loop.remove_reader(listener)
            self.loop.call_later(EVEN_PAUSE, self._resume, listener)
            return
        self._take(listener, ACCEPTS)
        self.slot["connections"] = len(self.service.connections)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self.listeners:
            self._accept(listener, False)
            self.loop.add_reader(listener, self._accept, listener, True)

    def _fewest(self) -> float:
        return min(slot["connections"] for slot in self.board.live(self.generation))

    def _take(self, listener: socket.socket, most: int) -> None:
        for _ in range(most):
            try:
                connected, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self.loop.remove_reader(listener)  # out of file handles; wait until some connections end
                self.loop.call_later(1.0, self._resume, listener)
                return
            connected.setblocking(False)
            if connected.family != socket.AF_UNIX:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self.loop.create_task(self._connect(connected))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    _tasks: set[asyncio.Task[None]] = set()  # noqa: RUF012 - one worker per process

    async def _connect(self, connected: socket.socket) -> None:
        with suppress(OSError):
            await self.loop.connect_accepted_socket(lambda: Connection(self.service, connected), connected)

    # --- stopping ----------------------------------------------------------------------------------------------------

    def stop(self, close_idle: bool) -> None:
        """Accept the connections that are already waiting, but no others. Answer requests in progress, then end."""
        for listener in self.listeners:
            self.loop.remove_reader(listener)
            self._take(listener, 1024 if close_idle else 0)
            listener.close()
        self.listeners.clear()
        self.service.drain(close_idle=close_idle)
        self._stop_by = self._stop_by or self.loop.time() + self.settings.limits.drain_timeout

    def _tick(self) -> None:
        self.service.tick()
        if os.getppid() != self.master and self._stop_by is None:
            self.stop(True)  # the master is gone, so nobody would restart or stop this worker
        if self._stop_by is not None and not self._tasks:
            if not self.service.connections:
                self.stopped.set()
                return
            if self.loop.time() > self._stop_by:
                for connection in list(self.service.connections):
                    connection.transport.abort()
                self.stopped.set()
                return
        self.loop.call_later(0.05 if self._stop_by is not None else TICK, self._tick)
