"""What every estimator keeps to: scikit-learn's checks, and longtail's own contract."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import longtail as lt
from longtail import parallel, store
from longtail.errors import InputError, ModelError
from longtail.methods import METHODS
from tests.methods.one_vs_all.problems import random_problem

# scikit-learn's checks that an estimator cannot pass, and why.
EXPECTED_FAILURES = {
    "check_classifiers_multilabel_representation_invariance": (
        "passes an indicator as a list of 0/1 lists; here a list of lists holds label names, which is what data has"
    ),
    "check_sample_weight_equivalence_on_dense_data": "compares weights and repeated rows beyond the tolerance",
    "check_sample_weight_equivalence_on_sparse_data": "compares weights and repeated rows beyond the tolerance",
    "check_classifiers_multilabel_output_format_predict": (
        "asks for a dense indicator; with 10,000 labels and more only a sparse one fits in memory"
    ),
}

METHOD_CLASSES = list(METHODS.values())
# By method: a parameter that says how closely the data is fitted, a value too small, and one that suits small data.
STRENGTH = {
    "one-vs-all": ("C", 0.01, 10.0),
    "pd-sparse": ("C", 0.01, 10.0),
    "memoir": ("learning_rate", 0.01, 10.0),
    "mach": ("max_iter", 1, 60),
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


def test_the_settings_of_the_paper_are_parameters_and_can_be_replaced(method):
    """`paper()` is the constructor with the paper's values: nothing else remembers where they came from."""
    name, weak, value = STRENGTH[method.method]
    paper = method.paper()
    assert type(paper) is method
    assert paper.get_params() != method().get_params()
    assert method(**paper.get_params()).get_params() == paper.get_params()
    for given in (weak, value):
        changed = method.paper(**{name: given})
        assert getattr(changed, name) == given
    n = 300 if method.method == "pd-sparse" else 40  # it compares several lam on held-out rows, 20 at least
    X, Y = random_problem(3, n=n, d=10, L=9)
    assert method.paper(n_jobs=1).fit(X, Y).predict_topk(X, 2).labels.shape == (n, 2)
    with pytest.raises(TypeError, match="colour"):
        method.paper(colour="red")


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
        assert loaded._saved_params() == clf._saved_params()
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
    assert clf.explain(X[[1]], column=top.labels[0, 0]).score == pytest.approx(top.scores[0, 0], abs=1e-5)


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
    clf = method().fit(np.eye(2), [0, 1])
    store.write_model(tmp_path / "model", clf.model_, store.Provenance("oracle", {}))
    with pytest.raises(ModelError, match="was trained by the method 'oracle', which this version lacks; it knows"):
        lt.load(tmp_path / "model")
    store.write_model(tmp_path / "model", clf.model_, store.Provenance(method.method, {STRENGTH[method.method][0]: -1}))
    with pytest.raises(ModelError, match=r"parameters that .* does not take: The '\w+' parameter"):
        lt.load(tmp_path / "model")
    store.write_model(tmp_path / "model", clf.model_, store.Provenance(method.method, {"colour": "red"}))
    with pytest.raises(ModelError, match="colour"):
        lt.load(tmp_path / "model")


def test_sparse_in_sparse_out_without_a_rows_by_labels_array(method):
    """20,000 labels and 2,000 rows would be 160 MB as a dense float32 array; prediction stays far below that."""
    import tracemalloc

    clf = method._fitted(_model_of(method, n_labels=20_000, n_features=100), store.Provenance(method.method), where="")
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random(2_000, 100, density=0.05, format="csr", dtype=np.float32, random_state=rng))
    clf.predict_topk(X[:2], k=5)  # compiles
    tracemalloc.start()
    clf.predict_topk(X, k=5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6


def _model_of(method, n_labels, n_features):
    """A large model of the kind that the method makes."""
    rng = np.random.default_rng(0)
    if method is lt.Mach:
        from longtail.models.buckets import LinearBuckets
        from longtail.models.hashing import Hashes

        hashes = Hashes.draw(n_labels, 64, range(4), seed=0)
        W = rng.normal(size=(n_features + 1, 4 * 64)).astype(np.float32)
        buckets = LinearBuckets.packed(W, np.arange(n_features + 1), n_features, 64, 1.0, "softmax")
        return lt.HashedModel(hashes, buckets, n_features)
    W = sp.random(n_labels, n_features + 1, density=0.01, format="csr", dtype=np.float32, random_state=rng)
    return lt.LinearModel(sp.csr_array(W), n_features, 1.0)


# --- the form of y decides the form of predictions -------------------------------------------------------------------

ONE_EACH = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]  # every row happens to have exactly one label
ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.1]])


def test_a_one_dimensional_y_gives_classes(method):
    clf = method(**strong(method)).fit(ROWS, ["a", "b", "c", "a"])
    assert clf.multiclass_
    assert clf.predict(ROWS).shape == (4,)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, np.array, lambda Y: [[row.index(1)] for row in Y]])
def test_indicators_and_lists_give_an_indicator_even_where_each_row_has_one_label(method, form):
    clf = method(**strong(method)).fit(ROWS, form(ONE_EACH))
    assert not clf.multiclass_
    predicted = clf.predict(ROWS)
    assert sp.issparse(predicted)
    assert predicted.shape == (4, 3)


def test_the_form_of_y_does_not_change_what_is_learned(method):
    classes, indicator = (method(**strong(method)).fit(ROWS, y) for y in ([0, 1, 2, 0], sp.csr_array(ONE_EACH)))
    np.testing.assert_array_equal(classes.predict_topk(ROWS, 3).scores, indicator.predict_topk(ROWS, 3).scores)


# --- names and columns are never guessed -----------------------------------------------------------------------------


def test_explain_takes_names_and_columns_apart(method):
    X, Y = random_problem(5, L=4)
    clf = method(**strong(method)).fit(X, Y, label_names=[3, 2, 1, 0])
    by_name = clf.explain(X[[0]], 3)
    by_column = clf.explain(X[[0]], column=0)
    assert (by_name.label, by_name.name) == (by_column.label, by_column.name) == (0, 3)
    assert clf.explain(X[[0]], column=3).name == 0
    with pytest.raises(InputError, match="give one of them"):
        clf.explain(X[[0]], 3, column=0)
    with pytest.raises(InputError, match="label 7 is not among the 4 names in classes_; a column number goes into"):
        clf.explain(X[[0]], 7)


def test_explain_without_a_label_explains_the_best(method):
    X, Y = random_problem(5, L=4)
    clf = method(**strong(method)).fit(X, Y)
    assert clf.explain(X[[2]]).label == clf.predict_topk(X[[2]], 1).labels[0, 0]


# --- what users hold in their hands ----------------------------------------------------------------------------------

TEXTS = ["red apple", "green apple", "red cherry", "green pear"]


def _text_forms():
    import pandas as pd
    import polars as pl

    return {
        "list": list,
        "tuple": tuple,
        "object array": lambda texts: np.array(texts, object),
        "string array": np.array,
        "pandas Series": pd.Series,
        "pandas string Series": lambda texts: pd.Series(texts, dtype="string", index=range(10, 10 + len(texts))),
        "pandas DataFrame": lambda texts: pd.DataFrame({"text": texts}),
        "polars Series": lambda texts: pl.Series("text", texts),
        "polars DataFrame": lambda texts: pl.DataFrame({"text": texts}),
    }


FORMS = (
    "list", "tuple", "object array", "string array", "pandas Series", "pandas string Series", "pandas DataFrame",
    "polars Series", "polars DataFrame",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_texts_in_every_form(method, form):
    make = _text_forms()[form]
    plain = method(**strong(method)).fit(TEXTS, ["apple", "apple", "cherry", "pear"])
    clf = method(**strong(method)).fit(make(TEXTS), ["apple", "apple", "cherry", "pear"])
    wanted = plain.predict_topk(TEXTS, 2)
    for top in (clf.predict_topk(TEXTS, 2), plain.predict_topk(make(TEXTS), 2)):
        np.testing.assert_array_equal(top.labels, wanted.labels)
        np.testing.assert_array_equal(top.scores, wanted.scores)


def test_frames_of_numbers_are_checked_by_their_column_names(method):
    import pandas as pd
    import polars as pl

    X = np.abs(random_problem(5, L=4)[0].toarray())
    y = np.arange(len(X)) % 3
    columns = [f"f{j}" for j in range(X.shape[1])]
    clf = method().fit(pd.DataFrame(X, columns=columns), y)
    assert clf.feature_names_in_.tolist() == columns
    wanted = clf.predict_topk(pd.DataFrame(X, columns=columns), 2)
    assert clf.explain(pd.DataFrame(X[:1], columns=columns)).contributions[0].feature.startswith("f")
    np.testing.assert_array_equal(clf.predict_topk(pl.DataFrame(X, schema=columns), 2).scores, wanted.scores)
    with pytest.raises(InputError, match="feature names"):
        clf.predict_topk(pd.DataFrame(X, columns=columns[::-1]))


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array, lambda X: X.toarray()])
def test_rows_in_every_container(method, container):
    X, Y = random_problem(3, n=40, d=10, L=9)
    clf = method().fit(X, Y)
    np.testing.assert_allclose(
        clf.predict_topk(container(X), 3).scores, clf.predict_topk(X, 3).scores, rtol=1e-6, atol=1e-6
    )


# --- scores of all labels --------------------------------------------------------------------------------------------


def test_decision_function_has_the_scores_of_the_best_labels(method):
    X, Y = random_problem(3, n=40, d=10, L=9)
    clf = method().fit(X, Y)
    scores, top = clf.decision_function(X), clf.predict_topk(X, 9)
    assert scores.shape == (40, 9)
    np.testing.assert_allclose(np.take_along_axis(scores, top.labels, 1), top.scores, rtol=1e-5, atol=1e-6)


def test_decision_function_of_two_classes_is_one_dimensional(method):
    X, _ = random_problem(3, n=40, d=10, L=9)
    clf = method(**strong(method)).fit(X, np.arange(40) % 2)
    values = clf.decision_function(X)
    assert values.shape == (40,)
    np.testing.assert_array_equal(clf.predict(X)[values != 0], (values > 0).astype(int)[values != 0])


def test_decision_function_of_two_labels_has_two_columns(method):
    X, Y = random_problem(3, n=40, d=10, L=2)
    assert method().fit(X, Y).decision_function(X).shape == (40, 2)


def test_decision_function_refuses_what_does_not_fit(method, monkeypatch):
    from longtail import memory

    X, Y = random_problem(3, n=40, d=10, L=9)
    clf = method().fit(X, Y)
    monkeypatch.setattr(memory, "free", lambda: 1000.0)
    with pytest.raises(InputError, match=r"360 scores \(40 rows by 9 labels\) need .* use predict_topk"):
        clf.decision_function(X)


# --- one training record for all -------------------------------------------------------------------------------------


def test_the_training_record_is_complete_and_saved(method, tmp_path):
    X, Y = random_problem(5, L=6)
    clf = method().fit(X, Y)
    record = clf.training_
    assert record.unit in ("label", "repetition", "model")
    assert len(record.status) == len(record.n_iter) == {"label": 6, "model": 1}.get(record.unit, len(record.status))
    assert record.block_seconds.sum() <= record.wall_seconds * 8
    assert record.wall_seconds > 0
    assert record.peak_bytes > 1e6
    assert isinstance(record.settings["seed"], int)
    assert None not in record.settings.values()
    assert isinstance(clf.n_iter_, int)
    assert clf.n_iter_ == record.n_iter.max() > 0
    clf.save(tmp_path / "model")
    again = lt.load(tmp_path / "model").training_
    assert again.settings == record.settings
    assert again.figures.keys() == record.figures.keys()
    for name in ("status", "n_iter", "block_status", "block_n_iter", *record.figures):
        np.testing.assert_array_equal(getattr(again, name), getattr(record, name))
    assert str(again) == str(record)


def test_two_equal_fits_have_the_same_identity_though_their_times_differ(method, tmp_path):
    X, Y = random_problem(5, L=6)
    for name, n_jobs in (("one", 1), ("two", 2), ("four", 4)):
        method(n_jobs=n_jobs).fit(X, Y).save(tmp_path / name)
    method(bias=0.7).fit(X, Y).save(tmp_path / "other")
    ids = [store.model_id(tmp_path / name) for name in ("one", "two", "four")]
    assert ids[0] == ids[1] == ids[2] != store.model_id(tmp_path / "other")


def test_parts_may_arrive_in_any_order_and_travel_through_disk(method, tmp_path):
    """A part is plain arrays: another process can solve a block, and this one stack it."""
    X, Y = random_problem(7, n=60, d=20, L=12)
    clf = method(**({"block_size": 3} if method is lt.OneVsAll else {}))
    wanted = clf.fit(X, Y).model_
    problem = clf._problem(X, Y)
    parts = []
    for block in problem.blocks():
        part = problem.solve(block, parallel.Work())
        for name, array in part.arrays.items():
            np.save(tmp_path / f"{block.number}-{name}.npy", array, allow_pickle=False)
        arrays = {name: np.load(tmp_path / f"{block.number}-{name}.npy", mmap_mode="r") for name in part.arrays}
        parts.append(dataclasses.replace(part, arrays=arrays))
    stack = problem.stack()
    for part in reversed(parts):
        stack.add(part)
    found = stack.model().scores(X, np.arange(12))
    np.testing.assert_array_equal(found, wanted.scores(X, np.arange(12)))


def test_parameters_are_checked_before_the_data_is_looked_at(method):
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(f"the data was asked for {name}")

    for wrong in ({"random_state": "x"}, {"n_jobs": 0}, {"normalize": "yes"}, {"bias": -1}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' parameter of {method.__name__}"):
            method(**wrong).fit(Untouchable(), Untouchable())


def test_cross_validation(method):
    from sklearn.model_selection import cross_val_score

    X = np.repeat(np.eye(3), 8, axis=0) + np.random.default_rng(0).normal(scale=0.05, size=(24, 3))
    scores = cross_val_score(method(**strong(method)), X, np.repeat(["a", "b", "c"], 8), cv=4)
    assert scores.mean() > 0.9


def test_set_output_leaves_predictions_alone(method):
    """set_output concerns transformers: a pipeline of a transformer that gives frames and a classifier works."""
    from sklearn.preprocessing import MaxAbsScaler

    X = np.repeat(np.eye(3), 4, axis=0)
    y = np.repeat(["a", "b", "c"], 4)
    pipeline = make_pipeline(MaxAbsScaler().set_output(transform="pandas"), method(**strong(method))).fit(X, y)
    assert pipeline.predict(X).tolist() == y.tolist()


def test_grid_search_in_several_processes_does_not_multiply_threads(method):
    X = np.repeat(np.eye(3), 8, axis=0)
    y = np.repeat(["a", "b", "c"], 8)
    name, *choices = STRENGTH[method.method]
    search = GridSearchCV(method(), {name: choices}, cv=2, n_jobs=2).fit(X, y)
    assert search.best_score_ == 1.0
