"""Algorithms 1 and 2: equal to their eager twins, and on the way to the optimum."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn.svm import LinearSVC

import longtail as lt
from longtail.methods.memoir.sgd import Pairs, Penalty, Schedule, batches, train
from tests.methods.memoir import reference
from tests.methods.memoir.problems import classes_problem, one_hot, oracle_of

PENALTIES = {
    "none": Penalty(0.0, l1=False, project=False),
    "l2": Penalty(0.05, l1=False, project=False),
    "l2 on a ball": Penalty(1.0, l1=False, project=True),
    "l1": Penalty(0.01, l1=True, project=False),
    "l1, put off": Penalty(0.01, l1=True, project=False, every=7),
}


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("oracle", ["exact", "sw-graph", "simple-lsh"])
def test_lazy_scaling_and_truncation_equal_the_eager_algorithm(penalty, oracle):
    X, y = classes_problem(3, n=80, d=25, C=8)
    oracle = oracle_of(oracle, X, one_hot(y, 8))
    schedule = Schedule(0.3, 0.02, 20, 60)
    pairs = Pairs(oracle.X, np.arange(80), y)
    steps = [(chosen, rivals.copy()) for chosen, rivals in train(oracle, pairs, schedule, penalty, seed=1)]
    assert len(steps) == 60
    W = reference.train_eagerly(X.toarray().astype(np.float64), pairs.rows, y, schedule, penalty, steps)
    np.testing.assert_allclose(oracle.weights.to_csr().toarray(), W, rtol=1e-3, atol=1e-5 * np.abs(W).max())
    reference.check_store(oracle.weights.store)
    if penalty.project:
        assert oracle.weights.norm == pytest.approx(1.0)
        assert oracle.weights.scale != 1.0  # the shrinking is in one number
    if penalty.l1:
        assert oracle.weights.nnz < 0.9 * 8 * 25


def test_stored_values_are_multiplied_out_before_they_overflow():
    X, y = classes_problem(3, n=80, d=25, C=8)
    oracle = oracle_of("simple-lsh", X, one_hot(y, 8))
    schedule, penalty = Schedule(0.5, 0.0, 80, 150), Penalty(1.9, l1=False, project=True)
    pairs = Pairs(oracle.X, np.arange(80), y)
    scales = [oracle.weights.scale for _ in train(oracle, pairs, schedule, penalty, seed=1)]
    assert sum(later > earlier for earlier, later in pairwise(scales)) > 2
    assert oracle.weights.norm <= 1 / np.sqrt(1.9) * (1 + 1e-6)
    assert np.isfinite(oracle.weights.to_csr().data).all()


def test_batches_are_shuffled_passes():
    source = batches(10, 4, seed=0)
    drawn = np.concatenate([next(source) for _ in range(10)])
    for start in range(0, 40, 10):
        assert sorted(drawn[start : start + 10].tolist()) == list(range(10))
    assert drawn[:10].tolist() != drawn[10:20].tolist()


def test_rates():
    linear, inverse = Schedule(0.5, None, 1, 10), Schedule(0.1, 0.02, 1, 10)
    assert [linear.eta(t) for t in (0, 5)] == [0.5, 0.25]
    assert linear.eta(9) == pytest.approx(0.05)
    assert inverse.eta(0) == pytest.approx(0.1 / 1.02)  # t counts from 1 in the paper
    assert inverse.eta(24) == pytest.approx(0.1 / 1.5)


def crammer_singer(X, y, C):
    """The optimum by LIBLINEAR, which minimises 1/2 |W|^2 + C sum of losses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = LinearSVC(multi_class="crammer_singer", C=C, fit_intercept=False, tol=1e-6, max_iter=100_000)
        return clf.fit(X, y).coef_


@pytest.mark.parametrize("seed", [0, 1])
def test_the_objective_approaches_the_optimum(seed):
    """lam = 1 / (C n) makes eq. (10) LIBLINEAR's objective divided by C n."""
    X, y = classes_problem(seed, n=60, d=20, C=6)
    lam = 1 / 60
    dense = X.toarray().astype(np.float64)
    best = reference.objective(crammer_singer(X, y, 1.0), dense, y, lam)

    def reached(passes):
        clf = lt.Memoir(lam=lam, bias=0, n_groups=1, batch_size=1, eta0=0.7, passes=passes, n_jobs=1).fit(X, y)
        return reference.objective(clf.model_.W.toarray().astype(np.float64), dense, y, lam)

    few, many = reached(3), reached(120)
    assert best <= many * (1 + 1e-6)
    assert many - best < 0.02 * best
    assert many - best < 0.3 * (few - best)


def test_the_objective_falls_on_average():
    X, y = classes_problem(5, n=300, d=30, C=12)
    oracle, penalty = oracle_of("exact", X, one_hot(y, 12)), Penalty(1e-3, l1=False, project=False)
    schedule, pairs, dense = Schedule(0.2, None, 10, 240), Pairs(oracle.X, np.arange(300), y), X.toarray()
    values = [
        reference.objective(oracle.weights.to_csr().toarray(), dense, y, 1e-3)
        for _ in train(oracle, pairs, schedule, penalty, seed=0)
    ]
    thirds = [np.mean(part) for part in np.array_split(values, 6)]
    assert thirds == sorted(thirds, reverse=True)
    assert thirds[-1] < 0.5 * values[0]
