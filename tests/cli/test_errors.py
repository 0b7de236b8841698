"""Every error is one line on standard error with the right exit code, and never a traceback."""

from __future__ import annotations

import os
import shutil

import pytest

from longtail.cli import reading
from tests.cli.conftest import process


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["trian"], 2, "No such command 'trian'. Did you mean 'train'? See longtail --help"),
        (["train"], 2, "Missing argument 'DATA'. See longtail train --help"),
        (["train", "x", "m", "--method", "magic"], 2, "unknown method 'magic'; known methods: one-vs-all"),
        (["train", "absent.txt", "m"], 1, "absent.txt: cannot be opened: No such file or directory"),
        (
            ["train", "x", "m", "--C", "-1"],
            1,
            "--C must be a number above 0. Got -1.0 instead.",
        ),
        (["inspect", "absent"], 1, "absent: does not exist; a model is a folder with a model.json"),
        (["predict", "absent", "x"], 1, "absent: does not exist; a model is a folder with a model.json"),
        (["data", "empty.jsonl"], 1, "empty.jsonl: found no text at all"),
        (["data", "broken.txt"], 1, "broken.txt, line 2, column 3: "),
        (["data", "broken.jsonl"], 1, "broken.jsonl, line 1, column 2: is not valid JSON: "),
        (["data", "empty.txt"], 1, "empty.txt: found no rows"),
        (["predict", "m", "x", "--top-k", "0"], 2, "Invalid value for '--top-k' / '-k': "),
        (["train", "x", "m", "--C", "much"], 2, "Invalid value for '--C': "),
        (["train", "x", "m", "--magic"], 2, "No such option: --magic"),
        (
            ["train", "x", "m", "--text-norm", "l3"],
            1,
            "--text-norm must be one of 'l2', 'l1', 'none'. Got 'l3' instead.",
        ),
    ],
)
def test_one_line_and_an_exit_code(run, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("broken.txt", "0 1:1\n0 x:1\n"),
        ("broken.jsonl", "{broken\n"),
        ("empty.jsonl", ""),
        ("empty.txt", ""),
    ):
        (tmp_path / name).write_text(content)
    result = run(*words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_an_unknown_option_lists_the_known_ones(run):
    result = run("train", "x", "m", "--magic")
    _, known = result.stderr.strip().split("Options of longtail train: ")
    own = "--method, --paper, --force, --run, --workers, --shard-size, --save-weights, --force-memory, --json"
    assert known.startswith(f"{own}, --C, --loss, ")
    assert {"--start", "--text-ngram-range", "--labels-field"} <= set(known.split(", "))


def test_a_misspelt_option_gets_the_right_one_and_no_list(run):
    result = run("train", "x", "m", "--calibrat", "on")
    assert result.exit_code == 2
    assert "--calibrate" in result.stderr
    assert result.stderr.endswith("See longtail train --help\n")


def test_a_damaged_model_names_the_file(run, models, tmp_path):
    broken = tmp_path / "model"
    shutil.copytree(models / "texts", broken)
    (victim,) = broken.glob("W_data-*")
    victim.write_bytes(victim.read_bytes()[:-4])
    result = run("predict", broken, "--text", "cat")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {victim}: has ")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("Unable to allocate 9 GiB"), "not enough memory (Unable to allocate 9 GiB); use fewer rows"),
        (MemoryError(), "not enough memory (none left); use fewer rows"),
        (OSError(28, "No space left on device", "disk"), "disk: No space left on device\n"),
        (OSError("odd"), "odd\n"),
        (KeyError("a\nb"), "KeyError: 'a\\nb' (this should not happen; LONGTAIL_TRACEBACK=1 shows where it did)\n"),
    ],
)
def test_errors_of_the_machine_and_our_own(run, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("longtail.cli.inspect.load_estimator", fail)
    result = run("inspect", "x")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.count("\n") == 1


def test_traceback_only_when_asked_for(run):
    assert "Traceback" not in run("inspect", "absent").stderr
    result = run("--traceback", "inspect", "absent")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback")
    assert "Traceback" not in run("inspect", "absent").stderr


def test_as_a_process(tmp_path):
    done = process("inspect", "absent", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: absent: does not exist; a model is a folder with a model.json\n"
    done = process("inspect", os.fsdecode(b"caf\xe9"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_similar_names_are_suggested_among_some_labels_only(run, models, monkeypatch):
    monkeypatch.setattr(reading, "SUGGEST_AMONG", 0)
    result = run("inspect", models / "texts", "--label", "CATS")
    assert result.stderr == "Error: there is no label 'CATS' among the 6 of the model\n"
