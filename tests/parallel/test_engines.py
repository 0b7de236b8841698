"""One suite for threads, processes and Ray: the same results, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing

import pytest

from longtail.errors import InputError, RunError
from longtail.parallel import AttemptLimits, Unsolved, Workers, dispatch
from longtail.parallel.workers import FORMS
from tests import faults
from tests.parallel.tasks import Piece, Squares

KILLABLE = ["processes:2", "ray"]
BARE = "ray without shared storage"  # data is sent to the nodes, and results come back
ALL = ["threads", *KILLABLE, BARE]
QUICK = AttemptLimits(min_timeout=2.0, timeout_factor=10.0, silence=2.5)
PIECES = [Piece(number, cost=1.0 + number % 5) for number in range(9)]
EXPECTED = sorted(number * number for number in range(9))


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=2, object_store_memory=100 * 1024**2, **quiet)
    yield ray
    ray.shutdown()


@pytest.fixture
def run(tmp_path, request):
    """Dispatch the pieces to an engine; results, and what failed."""

    def run(kind, fault="", *, limits=QUICK, pause=0.0, pieces=PIECES, progress=lambda share: None, meanwhile=None):
        if kind.startswith("ray"):
            request.getfixturevalue("ray")
        squares = Squares(tmp_path, fault, pause)
        (tmp_path / "attempts").mkdir(exist_ok=True)
        if kind == "ray":
            squares.share()
        workers = Workers.of(kind.partition(" ")[0])
        task = squares() if not fault.startswith("un") else None
        engine = workers.engine(
            lambda piece, work: task(piece.number, work), squares, n_jobs=2 if kind == "threads" else None
        )
        run.failed, run.results, run.engine, run.squares = [], [], engine, squares
        results = dispatch(
            engine, pieces, limits=limits, progress=progress, failed=lambda *facts: run.failed.append(facts)
        )
        with closing(results):
            for result in results:
                run.results.append(result)
                if meanwhile is not None:
                    meanwhile()
        assert {(result.shipped, result.accepted) for result in run.results} <= {(kind == BARE, kind == BARE)}
        return sorted(result.square for result in run.results)

    return run


@pytest.mark.parametrize("kind", ALL)
def test_all_blocks_are_solved_once(run, kind):
    seen = []
    assert run(kind, progress=seen.append) == EXPECTED
    assert run.failed == []
    assert run.squares.attempts() == dict.fromkeys(range(9), 1)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [*KILLABLE, BARE])
def test_other_processes_do_the_work(run, kind):
    run(kind)
    assert os.getpid() not in {result.pid for result in run.results}
    assert faults.counts(run.squares.root / "attempts").get("shipped", 0) == (kind == BARE)


@pytest.mark.parametrize("kind", ALL)
def test_a_block_that_raises_is_tried_again(run, kind):
    assert run(kind, "raise:4:2") == EXPECTED
    assert [(PIECES[key].number, attempt) for key, attempt, _ in run.failed] == [(4, 1), (4, 2)]
    assert all("RuntimeError: the task breaks" in reason for _, _, reason in run.failed)
    assert run.squares.attempts() == {**dict.fromkeys(range(9), 1), 4: 3}


@pytest.mark.parametrize("kind", ALL)
def test_a_block_that_always_fails_does_not_stop_the_others(run, kind):
    with pytest.raises(Unsolved) as error:
        run(kind, "raise:4:99")
    assert {PIECES[key].number for key in error.value.blocks} == {4}
    assert sorted(result.square for result in run.results) == [square for square in EXPECTED if square != 16]
    assert run.squares.attempts() == {**dict.fromkeys(range(9), 1), 4: 3}


@pytest.mark.parametrize("kind", ALL)
def test_a_full_disk_ends_the_run_at_once(run, kind):
    with pytest.raises(Exception, match="run/parts: cannot write the part: No space left on device"):
        run(kind, "disk:8:1")
    assert run.failed == []


@pytest.mark.parametrize("kind", KILLABLE)
@pytest.mark.parametrize(("fault", "said"), [("kill", ""), ("stop", "no sign of life"), ("memory", "MemoryError"),
                                             ("hang", "no result after")])  # fmt: skip
def test_what_happens_to_a_worker_costs_one_attempt_of_one_block(run, kind, fault, said):
    limits = {"hang": QUICK._replace(silence=60.0), "stop": QUICK._replace(min_timeout=60.0)}.get(fault, QUICK)
    assert run(kind, f"{fault}:0:1", limits=limits) == EXPECTED
    assert [(PIECES[key].number, attempt) for key, attempt, _ in run.failed] == [(0, 1)]
    assert said in run.failed[0][2]
    assert run.squares.attempts() == {**dict.fromkeys(range(9), 1), 0: 2}


@pytest.mark.parametrize("kind", [*KILLABLE, BARE])
def test_a_block_that_always_kills_its_worker_harms_no_other(run, kind):
    with pytest.raises(Unsolved) as error:
        run(kind, "kill:4:99")
    assert {PIECES[key].number for key in error.value.blocks} == {4}
    assert len(run.results) == 8
    assert run.squares.attempts() == {**dict.fromkeys(range(9), 1), 4: 3}


def test_all_workers_killed_at_once(run):
    def kill_all():
        if len(run.results) == 2:
            for worker in run.engine.workers:
                os.kill(worker.process.pid, signal.SIGKILL)

    assert run("processes:2", pause=0.2, meanwhile=kill_all) == EXPECTED
    assert 1 <= len(run.failed) <= 2
    assert "signal 9" in run.failed[0][2]


def test_a_worker_that_cannot_get_ready_ends_the_run(run):
    with pytest.raises(RunError, match="a worker could not get ready: RuntimeError: the data is gone"):
        run("processes:2", "unready")
    with pytest.raises(RunError, match=r"workers end before they are ready \(its process ended with exit code 7\)"):
        run("processes:2", "unborn")


def test_no_worker_outlives_the_run(run):
    run("processes:2", pause=0.01)
    pids = {result.pid for result in run.results}
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_threads_are_split_between_processes(run):
    run("processes:2", pieces=PIECES[:1])
    assert {result.n_threads for result in run.results} == {len(os.sched_getaffinity(0))}


def test_cpus_are_split_between_the_blocks_of_a_cluster(run):
    """One block has both CPUs of the cluster. With more blocks than CPUs, each has one."""
    run("ray", pieces=PIECES[:1])
    assert [result.n_threads for result in run.results] == [2]
    assert (run.engine.cpus, run.engine.slots) == (2, 1)
    engine = run.engine
    engine.cpus = engine._cpus_each(9)
    engine._count_slots()
    assert (engine.cpus, engine.slots) == (1, 2)
    engine.cpus, engine.nodes = 8, [{"Resources": {"CPU": 4.0}}, {"Resources": {"CPU": 3.0}}, {"Resources": {}}]
    engine._count_slots()  # a node of 8 CPUs is gone
    assert (engine.cpus, engine.slots) == (4, 1)


def test_ctrl_c_ends_the_workers(run):
    def press():
        if len(run.results) == 1:
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            run("processes:2", "hang:0:9", limits=AttemptLimits(), meanwhile=press)
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.engine.workers == []


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [(None, "threads"), ("threads", "threads"), ("processes:4", "processes:4"), ("processes", "processes"),
     ("ray", "ray"), ("ray:10.0.0.1:6379", "ray:10.0.0.1:6379"), ("ray:auto", "ray:auto")],
)  # fmt: skip
def test_workers_by_name(text, shown):
    assert str(Workers.of(text)) == shown
    assert Workers.of(Workers.of(text)) == Workers.of(text)


UNKNOWN = ["", "process:2", "processes:", "processes:0", "processes:-1", "processes:many", "processes:99999", "ray:",
           "threads:2", "dask"]  # fmt: skip


@pytest.mark.parametrize("text", UNKNOWN)
def test_workers_that_nobody_knows(text):
    with pytest.raises(InputError) as error:
        Workers.of(text)
    assert str(error.value) == f"workers={text!r} is not understood; use {FORMS}"


# --- an engine of no substance, for what takes long in reality -------------------------------------------------------


class Silent:
    """An engine whose blocks never end, until it was connected again `wakes` times."""

    killable, reconnects, slots = True, True, 2

    def __init__(self, wakes=1, sign_first=True):
        self.wakes, self.sign_first = wakes, sign_first
        self.connected, self.closed, self.most, self.submitted = 0, False, 0, []

    def start(self, n_blocks, sign):
        self.sign, self.keys = sign, []

    def submit(self, key, block):
        self.keys.append(key)
        self.submitted.append(block.cost)
        self.most = max(self.most, len(self.keys))
        if self.sign_first:
            from longtail.parallel.dispatch import Sign

            self.sign(Sign(key, 0.1))

    def wait(self, seconds):
        from longtail.parallel.dispatch import Event

        time.sleep(0.01)
        if self.connected < self.wakes:
            return []
        keys, self.keys = self.keys, []
        return [Event(key, key) for key in keys]

    def kill(self, key, reason):
        raise AssertionError("the watchdog comes first")

    def reconnect(self):
        self.connected += 1
        self.keys = []

    def close(self):
        self.closed = True


def test_the_largest_blocks_go_first_and_few_are_under_way():
    engine = Silent(wakes=0)
    assert sorted(dispatch(engine, PIECES)) == list(range(9))
    assert engine.submitted == sorted(engine.submitted, reverse=True)
    assert engine.most == engine.slots


WATCHED = AttemptLimits(min_watchdog=0.1, first_block=0.3)


def test_the_watchdog_connects_again_and_counts_no_attempt():
    engine, failed = Silent(wakes=2), []
    results = dispatch(engine, PIECES, limits=WATCHED, failed=lambda *facts: failed.append(facts))
    assert sorted(results) == list(range(9))
    assert (engine.connected, failed, engine.closed) == (2, [], True)


def test_the_watchdog_gives_up_in_the_end():
    engine = Silent(wakes=99)
    with pytest.raises(RunError, match="the cluster began no block in"):
        list(dispatch(engine, PIECES, limits=WATCHED, failed=lambda *facts: None))
    assert (engine.connected, engine.closed) == (3, True)


def test_a_cluster_without_free_cpus_is_told_so():
    engine = Silent(sign_first=False)
    with pytest.raises(RunError, match="does it have free CPUs"):
        list(dispatch(engine, PIECES, limits=WATCHED, failed=lambda *facts: None))
    assert (engine.connected, engine.closed) == (0, True)


def test_a_plan_sets_the_time_out():
    from longtail.parallel.dispatch import _Dispatch

    def timeout(**more):
        limits = AttemptLimits(min_timeout=1.0)
        return _Dispatch(Silent(), PIECES, limits, more.get("expected"), print, None)

    assert timeout().timeout(4) == float("inf")  # nothing known yet
    planned = timeout(expected=lambda piece: 3.0 * piece.cost)
    assert planned.timeout(4) == 600.0  # the first block may compile kernels
    planned.pace = 0.01
    assert planned.timeout(4) == 150.0
    planned.pace = 6.0  # blocks take longer than the plan says
    assert planned.timeout(4) == 300.0
    quick = timeout(expected=lambda piece: 0.001)
    quick.pace = 0.001
    assert quick.timeout(4) == 1.0
    seen = timeout()
    seen.pace = 2.0
    assert seen.timeout(4) == 100.0
