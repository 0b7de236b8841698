"""What every estimator keeps to: scikit-learn's checks, and longtail's own contract."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import longtail as lt
from longtail.errors import InputError, ModelError
from longtail.methods import METHODS
from tests.methods.one_vs_all.problems import random_problem

# scikit-learn's checks that an estimator cannot pass, and why.
EXPECTED_FAILURES = {
    "check_classifiers_multilabel_representation_invariance": (
        "passes an indicator as a list of 0/1 lists; here a list of lists holds label names, which is what data has"
    ),
    "check_classifiers_multilabel_output_format_predict": (
        "asks for a dense indicator; with 10,000 labels and more only a sparse one fits in memory"
    ),
}

METHOD_CLASSES = list(METHODS.values())
# By method: a parameter that says how closely the data is fitted, a value too small, and one that suits small data.
STRENGTH = {
    "one-vs-all": ("C", 0.01, 10.0),
    "pd-sparse": ("C", 0.01, 10.0),
    "memoir": ("eta0", 0.01, 10.0),
    "mach": ("n_epochs", 1, 60),
}


def strong(method):
    """The parameters for small data that is to be learned closely."""
    name, _, value = STRENGTH[method.method]
    return {name: value}


@parametrize_with_checks(
    [method(n_jobs=1) for method in METHOD_CLASSES], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(params=METHOD_CLASSES, ids=lambda method: method.method)
def method(request):
    return request.param


def test_clone_and_set_params(method):
    name, weak, value = STRENGTH[method.method]
    assert getattr(clone(method(**{name: value})), name) == value
    assert method().set_params(**{name: weak}).get_params()[name] == weak


def test_pipeline_and_grid_search(method):
    texts = ["red apple", "green apple", "red cherry", "green pear", "yellow pear", "red plum"] * 4
    fruit = [text.split()[1] for text in texts]
    name, *choices = STRENGTH[method.method]
    search = GridSearchCV(
        make_pipeline(TfidfVectorizer(), method()), {f"{method.__name__.lower()}__{name}": choices}, cv=2
    )
    search.fit(texts, fruit)
    assert search.predict(["a ripe cherry"]).tolist() == ["cherry"]
    assert search.best_score_ == 1.0


def test_top_k_agrees_with_a_full_sort_of_the_scores(method):
    X, Y = random_problem(3, n=40, d=10, L=9)
    clf = method().fit(X, Y)
    top = clf.predict_topk(X, k=4)
    scores = clf.model_.scores(X, np.arange(9))
    np.testing.assert_allclose(top.scores, -np.sort(-scores, axis=1)[:, :4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(scores, top.labels, 1), top.scores, rtol=1e-5, atol=1e-6)
    assert (top.labels.dtype, top.scores.dtype) == (np.int32, np.float32)


def test_save_load_identical_predictions(method, tmp_path):
    X, Y = random_problem(5, L=6)
    clf = method(**strong(method)).fit(X, Y, label_names=["é", "b", "c\n", "", "日本", "f"])
    clf.save(tmp_path / "model")
    for mmap in (True, False):
        loaded = lt.load(tmp_path / "model", mmap=mmap)
        assert type(loaded) is method
        assert loaded.saved_params() == clf.saved_params()
        assert loaded.classes_.tolist() == clf.classes_.tolist()
        assert loaded.multiclass_ == clf.multiclass_
        before, after = clf.predict_topk(X, 3), loaded.predict_topk(X, 3)
        np.testing.assert_array_equal(before.labels, after.labels)
        np.testing.assert_array_equal(before.scores, after.scores)
        assert (clf.predict(X) != loaded.predict(X)).nnz == 0
        loaded.save(tmp_path / f"again-{mmap}")
        assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == {
            path.name: path.read_bytes() for path in (tmp_path / f"again-{mmap}").iterdir()
        }


def test_an_indicator_is_scored_by_its_columns_whatever_their_names(method):
    X, Y = random_problem(5, L=6)
    clf = method(**strong(method)).fit(X, Y)
    for names in ([5, 4, 3, 2, 1, 0], list("abcdef")):
        named = method(**strong(method)).fit(X, Y, label_names=names)
        for form in (Y, Y.toarray()):
            assert named.score(X, form) == clf.score(X, Y) > 0
        assert named.score(lt.Dataset(X, Y)) == clf.score(X, Y)
    with pytest.raises(InputError, match="y has 2 columns, but the model has 6 labels"):
        clf.score(X, Y[:, :2])


def test_rows_are_normalised_by_the_model_itself_when_asked(method, tmp_path):
    X, Y = random_problem(6, L=6)
    lengths = np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-30)
    unit = sp.csr_array((X.toarray() / lengths).astype(np.float32))
    clf = method(normalize=True).fit(X, Y)
    of_unit_rows = method().fit(unit, Y).model_.scores(unit, np.arange(6))
    np.testing.assert_allclose(clf.model_.scores(X, np.arange(6)), of_unit_rows, rtol=1e-3, atol=1e-4)
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_topk(X, 3).scores, clf.predict_topk(X, 3).scores)
    np.testing.assert_allclose(loaded.predict_topk(7 * X, 3).scores, clf.predict_topk(X, 3).scores, atol=1e-5)
    top = clf.predict_topk(X[[1]], 1)
    assert clf.explain(X[[1]], top.labels[0, 0]).score == pytest.approx(top.scores[0, 0], abs=1e-5)


@pytest.mark.parametrize("classes", [["b", "a", "b"], [30, -7, 30], [True, False, True], [2.0, 1.0, 2.0]])
def test_classes_of_every_kind_come_back_from_disk(method, classes, tmp_path):
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]])
    method(**strong(method)).fit(X, np.array(classes)).save(tmp_path / "model")
    assert lt.load(tmp_path / "model").predict(X).tolist() == classes


def test_a_model_of_texts_takes_raw_texts_after_loading(method, tmp_path):
    texts = ["red apple", "green apple", "red cherry", "green pear"]
    features = lt.TextFeatures(min_df=1)
    X = features.fit_transform(texts)
    clf = method(**strong(method)).fit(
        X, [["red", "apple"], ["apple"], ["red", "cherry"], ["pear"]], text_features=features
    )
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_topk(texts, 2).scores, clf.predict_topk(X, 2).scores)
    best = loaded.predict_topk(["a cherry"], 2).labels[0]  # the only text with a cherry is also a red one
    assert set(loaded.classes_[best]) == {"cherry", "red"}
    shares = loaded.explain("a cherry", "cherry").contributions
    assert [share.feature for share in shares] == ["cherry"]
    with pytest.raises(InputError, match="list"):
        loaded.predict_topk("a cherry")


def test_names_that_json_cannot_hold_are_refused_and_the_old_model_stays(method, tmp_path):
    X = np.eye(2)
    method().fit(X, [["a"], ["b"]]).save(tmp_path / "model")
    with pytest.raises(ModelError, match="neither a string nor a whole number"):
        method().fit(X, [[("a", 1)], [("b", 2)]]).save(tmp_path / "model")
    assert lt.load(tmp_path / "model").classes_.tolist() == ["a", "b"]


def test_loading_a_model_of_an_unknown_method_names_the_known_ones(method, tmp_path):
    from longtail import store

    clf = method().fit(np.eye(2), [0, 1])
    store.write_model(tmp_path / "model", clf.model_, store.Training("oracle", {}))
    with pytest.raises(ModelError, match="was trained by the method 'oracle', which this version lacks; it knows"):
        lt.load(tmp_path / "model")
    store.write_model(tmp_path / "model", clf.model_, store.Training(method.method, {STRENGTH[method.method][0]: -1}))
    with pytest.raises(ModelError, match=r"parameters that .* does not take: The '\w+' parameter"):
        lt.load(tmp_path / "model")
    store.write_model(tmp_path / "model", clf.model_, store.Training(method.method, {"colour": "red"}))
    with pytest.raises(ModelError, match="colour"):
        lt.load(tmp_path / "model")


def test_sparse_in_sparse_out_without_a_rows_by_labels_array(method):
    """20,000 labels and 2,000 rows would be 160 MB as a dense float32 array; prediction stays far below that."""
    import tracemalloc

    from longtail.models import LinearModel

    rng = np.random.default_rng(0)
    W = sp.random(20_000, 101, density=0.01, format="csr", dtype=np.float32, random_state=rng)
    X = sp.csr_array(sp.random(2_000, 100, density=0.05, format="csr", dtype=np.float32, random_state=rng))
    clf = method._fitted(LinearModel(sp.csr_array(W), 100, 1.0), {}, where="memory")
    clf.predict_topk(X[:2], k=5)  # compiles
    tracemalloc.start()
    clf.predict_topk(X, k=5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
