"""The demo on its first few hundred texts: the same road as the whole, in seconds."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.cli import demo
from longtail.data.embeddings.static import packaged_folder
from longtail.topk import TopK


@pytest.fixture
def small(tmp_path):
    return ["demo", "--texts", "400", "--output", tmp_path / "out"]


def test_everything_is_shown_and_written(good, small, tmp_path):
    out = good(*small)
    for words in ("Data\n", "Model\n", "Scores\n", "Examples", "PSP@5", "tail", "because of", "memory", "µs per text"):
        assert words in out
    assert ("With embeddings" in out) == (packaged_folder() is not None)
    assert out.count("“") == 5
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model", "report.html"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert page.count("<article") == 5
    assert "http" not in page.replace("http://www.w3.org", "")
    clf = lt.load(tmp_path / "out" / "model")
    assert clf.classes_[clf.predict_topk(["Typhoid fever"], 1).labels[0, 0]] in ("A01", "A01.0", "1")


def test_the_commands_it_ends_with_work(good, small):
    lines = [line for line in good(*small).splitlines() if line.startswith("  longtail ")]
    assert [shlex.split(line)[1] for line in lines] == ["explain", "predict", "inspect", "serve"]
    for line in lines[:3]:
        assert good(*shlex.split(line)[1:])


def test_again_and_as_json(good, small):
    first, second = (json.loads(good(*small, "--json")) for _ in range(2))
    assert first["evaluation"] == second["evaluation"]
    assert first["weights"] == second["weights"]
    assert first["data"]["n_samples"] == 400
    assert first["training"]["peak_bytes"] > 10_000_000
    assert {"read_seconds", "features_seconds", "train_seconds", "predict_microseconds_per_row", "report"} <= set(first)


def test_examples_are_right_wrong_right_half_right_right():
    Y = sp.csr_array(np.tile(np.array([1, 1, 1, 1, 0, 0, 0, 0], np.int32), (10, 1)))
    labels = np.tile(np.array([0, 1, 2, 3], np.int32), (10, 1))
    labels[[1, 2, 7]] = [4, 5, 6, 7], [4, 1, 2, 3], [0, 1, 4, 5]  # all wrong, best one wrong, half right
    scores = np.tile(np.linspace(1, 0.5, 4, dtype=np.float32), (10, 1))
    X = sp.csr_array(np.eye(10, dtype=np.float32))
    test = lt.Dataset(X, Y, texts=[f"a text of {i} words" for i in range(10)])
    assert demo.telling_rows(test, TopK(labels, scores)) == [0, 2, 4, 7, 8]
