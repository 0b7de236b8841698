"""The service under load, beside plain FastAPI and beside the model in one process, as one table. About five minutes.

    python benchmarks/serve.py demo-output/model                         a model of texts, asked with ICD-10-CM texts
    python benchmarks/serve.py demo-output/model DEPS --rows TEST.txt    and a model of vectors, asked with these rows

Everything runs on this machine: the load generator (load.py) shares its cores with the service. Requests go over
loopback only. The overload sends 50 times as many requests as one worker can answer, in an open loop: a request is sent
when its time has come, whether earlier ones are answered or not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
BATCH = 32
PLAIN = """
import sys, uvicorn
import numpy as np, scipy.sparse as sp
from fastapi import FastAPI
from pydantic import BaseModel
import longtail as lt

clf = lt.load(sys.argv[1])
n_features = clf.model_.n_features
app = FastAPI()

class Row(BaseModel):
    indices: list[int]
    values: list[float]

class Body(BaseModel):
    texts: list[str] | None = None
    rows: list[Row] | None = None
    top_k: int = 5

class Prediction(BaseModel):
    labels: list[str]
    scores: list[float]

class Answer(BaseModel):
    predictions: list[Prediction]

@app.post("/v1/models/model/predict")
def predict(body: Body) -> Answer:
    if body.texts is not None:
        X = body.texts
    else:
        parts = [(row.values, (np.full(len(row.indices), i), row.indices)) for i, row in enumerate(body.rows)]
        values, at = np.concatenate([p[0] for p in parts]), [np.concatenate([p[1][j] for p in parts]) for j in (0, 1)]
        X = sp.csr_array((values.astype(np.float32), at), shape=(len(parts), n_features))
    top = clf.predict_topk(X, body.top_k)
    pairs = zip(clf.classes_[top.labels].astype(str).tolist(), top.scores.tolist(), strict=True)
    return Answer(predictions=[Prediction(labels=labels, scores=scores) for labels, scores in pairs])

@app.get("/live")
def live() -> dict: return {}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
"""


@dataclass
class Subject:
    """A model, and rows to ask it with: texts, or sparse rows as the service takes them."""

    name: str
    folder: str
    rows: list[Any]
    found: dict[str, str] = field(default_factory=dict)

    def request(self, start: int, size: int) -> str:
        key = "texts" if isinstance(self.rows[0], str) else "rows"
        body = json.dumps({key: self.rows[start : start + size], "top_k": 5})
        head = "POST /v1/models/model/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}"

    def requests(self, size: int) -> list[str]:
        return [self.request(start, size) for start in range(0, min(len(self.rows) - size, 64 * size), size)]

    def matrix(self) -> Any:
        """The rows as the estimator takes them."""
        import scipy.sparse as sp

        if isinstance(self.rows[0], str):
            return self.rows
        import longtail as lt

        indices = np.concatenate([row["indices"] for row in self.rows])
        values = np.concatenate([row["values"] for row in self.rows]).astype(np.float32)
        indptr = np.cumsum([0, *(len(row["indices"]) for row in self.rows)])
        return sp.csr_array((values, indices, indptr), shape=(len(self.rows), lt.load(self.folder).model_.n_features))


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", PLAIN, model, str(port)])
    try:
        for _ in range(600):
            try:
                ask(port, "GET", "/live")
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def ask(port: int, method: str, path: str, body: str | None = None) -> int:
    """The status of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


# --- load ------------------------------------------------------------------------------------------------------------


def load(port: int, requests: Sequence[str], connections: int, seconds: float, **more: Any) -> dict[str, Any]:
    """The findings of the load generator."""
    plan = {"requests": list(requests), "connections": connections, "seconds": seconds, **more}
    ran = subprocess.run(
        [sys.executable, str(HERE / "load.py"), str(port)],
        input=json.dumps(plan) + "\n",
        text=True,
        stdout=subprocess.PIPE,
    )
    if ran.returncode:
        raise SystemExit("the load generator failed")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def percentiles(seconds: Sequence[float]) -> str:
    """p50 / p99 in milliseconds."""
    p50, p99 = 1e3 * np.percentile(seconds, [50, 99]) if len(seconds) else (np.nan, np.nan)
    return f"{p50:.1f} / {p99:.1f} ms"


def answered(found: dict[str, Any]) -> float:
    """Good answers per second."""
    return len(found["latency"].get("200", ())) / found["seconds"]


def measured(subject: Subject, name: str, port: int, seconds: float) -> tuple[float, float]:
    """Note latency and throughput of a service. Returns rows per second: single rows, and in batches."""
    singles, batches = subject.requests(1), subject.requests(BATCH)
    rate = 0.0
    for clients in (1, 8, 64):
        found = load(port, singles, clients, seconds)
        rate = answered(found)
        subject.found[f"{name}, {clients} clients: p50 / p99"] = percentiles(found["latency"].get("200", ()))
    subject.found[f"{name}, 64 clients"] = f"{rate:,.0f} rows/s"
    batched = BATCH * answered(load(port, batches, 2, seconds))
    subject.found[f"{name}, batches of {BATCH}"] = f"{batched:,.0f} rows/s"
    return rate, batched


def in_process(subject: Subject, seconds: float) -> float:
    """Rows per second of the estimator itself, in batches."""
    import longtail as lt

    clf, rows = lt.load(subject.folder), subject.matrix()
    rate = 0.0
    for size in (1, BATCH):
        clf.predict_topk(rows[:size], 5)
        at, times, begin = 0, [], time.perf_counter()
        while (start := time.perf_counter()) - begin < seconds:
            clf.predict_topk(rows[at : at + size], 5)
            times.append(time.perf_counter() - start)
            at = (at + size) % (len(subject.rows) - size)
        rate = size * len(times) / (time.perf_counter() - begin)
        subject.found[f"in process, {size} at a time"] = f"{percentiles(times)}, {rate:,.0f} rows/s"
    return rate


# --- overload, memory ------------------------------------------------------------------------------------------------


def capacity(port: int, pid: int, requests: Sequence[str]) -> tuple[float, float]:
    """Answers per second in a closed loop, and per CPU second of the workers. Other programs may use the cores, so it
    is measured before and after an overload."""
    begin = cpu(pid)
    found = load(port, requests, 16, 5, settle=1)
    per_second = answered(found)
    return per_second, per_second * 6 / (cpu(pid) - begin)


def overload(subject: Subject, seconds: float, factor: float, connections: int) -> None:
    batches = subject.requests(BATCH)
    with service(f"model={subject.folder}", "--workers", "1") as (port, pid, _):
        peaks = [capacity(port, pid, batches)]
        before, begin = memory(pid), cpu(pid)
        found = load(port, batches, connections, seconds, rate=factor * peaks[0][0], settle=2, probe=True)
        used, after = cpu(pid) - begin, memory(pid)
        begin = time.perf_counter()
        body = batches[0].partition("\r\n\r\n")[2]
        while ask(port, "POST", "/v1/models/model/predict", body) != 200:
            time.sleep(0.05)
        recovery = time.perf_counter() - begin
        peaks.append(capacity(port, pid, batches))
    peak, per_cpu = np.mean(peaks, axis=0)
    good, refused = answered(found), found["latency"].get("503", ())
    others = sum(len(times) for status, times in found["latency"].items() if status not in ("200", "503"))
    answers_per_cpu = len(found["latency"].get("200", ())) / used * (seconds + 2) / seconds  # of which 2 s settle
    name = f"overload, {factor:g} times capacity for {seconds:g} s"
    sent = (found["offered"] - found["unsent"]) / found["seconds"]
    subject.found |= {
        f"{name}: requests of {BATCH} rows": f"{found['offered'] / found['seconds']:,.0f}/s, "
        f"{sent:,.0f}/s on {connections} connections",
        f"{name}: answered": f"{BATCH * good:,.0f} rows/s, {good / peak:.0%} of peak (per CPU second: "
        f"{answers_per_cpu / per_cpu:.0%})",
        f"{name}: refused, p50 / p99": f"{len(refused) / found['seconds']:,.0f}/s, {percentiles(refused)}",
        f"{name}: of this, delay of the load generator": percentiles(found["lag"]),
        f"{name}: other answers, lost connections": f"{others}, {found['lost']}",
        f"{name}: /live, p50 / p99, largest": f"{percentiles(found['live'])}, {1e3 * max(found['live']):.0f} ms",
        f"{name}: memory": f"{before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after",
        f"{name}: recovery": f"{recovery:.2f} s",
    }


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


def four_workers(subject: Subject) -> None:
    """Memory of four workers that have answered requests."""
    from longtail import store

    with service(f"model={subject.folder}", "--workers", "4") as (port, pid, seconds):
        load(port, subject.requests(1), 16, 3)
        taken, on_disk = memory(pid), store.model_size(subject.folder)
        subject.found["four workers: ready after"] = f"{seconds:.1f} s"
        subject.found["four workers: memory (PSS)"] = f"{taken / 1e6:,.0f} MB with a model of {on_disk / 1e6:,.0f} MB"


# --- the table -------------------------------------------------------------------------------------------------------

GOALS = {
    "longtail serve, 1 worker, 1 clients: p50": "≤ 3 ms",
    "longtail serve ÷ plain FastAPI": "≥ 3",
    "longtail serve ÷ in process": "≥ 60 %",
    ": answered": "≥ 80 %",
    ": refused": "< 100 ms",
    ": /live": "< 100 ms",
    ": recovery": "< 5 s",
    "ready after": "≤ 3 s",
    "four workers: memory": "≤ model + 600 MB",
    ": memory": "flat",
}


def table(subjects: Sequence[Subject]) -> str:
    names = list(dict.fromkeys(name for subject in subjects for name in subject.found))
    lines = [
        "| | goal | " + " | ".join(subject.name for subject in subjects) + " |",
        "|---|---|" + "---|" * len(subjects),
    ]
    for name in names:
        goal = next((goal for part, goal in GOALS.items() if part in name), "")
        cells = [subject.found.get(name, "") for subject in subjects]
        lines.append(f"| {name} | {goal} | {' | '.join(cells)} |")
    return "\n".join(lines)


def examine(subject: Subject, seconds: float) -> None:
    """Everything but the overload."""
    alone = in_process(subject, seconds)
    rate = batched = 0.0
    for workers in ("2", "1"):
        with service(f"model={subject.folder}", "--workers", workers) as (port, _, ready):
            name = f"longtail serve, {workers} worker{'s' * (workers != '1')}"
            subject.found[f"{name}: ready after"] = f"{ready:.1f} s"
            rate, batched = measured(subject, name, port, seconds)
    with plain_fastapi(subject.folder) as port:
        plain, _ = measured(subject, "plain FastAPI, one process", port, seconds)
    subject.found["longtail serve ÷ plain FastAPI, 64 clients, one process each"] = f"{rate / plain:.1f}"
    subject.found[f"longtail serve ÷ in process, batches of {BATCH}, one process each"] = f"{batched / alone:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument(
        "second", nargs="?", help="a model of vectors; without it, memory is measured on random weights"
    )
    parser.add_argument("--rows", help="rows to ask the second model with")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--overload-seconds", type=float, default=60.0)
    parser.add_argument("--factor", type=float, default=50.0, help="requests of the overload, in capacities")
    parser.add_argument("--connections", type=int, default=256, help="of the overload")
    parser.add_argument("--only", choices=("speed", "overload", "memory"))
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from longtail.data import icd10

    begin = time.perf_counter()
    subjects = [Subject("demo", options.model, [text for text, _ in icd10.load().test[:4096]])]
    with tempfile.TemporaryDirectory() as temporary:
        if options.second:
            import longtail as lt

            X = lt.read(options.rows, like=lt.load(options.second).model_).X[:4096]
            second = options.second
        else:
            import scipy.sparse as sp

            second = str(big_model(Path(temporary) / "random"))
            X = sp.random_array((4096, 35_668), density=60 / 35_668, format="csr", rng=np.random.default_rng(1))
        rows = [
            {"indices": row.indices.tolist(), "values": row.data.tolist()}
            for row in (X[[i]] for i in range(X.shape[0]))
        ]
        subjects.append(Subject(Path(second).name, second, rows))
        if options.only in (None, "speed"):
            examine(subjects[0], options.seconds)
            if options.second:
                examine(subjects[1], options.seconds)
        if options.only in (None, "overload"):
            overload(subjects[0], options.overload_seconds, options.factor, options.connections)
        if options.only in (None, "memory"):
            four_workers(subjects[1])
    print(table(subjects))
    print(f"\n{time.perf_counter() - begin:.0f} s, load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
