"""Mach: repetitions as blocks, warm starts, multi-class and multi-label, warnings, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.errors import InputError
from longtail.models import HashedModel
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
    return lt.Mach(**{"n_buckets": 8, "n_repetitions": 6, "n_epochs": 8, "normalize": True, "n_jobs": 1, **more})


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
    clf = small(n_buckets=16, n_epochs=20).fit(X, Y)
    assert not clf.multiclass_
    assert clf.model_.linear.link == "sigmoid"
    assert clf.score(X, Y) > 0.9
    predicted = clf.predict(X)
    assert (predicted.multiply(Y).sum() / predicted.sum(), predicted.sum() > 0.3 * Y.sum()) > (0.8, True)


def test_repetitions_are_blocks():
    X, y = classes()
    clf = small(prune=0.1).fit(X, y)
    blocks = [small(prune=0.1).fit_block(X, as_indicator(y), r) for r in (3, 0, 5, 1, 4, 2)]
    joined = HashedModel.join([blocks[at] for at in (1, 3, 5, 0, 4, 2)])
    assert_same_model(joined, replace(clf.model_, label_names=None))
    np.testing.assert_array_equal(joined.predict_topk(X, 5).scores, clf.predict_topk(X, 5).scores)


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
    assert clf.n_iter_.tolist() == [8] * 6
    again = clf.model_
    assert_same_model(clf.fit(X, y).model_, again)
    small(n_repetitions=4).fit(X, y).save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model").set_params(n_repetitions=6, warm_start=True, n_jobs=1)
    assert_same_model(loaded.fit(X, y).model_, again)
    with pytest.raises(InputError, match="n_repetitions=3 is less than the 6 of the last fit"):
        clf.set_params(n_repetitions=3).fit(X, y)
    with pytest.raises(InputError, match="labels or features differ"):
        clf.set_params(n_repetitions=7).fit(X[:, :100], y)


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
    assert_same_model(
        lt.Mach(n_buckets=7).fit_block(X, as_indicator(y), 0), lt.Mach(n_buckets=512).fit_block(X, as_indicator(y), 0)
    )
    with pytest.raises(InputError, match="7 labels in 7 buckets need no hashing: repetition 0 is all"):
        lt.Mach(n_buckets=7).fit_block(X, as_indicator(y), 1)
    warm = lt.Mach(n_buckets=7, warm_start=True).fit(X, y)
    assert_same_model(warm.set_params(n_repetitions=9).fit(X, y).model_, warm.model_)


def test_labels_that_cannot_be_told_apart_are_counted_and_warned_of():
    X, y = classes()
    with pytest.warns(UserWarning, match=r"share their bucket in all 1 repetitions .* Mach\.plan"):
        clf = small(n_repetitions=1).fit(X, y)
    buckets = np.bincount(clf.model_.hashes.table[:, 0])
    assert clf.n_indistinguishable_ == (buckets * (buckets - 1) // 2).sum()


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


def test_early_stopping_says_how_long_each_repetition_took():
    X, y = classes()
    clf = small(early_stopping=True, n_epochs=30, schedule="constant", n_iter_no_change=1).fit(X, y)
    assert clf.n_iter_.shape == (6,)
    assert 2 <= clf.n_iter_.min() <= clf.n_iter_.max() < 30
    assert clf.score(X, y) > 0.9


def test_progress_counts_up_to_all_labels_and_an_interrupt_stops_the_fit(monkeypatch):
    from longtail.methods.mach import training

    X, y = classes()
    seen = []
    monkeypatch.setattr(training, "WORK_PER_CALL", 1e4)
    small(n_epochs=1).fit(X, y, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)
    assert len(seen) > 10
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(n_epochs=10**6, n_jobs=2).fit(X, y, progress=interrupt)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_buckets": 1}, "'n_buckets' parameter of Mach must be a whole number of at least 2"),
        ({"n_buckets": 65_537}, "'n_buckets' parameter of Mach must be at most 65,536"),
        ({"n_repetitions": 0}, "'n_repetitions' parameter"),
        ({"aggregate": "max"}, "'aggregate' parameter of Mach must be one of 'geometric', 'mean', 'median', 'min'"),
        ({"learning_rate": 0}, "'learning_rate' parameter of Mach must be a number above 0"),
        ({"n_epochs": 1.5}, "'n_epochs' parameter"),
        ({"schedule": "cosine"}, "'schedule' parameter"),
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"l2": -1}, "'l2' parameter"),
        ({"l2": 0.5}, "l2 0.5 times the learning rate, 4 for the shortest rows, must be below 1"),
        ({"early_stopping": 1}, "'early_stopping' parameter"),
        ({"validation_fraction": 1}, "'validation_fraction' parameter of Mach must be below 1"),
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


def test_a_repetition_that_there_is_not():
    X, y = classes()
    with pytest.raises(InputError, match="repetition must be a number from 0 to 5; got 6"):
        small().fit_block(X, as_indicator(y), 6)
