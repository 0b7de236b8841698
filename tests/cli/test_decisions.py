"""thresholds, rules, tune, and probabilities in predict, explain and evaluate."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest

import longtail as lt


@pytest.fixture(scope="module")
def calibrated(files, tmp_path_factory):
    """A calibrated model of texts."""
    folder = tmp_path_factory.mktemp("calibrated") / "model"
    train = lt.read(files / "train.jsonl")
    lt.OneVsAll(calibrate="cross-fit:folds=3", n_jobs=1).fit(train).save(folder)
    return folder


@pytest.fixture
def model(calibrated, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(calibrated, tmp_path / "model")


def test_training_with_calibration(good, files, tmp_path):
    good("train", files / "train.jsonl", tmp_path / "model", "--calibrate", "held-out:fraction=0.3", "--n-jobs", 1)
    assert lt.load(tmp_path / "model").model_.calibrator is not None
    good("train", files / "train.jsonl", tmp_path / "other", "--calibrate", "off", "--n-jobs", 1)
    assert lt.load(tmp_path / "other").model_.calibrator is None


def test_predictions_have_probabilities(good, model, models, files):
    lines = good("predict", model, files / "test.jsonl", "-k", 2).splitlines()
    first = json.loads(lines[0])
    assert set(first) == {"labels", "scores", "probabilities"}
    assert all(0 <= p <= 1 for p in first["probabilities"])
    assert "probabilities" not in json.loads(good("predict", models / "texts", files / "test.jsonl").splitlines()[0])


def test_predictions_above_the_threshold(good, run, model, models, files):
    clf = lt.load(model)
    data = lt.read(files / "test.jsonl", like=clf.model_)
    expected = clf.predict(data.X).sum(axis=1).tolist()
    lines = good("predict", model, files / "test.jsonl", "--threshold").splitlines()
    assert [len(json.loads(line)["labels"]) for line in lines] == expected
    refused = run("predict", models / "texts", files / "test.jsonl", "--threshold")
    assert refused.exit_code == 2
    assert "has no threshold" in refused.stderr


def test_explanations_have_probabilities(good, model, files):
    found = json.loads(good("explain", model, "--data", files / "test.jsonl", "--json"))
    assert 0 <= found["probability"] <= 1
    assert "and the probability" in good("explain", model, "--data", files / "test.jsonl")


def test_evaluation_measures_sets_and_probabilities(good, model, models, files, tmp_path):
    found = json.loads(good("evaluate", model, files / "test.jsonl", "--json"))
    assert 0 <= found["sets"]["micro-F1"] <= 1
    assert set(found["probabilities"]) == {"ECE@5", "log-loss@5"}
    out = good("evaluate", model, files / "test.jsonl", "--report", tmp_path / "page.html")
    assert "micro" in out
    assert "a threshold for micro-f1" in out
    assert "ECE@5" in out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Probabilities and what happened" in page
    assert "expected calibration error" in page
    plain = json.loads(good("evaluate", models / "texts", files / "test.jsonl", "--json"))
    assert plain["probabilities"] is None


def test_thresholds_are_changed_in_the_folder(good, run, model, files):
    found = json.loads(good("thresholds", model, files / "test.jsonl", "--precision", "0.5", "--json"))
    assert found["precision"] >= 0.5
    assert lt.load(model).model_.thresholds.target == "precision:at_least=0.5"
    good("thresholds", model, "--per-row", 2)
    assert lt.load(model).model_.thresholds.per_row == 2
    assert "one per label" in good("thresholds", model, files / "test.jsonl", "--target", "macro-f1:by=label")
    both = run("thresholds", model, files / "test.jsonl", "--precision", "0.5", "--recall", "0.5")
    assert both.exit_code == 2
    without = run("thresholds", model)
    assert without.exit_code == 1
    assert "held-out rows" in without.stderr


def test_rules_are_changed_in_the_folder(good, run, model, files, tmp_path):
    names = [str(name) for name in lt.load(model).classes_[:2]]
    (tmp_path / "allowed").write_text("\n".join(names) + "\n")
    (tmp_path / "offsets").write_text(f"{names[0]}\t5\n")
    found = json.loads(good("rules", model, "--allow", tmp_path / "allowed", "--json"))
    assert found["allowed"] == 2
    lines = good("predict", model, files / "test.jsonl").splitlines()
    assert {label for line in lines for label in json.loads(line)["labels"]} == set(names)
    good("rules", model)
    once = good("predict", model, files / "test.jsonl", "-k", 1, "--offsets", tmp_path / "offsets").splitlines()
    assert {json.loads(line)["labels"][0] for line in once} == {names[0]}
    denied = good("predict", model, files / "test.jsonl", "--deny", tmp_path / "allowed")
    assert not set(names) & {label for line in denied.splitlines() for label in json.loads(line)["labels"]}
    assert lt.load(model).model_.rules is None
    (tmp_path / "offsets").write_text(f"{names[0]} 5\n")
    assert run("rules", model, "--offsets", tmp_path / "offsets").exit_code != 0


def test_tune_prints_the_command(good, run, files, tmp_path):
    words = ["tune", files / "train.jsonl", "--budget", "30s", "--methods", "one-vs-all"]
    out = good(*words, "--state", tmp_path / "trials")
    assert f"longtail train {files / 'train.jsonl'} MODEL --method one-vs-all" in out
    found = json.loads(good(*words, "--state", tmp_path / "trials", "--json"))
    assert found["best"]["method"] == "one-vs-all"
    assert found["trials"]
    assert run("tune", files / "train.jsonl", "--budget", "soon").exit_code == 2


def test_the_command_of_tune_reads_the_data_in_the_same_way(good, files, tmp_path):
    how = ["--text-field", "text", "--text-ngram-range", "1", "2", "--format", "jsonl", "--no-text-lowercase"]
    out = good("tune", files / "train.jsonl", "--budget", "1s", "--methods", "one-vs-all", *how)
    words = shlex.split(out.strip().splitlines()[-1])
    assert words[:2] == ["longtail", "train"]
    good(*[str(tmp_path / "model") if word == "MODEL" else word for word in words[1:]])
    features = lt.load(tmp_path / "model").model_.text_features
    assert features.ngram_range == (1, 2)
    assert not features.lowercase
