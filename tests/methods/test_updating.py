"""Models that grow: updates against fresh fits, and models that are merged."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import metrics
from longtail.errors import InputError
from longtail.methods import METHODS
from longtail.methods.one_vs_all.keeping import loss_sums
from longtail.methods.problem import Extras, OldModel
from tests.methods.one_vs_all import reference as ref
from tests.methods.one_vs_all.problems import text_like

N, L = 400, 30


@pytest.fixture(scope="module")
def whole():
    return text_like(3, n=N, L=L)


@pytest.fixture
def first(whole):
    """A model of the first rows and labels."""
    X, Y = whole
    return lt.OneVsAll(prune=0.0, n_jobs=1).fit(X[:380], Y[:380, :25])


def rows_equal(a, b, labels):
    return [(a[[label]] != b[[label]]).nnz == 0 for label in labels]


def test_nothing_changed_nothing_trained(first, whole, tmp_path):
    X, Y = whole
    W = first.model_.W.copy()
    first.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    order = np.random.default_rng(0).permutation(380)
    loaded.update(X[:380][order], Y[:380, :25][order])
    assert (loaded.model_.W != W).nnz == 0
    (entry,) = loaded.history_
    assert (entry["rows_added"], entry["rows_removed"], entry["labels_trained"]) == (0, 0, 0)
    loaded.save(tmp_path / "model")
    assert lt.load(tmp_path / "model").history_ == loaded.history_


@pytest.mark.parametrize(
    "params", [{}, {"loss": "logistic"}, {"solver": "newton", "start": "tree"}, {"normalize": True}]
)
def test_new_labels_are_trained_and_no_others(whole, params):
    X, Y = whole
    clf = lt.OneVsAll(prune=0.0, n_jobs=1, **params).fit(X, Y[:, :25])
    W = clf.model_.W.copy()
    clf.update(X, Y)
    fresh = lt.OneVsAll(prune=0.0, n_jobs=1, **params).fit(X, Y)
    assert clf.history_[-1]["labels_added"] == clf.history_[-1]["labels_trained"] == L - 25
    assert all(rows_equal(clf.model_.W, W, range(25)))
    if "start" not in params:  # labels have other parents in the tree of all labels
        assert all(rows_equal(clf.model_.W, fresh.model_.W, range(25, L)))
    np.testing.assert_allclose(clf.training_.objective, fresh.training_.objective, rtol=0.011)


def test_new_and_relabelled_rows_train_the_labels_that_they_touch(first, whole):
    X, Y = whole
    W = first.model_.W.copy()
    changed = Y[:382, :25].tolil()
    relabelled = int(np.flatnonzero(changed[[5]].toarray().ravel() == 0)[0])
    changed[5, relabelled] = 1
    changed = sp.csr_array(changed)
    first.update(X[:382], changed)
    fresh = lt.OneVsAll(prune=0.0, n_jobs=1).fit(X[:382], changed)
    same = np.array(rows_equal(first.model_.W, W, range(25)))
    own = np.flatnonzero(changed[380:].sum(axis=0))
    assert not same[own].any()
    assert not same[relabelled]
    assert same.any()
    assert first.history_[-1]["labels_trained"] == (~same).sum()
    assert (first.training_.gap <= 0.01).all()
    np.testing.assert_allclose(first.training_.objective, fresh.training_.objective, rtol=0.011)
    assert all(rows_equal(first.model_.W, fresh.model_.W, np.flatnonzero(~same)))


def test_the_record_of_a_label_that_stays_is_that_of_its_weights_on_all_rows(first, whole):
    X, Y = whole
    W = first.model_.W.copy()
    first.update(X[:390], Y[:390, :25])
    stayed = np.flatnonzero(rows_equal(first.model_.W, W, range(25)))
    A = ref.augmented(X[:390], 1.0)
    for label in stayed:
        y = np.where(Y[:390, [label]].toarray().ravel() > 0, 1.0, -1.0)
        P = ref.objective("squared_hinge", A, y, 1.0, W[[label]].toarray().ravel().astype(float))
        assert first.training_.objective[label] == pytest.approx(P, rel=1e-4)
        best = ref.optimum("squared_hinge", A, y, 1.0)
        assert (P - best) / P <= first.training_.gap[label] + 1e-6
    assert (first.training_.gap <= 0.01).all()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("bias", [0.0, 2.0])
def test_loss_sums_equal_their_twin(loss, bias, monkeypatch):
    monkeypatch.setattr("longtail.methods.one_vs_all.keeping.SCORES", 20)
    rng = np.random.default_rng(1)
    X = sp.csr_array(rng.normal(size=(11, 6)) * (rng.random((11, 6)) < 0.5), dtype=np.float32)
    W = sp.csr_array(rng.normal(size=(4, 6 + (bias > 0))), dtype=np.float32)
    expected = ref.loss_value(loss, -(ref.augmented(X, bias) @ W.toarray().T)).sum(axis=0)
    np.testing.assert_allclose(loss_sums(W, 6, bias, X, loss), expected, rtol=1e-5)


def test_retired_labels_are_never_predicted_and_come_back_in_their_column(first, whole, tmp_path):
    X, Y = whole
    X, Y = X[:380], Y[:380, :25]
    first.update(X, Y, retire=[2, 4])
    assert first.history_[-1]["labels_retired"] == 2
    assert first.model_.weights_per_label[[2, 4]].tolist() == [0, 0]
    first.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    assert not np.isin(loaded.predict_topk(X, 25).labels, [2, 4]).any()
    loaded.set_rules(deny=[0])
    assert not np.isin(loaded.predict_topk(X, 25).labels, [0, 2, 4]).any()
    without = Y.tolil()
    without[:, [2, 4, 6]] = 0
    loaded.update(X, sp.csr_array(without))
    assert loaded.growth_.retired.tolist() == [2, 4, 6]
    loaded.update(X, Y)
    assert loaded.growth_.retired.tolist() == []
    assert loaded.history_[-1]["labels_trained"] == 3
    fresh = lt.OneVsAll(prune=0.0, n_jobs=1).fit(X, Y)
    assert (loaded.model_.W != fresh.model_.W).nnz == 0
    assert np.isin(loaded.predict_topk(X, 25).labels, [2, 4, 6]).any()
    assert not np.isin(loaded.predict_topk(X, 25).labels, [0]).any()  # a rule of the user stays


def test_removed_rows_train_their_labels(first, whole):
    X, Y = whole
    W = first.model_.W.copy()
    left = np.flatnonzero(np.arange(380) != 7)
    first.update(X[left], Y[left, :25])
    same = np.array(rows_equal(first.model_.W, W, range(25)))
    np.testing.assert_array_equal(~same, Y[[7], :25].toarray().ravel() > 0)
    assert first.history_[-1]["rows_removed"] == 1


def test_only_the_new_rows_are_not_enough(first, whole):
    X, Y = whole
    with pytest.raises(InputError, match="update needs all rows, old and new"):
        first.update(X[350:], Y[350:, :25])


def test_a_model_that_remembers_no_rows_says_so(first, whole):
    first.growth_ = None
    with pytest.raises(InputError, match="does not know the rows"):
        first.update(whole[0], whole[1])


def test_unknown_names_cannot_be_retired(first, whole):
    with pytest.raises(InputError, match="'pear' is not among"):
        first.update(whole[0][:380], whole[1][:380, :25], retire=["pear"])


TEXTS = [f"{word} {number} and more words" for word in ("apple", "bridge", "cat", "drum") for number in range(8)]


def test_texts_keep_their_pipeline_and_names_their_columns(tmp_path):
    labels = [[text.split()[0]] for text in TEXTS]
    clf = lt.OneVsAll(n_jobs=1, calibrate="cross-fit:folds=2").fit(TEXTS[:24], labels[:24])
    clf.update(TEXTS, labels)
    assert clf.classes_.tolist() == ["apple", "bridge", "cat", "drum"]
    entry = clf.history_[-1]
    assert (entry["rows_added"], entry["labels_added"]) == (8, 1)
    assert entry["unknown_words"] == pytest.approx(8 / (32 * 5), abs=1e-3)  # "drum"
    assert clf.model_.calibrator.counts.tolist() == [8, 8, 8, 8]
    assert clf.predict_topk(TEXTS, 4).probabilities.shape == (32, 4)
    clf.save(tmp_path / "model")
    assert lt.load(tmp_path / "model").classes_.tolist() == clf.classes_.tolist()


# --- methods that train labels together ------------------------------------------------------------------------------

COUPLED = [name for name in METHODS if name != "one-vs-all"]
SMALL = {"mach": {"n_buckets": 16, "n_repetitions": 4}}  # fewer buckets than labels, so that labels are hashed


@pytest.fixture(scope="module")
def many():
    return text_like(5, n=1500, L=40)


def coupled(method, **params):
    return METHODS[method](n_jobs=1, random_state=0, **SMALL.get(method, {}), **params)


def top_labels(clf, X):
    return clf.predict_topk(X, 3).labels


@pytest.mark.parametrize("method", COUPLED)
def test_coupled_labels_continue_from_their_weights(method, many, tmp_path):
    """Rows, a new label and other labels of old rows: the model is as accurate as a new one, and known labels stay."""
    X, Y = many
    names = [f"label {j}" for j in range(40)]
    first, old = Y[:1400].tolil(), np.flatnonzero(Y[:1400, [7]].toarray())
    first[:, 7] = 0
    first[:30, 3] = 1
    columns = [j for j in range(40) if j != 7]
    clf = coupled(method).fit(X[:1400], sp.csr_array(first)[:, columns], label_names=[names[j] for j in columns])
    clf.save(tmp_path / "model")
    assert len(old)
    data = lt.Dataset(X, Y, np.array(names))
    clf.update(data)
    assert clf.classes_.tolist() == [*(names[j] for j in columns), "label 7"]
    entry = clf.history_[-1]
    assert (entry["rows_added"], entry["labels_added"], entry["labels_trained"]) == (100, 1, 40)
    moved = sp.csr_array(Y[:, [*columns, 7]])
    fresh = coupled(method).fit(X, moved)
    after, best = (metrics.precision_curve(moved, each.predict_topk(X, 3)) for each in (clf, fresh))
    assert (after > best - 0.02).all()
    assert (top_labels(clf, X[old]) == 39).any()
    loaded = lt.load(tmp_path / "model").set_params(n_jobs=2)
    loaded.update(data)
    np.testing.assert_array_equal(top_labels(loaded, X), top_labels(clf, X))
    loaded.save(tmp_path / "again")
    twice = lt.load(tmp_path / "again")
    twice.update(lt.Dataset(X[:1490], Y[:1490], np.array(names)), retire=["label 0"])
    assert not (twice.predict_topk(X, 39).labels == 0).any()
    assert twice.history_[-1]["rows_removed"] == 10


@pytest.mark.parametrize("method", [*COUPLED, "ensemble"])
def test_coupled_labels_stay_as_they_are_if_nothing_changed(method, whole):
    X, Y = whole
    make = lt.Ensemble([lt.OneVsAll(), lt.OneVsAll(C=3.0)], n_jobs=1) if method == "ensemble" else coupled(method)
    clf = make.fit(X, Y)
    scores = clf.decision_function(X)
    order = np.random.default_rng(0).permutation(N)
    clf.update(X[order], Y[order])
    assert clf.history_[-1]["labels_trained"] == 0
    np.testing.assert_array_equal(clf.decision_function(X), scores)


@pytest.mark.parametrize("method", COUPLED)
def test_an_update_visits_all_rows_less_often_than_a_fit(method, many):
    X, Y = many
    clf = coupled(method).fit(X[:1490], Y[:1490])
    changed, everything = np.arange(1500) >= 1490, np.ones(40, bool)
    old = OldModel(clf.model_, clf.training_, changed, everything, ~everything)
    job = clf._job(X, Y, np.arange(40), Extras(old=old))
    if method == "mach":
        visits = [len(job.problem.data.rows_of(epoch)) for epoch in range(5)]
        assert visits == [10, 10, 10, 1500, 1500]
    elif method == "memoir":
        assert job.problem.batches.n_batches * job.problem.batches.size < 2.2 * Y.nnz
        assert job.problem.first_batches.rate(0) == job.problem.batches.learning_rate
        assert job.problem.batches.rate(0) == pytest.approx(job.problem.batches.learning_rate / 3)
    else:
        record = clf.update(X, Y).training_
        assert record.pass_rows.tolist() == [int((np.diff(Y.indptr) > 0).sum())]  # rows without labels have no loss
        assert (clf.C_, clf.lam_) == (record.C[0], record.lam[0])


def test_mach_begins_again_if_its_buckets_cannot_be_used(many):
    X, Y = many
    one = Y.toarray().argmax(axis=1)
    identity = lt.Mach(n_buckets=39, n_jobs=1).fit(X, Y[:, :39])
    identity.update(X, Y)  # 40 labels no longer have a bucket each
    fresh = lt.Mach(n_buckets=39, n_jobs=1).fit(X, Y)
    np.testing.assert_array_equal(identity.decision_function(X[:50]), fresh.decision_function(X[:50]))
    softmax = coupled("mach").fit(X, [[label] for label in one])
    names = softmax.classes_
    softmax.update(X, [[label] if i else sorted({label, names[0], names[1]}) for i, label in enumerate(one)])
    assert softmax.model_.buckets.link == "sigmoid"


@pytest.mark.parametrize("n_buckets", [32, 64])
def test_mach_trains_only_buckets_that_are_touched(n_buckets, many):
    """Touched buckets get the weights of a fit, and all others keep theirs. 64 buckets are one for each label."""
    X, Y = many
    params = {"n_buckets": n_buckets, "n_repetitions": 3, "weights": "float32", "prune": 0.0, "n_jobs": 1}
    clf = lt.Mach(**params).fit(X, Y[:, :39])
    before = clf.model_.buckets
    clf.update(X, Y, retire=[5])
    left = Y.tolil()
    left[:, 5] = 0
    fresh = lt.Mach(**params).fit(X, sp.csr_array(left))
    hashes, n = clf.model_.hashes, clf.model_.hashes.n_buckets
    old, new, best = (each.matrix.toarray().reshape(X.shape[1] + 1, -1, each.n_buckets)
                      for each in (before, clf.model_.buckets, fresh.model_.buckets))  # fmt: skip
    for r in range(hashes.n_repetitions):
        touched = np.unique(hashes.table[[5, 39], r])
        others = np.setdiff1d(np.arange(n), touched)
        np.testing.assert_array_equal(new[:, r, touched], best[:, r, touched])
        np.testing.assert_array_equal(new[:, r, others], old[:, r, others])
    assert not (clf.predict_topk(X, 39).labels == 5).any()


def test_the_labels_of_mach_can_grow_while_each_has_a_bucket(many):
    X, Y = many
    clf = lt.Mach(n_buckets=64, n_jobs=1).fit(X, Y[:, :38])
    clf.update(X, Y)
    fresh = lt.Mach(n_buckets=64, n_jobs=1).fit(X, Y)
    assert clf.model_.hashes.n_buckets == 40
    assert clf.score(X, Y) > fresh.score(X, Y) - 0.02


# --- merging ---------------------------------------------------------------------------------------------------------


def test_merged_models_are_the_model_of_all_labels(whole, tmp_path):
    X, Y = whole
    names = np.array([f"label {j}" for j in range(L)])
    parts = []
    for number, columns in enumerate((slice(0, 12), slice(12, L))):
        clf = lt.OneVsAll(n_jobs=1).fit(X, Y[:, columns], label_names=names[columns])
        clf.save(tmp_path / f"part {number}")
        parts.append(clf if number else tmp_path / "part 0")
    merged = lt.merge(parts)
    together = lt.OneVsAll(n_jobs=1).fit(X, Y, label_names=names)
    assert (merged.model_.W != together.model_.W).nnz == 0
    np.testing.assert_array_equal(merged.training_.gap, together.training_.gap)
    merged.save(tmp_path / "merged")
    loaded = lt.load(tmp_path / "merged")
    assert loaded.classes_.tolist() == names.tolist()
    assert loaded.score(X, Y) == together.score(X, Y)
    evaluations = [metrics.evaluate(Y, each.predict_topk(X, 5)).as_dict() for each in (loaded, together)]
    assert evaluations[0] == evaluations[1]
    assert loaded.history_[-1]["what"] == "merge"
    loaded.update(lt.Dataset(X, Y, names))
    assert loaded.history_[-1]["labels_trained"] == 0


def test_models_that_do_not_fit_are_not_merged(whole):
    X, Y = whole
    one = lt.OneVsAll(n_jobs=1).fit(X, Y[:, :5])
    with pytest.raises(InputError, match="label 0 is in more than one"):
        lt.merge([one, one])
    with pytest.raises(InputError, match="at least two"):
        lt.merge([one])
    other = lt.OneVsAll(n_jobs=1, bias=0.0, normalize=True).fit(X, Y[:, 5:9], label_names=list("abcd"))
    with pytest.raises(InputError, match="differs from model 0 in its bias, normalize"):
        lt.merge([one, other])
    with pytest.raises(InputError, match="linear models, and Mach is none"):
        lt.merge([one, lt.Mach(n_jobs=1, max_iter=1, n_buckets=3, n_repetitions=2).fit(X, Y[:, 5:9])])


def test_models_of_different_rows_cannot_be_updated_after_a_merge(whole):
    X, Y = whole
    one = lt.OneVsAll(n_jobs=1).fit(X, Y[:, :2], label_names=["a", "b"])
    two = lt.OneVsAll(n_jobs=1).fit(X[:300], Y[:300, 2:4], label_names=["c", "d"])
    merged = lt.merge([one, two])
    assert merged.growth_ is None
    with pytest.raises(InputError, match="made of other models"):
        merged.update(X, Y)
