"""models.plain: the answers of the index, to the bit, and only until the kernels are loaded."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.compiled import Kernel
from longtail.models import LinearModel, Rules, plain
from longtail.models.index import FeatureLists


def problem(seed: int, n_labels: int, bias: float) -> tuple[LinearModel, sp.csr_array]:
    random = np.random.default_rng(seed)
    shape = (n_labels, 30 + (bias > 0))
    W = sp.random_array(shape, density=0.3, rng=random, format="csr", dtype=np.float32)
    W.data = random.integers(-3, 4, W.nnz).astype(np.float32) / 3  # many equal scores
    X = sp.random_array((4, 30), density=0.3, rng=random, format="csr", dtype=np.float32)
    for matrix in (W, X):
        matrix.sort_indices()
    return LinearModel(sp.csr_array(W), 30, bias), sp.csr_array(X)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**20), st.integers(1, 200), st.sampled_from([0.0, 1.0, 0.7]), st.integers(1, 9), st.booleans())
def test_the_same_labels_and_scores_as_the_index(seed, n_labels, bias, k, ruled):
    model, X = problem(seed, n_labels, bias)
    offsets = np.random.default_rng(seed).choice(np.float32([0, -0.5, -np.inf]), n_labels) if ruled else None
    k = min(k, n_labels)
    expected = model.indexed(offsets).top(X, k)
    for lists in (None, FeatureLists.of(model.W, 30)):
        found = plain.best(plain.scores(X, model.W, bias, offsets, lists), k)
        assert found.labels.tobytes() == expected.labels.tobytes()
        assert found.scores.tobytes() == expected.scores.tobytes()


def test_scores_that_are_not_numbers_rank_last():
    W = sp.csr_array(np.float32([[3e38, 3e38], [1, 0], [3e38, -3e38], [0, 0]]))
    X = sp.csr_array(np.float32([[9, 9]]))
    expected = LinearModel(W, 2).indexed(None).top(X, 4)
    found = plain.best(plain.scores(X, W, 0.0, None, None), 4)
    assert found.labels.tolist() == expected.labels.tolist() == [[0, 1, 3, 2]]
    assert np.array_equal(found.scores, expected.scores)


def test_rows_are_scored_here_until_they_cost_too_much(monkeypatch):
    model, X = problem(0, 50, 1.0)
    monkeypatch.setattr(plain, "_spent", 0.0)
    monkeypatch.setattr(Kernel, "is_ready", False)
    model.predict_topk(X)
    assert "index" not in vars(model)
    model.predict_topk(sp.csr_array(sp.vstack([X] * 100_000, format="csr")[:100]))
    assert "index" not in vars(model)
    assert 0 < plain._spent < plain.BUDGET
    monkeypatch.setattr(plain, "BUDGET", plain._spent)
    model.predict_topk(X)
    assert "index" in vars(model)


def test_rules_and_few_labels(monkeypatch):
    model, X = problem(1, 6, 1.0)
    rules = Rules(np.float32([0, -np.inf, 0, 1, -np.inf, -np.inf]))
    ruled = LinearModel(model.W, 30, 1.0, rules=rules)
    monkeypatch.setattr(plain, "_spent", 0.0)
    monkeypatch.setattr(Kernel, "is_ready", False)
    few = ruled.predict_topk(X, 5)
    assert "index" not in vars(ruled)
    _ = ruled.index
    again = ruled.predict_topk(X, 5)
    assert np.array_equal(few.labels, again.labels)
    assert few.labels.shape == (4, 3)


SCRIPT = """
    import sys
    from longtail.cli import app

    code = app(sys.argv[1:], standalone_mode=False)
    heavy = [name for name in ("sklearn", "pandas", "numba", "llvmlite", "scipy.stats", "rich") if name in sys.modules]
    print(code, heavy, file=sys.stderr)
"""


@pytest.mark.parametrize("kind", ["tfidf", "hashing", "calibrated"])
def test_the_command_line_predicts_a_text_without_numba_and_scikit_learn(kind, tmp_path):
    texts = ["a cat", "a dog", "a cat and a dog", "a bird", "two birds", "a cat, a bird"] * 3
    labels = [["cat"], ["dog"], ["cat", "dog"], ["bird"], ["bird"], ["cat", "bird"]] * 3
    features = lt.TextFeatures("hashing", n_features=64) if kind == "hashing" else None
    clf = lt.OneVsAll(calibrate=kind == "calibrated").fit(texts, labels, text_features=features)
    clf.save(tmp_path / "model")
    words = [
        sys.executable,
        "-c",
        textwrap.dedent(SCRIPT),
        "predict",
        str(tmp_path / "model"),
        "--text",
        "a dog",
        "-k1",
    ]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stderr.strip().endswith("0 []"), ended.stderr
    assert '"labels": ["dog"]' in ended.stdout


LOADED = """
    import sys
    import longtail as lt

    model = lt.load_model(sys.argv[1])
    top = model.predict_topk(model.text_features.transform(["a dog"]), 1)
    heavy = [name for name in ("sklearn", "numba") if name in sys.modules]
    print(model.label_names[top.labels[0, 0]], float(top.scores[0, 0]).hex(), heavy)
"""


def test_a_model_is_loaded_and_predicts_without_scikit_learn(tmp_path):
    clf = lt.OneVsAll(n_jobs=1).fit(["a cat", "a dog", "a cat and a dog"] * 3, [["cat"], ["dog"], ["cat", "dog"]] * 3)
    clf.save(tmp_path / "model")
    words = [sys.executable, "-c", textwrap.dedent(LOADED), str(tmp_path / "model")]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    score = clf.predict_topk(["a dog"], 1).scores[0, 0]
    assert ended.stdout.strip() == f"dog {float(score).hex()} []"
