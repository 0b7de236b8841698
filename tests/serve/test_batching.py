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
        self.seconds = seconds_per_row

    def __call__(self, pieces):
        self.batches.append([(piece.job.model, piece.stop - piece.start) for piece in pieces])
        rows = [piece.rows for piece in pieces]
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
    big, small = [f"big {i}" for i in range(1000)], ["small"]
    results = run(scorer, [("m", big)], later=[("m", small)])
    assert [row for part in results[0] for row in part] == big
    assert results[1] == [small]
    sizes = [sum(count for _, count in batch) for batch in scorer.batches]
    assert max(sizes) <= batching.MAX_BATCH_ROWS
    assert ("m", 1) in scorer.batches[1] + scorer.batches[2]  # not after all of the large one


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


@pytest.mark.parametrize("seconds", [0.0, 0.003])
def test_short_batches_run_in_the_loop_and_long_ones_beside_it(seconds):
    import threading

    seen = []

    def score(pieces):
        seen.append(threading.current_thread() is threading.main_thread())
        time.sleep(seconds * sum(piece.stop - piece.start for piece in pieces))
        return [piece.rows for piece in pieces]

    for _ in range(1):
        run(score, [("m", ["a"] * 200)], later=[("m", ["b"] * 50)] * 3)
    assert seen[-1] is (seconds == 0.0)
