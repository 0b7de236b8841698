"""One HTTP/1.1 connection. llhttp (the parser of Node.js, through httptools) parses, and this class applies the limits.

Why there is no ready-made server: with a route that does nothing, a request costs about 75 µs here, 300 µs in uvicorn
with a bare ASGI function, and 600 µs in FastAPI. Scoring one of 32 texts costs about 75 µs. A public service also needs
control between the socket and the application: time limits for headers, bodies and slow readers, refusals before the
body is read, closing of idle connections when there are too many, and closing of connections when the service is
replaced. docs/guides/serving.md has the figures.

A request is routed when its headers are complete. It is refused at this point if possible: for an unknown route, a
wrong token, a body that is too large, or a full queue.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import httptools

from longtail.serve.messages import HttpError, Request, Response, Stream
from longtail.serve.wire import head

if TYPE_CHECKING:
    from longtail.serve.service import Service

log = logging.getLogger(__name__)

SMALL_BODY = 1 << 16  # a refused body of this size is read to its end, and the connection stays open
HELD = 1 << 16  # bytes of later requests that are kept while one is answered
LINGER = 1.0  # seconds that a client gets to read a refusal before its unread body resets the connection
DISCARDED = 1 << 22  # bytes that the client may send during this time
ONCE = (b"host", b"authorization", b"content-type", b"content-encoding", b"inference-header-content-length")


class Connection(asyncio.Protocol):
    """States: waiting for a request, reading its headers, reading its body, answering it, lingering before the end."""

    def __init__(self, service: Service, connected: socket.socket) -> None:
        self.service = service
        self.socket = connected
        self.is_read = False  # by service.reader
        self.is_new = True  # whether it had no answer when the reader took it
        self.limits = service.limits
        self.loop = service.loop
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.client = ""
        self.parser = httptools.HttpRequestParser(self)
        self.incoming: Request | None = None  # the request whose body is being read
        self.ready: deque[Request] = deque()  # complete, or streaming; to be answered in this order
        self.answering: Request | None = None
        self.task: asyncio.Task[None] | None = None
        self.fault: HttpError | None = None  # ends the connection as soon as earlier requests are answered
        self.held = bytearray()
        self.in_headers = False
        self.head_bytes = 0
        self.served = 0
        self.since = self.loop.time()  # start of the current state
        self.eof = False
        self.lingering = False
        self.discarded = 0
        self.unread_since: float | None = None  # when the client stopped reading
        self.writable = asyncio.Event()
        self.writable.set()

    # --- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()  # asyncio only writes; service.reader reads
        peer = transport.get_extra_info("peername")
        self.client = peer[0] if isinstance(peer, tuple) else ""
        self.service.opened(self)
        self.service.reader.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.service.reader.remove(self)
        self.service.closed(self)
        self.writable.set()
        if self.task is not None:
            self.task.cancel()
        for request in (self.incoming, self.answering, *self.ready):
            if request is not None:
                self.service.release(request)
                if request.stream is not None:
                    request.stream.end(HttpError(400, "incomplete", "the connection was closed within the body"))

    def data_received(self, data: bytes) -> None:
        if self.lingering or self.fault is not None:
            self.discarded += len(data)
            if self.discarded > DISCARDED:
                self.transport.abort()
            return
        if self.answering is not None and self.answering.stream is None:
            self.held += data
            if len(self.held) > HELD:
                self.service.reader.remove(self)
            return
        self._feed(data)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which nothing has been read."""
        return not (
            self.in_headers or self.incoming or self.answering or self.ready or self.lingering or self.fault is not None
        )

    def refuse_quickly(self, answer: bytes, now: float) -> None:
        """Send the prepared answer to a request that was not parsed."""
        self.transport.write(answer)
        self.service.waiting.move_to_end(self)
        self.since = now
        self.served += 1

    def eof_received(self) -> bool:
        self.eof = True
        if self.incoming is not None and self.incoming.stream is not None:
            self.incoming.stream.end(HttpError(400, "incomplete", "the connection was closed within the body"))
        owed = self.answering is not None or self.ready or self.held  # half-closed: the client still reads
        return bool(owed and not self.lingering)  # if False, asyncio closes the connection

    def pause_writing(self) -> None:
        self.unread_since = self.loop.time()
        self.writable.clear()

    def resume_writing(self) -> None:
        self.unread_since = None
        self.writable.set()

    def _feed(self, data: bytes | bytearray) -> None:
        if self.in_headers or self.incoming is None:
            self.head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, HttpError):
                self.fault = cause
            elif isinstance(error, httptools.HttpParserCallbackError):
                log.error("error while reading a request", exc_info=cause)
                self.fault = HttpError(500, "internal", "internal error; the log of the service has more")
            else:
                self.fault = HttpError(400, "bad_http", f"this is not HTTP/1.1: {error}")
        if self.fault is None and self.in_headers and self.head_bytes > self.limits.max_header + self.limits.max_url:
            self.fault = _headers_too_large(self.limits.max_header)
        if self.fault is not None and self.incoming is not None and self.incoming.stream is not None:
            self.incoming.stream.end(self.fault)
        self._next()

    # --- the parser's callbacks --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.url, self.headers = b"", cast(dict[bytes, bytes], {})
        self.in_headers = True
        self.since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.limits.max_url:
            raise HttpError(414, "url_too_long", f"the address is longer than {self.limits.max_url:,} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_headers:
            return  # a trailer
        name = name.lower()
        if name in self.headers and name in ONCE:
            raise HttpError(400, "bad_header", f"the header {name.decode('latin-1')} was sent twice")
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        self.in_headers = False
        self.head_bytes = 0
        headers = self.headers
        if sum(map(len, headers)) + sum(map(len, headers.values())) + 4 * len(headers) > self.limits.max_header:
            raise _headers_too_large(self.limits.max_header)
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise HttpError(400, "bad_http", f"HTTP/{version} is not supported; use HTTP/1.1")
        if self.parser.should_upgrade():
            raise HttpError(400, "no_upgrade", "this service speaks HTTP/1.1 only; drop the header Upgrade")
        if version == "1.1" and b"host" not in headers:
            raise HttpError(400, "bad_header", "HTTP/1.1 demands the header Host")
        path, query = _split(self.url)
        request = Request(
            method=self.parser.get_method().decode("ascii"),
            path=path,
            query_string=query,
            headers=headers,
            client=self.client,
            began=time.perf_counter(),
            keep_alive=self.parser.should_keep_alive(),
        )
        self.service.waiting.pop(self, None)
        self.since = self.loop.time()
        self.incoming = request
        self._admit(request)

    def _admit(self, request: Request) -> None:
        """Route the request, and refuse what can be refused before its body is read."""
        length = int(request.headers.get(b"content-length", b"0") or b"0")
        chunked = b"transfer-encoding" in request.headers
        try:
            route = self.service.route(request)
            request.route = route
            if not route.streams:
                if length > self.limits.max_body:
                    raise _body_too_large(self.limits.max_body)
                self.service.reserve(request, length)
        except HttpError as refusal:
            request.refusal = refusal
            self.service.release(request)
            if chunked or length > SMALL_BODY or (length and b"expect" in request.headers):
                raise
            return
        if request.headers.get(b"expect", b"").lower() == b"100-continue" and self.answering is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if route.streams:
            reader = self.service.reader
            request.stream = Stream(lambda: reader.remove(self), lambda: reader.add(self), self.limits.max_body)
            self.ready.append(request)

    def on_body(self, chunk: bytes) -> None:
        request = self.incoming
        if request is None or request.refusal is not None:
            return
        if request.stream is not None:
            self.since = self.loop.time()
            request.stream.feed(chunk)
            return
        request.size += len(chunk)
        if request.size > self.limits.max_body:
            raise _body_too_large(self.limits.max_body)
        if request.size > request.reserved:
            self.service.reserve(request, request.size)
        request.parts.append(chunk)

    def on_message_complete(self) -> None:
        request, self.incoming = self.incoming, None
        self.head_bytes = 0
        if request is None:
            return
        if request.stream is not None:
            request.stream.end()
        else:
            request.body = b"".join(request.parts) if len(request.parts) != 1 else request.parts[0]
            request.parts.clear()
            self.ready.append(request)

    # --- answering ---------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Start the next answer, or wait for the next request."""
        if self.answering is not None or self.transport.is_closing():
            return
        if self.ready:
            self.answering = self.ready.popleft()
            self.task = self.loop.create_task(self._answer(self.answering))
        elif self.fault is not None:
            self._refuse(self.fault)
        elif self.eof:
            self.transport.close()
        elif self.incoming is None and not self.in_headers:
            self.since = self.loop.time()
            self.service.waiting[self] = None
            if self.service.draining and self.service.closes_idle:
                self.transport.close()

    async def _answer(self, request: Request) -> None:
        response = await self._handled(request)
        close = not request.keep_alive or self.service.draining or (self.eof and not self.ready and not self.held)
        sent = 0
        if isinstance(response.body, bytes):
            sent = len(response.body)
            content = b"" if request.method == "HEAD" else response.body
            self.transport.write(head(response, sent, close=close, chunked=False) + content)
        else:
            close = await self._send_stream(request, response, response.body) or close
            close = close or self.incoming is request  # the stream ended before its body did
        if not self.writable.is_set():
            await self.writable.wait()
        self.service.answered(request, response.status, sent)
        self.answering, self.task = None, None
        self.served += 1
        if self.transport.is_closing():
            return
        if close:
            self._close(unread=self.incoming is not None)
            return
        if self.held:
            held, self.held = bytes(self.held), bytearray()
            self._feed(held)
        else:
            self._next()
        if len(self.held) > HELD:
            return
        self.service.reader.add(self)

    async def _handled(self, request: Request) -> Response:
        route = request.route
        style = route.style if route is not None else ("v2" if request.path.startswith("/v2") else "v1")
        try:
            if request.refusal is not None:
                raise request.refusal
            assert route is not None
            return await route.handler(request)
        except HttpError as error:
            return error.response(style)
        except Exception:
            log.exception("error in %s %s", request.method, request.path)
            return HttpError(500, "internal", "internal error; the log of the service has more").response(style)

    async def _send_stream(self, request: Request, response: Response, chunks: AsyncIterator[bytes]) -> bool:
        """Send a stream. Returns whether the connection must be closed afterwards."""
        chunked = self.parser.get_http_version() == "1.1"
        self.transport.write(head(response, None, close=not chunked or not request.keep_alive, chunked=chunked))
        try:
            async for chunk in chunks:
                if chunk:
                    self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
                    await self.writable.wait()
        except Exception:
            log.exception("error in the stream of %s", request.path)
            self.transport.abort()  # without the end of the stream, the client sees that something is missing
            return True
        if chunked:
            self.transport.write(b"0\r\n\r\n")
        return not chunked

    def _refuse(self, fault: HttpError) -> None:
        """Send the last answer of the connection. Further data from the client is not read."""
        request = self.incoming
        style = "v2" if request is not None and request.path.startswith("/v2") else "v1"
        response = fault.response(style)
        body = cast(bytes, response.body)
        self.transport.write(head(response, len(body), close=True, chunked=False) + body)
        self.service.refused(request, self.client, fault)
        if request is not None:
            self.service.release(request)
        self._close(unread=True)

    def _close(self, *, unread: bool) -> None:
        """End the connection. Closing a socket with unread data would reset it, and the client could lose its
        answer."""
        if not unread or self.eof:
            self.transport.close()
            return
        self.lingering = True
        self.since = self.loop.time()
        self.service.waiting.pop(self, None)
        self.service.reader.add(self)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Called several times a second. Ends requests and connections that take too long."""
        limits = self.limits
        if self.lingering:
            if now - self.since > LINGER:
                self.transport.abort()
        elif self.unread_since is not None:
            if now - self.unread_since > limits.write_timeout:
                self.transport.abort()
        elif self.answering is not None:
            stream = self.answering.stream
            if stream is None or not stream.waits:
                self.since = now
            elif not stream.ended and now - self.since > limits.body_timeout:
                stream.end(_too_slow("the body", limits.body_timeout))
        elif self.in_headers:
            if now - self.since > limits.header_timeout:
                self._refuse(_too_slow("the headers", limits.header_timeout))
        elif self.incoming is not None:
            if now - self.since > limits.body_timeout:
                self._refuse(_too_slow("the body", limits.body_timeout))
        elif now - self.since > (limits.keep_alive if self.served else limits.header_timeout):
            self.transport.close()

    def end(self) -> None:
        """Called when the service stops. Closes an idle connection now. `_answer` closes a busy one later."""
        if self.answering is None and not self.ready and self.incoming is None and not self.in_headers:
            self.transport.close()


def _split(url: bytes) -> tuple[str, bytes]:
    """Return the decoded path and the query string."""
    try:
        parsed: Any = httptools.parse_url(url)
        path = unquote((parsed.path or b"/").decode("ascii"), errors="strict")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise HttpError(400, "bad_url", "the address is not a valid path") from None
    return path, parsed.query or b""


def _headers_too_large(most: int) -> HttpError:
    return HttpError(431, "headers_too_large", f"the headers are larger than {most:,} bytes")


def _body_too_large(most: int) -> HttpError:
    return HttpError(413, "body_too_large", f"the body is larger than {most:,} bytes; send fewer rows, or a stream")


def _too_slow(part: str, seconds: float) -> HttpError:
    return HttpError(408, "too_slow", f"{part} took longer than {seconds:g} s")
