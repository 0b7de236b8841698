"""A load generator for `serve.py`, in a process of its own: raw sockets and epoll, on loopback only.

    python benchmarks/load.py PORT < PLAN           PLAN is one line of JSON, see `Plan`; prints the findings as JSON

Closed loop: each connection sends its next request as soon as the last one is answered. This measures capacity.

Open loop: requests are due at a fixed rate, whether earlier ones are answered or not, as with users who do not know of
each other. A request takes a connection that waits for no answer when it is due. If there is none, it is counted as
`unsent`. Its latency counts from the time when it was due, so it includes the delay of the generator itself, which
shares the cores with the service. `lag` is this delay alone.
"""

from __future__ import annotations

import json
import math
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

PAUSE = 0.0005  # seconds between two looks at the answers in an open loop
MOST_CONNECTIONS = 2000
MOST_SECONDS = 120.0
MOST_REQUESTS = 20_000_000


@dataclass(frozen=True)
class Plan:
    """What to send: complete requests, in turn, on this number of connections. Without `rate` it is a closed loop.

    Answers in the first `settle` seconds are not counted. `probe` asks for /live ten times a second on new connections.
    """

    requests: list[str]
    connections: int
    seconds: float
    rate: float | None = None
    settle: float = 1.0
    probe: bool = False

    def __post_init__(self) -> None:
        wanted = (self.settle + self.seconds) * (self.rate or 0)
        if not (0 < self.connections <= MOST_CONNECTIONS and self.seconds + self.settle <= MOST_SECONDS):
            raise ValueError(f"at most {MOST_CONNECTIONS} connections and {MOST_SECONDS:g} s")
        if wanted > MOST_REQUESTS:
            raise ValueError(f"at most {MOST_REQUESTS:,} requests")


@dataclass
class Findings:
    """What was answered: seconds of every answer by its status, and what did not work."""

    seconds: float = 0.0
    offered: int = 0
    unsent: int = 0
    lost: int = 0  # connections that the service closed before it answered
    latency: dict[str, list[float]] = field(default_factory=dict)
    lag: list[float] = field(default_factory=list)  # seconds from the time when a request was due until it was sent
    live: list[float] = field(default_factory=list)


class Connection:
    """One connection, which waits for at most one answer."""

    __slots__ = ("buffer", "due", "free_since", "socket", "waits")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.due = 0.0
        self.free_since = time.perf_counter()
        self.waits = False
        self.buffer = b""

    def send(self, raw: bytes, due: float) -> None:
        self.due = due
        self.waits = True
        sent = 0
        while sent < len(raw):  # a request that does not fit into the socket's buffer is sent piece by piece
            try:
                sent += self.socket.send(raw[sent:])
            except BlockingIOError:
                select.select([], [self.socket], [], 1.0)

    def status(self) -> str | None:
        """The status of the answer, or None if it is not complete. Raises ConnectionError if it never will be."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError
        self.buffer = self.buffer + data if self.buffer else data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        at = head.lower().index(b"content-length:") + 15
        if len(body) < int(head[at : head.find(b"\r", at) if b"\r" in head[at:] else len(head)]):
            return None
        self.buffer, self.waits = b"", False
        return head[9:12].decode()


class Probe:
    """Asks for /live ten times a second, on a new connection each time."""

    PAUSE = 0.1
    RAW = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    def __init__(self, port: int, poll: Any) -> None:
        self.port, self.poll = port, poll
        self.times: list[float] = []
        self.socket: socket.socket | None = None
        self.next = time.perf_counter()

    def begin(self, now: float) -> int:
        self.next = now + self.PAUSE
        self.began = now
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.sendall(self.RAW)
        self.poll.register(self.socket.fileno(), select.EPOLLIN)
        return self.socket.fileno()

    def end(self) -> None:
        assert self.socket is not None
        self.socket.recv(4096)
        self.times.append(time.perf_counter() - self.began)
        self.poll.unregister(self.socket.fileno())
        self.socket.close()
        self.socket = None


def run(port: int, plan: Plan) -> Findings:
    """Carry out the plan."""
    requests = [each.encode() for each in plan.requests]
    poll = select.epoll()
    table: dict[int, Connection] = {}
    free: deque[Connection] = deque()
    found = Findings()
    probe = Probe(port, poll)
    probed = -1

    def connect() -> None:
        made = Connection(port)
        table[made.socket.fileno()] = made
        poll.register(made.socket.fileno(), select.EPOLLIN)
        free.append(made)

    for _ in range(plan.connections):
        connect()
    begin = time.perf_counter()
    counted_from, stop = begin + plan.settle, begin + plan.settle + plan.seconds
    sent = n_due = 0  # n_due: requests of the open loop that were sent or dropped
    counting = False
    while (now := time.perf_counter()) < stop:
        if not counting and now >= counted_from:
            counting, counted_from = True, now
            found = Findings()
            probe.times.clear()
        if plan.probe and probe.socket is None and now >= probe.next:
            probed = probe.begin(now)
        while free:
            due = time.perf_counter()
            if plan.rate is not None:  # the first request that finds this connection free
                number = max(n_due, math.ceil((free[0].free_since - begin) * plan.rate))
                due = begin + number / plan.rate
                if due > now:
                    break
                found.unsent += number - n_due
                found.offered += number + 1 - n_due
                n_due = number + 1
                found.lag.append(time.perf_counter() - due)
            free.popleft().send(requests[sent % len(requests)], due)
            sent += 1
        if plan.rate is not None:
            time.sleep(PAUSE)  # if it waited in `poll`, the service would pay for waking it up with every answer
        for number, _ in poll.poll(0 if plan.rate else 0.05, 256):
            if number == probed and probe.socket is not None:
                probe.end()
                probed = -1
                continue
            each = table[number]
            try:
                status = each.status()
            except ConnectionError:
                found.lost += each.waits
                if not each.waits:
                    free.remove(each)
                poll.unregister(number)
                del table[number]
                each.socket.close()
                connect()
                continue
            if status is not None:
                each.free_since = time.perf_counter()
                found.latency.setdefault(status, []).append(each.free_since - each.due)
                free.append(each)
    found.seconds = time.perf_counter() - counted_from
    found.live = probe.times
    for each in table.values():
        each.socket.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(run(int(sys.argv[1]), Plan(**json.loads(sys.stdin.readline()))))))
