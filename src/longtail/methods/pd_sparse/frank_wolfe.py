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

Differs from the paper: rows are processed in mini-batches, in three steps, of which threads share the first and last:

    by row       Search, and scores z_i of the active labels, with the weights from before the batch.
    in order     One row after the other is updated. If D = X'(steps of earlier rows of the batch), its scores are taken
                 to be z_i + D'x_i, where D'x_i = sum of <x_i, x_s> times the steps of row s.
    by feature   v, w and the lists of the search follow, for each feature in the order of the rows.

G never rises: prox(v) is the gradient of 1/2 |prox(v)|^2 and prox does not expand, so

    1/2 |prox(V + D)|^2  <=  1/2 |prox(V)|^2 + <prox(V), D> + 1/2 |D|^2

and each update minimises this bound over the variables of its row. With lam = 0 it is exact. With batches of one row, D
is zero and this is Algorithm 1. Batches depend on the data alone, so the number of threads does not change the result.
The rule of section 4.4 returns more labels from a search when searching takes most of the time. Here it counts
operations instead of seconds, for the same reason.

Symbols: N rows, D features, K labels. A_i, the active set of row i, is `members` of row i, positive labels first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import csr_parts
from longtail.methods.pd_sparse import batch_kernels as kernels
from longtail.methods.pd_sparse.batch import LEFT, BatchRows, Columns, RowScratch, row_lengths
from longtail.methods.pd_sparse.frank_wolfe_kernels import solve_rows
from longtail.methods.pd_sparse.rows import LabelledRows, Members
from longtail.methods.pd_sparse.search import Search
from longtail.methods.pd_sparse.search_kernels import search_rows, top_rows
from longtail.methods.pd_sparse.table_kernels import add_alphas
from longtail.methods.pd_sparse.weights import WeightTables
from longtail.methods.state import joined, of, of_generator, set_generator

MIN_BATCHES = 64  # least number of batches in a pass, so small data has smaller batches
MAX_BATCH = 1024  # rows in a batch, at most; all pairs of them are multiplied
REBUILD = 256  # rows that are visited between two rebuilds of the lists, at least
SLOT_WORK = 25.0  # visiting a slot takes as long as reading this many entries of lists
SHARE_WORK = 4000  # visits of slots for which a thread is worth its start
MAX_RETURNED = 64


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
        self.batch_size = min(batch_size, MAX_BATCH)  # rows visited at a time, at most
        widest = int(np.diff(samples.X[2].view(np.int64)).max(initial=0))
        self.scores = [np.zeros(samples.n_labels, np.float32) for _ in range(team.size)]  # one buffer per thread
        self.factors = [np.empty(widest, np.float32) for _ in range(team.size)]
        self.place = np.full(samples.n_features, kernels.NOWHERE, np.uint32)  # of a feature in the columns of a batch
        self.last = np.full(samples.n_labels, kernels.NOWHERE, np.uint32)  # step on a label in a batch
        self.products = np.empty((0, 0), np.float32)  # of the rows of a batch
        self.left = np.empty(0, LEFT)  # changes that need room
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
        return WeightTables.empty(self.samples.n_features, self.samples.n_labels, self.search.subsets)

    def set_strength(self, C: float, lam: float) -> None:
        """Continue with these parameters. A smaller C scales the alphas down, so that they stay feasible."""
        if C < self.C:
            self.members.held["alpha"] *= C / self.C
            self.weights.slots["v"] *= np.float32(C / self.C)
        self.C = C
        self.lam = lam
        self.rate = self._rate()
        self.weights = self.weights.rebuild(lam, self.team)

    def _rate(self) -> float:
        return self.samples.sampling_rate(self.C) if self.search.sampled else 1.0

    # --- a pass ------------------------------------------------------------------------------------------------------

    def run_pass(self, rows: np.ndarray, report: Callable[[int], None] = lambda done: None) -> None:
        """Run Algorithm 1 once over these rows, in random order. `report` receives the number of rows that are done."""
        order = self.rng.permutation(rows).astype(np.uint32)
        subsets = self.rng.integers(self.search.subsets, size=len(order))
        seed = int(self.rng.integers(2**62))
        searching = 0.0
        updating = 0.0
        since_rebuild = 0
        for some in parallel.ranges(len(order), max(1, min(self.batch_size, len(order) // MIN_BATCHES))):
            batch_rows = order[some.start : some.stop]
            searched, updated = self._visit(batch_rows, subsets[some.start : some.stop], seed)
            searching += searched
            updating += updated
            since_rebuild += len(batch_rows)
            if since_rebuild >= max(self.visits, REBUILD):  # long lists become rows, and zeros leave the lists
                self._rebuild(since_rebuild)
                since_rebuild = 0
            report(some.stop)
        if since_rebuild:
            self._rebuild(since_rebuild)
        if searching > 2 * SLOT_WORK * updating and not self.selected:
            self.returned = min(2 * self.returned, MAX_RETURNED)  # section 4.4

    def _visit(self, rows: np.ndarray, subsets: np.ndarray, seed: int) -> tuple[float, float]:
        """Search and update the rows of a batch. Returns the work that searches and updates took."""
        lengths = row_lengths(rows, self.samples.X)
        batch = BatchRows.of(rows, self.members.size[rows] + np.uint32(self.returned))
        columns = Columns.of(rows, self.samples.X, int(lengths.sum()), self.place)
        searched = self._search(batch, columns, lengths, subsets, seed)
        self._solve(batch)
        self._change(batch, columns, self.lam)
        return searched, float(lengths @ (batch.size + batch.n_moved.view(np.int64)))

    def _search(self, batch: BatchRows, columns: Columns, lengths: np.ndarray, subsets: np.ndarray, seed: int) -> float:
        """Find new active labels of the rows, score all active labels, and multiply the rows with each other. Returns
        the work of the search."""
        n_rows = len(batch.rows)
        found = np.full((n_rows, self.returned), kernels.NOWHERE, np.uint32)
        if len(self.products) < n_rows:
            self.products = np.empty((n_rows, n_rows), np.float32)
        ends = np.cumsum(lengths * batch.room)
        shares = self._shares(ends, ends[-1])
        triangle = self._shares(np.arange(1, n_rows + 1) ** 2, ends[-1])

        def search(thread: int) -> float:
            begin, end = shares[thread]
            some = slice(begin, end)
            work = 0.0
            if not self.selected:
                peaks = np.empty(self.returned, np.float32)
                work = search_rows(
                    batch.rows[some], subsets[some], self.samples.X, self.members, self.rate, np.uint64(seed),
                    self.weights, self.scores[thread], self.factors[thread], peaks, found[some],
                )  # fmt: skip
            kernels.score_rows(
                begin, end, found, self.samples.X, self.members, self.weights, np.float32(self.lam), batch
            )
            if n_rows > 1:
                kernels.multiply_rows(*triangle[thread], self.samples.X, batch, self.place, columns, self.products)
            return float(work)

        work = sum(self.team.run(search, range(len(shares))))
        self.place[columns.feature] = kernels.NOWHERE
        return work

    def _solve(self, batch: BatchRows) -> None:
        """Set the alphas of the rows, one after the other."""
        self.members.reserve(2 * int(batch.size.sum()))
        solve_rows(
            self.samples.squares, self.samples.n_positive, self.C, self.products, self.weights.subset_width, batch,
            self.last, self.members, RowScratch.of(int(batch.size.max())),
        )  # fmt: skip

    def _change(self, batch: BatchRows, columns: Columns, lam: float) -> None:
        """V += X' steps, for the rows of the batch. w and the lists follow."""
        ends = columns.first.view(np.int64)
        most = int(batch.n_moved.max())  # changes of a feature by a row
        if not most or not ends[-1]:
            return
        if len(self.left) < most * ends[-1]:
            self.left = np.empty(most * ends[-1], LEFT)
        shares = self._shares(ends[1:], ends[-1] * batch.n_moved.mean())

        def change(thread: int) -> np.ndarray:
            begin, end = shares[thread]
            left = self.left[most * ends[begin] : most * ends[end]]
            number = kernels.change_features(
                begin, end, columns, batch, self.weights, np.float32(lam), self.selected, left
            )
            return left[:number]

        for left in self.team.run(change, range(len(shares))):
            done = 0
            while done < len(left):
                done, status = kernels.finish_changes(left, done, self.weights, np.float32(lam))
                if status != kernels.DONE:
                    self.weights.grow(status)

    def _shares(self, ends: np.ndarray, work: float) -> list[tuple[int, int]]:
        """Divide items into ranges for threads. `ends` are the relative times that they take, accumulated, and `work`
        is all of it in visits of slots. Threads with too little to do would cost more than they gain."""
        n = min(self.team.size, 1 + int(work / SHARE_WORK))
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n) / n).tolist() if n > 1 else []
        return list(itertools.pairwise([0, *cuts, len(ends)]))

    def _rebuild(self, visited: int) -> None:
        self.visits += visited
        self.weights = self.weights.rebuild(self.lam, self.team)

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
        for some in parallel.ranges(len(members.start), MAX_BATCH):
            rows = np.arange(some.start, some.stop, dtype=np.uint32)
            columns = Columns.of(rows, X, int(row_lengths(rows, X).sum()), self.place)
            self.place[columns.feature] = kernels.NOWHERE
            self._change(BatchRows.from_zero(rows, members, self.weights.subset_width), columns, np.inf)

    def take_back(self, point: Point, weights: WeightTables) -> None:
        """Return to `point`, whose weights are given."""
        self.members = point.members
        self.weights = weights
        self.selected = False
        self.set_strength(point.C, point.lam)

    def select(self) -> None:
        """Keep the weights that are not zero now, and train only these, with lam = 0 (section 4.3)."""
        self.weights = self.weights.selected(self.lam, self.team)
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

        shares = self._shares(np.arange(1, len(rows) + 1), len(rows) * self.samples.n_labels)

        def score(thread: int) -> None:
            some = slice(*shares[thread])
            top_rows(rows[some], self.samples.X, self.weights, self.scores[thread], out[some])

        self.team.run(score, range(len(shares)))
        return np.argsort(self.samples.number_of)[out]

    def W(self) -> sp.csr_array:  # noqa: N802 - the symbol of the paper
        return self.weights.to_csr(self.lam, self.samples.number_of, self.team)

    def dual(self) -> float:
        """G (14) over all rows. The alphas of an empty row change no weight, so each such row counts with t_i = C."""
        square = self.weights.square(self.lam, self.team)
        total = add_alphas(0, self.samples.n_samples, self.members)
        empty = int((self.samples.squares[self.samples.with_loss] == 0).sum())
        return float(0.5 * square - total - self.C * empty)
