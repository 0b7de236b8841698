"""Converts responses to bytes, and recognises scoring requests without parsing them."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from functools import lru_cache
from typing import cast

from longtail.serve.messages import PHRASES, QUEUE_IS_FULL, Response, overloaded

KNOWN_HEADS, MAX_HEAD = 256, 2048  # memory of `_body_length`: heads, and bytes of each
SCORING = (b"POST /v1/models/", b"POST /v2/models/")
LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})(?=\r\n|\Z)", re.IGNORECASE)
ODD = re.compile(
    rb"\n(transfer-encoding|expect|connection|upgrade|authorization)[ \t]*:|\r[^\n]|content-length.*content-length",
    re.IGNORECASE | re.DOTALL,
)
_date = (0, b"")


def date_header() -> bytes:
    """Return the current time in the format of HTTP. It is computed once a second."""
    global _date
    now = int(time.time())
    if _date[0] != now:
        _date = (now, formatdate(now, usegmt=True).encode())
    return _date[1]


def head(response: Response, length: int | None, *, close: bool, chunked: bool) -> bytes:
    """Status line and headers."""
    status = response.status
    lines = [f"HTTP/1.1 {status} {PHRASES[status]}\r\n".encode(), b"date: ", date_header(), b"\r\n"]
    if length is not None and status not in (204, 304):
        lines += [b"content-type: ", response.content_type, b"\r\ncontent-length: ", str(length).encode(), b"\r\n"]
    elif length is None:
        lines += [b"content-type: ", response.content_type, b"\r\n"]
    if chunked:
        lines.append(b"transfer-encoding: chunked\r\n")
    if close:
        lines.append(b"connection: close\r\n")
    lines.append(b"x-content-type-options: nosniff\r\n")
    for name, value in response.headers:
        lines += [name, b": ", value, b"\r\n"]
    lines.append(b"\r\n")
    return b"".join(lines)


def _queue_full() -> bytes:
    """Return the response for a full queue, with a placeholder for the date."""
    response = overloaded(QUEUE_IS_FULL).response()
    body = cast(bytes, response.body)
    made = head(response, len(body), close=False, chunked=False).replace(b"%", b"%%")
    return made.replace(b"date: " + date_header(), b"date: %b") + body.replace(b"%", b"%%")


QUEUE_FULL = _queue_full()


def is_one_scoring_request(data: bytes) -> bool:
    """Return whether `data` is exactly one complete scoring request."""
    if not data.startswith(SCORING):
        return False
    end = data.find(b"\r\n\r\n")
    return 0 < end <= MAX_HEAD and _body_length(data[:end]) == len(data) - end - 4


@lru_cache(KNOWN_HEADS)  # most clients send the same bytes again and again
def _body_length(head: bytes) -> int | None:
    """Return the length of the body if request line and headers are plain, that is, if nothing in them needs a
    parser."""
    lengths = LENGTH.findall(head)
    return int(lengths[0]) if len(lengths) == 1 and not ODD.search(head) else None
