"""Any classifier of scikit-learn as base: linear ones become weights, others are used as they are and not saved."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import longtail as lt
from longtail.errors import InputError, ModelError
from longtail.methods.mach.bases import FittedBases, bucket_indicator, bucket_probabilities
from longtail.models.buckets import LinearBuckets
from tests.methods.mach.test_estimator import as_indicator, classes
from tests.methods.one_vs_all.problems import text_like
from tests.store.samples import assert_same_model

LINEAR = {
    "softmax": LogisticRegression(C=10, max_iter=200),
    "normalized": SGDClassifier(loss="log_loss", random_state=0),
    "one against the rest": OneVsRestClassifier(LogisticRegression(C=10)),
}
OTHERS = {
    "network": MLPClassifier((20,), max_iter=30, random_state=0, tol=1.0, n_iter_no_change=50, early_stopping=False),
    "boosted": HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=4, min_samples_leaf=5),
    "forest": RandomForestClassifier(8, random_state=0),
}


def quiet(clf, X, y):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bases that are stopped early, and of labels that so few buckets merge
        return clf.fit(X, y)


def probabilities(base, X, y, hashes):
    """What a base of its own says for every repetition."""
    from sklearn.base import clone

    parts = []
    for r in range(hashes.n_repetitions):
        own = quiet(clone(base), X, hashes.table[y, r].astype(int))
        parts.append(bucket_probabilities(own, X, hashes.n_buckets))
    return np.hstack(parts)


@pytest.mark.parametrize("name", LINEAR)
def test_linear_bases_become_weights_that_say_the_same(name, tmp_path):
    X, y = classes(n=300, K=20)
    clf = quiet(lt.Mach(n_buckets=4, n_repetitions=3, base=LINEAR[name], n_jobs=1), X, y)
    assert isinstance(clf.model_.buckets, LinearBuckets)
    wanted = probabilities(LINEAR[name], X, y, clf.model_.hashes)
    np.testing.assert_allclose(clf.model_.buckets.probabilities(X), wanted, atol=1e-3)
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_topk(X, 3).scores, clf.predict_topk(X, 3).scores)
    assert loaded.base is None
    assert clf.score(X, y) > 0.5


@pytest.mark.parametrize("name", OTHERS)
def test_other_bases_predict_for_themselves_and_are_not_saved(name, tmp_path):
    X, y = classes(n=200, K=12)
    clf = quiet(lt.Mach(n_buckets=4, n_repetitions=2, base=OTHERS[name], n_jobs=2), X, y)
    assert isinstance(clf.model_.buckets, FittedBases)
    assert clf.predict_topk(X, 3).labels.shape == (200, 3)
    assert clf.score(X, y) > 0.15
    with pytest.raises(
        ModelError, match="cannot save a model whose bucket classifiers are not linear: only weights are"
    ):
        clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(InputError, match="are not linear"):
        clf.explain(X[[0]], column=0)


def test_more_repetitions_of_other_bases():
    X, y = classes(n=200, K=12)
    clf = lt.Mach(n_buckets=4, n_repetitions=2, base=DecisionTreeClassifier(random_state=0), warm_start=True)
    two = quiet(clf, X, y).model_.buckets.probabilities(X)
    quiet(clf.set_params(n_repetitions=4), X, y)
    np.testing.assert_array_equal(clf.model_.buckets.probabilities(X)[:, :8], two)
    whole = quiet(lt.Mach(n_buckets=4, n_repetitions=4, base=DecisionTreeClassifier(random_state=0)), X, y)
    np.testing.assert_array_equal(clf.predict_topk(X, 3).scores, whole.predict_topk(X, 3).scores)


def test_more_repetitions_of_linear_bases():
    X, y = classes(n=200, K=12)
    base = LogisticRegression(C=10, max_iter=200)
    clf = quiet(lt.Mach(n_buckets=4, n_repetitions=2, base=base, warm_start=True), X, y)
    assert clf.n_iter_ == clf.training_.n_iter.max() > 1
    quiet(clf.set_params(n_repetitions=4), X, y)
    assert_same_model(clf.model_, quiet(lt.Mach(n_buckets=4, n_repetitions=4, base=base), X, y).model_)
    with pytest.raises(InputError, match="warm_start cannot add these bases to the linear ones of the last fit"):
        quiet(clf.set_params(n_repetitions=5, base=DecisionTreeClassifier()), X, y)
    trees = quiet(lt.Mach(n_buckets=4, n_repetitions=2, base=DecisionTreeClassifier(), warm_start=True), X, y)
    with pytest.raises(InputError, match="differ from the new ones in linear"):
        quiet(trees.set_params(n_repetitions=4, base=None), X, y)


@pytest.mark.parametrize(
    ("base", "linear"),
    [(OneVsRestClassifier(LogisticRegression()), True), (RandomForestClassifier(5, random_state=0), False)],
)
def test_multi_label_bases_learn_bucket_indicators(base, linear):
    X, Y = text_like(1, n=150, L=20)
    clf = quiet(lt.Mach(n_buckets=6, n_repetitions=2, base=base, n_jobs=1), X, Y)
    assert isinstance(clf.model_.buckets, LinearBuckets) == linear
    hashes = clf.model_.hashes
    own = quiet(base, X, bucket_indicator(Y, hashes.table[:, 1], 6))
    np.testing.assert_allclose(clf.model_.buckets.probabilities(X)[:, 6:], bucket_probabilities(own, X, 6), atol=1e-3)
    assert clf.score(X, Y) > 0.3


def test_a_bucket_is_positive_if_any_of_its_labels_is():
    Y = as_indicator(np.array([0, 1, 2]))
    Y = Y + Y[[1, 2, 2]]
    np.testing.assert_array_equal(
        bucket_indicator(Y, np.array([0, 1, 0], np.uint8), 3), [[1, 1, 0], [1, 1, 0], [1, 0, 0]]
    )


def test_buckets_without_rows_are_never_predicted():
    """Four classes in 65 buckets of two repetitions: most buckets are empty."""
    X, y = classes(n=100, K=70)
    y = y % 4 * 17
    Y = as_indicator(y)
    Y.resize((100, 70))
    clf = lt.Mach(n_buckets=65, n_repetitions=2, base=LogisticRegression()).fit(X, Y)
    assert set(np.unique(clf.predict_topk(X, 1).labels)) <= {0, 17, 34, 51}
    P = clf.model_.buckets.probabilities(X).reshape(100, 2, 65)
    np.testing.assert_allclose(P.sum(axis=2), 1, rtol=1e-5)


def test_a_base_that_takes_no_multi_label_data_is_refused_with_advice():
    X, Y = text_like(1, n=60, L=20)
    with pytest.raises(InputError, match=r"LogisticRegression does not take the 6 buckets .* OneVsRestClassifier"):
        quiet(lt.Mach(n_buckets=6, n_repetitions=2, base=LogisticRegression(), n_jobs=1), X, Y)


@pytest.mark.parametrize("base", [LogisticRegression, BaseEstimator(), 3])
def test_what_is_no_classifier(base):
    with pytest.raises(InputError, match="must be None or a scikit-learn classifier with fit and predict_proba"):
        lt.Mach(base=base).fit(np.eye(3), [0, 1, 2])


@pytest.mark.parametrize("start", ["msi", "zero"])
def test_one_vs_all_is_a_base(start, tmp_path):
    X, y = classes(n=300, K=20)
    base = lt.OneVsAll(C=10, loss="logistic", start=start, tol=1e-4)
    clf = quiet(lt.Mach(n_buckets=4, n_repetitions=3, base=base), X, y)
    assert clf.model_.linear.link == "normalized"
    own = lt.OneVsAll(C=10, loss="logistic", start=start, tol=1e-4).fit(X, clf.model_.hashes.table[y, 1].astype(int))
    P = 1 / (1 + np.exp(-own.decision_function(X)))
    np.testing.assert_allclose(clf.model_.buckets.probabilities(X)[:, 4:8], P / P.sum(axis=1, keepdims=True), atol=1e-3)
    assert clf.score(X, y) > 0.5
    assert clf.n_iter_ >= 1
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(lt.load(tmp_path / "model").predict_topk(X, 3).scores, clf.predict_topk(X, 3).scores)


def test_one_vs_all_as_base_learns_bucket_indicators_of_several_labels():
    X, Y = text_like(1, n=150, L=20)
    clf = quiet(lt.Mach(n_buckets=6, n_repetitions=2, base=lt.OneVsAll(loss="logistic", C=10, tol=1e-4)), X, Y)
    assert clf.model_.linear.link == "sigmoid"
    indicator = bucket_indicator(Y, clf.model_.hashes.table[:, 1], 6)
    own = lt.OneVsAll(loss="logistic", C=10, tol=1e-4).fit(X, indicator)
    P = 1 / (1 + np.exp(-own.decision_function(X)))
    np.testing.assert_allclose(clf.model_.buckets.probabilities(X)[:, 6:], P, atol=1e-3)


def test_a_bucket_that_one_vs_all_never_saw_is_never_predicted():
    X, y = classes(n=100, K=70)
    Y = as_indicator(y % 4 * 17)
    Y.resize((100, 70))
    clf = lt.Mach(n_buckets=65, n_repetitions=2, base=lt.OneVsAll(loss="logistic")).fit(X, Y)
    assert set(np.unique(clf.predict_topk(X, 1).labels)) <= {0, 17, 34, 51}


def test_one_vs_all_with_another_loss_has_no_probabilities():
    with pytest.raises(InputError, match="as the base of Mach needs loss='logistic', whose scores are log-odds"):
        lt.Mach(base=lt.OneVsAll()).fit(np.eye(3), [0, 1, 2])
    with pytest.raises(InputError, match="'C' parameter"):
        lt.Mach(base=lt.OneVsAll(C=-1, loss="logistic")).fit(np.eye(3), [0, 1, 2])


@pytest.mark.parametrize("base", [LogisticRegression(C=10, max_iter=200), OTHERS["boosted"]])
def test_bases_are_trained_on_dense_rows_as_they_are(base):
    X, y = classes(n=200, K=12)
    dense = X.toarray() + 0.01  # all entries are nonzero
    clf = quiet(lt.Mach(n_buckets=4, n_repetitions=2, base=base, n_jobs=1), dense, y)
    assert clf.predict_topk(dense, 3).labels.shape == (200, 3)
    assert clf.score(dense, y) > 0.3
