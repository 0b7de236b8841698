"""The service inside one worker process: connections, the queue, access control and counters."""

from __future__ import annotations

import asyncio
import hmac
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.serve.batching import Batcher, QueuedRows
from longtail.serve.board import DRAINING, MAX_MODELS, Board, Slot
from longtail.serve.limits import Limits
from longtail.serve.messages import QUEUE_IS_FULL, HttpError, Request, Response, overloaded
from longtail.serve.predictor import NAME, Answer, ServedModel, score
from longtail.serve.reader import Reader
from longtail.serve.rows import units

if TYPE_CHECKING:
    from longtail.serve.connection import Connection

log = logging.getLogger(__name__)

PATIENCE = 0.5  # share of `request_timeout` that a request may be expected to wait when it is admitted
TICK = 0.25  # seconds between two checks of all connections
Handler = Callable[["Service", Request], Awaitable[Response]]


@dataclass(frozen=True)
class Access:
    """Access control. `hosts` are the host names for which the service answers; if it is empty, all names are accepted.
    This prevents DNS rebinding, where the host name of a foreign web page points to this service."""

    tokens: tuple[bytes, ...] = ()
    hosts: frozenset[str] = frozenset()

    def check(self, request: Request, *, public: bool) -> None:
        host = request.headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.hosts and name not in self.hosts:
            raise HttpError(421, "wrong_host", "this service does not answer to that host; see --allow-host")
        if public or not self.tokens:
            return
        given = request.headers.get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        right = [hmac.compare_digest(token.strip(), each) for each in self.tokens]
        if scheme.lower() != b"bearer" or not any(right):
            message = "a token is needed: Authorization: Bearer TOKEN"
            raise HttpError(401, "no_token", message, headers=[(b"www-authenticate", b"Bearer")])


@dataclass(frozen=True)
class Endpoint:
    """A route: its name in the metrics, its handler and its properties."""

    name: str
    call: Handler
    public: bool = False  # whether it needs no token
    scores: bool = False  # whether it takes a place in the queue
    style: str = "v1"
    streams_ndjson: bool = False


@dataclass(slots=True)
class Bound:
    """An endpoint for one request."""

    endpoint: Endpoint
    service: Service
    streams: bool

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def style(self) -> str:
        return self.endpoint.style

    async def handler(self, request: Request) -> Response:
        return await self.endpoint.call(self.service, request)


@dataclass(frozen=True)
class Settings:
    """The settings from the command line."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    access_log: bool = True
    mmap: bool = False


class Service:
    """The service of one worker. The connections call it."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        settings: Settings,
        board: Board,
        slot: Slot,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        from longtail.serve.routes import ROUTES

        if len(models) > MAX_MODELS:
            raise ValueError(f"{len(models)} models are more than {MAX_MODELS}")
        self.models = dict(models)
        self.numbers = {name: i for i, name in enumerate(self.models)}
        self.settings = settings
        self.limits = settings.limits
        self.access = settings.access
        self.board = board
        self.slot = slot
        self.loop = loop
        self.executor = executor
        self.batcher = Batcher(score, loop, executor)
        self.reader = Reader(self, loop)
        self.routes = ROUTES
        self.connections: set[Connection] = set()
        self.waiting: OrderedDict[Connection, None] = OrderedDict()  # connections without a request, longest idle first
        self.draining = False
        self.closes_idle = False
        self.pending = 0  # scoring requests that were admitted and are not answered yet
        self.pending_bytes = 0
        self.refusals = 0  # requests for which the queue had no place
        self._log_lines: list[str] = []

    # --- connections -------------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        if len(self.connections) >= self.limits.max_connections and self.waiting:
            oldest, _ = self.waiting.popitem(last=False)
            oldest.transport.abort()
            self.connections.discard(oldest)
        self.connections.add(connection)
        if len(self.connections) > self.limits.max_connections:
            connection.fault = overloaded("all connections are in use; try again later")
            connection._next()
        else:
            self.waiting[connection] = None

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.waiting.pop(connection, None)

    def tick(self) -> None:
        """Called several times a second. Ends what takes too long, updates the heartbeat and writes the log."""
        now = self.loop.time()
        for connection in list(self.connections):
            connection.tick(now)
        stuck = self.batcher.busy_since
        if stuck is None or time.monotonic() - stuck < self.limits.request_timeout:
            self.slot.beat()
        self.slot["connections"] = len(self.connections)
        self.slot["queued"] = self.pending
        self.slot["batches"] = self._before[0] + self.batcher.n_batches
        self.slot["batched_rows"] = self._before[1] + self.batcher.n_rows
        self.flush_log()

    def begin(self) -> None:
        """Start with the counts that an earlier worker left in the slot."""
        self._before = self.slot["batches"], self.slot["batched_rows"]

    def drain(self, *, close_idle: bool) -> None:
        """Stop taking new requests on idle connections. Requests in progress are answered."""
        self.draining, self.closes_idle = True, close_idle
        self.slot["state"] = DRAINING
        if close_idle:
            for connection in list(self.connections):
                connection.end()

    # --- requests ----------------------------------------------------------------------------------------------------

    def route(self, request: Request) -> Bound:
        """Return the endpoint of a request, or raise HttpError. The body has not been read yet."""
        found, request.params = self.routes.find(request.path)
        endpoint = (found or {}).get("GET" if request.method == "HEAD" else request.method)
        self.access.check(request, public=endpoint is not None and endpoint.public)
        if found is None:
            raise HttpError(404, "no_route", "there is nothing at this address; see /docs")
        if endpoint is None:
            allowed = ", ".join(found).encode()
            raise HttpError(
                405, "wrong_method", f"use {' or '.join(found)} for this address", headers=[(b"allow", allowed)]
            )
        if "name" in request.params:
            self.model(request)
        if endpoint.scores:
            if self.full:
                self.refusals += 1
                self.slot["rejected"] += 1
                raise overloaded(QUEUE_IS_FULL)
            self.pending += 1
            request.admitted = True
        streams = endpoint.streams_ndjson and request.headers.get(b"content-type", b"").startswith(
            b"application/x-ndjson"
        )
        return Bound(endpoint, self, streams)

    @property
    def full(self) -> bool:
        """Whether no further request may wait to be scored: there are too many, or the last would wait too long."""
        too_long = PATIENCE * self.limits.request_timeout
        return self.pending >= self.limits.max_queue or self.batcher.backlog > too_long

    def model(self, request: Request) -> ServedModel:
        """Return the model that the path names. It is looked up in the table of models, never on disk."""
        name = request.params["name"]
        model = self.models.get(name)
        if model is None:
            shown = repr(name) if NAME.fullmatch(name) else "of this name"
            raise HttpError(404, "no_model", f"there is no model {shown}; see /v1/models")
        return model

    def reserve(self, request: Request, n_bytes: int) -> None:
        """Reserve memory for a body, within the limit for all bodies together."""
        more = n_bytes - request.reserved
        if self.pending_bytes + more > self.limits.max_queue_bytes:
            self.slot["rejected"] += 1
            self.release(request)
            raise overloaded("too many bytes wait to be scored; try again later")
        request.reserved = n_bytes
        self.pending_bytes += more

    def release(self, request: Request) -> None:
        self.pending_bytes -= request.reserved
        request.reserved = 0
        if request.admitted:
            self.pending -= 1
            request.admitted = False
            self.reader.wake()

    async def best(self, request: Request, model: ServedModel, rows: Any, k: int, allow: Any = None) -> Answer:
        """Return the k best labels of each row. They are scored together with other requests."""
        job = QueuedRows(
            model=model,
            rows=rows,
            k=min(k, model.n_labels),
            units=units(rows),
            future=self.loop.create_future(),
            deadline=time.monotonic() + self.limits.request_timeout,
            allow=allow,
        )
        self.batcher.put(job)
        parts = await job.future
        self.slot.rows[self.numbers[model.name]] += job.n_rows
        if len(parts) == 1:
            return parts[0]  # type: ignore[no-any-return]
        probabilities = None if parts[0].probabilities is None else np.concatenate([p.probabilities for p in parts])
        labels, scores = (np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "scores"))
        return Answer(labels, scores, probabilities)

    async def in_thread(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Run a long task in the scoring thread and return its result."""
        return await self.loop.run_in_executor(self.executor, task, *arguments)

    # --- what happened -----------------------------------------------------------------------------------------------

    def answered(self, request: Request, status: int, n_bytes: int) -> None:
        self.release(request)
        seconds = time.perf_counter() - request.began
        route = request.route.name if request.route is not None else "none"
        self.slot.count("stream" if request.stream is not None else route, status, seconds)
        if self.settings.access_log:
            self._write_log(request.client, f"{request.method} {request.path}", status, n_bytes, seconds)

    def refused(self, request: Request | None, client: str, fault: HttpError) -> None:
        """Count and log a connection that was ended by an error."""
        self.slot.count("none", fault.status, 0.0)
        if self.settings.access_log:
            self._write_log(
                client, "-" if request is None else f"{request.method} {request.path}", fault.status, 0, 0.0
            )

    def refused_quickly(self, count: int) -> None:
        """Count requests that were refused without parsing because the queue was full."""
        self.refusals += count
        self.slot["rejected"] += count
        self.slot.count("none", 503, 0.0, count)

    def _write_log(self, client: str, line: str, status: int, n_bytes: int, seconds: float) -> None:
        shown = line if line.isprintable() else line.encode("unicode_escape").decode()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._log_lines.append(f"{stamp} {client} {shown[:200]} {status} {n_bytes} {1000 * seconds:.1f}ms\n")
        if len(self._log_lines) > 10_000:  # if standard error is not read, drop lines to limit memory
            del self._log_lines[:5_000]

    def flush_log(self) -> None:
        if self._log_lines:
            lines, self._log_lines = "".join(self._log_lines), []
            sys.stderr.write(lines)
            sys.stderr.flush()
