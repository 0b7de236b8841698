"""What labels share: twins."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.methods.one_vs_all.problem import Problem


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=12))
@settings(deadline=None)
def test_twins_are_the_first_label_on_the_same_rows(columns):
    Y = sp.csr_array(np.array(columns, np.int32).T)
    twins = Problem.of(sp.csr_array(np.eye(4, dtype=np.float32)), Y, 1.0).twins
    assert twins.tolist() == [columns.index(column) for column in columns]
