"""A solver on small problems, and its state as dense arrays of the twins."""

from __future__ import annotations

import numpy as np

from longtail import parallel
from longtail.methods.pd_sparse.frank_wolfe import FrankWolfe
from longtail.methods.pd_sparse.rows import LabelledRows
from longtail.methods.pd_sparse.search import Search


def make(X, Y, *, C=1.0, lam=0.1, subsets=1, returned=1, sampled=False, bias=0.0, seed=0, threads=1, batch_size=256):
    rng = np.random.default_rng(seed)
    search = Search("sampled" if sampled else "subset", subsets, returned, sampled)
    solver = FrankWolfe(LabelledRows.of(X, Y, bias, rng), search, rng, parallel.Team(threads), batch_size)
    solver.start(C, lam)
    return solver


def trained(X, Y, passes, **settings):
    solver = make(X, Y, **settings)
    for _ in range(passes):
        solver.run_pass(solver.samples.with_loss)
    return solver


def dense_alphas(solver):
    """A (n, K), in the labels' own numbers."""
    members, samples = solver.members, solver.samples
    A = np.zeros((samples.n_samples, samples.n_labels))
    for i in range(samples.n_samples):
        start, size = int(members.start[i]), int(members.size[i])
        held = members.held[start : start + size]
        A[i, held["label"]] = held["alpha"]
    return A[:, samples.number_of]


def dense_tables(solver):
    """V (d, K) as the tables hold it, in the labels' own numbers."""
    weights, V = solver.weights, np.zeros((solver.samples.n_features, solver.samples.n_labels))
    for j in range(len(V)):
        start = int(weights.start[j])
        table = weights.slots[start : start + int(weights.mask[j]) + 1]
        used = table[table["label"] != 0xFFFFFFFF]
        assert len(used) == weights.filled[j] == len(np.unique(used["label"]))
        V[j, used["label"]] = used["v"]
    return V[:, solver.samples.number_of]


def dense_lists(solver):
    """W (d, K) as the search sees it, in the labels' own numbers."""
    weights, W = solver.weights, np.zeros((solver.samples.n_features, solver.samples.n_labels))
    for j in range(len(W)):
        if weights.row_of[j] != 0xFFFFFFFF:
            W[j] = weights.rows[weights.row_of[j]]
            continue
        for subset in range(weights.n_subsets):
            start, size = int(weights.list_start[j, subset]), int(weights.list_size[j, subset])
            entries = weights.entries[start : start + size]
            assert (entries["label"] // weights.subset_width == subset).all()
            W[j, entries["label"]] = entries["w"]
    return W[:, solver.samples.number_of]
