"""Fully-corrective block-coordinate Frank-Wolfe: Algorithm 1 of the paper, on mini-batches.

The problem (13) and its dual (14), over A = (alpha_ik), one block of variables per row i:

    P(W) = sum_k 1/2 |w_k|^2 + lam |w_k|_1  +  C sum_i L(W'x_i, y_i)                                      (13)
    G(A) = 1/2 sum_k |w_k|^2 + sum_i sum over negative k of alpha_ik,                                     (14)
           w_k = prox(v_k),  v_k = X'alpha_k                                                              (15)
    alpha_ik >= 0 for the labels k of row i, <= 0 for all others, both adding up to t_i in [0, C]         (16)

L is the separation ranking loss (2): one plus the best score of a negative label minus the worst of a positive one, or
zero. -G(A) never exceeds P(W), and is equal to it at the optimum. A pass visits every row once, in random order:

    1. search: the negative labels that violate the row's margin most join its active set    (20), (24), (25)
    2. the row's variables of active labels are moved to the minimum of (21), by a projection           (22)
    3. negative labels whose variable is zero leave the active set; v and w follow                      (23)

Differs from the paper: rows are taken in mini-batches. Searches of a batch run in parallel against the weights before
it; then rows are updated one after the other, with fresh scores of their active labels, so that no step raises G. A
batch depends on the data alone, and so does the result: threads do not change a byte. The rule of section 4.4, to
return more labels from a search when searching takes most of the time, counts operations instead of seconds for the
same reason.

Symbols: N rows, D features, K labels, nu parts of the labels, A_i = `members` of row i (positive labels first).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import csr_parts, frozen
from longtail.matrix import row_squares
from longtail.methods.pd_sparse import frank_wolfe_kernels as kernels
from longtail.methods.pd_sparse.search_kernels import search_rows, top_rows
from longtail.methods.pd_sparse.table_kernels import dual_parts
from longtail.methods.pd_sparse.weights import Weights

MEMBER = np.dtype([("label", np.uint32), ("alpha", np.float64)])
BATCH, BATCHES = 256, 64  # rows searched at a time; but a pass has so many batches at the least
SPARE_MEMBERS = 4  # room for negative labels in a row's first active set
SLOT_WORK = 25.0  # a visit to a slot takes the time of so many entries of lists
MOST_RETURNED = 64


@dataclass(frozen=True)
class Problem:
    """The rows, as kernels take them, and their labels, renumbered at random: label k is number_of[k] in training.

    X has the bias feature as its last column, if there is one."""

    X: tuple[np.ndarray, np.ndarray, np.ndarray]
    squares: np.ndarray  # |x_i|^2
    n_positive: np.ndarray
    positives: np.ndarray  # numbers of the labels of row 0, of row 1, ...
    number_of: np.ndarray
    n_features: int

    @classmethod
    def of(cls, X: sp.csr_array, Y: sp.csr_array, bias: float, rng: np.random.Generator) -> Problem:
        if bias:
            constant = np.full((X.shape[0], 1), bias, np.float32)
            X = sp.csr_array(sp.hstack([X, sp.csr_array(constant)], format="csr"))
        number_of = rng.permutation(Y.shape[1]).astype(np.uint32)
        return cls(
            csr_parts(X),
            frozen(row_squares(X), np.float64),
            frozen(np.diff(Y.indptr), np.uint32),
            number_of[Y.indices],
            number_of,
            X.shape[1],
        )

    @property
    def n_samples(self) -> int:
        return len(self.squares)

    @property
    def n_labels(self) -> int:
        return len(self.number_of)

    @property
    def active(self) -> np.ndarray:
        """The rows with a loss: those without labels, and those with all of them, have none."""
        return np.flatnonzero((self.n_positive > 0) & (self.n_positive < self.n_labels))

    def sampling_rate(self, C: float) -> float:
        """How many features there are for one that is drawn, d_i / d~_i (section 4.4)."""
        entries, log_labels = len(self.X[0]), math.log(max(self.n_labels, 2))
        by_weights = 5.0 * self.n_features * self.n_labels / max(C * entries * log_labels, 1e-300)
        return float(math.ceil(max(1e-9, min(by_weights, entries / (5.0 * self.n_samples)))))


class Members(NamedTuple):
    """The active sets: row i has held[start[i] : start[i] + size[i]], its positive labels first, and room for more."""

    held: np.ndarray
    start: np.ndarray
    size: np.ndarray
    room: np.ndarray
    used: np.ndarray  # (1,) records handed out so far
    largest: np.ndarray  # (1,) the size of the largest set so far

    @classmethod
    def of(cls, problem: Problem) -> Members:
        """The positive labels of every row, with alpha = 0."""
        sizes = problem.n_positive.astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(sizes + SPARE_MEMBERS)])
        held = np.zeros(ends[-1] + ends[-1] // 2 + 1024, MEMBER)
        held["label"][np.repeat(ends[:-1] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())] = (
            problem.positives
        )
        return cls(
            held,
            ends[:-1].astype(np.uint64),
            problem.n_positive.copy(),
            (sizes + SPARE_MEMBERS).astype(np.uint32),
            ends[-1:].astype(np.uint64),
            np.array([sizes.max(initial=0)]),
        )

    def copy(self) -> Members:
        return Members(*(part.copy() for part in self))


class Scratch(NamedTuple):
    """What the update of one row works in: arrays over its active labels."""

    labels: np.ndarray
    alpha: np.ndarray
    z: np.ndarray
    values: np.ndarray
    order: np.ndarray
    solved: np.ndarray
    moved: np.ndarray
    work: np.ndarray  # (1,)

    @classmethod
    def of(cls, size: int) -> Scratch:
        floats, labels = (lambda: np.zeros(size)), (lambda: np.zeros(size, np.uint32))
        return cls(labels(), floats(), floats(), floats(), np.zeros(size, np.int64), floats(), labels(), np.zeros(1))


@dataclass(frozen=True)
class Point:
    """Where training stood: the parameters and the active sets, from which all else follows."""

    C: float
    lam: float
    members: Members


class FrankWolfe:
    """The state of training: `members` and `weights` belong together, and to `C` and `lam`."""

    def __init__(
        self,
        problem: Problem,
        *,
        parts: int,
        sampled: bool,
        returned: int,
        rng: np.random.Generator,
        run: Callable[..., list],
        threads: int,
    ) -> None:
        self.problem, self.parts, self.sampled, self.first_returned = problem, parts, sampled, returned
        self.rng, self.run, self.threads = rng, run, threads
        widest = int(np.diff(problem.X[2].view(np.int64)).max(initial=0))
        self.buffers = [(np.zeros(problem.n_labels, np.float32), np.empty(widest, np.float32)) for _ in range(threads)]
        self.start(1.0, 0.0)

    def start(self, C: float, lam: float) -> None:
        """Begin anew, at alpha = 0."""
        problem = self.problem
        self.visits, self.selected, self.C, self.returned = 0, False, C, self.first_returned
        self.members = Members.of(problem)
        self.weights = Weights.empty(problem.n_features, problem.n_labels, self.parts)
        self.set_strength(C, lam)

    # --- a pass ------------------------------------------------------------------------------------------------------

    def set_strength(self, C: float, lam: float) -> None:
        """Go on with these parameters. Alphas stay feasible when C grows; when it shrinks they are scaled with it."""
        if C < self.C:
            self.members.held["alpha"] *= C / self.C
            self.weights.slots["v"] *= np.float32(C / self.C)
        self.C, self.lam = C, lam
        self.rate = self.problem.sampling_rate(C) if self.sampled else 1.0
        self.weights = self.weights.rebuild(lam)

    def run_pass(self, rows: np.ndarray, report: Callable[[int], None] = lambda done: None) -> None:
        """Algorithm 1 once over these rows, in random order; `report` hears how many rows are done."""
        order = self.rng.permutation(rows).astype(np.uint32)
        parts = self.rng.integers(self.parts, size=len(order))
        seed = int(self.rng.integers(2**62))
        size = max(1, min(BATCH, len(order) // BATCHES))
        searching, updating, since = 0.0, 0.0, 0
        for batch in parallel.ranges(len(order), size):
            some = order[batch.start : batch.stop]
            found, work = self._search(some, parts[batch.start : batch.stop], seed)
            searching += work
            updating += self._update(some, found)
            since += len(some)
            if since >= max(self.visits, BATCH):  # lists become rows, and zeros leave them
                self._rebuild(since)
                since = 0
            report(batch.stop)
        if since:
            self._rebuild(since)
        if searching > 2 * SLOT_WORK * updating and not self.selected:
            self.returned = min(2 * self.returned, MOST_RETURNED)  # section 4.4

    def _search(self, rows: np.ndarray, parts: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
        found = np.full((len(rows), self.returned), kernels.NOWHERE, np.uint32)
        if self.selected:
            return found[:, :0], 0.0

        def search(thread: int) -> float:
            share = slice(*(len(rows) * part // self.threads for part in (thread, thread + 1)))
            peaks = np.empty(self.returned, np.float32)
            return search_rows(
                rows[share], parts[share], self.problem.X, self.members, self.rate, np.uint64(seed), self.weights,
                *self.buffers[thread], peaks, found[share],
            )  # fmt: skip

        return found, sum(self.run(search, range(self.threads)))

    def _update(self, rows: np.ndarray, found: np.ndarray) -> float:
        scratch, done, status = self._scratch(), 0, -1
        while status != kernels.DONE:
            done, status = kernels.update_rows(
                rows, done, self.problem.X, self.problem.squares, self.problem.n_positive, found, self.C,
                np.float32(self.lam), self.selected, self.weights, self.members, scratch,
            )  # fmt: skip
            self._grow(status)
        return float(scratch.work[0])

    def _scratch(self) -> Scratch:
        return Scratch.of(int(self.members.largest[0]) + self.returned)

    def _grow(self, status: int) -> None:
        if status == kernels.MORE_MEMBERS:
            held = self.members.held
            held.resize(len(held) + len(held) // 2 + 2 * len(self._scratch().labels), refcheck=False)
        elif status != kernels.DONE:
            self.weights.grow(status)

    def _rebuild(self, visited: int) -> None:
        self.visits += visited
        self.weights = self.weights.rebuild(self.lam)

    # --- points of the path ------------------------------------------------------------------------------------------

    def point(self) -> Point:
        return Point(self.C, self.lam, self.members.copy())

    def go_back(self, point: Point) -> None:
        """The state at `point`: V is made anew from its alphas."""
        problem = self.problem
        self.members, self.selected, self.C = point.members.copy(), False, point.C
        self.weights = Weights.empty(problem.n_features, problem.n_labels, self.parts)
        rows, scratch, done, status = np.arange(problem.n_samples, dtype=np.uint32), self._scratch(), 0, -1
        while status != kernels.DONE:
            done, status = kernels.restore_rows(rows, done, problem.X, self.weights, self.members, scratch)
            self._grow(status)
        self.set_strength(point.C, point.lam)

    def take_back(self, point: Point, weights: Weights) -> None:
        """The state at `point`, given its weights."""
        self.members, self.weights, self.selected = point.members, weights, False
        self.set_strength(point.C, point.lam)

    def select(self) -> None:
        """Keep the weights that are not zero now, and train these alone, with lam = 0 (section 4.3)."""
        self.weights, self.selected = self.weights.selected(self.lam), True
        self.set_strength(self.C, 0.0)

    # --- what has been learned ---------------------------------------------------------------------------------------

    def top(self, rows: np.ndarray, k: int) -> np.ndarray:
        """The k best labels of these rows, by their own numbers."""
        out = np.empty((len(rows), k), np.uint32)
        rows = rows.astype(np.uint32)

        def score(thread: int) -> None:
            share = slice(*(len(rows) * part // self.threads for part in (thread, thread + 1)))
            top_rows(rows[share], self.problem.X, self.weights, self.buffers[thread][0], out[share])

        self.run(score, range(self.threads))
        return np.argsort(self.problem.number_of)[out]

    def W(self) -> sp.csr_array:  # noqa: N802 - the symbol of the paper
        return self.weights.to_csr(self.lam, self.problem.number_of)

    def dual(self) -> float:
        """G (14) of all rows; a row that is empty has alphas that move nothing, so they count as C."""
        square, total = dual_parts(self.weights, np.float32(self.lam), self.members)
        empty = int((self.problem.squares[self.problem.active] == 0).sum())
        return 0.5 * square - total - self.C * empty
