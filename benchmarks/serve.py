"""The service under load: latency and throughput beside plain FastAPI and beside the model in one process.

    python benchmarks/serve.py MODEL [--seconds 5]         a folder with a model of texts, such as demo-output/model
    python benchmarks/serve.py MODEL --overload            far more requests than can be answered
    python benchmarks/serve.py --memory                    four workers on a model of 187 MB, and the time to start

Everything runs on this machine: the load generator shares its cores with the service. Requests go over loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
BATCH = 32
PLAIN = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
import longtail as lt

clf = lt.load(sys.argv[1])
clf.predict_topk(["a"], 5)
app = FastAPI()

class Body(BaseModel):
    texts: list[str]
    top_k: int = 5

class Prediction(BaseModel):
    labels: list[str]
    scores: list[float]

class Answer(BaseModel):
    predictions: list[Prediction]

@app.post("/v1/models/model/predict")
def predict(body: Body) -> Answer:
    top = clf.predict_topk(body.texts, body.top_k)
    pairs = zip(clf.classes_[top.labels].tolist(), top.scores.tolist(), strict=True)
    return Answer(predictions=[Prediction(labels=labels, scores=scores) for labels, scores in pairs])

@app.get("/live")
def live() -> dict: return {}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
"""


# --- services --------------------------------------------------------------------------------------------------------


@contextmanager
def service(*words: str) -> Iterator[tuple[int, int, float]]:
    """`longtail serve`: its port, process and seconds to be ready."""
    program = [sys.executable, "-c", "from longtail.cli import main; main()", "serve", *words, "--port", "0"]
    process = subprocess.Popen([*program, "--no-access-log"], stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        found = re.search(r"127\.0\.0\.1:(\d+) \(ready in ([\d.]+) s", line)
        if not found:
            raise SystemExit(f"the service did not start: {line}")
        yield int(found[1]), process.pid, float(found[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(40)


@contextmanager
def plain_fastapi(model: str) -> Iterator[int]:
    port = 8799
    process = subprocess.Popen([sys.executable, "-c", PLAIN, model, str(port)])
    try:
        for _ in range(300):
            try:
                asyncio.run(asyncio.open_connection("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(20)


# --- load ------------------------------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """Sends a request as soon as the last one is answered."""

    def __init__(self, requests: list[bytes], results: list[tuple[int, float]], offset: int) -> None:
        self.requests, self.results, self.at = requests, results, offset
        self.buffer = b""
        self.stopped = False

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(self.requests[self.at % len(self.requests)])
        self.at += 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        size = int(re.search(rb"content-length: (\d+)", head)[1])
        if len(self.buffer) < end + 4 + size:
            return
        self.results.append((int(head[9:12]), time.perf_counter() - self.began))
        self.buffer = b""
        if not self.stopped:
            self.send()


async def load(port: int, requests: list[bytes], clients: int, seconds: float) -> tuple[list[tuple[int, float]], float]:
    """(status, seconds) of every answer, and how long it went on."""
    loop = asyncio.get_running_loop()
    results: list[tuple[int, float]] = []
    made = [
        await loop.create_connection(lambda i=i: Client(requests, results, 7 * i), "127.0.0.1", port)
        for i in range(clients)
    ]
    await asyncio.sleep(min(1.0, seconds / 4))  # let it settle
    results.clear()
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    found, spent = list(results), time.perf_counter() - begin
    for transport, client in made:
        client.stopped = True
        transport.abort()
    return found, spent


def request(texts: list[str], k: int = 5, model: str = "model") -> bytes:
    body = json.dumps({"texts": texts, "top_k": k}).encode()
    head = f"POST /v1/models/{model}/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def figures(port: int, texts: list[str], seconds: float) -> list[list[str]]:
    rows = []
    single = [request([text]) for text in texts]
    batches = [request(texts[i : i + BATCH]) for i in range(0, len(texts) - BATCH, BATCH)]
    for name, requests, clients, size in (
        ("1 client", single, 1, 1),
        ("8 clients", single, 8, 1),
        ("64 clients", single, 64, 1),
        (f"2 clients, {BATCH} texts", batches, 2, BATCH),
    ):
        found, spent = asyncio.run(load(port, requests, clients, seconds))
        times = np.array([each for status, each in found if status == 200]) * 1e3
        bad = sum(status != 200 for status, _ in found)
        p50, p99 = np.percentile(times, [50, 99]) if len(times) else (np.nan, np.nan)
        rows.append([name, f"{p50:.1f}", f"{p99:.1f}", f"{size * len(times) / spent:,.0f}", str(bad)])
    return rows


def in_process(model: str, texts: list[str], seconds: float) -> list[list[str]]:
    import longtail as lt

    clf = lt.load(model)
    clf.predict_topk(texts[:BATCH], 5)
    rows = []
    for name, size in (("one text", 1), (f"{BATCH} texts", BATCH)):
        at, times, begin = 0, [], time.perf_counter()
        while time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            clf.predict_topk(texts[at : at + size], 5)
            times.append(1e3 * (time.perf_counter() - start))
            at = (at + size) % (len(texts) - size)
        spent = time.perf_counter() - begin
        p50, p99 = np.percentile(times, [50, 99])
        rows.append([name, f"{p50:.1f}", f"{p99:.1f}", f"{size * len(times) / spent:,.0f}", "0"])
    return rows


# --- overload, memory ------------------------------------------------------------------------------------------------


def overload(model: str, texts: list[str], seconds: float, clients: int) -> None:
    single = [request([text]) for text in texts]
    with service(f"model={model}", "--workers", "1") as (port, pid, _):
        begin = cpu(pid)
        found, spent = asyncio.run(load(port, single, 64, 5))
        used = cpu(pid) - begin
        peak = sum(status == 200 for status, _ in found) / spent
        per_cpu = sum(status == 200 for status, _ in found) / used
        begin = cpu(pid)
        before = memory(pid)

        probe = subprocess.Popen([sys.executable, __file__, "--probe", str(port), "--seconds", str(seconds)],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
        found, spent = asyncio.run(load(port, single, clients, seconds))
        used = cpu(pid) - begin
        lives = json.loads(probe.communicate()[0])
        after = memory(pid)
        begin = time.perf_counter()
        recovered, _ = asyncio.run(load(port, single, 1, 1.0))
        recovery = time.perf_counter() - begin - 1.25 if all(status == 200 for status, _ in recovered) else float("nan")
    good = sum(status == 200 for status, _ in found) / spent
    refused = np.array([each for status, each in found if status == 503]) * 1e3
    table(
        ["", ""],
        [
            ["peak, 64 clients", f"{peak:,.0f} rows/s"],
            [f"offered by {clients} clients", f"{len(found) / spent:,.0f} requests/s"],
            ["answered", f"{good:,.0f} rows/s, {good / peak:.0%} of peak"],
            ["answered per CPU second of the service", f"{good * spent / used:,.0f} rows, "
             f"{good * spent / used / per_cpu:.0%} of {per_cpu:,.0f} at peak"],
            ["refused (503)", f"{len(refused) / spent:,.0f}/s, p50 {np.percentile(refused, 50):.0f} ms, "
             f"p99 {np.percentile(refused, 99):.0f} ms" if len(refused) else "0"],
            ["other answers", str(sum(status not in (200, 503) for status, _ in found))],
            ["/live", f"p50 {np.percentile(lives, 50):.0f} ms, largest {max(lives):.0f} ms"],
            ["memory", f"{before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after"],
            ["recovery", f"{max(0.0, recovery):.1f} s"],
        ],
    )  # fmt: skip


async def alive(port: int, seconds: float) -> list[float]:
    """Milliseconds of /live, on new connections."""
    times, stop = [], time.perf_counter() + seconds
    while time.perf_counter() < stop:
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()
        times.append(1e3 * (time.perf_counter() - begin))
        await asyncio.sleep(0.1)
    return times


def cpu(pid: int) -> float:
    """CPU seconds of the workers so far."""
    total = 0
    for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Proportional set size of a process and its children, in bytes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0
    for each in (pid, *children):
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
    return total


def big_model(folder: Path) -> Path:
    """Random weights in the sizes of debian-deps."""
    import scipy.sparse as sp

    from longtail import store
    from longtail.models import LinearModel

    n_labels, n_features, per_label = 44_829, 35_668, 520
    chance = np.random.default_rng(0)
    indices = np.sort(chance.integers(0, n_features, (n_labels, per_label)), axis=1).ravel().astype(np.int32)
    data = chance.normal(size=indices.size).astype(np.float32)
    W = sp.csr_array((data, indices, np.arange(n_labels + 1) * per_label), shape=(n_labels, n_features))
    W.sum_duplicates()
    store.write_model(folder, LinearModel(W=W, n_features=n_features), store.Provenance("one-vs-all", {}))
    return folder


def memory_of_workers() -> None:
    from longtail import store

    with tempfile.TemporaryDirectory() as temporary:
        folder = big_model(Path(temporary) / "big")
        size = store.model_size(folder)
        rows = []
        for workers in (1, 4):
            with service(str(folder), "--workers", str(workers)) as (port, pid, seconds):
                bodies = []
                chance = np.random.default_rng(1)
                for _ in range(50):
                    row = {"indices": chance.choice(35_668, 60, replace=False).tolist(), "values": [1.0] * 60}
                    body = json.dumps({"rows": [row]}).encode()
                    head = (
                        "POST /v1/models/big/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    )
                    bodies.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                found, spent = asyncio.run(load(port, bodies, 16, 3))
                rows.append(
                    [str(workers), f"{memory(pid) / 1e6:,.0f} MB", f"{seconds:.1f} s", f"{len(found) / spent:,.0f}"]
                )
        print(f"A model of {size / 1e6:,.0f} MB on disk; the goal for four workers is {size / 1e6 + 600:,.0f} MB.\n")
        table(["workers", "memory (PSS, all processes)", "ready after", "rows/s"], rows)


def table(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=256, help="of the overload")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.probe:
        print(json.dumps(asyncio.run(alive(options.probe, options.seconds))))
        return
    if options.memory:
        memory_of_workers()
        return
    from longtail.data import icd10

    texts = [text for text, _ in icd10.load().test[:4096]]
    model = str(Path(options.model).resolve())
    if options.overload:
        overload(model, texts, options.seconds, options.clients)
        return
    header = ["", "p50 ms", "p99 ms", "rows/s", "refused"]
    print("In this process\n")
    table(header, in_process(model, texts, options.seconds))
    for workers in ("1", "2"):
        with service(f"model={model}", "--workers", workers) as (port, _, seconds):
            print(f"longtail serve --workers {workers} (ready after {seconds:.1f} s)\n")
            table(header, figures(port, texts, options.seconds))
    with plain_fastapi(model) as port:
        print("Plain FastAPI, one process\n")
        table(header, figures(port, texts, options.seconds))


if __name__ == "__main__":
    main()
