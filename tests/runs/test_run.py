"""Run folders: what is finished stays, whatever interrupts, and the end is the model of an uninterrupted fit."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail import parallel, runs, store
from longtail.errors import DataWarning, ModelError, RunError
from longtail.runs import identity, pack
from longtail.runs.events import Log, summary
from longtail.runs.lock import Lock, is_held
from tests import faults
from tests.runs.disk import fail_at_every_step
from tests.runs.toy import Toy, data

X, Y = data()
NAMES = [f"label {number}" for number in range(Y.shape[1])]


@pytest.fixture(autouse=True)
def counted(tmp_path, monkeypatch):
    """Count the attempts at every block."""
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("TOY_MARKS", str(folder))
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The names of the models of uninterrupted fits: of many blocks, and of a single one."""
    place = tmp_path_factory.mktemp("expected")
    return {size: model_id(Toy(size).fit(X, Y, label_names=NAMES), place / str(size)) for size in (3, 0)}


def model_id(clf, path):
    clf.save(path)
    return store.model_id(path)


def fit(folder, *, size=3, X=X, workers=None, **params):
    return Toy(size, **params).fit(X, Y, label_names=NAMES, run=folder, workers=workers)


def attempts(counted):
    return {
        name.removeprefix("block-"): count
        for name, count in faults.counts(counted).items()
        if name.startswith("block-")
    }


# --- the same model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 0])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_run_gives_the_model_of_a_plain_fit(tmp_path, expected, size, n_jobs):
    clf = fit(tmp_path / "run", size=size, n_jobs=n_jobs)
    assert model_id(clf, tmp_path / "model") == expected[size]


def test_a_finished_run_is_not_solved_again(tmp_path, expected, counted):
    fit(tmp_path / "run")
    clf = fit(tmp_path / "run")
    assert model_id(clf, tmp_path / "model") == expected[3]
    assert set(attempts(counted).values()) == {1}


def test_the_manifest_keeps_the_plan(tmp_path):
    plans = []
    Toy().fit(X, Y, run=tmp_path / "run", plan=plans.append)
    fit(tmp_path / "other")
    assert runs.status(tmp_path / "run").plan == plans[0].as_dict()
    assert runs.status(tmp_path / "run").planned("seconds") == pytest.approx(plans[0].seconds.likely, abs=1e-3)
    assert runs.status(tmp_path / "run").planned("sample") is None  # a text
    assert (runs.status(tmp_path / "other").plan, runs.status(tmp_path / "other").planned("seconds")) == (None, None)
    Toy().fit(X, Y, run=tmp_path / "run")  # the same run with or without a plan


def test_only_missing_blocks_are_solved(tmp_path, expected, counted):
    fit(tmp_path / "run")
    for number in (0, 5):
        (tmp_path / "run" / "parts" / f"{number:08d}.part").unlink()
    assert model_id(fit(tmp_path / "run"), tmp_path / "model") == expected[3]
    assert {number for number, count in attempts(counted).items() if count == 2} == {"0", "5"}


def test_progress_covers_the_whole_run(tmp_path):
    fit(tmp_path / "run")
    (tmp_path / "run" / "parts" / "00000000.part").unlink()
    seen = []
    Toy().fit(X, Y, run=tmp_path / "run", label_names=NAMES, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] >= 0.8
    assert seen[-1] == 1.0


def test_processes_and_a_single_block(tmp_path, expected, counted):
    """Two workers, one of which dies; then the same run with threads; then one block in a process."""
    os.environ["TOY_FAULT"] = "kill:2:1"
    try:
        clf = fit(tmp_path / "run", workers="processes:2")
    finally:
        del os.environ["TOY_FAULT"]
    assert model_id(clf, tmp_path / "a") == expected[3]
    assert attempts(counted) == {**{str(number): 1 for number in range(7)}, "2": 2}
    assert not (tmp_path / "run" / "data").exists()  # not needed any more
    assert model_id(fit(tmp_path / "run"), tmp_path / "b") == expected[3]
    found = runs.status(tmp_path / "run")
    assert (found.state, found.n_done, found.log.retries, found.log.sessions) == ("finished", 7, 1, 2)


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_part_is_solved_again_with_a_warning(tmp_path, expected, counted):
    fit(tmp_path / "run")
    path = tmp_path / "run" / "parts" / "00000003.part"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(raw)
    with pytest.warns(DataWarning, match=r"00000003\.part: .*; block 3 is solved again"):
        clf = fit(tmp_path / "run")
    assert model_id(clf, tmp_path / "model") == expected[3]
    assert {number for number, count in attempts(counted).items() if count == 2} == {"3"}


def test_a_part_in_the_wrong_place_is_solved_again(tmp_path, expected):
    fit(tmp_path / "run")
    fit(tmp_path / "other", n_steps=5)
    parts, others = tmp_path / "run" / "parts", tmp_path / "other" / "parts"
    shutil.copy(parts / "00000002.part", parts / "00000001.part")
    shutil.copy(others / "00000004.part", parts / "00000004.part")
    with pytest.warns(DataWarning) as said:
        clf = fit(tmp_path / "run")
    assert len(said) == 2
    assert "is the part of another run or block" in str(said[0].message)
    assert model_id(clf, tmp_path / "model") == expected[3]


def test_parts_damaged_while_the_run_goes_on_are_solved_again(tmp_path, expected, monkeypatch):
    write, hit = pack.write, []

    def damaging(path, kind, arrays, meta):
        size = write(path, kind, arrays, meta)
        if kind == "part" and len(hit) < 2 and path.name in ("00000001.part", "00000006.part"):
            hit.append(path)
            path.write_bytes(path.read_bytes()[:-1] + b"?")
        return size

    monkeypatch.setattr(pack, "write", damaging)
    with pytest.warns(DataWarning, match="is solved again"):
        clf = fit(tmp_path / "run")
    assert len(hit) == 2
    assert model_id(clf, tmp_path / "model") == expected[3]


def test_a_disk_that_damages_everything_is_an_error(tmp_path, monkeypatch):
    write = pack.write

    def damaging(path, kind, arrays, meta):
        size = write(path, kind, arrays, meta)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        return size

    monkeypatch.setattr(pack, "write", damaging)
    with pytest.warns(DataWarning), pytest.raises(RunError, match="damaged in each of 3 attempts; check the disk"):
        fit(tmp_path / "run")


def test_every_bit_of_the_manifest_counts(tmp_path, expected):
    """A changed manifest is found and made again from the data; the parts are used, since they say whose they are."""
    fit(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    raw = path.read_bytes()
    for place in range(0, len(raw), 37):
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(ModelError):
            runs.status(tmp_path / "run")
        with pytest.warns(DataWarning, match="the manifest is made again"):
            clf = fit(tmp_path / "run")
    assert model_id(clf, tmp_path / "model") == expected[3]


def test_a_damaged_manifest_of_another_run_is_not_taken_over(tmp_path, expected):
    fit(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"longtail"', b'"longtayl"'))
    with pytest.raises(ModelError, match="its parts are of another run"):
        fit(tmp_path / "run", n_steps=5)
    path.unlink()
    with pytest.raises(ModelError, match=r"holds parts but no run.json; its parts are of another run"):
        fit(tmp_path / "run", n_steps=5)
    with pytest.warns(DataWarning, match="holds parts but no run.json; the manifest is made again"):
        clf = fit(tmp_path / "run")
    assert model_id(clf, tmp_path / "model") == expected[3]


# --- another run -----------------------------------------------------------------------------------------------------


def refused(folder, **more):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    with pytest.raises(ModelError) as error:
        fit(folder, **more)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    assert before == after  # nothing was touched
    text = str(error.value)
    assert text.startswith(f"{folder}: holds another run: ")
    assert text.endswith("; choose a new folder, or remove this one")
    return text.removeprefix(f"{folder}: holds another run: ").removesuffix("; choose a new folder, or remove this one")


def test_other_parameters_data_or_versions_are_refused_by_name(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    fit(folder)
    assert refused(folder, n_steps=5) == "parameter n_steps was 4 and is now 5"
    assert refused(folder, random_state=1) == (
        "parameter random_state was 0 and is now 1; setting seed was 0 and is now 1"
    )
    assert "blocks: number was 7 and is now 10" in refused(folder, size=2)
    other = X.copy()
    other.data[5] += 1
    assert refused(folder, X=other).startswith("data: digest was ")
    assert "data: features was 12 and is now 11" in refused(folder, X=X[:, :11])
    monkeypatch.setattr(longtail, "__version__", "9.9.9")
    assert refused(folder) == 'longtail was "0.1.0" and is now "9.9.9"'
    monkeypatch.undo()
    monkeypatch.setattr(identity, "version", lambda package: "0.0")
    assert refused(folder).startswith("numba was ")


def test_threads_and_workers_are_not_part_of_the_identity(tmp_path):
    fit(tmp_path / "run", n_jobs=1)
    fit(tmp_path / "run", n_jobs=2)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelError, match="the folder is not empty and holds no run"):
        fit(tmp_path / "full")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="a run is saved as a folder, but a file of this name exists"):
        fit(tmp_path / "file")
    assert sorted(path.name for path in (tmp_path / "full").iterdir()) == ["thesis.txt"]


# --- one process at a time -------------------------------------------------------------------------------------------


def test_a_second_process_is_refused_within_a_second(tmp_path):
    root = tmp_path / "run"
    fit(root)
    code = "import sys, time\nfrom pathlib import Path\nfrom longtail.runs.lock import Lock\n" \
           "lock = Lock(Path(sys.argv[1])).acquire()\nprint('held', flush=True)\ntime.sleep(60)"  # fmt: skip
    first = subprocess.Popen([sys.executable, "-c", code, root / "lock"], stdout=subprocess.PIPE)
    try:
        assert first.stdout.readline() == b"held\n"
        begin = time.monotonic()
        with pytest.raises(ModelError, match=rf"is in use by process {first.pid} on '.*' since .*; wait for it"):
            fit(root)
        assert time.monotonic() - begin < 1.5
        assert is_held(root / "lock")
        assert runs.status(root).state == "running"
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert not is_held(root / "lock")  # a crash leaves no lock behind
    fit(root)


def test_a_failed_start_gives_the_lock_back(tmp_path):
    fit(tmp_path / "run")
    with pytest.raises(ModelError):
        fit(tmp_path / "run", n_steps=9)
    assert not is_held(tmp_path / "run" / "lock")
    lock = Lock(tmp_path / "run" / "lock").acquire()
    lock.release()
    assert not is_held(tmp_path / "absent")


# --- faults of the disk ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "forever", "size"),
    [(errno.ENOSPC, True, 10), (errno.EIO, False, 0)],
    ids=["full disk from then on, two blocks", "one error, single block"],
)
def test_a_fault_at_any_step_loses_nothing(memory_path, monkeypatch, code, forever, size):
    """Fail at the first call to the disk, the second, and so on; each time the run goes on and ends well."""
    monkeypatch.delenv("TOY_MARKS")
    assert fail_at_every_step(memory_path, code, forever=forever, size=size) > 40


def test_a_folder_that_vanishes_is_one_line(tmp_path, monkeypatch):
    root = tmp_path / "run"

    def vanish(share):
        if share > 0.3:
            shutil.rmtree(root, ignore_errors=True)

    with pytest.raises(ModelError, match="cannot write the part: No such file or directory"):
        Toy(n_jobs=1).fit(X, Y, run=root, progress=vanish)
    assert not root.exists()


def test_a_read_only_folder_is_one_line(tmp_path, monkeypatch):
    def refuse(*words, **more):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(words[0]))

    fit(tmp_path / "run")
    (tmp_path / "run" / "parts" / "00000000.part").unlink()
    monkeypatch.setattr("longtail.sealed.open", refuse, raising=False)
    with pytest.raises(ModelError, match="Read-only file system"):
        fit(tmp_path / "new")
    monkeypatch.undo()
    monkeypatch.setattr("longtail.runs.lock.open", refuse, raising=False)
    with pytest.raises(ModelError, match=r"run/lock: cannot write the run: Read-only file system"):
        fit(tmp_path / "run")


def test_what_a_crash_leaves_is_removed(tmp_path):
    fit(tmp_path / "run")
    parts = tmp_path / "run" / "parts"
    (parts / f".longtail-{'0' * 16}.tmp").write_bytes(b"half")
    (parts / "00000002.state").write_bytes(b"old")
    (parts / "notes.txt").write_text("mine")
    fit(tmp_path / "run")
    assert not list(parts.glob(".longtail-*"))
    assert not (parts / "00000002.state").exists()
    assert (parts / "notes.txt").exists()


# --- states inside a block -------------------------------------------------------------------------------------------


def interrupt_at(share):
    def stop(done):
        if done >= share:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_single_block_goes_on_where_it_was(tmp_path, expected, counted, share):
    workers = parallel.Workers(save_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        Toy(0).fit(X, Y, label_names=NAMES, run=tmp_path / "run", workers=workers, progress=interrupt_at(share))
    resumed = round(share * 4) - 1  # the last state was offered after the report before
    clf = fit(tmp_path / "run", size=0, workers=workers)
    assert model_id(clf, tmp_path / "model") == expected[0]
    assert [name for name in faults.counts(counted) if name.startswith("resumed")] == [f"resumed-0-{resumed}"] * (
        resumed > 0
    )
    assert not list((tmp_path / "run" / "parts").glob("*.state"))


def test_a_damaged_state_is_not_used(tmp_path, expected, counted):
    workers = parallel.Workers(save_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        Toy(0).fit(X, Y, label_names=NAMES, run=tmp_path / "run", workers=workers, progress=interrupt_at(0.75))
    path = tmp_path / "run" / "parts" / "00000000.state"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.warns(DataWarning, match="block 0 starts from its beginning"):
        clf = fit(tmp_path / "run", size=0, workers=workers)
    assert model_id(clf, tmp_path / "model") == expected[0]
    assert not [name for name in faults.counts(counted) if name.startswith("resumed")]


def test_states_are_kept_rarely(tmp_path, monkeypatch):
    parts = runs.Parts(tmp_path, "mark")
    parts.folder.mkdir()
    now = [0.0]
    monkeypatch.setattr("longtail.runs.run.time.monotonic", lambda: now[0])
    state, made = parts.state(0, 5.0), []

    def make(cost):
        def arrays():
            made.append(now[0])
            now[0] += cost
            return {"a": np.zeros(1)}

        return arrays

    for _ in range(1000):
        now[0] += 1.0
        state.save(make(0.0) if now[0] < 100 else make(2.0))
    early = [at for at in made if at < 100]
    late = [at for at in made if at >= 100]
    assert np.diff(early).min() >= 5.0
    assert len(early) >= 15
    assert 2.0 * len(late) <= 0.04 * (now[0] - 100)  # a dear state is kept more rarely
    assert len(late) >= 5


def test_without_a_run_folder_nothing_is_kept():
    work = parallel.Work()
    work.save(lambda: pytest.fail("nobody asked"))
    assert work.saved() is None


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_block_that_always_fails_is_reported_by_name_and_the_others_are_kept(tmp_path, expected, monkeypatch):
    monkeypatch.setenv("TOY_FAULT", "raise:4:3")
    with pytest.raises(RunError) as error:
        fit(tmp_path / "run")
    assert str(error.value) == (
        "1 of 7 blocks failed in every attempt: block 4, labels label 12, label 13, label 14 (RuntimeError: the task "
        f"breaks); the parts of the others are kept in {tmp_path / 'run'}; start the run again to retry the failed "
        "blocks"
    )
    assert error.value.blocks == {4: "RuntimeError: the task breaks"}
    found = runs.status(tmp_path / "run")
    assert (found.state, found.n_done, found.log.retries) == ("stopped", 6, 3)
    assert found.log.unsolved == {4: "labels label 12, label 13, label 14"}
    assert model_id(fit(tmp_path / "run"), tmp_path / "model") == expected[3]  # the toy is tired of breaking
    assert runs.status(tmp_path / "run").state == "finished"


def test_without_a_run_folder_the_first_error_ends_the_fit(monkeypatch):
    monkeypatch.setenv("TOY_FAULT", "raise:4:1")
    with pytest.raises(RuntimeError, match="the task breaks"):
        Toy().fit(X, Y)


# --- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_survives_anything_that_is_in_it(tmp_path):
    log = Log(tmp_path)
    log.add("started", workers="threads", share=0.0)
    log.add("solved", block=1, seconds=2.5)
    log.close()
    with open(tmp_path / "events.jsonl", "ab") as file:
        file.write(b'{"event": "progress", "ti')  # a crash
    log = Log(tmp_path)
    log.add("progress", share=0.5)
    log.close()
    hostile = [b"\0\xff\n", b"[]\n", b'{"event": 3}\n', b'{"event": "solved", "time": "x"}\n', b"[" * 3000 + b"\n",
               b'{"event": "failed", "time": 1e999, "block": 1e999, "attempt": 1, "reason": 1}\n', b"9" * 3000 + b"\n",
               b"x" * 100_000 + b"\n", b'{"event": "progress", "time": 1, "share": NaN}\n']  # fmt: skip
    with open(tmp_path / "events.jsonl", "ab") as file:
        file.write(b"".join(hostile))
    found = summary(tmp_path)
    assert (found.sessions, found.seconds, found.session_blocks, found.workers) == (1, 2.5, 1, "threads")
    assert 0.0 <= found.share <= 1.0
    assert json.dumps(found.share)
    assert summary(tmp_path / "absent").sessions == 0


def test_the_log_tells_speed_and_time_left(tmp_path):
    with open(tmp_path / "events.jsonl", "w") as file:
        for at, event in ((100, {"event": "started", "workers": "threads", "share": 0.2}),
                          (160, {"event": "progress", "share": 0.5})):  # fmt: skip
            file.write(json.dumps({"time": at, **event}) + "\n")
    found = summary(tmp_path)
    assert found.speed == pytest.approx(0.3 / 60)
    assert found.seconds_left == pytest.approx(100)


def test_a_run_in_progress_can_be_watched(tmp_path):
    seen = []

    def look(share):
        status = runs.status(tmp_path / "run")
        seen.append((status.state, status.n_done, status.share))

    Toy(n_jobs=1).fit(X, Y, run=tmp_path / "run", progress=look)
    assert {state for state, _, _ in seen} == {"running"}
    assert seen[-1][1:] == (7, 1.0)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert runs.status(tmp_path / "run").state == "finished"


def test_paths_with_odd_names(tmp_path, expected):
    root = tmp_path / "a b'ü" / "run"
    assert model_id(fit(str(root)), tmp_path / "model") == expected[3]
    assert runs.status(Path(root)).n_done == 7
