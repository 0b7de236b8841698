"""What labels share: twins, and the rows of a model put in order."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.methods.one_vs_all.problem import Problem, stack_rows


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=12))
@settings(deadline=None)
def test_twins_are_the_first_label_on_the_same_rows(columns):
    Y = sp.csr_array(np.array(columns, np.int32).T)
    twins = Problem.of(sp.csr_array(np.eye(4, dtype=np.float32)), Y, 1.0).twins
    assert twins.tolist() == [columns.index(column) for column in columns]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_stack_rows_equals_vstack_and_indexing(heights, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    dense = [(rng.random((height, 5)) * (rng.random((height, 5)) < 0.5)).astype(np.float32) for height in heights]
    order = data.draw(st.lists(st.integers(0, sum(heights) - 1), min_size=1, max_size=9))
    stacked = stack_rows([sp.csr_array(part) for part in dense], np.array(order))
    np.testing.assert_array_equal(stacked.toarray(), np.vstack(dense)[order])
    stacked.check_format(full_check=True)
