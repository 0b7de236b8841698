"""Blocks in other processes of this machine. A process can be killed, so a block that hangs, crashes or runs out of
memory costs only one attempt at this block.

A worker receives a picklable function that returns the task, and then the numbers of blocks, one after the other. Data
is never sent through the pipe, because workers open it memory-mapped.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.reduction import ForkingPickler
from typing import Any

from longtail.errors import LongtailError, RunError
from longtail.parallel.dispatch import Engine, Event, Sign
from longtail.parallel.local import n_threads
from longtail.parallel.work import Work

PULSE = 0.2  # seconds between two signs of life
MAX_STARTS = 3  # number of consecutive workers that may end by themselves before they are ready
MAX_KILLED = 10  # number of consecutive workers that may be killed from outside

Task = Callable[[int, Work], Any]  # number of a block, work -> a small result
Prepare = Callable[[], Task]  # picklable


class Processes(Engine):
    """A fixed number of workers. Each runs one block at a time. A worker that ends is replaced."""

    def __init__(self, prepare: Prepare, workers: int, n_jobs: int | None, silence: float) -> None:
        self.prepare = prepare
        self.slots = workers
        self.n_jobs = n_jobs
        self.silence = silence  # longest time without a sign of life while a worker starts

    def start(self, n_blocks: int, sign: Callable[[Sign], None]) -> None:
        self.sign = sign
        self.slots = max(1, min(self.slots, n_blocks))
        self.threads_each = max(1, n_threads(self.n_jobs) // self.slots)
        self.context = multiprocessing.get_context("spawn")
        self.failed_starts = 0
        self.queue: list[tuple[int, int]] = []  # key and number of blocks that wait for a worker to be ready
        self.workers: list[_Worker] = []

    def submit(self, key: int, block: Any) -> None:
        self.queue.append((key, block.number))
        while len(self.workers) < self.slots and len(self.workers) < len(self.queue) + self._busy():
            self.workers.append(_Worker(self.context, self.prepare, self.threads_each))

    def _busy(self) -> int:
        return sum(worker.key is not None for worker in self.workers)

    def wait(self, seconds: float) -> list[Event]:
        events: list[Event] = []
        deadline = time.monotonic() + seconds
        while not events and (left := deadline - time.monotonic()) > 0:
            self._hand_out()
            sources = [source for worker in self.workers for source in (worker.pipe, worker.process.sentinel)]
            ready = set(wait_for(sources, timeout=left))
            for worker in list(self.workers):
                if worker.pipe in ready:
                    events += self._read(worker)
                elif worker.process.sentinel in ready or worker.is_frozen(self.silence):
                    events += self._buried(worker)
        self._hand_out()
        return events

    def _hand_out(self) -> None:
        for worker in self.workers:
            if self.queue and worker.ready and worker.key is None:
                key, number = self.queue.pop(0)
                worker.key = key
                with contextlib.suppress(OSError):  # the worker died; `wait` handles this
                    worker.pipe.send(number)

    def _read(self, worker: _Worker) -> list[Event]:
        """All messages of one worker that have arrived."""
        events = []
        try:
            while worker.pipe.poll():
                worker.heard = time.monotonic()
                kind, *facts = worker.pipe.recv()
                if kind == "ready":
                    worker.ready, self.failed_starts = True, 0
                elif kind == "unready":
                    raise RunError(f"a worker could not get ready: {facts[0]}")
                elif kind == "share" and worker.key is not None:
                    self.sign(Sign(worker.key, facts[0]))
                elif kind == "done" and worker.key is not None:
                    events.append(Event(worker.key, facts[0]))
                    worker.key = None
                elif kind == "failed" and worker.key is not None:
                    reason, fatal = facts
                    events.append(Event(worker.key, reason=reason, error=RunError(reason) if fatal else None))
                    worker.key = None
        except (EOFError, OSError):
            return events + self._buried(worker)
        return events

    def _buried(self, worker: _Worker) -> list[Event]:
        """Remove a worker that has ended. It is replaced when there is a block to run."""
        reason = worker.end()
        self.workers.remove(worker)
        if worker.key is not None:
            return [Event(worker.key, reason=reason)]
        if not worker.ready:
            self.failed_starts += 1
            if "signal" in reason and self.failed_starts >= MAX_KILLED:
                raise RunError(f"workers end before they are ready ({reason})")
            if "signal" not in reason and self.failed_starts >= MAX_STARTS:
                raise RunError(
                    f"workers end before they are ready ({reason}); in a script, call fit only under "
                    "`if __name__ == '__main__':`, since every worker imports the script"
                )
        if self.queue:
            self.workers.append(_Worker(self.context, self.prepare, self.threads_each))
        return []

    def kill(self, key: int, reason: str) -> None:
        worker = next(worker for worker in self.workers if worker.key == key)
        self.workers.remove(worker)
        worker.end()

    def close(self) -> None:
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.end()
        self.workers = []


class _Worker:
    """A process, and the pipe to it."""

    def __init__(self, context: Any, prepare: Prepare, n_threads: int) -> None:
        self.pipe, theirs = context.Pipe()
        raw = bytes(ForkingPickler.dumps(prepare))
        self.process = context.Process(target=serve, args=(theirs, raw, n_threads), daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False
        self.key: int | None = None
        self.heard = time.monotonic()

    def is_frozen(self, silence: float) -> bool:
        """Return whether the worker has been silent too long while starting. Running blocks have their own limits."""
        return not self.ready and time.monotonic() - self.heard > silence

    def end(self) -> str:
        """Kill the process if it is still running. Returns how it ended."""
        self.process.join(1.0 if not self.process.is_alive() else 0.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        self.pipe.close()
        self.process.close()
        if code is not None and code < 0:
            hint = ", perhaps because memory ran out" if -code == getattr(signal, "SIGKILL", 9) else ""
            return f"its process was ended by signal {-code}{hint}"
        return f"its process ended with exit code {code}"


def serve(pipe: Connection, prepare: bytes, n_threads: int) -> None:
    """The main function of a worker: prepare the task, solve blocks, and end when the driver is gone.

    `prepare` is sent as multiprocessing would send it, but is opened here. Opening it imports the method, which takes
    seconds, and signs of life must begin before that.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    mouth = threading.Lock()
    share: list[float | None] = [None]  # progress of the running block

    def send(*message: Any) -> None:
        try:
            with mouth:
                pipe.send(message)
        except OSError:
            os._exit(1)  # the driver is gone, so the result would not be used

    def pulse() -> None:
        while True:
            time.sleep(PULSE)
            send("share", share[0]) if share[0] is not None else send("alive")

    def report(value: float) -> None:
        share[0] = value

    threading.Thread(target=pulse, daemon=True).start()
    try:
        task = ForkingPickler.loads(prepare)()
    except Exception as error:
        send("unready", f"{type(error).__name__}: {error}")
        return
    send("ready")
    while True:
        try:
            number = pipe.recv()
        except (EOFError, OSError):
            return
        report(0.0)
        send("share", 0.0)
        try:
            result = task(number, Work(n_threads, report))
        except Exception as error:
            share[0] = None
            said = str(error) if isinstance(error, LongtailError) else f"{type(error).__name__}: {error}"
            send("failed", said, isinstance(error, LongtailError))
        else:
            share[0] = None
            send("done", result)
