"""A method that is quick, exact and misbehaves on demand, importable by workers.

`TOY_FAULT` is a fault of `tests.faults`. Attempts are counted in the folder `TOY_MARKS`. `TOY_PAUSE` is how long each
step of a block takes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from longtail.methods.base import ExtremeClassifier
from longtail.methods.forecast import Forecast, Range
from longtail.methods.problem import Block, Part, Problem, Stack
from longtail.models import LinearModel
from longtail.parallel import ranges
from longtail.training import Status
from tests import faults


class Toy(ExtremeClassifier):
    """W[label] = the mean of the rows of the label, plus noise from a generator of its block; in `n_steps` steps."""

    method = "toy"
    calibrate = False

    def __init__(self, block_size=3, n_steps=4, random_state=0, n_jobs=None, normalize=False):
        self.block_size = block_size
        self.n_steps = n_steps
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.normalize = normalize

    def _check_parameters(self):
        pass

    def _problem(self, X, Y):
        return ToyProblem(X, Y, self.block_size, self.n_steps, self.random_state)


class ToyProblem(Problem):
    """One block per `block_size` labels, or, with 0, a single one that keeps its state."""

    def __init__(self, X, Y, block_size, n_steps, seed):
        self.X, self.Y, self.block_size, self.n_steps, self.seed = X, Y, block_size, n_steps, seed
        self.unit = "label" if block_size else "model"
        self.settings = {"seed": seed}

    def blocks(self):
        if not self.block_size:
            return [Block(0, np.array([0]), 1.0)]
        columns = ranges(self.Y.shape[1], self.block_size)
        return [Block(number, np.array(block), float(len(block))) for number, block in enumerate(columns)]

    def forecast(self, X, Y, n_threads):
        second = Range.around(1.0, 0.1)
        return Forecast(second, 1, Range(8, 8, 8), 100, 0, "nothing", 0.0)

    def solve(self, block, work):
        faults.strike(os.environ.get("TOY_FAULT", ""), block.number, mark(f"block-{block.number}"))
        columns = block.items if self.block_size else np.arange(self.Y.shape[1])
        target = (self.Y[:, columns].T @ self.X).toarray().astype(np.float64)
        rng, W, first = np.random.default_rng([self.seed, block.number]), np.zeros_like(target), 0
        saved = work.saved()
        if saved is not None:
            W, first = saved["W"].copy(), int(saved["step"])
            rng.random(first * target.size)  # as many numbers as the steps before took
            mark(f"resumed-{block.number}-{first}")
        for step in range(first, self.n_steps):
            W = 0.5 * (W + target + 0.01 * rng.random(target.size).reshape(target.shape))
            if pause := float(os.environ.get("TOY_PAUSE", "0")):
                time.sleep(pause)
            work.report((step + 1) / self.n_steps)
            work.save(lambda W=W, step=step: {"W": W, "step": np.array(step + 1)})
        kept = sp.csr_array(W.astype(np.float32))
        status = np.full(len(block.items), Status.COMPLETED, np.uint8)
        arrays = {"data": kept.data, "indices": kept.indices, "indptr": kept.indptr}
        figures = {"norm": np.abs(W).sum(axis=1) if self.block_size else np.abs(W).sum(keepdims=True)[0]}
        return Part(block.number, block.items, arrays, status, np.full(len(block.items), self.n_steps), figures)

    def stack(self):
        return ToyStack(self.X.shape[1])

    def item_of(self):
        return np.arange(self.Y.shape[1]) if self.block_size else np.array([0])


class ToyStack(Stack):
    def __init__(self, n_features):
        self.n_features, self.parts = n_features, {}

    def add(self, part):
        assert part.block not in self.parts
        arrays = part.arrays
        shape = (len(arrays["indptr"]) - 1, self.n_features)
        self.parts[part.block] = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)

    def model(self):
        W = sp.vstack([self.parts[number] for number in sorted(self.parts)], format="csr")
        return LinearModel(sp.csr_array(W), self.n_features)


def data(seed=0, rows=40, features=12, labels=20):
    rng = np.random.default_rng(seed)
    X = sp.random_array((rows, features), density=0.5, rng=rng, format="csr", dtype=np.float32)
    Y = sp.csr_array((rng.random((rows, labels)) < 0.2).astype(np.int8))
    return X, Y


def mark(name: str) -> int:
    """How often this was called before with the name; 0 if nobody counts."""
    folder = os.environ.get("TOY_MARKS")
    return faults.count(Path(folder), name) if folder else 0
