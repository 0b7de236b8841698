"""Every verb with a model of MACH, which is not a linear model."""

from __future__ import annotations

import json

import pytest

import longtail as lt


@pytest.fixture(scope="module")
def model(files, tmp_path_factory):
    from typer.testing import CliRunner

    from longtail.cli import app

    folder = tmp_path_factory.mktemp("mach") / "model"
    words = ["train", files / "train.jsonl", folder, "--method", "mach", "--n-buckets", "5", "--n-repetitions", "7"]
    more = ["--max-iter", "60", "--weights", "float32", "--random-state", "4", "--json"]
    result = CliRunner().invoke(app, [str(word) for word in [*words, *more]])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["weights"] > 0
    return folder


def test_the_options_are_those_of_the_estimator(good):
    out = good("train", "--method", "mach", "--help")
    for words in ("--n-buckets", "--aggregate", "geometric|mean|rate|median|min", "--early-stopping", "[default: 512]"):
        assert words in out
    assert "--base" not in out  # no terminal can spell a classifier


def test_parameters_travel_with_the_model(model):
    loaded = lt.load(model)
    assert (type(loaded), loaded.n_buckets, loaded.n_repetitions, loaded.weights) == (lt.Mach, 5, 7, "float32")


def test_inspect(good, model):
    about = json.loads(good("inspect", model, "--json"))
    assert (about["method"], about["buckets"], about["repetitions"], about["link"]) == ("mach", 5, 7, "sigmoid")
    assert (about["weights"], about["weight_type"]) == (lt.load(model).model_.n_weights, "float32")
    assert "7 times 5, sigmoid, float32 weights" in good("inspect", model)
    told = json.loads(good("inspect", model, "--label", "CAT", "--top", "3", "--json"))
    assert told["strongest"][0]["feature"] == "cat"


def test_explain(good, model):
    told = json.loads(good("explain", model, "--text", "cat two", "--json"))
    assert (told["label"], told["contributions"][0]["feature"]) == ("CAT", "cat")
    assert 0 <= told["score"] <= 1
    assert "cat" in good("explain", model, "--text", "cat two", "--label", "CAT")


def test_predict_and_evaluate(good, model, files):
    lines = [json.loads(line) for line in good("predict", model, files / "test.jsonl", "--top-k", "2").splitlines()]
    assert len(lines) == 18
    assert all(0 <= score <= 1 for line in lines for score in line["scores"])
    overall = json.loads(good("evaluate", model, files / "test.jsonl", "--json"))["overall"]
    assert overall["P@1"] > 0.9
