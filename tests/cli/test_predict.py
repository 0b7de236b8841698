"""predict: one line of JSON per row, from files, pipes and single texts."""

from __future__ import annotations

import json
import subprocess

import numpy as np
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
