"""Blocks in threads: the order, the bound, the errors, and the conventions of n_jobs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import parallel


@given(st.integers(0, 200), st.integers(-3, 250))
def test_ranges_cover_everything_once(total, size):
    ranges = parallel.ranges(total, size)
    assert [i for block in ranges for i in block] == list(range(total))
    assert all(0 < len(block) <= max(size, 1) for block in ranges)


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_results_come_in_the_order_of_the_blocks(n_jobs):
    def task(block):
        time.sleep(0.002 * (5 - block % 5))  # the first ones are the slowest
        return block * block

    assert list(parallel.run(task, range(23), n_jobs)) == [block * block for block in range(23)]
    assert list(parallel.run(task, [], n_jobs)) == []


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_a_long_stream_of_blocks_is_drawn_only_as_far_as_needed(n_jobs):
    drawn = 0

    def blocks():
        nonlocal drawn
        while True:  # without end: a list of it would never be made
            drawn += 1
            yield drawn

    results = parallel.run(lambda block: block, blocks(), n_jobs)
    for done in range(1, 30):
        assert next(results) == done
        assert drawn - done < 2 * n_jobs
    results.close()


def test_threads_run_at_the_same_time_and_no_more_than_asked_for():
    meet, lock, running, most = threading.Barrier(2, timeout=10), threading.Lock(), 0, 0

    def task(block):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meet.wait()  # returns only if two blocks are under way together
        with lock:
            running -= 1

    assert len(list(parallel.run(task, range(8), 2))) == 8
    assert most == 2


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_an_error_comes_out_and_drops_what_has_not_begun(n_jobs):
    begun = []

    def task(block):
        begun.append(block)
        if block == 3:
            raise OSError("no space")
        time.sleep(0.01)
        return block

    results = parallel.run(task, range(1000), n_jobs)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="no space"):
        next(results)
    assert len(begun) <= 4 + 2 * n_jobs
    after = len(begun)
    time.sleep(0.03)
    assert len(begun) == after  # no thread goes on behind our back


def test_blocks_in_the_queue_are_dropped_after_an_error():
    begun = []

    def task(block):
        begun.append(block)
        if block == 0:
            raise OSError("no space")
        time.sleep(0.2)  # both threads are busy when the error is seen

    with pytest.raises(OSError, match="no space"):
        next(parallel.run(task, range(10), 2))
    assert 3 not in begun  # it was in the queue: four are under way at a time


@pytest.mark.parametrize("n_jobs", [2, 4])
def test_leaving_early_stops_the_threads(n_jobs):
    before = threading.active_count()
    results = parallel.run(lambda block: block, range(100), n_jobs)
    assert next(results) == 0
    results.close()
    assert threading.active_count() == before


def test_an_interrupt_in_the_consumer_ends_the_run():
    def consume():
        for _ in parallel.run(lambda block: block, range(100), 2):
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        consume()
    gc.collect()
    assert threading.active_count() == before


def test_n_jobs_counts_as_in_scikit_learn(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert parallel.n_threads(None) == 8
    assert parallel.n_threads(-1) == 8
    assert parallel.n_threads(-2) == 7
    assert parallel.n_threads(-100) == 1
    assert parallel.n_threads(1) == 1
    assert parallel.n_threads(64) == 64


def test_without_affinity_the_number_of_cores_counts(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert parallel.n_threads(None) == 1


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_a_team_runs_every_block_once_in_every_round(n_jobs):
    with parallel.Team(n_jobs) as team:
        for size in (0, 1, 5, 40):
            done, lock = [], threading.Lock()

            def task(block, done=done, lock=lock):
                with lock:
                    done.append(block)

            team.run(task, range(size))
            assert sorted(done) == list(range(size))


def test_a_team_keeps_its_threads_and_the_caller_is_one_of_them():
    meet, names = threading.Barrier(2, timeout=10), set()

    def task(block):
        meet.wait()
        names.add(threading.get_ident())

    with parallel.Team(2) as team:
        for _ in range(3):
            team.run(task, range(2))
    assert len(names) == 2
    assert threading.get_ident() in names


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_in_a_team_reaches_the_caller(n_jobs):
    def task(block):
        if block == 5:
            raise RuntimeError("block 5")

    with parallel.Team(n_jobs) as team, pytest.raises(RuntimeError, match="block 5"):
        team.run(task, range(8))


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_team_returns_results_in_the_order_of_blocks_and_survives_an_error(n_jobs):
    with parallel.Team(n_jobs) as team:
        for size in (0, 1, 20):
            assert team.run(lambda block: block**2, range(size)) == [block**2 for block in range(size)]
        with pytest.raises(ZeroDivisionError):
            team.run(lambda block: 1 // block, [1, 0])
        assert team.run(str, [1]) == ["1"]


# --- blocks of a problem ---------------------------------------------------------------------------------------------


class Piece:
    """A block, as far as running it is concerned."""

    def __init__(self, number, cost=1.0):
        self.number, self.cost = number, cost


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_all_blocks_are_solved_and_progress_ends_at_one(n_jobs):
    seen = []

    def task(piece, work):
        work.report(0.5)
        return piece.number

    pieces = [Piece(number, cost=1 + number) for number in range(7)]
    assert sorted(parallel.solve(task, pieces, n_jobs, seen.append)) == list(range(7))
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)
    assert list(parallel.solve(task, [], n_jobs, seen.append)) == []


def test_a_block_that_finishes_first_arrives_first():
    gate = threading.Event()

    def task(piece, work):
        if piece.number == 0:
            assert gate.wait(10)
        return piece.number

    arrived = parallel.solve(task, [Piece(0), Piece(1)], 2)
    assert next(arrived) == 1
    gate.set()
    assert next(arrived) == 0


@pytest.mark.parametrize(("n_blocks", "n_jobs", "inside"), [(1, 4, 4), (2, 4, 2), (3, 4, 1), (8, 2, 1)])
def test_few_blocks_get_several_threads_each(n_blocks, n_jobs, inside):
    pieces = [Piece(number) for number in range(n_blocks)]
    assert set(parallel.solve(lambda piece, work: work.n_threads, pieces, n_jobs)) == {inside}


def test_progress_is_reported_in_the_calling_thread():
    threads = set()
    pieces = [Piece(number) for number in range(6)]
    list(
        parallel.solve(
            lambda piece, work: work.report(0.5), pieces, 3, lambda share: threads.add(threading.get_ident())
        )
    )
    assert threads == {threading.get_ident()}


def test_stopping_ends_the_blocks_that_report():
    begun, ended = threading.Event(), threading.Event()

    def task(piece, work):
        if piece.number == 0:
            return begun.wait(10)
        begun.set()
        try:
            while True:
                time.sleep(0.005)
                work.report(0.1)
        except parallel.Stopped:
            ended.set()
            raise

    results = parallel.solve(task, [Piece(0), Piece(1)], 2)
    assert next(results) is True
    results.close()  # as an error or Ctrl-C in the consumer does
    assert ended.is_set()


JOBLIB = """
from joblib import Parallel, delayed
from longtail import parallel
seen = Parallel(n_jobs={workers}, backend={backend!r})(delayed(parallel.n_threads)(None) for _ in range(2))
print(seen, parallel.n_threads(None))
"""


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_inside_a_worker_of_joblib_threads_are_not_multiplied(backend):
    """In a process of its own: one with threads, as that of the tests, cannot safely fork."""
    cores = len(os.sched_getaffinity(0))
    call = [sys.executable, "-c", JOBLIB.format(workers=cores + 1, backend=backend)]
    told = subprocess.run(call, capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.split("\n")[0] == f"[1, 1] {cores}"
