"""Requests, responses and errors, as the routes use them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

JSON = b"application/json"
NDJSON = b"application/x-ndjson"
TEXT = b"text/plain; charset=utf-8"
Headers = Sequence[tuple[bytes, bytes]]

PHRASES = {
    100: "Continue",
    200: "OK",
    204: "No Content",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Response:
    """A response. Its body is bytes, or a stream of bytes."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = ()


class HttpError(Exception):
    """An error response. `code` is for programs, the message for people. `field` is the invalid part of the body."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str | None = None, headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field, self.headers = field, headers

    def body(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, **({"field": self.field} if self.field else {})}

    def response(self, style: str = "v1") -> Response:
        """Return the response. The `style` "v2" follows the Open Inference Protocol, where the error is a text."""
        said: Any = self.message if style == "v2" else self.body()
        return Response(encode({"error": said}), self.status, JSON, self.headers)


QUEUE_IS_FULL = "the queue is full; try again later"


def overloaded(message: str) -> HttpError:
    """Return the error for an overloaded service."""
    return HttpError(503, "overloaded", message, headers=[(b"retry-after", b"1")])


class Route(Protocol):
    """The handler of one kind of request, and its properties."""

    @property
    def name(self) -> str: ...

    @property
    def streams(self) -> bool: ...

    @property
    def style(self) -> str: ...

    def handler(self, request: Request) -> Awaitable[Response]: ...


@dataclass(slots=True, eq=False)
class Request:
    """One request. Routes that stream read the body with `lines`. For all others, `body` holds the whole body."""

    method: str
    path: str
    query_string: bytes
    headers: dict[bytes, bytes]
    client: str
    began: float
    keep_alive: bool = True
    body: bytes = b""
    route: Route | None = None
    refusal: HttpError | None = None
    params: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    reserved: int = 0
    stream: Stream | None = None
    admitted: bool = False  # whether it has a place in the queue

    @property
    def query(self) -> dict[str, str]:
        try:
            pairs = parse_qsl(self.query_string.decode("ascii"), keep_blank_values=True, errors="strict")
        except (UnicodeDecodeError, ValueError):
            raise HttpError(400, "bad_query", "the query string is not UTF-8, percent-encoded") from None
        return dict(pairs)

    @property
    def media_type(self) -> bytes:
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


class Stream:
    """The lines of a body, which are read while it arrives. With back-pressure, at most about `HIGH` bytes wait."""

    HIGH = 1 << 18

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None], max_line: int) -> None:
        self.ended = False
        self.waits = False  # whether it waits for the client, and not for scoring or for the client to read its answers
        self.fault: HttpError | None = None
        self.max_line = max_line
        self._lines: deque[bytes] = deque()
        self._tail = b""  # a line whose end has not arrived
        self._waiting = 0  # waiting bytes
        self._pause, self._resume = pause, resume
        self._news = asyncio.Event()

    def feed(self, chunk: bytes) -> None:
        lines = (self._tail + chunk).split(b"\n")
        self._tail = lines.pop()
        self._lines.extend(line for line in lines if line.strip())
        self._waiting += len(chunk)
        if max(map(len, [self._tail, *lines])) > self.max_line:
            self.fault = HttpError(413, "line_too_long", f"a line is longer than {self.max_line:,} bytes")
        if self._waiting > self.HIGH:
            self._pause()
        self._news.set()

    def end(self, fault: HttpError | None = None) -> None:
        if self.ended:
            return
        if self._tail.strip():
            self._lines.append(self._tail)
        self.ended, self._tail = True, b""
        self.fault = self.fault or fault
        self._news.set()

    async def lines(self, most: int) -> list[bytes]:
        """Return the next lines that are not blank, at least one and at most `most`. Empty at the end of the body."""
        while not self._lines and not self.ended and self.fault is None:
            self._waiting = len(self._tail)
            self._resume()
            self._news.clear()
            self.waits = True
            await self._news.wait()
            self.waits = False
        if self.fault is not None:
            raise self.fault
        return [self._lines.popleft() for _ in range(min(most, len(self._lines)))]
