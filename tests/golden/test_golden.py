"""Model folders of every format version so far still load, and still give the answers that they gave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import longtail as lt
from tests.golden.make import QUESTIONS

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/answers.json"))


def test_there_is_a_folder_of_each_kind():
    kinds = {"linear-1", "hashed-1", "calibrated-1", "calibrated-2", "ensemble-1", "sharded-1", "hybrid-1"}
    kinds |= {"hybrid-8-bit-1", "ensemble-2"}
    assert {path.name for path in FOLDERS} >= kinds


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_it_loads_and_answers_as_before(folder, tmp_path):
    if "hybrid" in folder.name:
        pytest.importorskip("tokenizers")
    model = shutil.copytree(folder / "model", tmp_path / "model")
    wanted = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    clf = lt.load(model)
    top = clf.predict_topk(QUESTIONS, 3)
    assert clf.method == wanted["method"]
    assert clf.classes_.tolist() == wanted["classes"]
    assert top.labels.tolist() == wanted["labels"]
    np.testing.assert_allclose(top.scores, wanted["scores"], atol=2e-5)
    if wanted["probabilities"] is None:
        assert top.probabilities is None
    else:
        np.testing.assert_allclose(top.probabilities, wanted["probabilities"], atol=2e-5)
    assert clf.predict(QUESTIONS).toarray().tolist() == wanted["predict"]
    assert clf.training_.n_iter.tolist() == wanted["n_iter"]
    assert [share.feature for share in clf.explain(QUESTIONS[0], "red").contributions] == wanted["why"]
