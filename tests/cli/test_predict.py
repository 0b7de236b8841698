"""predict: one line of JSON per row, from files, pipes and single texts."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import longtail as lt
from tests.cli.conftest import PROGRAM, environment


def rows(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_names_and_scores_are_those_of_the_library(good, files, models):
    found = rows(good("predict", models / "texts", files / "test.jsonl", "--top-k", "2"))
    clf = lt.load(models / "texts")
    top = clf.predict_topk(lt.read(files / "test.jsonl", like=clf.model_).X, 2)
    assert [row["labels"] for row in found] == clf.classes_[top.labels].tolist()
    assert np.allclose([row["scores"] for row in found], top.scores, atol=1e-6)
    assert set(found[0]) == {"labels", "scores"}


def test_labels_without_names_are_numbers(good, files, models):
    found = rows(good("predict", models / "vectors", files / "test.txt", "-k", "1"))
    assert len(found) == 18
    assert {type(row["labels"][0]) for row in found} == {int}


def test_k_is_cut_to_the_number_of_labels(good, models):
    (row,) = rows(good("predict", models / "texts", "--text", "cat", "-k", "100"))
    assert len(row["labels"]) == len(row["scores"]) == 6
    assert row["labels"][0] == "CAT"


def test_standard_input_of_a_text_model_is_json_lines_without_labels(good, models):
    found = rows(good("predict", models / "texts", "-", input='{"text": "drum"}\n{"text": "forest two"}\n'))
    assert [row["labels"][0] for row in found] == ["DRUM", "FOREST"]


def test_standard_input_of_vectors(good, models):
    found = rows(good("predict", models / "vectors", "-", input=" 3:1\n"))
    assert [row["labels"][0] for row in found] == [3]


def test_no_rows_give_no_lines(good, models, tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    assert good("predict", models / "texts", tmp_path / "none.jsonl") == ""


def test_labels_that_the_model_does_not_know_are_no_matter(good, models, tmp_path):
    (tmp_path / "new.jsonl").write_text('{"text": "cat", "labels": ["unheard of"]}\n')
    assert rows(good("predict", models / "texts", tmp_path / "new.jsonl"))[0]["labels"][0] == "CAT"


def test_output_file_holds_the_same_lines(good, files, models, tmp_path):
    shown = good("predict", models / "texts", files / "test.jsonl")
    assert good("predict", models / "texts", files / "test.jsonl", "--output", tmp_path / "out.jsonl") == ""
    assert (tmp_path / "out.jsonl").read_text() == shown


def test_blocks_of_rows_make_no_difference(good, files, models, monkeypatch):
    whole = good("predict", models / "texts", files / "test.jsonl")
    monkeypatch.setattr("longtail.cli.reading.ROWS", 5)
    assert good("predict", models / "texts", files / "test.jsonl") == whole


@pytest.mark.parametrize("words", [[], ["DATA", "--text", "x"]])
def test_either_data_or_a_text(run, models, words):
    result = run("predict", models / "texts", *words)
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: predict needs either DATA or --text; see longtail predict --help\n",
    )


def test_a_reader_that_goes_away_is_no_error(models, tmp_path):
    many = tmp_path / "many.txt"
    many.write_text(" 3:1\n" * 20_000)
    program = subprocess.Popen(
        [*PROGRAM, "predict", models / "vectors", many],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert json.loads(program.stdout.readline())["labels"][0] == 3
    program.stdout.close()
    stderr = program.stderr.read()
    program.stderr.close()
    assert (program.wait(timeout=60), stderr) == (141, b"")


# --- texts as they come, and other forms of output -------------------------------------------------------------------


def test_standard_input_is_answered_line_by_line(models):
    program = subprocess.Popen(
        [*PROGRAM, "predict", models / "texts", "-", "-k", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    for topic in ("cat", "drum"):
        program.stdin.write(json.dumps({"id": topic, "text": topic}).encode() + b"\n")
        program.stdin.flush()
        answer = json.loads(program.stdout.readline())  # before the next line is written
        assert (answer["id"], answer["labels"]) == (topic, [topic.upper()])
    program.stdin.close()
    assert program.stdout.read() == b""
    program.stdout.close()
    assert program.wait(timeout=60) == 0


def test_named_fields_are_kept(good, run, models, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id;lang;text\n7;en;cat one\n8;de;drum\n")
    assert [(row["id"], row["labels"][0]) for row in rows(good("predict", models / "texts", path))] == [
        ("7", "CAT"),
        ("8", "DRUM"),
    ]
    assert [row["lang"] for row in rows(good("predict", models / "texts", path, "--keep", "lang"))] == ["en", "de"]
    result = run("predict", models / "texts", path, "--keep", "author")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {path}: found 'id', 'lang', 'text', but --keep asks for 'author'\n",
    )
    assert run("predict", models / "texts", path, "--keep", "labels").exit_code == 2


def test_csv_and_parquet(good, run, models, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 7, "text": "cat"}\n{"id": 8, "text": "drum"}\n')
    words = ("predict", models / "texts", tmp_path / "a.jsonl", "-k", "2")
    expected = rows(good(*words))
    good(*words, "--output", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["id"] for row in found] == ["7", "8"]
    assert [row["labels"].split("|") for row in found] == [row["labels"] for row in expected]
    assert [list(map(float, row["scores"].split("|"))) for row in found] == [row["scores"] for row in expected]
    assert good(*words, "--output-format", "csv") == (tmp_path / "out.csv").read_text()
    good(*words, "--output", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["id"], row["labels"]) for row in table] == [(str(row["id"]), row["labels"]) for row in expected]
    assert run(*words, "--output-format", "parquet").exit_code == 2
    assert run(*words, "--output-format", "xls").stderr.startswith("Error: --output-format takes jsonl, csv, parquet")


def test_the_input_is_not_overwritten(run, models, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "cat"}\n')
    result = run("predict", models / "texts", path, "--output", tmp_path / "." / "a.jsonl")
    assert (result.exit_code, path.read_text()) == (2, '{"text": "cat"}\n')
    assert "which would be lost" in result.stderr


def test_plain_texts_and_a_text_in_place_of_a_file(good, run, models, tmp_path):
    (tmp_path / "a.txt").write_text("a cat\nthe drum\n")
    assert [row["labels"][0] for row in rows(good("predict", models / "texts", tmp_path / "a.txt"))] == ["CAT", "DRUM"]
    (tmp_path / "a.json").write_text('["a cat", {"text": "the drum"}]')
    assert [row["labels"][0] for row in rows(good("predict", models / "texts", tmp_path / "a.json"))] == ["CAT", "DRUM"]
    result = run("predict", models / "texts", "a cat")
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: there is no file 'a cat'; for one text, write: longtail predict {models / 'texts'} --text 'a cat'\n",
    )


def test_features_alone_and_pairs_to_leave_out(good, run, models, tmp_path):
    (tmp_path / "X.txt").write_text("2 13\n3:1\n2:1\n")
    words = ("predict", models / "vectors", tmp_path / "X.txt", "-k", "6")
    before = rows(good(*words))
    assert [row["labels"][0] for row in before] == [3, 2]
    (tmp_path / "filter.txt").write_text("0 3\n")
    after = rows(good(*words, "--filter", tmp_path / "filter.txt"))
    assert after[0]["labels"] == [label for label in before[0]["labels"] if label != 3]
    assert after[1] == before[1]
    (tmp_path / "filter.txt").write_text("0 3\n2 1\n")
    result = run(*words, "--filter", tmp_path / "filter.txt")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {tmp_path / 'filter.txt'}, line 2: found row 2 and label 1, expected less than 2 rows and 6 labels\n",
    )


def test_a_line_now_and_then_where_there_is_no_terminal(run, files, models, monkeypatch):
    monkeypatch.setattr("longtail.cli.progress.LINE_SECONDS", 0.0)
    monkeypatch.setattr("longtail.cli.reading.ROWS", 10)
    words = ("predict", models / "vectors", files / "test.txt", "-k", "1")
    line = (
        r"Predicting: 10 rows \(100%\)\nPredicting: 18 rows \(100%\), [\d,]+ rows/s\n"  # a small file is read at once
    )
    assert re.fullmatch(line, run(*words).stderr)
    assert run("--quiet", *words).stderr == ""


def test_python_m_longtail():
    shown = subprocess.run(
        [sys.executable, "-m", "longtail", "--version"], capture_output=True, text=True, env=environment()
    )
    assert shown.stdout == f"longtail {lt.__version__}\n"
