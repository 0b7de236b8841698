"""`longtail train --run` and `longtail runs`: going on after an interruption, and what is shown of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from longtail import store
from longtail.methods import solving
from tests.cli.conftest import PROGRAM, environment


def test_a_run_goes_on_and_ends_with_the_same_model(good, files, tmp_path):
    good("train", files / "train.txt", tmp_path / "plain")
    good("train", files / "train.txt", tmp_path / "a", "--run", tmp_path / "run")
    next((tmp_path / "run" / "parts").glob("*.part")).unlink()
    good("train", files / "train.txt", tmp_path / "b", "--run", tmp_path / "run")
    assert len({store.model_id(tmp_path / name) for name in ("plain", "a", "b")}) == 1
    shown = json.loads(good("runs", tmp_path / "run", "--json"))
    assert shown["state"] == "finished"
    assert shown["blocks"] == shown["blocks_done"]
    assert (shown["method"], shown["sessions"], shown["failed_attempts"]) == ("one-vs-all", 2, 0)
    assert shown["planned_seconds"] > 0
    assert shown["planned_peak_bytes"] > 1e6
    text = good("runs", tmp_path / "run")
    assert "state            finished" in text
    assert "60 rows, 13 features, 6 labels" in text
    assert "s in all, peak memory" in text


def test_a_calibrated_fit_is_several_runs(good, files, tmp_path):
    words = ["train", files / "train.txt", tmp_path / "model", "--calibrate", "held-out", "--method", "mach"]
    words += ["--run", tmp_path / "run", "--force"]
    good(*words)
    name = store.model_id(tmp_path / "model")
    good(*words)
    assert store.model_id(tmp_path / "model") == name
    shown = json.loads(good("runs", tmp_path / "run", "--json"))
    assert len(shown) > 1
    assert {(each["state"], each["sessions"]) for each in shown} == {("finished", 2)}
    assert good("runs", tmp_path / "run").count("finished") == len(shown)


def test_other_parameters_are_refused_in_one_line(run, good, files, tmp_path):
    good("train", files / "train.txt", tmp_path / "a", "--run", tmp_path / "run")
    result = run("train", files / "train.txt", tmp_path / "b", "--run", tmp_path / "run", "--C", "3")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {tmp_path / 'run'}: holds another run: parameter C was ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--workers", "dask"], 1, "workers='dask' is not understood; use threads, processes:NUMBER"),
        (["--run", "{model}"], 2, "--run and the model are both"),
        (["--run", "{files}"], 1, "the folder is not empty and holds no run"),
    ],
)
def test_what_cannot_work_is_refused_before_the_data_is_read(run, files, tmp_path, words, code, said):
    words = [word.format(model=tmp_path / "model", files=files) for word in words]
    result = run("train", tmp_path / "absent.txt", tmp_path / "model", *words)
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_block_that_fails_has_an_exit_code_of_its_own(run, files, tmp_path, monkeypatch):
    def broken(self, block, work):
        raise RuntimeError("broken")

    monkeypatch.setattr(solving.Solver, "__call__", broken)
    result = run("train", files / "train.txt", tmp_path / "model", "--run", tmp_path / "run")
    assert result.exit_code == 3
    assert "blocks failed in every attempt: block 0, labels " in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "model").exists()
    shown = json.loads(run("runs", tmp_path / "run", "--json").stdout)
    assert (shown["state"], shown["failed_attempts"]) == ("stopped", 3 * shown["blocks"])
    assert "RuntimeError: broken" in run("runs", tmp_path / "run").stdout


def test_a_folder_without_a_run(run, tmp_path):
    result = run("runs", tmp_path / "absent")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {tmp_path / 'absent'}: does not exist; a run is a folder with a run.json\n"


SLOW = (
    "import time\nfrom longtail.methods import solving\nold = solving.Solver.__call__\n"
    "def slow(self, block, work):\n    print('block', flush=True)\n    time.sleep(60)\n"
    "solving.Solver.__call__ = slow\nfrom longtail.cli import main\nmain()"
)


@pytest.mark.parametrize(
    ("sort", "code", "said"), [(signal.SIGTERM, 143, "Terminated."), (signal.SIGINT, 130, "Interrupted.")]
)
def test_signals_leave_a_run_that_goes_on(good, files, tmp_path, sort, code, said):
    words = ["train", files / "train.txt", tmp_path / "model", "--run", tmp_path / "run", "--n-jobs", "1"]
    command = [PROGRAM[0], "-c", SLOW, *map(str, words)]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=_default_signals,
    )
    assert child.stdout.readline() == "block\n"
    shown = json.loads(good("runs", tmp_path / "run", "--json"))
    assert (shown["state"], shown["blocks_done"]) == ("running", 0)
    assert f"process {child.pid} on" in shown["holder"]
    time.sleep(0.2)
    child.send_signal(sort)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == code
    assert stderr == f"Finished blocks are kept in {tmp_path / 'run'}; the same command goes on from there.\n{said}\n"
    good(*words)
    assert json.loads(good("runs", tmp_path / "run", "--json"))["state"] == "finished"


def _default_signals():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setpgrp()
