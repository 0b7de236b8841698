"""Small data and all methods with a few variants, for tests of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import longtail as lt
from longtail import parallel, store

KINDS = {
    "one-vs-all": lambda: lt.OneVsAll(),
    "one-vs-all newton": lambda: lt.OneVsAll(solver="newton"),
    "pd-sparse": lambda: lt.PDSparse(max_iter=12),
    "pd-sparse sampled": lambda: lt.PDSparse(C=1.0, max_iter=8, early_stopping=False, search="sampled:subsets=2"),
    "memoir": lambda: lt.Memoir(max_iter=6, batch_size=20, early_stopping=True),
    "memoir graph": lambda: lt.Memoir(max_iter=4, batch_size=20, oracle="sw-graph", penalty="l1"),
    "memoir lsh": lambda: lt.Memoir(max_iter=4, batch_size=20, oracle="simple-lsh"),
    "memoir paper": lambda: lt.Memoir.paper(n_batches=12, refresh=20, average=True, oracle="simple-lsh"),
    "mach": lambda: lt.Mach(n_buckets=8, n_repetitions=4, max_iter=4),
}


def data(rows: int = 240, features: int = 60, labels: int = 24) -> tuple[sp.csr_array, sp.csr_array]:
    """Rows whose labels can be told from their features."""
    rng = np.random.default_rng(7)
    label_of = rng.integers(labels, size=rows)
    X = sp.random_array((rows, features), density=0.08, rng=rng, dtype=np.float32).tolil()
    for row, label in enumerate(label_of):
        X[row, label % features] = 1.0 + rng.random()
    second = rng.integers(labels, size=rows)
    pairs = np.concatenate([label_of, second])
    Y = sp.csr_array((np.ones(2 * rows, np.int32), (np.tile(np.arange(rows), 2), pairs)), shape=(rows, labels))
    Y.data[:] = 1
    return sp.csr_array(X), Y


def fit(kind: str, run: Path | None = None, progress=None, workers="threads", silence: float = 60.0):
    X, Y = data()
    who = replace(
        parallel.Workers.of(workers),
        limits=parallel.AttemptLimits(silence=silence, start=max(20.0, silence)),
        save_seconds=0.0,
    )
    return KINDS[kind]().fit(X, Y, run=run, progress=progress, workers=who)


def model_id(clf, path: Path) -> str:
    clf.save(path)
    return store.model_id(path)
