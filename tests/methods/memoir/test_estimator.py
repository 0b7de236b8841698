"""The estimator: the paper's settings, threads, several labels, early stopping, and the record of training."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import metrics
from longtail.errors import InputError
from longtail.matrix import canonical_csr
from longtail.methods.memoir.oracle_recall import DELTAS, figures_of
from longtail.methods.memoir.parameters import PAPER as OF_PAPER
from longtail.methods.memoir.parameters import resolve
from longtail.methods.memoir.problem import MemoirProblem, batches_of
from longtail.methods.problem import Part
from longtail.parallel import Work
from longtail.training import Status
from tests.methods.memoir.problems import classes_problem, one_hot

ORACLES = ("exact", "sw-graph", "simple-lsh")


def assert_same_matrix(A, B):
    assert A.shape == B.shape
    for one, other in ((A.data, B.data), (A.indices, B.indices), (A.indptr, B.indptr)):
        assert one.tobytes() == other.tobytes()


# Batches as in the paper, which span several searches, with average; the rest of the paper's settings.
PAPER = {**OF_PAPER, "n_batches": 3, "refresh": 100, "average": True}


def bytes_of(clf):
    W = clf.model_.all_weights()
    return W.data.tobytes(), W.indices.tobytes(), W.indptr.tobytes()


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("how", [{}, {"penalty": "l1", "lam": 1e-3}, PAPER], ids=str)
def test_threads_do_not_change_a_byte_and_seeds_do(oracle, how):
    X, y = classes_problem(0, n=500, d=60, C=150)
    fitted = [lt.Memoir(oracle=oracle, n_jobs=n_jobs, **how).fit(X, y) for n_jobs in (1, 2, 4)]
    assert bytes_of(fitted[0]) == bytes_of(fitted[1]) == bytes_of(fitted[2])
    for other in fitted[1:]:
        assert set(other.training_.figures) == set(fitted[0].training_.figures)
        for name, values in fitted[0].training_.figures.items():
            np.testing.assert_array_equal(other.training_.figures[name], values)
    assert bytes_of(lt.Memoir(oracle=oracle, random_state=1, **how).fit(X, y)) != bytes_of(fitted[0])


@pytest.mark.parametrize("how", [{}, {"early_stopping": True, "schedule": "inverse", "max_iter": 30}], ids=str)
def test_a_part_can_be_written_to_disk_and_read_by_another_process(tmp_path, how):
    X, y = classes_problem(0, n=300, d=40, C=20)
    Y = one_hot(y, 20)
    clf = lt.Memoir(n_jobs=2, **how).fit(X, Y)
    problem = MemoirProblem(X, Y, resolve(clf), seed=0)
    (block,) = problem.blocks()
    part = problem.solve(block, Work(1))

    def through_a_file(array):
        np.save(tmp_path / "array.npy", array, allow_pickle=False)
        return np.load(tmp_path / "array.npy", allow_pickle=False)

    read = Part(
        part.block,
        through_a_file(part.items),
        {name: through_a_file(array) for name, array in part.arrays.items()},
        through_a_file(part.status),
        through_a_file(part.n_iter),
        {name: through_a_file(array) for name, array in part.figures.items()},
    )
    stack = MemoirProblem(X, Y, resolve(clf), seed=0).stack()
    stack.add(read)
    assert_same_matrix(stack.model().W, clf.model_.all_weights())
    again = problem.solve(block, Work(1))  # nothing of the problem was changed by the first solve
    assert [array.tobytes() for array in again.arrays.values()] == [array.tobytes() for array in part.arrays.values()]
    assert problem.settings == clf.training_.settings


@pytest.mark.parametrize("oracle", ORACLES)
def test_every_oracle_learns(oracle):
    X, y = classes_problem(1, n=900, d=80, C=200)
    train, test = np.arange(600), np.arange(600, 900)
    Y = one_hot(y, 200)
    clf, peer = (method.fit(X[train], Y[train]) for method in (lt.Memoir(oracle=oracle), lt.OneVsAll()))
    assert clf.score(X[test], Y[test]) > peer.score(X[test], Y[test]) - 0.05 > 0.5
    assert clf.n_iter_ == 6
    assert clf.training_.n_batches.tolist() == [int(np.ceil(6 * 600 / 64))]
    assert clf.training_.counts() == {Status.COMPLETED: 1}


def test_the_settings_of_the_paper():
    values = resolve(lt.Memoir.paper())
    assert (values.lam, values.rho, values.learning_rate, values.schedule) == (1.0, 1.0, 0.1, "inverse:step=0.02")
    assert (values.refresh, values.project, values.bias, values.n_groups) == (1, True, 0.0, 1)
    assert (values.truncate_every, values.truncate_limit, values.prune) == (1, 0.1, 0.0)
    assert values.oracle == "sw-graph:links=10,beam=10,drift=0.0,likely=no"
    batches = batches_of(values, 200_000, 12_294)
    assert (batches.size, batches.n_batches) == (11_088, 25)  # 100 sqrt(C), and T of LSHTC1
    assert batches.rate(0) == pytest.approx(0.1 / 1.02)
    assert resolve(lt.Memoir.paper(penalty="l1")).lam == 1e-6
    lsh = resolve(lt.Memoir.paper(oracle="simple-lsh"))
    assert lsh.oracle == "simple-lsh:bits=64,candidates=16,tables=4,augment=yes,likely=no"
    X, y = classes_problem(2, n=100, d=40, C=20)
    clf = lt.Memoir.paper(oracle="exact").fit(X, y)
    assert (clf.training_.n_batches.tolist(), clf.model_.bias) == ([25], 0.0)
    assert clf.n_iter_ == 25  # a batch has all 100 rows
    assert np.linalg.norm(clf.model_.all_weights().data) <= 1 + 1e-5  # on the ball of radius 1 / sqrt(lam)


def test_a_parameter_that_is_given_wins():
    values = resolve(lt.Memoir())
    assert (values.lam, values.learning_rate, values.batch_size, values.refresh) == (0.0, 0.5, "64", 0)
    assert resolve(lt.Memoir("l1")).prune == 0.1
    assert resolve(lt.Memoir(batch_size=np.int64(7))).batch_size == "7"
    passes = resolve(lt.Memoir.paper(max_iter=2))
    assert (passes.max_iter, passes.n_batches) == (2, 0)
    mixed = resolve(lt.Memoir.paper(penalty="l1", lam=0.5, bias=1, max_iter=2, n_batches=7))
    assert (mixed.lam, mixed.bias, mixed.learning_rate, mixed.n_batches) == (0.5, 1.0, 0.1, 7)
    scan = resolve(lt.Memoir.paper(oracle="simple-lsh:tables=0,bits=128"))
    assert scan.oracle == "simple-lsh:bits=128,candidates=16,tables=0,augment=yes,likely=no"


def test_the_likely_rivals_are_what_the_bare_oracles_of_the_paper_lack():
    X, y = classes_problem(2, n=600, d=80, C=300)
    recall = {}
    for likely in ("yes", "no"):
        clf = lt.Memoir(oracle=f"simple-lsh:candidates=4,likely={likely}", n_groups=1).fit(X, y)
        recall[likely] = float(clf.training_.recall[0])
    assert recall["no"] < 0.7 * recall["yes"]


def test_rho_is_the_margin_that_ends_the_steps():
    """max(0, 1 - m / rho) with rho scales the problem: without penalty, W / rho is that of rho = 1 and eta / rho^2."""
    X, y = classes_problem(4, n=200, d=30, C=12)
    plain = lt.Memoir(n_groups=1, bias=0, learning_rate=0.5).fit(X, y).model_.all_weights().toarray()
    scaled = lt.Memoir(n_groups=1, bias=0, learning_rate=2.0, rho=2.0).fit(X, y).model_.all_weights().toarray()
    np.testing.assert_allclose(scaled, 2 * plain, rtol=1e-4, atol=1e-5)


def test_the_average_of_the_weights_is_another_model_that_early_stopping_scores_too():
    X, y = classes_problem(4, n=200, d=30, C=12)
    last, mean = (lt.Memoir(average=average, schedule="inverse").fit(X, y) for average in (None, True))
    assert bytes_of(last) != bytes_of(mean)
    assert mean.score(X, y) > 0.8
    stopped = lt.Memoir(average=True, early_stopping=True, max_iter=4).fit(X, y)
    assert len(stopped.training_.validation_scores) >= 4


def test_the_settings_of_the_record_are_resolved_json_values():
    X, y = classes_problem(2, n=300, d=40, C=130)
    settings = lt.Memoir(oracle="sw-graph", random_state=np.int64(5)).fit(X, y).training_.settings
    assert settings == {
        "penalty": "l2",
        "oracle": "sw-graph:links=8,beam=4,drift=1.0,likely=yes",
        "lam": 0.0,
        "rho": 1.0,
        "learning_rate": 0.5,
        "schedule": "linear",
        "batch_size": 64,
        "refresh": 0,
        "max_iter": 6,
        "n_batches": 29,
        "project": False,
        "average": False,
        "bias": 0.3,
        "n_groups": 2,  # of at least 64 classes
        "prune": 0.0,
        "truncate_every": 64,
        "truncate_limit": 1.0,
        "early_stopping": False,
        "validation_fraction": 0.1,
        "n_iter_no_change": 5,
        "seed": 5,
    }
    assert json.loads(json.dumps(settings)) == settings
    drawn = lt.Memoir(random_state=None).fit(X, y)
    again = lt.Memoir(random_state=drawn.training_.settings["seed"]).fit(X, y)
    assert bytes_of(drawn) == bytes_of(again)


def test_l1_makes_smaller_models_as_lam_grows():
    X, y = classes_problem(4, n=400, d=80, C=30)
    sizes = [lt.Memoir("l1", lam=lam, prune=0).fit(X, y).model_.all_weights().nnz for lam in (0, 1e-3, 1e-2)]
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_prune_cuts_small_weights_and_no_others():
    X, y = classes_problem(4)
    whole, cut = (lt.Memoir(prune=prune).fit(X, y).model_.all_weights().toarray() for prune in (0.0, 0.2))
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
    assert clf.training_.n_batches.tolist() == [int(np.ceil(6 * Y.sum() / 64))]
    assert clf.score(X[5:], sp.csr_array(Y[5:])) > 0.9


@pytest.mark.parametrize("y", [[["a"], ["a"], []], [[], [], ["b"]], [["a", "b"], ["a", "b"], ["a", "b"]]])
@pytest.mark.parametrize("oracle", ORACLES)
def test_problems_with_nothing_to_tell_apart_give_a_model(y, oracle):
    clf = lt.Memoir(oracle=oracle).fit(np.eye(3), y)
    assert clf.predict_topk(np.eye(3), 1).labels.shape == (3, 1)
    assert np.isfinite(clf.model_.all_weights().data).all()


def test_the_unit_of_the_features_does_not_matter():
    X, y = classes_problem(6, n=200, d=30, C=10)
    plain, scaled = lt.Memoir(lam=1e-3).fit(X, y), lt.Memoir(lam=1e-3).fit(sp.csr_array(1024 * X), y)
    np.testing.assert_allclose(
        scaled.model_.all_weights().toarray()[:, :30] * 1024,
        plain.model_.all_weights().toarray()[:, :30],
        rtol=2e-3,
        atol=1e-4,
    )
    np.testing.assert_array_equal(plain.predict(X), scaled.predict(1024 * X))


# --- early stopping --------------------------------------------------------------------------------------------------


def test_training_stops_when_held_out_rows_bring_nothing_new_and_keeps_the_best():
    X, y = classes_problem(8, n=400, d=8, C=20)
    clf = lt.Memoir(
        early_stopping=True, validation_fraction=0.25, n_iter_no_change=3, max_iter=200, schedule="inverse"
    ).fit(X, y)
    scores = clf.training_.validation_scores
    assert len(scores) - 1 - int(np.argmax(scores)) == 3
    assert scores[-1] < scores.max()  # the last weights are not the best
    assert clf.training_.counts() == {Status.EARLY_STOPPED: 1}
    assert clf.n_iter_ < 200
    assert clf.training_.n_batches[0] == len(scores) * round(300 / 64)
    is_held_out = np.zeros(400, bool)
    random = np.random.RandomState(0)
    random.randint(2**31 - 1), random.randint(2**31 - 1)
    is_held_out[random.permutation(400)[:100]] = True
    top = clf.predict_topk(X[is_held_out], 1)
    assert metrics.maf1(one_hot(y[is_held_out], 20), top) == pytest.approx(max(scores))


def test_all_passes_are_done_while_held_out_rows_gain():
    X, y = classes_problem(7, n=400, d=30, C=20)
    clf = lt.Memoir(early_stopping=True, max_iter=3).fit(X, y)
    assert len(clf.training_.validation_scores) >= 3
    assert clf.n_iter_ == 3
    assert clf.training_.counts() == {Status.COMPLETED: 1}


def test_without_held_out_rows_all_are_learned():
    X, y = classes_problem(7, n=400, d=30, C=20)
    clf = lt.Memoir(max_iter=3).fit(X, y)
    assert clf.training_.validation_scores.size == 0
    assert clf.n_iter_ == 3
    assert clf.training_.n_batches.tolist() == [int(np.ceil(3 * 400 / 64))]
    few = lt.Memoir(max_iter=3, early_stopping=True, validation_fraction=0.001).fit(X, y)  # a tenth of a row
    assert few.training_.settings["early_stopping"] is False
    assert bytes_of(few) == bytes_of(clf)


# --- recall of the oracle --------------------------------------------------------------------------------------------


def test_an_exact_oracle_has_perfect_recall_and_a_group_of_four_about_a_quarter():
    X, y = classes_problem(8, n=3000, d=60, C=300)
    exact, grouped = lt.Memoir(n_groups=1).fit(X, y).training_, lt.Memoir(n_groups=4).fit(X, y).training_
    assert exact.n_queries.tolist() == [256]
    assert exact.recall.tolist() == [1.0]
    assert exact.excess[0] == pytest.approx(0, abs=1e-5)
    assert 0.12 < grouped.recall[0] < 0.42
    assert grouped.delta.tolist() == list(DELTAS)
    assert (np.diff(grouped.epsilon) >= 0).all()
    assert grouped.epsilon[-1] > 0


def test_epsilon_is_what_a_share_delta_exceeds():
    excess = np.arange(1, 101) / 100
    figures = figures_of(excess)
    for delta, epsilon in zip(figures["delta"], figures["epsilon"], strict=True):
        assert (excess > epsilon).mean() <= delta
        assert (excess > epsilon - 0.02).mean() >= delta
    assert (figures["recall"][0], figures["excess"][0]) == (0.0, pytest.approx(0.505))
    nothing = figures_of(np.empty(0))
    assert (nothing["recall"][0], nothing["excess"][0], nothing["n_queries"][0]) == (1.0, 0.0, 0)


def test_the_record_travels_with_the_model(tmp_path):
    X, y = classes_problem(9)
    clf = lt.Memoir(oracle="sw-graph", early_stopping=True).fit(X, y)
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    assert loaded.n_iter_ == clf.n_iter_
    assert loaded.training_.settings == clf.training_.settings
    assert set(loaded.training_.figures) == set(clf.training_.figures)
    for name, values in clf.training_.figures.items():
        np.testing.assert_array_equal(loaded.training_.figures[name], values)


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"penalty": "l3"}, "The 'penalty' parameter of Memoir must be one of 'l2', 'l1'"),
        ({"oracle": "delphi"}, "The 'oracle' parameter"),
        ({"rho": 0}, "The 'rho' parameter of Memoir must be a number above 0"),
        ({"refresh": 0}, "The 'refresh' parameter of Memoir must be a whole number of at least 1"),
        ({"average": 1}, "The 'average' parameter"),
        ({"truncate_limit": -1}, "The 'truncate_limit' parameter"),
        ({"batch_size": "root:factor=0"}, "the option 'factor' must be above 0"),
        ({"batch_size": "cube"}, "The 'batch_size' parameter of Memoir must be one of 'root'"),
        ({"schedule": "cosine"}, "The 'schedule' parameter"),
        ({"schedule": "inverse:step=-1"}, "the option 'step' must be at least 0"),
        ({"lam": -1}, "The 'lam' parameter of Memoir must be a number of at least 0"),
        ({"learning_rate": 0}, "The 'learning_rate' parameter of Memoir must be a number above 0"),
        ({"max_iter": 0}, "The 'max_iter' parameter of Memoir must be a whole number of at least 1"),
        ({"max_iter": 1.5}, "The 'max_iter' parameter of Memoir must be a whole number"),
        ({"n_batches": 0}, "The 'n_batches' parameter"),
        ({"batch_size": 0}, "The 'batch_size' parameter"),
        ({"n_groups": 0}, "The 'n_groups' parameter"),
        ({"oracle": "simple-lsh:bits=100"}, "must be a multiple of 64 up to 32768. Got 100"),
        ({"oracle": "sw-graph:beam=0"}, "the option 'beam' must be at least 1"),
        ({"early_stopping": 0.1}, "The 'early_stopping' parameter"),
        ({"validation_fraction": 1.0}, "The 'validation_fraction' parameter"),
        ({"n_iter_no_change": 0}, "The 'n_iter_no_change' parameter"),
        ({"random_state": "x"}, "'random_state' parameter of Memoir"),
        ({"project": "yes"}, "The 'project' parameter"),
        ({"lam": 3.0, "learning_rate": 0.5}, "lam 3 times learning_rate 0.5 must be below 1"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_parameters_that_cannot_be_used(params, message):
    with pytest.raises(InputError, match=message):
        lt.Memoir(**params).fit("not read before the parameters are checked")


def test_progress_is_the_share_of_the_batches():
    shares = []
    X, y = classes_problem(9, n=300)
    lt.Memoir().fit(X, y, progress=shares.append)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert len(set(shares)) == int(np.ceil(6 * 300 / 64)) + 1
