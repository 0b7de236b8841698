"""Shards and indexes on the command line: trained, inspected, verified and explained as any model."""

from __future__ import annotations

import json

import pytest

import longtail as lt
from tests.store.forge import Forgery


@pytest.fixture(scope="module")
def sharded(files, tmp_path_factory):
    """The model of train.jsonl in one piece, and in shards."""
    from typer.testing import CliRunner

    from longtail.cli import app

    place = tmp_path_factory.mktemp("sharded")
    for name, more in (("whole", []), ("shards", ["--run", str(place / "run"), "--shard-size", "0.2kB"])):
        done = CliRunner().invoke(
            app, ["train", str(files / "train.jsonl"), str(place / name), "--calibrate", "off", *more]
        )
        assert (done.exit_code, done.stderr) == (0, "")
    return place


def test_every_command_gives_the_same_answer(good, files, sharded):
    for words in (
        ("predict", "{}", files / "test.jsonl", "--top-k", "4"),
        ("explain", "{}", "--text", "a cat and a drum", "--label", "DRUM"),
        ("inspect", "{}", "--label", "CAT"),
        ("evaluate", "{}", files / "test.jsonl", "--json"),
    ):
        answers = [good(*(sharded / name if word == "{}" else word for word in words)) for name in ("whole", "shards")]
        answers = [answer.replace(str(sharded / "shards"), str(sharded / "whole")) for answer in answers]
        if "--json" in words:
            answers = [{key: value for key, value in json.loads(answer).items() if "seconds" not in key}
                       for answer in answers]  # fmt: skip
        assert answers[0] == answers[1]


def test_inspect_tells_the_shards(good, sharded):
    shards = len(lt.load(sharded / "shards").model_.shards)
    assert shards > 2
    about = json.loads(good("inspect", sharded / "shards", "--json"))
    whole = json.loads(good("inspect", sharded / "whole", "--json"))
    assert (about["shards"], whole["shards"]) == (shards, 1)
    same = ("weights", "all_weights", "weights_per_label", "labels_without_weights", "labels", "features")
    assert {name: about[name] for name in same} == {name: whole[name] for name in same}
    assert f"in {shards} shards" in good("inspect", sharded / "shards")


def test_verify_compares_the_index_with_the_weights(run, sharded, tmp_path):
    lt.load(sharded / "shards").save(tmp_path / "m", index=True)
    done = run("inspect", tmp_path / "m", "--verify")
    assert done.exit_code == 0
    assert "stored indexes are those of the weights" in done.stderr
    assert "of index, in" in done.stdout
    forgery = Forgery(tmp_path / "m")
    forgery.edit("shard1_index_weights", lambda array: array + 1)
    forgery.seal()
    assert run("inspect", tmp_path / "m").exit_code == 0
    done = run("inspect", tmp_path / "m", "--verify")
    assert done.exit_code != 0
    assert "index_weights does not belong to the weights" in done.stderr


@pytest.mark.parametrize("size", ["big", "1XB", "-1GB", "0", "1e9"])
def test_sizes_that_are_none(run, files, tmp_path, size):
    done = run("train", files / "train.jsonl", tmp_path / "m", "--shard-size", size)
    assert done.exit_code == 2
    assert "is not a size" in done.stderr or "No such option" in done.stderr


def test_a_service_may_map_its_models(sharded):
    from longtail.serve.predictor import ServedModel

    pytest.importorskip("msgspec")
    one, mapped = (ServedModel.load("m", sharded / "shards", mmap=mmap) for mmap in (False, True))
    texts = ["a cat", "an engine in the forest"]
    assert one.best(texts, 3).scores.tobytes() == mapped.best(texts, 3).scores.tobytes()
    lt.load(sharded / "whole").save(sharded / "shards")  # replaces the files that are mapped
    assert one.best(texts, 3).scores.tobytes() == mapped.best(texts, 3).scores.tobytes()
