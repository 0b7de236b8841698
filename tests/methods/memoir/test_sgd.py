"""Algorithms 1 and 2: equal to their eager twins, and on the way to the optimum."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn.svm import LinearSVC

import longtail as lt
from longtail.errors import InputError
from longtail.methods.memoir.average import Average
from longtail.methods.memoir.schedules import Inverse, Linear, parse
from longtail.methods.memoir.sgd import Batches, Pairs, Penalty, draw_batches, train
from longtail.methods.memoir.weights import CsrRows
from tests.methods.memoir import reference
from tests.methods.memoir.problems import classes_problem, one_hot, oracle_of

PENALTIES = {
    "none": Penalty(0.0, l1=False, project=False),
    "l2": Penalty(0.05, l1=False, project=False),
    "l2 on a ball": Penalty(1.0, l1=False, project=True),
    "l1": Penalty(0.01, l1=True, project=False),
    "l1, postponed": Penalty(0.01, l1=True, project=False, every=7),
    "l2, rho 0.5": Penalty(0.05, l1=False, project=False, rho=0.5),
}


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("oracle", ["exact", "sw-graph", "simple-lsh"])
def test_lazy_scaling_and_truncation_equal_the_eager_algorithm(penalty, oracle):
    X, y = classes_problem(3, n=80, d=25, C=8)
    oracle = oracle_of(oracle, X, one_hot(y, 8))
    batches = Batches(60, 20, 0.3, Inverse())
    pairs = Pairs(oracle.X, np.arange(80), y)
    queries = list(train(oracle, pairs, batches, penalty, seed=1))
    assert len(queries) == 60
    W, _ = reference.train_eagerly(X.toarray().astype(np.float64), pairs.rows, y, batches, penalty, queries)
    np.testing.assert_allclose(oracle.vectors.to_csr().toarray(), W, rtol=1e-3, atol=1e-5 * np.abs(W).max())
    reference.check_vectors(oracle.vectors.arrays)
    if penalty.project:
        assert oracle.vectors.norm == pytest.approx(1.0)
        assert oracle.vectors.scale != 1.0  # the shrinking is in one number
    if penalty.l1:
        assert oracle.vectors.nnz < 0.9 * 8 * 25


@pytest.mark.parametrize("refresh", [1, 7])
@pytest.mark.parametrize("penalty", ["l2 on a ball", "l1"])
def test_rivals_are_found_with_the_weights_that_the_batch_has_changed(penalty, refresh):
    """Algorithms 1 and 2: the rival of a row is the best class after the steps of the rows before it."""
    X, y = classes_problem(3, n=80, d=25, C=8)
    oracle, penalty = oracle_of("exact", X, one_hot(y, 8)), PENALTIES[penalty]
    batches = Batches(12, 20, 0.3, Inverse(), refresh)
    pairs, dense = Pairs(oracle.X, np.arange(80), y), X.toarray().astype(np.float64)
    queries, Y, n_found = [], one_hot(y, 8).toarray(), 0
    for query in train(oracle, pairs, batches, penalty, seed=1):
        W = oracle.vectors.to_csr().toarray()
        for rival, (_, best) in zip(query.rivals, reference.best_rivals(W, dense, Y, query.pairs), strict=True):
            assert rival in best
            n_found += 1
        queries.append(query)
    assert n_found == 12 * 20
    assert [query.part for query in queries[: batches.n_parts]] == list(range(-(-20 // refresh)))
    last, _ = reference.train_eagerly(dense, pairs.rows, y, batches, penalty, queries)
    np.testing.assert_allclose(oracle.vectors.to_csr().toarray(), last, rtol=1e-3, atol=1e-5 * np.abs(last).max())


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("oracle", ["exact", "sw-graph"])
def test_the_lazy_average_is_the_mean_of_the_weights_after_each_batch(penalty, oracle):
    X, y = classes_problem(3, n=80, d=25, C=8)
    oracle = oracle_of(oracle, X, one_hot(y, 8))
    batches = Batches(150, 20, 0.3, Inverse(), 10)
    pairs, average = Pairs(oracle.X, np.arange(80), y), Average(oracle.vectors)
    queries = list(train(oracle, pairs, batches, penalty, seed=1, average=average))
    _, mean = reference.train_eagerly(X.toarray().astype(np.float64), pairs.rows, y, batches, penalty, queries)
    assert average.n_batches == 150
    np.testing.assert_allclose(average.to_csr().toarray(), mean, rtol=1e-3, atol=1e-4 * np.abs(mean).max())
    np.testing.assert_allclose(average.to_csr().toarray(), mean, rtol=1e-3, atol=1e-4 * np.abs(mean).max())


def test_truncation_keeps_to_its_limit_in_training():
    X, y = classes_problem(3, n=80, d=25, C=8)
    dense, results = X.toarray().astype(np.float64), []
    pairs = Pairs(CsrRows.of(X), np.arange(80), y)
    batches, penalty = Batches(60, 20, 0.3, Inverse()), PENALTIES["l1"]
    for limit in (1.0, 0.001):
        oracle = oracle_of("exact", X, one_hot(y, 8))
        oracle.vectors.limit = limit
        queries = list(train(oracle, pairs, batches, penalty, seed=1))
        W, _ = reference.train_eagerly(dense, pairs.rows, y, batches, penalty, queries, limit)
        np.testing.assert_allclose(oracle.vectors.to_csr().toarray(), W, rtol=1e-3, atol=1e-4 * np.abs(W).max())
        results.append(oracle.vectors.nnz)
    assert results[0] != results[1]  # the limit has been reached


def test_stored_values_are_multiplied_out_before_they_overflow():
    X, y = classes_problem(3, n=80, d=25, C=8)
    oracle = oracle_of("simple-lsh", X, one_hot(y, 8))
    batches, penalty = Batches(150, 80, 0.5, Inverse(step=0.0)), Penalty(1.9, l1=False, project=True)
    pairs = Pairs(oracle.X, np.arange(80), y)
    scales = [oracle.vectors.scale for _ in train(oracle, pairs, batches, penalty, seed=1)]
    assert sum(later > earlier for earlier, later in pairwise(scales)) > 2
    assert oracle.vectors.norm <= 1 / np.sqrt(1.9) * (1 + 1e-6)
    assert np.isfinite(oracle.vectors.to_csr().data).all()


def test_batches_are_shuffled_passes():
    source = draw_batches(10, 4, seed=0)
    drawn = np.concatenate([next(source) for _ in range(10)])
    for start in range(0, 40, 10):
        assert sorted(drawn[start : start + 10].tolist()) == list(range(10))
    assert drawn[:10].tolist() != drawn[10:20].tolist()


def test_rates():
    linear, inverse = Batches(10, 1, 0.5, Linear()), Batches(10, 1, 0.1, Inverse(step=0.02))
    assert [linear.rate(t) for t in (0, 5)] == [0.5, 0.25]
    assert linear.rate(9) == pytest.approx(0.05)
    assert inverse.rate(0) == pytest.approx(0.1 / 1.02)  # t counts from 1 in the paper
    assert inverse.rate(24) == pytest.approx(0.1 / 1.5)


@pytest.mark.parametrize("text", ["linear", "inverse:step=0.02", "inverse:step=0.5"])
def test_a_schedule_is_written_as_it_is_read(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine", "The 'schedule' parameter of Memoir must be one of 'linear', 'inverse'"),
        ("linear:step=1", "'linear' takes no options"),
        ("inverse:step=-1", "the option 'step' must be at least 0. Got -1.0"),
        ("inverse:step=x", "the option 'step' must be a number"),
    ],
)
def test_schedules_that_do_not_exist(text, message):
    with pytest.raises(InputError, match=message):
        parse(text)


def test_passes_are_counted_where_the_last_batch_begins():
    batches = Batches(0, 64, 0.5, Linear())
    assert [batches.n_passes(n, 300) for n in (0, 1, 5, 6, 29)] == [0, 1, 1, 2, 6]
    for n_pairs in (64, 100, 300, 1000):
        for max_iter in (1, 6):
            assert batches.n_passes(int(np.ceil(max_iter * n_pairs / 64)), n_pairs) == max_iter


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

    def reached(max_iter):
        clf = lt.Memoir(lam=lam, bias=0, n_groups=1, batch_size=1, learning_rate=0.7, max_iter=max_iter, n_jobs=1).fit(
            X, y
        )
        return reference.objective(clf.model_.W.toarray().astype(np.float64), dense, y, lam)

    few, many = reached(3), reached(120)
    assert best <= many * (1 + 1e-6)
    assert many - best < 0.02 * best
    assert many - best < 0.3 * (few - best)


def test_the_objective_falls_on_average():
    X, y = classes_problem(5, n=300, d=30, C=12)
    oracle, penalty = oracle_of("exact", X, one_hot(y, 12)), Penalty(1e-3, l1=False, project=False)
    batches, dense = Batches(240, 10, 0.2, Linear()), X.toarray()
    pairs = Pairs(oracle.X, np.arange(300), y)
    values = [
        reference.objective(oracle.vectors.to_csr().toarray(), dense, y, 1e-3)
        for _ in train(oracle, pairs, batches, penalty, seed=0)
    ]
    thirds = [np.mean(part) for part in np.array_split(values, 6)]
    assert thirds == sorted(thirds, reverse=True)
    assert thirds[-1] < 0.5 * values[0]
