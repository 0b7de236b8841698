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

Differs from the paper: rows are processed in mini-batches, so that threads can share the work. Let W be the weights
from before a batch B, and D_k the changes of alpha_k in it. Because prox is 1-Lipschitz,

    G(A + D) <= G(A) + sum_i <W'x_i + e_i, d_i> + 1/2 sum_k |X_B' D_k|^2,    e_ik = 1 for negative k, otherwise 0,

and both sides are equal for D = 0. A batch lowers the right side, one row after the other:

    1. Threads search, and score the active labels, row by row: both read W.
    2. One thread updates the rows in their order. It adds the changes by earlier rows, sum_s d_sk <x_i, x_s>,
       to the scores. The right side has the curvature |x_i|^2 in the block of row i, so (21) is its exact minimum.
    3. Threads add the changes to V and W, feature by feature.

So no batch increases G. With batches of one row, this is Algorithm 1. Batches depend on the data alone, and every v is
summed in the order of the rows, so the number of threads does not change the result. The rule of section 4.4 returns
more labels from a search when searching takes most of the time. Here it counts operations instead of seconds, for the
same reason.

Symbols: N rows, D features, K labels. A_i, the active set of row i, is `members` of row i, positive labels first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.compiled import csr_parts, frozen
from longtail.matrix import row_squares
from longtail.methods.pd_sparse import frank_wolfe_kernels, update_kernels
from longtail.methods.pd_sparse.mini_batch import AlphaMoves, Batch, Columns, Members, Scratch
from longtail.methods.pd_sparse.search import Search
from longtail.methods.pd_sparse.search_kernels import search_rows, top_rows
from longtail.methods.pd_sparse.table_kernels import sum_of_alphas
from longtail.methods.pd_sparse.weights import WeightTables
from longtail.methods.state import joined, of, of_generator, set_generator

MIN_BATCHES = 64  # least number of batches in a pass, so small data has smaller batches
RESTORED = 1024  # rows whose alphas are added to V at a time
REBUILD = 256  # rows that are visited between two rebuilds of the lists, at least
SLOT_WORK = 25.0  # visiting a slot takes as long as reading this many entries of lists
MAX_RETURNED = 64  # labels


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
        batch_size: int = 256,
    ) -> None:
        self.samples = samples
        self.search = search
        self.rng = rng
        self.team = team
        self.batch_size = batch_size
        self.lengths = np.diff(samples.X[2].view(np.int64))
        widest = int(self.lengths.max(initial=0))
        self.scores = [np.zeros(samples.n_labels, np.float32) for _ in range(team.size)]  # one buffer per thread
        self.factors = [np.empty(widest, np.float32) for _ in range(team.size)]
        self._space: tuple[Batch, AlphaMoves, Scratch] | None = None
        self._columns = [Columns.of(samples.n_features, 0) for _ in range(team.size)]
        self.start(1.0, 0.0)

    def start(self, C: float, lam: float) -> None:
        """Start at alpha = 0."""
        self.visits = 0
        self.selected = False
        self.C = C
        self.returned = self.search.returned
        self.members = Members.of(self.samples.n_positive, self.samples.positives)
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
        self.weights = self.weights.rebuild(lam, self.team)

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
            searched, updated = self._run_batch(batch_rows, parts[batch.start : batch.stop], np.uint64(seed))
            searching += searched
            updating += updated
            since_rebuild += len(batch_rows)
            if since_rebuild >= max(self.visits, REBUILD):  # long lists become rows, and zeros leave the lists
                self._rebuild(since_rebuild)
                since_rebuild = 0
            report(batch.stop)
        if since_rebuild:
            self._rebuild(since_rebuild)
        if searching > 2 * SLOT_WORK * updating and not self.selected:
            self.returned = min(2 * self.returned, MAX_RETURNED)  # section 4.4

    def _run_batch(self, rows: np.ndarray, parts: np.ndarray, seed: np.uint64) -> tuple[float, float]:
        """Update the rows of a mini-batch. Returns the work of searching and of updating."""
        batch, moves, scratch = self._space_for(len(rows), int(self.members.largest[0]) + self.returned)
        found = np.full((len(rows), 0 if self.selected else self.returned), update_kernels.NOWHERE, np.uint32)
        lam = np.float32(self.lam)

        def look(thread: int) -> float:
            share = self._share(len(rows), thread)
            work = 0.0
            if not self.selected:
                work = search_rows(
                    rows[share], parts[share], self.samples.X, self.members, self.rate, seed, self.weights,
                    self.scores[thread], self.factors[thread], np.empty(self.returned, np.float32), found[share],
                )  # fmt: skip
            update_kernels.score_rows(
                rows, share.start, share.stop, self.samples.X, found, self.members, lam, self.weights, batch,
                self._columns_for(rows[share], thread),
            )  # fmt: skip
            return float(work)

        searching = sum(self.team.run(look, range(self.team.size)))
        self.members.reserve(2 * int(batch.size[: len(rows)].sum()))
        updating = frank_wolfe_kernels.solve_rows(
            rows, self.samples.X, self.samples.squares, self.samples.n_positive, self.C, self.weights.part_width,
            self.members, batch, moves, scratch,
        )  # fmt: skip
        self._apply(rows, moves, lam)
        return searching, float(updating)

    def _share(self, n_rows: int, thread: int) -> slice:
        """The rows of a batch that a thread processes."""
        return slice(n_rows * thread // self.team.size, n_rows * (thread + 1) // self.team.size)

    def _space_for(self, n_rows: int, width: int) -> tuple[Batch, AlphaMoves, Scratch]:
        """Arrays for a batch of this many rows with at most `width` active labels each. They are used again."""
        space = self._space
        if space is None or space[0].labels.shape[0] < n_rows or space[0].labels.shape[1] < width:
            width += width // 4
            scratch = Scratch.of(n_rows, width, self.samples.n_features, self.samples.n_labels)
            space = self._space = (Batch.of(n_rows, width), AlphaMoves.of(n_rows, n_rows * width), scratch)
        return space

    def _columns_for(self, rows: np.ndarray, thread: int) -> Columns:
        """Arrays for the entries of these rows. They are used again."""
        size = int(self.lengths[rows].sum())
        if len(self._columns[thread].x) < size:
            self._columns[thread] = Columns.of(self.samples.n_features, size + size // 4)
        return self._columns[thread]

    def _apply(self, rows: np.ndarray, moves: AlphaMoves, lam: np.float32) -> None:
        """Change V and W by the moves of these rows. Threads take groups of shards."""
        columns = self._columns_for(rows, 0)
        n_features = update_kernels.by_feature(rows, 0, len(rows), self.samples.X, columns)
        n_groups = min(update_kernels.SHARDS, 2 * self.team.size if self.team.size > 1 else 1)
        ends = [update_kernels.SHARDS * group // n_groups for group in range(n_groups + 1)]
        begun = [0] * n_groups

        def change(group: int) -> tuple[int, int]:
            begun[group], status, shard = update_kernels.apply_moves(
                begun[group], n_features, ends[group], ends[group + 1], lam, self.selected, self.weights, moves, columns
            )
            return status, shard

        unfinished = list(range(n_groups))
        while unfinished:
            ended = dict(zip(unfinished, self.team.run(change, unfinished), strict=True))
            unfinished = [group for group, (status, _) in ended.items() if status != update_kernels.DONE]
            for group in unfinished:
                self.weights.grow(*ended[group])

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
        self.weights = self._no_weights()
        rows = np.arange(self.samples.n_samples, dtype=np.uint32)
        for some in parallel.ranges(len(rows), RESTORED):
            chosen = rows[some.start : some.stop]
            moves = AlphaMoves.of(len(chosen), int(self.members.size[chosen].sum()))
            frank_wolfe_kernels.all_members(chosen, self.weights.part_width, self.members, moves)
            self._apply(chosen, moves, np.float32(np.inf))
        self.set_strength(point.C, point.lam)

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

        def score(thread: int) -> None:
            share = self._share(len(rows), thread)
            top_rows(rows[share], self.samples.X, self.weights, self.scores[thread], out[share])

        self.team.run(score, range(self.team.size))
        return np.argsort(self.samples.number_of)[out]

    def W(self) -> sp.csr_array:  # noqa: N802 - the symbol of the paper
        return self.weights.to_csr(self.lam, self.samples.number_of, self.team)

    def dual(self) -> float:
        """G (14) over all rows. The alphas of an empty row change no weight, so each such row counts with t_i = C."""
        empty = int((self.samples.squares[self.samples.with_loss] == 0).sum())
        square = self.weights.square(self.lam, self.team)
        return float(0.5 * square - sum_of_alphas(self.members) - self.C * empty)
