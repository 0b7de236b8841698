"""On a terminal: progress on standard error, and Ctrl-C in the midst of training."""

from __future__ import annotations

import os
import pty
import random
import shutil
import signal
import subprocess
import time

import pytest

from longtail.cli import progress
from tests.cli.conftest import PROGRAM, environment


def _heed_ctrl_c() -> None:
    """A suite that runs in the background of a shell ignores SIGINT, and would hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command whose standard error is a terminal that we read."""

    def __init__(self, *words: object) -> None:
        self.screen, other = pty.openpty()
        env = environment(TERM="xterm", COLUMNS="120")
        self.program = subprocess.Popen(
            [*PROGRAM, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=other,
            env=env,
            preexec_fn=_heed_ctrl_c,
        )
        os.close(other)
        self.seen = ""

    def read(self) -> bool:
        """Take what has been written; False when the program has ended."""
        try:
            piece = os.read(self.screen, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece)

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + 300
        while words not in self.seen and time.monotonic() < end and self.read():
            pass
        assert words in self.seen, self.seen

    def finish(self) -> tuple[int, str]:
        while self.read():
            pass
        stdout = self.program.stdout.read().decode()
        self.program.stdout.close()
        os.close(self.screen)
        return self.program.wait(timeout=60), stdout


@pytest.fixture(scope="module")
def many_labels(tmp_path_factory):
    """Some seconds of training, in blocks that are short, so that Ctrl-C is prompt."""
    path = tmp_path_factory.mktemp("many") / "many.txt"
    draw = random.Random(0)
    labels = (",".join(map(str, draw.sample(range(20_000), 25))) for _ in range(4_000))
    rows = (f"{names} " + " ".join(f"{j}:1" for j in draw.sample(range(300), 8)) for names in labels)
    path.write_text("4000 300 20000\n" + "\n".join(rows) + "\n")
    return path


def test_progress_is_on_standard_error_and_the_result_is_not(files, tmp_path):
    terminal = Terminal("train", files / "train.jsonl", tmp_path / "model")
    code, stdout = terminal.finish()
    assert code == 0
    assert stdout.startswith("rows ")
    assert "Training" in terminal.seen
    assert "100%" in terminal.seen
    assert "rows  " not in terminal.seen


def test_compiling_is_announced_once_kernels_are_not_there(files, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    first = Terminal("data", files / "train.txt")
    assert first.finish()[0] == 0
    assert "compiling kernels, once" in first.seen
    second = Terminal("data", files / "train.txt")
    assert second.finish()[0] == 0
    assert "compiling" not in second.seen


def test_without_a_terminal_compiling_is_one_line(capsys):
    lines = progress._Lines("Training", "%")
    lines.compiling()
    lines.compiling()
    assert capsys.readouterr().err == "Training: compiling kernels, once\n"


@pytest.mark.parametrize("old", [False, True])
def test_ctrl_c_leaves_no_model_or_the_old_one(many_labels, models, tmp_path, old):
    target = tmp_path / "model"
    if old:
        target.mkdir()
        shutil.copytree(models / "vectors", target, dirs_exist_ok=True)
    before = _contents(target) if old else {}
    slow = ["--solver", "newton", "--start", "zero"]
    terminal = Terminal("train", many_labels, target, *slow, *(["--force"] if old else []))
    terminal.wait_for("%")
    terminal.program.send_signal(signal.SIGINT)
    code, stdout = terminal.finish()
    assert (code, stdout) == (130, "")
    assert "Interrupted." in terminal.seen
    assert "Traceback" not in terminal.seen
    assert target.exists() == old
    assert (_contents(target) if old else {}) == before


def _contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tables_survive_a_terminal_of_windows(files, models):
    words = [*PROGRAM, "evaluate", models / "texts", files / "test.jsonl"]
    shown = subprocess.run(words, capture_output=True, check=True, env=environment(PYTHONIOENCODING="cp1252"))
    out = shown.stdout.decode("cp1252")
    assert "\\u" not in out
    assert "-----" in out
    assert "µs per row" in out
    ascii_only = subprocess.run(words, capture_output=True, check=True, env=environment(PYTHONIOENCODING="ascii"))
    assert b"us per row" in ascii_only.stdout
