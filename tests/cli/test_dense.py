"""`--dense`: embeddings that were computed elsewhere."""

from __future__ import annotations

import json

import numpy as np

import longtail as lt
from tests.data.test_given_embeddings import LABELS, VECTORS, files  # noqa: F401 - a fixture


def test_the_command_line_trains_predicts_and_evaluates_with_embeddings(run, files):  # noqa: F811
    data, dense, model = str(files / "train.jsonl"), str(files / "train.npy"), str(files / "model")
    assert run("train", data, model, "--dense", dense).exit_code == 0
    predicted = run("predict", model, data, "--dense", dense, "-k", "1")
    assert predicted.exit_code == 0
    found = [json.loads(line)["labels"] for line in predicted.stdout.splitlines()]
    assert found == LABELS
    np.save(files / "long.npy", np.concatenate([VECTORS, VECTORS]).astype(np.float32))
    for wrong, message in ((str(files / "long.npy"), "12 rows"), (None, "computed elsewhere")):
        failed = run("predict", model, data, *(() if wrong is None else ("--dense", wrong)))
        assert failed.exit_code != 0
        assert message in failed.stderr
    evaluated = run("evaluate", model, data, "--dense", dense, "--train", data, "--train-dense", dense, "--json")
    assert evaluated.exit_code == 0, evaluated.stderr


def test_the_scale_of_embeddings_is_chosen(run, files):  # noqa: F811
    data, dense, model = str(files / "train.jsonl"), str(files / "train.npy"), str(files / "model")
    given = data, "--dense", dense
    trained = run("train", data, model, "--dense", dense, "--text-embedding-scale", "auto")
    assert trained.exit_code == 0, trained.stderr
    assert "Embedding scale 0." in trained.stderr
    tuned = run("tune", *given, "--text-embedding-scale", "auto", "--methods", "one-vs-all", "--budget", "1s")
    assert tuned.exit_code == 0, tuned.stderr
    assert "--text-embedding-scale 0." in tuned.stdout
    saved = run("data", *given, "--text-embedding-scale", "auto", "--save", str(files / "saved"))
    assert saved.exit_code == 0, saved.stderr
    assert lt.Dataset.open(files / "saved").text_features.embedding_scale < 1
    wrong = run("train", data, model, "--dense", dense, "--text-embedding-scale", "often", "--force")
    assert wrong.exit_code != 0
    assert "--text-embedding-scale must be a number above 0. Got 'often' instead." in wrong.stderr
    plain = run("train", data, model, "--text-embedding-scale", "auto", "--force")
    assert plain.exit_code != 0
    assert "texts with embeddings only" in plain.stderr
