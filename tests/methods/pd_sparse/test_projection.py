"""The projections of a row's dual variables, against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.methods.pd_sparse import frank_wolfe_kernels as kernels
from tests.methods.pd_sparse import reference as ref

numbers = st.one_of(st.floats(-3, 3), st.integers(-2, 2).map(float))  # with many ties
costs = st.one_of(st.floats(0.01, 10), st.sampled_from([0.5, 1.0, 2.0]))


def vectors(largest):
    return st.lists(numbers, min_size=1, max_size=largest).map(np.array)


def pair(b, c, C):
    x, y = np.full(len(b), np.nan), np.full(len(c), np.nan)
    kernels.project_pair(b.copy(), c.copy(), C, np.zeros(len(b), np.int64), np.zeros(len(c), np.int64), x, y)
    return x, y


@given(vectors(3), vectors(3), costs)
@settings(deadline=None, max_examples=300)
def test_algorithm_2_solves_its_quadratic_problem(b, c, C):
    x, y = pair(b, c, C)
    best, (expected_x, expected_y) = ref.brute_force_pair(b, c, C)
    assert ((x - b) ** 2).sum() + ((y - c) ** 2).sum() <= best + 1e-9 * (1 + best)
    np.testing.assert_allclose(x, expected_x, atol=1e-6)
    np.testing.assert_allclose(y, expected_y, atol=1e-6)
    assert min(x.min(), y.min()) >= 0
    assert abs(x.sum() - y.sum()) <= 1e-12 * (1 + np.abs(b).sum() + np.abs(c).sum())
    assert x.sum() <= C + 1e-12 * (1 + np.abs(b).sum())


@given(vectors(40), vectors(40), costs)
@settings(deadline=None, max_examples=60)
def test_algorithm_2_agrees_with_bisection_on_longer_rows(b, c, C):
    x, y = pair(b, c, C)
    expected = ref.project_row(np.concatenate([-b, c]), np.arange(len(b) + len(c)) >= len(b), C)
    np.testing.assert_allclose(np.concatenate([-x, y]), expected, atol=1e-9)


@given(vectors(40), costs)
@settings(deadline=None, max_examples=200)
def test_the_simplex_projection_is_the_known_one(d, C):
    out = np.full(len(d), np.nan)
    kernels.project_simplex(d.copy(), C, np.zeros(len(d), np.int64), out)
    np.testing.assert_allclose(out, ref.brute_force_simplex(d, C), atol=1e-9)
    assert abs(out.sum() - C) <= 1e-12 * (1 + np.abs(d).sum() + C)


@given(numbers, vectors(20), costs)
@settings(deadline=None, max_examples=200)
def test_with_one_positive_label_both_projections_agree(positive, b, C):
    x, y = pair(b, np.array([positive]), C)
    out = np.empty(len(b) + 1)
    kernels.project_simplex(np.append(C - positive, b), C, np.zeros(len(out), np.int64), out)
    np.testing.assert_allclose(out, np.append(C - y, x), atol=1e-9)


@given(st.lists(numbers, max_size=200))
@settings(deadline=None, max_examples=60)
def test_sorting(values):
    given_values, order = np.array(values), np.zeros(len(values), np.int64)
    sorted_values = given_values.copy()
    kernels.sort_down(sorted_values, order)
    np.testing.assert_array_equal(sorted_values, -np.sort(-given_values))
    np.testing.assert_array_equal(given_values[order], sorted_values)
