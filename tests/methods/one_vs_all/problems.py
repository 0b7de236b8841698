"""Small problems that contain what goes wrong: empty rows, labels with no, one and only positives, repeated rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from longtail.check import canonical_csr
from longtail.methods.one_vs_all import starts
from longtail.methods.one_vs_all.newton import LOSSES


def random_problem(seed, n=30, d=12, L=7, density=0.3):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    dense[rng.integers(n)] = 0  # an empty row
    if n > 3:
        dense[2] = dense[3]  # the same row twice, with different labels
    Y = rng.random((n, L)) < rng.choice([0.05, 0.2, 0.6], size=L)
    if L > 2:
        Y[:, 0], Y[:, 1] = False, True
        Y[:, 2] = False
        Y[rng.integers(n), 2] = True
    return canonical_csr(sp.csr_array(dense.astype(np.float32))), canonical_csr(sp.csr_array(Y.astype(np.int32)))


problems = st.builds(
    random_problem,
    seed=st.integers(0, 10**6),
    n=st.integers(4, 40),
    d=st.integers(1, 25),
    L=st.integers(3, 8),
    density=st.sampled_from([0.05, 0.3, 1.0]),
)


def start_of(spec, problem, *, loss="squared_hinge", C=1.0, tol=0.01, max_iter=100):
    """The start that `spec` names, for a problem and the usual task."""
    return starts.make(spec, starts.Task(problem, LOSSES[loss], float(C), float(tol), max_iter))
