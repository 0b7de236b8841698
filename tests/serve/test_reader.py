"""The reader of a worker: who is read when, and what refusals may cost."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from longtail.serve import reader as module
from longtail.serve.limits import Limits
from longtail.serve.reader import Reader
from longtail.serve.wire import is_one_scoring_request
from tests.serve.service import post

SCORING = post("/v1/models/texts/predict", b'{"texts": "cough"}')


class Service:
    """A queue that is as full as a test says."""

    def __init__(self) -> None:
        self.limits = Limits(max_queue=8)
        self.pending = 0
        self.refusals = 0

    @property
    def full(self) -> bool:
        return self.pending >= self.limits.max_queue

    def refused_quickly(self, count: int) -> None:
        self.refusals += count


class Transport:
    def __init__(self) -> None:
        self.ended = ""

    def is_closing(self) -> bool:
        return bool(self.ended)

    def abort(self) -> None:
        self.ended = "abort"

    def close(self) -> None:
        self.ended = "close"


class Peer:
    """A connection, and the client at its other end."""

    def __init__(self) -> None:
        self.socket, self.client = socket.socketpair()
        self.socket.setblocking(False)
        self.transport = Transport()
        self.is_read = self.eof = False
        self.is_idle = self.is_new = True
        self.served = 1
        self.got: list[bytes] = []
        self.refused: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.got.append(data)

    def refuse_quickly(self, answer: bytes, now: float) -> None:
        self.refused.append(answer)

    def eof_received(self) -> bool:
        self.eof = True
        return False

    def close(self) -> None:
        self.socket.close()
        self.client.close()


def run(action, n_peers: int = 1):
    async def main():
        service, peers = Service(), [Peer() for _ in range(n_peers)]
        reader = Reader(service, asyncio.get_running_loop())
        for peer in peers:
            reader.add(peer)
        try:
            return await action(service, reader, peers)
        finally:
            for peer in peers:
                reader.remove(peer)
                peer.close()

    return asyncio.run(main())


async def rounds(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_data_reaches_its_connection():
    async def action(service, reader, peers):
        peers[1].client.send(b"abc")
        await rounds()
        return [peer.got for peer in peers]

    assert run(action, 3) == [[], [b"abc"], []]


def test_a_removed_connection_is_not_read_until_it_is_added_again():
    async def action(service, reader, peers):
        reader.remove(peers[0])
        peers[0].client.send(b"abc")
        await rounds()
        before = list(peers[0].got)
        reader.add(peers[0])
        reader.add(peers[0])
        await rounds()
        return before, peers[0].got

    assert run(action) == ([], [b"abc"])


def test_an_end_and_a_reset():
    async def action(service, reader, peers):
        peers[0].client.close()
        await rounds()
        return peers[0].eof, peers[0].transport.ended, peers[0].is_read

    assert run(action) == (True, "close", False)


@pytest.mark.parametrize(
    ("data", "idle", "full", "refused"),
    [
        (SCORING, True, True, True),
        (SCORING, True, False, False),
        (SCORING, False, True, False),
        (SCORING + b"x", True, True, False),
        (SCORING[:-1], True, True, False),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n", True, True, False),
    ],
)
def test_what_is_refused_without_parsing(data, idle, full, refused):
    async def action(service, reader, peers):
        service.pending = 8 if full else 7
        peers[0].is_idle = idle
        peers[0].client.send(data)
        await rounds()
        return bool(peers[0].refused), b"".join(peers[0].got), service.refusals

    assert run(action) == (refused, b"" if refused else data, int(refused))


def long_pauses(monkeypatch) -> None:
    """After the first refusal, the reader rests longer than the test takes."""
    monkeypatch.setattr(module, "REFUSAL_SHARE", 1e-6)
    monkeypatch.setattr(module, "REFUSAL_SECONDS", 1e-6)


def test_after_refusals_the_reader_rests_until_there_is_room(monkeypatch):
    long_pauses(monkeypatch)

    async def action(service, reader, peers):
        service.pending = 8
        peers[0].client.send(SCORING)
        await rounds()
        peers[1].client.send(SCORING)
        await rounds()
        resting = len(peers[0].refused), len(peers[1].refused)
        for service.pending in (7, 6, 5):
            reader.wake()
            await rounds()
        still = len(peers[1].got)
        service.pending = 4
        reader.wake()
        await rounds()
        return resting, still, len(peers[1].got)

    assert run(action, 2) == ((1, 0), 0, 1)


def test_an_idle_event_loop_does_not_spin_in_a_pause(monkeypatch):
    long_pauses(monkeypatch)

    async def action(service, reader, peers):
        service.pending = 8
        for peer in peers:
            peer.client.send(SCORING)
            await rounds()
        await rounds(module.SPINS)
        watched_before = reader.loop.remove_reader(reader._selector.fileno())  # False if it was not watched
        service.pending = 0
        reader.wake()
        await rounds()
        return watched_before, [len(peer.got) for peer in peers]

    assert run(action, 2) == (False, [0, 1])


def test_a_new_connection_is_read_while_the_reader_rests(monkeypatch):
    long_pauses(monkeypatch)

    async def action(service, reader, peers):
        old, new = peers
        reader.remove(new)
        new.served = 0
        reader.add(new)
        service.pending = 8
        old.client.send(SCORING)
        await rounds()
        old.client.send(SCORING)
        new.client.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await rounds()
        first = len(old.refused), len(new.got)
        new.served = 1  # answered: from now on it takes part in the pauses
        reader.add(new)
        new.client.send(b"more")
        await rounds()
        return first, len(new.got)

    assert run(action, 2) == ((1, 1), 1)


def test_refusals_take_a_share_of_the_time(monkeypatch):
    monkeypatch.setattr(module, "REFUSAL_SHARE", 0.25)
    spent = []

    async def action(service, reader, peers):
        service.pending = 8
        real = reader._read

        def timed():
            begin = time.perf_counter()
            real()
            spent.append(time.perf_counter() - begin)

        reader.loop.remove_reader(reader._selector.fileno())
        reader._read = timed
        reader.loop.add_reader(reader._selector.fileno(), timed)
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.5:
            for peer in peers:
                if not select_waits(peer):
                    peer.client.send(SCORING)
            await asyncio.sleep(0.001)
        return time.perf_counter() - begin

    seconds = run(action, 20)
    assert spent
    assert sum(spent) < 0.5 * seconds


def select_waits(peer: Peer) -> bool:
    """Whether a request is waiting to be read."""
    try:
        return bool(peer.socket.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (SCORING, True),
        (SCORING.replace(b"Content-Length", b"content-LENGTH"), True),
        (SCORING.replace(b"/v1/", b"/v3/"), False),
        (SCORING.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"), False),
        (SCORING.replace(b"\r\n\r\n", b"\r\nContent-Length: 18\r\n\r\n"), False),
        (SCORING.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False),
        (SCORING.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer x\r\n\r\n"), False),
        (SCORING.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"), False),
        (SCORING.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 4000 + b"\r\n\r\n"), False),
        (SCORING * 2, False),
        (b"", False),
    ],
)
def test_one_scoring_request_is_recognised(data, expected):
    assert is_one_scoring_request(data) is expected
