"""Every example of README.md and of docs/ is run: what a reader pastes must work.

The blocks of a page run in order, in one temporary folder with the files of `sample_files`. Python blocks share one
namespace. In a console block every line that begins with `$ ` is a command: `longtail` commands must end with exit
code 0; others (`make`, `pip`) must be commands that the project knows, and are not run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longtail as lt
from longtail.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "console", "json", "yaml", "bash", ""}  # only python and console blocks are run
PIP = re.compile(r"pip install ('?\.(\[[a-z,]+\])?'?|'?longtail(\[[a-z,]+\])?'?)")

TEXTS = [
    ("chest pain on breathing", ["heart", "lung"]),
    ("pain in the chest after exercise", ["heart"]),
    ("irregular heart beat", ["heart"]),
    ("high blood pressure", ["heart"]),
    ("cough and shortness of breath", ["lung"]),
    ("asthma attack at night", ["lung"]),
    ("dry cough for three weeks", ["lung"]),
    ("fracture of the left wrist", ["bone"]),
    ("broken rib after a fall", ["bone", "lung"]),
    ("pain in the knee after a fall", ["bone"]),
    ("itching rash on the arm", ["skin"]),
    ("dry skin on both hands", ["skin"]),
]


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, content) of every fenced block."""
    return [(found[1], found[2]) for found in FENCE.finditer(page)]


def commands(console: str) -> list[str]:
    """The commands of a console block, without comments; other lines are output."""
    lines = (line[2:] for line in console.splitlines() if line.startswith("$ "))
    return [re.sub(r"\s+#\s.*$", "", line) for line in lines]


def sample_files(folder: Path) -> None:
    """train.jsonl, test.jsonl, new.jsonl (without labels); train.txt and test.txt with vectors of the same rows."""
    rows = [{"text": text, "labels": labels} for text, labels in TEXTS]
    for name, part in (("train", rows), ("test", rows[::3])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    unlabelled = "".join(json.dumps({"text": row["text"]}) + "\n" for row in rows[:3])
    (folder / "new.jsonl").write_text(unlabelled, encoding="utf-8")
    train = lt.read(folder / "train.jsonl")
    for name in ("train", "test"):
        data = lt.read(folder / f"{name}.jsonl", like=train)
        lines = [" ".join(map(str, (*data.X.shape, data.Y.shape[1])))]
        for x, y in zip(data.X.toarray(), data.Y.toarray(), strict=True):
            pairs = [f"{j}:{x[j]:.6f}" for j in np.flatnonzero(x)]
            lines.append(" ".join([",".join(map(str, np.flatnonzero(y))), *pairs]))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_command(command: str, folder: Path) -> None:
    """Run a `longtail` command, by the shell if it needs one, else here; of any other command check the form."""
    words = shlex.split(command)
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert set(words[1:]) <= targets, f"{command}: the Makefile has {sorted(targets)}"
    elif words[0] == "pip":
        assert PIP.fullmatch(command), f"{command}: not a way to install longtail"
    else:
        assert words[0] == "longtail", f"{command}: console blocks show longtail, make and pip"
        code, said = by_the_shell(command, folder) if set(command) & set("<>|") else here(words[1:], folder)
        assert code == 0, f"{command}: exit code {code}\n{said}"


def by_the_shell(command: str, folder: Path) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    return done.returncode, done.stderr


def here(words: list[str], folder: Path) -> tuple[int, str]:
    """In this process, which has imported and compiled already what the command needs."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, words, prog_name="longtail")
    return done.exit_code, done.stderr


def run_page(page: str, name: str, folder: Path) -> None:
    namespace = {"__name__": "__main__"}
    for language, content in blocks(page):
        assert language in LANGUAGES, f"{name} has a block of {language!r}; use one of {sorted(LANGUAGES)}"
        if language == "python":
            exec(compile(content, name, "exec"), namespace)
        elif language == "console":
            for command in commands(content):
                run_command(command, folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    sample_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


with_examples = [path for path in PAGES if any(language for language, _ in blocks(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("path", with_examples, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run(path, folder):
    run_page(path.read_text(encoding="utf-8"), path.name, folder)


def test_every_fence_is_closed():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(blocks(text)), f"{path} has a fence that this file does not understand"


def test_every_page_is_in_the_menu():
    menu = re.findall(r"([\w/-]+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES[1:]}
    assert sorted(menu) == sorted(pages)


# --- the machinery ---------------------------------------------------------------------------------------------------

SAMPLE = """
```python
x = 1
```
and then
```console
$ make test        # a comment
$ longtail --version > version.txt   # another
longtail 0.1.0
$ pip install '.[demo,plot]'
```
```python
from pathlib import Path
assert x == 1
Path("seen.txt").write_text(Path("version.txt").read_text())
```
"""


def test_blocks_run_in_order_and_share_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(SAMPLE, "sample", tmp_path)
    assert (tmp_path / "seen.txt").read_text() == f"longtail {lt.__version__}\n"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```python\nassert 1 == 2, 'one is not two'\n```\n", "one is not two"),
        ("```console\n$ longtail nonsense\n```\n", "exit code 2"),
        ("```console\n$ make nonsense\n```\n", "the Makefile has"),
        ("```console\n$ pip install other\n```\n", "not a way to install"),
        ("```console\n$ rm -r model\n```\n", "console blocks show"),
        ("```ruby\n1\n```\n", "has a block of"),
    ],
)
def test_a_page_that_is_wrong_fails(page, said, tmp_path):
    with pytest.raises(AssertionError, match=said):
        run_page(page, "sample", tmp_path)
