"""A running service for tests, and small clients that can misbehave."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import store
from longtail.data import TextFeatures
from longtail.models import LinearModel

TOPICS = {
    "bone": ["fracture", "wrist", "rib", "knee", "ankle"],
    "heart": ["chest", "beat", "pressure", "blood"],
    "lung": ["cough", "breath", "asthma", "chest"],
    "skin": ["rash", "itching", "dry", "arm"],
}
LABELS = list(TOPICS)


def text_model(scale: float = 1.0) -> LinearModel:
    """Each word speaks for its topic; `scale` makes models that differ."""
    features = TextFeatures().fit([" ".join(words) for words in TOPICS.values()])
    names = features.get_feature_names_out().tolist()
    W = np.zeros((len(LABELS), len(names) + 1), np.float32)
    for i, words in enumerate(TOPICS.values()):
        for j, word in enumerate(words):
            W[i, names.index(word)] = scale * (1.0 + 0.1 * j)
    W[:, -1] = -0.5 * scale
    return LinearModel(
        W=sp.csr_array(W), n_features=len(names), bias=1.0, label_names=np.array(LABELS), text_features=features
    )


def vector_model() -> LinearModel:
    W = sp.csr_array(np.array([[1, 0, 0, 0.5], [0, 2, 0, 0], [0, 0, 3, -1]], np.float32))
    return LinearModel(W=W, n_features=4, label_names=np.arange(3))


def save(folder: Path, model: LinearModel) -> Path:
    store.write_model(folder, model, store.Provenance("one-vs-all", {}))
    return folder


def save_card(folder: Path) -> None:
    card = store.Card(
        store.model_id(folder),
        data={"training rows": 1000},
        metrics={
            "overall": {"P@1": 0.9, "PSP@5": 0.8},
            "bands": {band: {"P@1": 0.5, "PSP@5": 0.4} for band in ("head", "torso", "tail")},
            "n_rows": 100,
        },
        reliability={"predicted": [0.1, 0.9], "observed": [0.2, 0.8], "count": [10, 20]},
        examples=["fracture of the left wrist", "dry cough for three weeks"],
        titles=["Bones and joints", "Heart and circulation", "Lung and breathing", "Skin"],
        frequency=np.array([500, 200, 50, 3]),
        quality=np.array([0.9, 0.8, 0.7, np.nan], np.float32),
    )
    store.write_card(folder, card)


class Running:
    """`longtail serve` as a process of its own."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        program = [sys.executable, "-c", "from longtail.cli import main; main()", "serve", *words, "--port", "0"]
        self.process = subprocess.Popen(
            program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **(env or {})}
        )
        self.lines: list[str] = []
        self._told = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        line = self.wait_for(r"Serving .* at http://127\.0\.0\.1:(\d+)", 90)
        self.port = int(line[1])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            with self._told:
                self.lines.append(raw.decode().rstrip("\n"))
                self._told.notify_all()
        with self._told:
            self._told.notify_all()

    def wait_for(self, pattern: str, seconds: float = 20.0, after: int = 0) -> re.Match[str]:
        """The first line of the log (from line `after`) with this pattern."""
        deadline = time.monotonic() + seconds
        with self._told:
            while True:
                for line in self.lines[after:]:
                    if found := re.search(pattern, line):
                        return found
                if self.process.poll() is not None or not self._told.wait(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"no line with {pattern!r} in: {self.lines[-20:]}")

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(seconds)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    # --- clients -----------------------------------------------------------------------------------------------------

    def ask(
        self, path: str, body: Any = None, *, method: str | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        return self.asking([(path, body)], method=method, headers=headers)[0]

    def asking(
        self,
        requests: Sequence[tuple[str, Any]],
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> list[Answer]:
        """Requests on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        answers = []
        try:
            for path, body in requests:
                raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
                own = {"Content-Type": "application/json"} if raw is not None else {}
                connection.request(method or ("GET" if raw is None else "POST"), path, raw, {**own, **(headers or {})})
                answer = connection.getresponse()
                answers.append(Answer(answer.status, dict(answer.headers), answer.read()))
        finally:
            connection.close()
        return answers

    def predict(self, texts: Any, model: str = "texts", **more: Any) -> dict[str, Any]:
        answer = self.ask(f"/v1/models/{model}/predict", {"texts": texts, **more})
        assert answer.status == 200, answer.body
        return answer.json

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connected:
            wire = Wire(connected)
            with wire.file:
                yield wire


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, {name.lower(): value for name, value in headers.items()}, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        return self.json["error"]  # type: ignore[no-any-return]


class Wire:
    """A socket on which anything can be sent."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.file = connected.makefile("rb")

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def answer(self) -> Answer:
        """The next answer."""
        line = self.file.readline()
        if not line:
            raise EOFError("the service closed the connection without an answer")
        status = int(line.split()[1])
        headers: dict[str, str] = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.file.readline(), 16):
                body += self.file.read(size)
                self.file.readline()
            self.file.readline()
        else:
            body = self.file.read(int(headers.get("content-length", 0)))
        return Answer(status, headers, body)

    def closed(self, seconds: float = 10.0) -> bool:
        """Whether the service closes the connection within this time, without sending more."""
        self.socket.settimeout(seconds)
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def post(path: str, body: bytes, *headers: str, length: str | None = None) -> bytes:
    """A request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
