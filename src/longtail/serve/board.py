"""Shared memory of the processes of the service: counters, heartbeats and a notice.

The board is an anonymous shared mapping that is created before the workers are forked. Each worker owns one slot, and
only this worker writes to it, so no lock is needed. A reader adds up all slots. When a worker ends, the next worker in
its slot continues its counts, because Prometheus expects counters never to decrease.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest

ROUTES = ("predict", "explain", "infer", "suggest", "stream", "labels", "models", "health", "metrics", "page", "none")
STATUSES = (200, 304, 400, 401, 404, 405, 408, 413, 414, 415, 421, 429, 431, 500, 503)
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
MAX_MODELS = 64
STALE = 1.5  # seconds without a heartbeat after which a worker counts as dead
NOTICE_BYTES = 1 << 15

EMPTY, STARTING, READY, DRAINING = range(4)  # states of a slot

_FIELDS = {
    "state": 1,
    "pid": 1,
    "generation": 1,
    "heartbeat": 1,
    "connections": 1,
    "queued": 1,
    "rejected": 1,
    "batches": 1,
    "batched_rows": 1,
    "rows": MAX_MODELS,
    "requests": len(ROUTES) * len(STATUSES),
    "seconds": len(ROUTES),
    "buckets": len(ROUTES) * (len(BUCKETS) + 1),
}
_WIDTH = sum(_FIELDS.values())
_EDGES = np.array(BUCKETS)
_ROUTE_OF = {name: i for i, name in enumerate(ROUTES)}
_STATUS_OF = {status: i for i, status in enumerate(STATUSES)}


class Slot:
    """The part of the board that belongs to one worker: views of its fields."""

    def __init__(self, row: np.ndarray) -> None:
        start, self.fields = 0, {}
        for name, size in _FIELDS.items():
            self.fields[name] = row[start : start + size]
            start += size
        self.requests = self.fields["requests"].reshape(len(ROUTES), len(STATUSES))
        self.buckets = self.fields["buckets"].reshape(len(ROUTES), len(BUCKETS) + 1)
        self.seconds, self.rows = self.fields["seconds"], self.fields["rows"]

    def __getitem__(self, name: str) -> float:
        return float(self.fields[name][0])

    def __setitem__(self, name: str, value: float) -> None:
        self.fields[name][0] = value

    def beat(self) -> None:
        self["heartbeat"] = time.monotonic()

    def take(self, pid: int, generation: int) -> None:
        """Assign the slot to a new worker, which continues the counts."""
        for name in ("connections", "queued"):
            self[name] = 0
        self["pid"], self["generation"] = pid, generation
        self.beat()
        self["state"] = STARTING

    def count(self, route: str, status: int, seconds: float, times: int = 1) -> None:
        """Count `times` requests that took `seconds` each."""
        at = _ROUTE_OF[route]
        self.requests[at, _STATUS_OF[status]] += times
        self.seconds[at] += seconds * times
        self.buckets[at, int(_EDGES.searchsorted(seconds))] += times


class Board:
    """All slots, and a notice that the master writes for the workers."""

    def __init__(self, n_slots: int) -> None:
        size = 8 * _WIDTH * n_slots
        self._memory = mmap.mmap(-1, size + 8 + 2 * NOTICE_BYTES)  # two pages for the notice, and a mark
        table = np.frombuffer(self._memory, np.float64, _WIDTH * n_slots).reshape(n_slots, _WIDTH)
        self.slots = [Slot(row) for row in table]
        self._notice_at = size

    def free_slot(self) -> int:
        """Return the number of a slot without a worker."""
        return next(i for i, slot in enumerate(self.slots) if slot["state"] == EMPTY)

    def live(self, generation: int | None = None) -> list[Slot]:
        """The slots with a worker (of this generation)."""
        return [s for s in self.slots if s["state"] != EMPTY and generation in (None, s["generation"])]

    # --- the notice --------------------------------------------------------------------------------------------------

    def post(self, **facts: Any) -> None:
        """Publish `facts` to all workers. They replace earlier facts of the same names."""
        text = json.dumps({**self.notice(), **facts}).encode()
        page = 1 - self._memory[self._notice_at]  # the page that is not valid now
        start = self._notice_at + 8 + page * NOTICE_BYTES
        self._memory[start : start + 8 + len(text)] = len(text).to_bytes(8, "little") + text
        self._memory[self._notice_at] = page

    def notice(self) -> dict[str, Any]:
        start = self._notice_at + 8 + self._memory[self._notice_at] * NOTICE_BYTES
        size = int.from_bytes(self._memory[start : start + 8], "little")
        facts: dict[str, Any] = json.loads(self._memory[start + 8 : start + 8 + size]) if size else {}
        return facts

    # --- is the service well? ----------------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Return the reasons why the service is not ready. The list is empty if it is ready."""
        notice, now = self.notice(), time.monotonic()
        workers = self.live(notice.get("generation"))
        lively = [s for s in workers if s["state"] == READY and now - s["heartbeat"] < STALE and _runs(int(s["pid"]))]
        wanted = notice.get("workers", 1)
        if len(lively) < wanted:
            return [f"{len(lively)} of {wanted} workers are ready"]
        return []


def _runs(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X", b"")
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process, or 0 if the system does not report them."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


# --- for Prometheus --------------------------------------------------------------------------------------------------


class _Collector:
    def __init__(self, board: Board, models: Sequence[Mapping[str, str]]) -> None:
        self.board, self.models = board, models

    def collect(self) -> Iterator[Metric]:
        slots, live = self.board.slots, self.board.live()
        requests = CounterMetricFamily("longtail_requests", "Requests answered.", labels=["route", "status"])
        latency = HistogramMetricFamily(
            "longtail_request_seconds", "Time to answer, after the headers.", labels=["route"]
        )
        counts = np.sum([slot.requests for slot in slots], axis=0)
        buckets = np.sum([slot.buckets for slot in slots], axis=0)
        seconds = np.sum([slot.seconds for slot in slots], axis=0)
        edges = [*(f"{edge:g}" for edge in BUCKETS), "+Inf"]
        for i, route in enumerate(ROUTES):
            for j, status in enumerate(STATUSES):
                if counts[i, j]:
                    requests.add_metric([route, str(status)], counts[i, j])
            if buckets[i].any():
                summed = buckets[i].cumsum().tolist()
                latency.add_metric([route], list(zip(edges, summed, strict=True)), seconds[i])
        yield requests
        yield latency
        rows = CounterMetricFamily("longtail_rows", "Rows scored.", labels=["model"])
        info = GaugeMetricFamily(
            "longtail_model_info", "The models that are served.", labels=["model", "version", "method"]
        )
        for i, model in enumerate(self.models):
            rows.add_metric([model["name"]], sum(slot.rows[i] for slot in slots))
            info.add_metric([model["name"], model["version"], model["method"]], 1)
        yield rows
        yield info
        for name, text in (("batches", "Batches scored."), ("batched_rows", "Rows in these batches."),
                           ("rejected", "Requests refused because the queue was full.")):  # fmt: skip
            yield CounterMetricFamily(f"longtail_{name}", text, value=sum(slot[name] for slot in slots))
        for name, text in (("connections", "Open connections."), ("queued", "Requests that wait to be scored.")):
            yield GaugeMetricFamily(f"longtail_{name}", text, value=sum(slot[name] for slot in live))
        memory = GaugeMetricFamily("longtail_worker_resident_bytes", "Memory of each worker.", labels=["worker"])
        for i, slot in enumerate(slots):
            if slot["state"] != EMPTY:
                memory.add_metric([str(i)], memory_of(int(slot["pid"])))
        yield memory
        notice = self.board.notice()
        yield GaugeMetricFamily("longtail_workers", "Worker processes.", value=len(live))
        yield GaugeMetricFamily("longtail_ready", "Whether the service is ready.", value=float(not self.board.faults()))
        reloads = CounterMetricFamily("longtail_reloads", "Models read again while serving.", labels=["result"])
        for result in ("done", "refused"):
            reloads.add_metric([result], notice.get(f"reloads_{result}", 0))
        yield reloads
        yield CounterMetricFamily("longtail_worker_restarts", "Workers that died.", value=notice.get("restarts", 0))


def exposition(board: Board, models: Sequence[Mapping[str, str]]) -> bytes:
    """The board in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(board, models))
    return generate_latest(registry)
