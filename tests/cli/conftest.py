"""Small data, models trained on it by the command line itself, and two ways to run a command: here, or as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from longtail.cli import app, progress

PROGRAM = [sys.executable, "-c", "from longtail.cli import main; main()"]
TOPICS = ("apple", "bridge", "cat", "drum", "engine", "forest")
FILLER = ("one", "two", "three", "four", "five", "six", "seven")

Run = Callable[..., Any]

progress.LINE_SECONDS = 1e9  # a slow machine may take long enough for a line; tests that want one set the time


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """run("train", ...) in this process; the result has exit_code, stdout and stderr."""
    monkeypatch.setattr(progress._Lines, "compiling", lambda _: None)  # a cold cache would add a line
    return lambda *words, **more: CliRunner().invoke(app, [str(word) for word in words], prog_name="longtail", **more)


@pytest.fixture
def good(run: Run) -> Run:
    """The standard output of a command that must succeed and say nothing else."""

    def stdout(*words: Any, **more: Any) -> str:
        result = run(*words, **more)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return stdout


def process(*words: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [*PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120, env=environment(), **more
    )


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "COLUMNS": "100", **more}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts (train.jsonl, test.jsonl) and vectors (train.txt, test.txt) in which the labels are easy to learn."""
    folder = tmp_path_factory.mktemp("files")
    for name, rows in (("train", range(60)), ("test", range(60, 78))):
        texts, vectors = [], [f"{len(rows)} 13 6"]
        for i in rows:
            pair = sorted({i % 6, (i // 6) % 6})
            text = " ".join([*(TOPICS[label] for label in pair), FILLER[i % 7]])
            texts.append(json.dumps({"text": text, "labels": [TOPICS[label].upper() for label in pair]}))
            features = " ".join(f"{label}:1" for label in pair) + f" {6 + i % 7}:0.5"
            vectors.append(f"{','.join(map(str, pair))} {features}")
        (folder / f"{name}.jsonl").write_text("\n".join(texts) + "\n")
        (folder / f"{name}.txt").write_text("\n".join(vectors) + "\n")
    return folder


@pytest.fixture(scope="session")
def models(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders `texts` and `vectors`: models of the two training files, without calibration."""
    folder = tmp_path_factory.mktemp("models")
    for name, data in (("texts", "train.jsonl"), ("vectors", "train.txt")):
        words = ["train", str(files / data), str(folder / name), "--C", "10", "--calibrate", "off"]
        assert CliRunner().invoke(app, words).exit_code == 0
    return folder
