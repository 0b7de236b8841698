"""Rows with a sparse and a dense part in every method: the same answers as for the same data in one sparse matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.hybrid import HybridRows

METHODS = {
    "one-vs-all": lt.OneVsAll(C=3),
    "newton": lt.OneVsAll(C=3, solver="newton"),
    "logistic": lt.OneVsAll(C=3, loss="logistic"),
    "pd-sparse": lt.PDSparse(C=3, lam=0.01, early_stopping=False),
    "memoir": lt.Memoir(max_iter=5),
    "mach": lt.Mach(n_buckets=8, n_repetitions=4, max_iter=10),
    "calibrated": lt.OneVsAll(C=3, calibrate="held-out:fraction=0.3"),
}
N, WORDS, DIMS, LABELS = 120, 60, 20, 9


def data(seed: int = 0) -> tuple[sp.csr_array, np.ndarray, list[list[str]]]:
    """Words and embeddings that both say something about the labels."""
    rng = np.random.default_rng(seed)
    own = rng.integers(LABELS, size=N)
    words = (rng.random((N, WORDS)) < 0.05).astype(np.float32)
    words[np.arange(N), own * 3] = 1
    centres = rng.normal(size=(LABELS, DIMS))
    dense = (centres[own] + 0.3 * rng.normal(size=(N, DIMS))).astype(np.float32)
    dense /= 2 * np.linalg.norm(dense, axis=1, keepdims=True)
    return sp.csr_array(words), dense, [[f"label {k}"] for k in own]


@pytest.mark.parametrize("method", METHODS)
def test_the_form_of_the_rows_does_not_matter(method):
    words, dense, labels = data()
    whole = sp.hstack([words, sp.csr_array(dense)], format="csr")
    from_whole = METHODS[method].fit(whole, labels).predict_topk(whole, 3)
    clf = METHODS[method].fit(HybridRows(words, dense), labels)
    for rows in (HybridRows(words, dense), whole, whole.toarray()):
        top = clf.predict_topk(rows, 3)
        assert top.labels.tobytes() == from_whole.labels.tobytes()
        assert top.scores.tobytes() == from_whole.scores.tobytes()
    assert clf.score(whole, labels) > 0.9
    assert clf.n_features_in_ == WORDS + DIMS


@pytest.mark.parametrize("method", ["one-vs-all", "newton", "logistic", "memoir"])
def test_linear_models_keep_dense_weights(method, tmp_path):
    words, dense, labels = data()
    rows = HybridRows(words, dense)
    clf = METHODS[method].fit(rows, labels)
    np.testing.assert_array_equal(clf.model_.dense.columns, np.arange(WORDS, WORDS + DIMS))
    assert clf.model_.dense.weights.dtype == (np.float16 if method == "one-vs-all" else np.float32)
    assert not (clf.model_.W.indices[clf.model_.W.indices < WORDS + DIMS] >= WORDS).any()
    clf.save(tmp_path / "model")
    again = lt.load(tmp_path / "model")
    assert again.predict_topk(rows, 3).scores.tobytes() == clf.predict_topk(rows, 3).scores.tobytes()
    assert [share.feature for share in again.explain(rows[[0]]).contributions].count("(embedding)") == 1


@pytest.mark.parametrize("method", ["one-vs-all", "mach", "memoir"])
def test_threads_do_not_change_a_byte(method):
    words, dense, labels = data()
    models = [METHODS[method].set_params(n_jobs=n).fit(HybridRows(words, dense), labels) for n in (1, 2)]
    scores = [clf.predict_topk(HybridRows(words, dense), 5).scores.tobytes() for clf in models]
    assert scores[0] == scores[1]


def test_a_run_resumes_with_hybrid_rows(tmp_path):
    words, dense, labels = data()
    rows = HybridRows(words, dense)
    plain = METHODS["one-vs-all"].fit(rows, labels).predict_topk(rows, 3)
    for _ in range(2):
        clf = METHODS["one-vs-all"].fit(rows, labels, run=tmp_path / "run", workers="processes:1")
        assert clf.predict_topk(rows, 3).scores.tobytes() == plain.scores.tobytes()


def test_ensembles_take_hybrid_rows():
    words, dense, labels = data()
    rows = HybridRows(words, dense)
    clf = lt.Ensemble([METHODS["one-vs-all"], METHODS["mach"]], calibrate="held-out:fraction=0.3").fit(rows, labels)
    assert clf.score(rows, labels) > 0.9
    whole = sp.hstack([words, sp.csr_array(dense)], format="csr")
    assert clf.predict_topk(whole, 3).labels.tobytes() == clf.predict_topk(rows, 3).labels.tobytes()


def test_an_update_keeps_the_dense_weights_of_other_labels():
    words, dense, labels = data()
    rows = HybridRows(words, dense)
    clf = lt.OneVsAll(C=3).fit(rows, labels)
    before = clf.model_.dense.weights.copy()
    relabelled = [[*names, "new"] if i < 5 else names for i, names in enumerate(labels)]
    clf.update(rows, relabelled)
    assert clf.classes_[-1] == "new"
    np.testing.assert_array_equal(clf.model_.dense.weights[:LABELS], before)
    fresh = lt.OneVsAll(C=3).fit(rows, [["new"] if i < 5 else [] for i in range(N)])
    np.testing.assert_allclose(clf.model_.dense.weights[-1], fresh.model_.dense.weights[0], atol=0.05)


def test_merged_models_keep_their_dense_weights():
    words, dense, labels = data()
    rows = HybridRows(words, dense)
    names = sorted({name for row in labels for name in row})
    parts = [
        lt.OneVsAll(C=3).fit(rows, [[name for name in row if name in half] for row in labels])
        for half in (names[:4], names[4:])
    ]
    merged, whole = lt.merge(parts), lt.OneVsAll(C=3).fit(rows, labels)
    np.testing.assert_array_equal(merged.model_.dense.weights, whole.model_.dense.weights)
    assert merged.predict_topk(rows, 3).scores.tobytes() == whole.predict_topk(rows, 3).scores.tobytes()
