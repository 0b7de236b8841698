"""The page at `/` and the documentation at `/docs`. They use only files of the package, no external resources."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from longtail.serve.messages import Request, Response

if TYPE_CHECKING:
    from longtail.serve.service import Service

TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = (
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)


def _files() -> dict[str, tuple[bytes, bytes, bytes]]:
    """Address -> content, type and entity tag."""
    found = {}
    for entry in sorted(resources.files("longtail.serve").joinpath("static").iterdir(), key=lambda each: each.name):
        content = entry.read_bytes()
        tag = b'"%b"' % hashlib.sha256(content).hexdigest()[:16].encode()
        found[f"/static/{entry.name}"] = (content, TYPES[entry.name.rpartition(".")[2]], tag)
    found["/"] = found.pop("/static/index.html")
    found["/docs"] = found.pop("/static/docs.html")
    found["/favicon.ico"] = found["/static/icon.svg"]
    return found


FILES = _files()


async def serve(service: Service, request: Request) -> Response:
    content, kind, tag = FILES[request.path]
    headers = [*SECURITY, (b"etag", tag)]
    if request.headers.get(b"if-none-match") == tag:
        return Response(b"", 304, kind, headers)
    return Response(content, 200, kind, headers)
