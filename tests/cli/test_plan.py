"""`longtail plan`, and what `longtail train` says and refuses before it trains."""

from __future__ import annotations

import json

import pytest

from longtail import memory
from longtail.methods import METHODS


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_for_people(good, files, method):
    out = good("plan", files / "train.txt", "--method", method, "--n-jobs", 1)
    for word in ("60 rows, 13 features, 6 labels", "time", "peak memory", "model", "blocks", "sample"):
        assert word in out
    assert method in out


def test_a_plan_for_programs(good, files):
    words = ("plan", files / "train.jsonl", "--C", 10, "--json", "--cluster", "4x16")
    found = json.loads(good(*words))
    assert found["method"] == "one-vs-all"
    assert found["fits"] is True
    assert found["seconds"]["low"] <= found["seconds"]["likely"] <= found["seconds"]["high"]
    assert (found["cluster"]["nodes"], found["cluster"]["cores"]) == (4, 16)


def test_a_cluster_does_not_help_a_single_block(good, files):
    out = good("plan", files / "train.txt", "--method", "memoir", "--cluster", "50 x 32")
    assert "on 50 x 32 cores" in out
    assert "a single block" in out


@pytest.mark.parametrize("text", ["4", "0x3", "x", "4x", "4x16x2"])
def test_a_cluster_that_is_none(run, files, text):
    result = run("plan", files / "train.txt", "--cluster", text)
    assert result.exit_code == 2
    assert "such as 4x16" in result.stderr


def test_training_begins_with_its_plan_unless_it_is_quick(run, files, tmp_path, monkeypatch):
    assert "Plan: " not in run("train", files / "train.txt", tmp_path / "quick").stderr
    monkeypatch.setattr("longtail.cli.train.TOLD_SECONDS", 0.0)
    result = run("train", files / "train.txt", tmp_path / "model")
    assert result.exit_code == 0
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Plan: ")]
    assert "peak memory" in line
    assert run("--quiet", "train", files / "train.txt", tmp_path / "again").stderr == ""


def test_training_that_cannot_fit_is_refused(run, files, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 1000.0)
    monkeypatch.setattr(memory, "must_fit", lambda *words: None)
    result = run("train", files / "train.txt", tmp_path / "model")
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith("Error: training needs about ")
    assert "1.0 kB are free" in error
    assert "--force-memory" in error
    assert not (tmp_path / "model").exists()
    forced = run("train", files / "train.txt", tmp_path / "model", "--force-memory")
    assert forced.exit_code == 0
