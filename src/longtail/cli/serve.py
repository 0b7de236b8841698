"""`longtail serve MODEL …`: predictions over HTTP, and a page to try the models."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.options import Groups, options_of
from longtail.cli.output import UsageError, note
from longtail.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from longtail.serve.service import Access

TOKEN = "LONGTAIL_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TOKEN_FORM = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
PACKAGES = ("httptools", "msgspec", "prometheus_client")


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Model folders; NAME=FOLDER gives a model another name than its folder."),
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 takes a free one.")] = 8080,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="Processes; one per core, at most 4, if not given.")
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help=f"Demand one of the tokens in FILE, or ${TOKEN}."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Answer to this name; may be repeated."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="A line per request on standard error.")
    ] = True,
    mmap: Annotated[
        bool, typer.Option("--mmap", help="Leave the models on disk, also those that are larger than the memory.")
    ] = False,
    *,
    limits: dict[str, Any],
) -> None:
    """Serve models over HTTP, with a page to try them.

    A model is replaced without a gap when its folder is, or on SIGHUP. SIGTERM answers what is under way and ends.
    """
    run(models, host, port, workers, token_file, allow_host or [], access_log, mmap, limits)


def run(
    models: list[str],
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int | None = None,
    token_file: str | None = None,
    allow_host: list[str] | None = None,
    access_log: bool = True,
    mmap: bool = False,
    limits: dict[str, Any] | None = None,
) -> None:
    """Serve until a signal ends it."""
    begin = time.perf_counter()
    if not hasattr(os, "fork"):
        raise UsageError("longtail serve needs Linux or macOS; on Windows use WSL or a container")
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package.replace("_", "-"), "serve", "longtail serve")
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is loaded
        os.environ.setdefault(name, "1")
    tokens = _tokens(token_file)
    from longtail.parallel import n_threads
    from longtail.serve import Limits
    from longtail.serve.master import Master, address_of, listen
    from longtail.serve.predictor import parse_models
    from longtail.serve.service import Settings

    sources = parse_models(models)
    settings = Settings(Limits(**(limits or {})), _access(host, tokens, allow_host or []), access_log, mmap)
    try:
        listeners = listen(host, port)
    except OSError as error:
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    master = Master(sources, settings, listeners, workers or min(4, n_threads(None)), note)
    master.on_start = lambda: note(
        f"Serving {', '.join(sources)} at {address_of(listeners[0])} "
        f"(ready in {time.perf_counter() - begin:.1f} s; Ctrl-C stops)"
    )
    master.run()


def groups(words: list[str]) -> Groups:
    from longtail.serve.limits import Limits

    return {"limits": options_of(Limits)}


def _tokens(file: str | None) -> tuple[bytes, ...]:
    """The tokens in the file, one per line, or the token in the environment."""
    if file is not None:
        lines = Path(file).read_text(encoding="utf-8").split()
        if not lines:
            raise InputError(f"{file}: holds no token")
    else:
        lines = [os.environ[TOKEN]] if os.environ.get(TOKEN) else []
    for line in lines:
        if not TOKEN_FORM.fullmatch(line):
            raise InputError("a token must have 16 to 512 letters, digits or . _ ~ + / = -; try: openssl rand -hex 32")
    return tuple(line.encode() for line in lines)


def _access(host: str, tokens: tuple[bytes, ...], allowed: list[str]) -> Access:
    from longtail.serve.service import Access

    hosts = {name.lower() for name in allowed}
    if host in LOOPBACK or hosts:
        hosts |= {*LOOPBACK, "[::1]", host.lower()}
    return Access(tokens, frozenset(hosts))
