"""Small problems for MEMOIR, and oracles for them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.hybrid import HybridRows
from longtail.matrix import canonical_csr
from longtail.methods.memoir.oracles import ORACLES, SearchSpace, parse
from longtail.methods.memoir.weights import ClassVectors, CsrRows, RowLabels


def classes_problem(seed, n=60, d=20, C=9, density=0.3):
    """Unit rows near one of C centres, and their classes; every class occurs."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(C, d)) * (rng.random((C, d)) < density)
    y = np.concatenate([np.arange(C), rng.integers(C, size=max(n - C, 0))])[:n]
    X = centres[y] + 0.5 * rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    return canonical_csr(sp.csr_array(X.astype(np.float32))), y


def one_hot(y, C):
    return sp.csr_array((np.ones(len(y), np.int32), y.astype(np.int32), np.arange(len(y) + 1)), shape=(len(y), C))


def oracle_of(text, X, Y, n_groups=1, seed=0, team=None):
    """The oracle that `text` describes, over zero weights, for the rows of X."""
    name, options = parse(text)
    kind = ORACLES[name]
    vectors = ClassVectors(
        Y.shape[1],
        X.shape[1],
        indexed=kind.indexed,
        n_groups=n_groups if kind.indexed else 1,
        with_top=kind.reads_top(options),
        dense_columns=X.columns if isinstance(X, HybridRows) else None,
    )
    return kind(
        SearchSpace(vectors, CsrRows.of(X), RowLabels.of(Y), team or parallel.Team(1), seed, n_groups), **options
    )
