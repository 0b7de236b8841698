"""The queue: what is scored together, in what order, and what one faulty request does to others."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from longtail.serve import batching
from longtail.serve.batching import Batcher, QueuedRows
from longtail.serve.messages import HttpError


class Scorer:
    """Answers each piece with its own rows, and notes every batch."""

    def __init__(self, seconds_per_row: float = 0.0) -> None:
        self.batches: list[list[tuple[str, int]]] = []
        self.rows: list[list[str]] = []
        self.seconds = seconds_per_row

    def __call__(self, pieces):
        self.batches.append([(piece.job.model, piece.stop - piece.start) for piece in pieces])
        rows = [piece.rows for piece in pieces]
        self.rows.append([row for part in rows for row in part])
        if any("bad" in part for part in rows):
            raise ValueError("bad row")
        time.sleep(self.seconds * sum(map(len, rows)))
        return rows


def run(scorer, jobs, *, later=()):
    """The results of jobs (model, rows) that are put in one round of the loop; `later` ones while the first run."""

    async def main():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(scorer, loop, executor)

            def put(model, rows, deadline=60.0):
                units = np.full(len(rows), 100.0)
                job = QueuedRows(model, rows, 5, units, loop.create_future(), time.monotonic() + deadline)
                batcher.put(job)
                return job.future

            futures = [put(*job) for job in jobs]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            futures += [put(*job) for job in later]
            return await asyncio.gather(*futures, return_exceptions=True)

    return asyncio.run(main())


def test_jobs_of_one_round_are_one_batch():
    scorer = Scorer()
    results = run(scorer, [("m", [f"text {i}"]) for i in range(20)])
    assert results == [[[f"text {i}"]] for i in range(20)]
    assert scorer.batches == [[("m", 1)] * 20]


def test_a_batch_is_of_one_model():
    scorer = Scorer()
    results = run(scorer, [(model, [f"{model}{i}"]) for i in range(3) for model in "ab"])
    assert results == [[[f"{model}{i}"]] for i in range(3) for model in "ab"]
    assert scorer.batches == [[("a", 1)] * 3, [("b", 1)] * 3]


def test_many_rows_are_scored_in_turn_with_others():
    scorer = Scorer(1e-5)
    big, small = [f"big {i}" for i in range(2000)], ["small"]
    results = run(scorer, [("m", big)], later=[("m", small)])
    assert [row for part in results[0] for row in part] == big
    assert results[1] == [small]
    sizes = [sum(count for _, count in batch) for batch in scorer.batches]
    assert max(sizes) <= batching.MAX_BATCH_ROWS
    before = next(i for i, rows in enumerate(scorer.rows) if "small" in rows)
    assert sum(sizes[:before]) <= 4 * batching.MAX_BATCH_ROWS + batching.TURN_ROWS  # not after all of the large one


def test_small_requests_are_finished_in_the_order_of_arrival(monkeypatch):
    """If a batch has room for a few rows only, requests must not all progress together and all end late."""
    monkeypatch.setattr(batching, "MAX_BATCH_ROWS", 10)
    finished = []

    def score(pieces):
        finished.extend(piece.job.rows[0] for piece in pieces if piece.stop == piece.job.n_rows)
        return [piece.rows for piece in pieces]

    run(score, [("m", [f"{i}"] * 32) for i in range(6)])
    assert finished == [f"{i}" for i in range(6)]
    finished.clear()
    run(score, [("m", ["long"] * 500), *(("m", [f"{i}"] * 32) for i in range(3))])
    assert finished == ["0", "1", "2", "long"]  # others have their turn


def test_the_backlog_is_what_waits():
    seconds = []

    async def main():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as executor:

            def score(pieces):
                seconds.append(batcher.backlog)
                time.sleep(0.001 * sum(piece.stop - piece.start for piece in pieces))
                return [piece.rows for piece in pieces]

            batcher = Batcher(score, loop, executor)

            def put(n_rows, deadline=60.0):
                job = QueuedRows(
                    "m", ["a"] * n_rows, 5, np.full(n_rows, 100.0), loop.create_future(), time.monotonic() + deadline
                )
                batcher.put(job)
                return job.future

            await put(5)  # measures the cost
            futures = [put(200), put(200), put(50, -1.0)]
            before = batcher.backlog
            futures[1].cancel()
            await asyncio.gather(*futures, return_exceptions=True)
            return before, batcher.backlog

    before, after = asyncio.run(main())
    assert 0.4 < before < 4.0  # 450 rows of about a millisecond
    assert after == pytest.approx(0.0, abs=1e-9)
    assert seconds[1] > 0
    assert seconds[-1] == pytest.approx(0.0, abs=1e-9)  # the last batch holds the last rows


def test_a_faulty_request_fails_alone(caplog):
    results = run(Scorer(), [("m", ["a"]), ("m", ["bad"]), ("m", ["b"])])
    assert results[0] == [["a"]]
    assert results[2] == [["b"]]
    assert isinstance(results[1], ValueError)
    assert "scoring them one by one" in caplog.text


def test_a_request_that_waited_too_long_is_refused():
    (result, good) = run(Scorer(), [("m", ["a"], -1.0), ("m", ["b"])])
    assert isinstance(result, HttpError)
    assert result.status == 503
    assert good == [["b"]]


def test_a_request_whose_client_left_is_not_scored():
    scorer = Scorer()

    async def main():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(scorer, loop, executor)
            jobs = [
                QueuedRows("m", [f"{i}"], 5, np.ones(1), loop.create_future(), time.monotonic() + 9) for i in range(3)
            ]
            for job in jobs:
                batcher.put(job)
            jobs[0].future.cancel()
            jobs[1].future.cancel()
            return await jobs[2].future

    assert asyncio.run(main()) == [["2"]]
    assert scorer.batches == [[("m", 1)]]


def test_a_lone_request_does_not_wait():
    async def main():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(lambda pieces: [piece.rows for piece in pieces], loop, executor)
            times = []
            for _ in range(50):
                begin = time.perf_counter()
                job = QueuedRows("m", ["a"], 5, np.ones(1), loop.create_future(), time.monotonic() + 9)
                batcher.put(job)
                await job.future
                times.append(time.perf_counter() - begin)
            return sorted(times)[25]

    assert asyncio.run(main()) < 0.002


@pytest.mark.parametrize(("seconds", "inside"), [(0.0, True), (0.03, False)])
def test_batches_run_in_the_loop_and_long_rows_beside_it(seconds, inside):
    import threading

    seen = []

    def score(pieces):
        seen.append(threading.current_thread() is threading.main_thread())
        time.sleep(seconds * sum(piece.stop - piece.start for piece in pieces))
        return [piece.rows for piece in pieces]

    run(score, [("m", ["a"] * 4)], later=[("m", ["b"] * 2)] * 3)
    assert seen[-1] is inside
