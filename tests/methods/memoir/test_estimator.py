"""Memoir as a user meets it: presets, threads, several labels, held-out rows, what is measured and kept."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import metrics
from longtail.check import canonical_csr
from longtail.errors import InputError, ModelError
from longtail.methods.memoir.presets import DEFAULT, PAPER, settings_of
from longtail.methods.memoir.report import DELTAS, OracleReport
from longtail.methods.memoir.training import schedule_of
from tests.methods.memoir.problems import classes_problem, one_hot
from tests.store.forge import Forgery

ORACLES = ("exact", "sw-graph", "simple-lsh")


def bytes_of(clf):
    W = clf.model_.W
    return W.data.tobytes(), W.indices.tobytes(), W.indptr.tobytes()


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("how", [{}, {"penalty": "l1", "lam": 1e-3}, {"preset": "paper"}], ids=str)
def test_threads_do_not_change_a_byte_and_seeds_do(oracle, how):
    X, y = classes_problem(0, n=500, d=60, C=150)
    fitted = [lt.Memoir(oracle=oracle, n_jobs=n_jobs, **how).fit(X, y) for n_jobs in (1, 2, 4)]
    assert bytes_of(fitted[0]) == bytes_of(fitted[1]) == bytes_of(fitted[2])
    assert fitted[0].oracle_report_ == fitted[1].oracle_report_ == fitted[2].oracle_report_
    assert bytes_of(lt.Memoir(oracle=oracle, random_state=1, **how).fit(X, y)) != bytes_of(fitted[0])


@pytest.mark.parametrize("oracle", ORACLES)
def test_every_oracle_learns(oracle):
    X, y = classes_problem(1, n=900, d=80, C=200)
    train, test = np.arange(600), np.arange(600, 900)
    Y = one_hot(y, 200)
    clf, peer = (method.fit(X[train], Y[train]) for method in (lt.Memoir(oracle=oracle), lt.OneVsAll()))
    assert clf.score(X[test], Y[test]) > peer.score(X[test], Y[test]) - 0.05 > 0.5
    assert clf.n_iter_ == int(np.ceil(6 * 600 / 64))


def test_the_settings_of_the_paper():
    paper = lt.Memoir(preset="paper")
    assert settings_of(paper) == PAPER
    assert settings_of(lt.Memoir("l1", preset="paper")).lam == 1e-6
    schedule = schedule_of(settings_of(paper), paper.eta_step, 200_000, 12_294)
    assert (schedule.batch_size, schedule.n_iter) == (11_088, 25)  # 100 sqrt(C), and T of LSHTC1
    assert schedule.eta(0) == pytest.approx(0.1 / 1.02)
    X, y = classes_problem(2, n=300, d=40, C=20)
    clf = paper.fit(X, y)
    assert (clf.n_iter_, clf.model_.bias) == (25, 0.0)
    assert np.linalg.norm(clf.model_.W.data) <= 1 + 1e-5  # on the ball of radius 1 / sqrt(lam)


def test_a_parameter_that_is_given_wins_over_the_preset():
    assert settings_of(lt.Memoir()) == DEFAULT
    assert settings_of(lt.Memoir(preset="paper", passes=2)).max_iter == 0
    mixed = settings_of(lt.Memoir(preset="paper", lam=0.5, bias=1.0))
    assert (mixed.lam, mixed.bias, mixed.eta0) == (0.5, 1.0, PAPER.eta0)


def test_l1_makes_smaller_models_as_lam_grows():
    X, y = classes_problem(4, n=400, d=80, C=30)
    sizes = [lt.Memoir("l1", lam=lam, prune=0).fit(X, y).model_.W.nnz for lam in (0, 1e-3, 1e-2)]
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_prune_cuts_small_weights_and_no_others():
    X, y = classes_problem(4)
    whole, cut = (lt.Memoir(prune=prune).fit(X, y).model_.W.toarray() for prune in (0.0, 0.2))
    np.testing.assert_array_equal(cut, np.where(np.abs(whole) < 0.2, 0, whole))


def test_rows_with_several_labels_are_learned_once_per_label():
    rng = np.random.default_rng(0)
    Y = (rng.random((300, 12)) < 0.2).astype(np.int32)
    Y[:5] = 0  # rows without labels take no part
    X = canonical_csr(
        sp.csr_array((Y @ rng.normal(size=(12, 30)) + 0.1 * rng.normal(size=(300, 30))).astype(np.float32))
    )
    clf = lt.Memoir(normalize=True).fit(X, sp.csr_array(Y))
    assert not clf.multiclass_
    assert clf.n_iter_ == int(np.ceil(6 * Y.sum() / 64))
    assert metrics.precision_at_k(sp.csr_array(Y[5:]), clf.predict_topk(X[5:], 1), 1) > 0.9


@pytest.mark.parametrize("y", [[["a"], ["a"], []], [[], [], ["b"]], [["a", "b"], ["a", "b"], ["a", "b"]]])
@pytest.mark.parametrize("oracle", ORACLES)
def test_problems_with_nothing_to_tell_apart_give_a_model(y, oracle):
    clf = lt.Memoir(oracle=oracle).fit(np.eye(3), y)
    assert clf.predict_topk(np.eye(3), 1).labels.shape == (3, 1)
    assert np.isfinite(clf.model_.W.data).all()


def test_the_unit_of_the_features_does_not_matter():
    X, y = classes_problem(6, n=200, d=30, C=10)
    plain, scaled = lt.Memoir(lam=1e-3).fit(X, y), lt.Memoir(lam=1e-3).fit(sp.csr_array(1024 * X), y)
    np.testing.assert_allclose(
        scaled.model_.W.toarray()[:, :30] * 1024, plain.model_.W.toarray()[:, :30], rtol=2e-3, atol=1e-4
    )
    np.testing.assert_array_equal(plain.predict(X), scaled.predict(1024 * X))


# --- held-out rows ---------------------------------------------------------------------------------------------------


def test_training_stops_when_held_out_rows_bring_nothing_new_and_keeps_the_best():
    X, y = classes_problem(7, n=400, d=30, C=20)
    clf = lt.Memoir(validation=0.25, patience=3, passes=200, schedule="inverse").fit(X, y)
    scores = clf.validation_scores_
    assert len(scores) - 1 - int(np.argmax(scores)) == 3
    assert clf.n_iter_ < 200 * 300 / 64
    held = np.zeros(400, bool)
    draw = np.random.RandomState(0)
    draw.randint(2**31 - 1), draw.randint(2**31 - 1)
    held[draw.permutation(400)[:100]] = True
    top = clf.predict_topk(X[held], 1)
    assert metrics.maf1(one_hot(y[held], 20), top) == pytest.approx(max(scores))


def test_without_held_out_rows_all_are_learned():
    X, y = classes_problem(7, n=400, d=30, C=20)
    clf = lt.Memoir(passes=3).fit(X, y)
    assert clf.validation_scores_ == []
    assert clf.n_iter_ == int(np.ceil(3 * 400 / 64))


# --- what is measured ------------------------------------------------------------------------------------------------


def test_an_exact_oracle_has_perfect_recall_and_a_group_of_four_about_a_quarter():
    X, y = classes_problem(8, n=3000, d=60, C=300)
    exact, grouped = lt.Memoir(n_groups=1).fit(X, y).oracle_report_, lt.Memoir(n_groups=4).fit(X, y).oracle_report_
    assert (exact.oracle, exact.n_queries, exact.recall, exact.excess) == (
        "exact",
        256,
        1.0,
        pytest.approx(0, abs=1e-5),
    )
    assert 0.12 < grouped.recall < 0.42
    assert list(grouped.epsilon) == list(DELTAS)
    assert sorted(grouped.epsilon.values()) == list(grouped.epsilon.values())


def test_epsilon_is_what_a_share_delta_exceeds():
    excess = np.arange(1, 101) / 100
    report = OracleReport.of("exact", excess)
    for delta in DELTAS:
        assert (excess > report.epsilon[delta]).mean() <= delta
        assert (excess > report.epsilon[delta] - 0.02).mean() >= delta
    assert (report.recall, report.excess) == (0.0, pytest.approx(0.505))


def test_the_report_travels_with_the_model(tmp_path):
    X, y = classes_problem(9)
    clf = lt.Memoir(oracle="sw-graph").fit(X, y)
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    assert loaded.oracle_report_ == clf.oracle_report_
    assert loaded.n_iter_ == clf.n_iter_


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ([], "member 'measured' is missing or of the wrong type"),
        ({"oracle_report": {}}, "figures in 'measured' that Memoir did not write"),
        ({"oracle_report": {"oracle": 3}, "n_iter": 1}, "did not write"),
        ({"oracle_report": [1], "n_iter": 1}, "did not write"),
        ({"n_iter": 1}, "did not write: 'oracle_report'"),
    ],
)
def test_figures_that_training_did_not_write_are_refused(tmp_path, measured, message):
    X, y = classes_problem(9)
    lt.Memoir().fit(X, y).save(tmp_path / "model")
    forgery = Forgery(tmp_path / "model")
    forgery.meta["measured"] = measured
    forgery.seal()
    with pytest.raises(ModelError, match=message):
        lt.load(tmp_path / "model")


@pytest.mark.parametrize("number", [10**400, "x", None])
def test_hostile_numbers_in_the_report_are_refused(tmp_path, number):
    X, y = classes_problem(9)
    lt.Memoir().fit(X, y).save(tmp_path / "model")
    forgery = Forgery(tmp_path / "model")
    forgery.meta["measured"]["oracle_report"]["recall"] = number
    forgery.seal()
    with pytest.raises(ModelError, match="did not write"):
        lt.load(tmp_path / "model")


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"penalty": "l3"}, "The 'penalty' parameter of Memoir must be one of 'l2', 'l1'"),
        ({"oracle": "delphi"}, "The 'oracle' parameter"),
        ({"preset": "fast"}, "The 'preset' parameter"),
        ({"schedule": "cosine"}, "The 'schedule' parameter"),
        ({"lam": -1}, "The 'lam' parameter of Memoir must be a number of at least 0"),
        ({"eta0": 0}, "The 'eta0' parameter of Memoir must be a number above 0"),
        ({"n_groups": 0}, "The 'n_groups' parameter"),
        ({"n_bits": 100}, "must be a multiple of 64. Got 100"),
        ({"validation": 1.0}, "must be below 1"),
        ({"random_state": "x"}, "'random_state' parameter of Memoir"),
        ({"project": "yes"}, "The 'project' parameter"),
        ({"beam": 0}, "The 'beam' parameter"),
        ({"lam": 3.0, "eta0": 0.5}, "lam 3 times eta0 0.5 must be below 1"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_parameters_that_cannot_be_used(params, message):
    with pytest.raises(InputError, match=message):
        lt.Memoir(**params).fit(np.eye(2), [0, 1])


def test_progress_counts_batches():
    calls = []
    X, y = classes_problem(9, n=300)
    clf = lt.Memoir().fit(X, y, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (0, clf.n_iter_)
    assert calls[-1] == (clf.n_iter_, clf.n_iter_)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
