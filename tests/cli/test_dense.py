"""`--dense`: embeddings that were computed elsewhere."""

from __future__ import annotations

import json

import numpy as np

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
