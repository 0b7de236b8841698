"""From parameters to weights: the choice of C and lam on held-out rows, when to stop, and the post-solve.

Section 5 of the paper chooses lam on held-out data, and stops when three passes bring no gain there. Here C can be
chosen, too: its best value differs from data to data by a factor of ten and more. Stages of training:

    path         each pair (C, lam) is trained for two passes over a sample of the rows, lam falling, each going on from
                 the one before; a new C begins anew. The best pair on held-out rows is taken.
    train        passes over all rows that are not held out, from zero, until there is no more gain; the best counts.
    post-solve   the l2 problem on the selected weights (section 4.3); undone where held-out rows are against it.
    refit        the held-out rows are learned from: where they are many of all rows, by as many passes over all rows,
                 from zero, as were best; where they are few, by one more pass over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail import metrics
from longtail.methods.pd_sparse.frank_wolfe import FrankWolfe
from longtail.topk import TopK

PROBE_ROWS, PROBE_PASSES = 4000, 2
PATIENCE = 3  # passes without gain on held-out rows
REFIT_SHARE = 0.05  # of all rows, above which held-out rows are many
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
        """Leaves the solver at the best of the pairs (C, lam), trained."""
        n, checked = len(self.training) + len(self.held_out), len(self.held_out) > 0
        anew = len(self.held_out) > REFIT_SHARE * n
        sample = self.solver.rng.permutation(self.training)[:PROBE_ROWS]
        path = PROBE_PASSES * len(pairs) * len(sample) if len(pairs) > 1 else 0
        self.planned = path + self.max_iter * (1 + anew) * n
        pair = self._best_pair(pairs, sample) if len(pairs) > 1 else pairs[0]
        self.solver.start(*pair)
        best = self._train(self.max_iter - (checked and not anew), keep=not anew)
        if checked:
            better = post_solve and self._post_solve_helps()
            if anew:
                self.solver.start(*pair)
            self._refit(best if anew else 1, post_solve=better)

    @property
    def chosen(self) -> tuple[float, float]:
        """C and lam that the weights were trained with, before any post-solve."""
        last = [done for done in self.history if done.stage in ("train", "refit")][-1]
        return last.C, last.lam

    def _best_pair(self, pairs: Sequence[tuple[float, float]], sample: np.ndarray) -> tuple[float, float]:
        best, score, last = pairs[0], -1.0, np.nan
        for C, lam in pairs:
            if last == C:
                self.solver.set_strength(C, lam)
            else:
                self.solver.start(C, lam)
            last = C
            for _ in range(PROBE_PASSES):
                done = self._pass("path", sample)
            if done.precision > score:
                best, score = (C, lam), done.precision
        return best

    def _train(self, passes: int, *, keep: bool) -> int:
        """Passes over the training rows until there is no more gain; tells which was best, and ends there if `keep`."""
        best, at, score, objective = None, 0, -1.0, np.inf
        for number in range(1, max(passes, 1) + 1):
            done = self._pass("train", self.training)
            if len(self.held_out) == 0:
                if objective - done.objective <= self.tol * abs(done.objective):
                    break
                objective = done.objective
            elif done.precision > score:
                best, at, score = self.solver.point(), number, done.precision
            elif number - at == PATIENCE:
                break
        if keep and best is not None and at < number:
            self.solver.go_back(best)
        return at

    def _post_solve_helps(self) -> bool:
        """Whether the post-solve raises the precision on held-out rows; it is undone."""
        before, point, weights = self.precision(), self.solver.point(), self.solver.weights
        self.solver.select()
        after = self._pass("post-solve", self.training).precision
        self.solver.take_back(point, weights)
        return after > before

    def _refit(self, passes: int, *, post_solve: bool) -> None:
        rows = np.concatenate([self.training, self.held_out])
        for _ in range(passes):
            self._pass("refit", rows)
        if post_solve:
            self.solver.select()
            self._pass("post-solve", rows)

    def _pass(self, stage: str, rows: np.ndarray) -> Pass:
        solver, before = self.solver, self.visited

        def report(done: int) -> None:
            self.visited = before + done
            self.report(min(1.0, self.visited / self.planned))

        solver.run_pass(rows, report)
        done = Pass(
            stage,
            solver.C,
            solver.lam,
            len(rows),
            self.precision(),
            solver.dual(),
            float(solver.members.size[rows].sum()) / max(len(rows), 1),
            solver.weights.n_weights / solver.problem.n_features,
        )
        self.history.append(done)
        return done

    def precision(self) -> float:
        """On the held-out rows: at 1 if each has one label, else the mean of that at 1, 3 and 5."""
        if len(self.held_out) == 0:
            return np.nan
        labels = self.solver.top(self.held_out, min(DEPTH, self.solver.problem.n_labels)).astype(np.int32)
        at = metrics.precision_curve(self.Y_held_out, TopK(labels, np.zeros(labels.shape, np.float32)))
        one_each = bool((np.diff(self.Y_held_out.indptr) == 1).all())
        return float(at[0] if one_each else at[:DEPTH:2].mean())
