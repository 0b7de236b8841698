"""data: the summary, the saved folder, the split."""

from __future__ import annotations

import json

import numpy as np

import longtail as lt


def test_summary(good, files):
    found = json.loads(good("data", files / "train.txt", "--json"))
    assert (found["n_samples"], found["n_features"], found["n_labels"]) == (60, 13, 6)
    assert good("data", files / "train.txt") == f"{lt.read(files / 'train.txt').summary()}\n"


def test_saved_folder_opens_as_the_same_data(run, good, files, tmp_path):
    result = run("data", files / "train.jsonl", "--save", tmp_path / "folder", "--text-analyzer", "char")
    assert (result.exit_code, result.stderr) == (0, f"Saved 60 rows in {tmp_path / 'folder'}\n")
    saved = lt.Dataset.open(tmp_path / "folder")
    assert saved.text_features.analyzer == "char"
    assert saved.n_samples == 60
    good("train", tmp_path / "folder", tmp_path / "model")
    assert lt.load(tmp_path / "model").model_.text_features.analyzer == "char"


def test_split_makes_features_of_the_training_texts_alone(run, good, files, tmp_path):
    result = run("data", files / "train.jsonl", "--save", tmp_path, "--split", "0.25", "--json")
    assert json.loads(result.stdout)["n_samples"] == 60
    train, test = (lt.Dataset.open(tmp_path / name) for name in ("train", "test"))
    assert (train.n_samples, test.n_samples) == (45, 15)
    assert train.text_features.same_as(lt.TextFeatures().fit(train.texts))
    assert np.array_equal(test.X.toarray(), train.text_features.transform(test.texts).toarray())
    good("train", tmp_path / "train", tmp_path / "model")
    assert "P@1" in good("evaluate", tmp_path / "model", tmp_path / "test", "--train", tmp_path / "train")


def test_split_of_vectors(run, files, tmp_path):
    assert run("data", files / "train.txt", "--save", tmp_path, "--split", "0.5").exit_code == 0
    assert lt.Dataset.open(tmp_path / "test").n_samples == 30


def test_split_needs_a_place(run, files):
    result = run("data", files / "train.txt", "--split", "0.5")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: --split needs --save FOLDER, which says where the two parts go\n",
    )


def test_saved_data_is_replaced_only_if_asked_for(run, files, tmp_path):
    for words in (["--save", tmp_path / "a"], ["--save", tmp_path / "b", "--split", "0.5"]):
        assert run("data", files / "train.txt", *words).exit_code == 0
        result = run("data", files / "train.txt", *words)
        assert result.exit_code == 1
        assert result.stderr.endswith("holds data already; add --force to replace it, or choose another folder\n")
        assert run("data", files / "train.txt", *words, "--force").exit_code == 0
