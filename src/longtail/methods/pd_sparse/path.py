"""From parameters to weights: the choice of C and lam on held-out rows, when to stop, and the post-solve.

Section 5 of the paper chooses lam on held-out data and stops when three passes bring no gain there. Here C is chosen,
too, since its best value differs from data to data by a factor of ten and more. To keep that cheap, each pair (C, lam)
of the path is trained for two passes over a sample of the rows, beginning with the largest lam of each C and going on
from there to the smaller ones. The best pair goes on from where it stood, over all rows. A last pass takes the held-out
rows in as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail import metrics
from longtail.methods.pd_sparse.frank_wolfe import FrankWolfe, Point
from longtail.topk import TopK

PROBE_ROWS, PROBE_PASSES = 8000, 2
PATIENCE = 3  # passes without gain on held-out rows
POST_PASSES = 2
DEPTH = 5  # precision is looked at for so many labels


@dataclass(frozen=True)
class Pass:
    """What one pass did: `stage` is "path", "train", "post-solve" or "refit".

    `precision` is that on the held-out rows (NaN without any), `objective` the dual one, which falls (14); `k_A` and
    `k_W` are the mean numbers of active labels per training row and of weights per feature, as in the paper's Table 3.
    """

    stage: str
    C: float
    lam: float
    rows: int
    precision: float
    objective: float
    k_A: float  # noqa: N815 - the symbol of the paper
    k_W: float  # noqa: N815


@dataclass
class Path:
    """Training by passes, with what happened in `history`."""

    solver: FrankWolfe
    training: np.ndarray  # rows
    held_out: np.ndarray
    Y_held_out: sp.csr_array
    max_iter: int
    tol: float
    report: Callable[[float], None]  # hears the share of the work that is done

    def __post_init__(self) -> None:
        self.history: list[Pass] = []
        self.visited, self.planned = 0, 1

    def run(self, pairs: Sequence[tuple[float, float]], *, post_solve: bool) -> None:
        """Leaves the solver at the best of the pairs (C, lam), trained on all rows."""
        checked = len(self.held_out) > 0
        sample = self.solver.rng.permutation(self.training)[:PROBE_ROWS]
        steps = PROBE_PASSES * len(pairs) * len(sample) if len(pairs) > 1 else 0
        self.planned = steps + self.max_iter * len(self.training) + len(self.held_out)
        if len(pairs) > 1:
            self.solver.go_back(self._best_pair(pairs, sample))
        else:
            self.solver.set_strength(*pairs[0])
        self._train(self.max_iter - checked)
        improves = post_solve and checked and self._post_solve_improves()
        if checked:
            self._pass("refit", np.concatenate([self.training, self.held_out]))
        if improves or (post_solve and not checked):
            self._post_solve(np.concatenate([self.training, self.held_out]))

    @property
    def chosen(self) -> tuple[float, float]:
        """C and lam that the weights were trained with, before any post-solve."""
        last = [done for done in self.history if done.stage in ("train", "refit")][-1]
        return last.C, last.lam

    def _best_pair(self, pairs: Sequence[tuple[float, float]], sample: np.ndarray) -> Point:
        start, best, score = self.solver.point(), None, -1.0
        for at, (C, lam) in enumerate(pairs):
            if at and C != pairs[at - 1][0]:
                self.solver.go_back(start)
            self.solver.set_strength(C, lam)
            for _ in range(PROBE_PASSES):
                self._pass("path", sample)
            if self.history[-1].precision > score:
                best, score = self.solver.point(), self.history[-1].precision
        assert best is not None
        return best

    def _train(self, passes: int) -> None:
        """Passes over the training rows until there is no more gain; ends at the best of them."""
        best, score, since, objective = None, -1.0, 0, np.inf
        for _ in range(passes):
            done = self._pass("train", self.training)
            if len(self.held_out) == 0:
                if objective - done.objective <= self.tol * abs(done.objective):
                    return
                objective = done.objective
            elif done.precision > score:
                best, score, since = self.solver.point(), done.precision, 0
            else:
                since += 1
                if since == PATIENCE:
                    break
        if since and best is not None:
            self.solver.go_back(best)

    def _post_solve_improves(self) -> bool:
        """Try the post-solve on the held-out rows, and undo it."""
        before, point = self.precision(), self.solver.point()
        weights = self.solver.weights
        self._post_solve(self.training)
        better = self.history[-1].precision > before
        self.solver.take_back(point, weights)
        return better

    def _post_solve(self, rows: np.ndarray) -> None:
        self.solver.select()
        for _ in range(POST_PASSES):
            self._pass("post-solve", rows)

    def _pass(self, stage: str, rows: np.ndarray) -> Pass:
        solver, before = self.solver, self.visited

        def report(done: int) -> None:
            self.visited = before + done
            self.report(min(1.0, self.visited / self.planned))

        solver.run_pass(rows, report)
        weights = int(solver.weights.nonzeros(solver.lam).sum())
        done = Pass(
            stage,
            solver.C,
            solver.lam,
            len(rows),
            self.precision(),
            solver.dual(),
            float(solver.members.size[rows].mean()),
            weights / solver.problem.n_features,
        )
        self.history.append(done)
        return done

    def precision(self) -> float:
        """On the held-out rows: at 1 if each has one label, else the mean of that at 1, 3 and 5."""
        if len(self.held_out) == 0:
            return np.nan
        labels = self.solver.top(self.held_out, min(DEPTH, self.solver.problem.n_labels)).astype(np.int32)
        at = metrics.precision_at_k(self.Y_held_out, TopK(labels, np.zeros(labels.shape, np.float32)))
        one_each = bool((np.diff(self.Y_held_out.indptr) == 1).all())
        return float(at[0] if one_each else at[:DEPTH:2].mean())
