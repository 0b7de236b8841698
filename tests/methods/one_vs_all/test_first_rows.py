"""The first working sets that the index of rare features gives, against slow twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail as lt
from longtail.compiled import frozen
from longtail.methods.one_vs_all import first_rows, first_rows_kernels
from longtail.methods.one_vs_all.first_rows import IndexScratch
from tests.methods.one_vs_all.problems import problem_of, random_problem, text_like


def indexed(X, Y, monkeypatch, rare, budget):
    monkeypatch.setattr(first_rows, "RARE", rare)
    monkeypatch.setattr(first_rows, "BUDGET_SHARE", 0.0)
    monkeypatch.setattr(first_rows, "MIN_BUDGET", budget)
    return problem_of(X, Y)


def rare_scores(problem, own, threshold):
    """p.x_i over the rare features of the mean p of the rows `own` that are at least `threshold`."""
    rows = problem.X
    X = np.zeros((problem.n_samples, problem.n_features))
    for i in range(problem.n_samples):
        entries = slice(int(rows.indptr[i]), int(rows.indptr[i + 1]))
        X[i, rows.indices[entries]] = rows.data[entries]
    X[:, : problem.rare_features.first] = 0
    mean = X[own].mean(0) if len(own) else np.zeros(problem.n_features)
    return mean, X @ np.where(np.abs(mean) >= threshold, mean, 0)


def test_the_index_holds_the_rare_columns_of_x(monkeypatch):
    X, Y = text_like(1)
    problem = indexed(X, Y, monkeypatch, 0.05, 100)
    index, frequency = problem.rare_features, np.diff(X.tocsc().indptr)
    assert index.first == (frequency > 20).sum()
    for feature in range(index.first, X.shape[1]):
        column = X[:, [problem.column_of[feature]]].toarray().ravel()
        found = np.zeros(X.shape[0], np.float32)
        entries = slice(int(index.indptr[feature - index.first]), int(index.indptr[feature - index.first + 1]))
        found[index.rows[entries]] = index.data[entries]
        np.testing.assert_array_equal(found, column)


@pytest.mark.parametrize("budget", [10, 300, 100_000])
def test_first_rows_are_those_that_share_most_with_the_positives(monkeypatch, budget):
    X, Y = text_like(2)
    problem = indexed(X, Y, monkeypatch, 0.2, budget)
    monkeypatch.setattr(first_rows, "MIN_FIRST_ROWS", 15)
    labels, index = frozen(np.arange(Y.shape[1]), np.uint64), problem.rare_features
    rows = first_rows.first_rows(problem.X, index, problem.positives, labels)
    n_enough = 0
    for label in range(Y.shape[1]):
        own = np.flatnonzero(Y[:, [label]].toarray().ravel())
        assert rows.wanted[label] == min(max(15, 4 * len(own)), X.shape[0] - len(own))
        mean, _ = rare_scores(problem, own, 0.0)
        posted = np.append(np.zeros(index.first, int), np.diff(index.indptr.astype(int)))
        threshold = 0.0
        while posted[np.abs(mean) >= threshold].sum() > index.budget:
            threshold = max(0.02 * np.abs(mean).max(), 1.25 * threshold)
        _, scores = rare_scores(problem, own, threshold)
        scores[own] = 0
        found = rows.rows[rows.starts[label] :][: rows.n_found[label]]
        assert len(set(found.tolist())) == len(found)
        assert len(found) == min(rows.wanted[label], (scores > 0).sum())
        assert (scores[found] > 0).all()
        left_out = np.setdiff1d(np.arange(X.shape[0]), found)
        if len(found) == rows.wanted[label]:  # up to the width of a bin
            assert scores[left_out].max() <= scores[found].min() + scores.max() / 500
        assert rows.ready[label] == (len(found) >= 0.5 * rows.wanted[label])
        n_enough += rows.ready[label]
    assert (n_enough > 0) == (budget > 10)


@given(st.integers(0, 1000), st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_rows_whose_terms_cancel_out_are_taken_once(seed, wanted):
    """Values of both signs, among them sums that return to zero."""
    rng = np.random.default_rng(seed)
    n, d = 12, 6
    dense = rng.integers(-1, 2, size=(n, d)).astype(np.float32)
    scratch = IndexScratch(
        slot=np.zeros(d, np.uint32), features=np.arange(d, dtype=np.uint32), mean=np.ones(d, np.float32),
        scores=np.zeros(n, np.float32), touched=np.zeros(n * d, np.uint32),
        bins=np.zeros(first_rows_kernels.N_BINS, np.int64),
    )  # fmt: skip
    columns = [np.flatnonzero(column) for column in dense.T]
    index = first_rows.RareFeatures(
        0,
        frozen(np.concatenate([[0], np.cumsum([len(c) for c in columns])]), np.uint64),
        frozen(np.concatenate(columns), np.uint32),
        frozen(np.concatenate([dense[c, f] for f, c in enumerate(columns)]), np.float32),
        n * d,
    )
    met = first_rows_kernels.add_scores(index, d, np.float32(0.0), scratch)
    np.testing.assert_allclose(scratch.scores, dense.sum(1))
    out = np.zeros(wanted, np.uint32)
    count = first_rows_kernels.take_best(met, wanted, scratch, out)
    assert len(set(out[:count].tolist())) == count
    assert (dense.sum(1)[out[:count]] > 0).all()
    assert not scratch.scores.any()


def test_only_the_default_start_on_sparse_rows_has_an_index():
    X, Y = random_problem(1)
    assert problem_of(X, Y).rare_features is not None
    assert problem_of(X, Y, start="msi:s=1,t=-1.1").rare_features is not None
    assert problem_of(X.toarray() + np.float32(1), Y).rare_features is None
    for start in ("msi:t=-3", "zero", "bias", "ova-primal", "tree"):
        assert problem_of(X, Y, start=start).rare_features is None


def test_the_index_changes_the_first_rows_and_not_the_optimum():
    X, Y = text_like(3, n=1500)
    index, by_pass = (lt.OneVsAll(start=start, tol=1e-3).fit(X, Y) for start in ("msi", "msi:t=-1.2"))
    assert index.training_.converged.all()
    np.testing.assert_allclose(index.training_.objective, by_pass.training_.objective, rtol=2e-3)
    assert (index.training_.objective != by_pass.training_.objective).any()
