"""`longtail update`, and the history that `inspect` shows."""

from __future__ import annotations

import json

import pytest

import longtail as lt


@pytest.fixture
def model(files, tmp_path):
    lt.OneVsAll(n_jobs=1).fit(lt.read(files / "train.jsonl")).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def more(files, tmp_path):
    """The training texts and two more, with a new label."""
    rows = (files / "train.jsonl").read_text(encoding="utf-8")
    new = [{"text": "violin one two unheard", "labels": ["violin"]}, {"text": "violin three", "labels": ["violin"]}]
    (tmp_path / "more.jsonl").write_text(rows + "".join(json.dumps(row) + "\n" for row in new), encoding="utf-8")
    return tmp_path / "more.jsonl"


def test_an_update_adds_labels_and_keeps_the_others(good, model, more):
    before = lt.load(model)
    names = before.classes_.tolist()
    result = json.loads(good("update", model, more, "--n-jobs", 1, "--json"))
    assert (result["rows_added"], result["labels_added"], result["labels_retired"]) == (2, 1, 0)
    assert result["unknown_words"] > 0
    after = lt.load(model)
    assert after.classes_.tolist() == [*names, "violin"]
    assert after.model_.text_features.same_as(before.model_.text_features)
    assert "violin" in good("explain", model, "--text", "violin", "--label", "violin")
    shown = json.loads(good("inspect", model, "--json"))["history"]
    assert [entry["labels_added"] for entry in shown] == [1]
    assert "1 added, 0 retired" in good("inspect", model)


def test_an_update_can_be_saved_elsewhere_and_retire_labels(good, run, model, more, tmp_path):
    names = lt.load(model).classes_.tolist()
    text = good("update", model, more, "--output", tmp_path / "new", "--retire", names[0], "--n-jobs", 1)
    assert "1 retired" in text
    assert lt.load(model).history_ == []
    predicted = json.loads(good("predict", tmp_path / "new", more, "-k", 99).splitlines()[0])["labels"]
    assert names[0] not in predicted
    assert "violin" in predicted
    again = run("update", model, more, "--output", tmp_path / "new")
    assert again.exit_code == 1
    assert "--force" in again.stderr


def test_new_texts_alone_are_refused(run, model, tmp_path):
    (tmp_path / "new.jsonl").write_text('{"text": "violin", "labels": ["violin"]}\n', encoding="utf-8")
    result = run("update", model, tmp_path / "new.jsonl")
    assert result.exit_code == 1
    assert "update needs all rows, old and new" in result.stderr
    assert lt.load(model).history_ == []


def test_unknown_labels_cannot_be_retired(run, model, more):
    result = run("update", model, more, "--retire", "nobody")
    assert result.exit_code == 1
    assert "there is no label 'nobody'" in result.stderr
