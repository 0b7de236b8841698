"""The process that the user starts. It loads the models, forks the workers, and replaces both when necessary.

Workers are forked after the master has loaded the models, so they share its memory: a model, its index and its
vocabulary exist only once for all workers. The master runs no threads and no event loop.

Reload. When the manifest of a model folder changes, or on SIGHUP, a separate child process first reads and tests the
new model. If the model is damaged, or if reading it ends the child, the old model stays in use. `/ready` then shows the
reason, and `/metrics` counts the failure. Otherwise the master reads the model, forks new workers, and retires the old
workers as soon as the new ones accept connections. The listening sockets stay open all the time, and each worker has
only one version of a model. So no request fails, and no answer mixes two models.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from longtail import folder
from longtail.errors import LongtailError, ModelError
from longtail.serve.board import EMPTY, READY, Board
from longtail.serve.predictor import ServedModel
from longtail.serve.service import Settings
from longtail.serve.worker import RETIRE, STOP, Worker

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2  # seconds between two checks of the folders
RETRY_SECONDS = (2.0, 60.0)  # first and longest pause before a refused folder is tried again
SLOW_RESTARTS = 5  # after this many workers that died within a second, the master waits before each restart
Signature = tuple[int, int, int] | None


@dataclass
class WatchedFolder:
    """A model folder, the signature of its manifest when the model was read, and the time of the next check."""

    path: Path
    loaded: Signature = None
    refused: Signature = None
    retry_at: float = 0.0
    pause: float = RETRY_SECONDS[0]

    def look(self) -> Signature:
        try:
            found = os.stat(self.path / folder.MODEL.manifest)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def is_new(self, now: float) -> bool:
        """Return whether the folder has a model that was neither read nor recently refused."""
        seen = self.look()
        if seen is None or seen == self.loaded:
            return False
        return seen != self.refused or now >= self.retry_at


@dataclass
class Child:
    """A forked worker."""

    slot: int
    generation: int
    started: float
    stopped_at: float | None = None  # when it was told to stop


@dataclass
class TrialLoad:
    """A child process that reads new models."""

    pid: int
    pipe: int
    names: list[str]
    signatures: dict[str, Signature]
    said: bytes = b""


@dataclass
class Master:
    """Models, sockets and workers."""

    sources: dict[str, Path]
    settings: Settings
    listeners: list[socket.socket]
    n_workers: int
    announce: Callable[[str], None] = lambda text: None
    on_start: Callable[[], None] = lambda: None
    models: dict[str, ServedModel] = field(default_factory=dict)
    children: dict[int, Child] = field(default_factory=dict)
    trial: TrialLoad | None = None
    generation: int = 0
    restarts: int = 0
    quick_deaths: int = 0
    signals: list[int] = field(default_factory=list)
    stopping: bool = False

    def run(self) -> None:
        """Serve until a signal ends it."""
        self.folders = {name: WatchedFolder(path) for name, path in self.sources.items()}
        self.board = Board(4 * self.n_workers + 4)
        self._catch_signals()
        for name, source in self.folders.items():
            source.loaded = source.look()
            self.models[name] = ServedModel.load(name, source.path)
        self._start_generation()
        started = False
        try:
            while not self.stopping or self.children:
                self._wait(LOOK_SECONDS if started else 0.01)
                self._act()
                if not started and not self.board.faults():
                    started = True
                    self.on_start()
        finally:
            for pid in self.children:
                _kill(pid, signal.SIGKILL)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self.signals.append(number))
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def _wait(self, seconds: float) -> None:
        pipes = [self._wake, *([self.trial.pipe] if self.trial else [])]
        ready, _, _ = select.select(pipes, [], [], seconds)
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)

    def _act(self) -> None:
        self._reap()
        taken, self.signals = self.signals, []
        if signal.SIGTERM in taken or signal.SIGINT in taken:
            self._stop()
        if self.stopping:
            self._end_slow_children()
            return
        if signal.SIGHUP in taken and self.trial is None:
            self._begin_trial(list(self.folders))
        self._look_for_models()
        self._read_trial()
        self._retire_old()
        self._end_slow_children()
        self._replace_dead()

    def _stop(self) -> None:
        if self.stopping:
            return
        self.stopping = True
        self.announce("stopping: requests in progress are answered")
        for listener in self.listeners:
            listener.close()
        if self.trial is not None:
            _kill(self.trial.pid, signal.SIGKILL)
        for pid, child in self.children.items():
            self._tell(pid, child, STOP)

    # --- workers -----------------------------------------------------------------------------------------------------

    def _start_generation(self) -> None:
        self.generation += 1
        gc.collect()
        gc.freeze()
        for _ in range(self.n_workers):
            self._fork()
        self.board.post(generation=self.generation, workers=self.n_workers)

    def _fork(self) -> None:
        number = self.board.free_slot()
        slot = self.board.slots[number]
        slot.take(0, self.generation)
        pid = os.fork()
        if pid == 0:
            self._work(number)
        slot["pid"] = pid
        self.children[pid] = Child(number, self.generation, time.monotonic())

    def _work(self, number: int) -> None:
        """Run a worker in the child process. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(each, signal.SIG_DFL)
            os.close(self._wake)
            if self.trial is not None:
                os.close(self.trial.pipe)
            limits = self.settings.limits.shared_by(self.n_workers)
            settings = Settings(limits, self.settings.access, self.settings.access_log)
            Worker(self.models, settings, self.board, number, self.listeners).run()
            code = 0
        except BaseException:
            log.exception("worker %d ended by an error", os.getpid())
        finally:
            os._exit(code)  # skips the clean-up of the master

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.children.pop(pid, None)
            if child is None:
                continue  # a trial
            slot = self.board.slots[child.slot]
            slot["state"] = EMPTY
            if child.stopped_at is None and not self.stopping:
                self.restarts += 1
                self.quick_deaths = self.quick_deaths + 1 if time.monotonic() - child.started < 1.0 else 0
                self.board.post(restarts=self.restarts)
                self.announce(f"worker {pid} died ({_ending(status)}); starting another")

    def _replace_dead(self) -> None:
        own = [child for child in self.children.values() if child.generation == self.generation]
        missing = self.n_workers - sum(child.stopped_at is None for child in own)
        newest = max((child.started for child in own), default=0.0)
        if self.quick_deaths >= SLOW_RESTARTS and time.monotonic() - newest < 1.0:
            return
        for _ in range(missing):
            self._fork()

    def _retire_old(self) -> None:
        """Stop old workers when as many new workers accept connections."""
        fresh = [slot for slot in self.board.live(self.generation) if slot["state"] == READY]
        if len(fresh) < self.n_workers:
            return
        for pid, child in self.children.items():
            if child.generation != self.generation and child.stopped_at is None:
                self._tell(pid, child, RETIRE)

    def _tell(self, pid: int, child: Child, number: signal.Signals) -> None:
        child.stopped_at = time.monotonic()
        _kill(pid, number)

    def _end_slow_children(self) -> None:
        now = time.monotonic()
        for pid, child in self.children.items():
            if child.stopped_at is not None and now - child.stopped_at > self.settings.limits.drain_timeout + 2.0:
                _kill(pid, signal.SIGKILL)

    # --- new models --------------------------------------------------------------------------------------------------

    def _look_for_models(self) -> None:
        if self.trial is None:
            now = time.monotonic()
            names = [name for name, source in self.folders.items() if source.is_new(now)]
            if names:
                self._begin_trial(names)

    def _begin_trial(self, names: list[str]) -> None:
        """Test in a child process whether the models can be read."""
        signatures = {name: self.folders[name].look() for name in names}
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            faults = {}
            try:
                signal.set_wakeup_fd(-1)
                for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                    signal.signal(each, signal.SIG_DFL)
                for name in names:
                    fault = _fault(name, self.folders[name].path)
                    if fault is not None:
                        faults[name] = fault
                os.write(writer, json.dumps(faults).encode()[:60_000])
            finally:
                os._exit(0)
        os.close(writer)
        self.trial = TrialLoad(pid, reader, names, signatures)

    def _read_trial(self) -> None:
        trial = self.trial
        if trial is None or not select.select([trial.pipe], [], [], 0)[0]:
            return
        chunk = os.read(trial.pipe, 1 << 16)
        if chunk:
            trial.said += chunk
            return
        os.close(trial.pipe)
        self.trial = None
        try:
            faults = json.loads(trial.said)
        except ValueError:
            faults = dict.fromkeys(trial.names, "reading it ended the process that tried")
        good = [name for name in trial.names if name not in faults]
        for name in trial.names:
            if name in faults:
                self._refuse(name, trial.signatures[name], faults[name])
        if good:
            self._take_over(good, trial.signatures)

    def _take_over(self, names: list[str], signatures: Mapping[str, Signature]) -> None:
        read: dict[str, ServedModel] = {}
        for name in names:
            try:
                read[name] = ServedModel.load(name, self.folders[name].path)
            except LongtailError as error:  # changed since the trial
                self._refuse(name, signatures[name], str(error))
                continue
            self.folders[name].loaded = signatures[name]
            self.folders[name].refused = None
            self.folders[name].pause = RETRY_SECONDS[0]
        if not read:
            return
        self.models = {**self.models, **read}
        self._start_generation()
        notice = self.board.notice()
        self.board.post(reloads_done=notice.get("reloads_done", 0) + 1, reload_error=None)
        versions = ", ".join(f"{name} {model.version}" for name, model in read.items())
        self.announce(f"now serving {versions}")

    def _refuse(self, name: str, signature: Signature, fault: str) -> None:
        source = self.folders[name]
        source.pause = min(2 * source.pause, RETRY_SECONDS[1]) if source.refused == signature else RETRY_SECONDS[0]
        source.refused, source.retry_at = signature, time.monotonic() + source.pause
        notice = self.board.notice()
        self.board.post(reloads_refused=notice.get("reloads_refused", 0) + 1, reload_error=f"{name}: {fault[:500]}")
        self.announce(f"the new model {name} is refused, the old one stays in use: {fault}")


def _fault(name: str, path: Path) -> str | None:
    """Return the reason why the model cannot be served, or None."""
    try:
        ServedModel.load(name, path)
    except ModelError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for all addresses of `host`."""
    found: list[socket.socket] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address if not found or port else (address[0], found[0].getsockname()[1], *address[2:]))
        listener.listen(1024)
        listener.setblocking(False)
        found.append(listener)
    return found


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
