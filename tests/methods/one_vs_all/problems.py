"""Small problems that contain what goes wrong: empty rows, labels with no, one and only positives, repeated rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

import longtail as lt
from longtail.hybrid import take_columns
from longtail.matrix import canonical_csr
from longtail.methods.problem import Block
from longtail.parallel import Work


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


FORMS = ["sparse", "dense", "hybrid"]


def in_form(X, form, columns=None):
    """The rows X as a sparse matrix, as an array, or with every third column (or these columns) dense."""
    if form == "hybrid":
        return take_columns(X, np.arange(0, X.shape[1], 3) if columns is None else np.array(columns))
    return X.toarray() if form == "dense" else X


def problem_of(X, Y, **parameters):
    """The training problem that OneVsAll with these parameters makes of canonical X and Y."""
    return lt.OneVsAll(**parameters)._problem(X, Y)


def first_weights(problem, labels):
    """The weights at which the problem's start lets these labels begin, by column of X."""
    W, by_column = np.full((len(labels), problem.D), 7.0), np.empty((len(labels), problem.D))
    problem.start.weights(problem, np.array(labels), W)
    by_column[:, problem.column_of[: problem.D]] = W
    return by_column


def solve_labels(problem, labels):
    """The part of these labels alone, in the order of `items`."""
    return problem.solve(Block(0, np.asarray(labels, np.int64), 1.0), Work())


def text_like(seed, n=400, d=600, L=60):
    """Unit rows over words of Zipf's law; labels have words of their own, are mostly rare, and often occur with the
    label before them."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, L + 1)
    Y = rng.random((n, L)) < np.minimum(0.5, 3 * weight / weight.sum())
    Y[:, :-1] |= Y[:, 1:] & (rng.random((n, L - 1)) < 0.7)
    Y[rng.integers(n, size=L), np.arange(L)] = True
    words = rng.integers(d, size=(L, 6))
    zipf = 1.0 / np.arange(1, d + 1)
    X = np.zeros((n, d), np.float32)
    for i in range(n):
        background = rng.choice(d, size=25, p=zipf / zipf.sum())
        X[i, np.concatenate([background, *words[Y[i]]])] = 1
    X *= np.log(n / (1 + X.sum(axis=0)))
    X = np.maximum(X, 0)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    return canonical_csr(sp.csr_array(X)), canonical_csr(sp.csr_array(Y.astype(np.int32)))
