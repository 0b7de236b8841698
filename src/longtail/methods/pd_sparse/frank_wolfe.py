"""Fully-corrective block-coordinate Frank-Wolfe: Algorithm 1 of the paper, on mini-batches.

The problem (13) and its dual (14), over A = (alpha_ik), one block of variables per row i:

    P(W) = sum_k 1/2 |w_k|^2 + lam |w_k|_1  +  C sum_i L(W'x_i, y_i)                                      (13)
    G(A) = 1/2 sum_k |w_k|^2 + sum_i sum over negative k of alpha_ik,                                     (14)
           w_k = prox(v_k),  v_k = X'alpha_k                                                              (15)
    alpha_ik >= 0 for the labels k of row i, <= 0 for all others; each group adds up to t_i in [0, C]     (16)

L is the separation ranking loss (2): one plus the best score of a negative label minus the worst score of a positive
label, or zero if that is negative. -G(A) never exceeds P(W), and equals it at the optimum. A pass visits every row
once, in random order:

    1. Search: the negative labels that violate the row's margin most join its active set.     (20), (24), (25)
    2. Update: the row's variables of active labels move to the minimum of (21), by a projection.          (22)
    3. Negative labels whose variable is zero leave the active set; v and w follow.                        (23)

Differs from the paper: rows are processed in mini-batches. The searches of a batch run in parallel and read the weights
from before the batch. Then the rows are updated one after the other, with fresh scores of their active labels, so no
update increases G. With batches of one row, this is Algorithm 1. Batches depend on the data alone, so the number of
threads does not change the result. The rule of section 4.4 returns more labels from a search when searching takes most
of the time. Here it counts operations instead of seconds, for the same reason.

Symbols: N rows, D features, K labels. A_i, the active set of row i, is `members` of row i, positive labels first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import csr_parts, frozen
from longtail.matrix import row_squares
from longtail.methods.pd_sparse import frank_wolfe_kernels as kernels
from longtail.methods.pd_sparse.search import Search
from longtail.methods.pd_sparse.search_kernels import search_rows, top_rows
from longtail.methods.pd_sparse.table_kernels import dual_parts
from longtail.methods.pd_sparse.weights import WeightTables
from longtail.methods.state import joined, of, of_generator, set_generator, with_room

MEMBER = np.dtype([("label", np.uint32), ("alpha", np.float64)])
MIN_BATCHES = 64  # least number of batches in a pass, so small data has smaller batches
SPARE_MEMBERS = 4  # room for negative labels in a row's first active set
REBUILD = 256  # rows that are visited between two rebuilds of the lists, at least
SLOT_WORK = 25.0  # visiting a slot takes as long as reading this many entries of lists
MAX_RETURNED = 64


@dataclass(frozen=True)
class LabelledRows:
    """The rows, in the form that kernels take, and their labels.

    Labels are renumbered at random: label k has the number number_of[k] in training. X has the bias feature as its last
    column, if there is one.
    """

    X: tuple[np.ndarray, np.ndarray, np.ndarray]
    squares: np.ndarray  # |x_i|^2
    n_positive: np.ndarray  # number of labels of each row
    positives: np.ndarray  # numbers of the labels of row 0, of row 1, ...
    number_of: np.ndarray
    n_features: int

    @classmethod
    def of(cls, X: sp.csr_array, Y: sp.csr_array, bias: float, rng: np.random.Generator) -> LabelledRows:
        if bias:
            constant = np.full((X.shape[0], 1), bias, np.float32)
            X = sp.csr_array(sp.hstack([X, sp.csr_array(constant)], format="csr"))
        number_of = rng.permutation(Y.shape[1]).astype(np.uint32)
        return cls(
            X=csr_parts(X),
            squares=frozen(row_squares(X), np.float64),
            n_positive=frozen(np.diff(Y.indptr), np.uint32),
            positives=number_of[Y.indices],
            number_of=number_of,
            n_features=X.shape[1],
        )

    @property
    def n_samples(self) -> int:
        return len(self.squares)

    @property
    def n_labels(self) -> int:
        return len(self.number_of)

    @property
    def with_loss(self) -> np.ndarray:
        """The rows that can have a loss. Rows without labels, and rows with all labels, have none."""
        return np.flatnonzero((self.n_positive > 0) & (self.n_positive < self.n_labels))

    def sampling_rate(self, C: float) -> float:
        """Return d_i / d~_i: the features of a row divided by the features that are drawn (section 4.4)."""
        entries = len(self.X[0])
        log_labels = math.log(max(self.n_labels, 2))
        by_weights = 5.0 * self.n_features * self.n_labels / max(C * entries * log_labels, 1e-300)
        return float(math.ceil(max(1e-9, min(by_weights, entries / (5.0 * self.n_samples)))))


class Members(NamedTuple):
    """The active sets. Row i has held[start[i] : start[i] + size[i]], its positive labels first."""

    held: np.ndarray  # records of MEMBER
    start: np.ndarray
    size: np.ndarray
    room: np.ndarray  # records reserved for each row
    used: np.ndarray  # (1,) records reserved so far
    largest: np.ndarray  # (1,) size of the largest set so far

    @classmethod
    def of(cls, samples: LabelledRows) -> Members:
        """The positive labels of every row, with alpha = 0."""
        sizes = samples.n_positive.astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(sizes + SPARE_MEMBERS)])
        held = np.zeros(ends[-1] + ends[-1] // 2 + 1024, MEMBER)
        first = np.repeat(ends[:-1] - np.cumsum(sizes) + sizes, sizes)
        held["label"][first + np.arange(sizes.sum())] = samples.positives
        return cls(
            held=held,
            start=ends[:-1].astype(np.uint64),
            size=samples.n_positive.copy(),
            room=(sizes + SPARE_MEMBERS).astype(np.uint32),
            used=ends[-1:].astype(np.uint64),
            largest=np.array([sizes.max(initial=0)]),
        )

    @classmethod
    def one_each(cls, labels: np.ndarray) -> Members:
        """One label for each row, with alpha = 1."""
        held = np.zeros(len(labels), MEMBER)
        held["label"] = labels
        held["alpha"] = 1.0
        ones = np.ones(len(labels), np.uint32)
        return cls(
            held,
            np.arange(len(labels), dtype=np.uint64),
            ones,
            ones,
            np.array([len(labels)], np.uint64),
            ones[:1].astype(np.int64),
        )

    def copy(self) -> Members:
        return Members(*(part.copy() for part in self))

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays without the unused end of `held`. Records are returned as bytes."""
        return {**self._asdict(), "held": self.held[: int(self.used[0])].view(np.uint8)}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Members:
        """Rebuild the members from a `state`."""
        arrays = {name: state[name].copy() for name in cls._fields}
        arrays["held"] = with_room(arrays["held"].view(MEMBER), 1024)
        return cls(**arrays)


class RowScratch(NamedTuple):
    """Working space for the update of one row: arrays over its active labels."""

    labels: np.ndarray
    alpha: np.ndarray
    z: np.ndarray
    values: np.ndarray
    order: np.ndarray
    solved: np.ndarray
    moved: np.ndarray
    work: np.ndarray  # (1,)

    @classmethod
    def of(cls, size: int) -> RowScratch:
        return cls(
            labels=np.zeros(size, np.uint32),
            alpha=np.zeros(size),
            z=np.zeros(size),
            values=np.zeros(size),
            order=np.zeros(size, np.int64),
            solved=np.zeros(size),
            moved=np.zeros(size, np.uint32),
            work=np.zeros(1),
        )


@dataclass(frozen=True)
class Point:
    """A point of training: the parameters and the active sets, which determine the weights."""

    C: float
    lam: float
    members: Members


class FrankWolfe:
    """The state of training. `members`, `weights`, `C` and `lam` belong together and change together."""

    def __init__(
        self,
        samples: LabelledRows,
        search: Search,
        rng: np.random.Generator,
        team: parallel.Team,
        batch_size: int,
    ) -> None:
        self.samples = samples
        self.search = search
        self.rng = rng
        self.team = team
        self.batch_size = batch_size  # rows searched at a time, at most
        widest = int(np.diff(samples.X[2].view(np.int64)).max(initial=0))
        self.scores = [np.zeros(samples.n_labels, np.float32) for _ in range(team.size)]  # one buffer per thread
        self.factors = [np.empty(widest, np.float32) for _ in range(team.size)]
        self.start(1.0, 0.0)

    def start(self, C: float, lam: float) -> None:
        """Start at alpha = 0."""
        self.visits = 0
        self.selected = False
        self.C = C
        self.returned = self.search.returned
        self.members = Members.of(self.samples)
        self.weights = self._no_weights()
        self.set_strength(C, lam)

    def _no_weights(self) -> WeightTables:
        return WeightTables.empty(self.samples.n_features, self.samples.n_labels, self.search.parts)

    def set_strength(self, C: float, lam: float) -> None:
        """Continue with these parameters. A smaller C scales the alphas down, so that they stay feasible."""
        if C < self.C:
            self.members.held["alpha"] *= C / self.C
            self.weights.slots["v"] *= np.float32(C / self.C)
        self.C = C
        self.lam = lam
        self.rate = self._rate()
        self.weights = self.weights.rebuild(lam)

    def _rate(self) -> float:
        return self.samples.sampling_rate(self.C) if self.search.sampled else 1.0

    # --- a pass ------------------------------------------------------------------------------------------------------

    def run_pass(self, rows: np.ndarray, report: Callable[[int], None] = lambda done: None) -> None:
        """Run Algorithm 1 once over these rows, in random order. `report` receives the number of rows that are done."""
        order = self.rng.permutation(rows).astype(np.uint32)
        parts = self.rng.integers(self.search.parts, size=len(order))
        seed = int(self.rng.integers(2**62))
        searching = 0.0
        updating = 0.0
        since_rebuild = 0
        for batch in parallel.ranges(len(order), max(1, min(self.batch_size, len(order) // MIN_BATCHES))):
            batch_rows = order[batch.start : batch.stop]
            found, work = self._search(batch_rows, parts[batch.start : batch.stop], seed)
            searching += work
            updating += self._update(batch_rows, found)
            since_rebuild += len(batch_rows)
            if since_rebuild >= max(self.visits, REBUILD):  # long lists become rows, and zeros leave the lists
                self._rebuild(since_rebuild)
                since_rebuild = 0
            report(batch.stop)
        if since_rebuild:
            self._rebuild(since_rebuild)
        if searching > 2 * SLOT_WORK * updating and not self.selected:
            self.returned = min(2 * self.returned, MAX_RETURNED)  # section 4.4

    def _search(self, rows: np.ndarray, parts: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
        """Return the labels that the search found for each row, and the work it took."""
        found = np.full((len(rows), self.returned), kernels.NOWHERE, np.uint32)
        if self.selected:
            return found[:, :0], 0.0

        def search(thread: int) -> float:
            share = self._share(len(rows), thread)
            peaks = np.empty(self.returned, np.float32)
            work = search_rows(
                rows[share], parts[share], self.samples.X, self.members, self.rate, np.uint64(seed), self.weights,
                self.scores[thread], self.factors[thread], peaks, found[share],
            )  # fmt: skip
            return float(work)

        return found, sum(self.team.run(search, range(self.team.size)))

    def _share(self, n_rows: int, thread: int) -> slice:
        """The rows of a batch that a thread processes."""
        return slice(n_rows * thread // self.team.size, n_rows * (thread + 1) // self.team.size)

    def _update(self, rows: np.ndarray, found: np.ndarray) -> float:
        """Update the rows one after the other. Returns the work it took."""
        scratch = self._scratch()
        done = 0
        status = -1
        while status != kernels.DONE:
            done, status = kernels.update_rows(
                rows, done, self.samples.X, self.samples.squares, self.samples.n_positive, found, self.C,
                np.float32(self.lam), self.selected, self.weights, self.members, scratch,
            )  # fmt: skip
            self._grow(status)
        return float(scratch.work[0])

    def _scratch(self) -> RowScratch:
        return RowScratch.of(int(self.members.largest[0]) + self.returned)

    def _grow(self, status: int) -> None:
        """Enlarge the array that a kernel reported as too small."""
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
        """Return to `point`. V is computed from its alphas."""
        self.members = point.members.copy()
        self.selected = False
        self.C = point.C
        self._set_weights(self.samples.X, self.members)
        self.set_strength(point.C, point.lam)

    def start_from(self, C: float, lam: float, W: sp.csr_array) -> None:
        """Start at the weights W, which have one row per label. The alphas that gave them are not known.

        V = W + lam sign(W) gives these weights. It stays a part of V: v_k = V_k + X'alpha_k, with alphas from zero on.
        """
        self.start(C, lam)
        V = sp.csr_array((W.data + np.float32(lam) * np.sign(W.data), W.indices, W.indptr), shape=W.shape)
        self._set_weights(csr_parts(V), Members.one_each(self.samples.number_of))
        self.set_strength(C, lam)

    def _set_weights(self, X: tuple[np.ndarray, np.ndarray, np.ndarray], members: Members) -> None:
        """V = X'A, for the alphas of `members`."""
        self.weights = self._no_weights()
        rows = np.arange(len(members.start), dtype=np.uint32)
        scratch = self._scratch()
        done = 0
        status = -1
        while status != kernels.DONE:
            done, status = kernels.restore_rows(rows, done, X, self.weights, members, scratch)
            self._grow(status)

    def take_back(self, point: Point, weights: WeightTables) -> None:
        """Return to `point`, whose weights are given."""
        self.members = point.members
        self.weights = weights
        self.selected = False
        self.set_strength(point.C, point.lam)

    def select(self) -> None:
        """Keep the weights that are not zero now, and train only these, with lam = 0 (section 4.3)."""
        self.weights = self.weights.selected(self.lam)
        self.selected = True
        self.set_strength(self.C, 0.0)

    # --- to disk and back --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Return everything that a pass changes."""
        return joined(
            members=self.members.state(),
            weights=self.weights.state(),
            solver={
                "strength": np.array([self.C, self.lam]),
                "counts": np.array([self.returned, self.visits, self.selected], np.int64),
                "random": of_generator(self.rng),
            },
        )

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state`."""
        own = of(saved, "solver")
        set_generator(self.rng, own["random"])
        self.returned, self.visits, selected = own["counts"].tolist()
        self.selected = bool(selected)
        self.C, self.lam = own["strength"].tolist()
        self.rate = self._rate()
        self.members = Members.restored(of(saved, "members"))
        self.weights = self._no_weights().restored(of(saved, "weights"))

    # --- what has been learned ---------------------------------------------------------------------------------------

    def top(self, rows: np.ndarray, k: int) -> np.ndarray:
        """The k best labels of these rows, as columns of Y."""
        out = np.empty((len(rows), k), np.uint32)
        rows = rows.astype(np.uint32)

        def score(thread: int) -> None:
            share = self._share(len(rows), thread)
            top_rows(rows[share], self.samples.X, self.weights, self.scores[thread], out[share])

        self.team.run(score, range(self.team.size))
        return np.argsort(self.samples.number_of)[out]

    def W(self) -> sp.csr_array:  # noqa: N802 - the symbol of the paper
        return self.weights.to_csr(self.lam, self.samples.number_of)

    def dual(self) -> float:
        """G (14) over all rows. The alphas of an empty row change no weight, so each such row counts with t_i = C."""
        square, total = dual_parts(self.weights, np.float32(self.lam), self.members)
        empty = int((self.samples.squares[self.samples.with_loss] == 0).sum())
        return float(0.5 * square - total - self.C * empty)
