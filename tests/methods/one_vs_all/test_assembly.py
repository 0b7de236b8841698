"""Weight rows put in order as they come."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.methods.one_vs_all.assembly import Assembly


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8))
@settings(deadline=None)
def test_rows_end_in_the_order_of_labels_and_twins_share_them(seed, n_labels, block):
    rng = np.random.default_rng(seed)
    twins = np.array([rng.integers(label + 1) for label in range(n_labels)])
    twins = twins[twins]  # a twin's twin is one of its own: take the first of the chain
    while (twins != twins[twins]).any():
        twins = twins[twins]
    dense = (rng.random((n_labels, 5)) * (rng.random((n_labels, 5)) < 0.5)).astype(np.float32)
    labels, assembly = rng.permutation(np.unique(twins)), Assembly(twins, 5)
    for start in range(0, len(labels), block):
        part = labels[start : start + block]
        assembly.add(part, sp.csr_array(dense[part]))
    assert not assembly.pending
    matrix = assembly.matrix()
    matrix.check_format(full_check=True)
    np.testing.assert_array_equal(matrix.toarray(), dense[twins])


def test_consecutive_blocks_leave_nothing_waiting():
    dense, assembly = np.eye(9, dtype=np.float32), Assembly(np.arange(9), 9)
    for start in range(0, 9, 3):
        assembly.add(np.arange(start, start + 3), sp.csr_array(dense[start : start + 3]))
        assert not assembly.pending
        assert assembly.n_rows == start + 3
