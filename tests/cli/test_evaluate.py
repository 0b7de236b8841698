"""evaluate: the table, the JSON, the page."""

from __future__ import annotations

import json

import pytest

import longtail as lt


def test_json_is_the_evaluation_of_the_library(good, files, models):
    words = ["--train", files / "train.jsonl", "--json"]
    found = json.loads(good("evaluate", models / "texts", files / "test.jsonl", *words))
    clf = lt.load(models / "texts")
    train, test = (lt.read(files / f"{name}.jsonl", like=clf.model_) for name in ("train", "test"))
    expected = lt.metrics.evaluate(test.Y, clf.predict_topk(test.X, 5), train_Y=train.Y).as_dict()
    assert {key: found[key] for key in expected} == expected
    assert found["overall"]["P@1"] == 1.0
    assert found["predict_microseconds_per_row"] > 0


def test_table_for_people_says_what_psp_needs(good, files, models):
    out = good("evaluate", models / "vectors", files / "test.txt", "--ks", "1,2")
    assert "P@2" in out
    assert "P@3" not in out
    assert "PSP@1" not in out
    assert "PSP@k needs the label frequencies of the training data: add --train DATA." in out
    with_train = good("evaluate", models / "vectors", files / "test.txt", "--train", files / "train.txt")
    assert "PSP@1" in with_train
    assert "add --train" not in with_train


def test_propensity_constants_change_psp(good, files, models):
    words = ["evaluate", models / "vectors", files / "test.txt", "--train", files / "train.txt", "--json", "--ks", "1"]
    usual, other = (json.loads(good(*words, *more)) for more in ([], ["--propensity", "0.9", "8"]))
    assert usual["overall"]["P@1"] == other["overall"]["P@1"]
    assert usual["overall"]["PSP@1"] != other["overall"]["PSP@1"]


def test_report_is_one_page_with_examples(good, files, models, tmp_path):
    page = tmp_path / "page.html"
    good("evaluate", models / "texts", files / "test.jsonl", "--train", files / "train.jsonl", "--report", page)
    text = page.read_text()
    assert text.count("<svg") == 2
    assert "Examples" in text
    assert "APPLE" in text
    good("evaluate", models / "vectors", files / "test.txt", "--report", page)
    assert "Examples" not in page.read_text()


def test_unknown_labels_are_one_warning(run, models, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "cat", "labels": ["CAT", "GHOST"]}\n')
    result = run("evaluate", models / "texts", data)
    assert result.exit_code == 0
    assert result.stderr == f"Warning: {data}: 1 unknown label(s) dropped, 1 of 2 uses: 'GHOST'\n"


def test_data_without_labels_is_an_error_and_not_a_zero(run, models, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "cat"}\n')
    result = run("evaluate", models / "texts", data)
    assert result.exit_code == 1
    assert "has no labels that the model knows, so predictions cannot be compared with anything" in result.stderr


@pytest.mark.parametrize("ks", ["one", "0", "1,,3", "-1", "", "1,0"])
def test_wrong_ks(run, files, models, ks):
    result = run("evaluate", models / "vectors", files / "test.txt", "--ks", ks)
    message = f"Error: --ks takes whole numbers from 1, such as 1,3,5, but got {ks!r}\n"
    assert (result.exit_code, result.stderr) == (2, message)


def test_the_split_layout_has_labels_of_its_own_for_train_and_test(good, run, models, tmp_path):
    rows = [(i % 6, (i + 1) % 6) for i in range(12)]
    features = [f"{a}:1 {b}:1\n" for a, b in rows]
    for name, n in (("train", 12), ("test", 6)):
        (tmp_path / f"{name}_X.txt").write_text(f"{n} 13\n" + "".join(features[:n]))
        (tmp_path / f"{name}_Y.txt").write_text(f"{n} 6\n" + "".join(features[:n]))
    words = ("evaluate", models / "vectors", tmp_path / "test_X.txt", "--labels", tmp_path / "test_Y.txt", "--json")
    train = ("--train", tmp_path / "train_X.txt")
    found = json.loads(good(*words, *train, "--train-labels", tmp_path / "train_Y.txt"))
    assert "PSP@1" in found["overall"]
    result = run(*words, *train)
    assert result.exit_code == 1
    assert result.stderr.endswith("if they are in a file of their own: --train-labels\n")
    (tmp_path / "filter.txt").write_text("".join(f"{i} {label}\n" for i, pair in enumerate(rows[:6]) for label in pair))
    filtered = json.loads(good(*words, "--filter", tmp_path / "filter.txt"))
    assert filtered["overall"]["P@1"] == 0 < found["overall"]["P@1"]
