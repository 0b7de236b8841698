"""Blocks on a Ray cluster: an existing one, or one that is started on this machine.

Ray starts processes on nodes and reports when one is lost. `dispatch` counts attempts and time-outs, so Ray's own
retries are switched off. If all nodes see the run folder, workers read the data from it and write parts into it. If
some nodes do not see it, the data is sent to every node once, and parts are sent back to the driver, at most one per
slot at a time.

Ray sends pickled functions and results, so everyone who can connect to the cluster can run code. Connect only to a
cluster that you trust. Ray listens on all interfaces even on a single machine. The extra therefore requires a release
(2.59) that accepts only clients with its token.
"""

from __future__ import annotations

import importlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from longtail.errors import LongtailError, MissingExtra, RunError
from longtail.parallel.dispatch import Engine, Event, Sign
from longtail.parallel.local import n_threads
from longtail.parallel.work import Work

PULSE = 1.0  # seconds between two signs of life
REFRESH = 5.0  # seconds between two queries for the list of nodes
NODE_SECONDS = 120.0  # time that a node has to report its versions
STORE_BYTES = 100 * 1024**2  # object store of a cluster on this machine, where nothing large is sent

# The versions that must be the same on every node.
VERSIONS = (("longtail", "__version__"), ("numba", "__version__"), ("numpy", "__version__"),
            ("longtail.runs.identity", "FORMAT"))  # fmt: skip


class Remote(Protocol):
    """How a node makes the task: from a folder that it sees, or from data that is sent to it."""

    root: Path
    mark: str

    def __call__(self, data: Any = None) -> Callable[[int, Work], Any]:
        """Return the task. With `data`, its results are parts that the driver must accept. Otherwise they are
        receipts."""

    def shipped(self) -> Any:
        """Return the data for nodes that do not see the folder."""

    def accept(self, result: Any) -> Any:
        """Write a part that a node returned. Returns its receipt."""


class Cluster(Engine):
    """Runs one Ray task per block. A task requests as many CPUs as it has threads.

    Without `n_jobs`, a task has one thread, or more if there are fewer blocks than free CPUs.
    """

    reconnects = True

    def __init__(self, prepare: Any, address: str | None, n_jobs: int | None) -> None:
        self.prepare: Remote = prepare
        self.address = address
        self.n_jobs = n_jobs
        self.cpus = 1 if n_jobs is None else n_threads(n_jobs)
        try:
            self.ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise MissingExtra("ray", "ray", "training on a Ray cluster") from error

    def start(self, n_blocks: int, sign: Callable[[Sign], None]) -> None:
        self.sign = sign
        self.own = not self.ray.is_initialized()  # a connection that was open before stays open
        self._connect()
        if self.n_jobs is None:
            self.cpus = self._cpus_each(n_blocks)
            self._count_slots()

    def _connect(self) -> None:
        if self.own:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
            try:
                if self.address is None:
                    own = {"_node_ip_address": "127.0.0.1", "object_store_memory": STORE_BYTES}
                    cores = max(self.cpus, n_threads(None))
                    self.ray.init("local", num_cpus=cores, include_dashboard=False, **own, **quiet)
                else:
                    self.ray.init(self.address, **quiet)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
                place = self.address or "of this machine"
                raise RunError(f"cannot connect to the Ray cluster {place}: {_line(error)}") from error
        self.tasks: dict[int, tuple[Any, str]] = {}  # key -> Ray's reference to the result, and token of the attempt
        self.refreshed = self.looked = float("-inf")
        self.board = self.ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        self.signs: Any = None
        self._refresh()
        shared = self._check_nodes()
        self.recipe = self.ray.put(self.prepare)
        self.data = None if shared else self.ray.put(self.prepare.shipped())
        self.task = self.ray.remote(max_retries=0)(_solve_block)

    def _refresh(self) -> None:
        """Update the number of blocks that fit on the nodes that are alive."""
        if time.monotonic() - self.refreshed < REFRESH:
            return
        self.refreshed = time.monotonic()
        self.nodes = [node for node in self.ray.nodes() if node["Alive"]]
        self._count_slots()

    def _count_slots(self) -> None:
        sizes = self._node_sizes()
        if self.n_jobs is None:  # the largest node may be gone
            self.cpus = max(1, min(self.cpus, max(sizes, default=1)))
        self.slots = max(1, sum(size // self.cpus for size in sizes))

    def _node_sizes(self) -> list[int]:
        return [int(node["Resources"].get("CPU", 0)) for node in self.nodes]

    def _cpus_each(self, n_blocks: int) -> int:
        """The CPUs of a block, if blocks are to use all CPUs that are free now. A task runs on one node."""
        free = int(self.ray.available_resources().get("CPU", 0))
        return max(1, min(free // max(n_blocks, 1), max(self._node_sizes(), default=1)))

    def _check_nodes(self) -> bool:
        """Compare the versions of all nodes before any work. Returns whether all of them see the run folder."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        look = _make_look()
        wanted, _ = look(VERSIONS, str(self.prepare.root), self.prepare.mark)
        remote, asked = self.ray.remote(num_cpus=0, max_retries=1)(look), {}
        for node in self.nodes:
            there = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answer = remote.options(scheduling_strategy=there).remote(
                VERSIONS, str(self.prepare.root), self.prepare.mark
            )
            asked[node["NodeManagerAddress"] + "/" + node["NodeID"][:8]] = answer
        deadline, shared = time.monotonic() + NODE_SECONDS, True
        for name, answer in asked.items():
            try:
                found, sees = self.ray.get(answer, timeout=max(1.0, deadline - time.monotonic()))
            except Exception as error:
                raise RunError(f"node {name} of the Ray cluster does not answer: {_line(error)}") from error
            differing = [f"{what} is {found[what]} there and {wanted[what]} here"
                         for what in wanted if found[what] != wanted[what]]  # fmt: skip
            if differing:
                raise RunError(f"node {name} of the Ray cluster cannot take part: {'; '.join(differing)}")
            shared = shared and sees
        return shared

    def submit(self, key: int, block: Any) -> None:
        token = secrets.token_hex(8)
        words = (self.recipe, self.data, block.number, key, token, self.cpus, self.board)
        self.tasks[key] = (self.task.options(num_cpus=self.cpus).remote(*words), token)

    def wait(self, seconds: float) -> list[Event]:
        keys = {answer: key for key, (answer, _) in self.tasks.items()}
        waiting = list(keys)
        if not waiting:
            return []
        try:
            if self.ray.wait(waiting, num_returns=1, timeout=seconds)[0]:
                ready = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
            else:
                ready = []
            self._read_board()
            self._refresh()
        except self.ray.exceptions.RayError:
            time.sleep(seconds)  # the head node is gone; the watchdog handles this
            return []
        return [self._event(keys[answer], answer) for answer in ready]

    def _event(self, key: int, answer: Any) -> Event:
        del self.tasks[key]
        try:
            kind, said = self.ray.get(answer, timeout=60)
        except Exception as error:  # Ray has many exceptions for a lost task
            return Event(key, reason=f"{type(error).__name__}: {_line(error)}")
        if kind == "failed":
            return Event(key, reason=said)
        if kind == "fatal":
            return Event(key, reason=said, error=RunError(said))
        return Event(key, said if self.data is None else self.prepare.accept(said))

    def _read_board(self) -> None:
        """Collect the signs of life since the last call."""
        if self.signs is None:
            if time.monotonic() - self.looked > PULSE:
                self.looked = time.monotonic()
                self.signs = self.board.take.remote()
        elif self.ray.wait([self.signs], timeout=0)[0]:
            answer, self.signs = self.signs, None
            for key, (token, share) in self.ray.get(answer, timeout=10).items():
                if key in self.tasks and self.tasks[key][1] == token:
                    self.sign(Sign(key, share))

    def kill(self, key: int, reason: str) -> None:
        answer, _ = self.tasks.pop(key)
        self.ray.cancel(answer, force=True)

    def reconnect(self) -> None:
        self.close()
        self._connect()

    def close(self) -> None:
        if self.own:
            self.ray.shutdown()  # ends the tasks of this driver, too
            return
        for answer, _ in self.tasks.values():
            self.ray.cancel(answer, force=True)
        self.ray.kill(self.board)
        self.tasks = {}


def _line(error: BaseException) -> str:
    """Return the last line of a Ray error. Its messages have many lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


# --- on the nodes ----------------------------------------------------------------------------------------------------


class _Board:
    """Collects signs of life from running blocks for the driver."""

    def __init__(self) -> None:
        self.signs: dict[int, tuple[str, float]] = {}

    def put(self, key: int, token: str, share: float) -> None:
        self.signs[key] = (token, share)

    def take(self) -> dict[int, tuple[str, float]]:
        signs, self.signs = self.signs, {}
        return signs


def _make_look() -> Callable[..., tuple[dict[str, str], bool]]:
    """Make a function that Ray sends by value, so that it runs on nodes with any version of longtail, or without it."""

    def look(versions: Any, root: str, mark: str) -> tuple[dict[str, str], bool]:
        import importlib
        import os

        found = {}
        for module, name in versions:
            try:
                found[module] = str(getattr(importlib.import_module(module), name, "unknown"))
            except ImportError:
                found[module] = "not installed"
        try:
            with open(os.path.join(root, "run.json"), encoding="utf-8") as file:
                sees = mark in file.read() and os.access(os.path.join(root, "parts"), os.W_OK)
        except (OSError, ValueError):
            sees = False
        return found, sees

    return look


_READY: dict[tuple[Path, str, bool], Callable[[int, Work], Any]] = {}  # the task of the run that this process works for


def _solve_block(
    prepare: Remote, data: Any, number: int, key: int, token: str, cpus: int, board: Any
) -> tuple[str, Any]:
    """Solve one block in a worker process of Ray."""
    share, ended = [0.0], threading.Event()

    def report(value: float) -> None:
        share[0] = value

    def pulse() -> None:
        while not ended.wait(PULSE):
            board.put.remote(key, token, share[0])

    ray = importlib.import_module("ray")
    ray.wait([board.put.remote(key, token, 0.0)], timeout=10)  # the time limits of the block apply from here on
    threading.Thread(target=pulse, daemon=True).start()
    try:
        run = (prepare.root, prepare.mark, data is None)
        if run not in _READY:
            _READY.clear()
            _READY[run] = prepare(data)
        return "done", _READY[run](number, Work(cpus, report))
    except LongtailError as error:
        return "fatal", str(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        ended.set()
