"""Mach: warm starts, multi-class and multi-label, warnings, the training record, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.errors import InputError
from longtail.training import Status
from tests.methods.one_vs_all.problems import text_like
from tests.store.samples import assert_same_model


def classes(seed=0, n=600, K=40):
    """Rows with the words of their class, of which each has three, among common ones."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    dense = (rng.random((n, 4 * K)) < 0.02).astype(np.float32)
    for word in range(3):
        dense[np.arange(n), 3 * y + word] = rng.random(n) < 0.8
    return sp.csr_array(dense), y


def small(**more) -> lt.Mach:
    return lt.Mach(**{"n_buckets": 8, "n_repetitions": 6, "max_iter": 8, "normalize": True, "n_jobs": 1, **more})


def as_indicator(y):
    return sp.csr_array((np.ones(len(y), np.int32), y, np.arange(len(y) + 1)))


@pytest.mark.parametrize("aggregate", ["geometric", "mean", "median", "min"])
def test_it_learns_classes_in_far_fewer_buckets(aggregate):
    X, y = classes()
    clf = small(aggregate=aggregate).fit(X[:500], y[:500])
    assert clf.multiclass_
    assert clf.model_.linear.link == "softmax"
    assert clf.n_indistinguishable_ == 0
    assert clf.score(X[500:], y[500:]) > 0.8
    assert np.array_equal(clf.predict(X[500:]), clf.classes_[clf.predict_topk(X[500:], 1).labels[:, 0]])


def test_it_learns_labels_with_sigmoid_buckets():
    X, Y = text_like(0)
    clf = small(n_buckets=16, max_iter=20).fit(X, Y)
    assert not clf.multiclass_
    assert clf.model_.linear.link == "sigmoid"
    assert clf.score(X, Y) > 0.9
    predicted = clf.predict(X)
    assert predicted.multiply(Y).sum() / predicted.sum() > 0.8  # precision
    assert predicted.multiply(Y).sum() / Y.sum() > 0.3  # recall


def test_softmax_or_sigmoid_depends_on_the_data_and_predict_on_the_form_of_y():
    X, y = classes()
    by_class, by_indicator = small().fit(X, y), small().fit(X, as_indicator(y))
    assert (by_class.multiclass_, by_indicator.multiclass_) == (True, False)
    assert by_class.model_.linear.link == by_indicator.model_.linear.link == "softmax"
    np.testing.assert_array_equal(by_class.predict_topk(X, 3).scores, by_indicator.predict_topk(X, 3).scores)


@pytest.mark.parametrize("n_jobs", [2, 4, None])
def test_threads_do_not_change_a_byte(n_jobs):
    X, y = classes()
    assert_same_model(small(n_jobs=n_jobs).fit(X, y).model_, small().fit(X, y).model_)


def test_a_warm_start_adds_repetitions_and_trains_no_other(tmp_path):
    X, y = classes()
    clf = small(n_repetitions=4, warm_start=True).fit(X, y)
    old = clf.model_
    clf.set_params(n_repetitions=6).fit(X, y)
    assert_same_model(clf.model_, small().fit(X, y).model_)
    np.testing.assert_array_equal(clf.model_.linear.logits(X)[:, :32], old.linear.logits(X))
    assert clf.training_.n_iter.tolist() == [8] * 6
    assert clf.training_.block_seconds[0] == 0  # of the repetitions that were kept
    again = clf.model_
    assert_same_model(clf.fit(X, y).model_, again)
    small(n_repetitions=4).fit(X, y).save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model").set_params(n_repetitions=6, warm_start=True, n_jobs=1)
    assert_same_model(loaded.fit(X, y).model_, again)
    with pytest.raises(InputError, match="n_repetitions=3 is less than the 6 of the last fit"):
        clf.set_params(n_repetitions=3).fit(X, y)
    with pytest.raises(
        InputError, match=r"last fit, which had 40 labels and 160 features, but this data has 40 and 100"
    ):
        clf.set_params(n_repetitions=7).fit(X[:, :100], y)


@pytest.mark.parametrize(
    ("params", "different"),
    [
        ({"n_buckets": 9}, "n_buckets"),
        ({"n_buckets": 40}, "n_buckets"),
        ({"bias": 0.5}, "bias"),
        ({"weights": "float32", "bias": 0.0}, "bias, weights"),
        ({"normalize": False}, "normalize"),
    ],
)
def test_a_warm_start_refuses_repetitions_of_another_kind(params, different):
    X, y = classes()
    clf = small(n_repetitions=4, warm_start=True).fit(X, y)
    with pytest.raises(InputError, match=f"differ from the new ones in {different}; use the parameters and labels"):
        clf.set_params(n_repetitions=6, **params).fit(X, y)
    several = as_indicator(y) + as_indicator(np.roll(y, 1))
    several.data[:] = 1
    with pytest.raises(InputError, match="differ from the new ones in link"):
        small(n_repetitions=4, warm_start=True).fit(X, y).set_params(n_repetitions=6).fit(X, several)


def test_seeds_make_the_difference_and_nothing_else():
    X, y = classes()
    one, same, other = (small(random_state=state).fit(X, y).model_ for state in (1, np.int64(1), 2))
    assert_same_model(one, same)
    assert not np.array_equal(one.hashes.table, other.hashes.table)
    assert (
        small(random_state=None).fit(X, y).model_.hashes.a[0] != small(random_state=None).fit(X, y).model_.hashes.a[0]
    )
    small(random_state=np.random.RandomState(0)).fit(X, y)


def test_with_a_bucket_for_every_label_nothing_is_hashed():
    X, y = classes(K=7)
    clf = lt.Mach(n_buckets=7, n_repetitions=5).fit(X, y)
    assert (clf.model_.hashes.n_repetitions, clf.model_.hashes.n_buckets) == (1, 7)
    np.testing.assert_allclose(clf.model_.scores(X, range(7)).sum(axis=1), 1, rtol=1e-5)  # a plain softmax
    assert_same_model(lt.Mach(n_buckets=512).fit(X, y).model_, clf.model_)
    warm = lt.Mach(n_buckets=7, warm_start=True).fit(X, y)
    assert_same_model(warm.set_params(n_repetitions=9).fit(X, y).model_, warm.model_)


def test_labels_that_cannot_be_told_apart_are_counted_and_warned_of(tmp_path):
    X, y = classes()
    with pytest.warns(UserWarning, match=r"share their bucket in all 1 repetitions .* Mach\.suggest_sizes"):
        clf = small(n_repetitions=1).fit(X, y)
    buckets = np.bincount(clf.model_.hashes.table[:, 0])
    assert clf.n_indistinguishable_ == (buckets * (buckets - 1) // 2).sum()
    clf.save(tmp_path / "model")
    assert lt.load(tmp_path / "model").n_indistinguishable_ == clf.n_indistinguishable_


def test_fewer_bytes_cost_little_accuracy():
    X, y = classes(n=2000)
    exact = small(weights="float32", prune=0.0).fit(X[:1500], y[:1500])
    packed = small().fit(X[:1500], y[:1500])
    assert packed.model_.linear.nbytes < exact.model_.linear.nbytes / 3
    assert packed.score(X[1500:], y[1500:]) > exact.score(X[1500:], y[1500:]) - 0.01


def test_dense_rows_are_rows():
    X, y = classes()
    top, of_dense = small().fit(X, y).predict_topk(X, 3), small().fit(X.toarray(), y).predict_topk(X.toarray(), 3)
    np.testing.assert_array_equal(top.scores, of_dense.scores)


def test_early_stopping_says_how_long_each_repetition_took(tmp_path):
    X, y = classes()
    clf = small(early_stopping=True, max_iter=30, schedule="constant", n_iter_no_change=1).fit(X, y)
    training = clf.training_
    assert training.unit == "repetition"
    assert training.n_iter.shape == training.best_iter.shape == training.validation_score.shape == (6,)
    assert 2 <= training.n_iter.min() <= training.n_iter.max() < 30
    assert clf.n_iter_ == training.n_iter.max()
    assert training.counts() == {Status.EARLY_STOPPED: 6}
    np.testing.assert_array_equal(training.n_iter - training.best_iter, 1)
    assert ((training.validation_score > 0.5) & (training.validation_score <= 1)).all()
    assert clf.score(X, y) > 0.9
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model").training_
    for name in ("best_iter", "validation_score"):
        np.testing.assert_array_equal(loaded.figures[name], training.figures[name])


def test_settings_are_the_resolved_parameters():
    X, y = classes(K=7)
    settings = lt.Mach(n_buckets=64, n_repetitions=5, random_state=None).fit(X, y).training_.settings
    assert (settings["n_buckets"], settings["n_repetitions"], settings["link"]) == (7, 1, "softmax")
    assert json.loads(json.dumps(settings)) == settings
    assert isinstance(settings["seed"], int)


def test_progress_rises_to_one_and_an_interrupt_stops_the_fit(monkeypatch):
    from longtail.methods.mach import descent

    X, y = classes()
    seen = []
    monkeypatch.setattr(descent, "WORK_PER_CALL", 1e4)
    small(max_iter=1).fit(X, y, progress=seen.append)
    assert seen[-1] == 1.0
    assert len(seen) > 10
    assert seen == sorted(seen)

    def interrupt(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(max_iter=10**6, n_jobs=2).fit(X, y, progress=interrupt)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_buckets": 1}, "'n_buckets' parameter of Mach must be a whole number of at least 2"),
        ({"n_buckets": 65_537}, "'n_buckets' parameter of Mach must be at most 65,536"),
        ({"n_repetitions": 0}, "'n_repetitions' parameter"),
        (
            {"aggregate": "max"},
            "'aggregate' parameter of Mach must be one of 'geometric', 'mean', 'rate', 'median', 'min'",
        ),
        ({"learning_rate": 0}, "'learning_rate' parameter of Mach must be a number above 0"),
        ({"max_iter": 1.5}, "'max_iter' parameter"),
        ({"schedule": "cosine"}, "'schedule' parameter"),
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"lam": -1}, "'lam' parameter"),
        ({"lam": 0.5}, "lam 0.5 times the learning rate, 4 for the shortest rows, must be below 1"),
        ({"early_stopping": 1}, "'early_stopping' parameter"),
        ({"validation_fraction": 1}, "'validation_fraction' parameter of Mach must be a number above 0 and below 1"),
        ({"n_iter_no_change": 0}, "'n_iter_no_change' parameter"),
        ({"weights": "int4"}, "'weights' parameter of Mach must be one of 'float32', 'int8'"),
        ({"prune": -0.1}, "'prune' parameter"),
        ({"bias": -1}, "'bias' parameter"),
        ({"base": "svm"}, "'base' parameter of Mach must be None or a scikit-learn classifier .* Got 'svm' instead"),
        ({"warm_start": None}, "'warm_start' parameter"),
        ({"random_state": -1}, "'random_state' parameter of Mach must be None, a whole number from 0"),
        ({"random_state": "x"}, "'random_state' parameter"),
    ],
)
def test_wrong_parameters(params, message):
    with pytest.raises(InputError, match=message):
        lt.Mach(**params).fit(np.eye(3), [0, 1, 2])


# --- dense rows, and repetitions that are trained apart --------------------------------------------------------------


@pytest.mark.parametrize("several", [False, True])
def test_dense_rows_give_the_model_of_sparse_ones(several):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 15)).astype(np.float32)
    y = [[int(a), int(b)] for a, b in rng.integers(20, size=(200, 2))] if several else rng.integers(20, size=200)
    dense, sparse = (
        lt.Mach(n_buckets=6, n_repetitions=6, normalize=True).fit(rows, y) for rows in (X, sp.csr_array(X))
    )
    assert_same_model(dense.model_, sparse.model_)


def test_repetitions_trained_apart_and_joined_are_those_of_one_fit(tmp_path):
    X, y = classes(n=200, K=20)
    how = {"n_buckets": 10, "n_repetitions": 4, "early_stopping": True}
    parts = []
    for machine in range(3):
        lt.Mach(**how, first_repetition=4 * machine).fit(X, y).save(tmp_path / str(machine))
        parts.append(lt.load(tmp_path / str(machine)))
    joined, whole = lt.Mach.join(parts), lt.Mach(**{**how, "n_repetitions": 12}).fit(X, y)
    assert_same_model(joined.model_, whole.model_)
    assert joined.n_repetitions == 12
    np.testing.assert_array_equal(joined.training_.n_iter, whole.training_.n_iter)
    np.testing.assert_array_equal(joined.training_.validation_score, whole.training_.validation_score)
    np.testing.assert_array_equal(joined.predict(X), whole.predict(X))
    np.testing.assert_array_equal(joined.growth_.labels, whole.growth_.labels)
    other = lt.Mach(**how, first_repetition=4).fit(X, y[::-1])
    assert lt.Mach.join([parts[0], other]).growth_ is None  # of other rows, so neither is true of both
    joined.save(tmp_path / "whole")
    np.testing.assert_array_equal(lt.load(tmp_path / "whole").predict(X), whole.predict(X))


def test_repetitions_that_cannot_be_joined():
    X, y = classes(n=200, K=20)
    part = lt.Mach(n_buckets=10, n_repetitions=4).fit(X, y)
    with pytest.raises(InputError, match="some repetition is in several of the models; train each part with another"):
        lt.Mach.join([part, part])
    with pytest.raises(InputError, match="these differ in bias"):
        lt.Mach.join([part, lt.Mach(n_buckets=10, n_repetitions=4, first_repetition=4, bias=1.0).fit(X, y)])
    for nothing in ([], [lt.Mach()]):
        with pytest.raises(InputError, match="needs at least one fitted Mach"):
            lt.Mach.join(nothing)


def test_the_settings_of_the_paper():
    paper = lt.Mach.paper()
    assert (paper.n_buckets, paper.n_repetitions, paper.aggregate) == (32, 25, "mean")
    assert (paper.weights, paper.prune, paper.lam) == ("float32", 0.0, 0.0)
