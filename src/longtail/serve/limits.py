"""All limits of the service and their defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields

from longtail.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Limits of the service. Sizes apply to a request, connections and queues to the whole service. Times are in
    seconds.

    Parameters
    ----------
    max_body : int
        Bytes of a request body. A larger body is refused with 413 before it is read.
    max_header : int
        Bytes of all request headers together (431).
    max_url : int
        Bytes of a request's address (414).
    max_rows : int
        Rows or texts in one request (a stream has no limit).
    max_features : int
        Entries of one sparse row.
    max_text : int
        Characters of one text.
    max_top_k : int
        Labels per row.
    max_labels : int
        Labels in an allow or deny list.
    max_connections : int
        Open connections. At the limit, the connection that has been idle longest is closed.
    max_queue : int
        Requests that wait to be scored. Further requests are refused with 503 at once.
    max_queue_bytes : int
        Bytes of all bodies that are being read or wait to be scored.
    header_timeout : float
        Time that a client has to send the headers of a request.
    body_timeout : float
        Time that a client has to send the body. In a stream: longest time without receiving any data.
    write_timeout : float
        Longest time in which the client reads nothing of its answer.
    keep_alive : float
        Time after which an idle connection is closed.
    request_timeout : float
        Longest time that a request may wait to be scored. While the wait is expected to take more than half of it,
        requests are refused with 503.
    drain_timeout : float
        Time that requests have to finish after SIGTERM.
    """

    max_body: int = 8 << 20
    max_header: int = 8 << 10
    max_url: int = 4 << 10
    max_rows: int = 1024
    max_features: int = 100_000
    max_text: int = 1_000_000
    max_top_k: int = 1000
    max_labels: int = 1000
    max_connections: int = 1024
    max_queue: int = 128
    max_queue_bytes: int = 64 << 20
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    write_timeout: float = 30.0
    keep_alive: float = 5.0
    request_timeout: float = 10.0
    drain_timeout: float = 25.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**50:
                raise InputError(f"the limit {field.name} must be a number above 0; got {value!r}")

    def shared_by(self, workers: int) -> Limits:
        """Return the limits of one worker process. Limits of the whole service are divided among the workers."""
        whole = ("max_connections", "max_queue")
        parts = {name: max(1, -(-getattr(self, name) // workers)) for name in whole}
        parts["max_queue_bytes"] = max(self.max_body, self.max_queue_bytes // workers)
        return Limits(**{**{field.name: getattr(self, field.name) for field in fields(self)}, **parts})
