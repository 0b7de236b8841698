"""predict --resume: the bytes of an interrupted run are those of an uninterrupted one, or there is a clear refusal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pyarrow.parquet as pq
import pytest

from longtail import sealed
from tests.cli.conftest import PROGRAM, environment

FORMS = ("jsonl", "csv", "parquet")
AGAIN = "or start again without --resume"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of four rows, each followed by a checkpoint."""
    monkeypatch.setattr("longtail.cli.reading.ROWS", 4)
    monkeypatch.setattr("longtail.cli.partial.CHECKPOINT_SECONDS", 0.0)


@pytest.fixture
def interrupted(run, models, files, monkeypatch, tmp_path):
    """Run predict on the 18 test rows with Ctrl-C in block `at` (from 0); returns the words of the command."""

    def begin(output="out.jsonl", at=2, data="test.jsonl", model="texts", more=()):
        from longtail.cli import predict

        words = ["predict", models / model, files / data, "-k", "3", "-o", tmp_path / output, *more]
        calls = [0]
        real = predict.top_without

        def stops(*given):
            calls[0] += 1
            if calls[0] > at:
                raise KeyboardInterrupt
            return real(*given)

        monkeypatch.setattr(predict, "top_without", stops)
        result = run(*words)
        monkeypatch.setattr(predict, "top_without", real)
        assert result.exit_code != 0
        return words

    return begin


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("model", "data"), [("texts", "test.jsonl"), ("vectors", "test.txt")])
def test_an_interrupted_run_ends_with_the_same_bytes(good, interrupted, tmp_path, form, model, data):
    words = interrupted(f"out.{form}", data=data, model=model)
    assert not (tmp_path / f"out.{form}").exists()
    assert good(*words, "--resume") == ""
    good(*[*words[:-1], tmp_path / f"whole.{form}"])
    assert (tmp_path / f"out.{form}").read_bytes() == (tmp_path / f"whole.{form}").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {f"out.{form}", f"whole.{form}"}
    if form == "parquet":
        assert pq.read_metadata(tmp_path / "out.parquet").num_row_groups == 5


@pytest.mark.parametrize("blocks", [1, 4])
def test_it_may_be_interrupted_again_and_again(good, interrupted, tmp_path, blocks):
    interrupted(at=blocks)
    words = interrupted(at=0, more=("--resume",))
    good(*words)
    good(*[*words[:-2], tmp_path / "whole.jsonl"])
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_the_user_is_told_how_to_continue(interrupted, run, monkeypatch, tmp_path, models):
    (tmp_path / "bad.jsonl").write_text('{"text": "cat"}\n' * 9 + "{")
    result = run("predict", models / "texts", tmp_path / "bad.jsonl", "-o", tmp_path / "o.jsonl")
    assert result.exit_code == 1
    part = tmp_path / "o.jsonl.part"
    assert f"8 rows are kept in {part}; the same command with --resume continues after them\n" in result.stderr
    (tmp_path / "bad.jsonl").write_text('{"text": "cat"}\n' * 9 + '{"text": "drum"}\n')  # mended
    assert (
        run("predict", models / "texts", tmp_path / "bad.jsonl", "-o", tmp_path / "o.jsonl", "--resume").exit_code == 0
    )
    found = [json.loads(line)["labels"][0] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert found == ["CAT"] * 9 + ["DRUM"]


def test_without_any_row_nothing_is_kept(interrupted, tmp_path):
    interrupted(at=0)
    assert list(tmp_path.iterdir()) == []


def test_without_an_earlier_run_it_starts_at_the_beginning(good, models, files, tmp_path):
    good("predict", models / "texts", files / "test.jsonl", "-o", tmp_path / "out.jsonl", "--resume")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 18


def test_without_resume_an_earlier_run_is_discarded(interrupted, run, tmp_path):
    words = interrupted()
    result = run(*words)
    discarded = f"{tmp_path / 'out.jsonl'}: an interrupted run is discarded; --resume would continue it\n"
    assert (result.exit_code, result.stderr) == (0, discarded)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


# --- what must be refused --------------------------------------------------------------------------------------------


def refused(run, words) -> str:
    result = run(*words, "--resume")
    assert result.exit_code == 1
    return result.stderr.splitlines()[0]


def test_a_torn_last_line_is_written_again(good, interrupted, tmp_path):
    words = interrupted()
    with open(tmp_path / "out.jsonl.part", "ab") as file:
        file.write(b'{"labels": ["CA')
    good(*words, "--resume")
    good(*[*words[:-1], tmp_path / "whole.jsonl"])
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_file_that_is_too_short_or_changed(interrupted, run, tmp_path):
    words = interrupted()
    part = tmp_path / "out.jsonl.part"
    raw = part.read_bytes()
    part.write_bytes(raw[:-1])
    short = f"has {len(raw) - 1} bytes, but its record promises {len(raw)}; start again without --resume"
    assert refused(run, words) == f"Error: {part}: {short}"
    part.write_bytes(b"[" + raw[1:])
    changed = "was changed since it was written: its checksum is wrong; start again without --resume"
    assert refused(run, words) == f"Error: {part}: {changed}"
    part.unlink()
    assert "No such file" in refused(run, words)


@pytest.mark.parametrize("bad", [b"", b"{}", b"[1]", b"\xff", b"x" * (1 << 21)])
def test_a_damaged_record(interrupted, run, tmp_path, bad):
    words = interrupted()
    record = tmp_path / "out.jsonl.part.json"
    record.write_bytes(bad)
    assert refused(run, words).startswith(f"Error: {record}: ")
    assert (tmp_path / "out.jsonl.part").stat().st_size > 0  # nothing is lost


@pytest.mark.parametrize("change", [{"rows": -1}, {"rows": "8"}, {"bytes": 1.5}, {"identity": []}, {"format": 2}])
def test_a_record_that_lies(interrupted, run, tmp_path, change):
    words = interrupted()
    record = tmp_path / "out.jsonl.part.json"
    record.write_bytes(sealed.seal({**sealed.unseal(record.read_bytes()), **change}))
    expected = f"Error: {record}: is damaged, or was written by another version; delete it, {AGAIN}"
    assert refused(run, words) == expected


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-k", "2"], "--top-k: it was 3 and is now 2"),
        (["--output-format", "csv"], "--output-format: it was 'jsonl' and is now 'csv'"),
        (["--keep", "text"], "--keep: it was not given and is now 'text'"),
        (["--text-field", "text"], "--text-field: it was not given and is now 'text'"),
    ],
)
def test_other_options(interrupted, run, tmp_path, more, message):
    words = interrupted()
    expected = f"Error: {tmp_path / 'out.jsonl.part'} was made with another {message}; use the same, {AGAIN}"
    assert refused(run, [*words, *more]) == expected


def test_another_file_of_labels_to_leave_out(interrupted, run, tmp_path):
    (tmp_path / "deny.txt").write_text("CAT\n")
    words = interrupted(more=("--deny", tmp_path / "deny.txt"))
    (tmp_path / "deny.txt").write_text("DRUM\n")
    assert "was made with another --deny: it was 'a file with the CRC-32 " in refused(run, words)


def test_another_model(interrupted, run, models, tmp_path, files):
    words = interrupted()
    assert run("train", files / "train.jsonl", tmp_path / "other", "--C", "3").exit_code == 0
    assert "was made with another model: it was '" in refused(run, ["predict", tmp_path / "other", *words[2:]])


def test_other_rows(interrupted, run, tmp_path, files):
    words = interrupted()
    lines = (files / "test.jsonl").read_text().splitlines(keepends=True)
    differ = "its first 8 rows differ from those that were predicted before; use the same file, " + AGAIN
    expected = f"Error: the input is not the one of {tmp_path / 'out.jsonl.part'}: {differ}"
    for name, other in (("swapped", [lines[1], lines[0], *lines[2:]]), ("short", lines[:6]), ("empty", [])):
        (tmp_path / f"{name}.jsonl").write_text("".join(other))
        assert refused(run, [*words[:2], tmp_path / f"{name}.jsonl", *words[3:]]) == expected
    (tmp_path / "later.jsonl").write_text(
        "".join([*lines[:8], *lines[10:]])
    )  # only rows that were not predicted differ
    assert run(*words[:2], tmp_path / "later.jsonl", *words[3:], "--resume").exit_code == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 16


@pytest.mark.parametrize("words", [["-"], ["--text", "cat"], ["DATA"]])
def test_what_cannot_be_resumed(run, models, files, tmp_path, words):
    given = [files / "test.jsonl" if word == "DATA" else word for word in words]
    output = [] if words == ["DATA"] else ["-o", tmp_path / "out.jsonl"]
    result = run("predict", models / "texts", *given, *output, "--resume")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: --resume needs a file to read and --output FILE; standard input cannot be read again\n",
    )


def test_a_killed_process(models, files, tmp_path, good):
    """Ctrl-C is polite. SIGKILL is not: only what the last record counts is kept."""
    lines = (files / "test.jsonl").read_text()
    (tmp_path / "many.jsonl").write_text(lines * 2000)
    words = ["predict", models / "texts", tmp_path / "many.jsonl", "-o", tmp_path / "out.jsonl"]
    program = subprocess.Popen(
        [*PROGRAM[:2], PROGRAM[2].replace(";", "; from longtail.cli import partial, reading; reading.ROWS = 4;"
         " partial.CHECKPOINT_SECONDS = 0.0;", 1), *map(str, words)], env=environment(),
    )  # fmt: skip
    record = tmp_path / "out.jsonl.part.json"
    deadline = time.monotonic() + 120
    while not record.exists() and time.monotonic() < deadline and program.poll() is None:
        time.sleep(0.01)
    os.kill(program.pid, signal.SIGKILL)
    program.wait(60)
    assert record.exists()
    kept = sealed.unseal(record.read_bytes())["rows"]
    assert kept >= 4
    (tmp_path / "many.jsonl").write_text(lines * (kept // 18 + 3))  # rows after the kept ones may differ
    good(*words, "--resume")
    good(*words[:-1], tmp_path / "whole.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
