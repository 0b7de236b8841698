"""The stages of training: it chooses C and lam on held-out rows, trains until there is no gain, and post-solves.

Section 5 of the paper chooses lam on held-out data, and stops after three passes without gain on them. Here C can be
chosen as well, because its best value differs between data sets by a factor of ten or more. Training has these stages:

    path         Each pair (C, lam) is trained for two passes over a sample of the rows. lam decreases, and each pair
                 continues from the previous one; a new C begins at zero. The best pair on held-out rows is chosen.
                 `path="full"`, as in the paper: each pair is trained from zero on all rows, until there is no gain.
    train        Passes over all rows that are not held out, from zero, until there is no more gain. The weights of the
                 best pass are kept.
    post-solve   One pass, or more, on the l2 problem over the selected weights (section 4.3). It is undone unless it
                 raises the precision on held-out rows, or was asked for.
    refit        The model is also trained on the held-out rows. If their share is above REFIT_SHARE, training starts
                 again at zero, with the best number of passes, on all rows. Otherwise one more pass over all rows
                 follows. The paper has no such stage: `refit=False`.
    update       One pass over all rows, from the weights of an old model. More passes are not more accurate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy.sparse as sp

from longtail import metrics
from longtail.matrix import one_label_per_row
from longtail.methods.pd_sparse.frank_wolfe import FrankWolfe, Point
from longtail.methods.pd_sparse.rows import Members
from longtail.methods.pd_sparse.stage_options import PathStage, PostSolve
from longtail.methods.pd_sparse.weights import WeightTables
from longtail.methods.state import Arrays, joined, of
from longtail.parallel import Work
from longtail.topk import TopK
from longtail.training import Status, Training

PATH, TRAIN, POST_SOLVE, REFIT, UPDATE = range(5)
STAGES = ("path", "train", "post-solve", "refit", "update")
WHOLE = (TRAIN, REFIT, UPDATE)  # stages whose passes count: the others try a pair, or post-solve
REFIT_SHARE = 0.05  # share of held-out rows above which the refit starts at zero


@dataclass(frozen=True)
class Pass:
    """One pass: `stage` is a position in STAGES.

    `precision` is the precision on the held-out rows, or NaN if there are none. `objective` is the dual objective (14),
    which never increases within a stage. `k_A` is the mean number of active labels per training row and `k_W` the mean
    number of weights per feature, as in Table 3 of the paper.
    """

    stage: int
    C: float
    lam: float
    rows: int
    precision: float
    objective: float
    k_A: float  # noqa: N815 - the symbol of the paper
    k_W: float  # noqa: N815


PASS_DTYPES = {
    "stage": np.uint8, "C": np.float64, "lam": np.float64, "rows": np.int64, "precision": np.float64,
    "objective": np.float64, "k_A": np.float64, "k_W": np.float64,
}  # fmt: skip


def passes_of(figures: Mapping[str, np.ndarray]) -> list[Pass]:
    """Rebuild the history from the arrays of `pass_figures`."""
    columns = [figures[f"pass_{name}"].tolist() for name in PASS_DTYPES]
    return [Pass(*values) for values in zip(*columns, strict=True)]


def pass_figures(history: Sequence[Pass]) -> dict[str, np.ndarray]:
    """The history as arrays with an entry per pass: pass_stage, pass_C, and so on."""
    return {
        f"pass_{name}": np.array([getattr(done, name) for done in history], dtype)
        for name, dtype in PASS_DTYPES.items()
    }


@dataclass(frozen=True)
class ValidationRows:
    """The held-out rows, which decide about C, lam and early stopping. There may be none."""

    rows: np.ndarray
    Y: sp.csr_array  # labels of these rows
    n_iter_no_change: int
    depth: int  # labels per row that the precision considers

    def __bool__(self) -> bool:
        return len(self.rows) > 0

    def precision(self, solver: FrankWolfe) -> float:
        """Return P@1 if each row has one label, otherwise the mean of P@1, P@3, P@5, ... up to the depth."""
        labels = solver.top(self.rows, min(self.depth, solver.samples.n_labels)).astype(np.int32)
        curve = metrics.precision_curve(self.Y, TopK(labels, np.zeros(labels.shape, np.float32)))
        return float(curve[0] if one_label_per_row(self.Y) else curve[: self.depth : 2].mean())


def refits_from_zero(n_rows: int, n_held_out: int) -> bool:
    """Whether the refit starts at zero, because many rows were held out."""
    return n_held_out > REFIT_SHARE * n_rows


def planned_visits(n_rows: int, n_sample: int, n_pairs: int, path: PathStage, max_iter: int, *, from_zero: bool) -> int:
    """The visits of rows that progress is measured by: all passes of path, training and refit, without post-solves."""
    path_visits = (path.passes or max_iter) * n_pairs * n_sample if n_pairs > 1 else 0
    return path_visits + max_iter * (1 + from_zero) * n_rows


class StagedTraining:
    """Training by stages. `history` lists the passes; `status` tells how the stage "train" ended."""

    def __init__(
        self,
        solver: FrankWolfe,
        training: np.ndarray,
        held_out: ValidationRows,
        *,
        max_iter: int,
        may_run_out: bool,
        tol: float,
        work: Work | None = None,
    ) -> None:
        self.solver = solver
        self.training = training  # rows that are not held out
        self.held_out = held_out
        self.max_iter = max_iter
        self.may_run_out = may_run_out  # whether it is no failure to reach max_iter, because nobody asked for a number
        self.tol = tol
        self.work = work or Work()
        self.history: list[Pass] = []
        self.status = Status.COMPLETED
        self.visited = 0
        self.planned = 1
        self.best_point: Point | None = None  # best point of the stage "train"
        self.before_post_solve = np.nan  # precision before the post-solve
        self.post_solved = False  # whether the final weights are those of a post-solve
        self.earlier: deque[Pass] = deque()  # passes of an interrupted attempt that are still to be replayed

    def run(self, pairs: Sequence[tuple[float, float]], path: PathStage, *, post_solve: PostSolve, refit: bool) -> None:
        """Train with the best of the pairs (C, lam). The solver then holds the final weights."""
        n_rows = len(self.training) + len(self.held_out.rows)
        from_zero = refit and refits_from_zero(n_rows, len(self.held_out.rows))
        sample = self.solver.rng.permutation(self.training)[: path.rows]
        self._continue(self.work.saved())
        self.planned = planned_visits(n_rows, len(sample), len(pairs), path, self.max_iter, from_zero=from_zero)
        pair = self.best_pair(pairs, sample, path) if len(pairs) > 1 else pairs[0]
        self.solver.start(*pair)
        if not self.held_out:
            self._train_to_tolerance()
            self.post_solved = post_solve.when == "always"
            if self.post_solved:
                self._post_solve(self.training, post_solve.passes)
            return
        best = self._train_while_better(self.max_iter - (refit and not from_zero), keep_best=not from_zero)
        if post_solve.when == "auto":
            self.post_solved = self._post_solve_helps(post_solve.passes, keep=not refit)
        else:
            self.post_solved = post_solve.when == "always"
            if self.post_solved and not refit:
                self._post_solve(self.training, post_solve.passes)
        if from_zero:
            self.solver.start(*pair)
        if refit:
            self._refit(best if from_zero else 1, post_solve.passes if self.post_solved else 0)

    def run_as_before(self, pair: tuple[float, float], *, passes: int, post_solve: PostSolve) -> None:
        """Repeat an earlier fit on all rows: with the same pair (C, lam), the same number of passes, and a post-solve
        if it had one. The earlier fit was on most of the rows."""
        self._continue(self.work.saved())
        self.planned = (passes + post_solve.passes) * len(self.training)
        self.post_solved = post_solve.when != "never"
        self.solver.start(*pair)
        self._refit(passes, post_solve.passes)

    def run_update(self, pair: tuple[float, float], W: sp.csr_array) -> None:
        """Continue from the weights W with the pair (C, lam) that gave them."""
        self.planned = len(self.training)
        self.solver.start_from(*pair, W)
        self._pass(UPDATE, self.training)

    @property
    def chosen(self) -> tuple[float, float]:
        """C and lam of the weights, before any post-solve."""
        last = [done for done in self.history if done.stage in WHOLE][-1]
        return last.C, last.lam

    @property
    def n_iter(self) -> int:
        """The number of passes over the training rows, without the passes of the path and of the post-solve."""
        return sum(done.stage in WHOLE for done in self.history)

    def precision(self) -> float:
        """The precision on the held-out rows, or NaN if there are none."""
        return self.held_out.precision(self.solver) if self.held_out else np.nan

    def best_pair(
        self, pairs: Sequence[tuple[float, float]], sample: np.ndarray, path: PathStage
    ) -> tuple[float, float]:
        """Return the pair with the highest precision on held-out rows after the passes of `path` over `sample`."""
        best = pairs[0]
        best_precision = -1.0
        previous_C = np.nan
        for C, lam in pairs:
            if previous_C == C and path.passes is not None:
                self.solver.set_strength(C, lam)
            else:
                self.solver.start(C, lam)
            previous_C = C
            precision = self._try_pair(sample, path)
            if precision > best_precision:
                best = C, lam
                best_precision = precision
        return best

    def _try_pair(self, sample: np.ndarray, path: PathStage) -> float:
        """Return the precision after the passes of the path, or of the best pass if they end when there is no gain."""
        if path.passes is not None:
            return [self._pass(PATH, sample) for _ in range(path.passes)][-1].precision
        return self._passes_while_better(PATH, sample, self.max_iter)[1]

    def _train_to_tolerance(self) -> None:
        """Run passes until one lowers the objective by at most the share `tol`."""
        self.status = Status.COMPLETED if self.may_run_out else Status.MAX_ITER
        objective = np.inf
        for _ in range(self.max_iter):
            done = self._pass(TRAIN, self.training)
            if objective - done.objective <= self.tol * abs(done.objective):
                self.status = Status.CONVERGED
                return
            objective = done.objective

    def _passes_while_better(
        self, stage: int, rows: np.ndarray, passes: int, keep: Callable[[], None] = lambda: None
    ) -> tuple[int, float, int]:
        """Run passes until the held-out precision stops rising. Returns the number and the precision of the best pass,
        and the number of passes. Calls `keep` after every pass that is the best so far."""
        best: int = 0
        best_precision = -1.0
        for number in range(1, passes + 1):
            done = self._pass(stage, rows)
            if done.precision > best_precision:
                best = number
                best_precision = done.precision
                keep()
            elif number - best >= self.held_out.n_iter_no_change:
                break
        return best, best_precision, number

    def _train_while_better(self, passes: int, *, keep_best: bool) -> int:
        """The stage "train". Returns the number of the best pass. With `keep_best`, the solver returns to it."""

        def keep() -> None:
            self.best_point = self.solver.point() if keep_best else None

        passes = max(passes, 1)
        best, _, number = self._passes_while_better(TRAIN, self.training, passes, keep)
        if number < passes:
            self.status = Status.EARLY_STOPPED
        if self.best_point is not None and best < number:
            self.solver.go_back(self.best_point)
        return best

    def _post_solve(self, rows: np.ndarray, passes: int) -> float:
        """Post-solve on these rows. Returns the precision on held-out rows after it."""
        self.solver.select()
        return [self._pass(POST_SOLVE, rows) for _ in range(passes)][-1].precision

    def _post_solve_helps(self, passes: int, *, keep: bool) -> bool:
        """Try the post-solve. Returns whether it raised the precision on held-out rows. It is undone, except if it did
        and `keep`."""
        if not self.earlier:
            self.before_post_solve = self.precision()
        point = self.solver.point()
        weights = self.solver.weights
        helps = self._post_solve(self.training, passes) > self.before_post_solve
        if not (helps and keep):
            self.solver.take_back(point, weights)
        return helps

    def _refit(self, passes: int, post_solve: int) -> None:
        """Train on all rows: `passes` passes, and a post-solve of `post_solve` passes if that is not 0."""
        rows = np.concatenate([self.training, self.held_out.rows])
        for _ in range(passes):
            self._pass(REFIT, rows)
        if post_solve:
            self._post_solve(rows, post_solve)

    def _pass(self, stage: int, rows: np.ndarray) -> Pass:
        if self.earlier:
            return self._repeat()
        solver = self.solver
        before = self.visited

        def report(done: int) -> None:
            self.visited = before + done
            self.work.report(min(1.0, self.visited / self.planned))

        solver.run_pass(rows, report)
        done = Pass(
            stage=stage,
            C=solver.C,
            lam=solver.lam,
            rows=len(rows),
            precision=self.precision(),
            objective=solver.dual(),
            k_A=float(solver.members.size[rows].sum()) / max(len(rows), 1),
            k_W=solver.weights.n_weights / solver.samples.n_features,
        )
        self.history.append(done)
        if stage != POST_SOLVE:  # the post-solve is short and may be undone, so it is not saved
            self.work.save(self._state)
        return done

    # --- going on after an interruption ------------------------------------------------------------------------------

    def _state(self) -> dict[str, np.ndarray]:
        """Return the state after a pass."""
        scalars = np.array([self.visited, self.before_post_solve])
        best = {}
        if self.best_point is not None:
            strength = np.array([self.best_point.C, self.best_point.lam])
            best = {**self.best_point.members.state(), "strength": strength}
        passes, solver = pass_figures(self.history), self.solver.state()
        return joined(own={"scalars": scalars}, passes=passes, best=best, solver=solver)

    def _continue(self, saved: Arrays | None) -> None:
        """Prepare to replay the passes of an interrupted attempt without a solver.

        Every decision depends only on the figures of the passes. After the last of these passes, the solver continues
        from its saved state.
        """
        if saved is None:
            return
        self.earlier = deque(passes_of(of(saved, "passes")))
        visited, self.before_post_solve = of(saved, "own")["scalars"].tolist()
        self.visited = int(visited)
        self.saved = saved
        self.resting = self.solver
        self.solver = cast(FrankWolfe, _NoSolver())

    def _repeat(self) -> Pass:
        done = self.earlier.popleft()
        self.history.append(done)
        if not self.earlier:
            self.solver = self.resting
            self.solver.restore(of(self.saved, "solver"))
            best = of(self.saved, "best")
            if best:
                C, lam = best.pop("strength").tolist()
                self.best_point = Point(C, lam, Members.restored(best))
            self.saved = {}
        return done


class _NoSolver:
    """Replaces the solver while passes are replayed."""

    weights = None

    def start(self, C: float, lam: float) -> None: ...

    set_strength = start

    def select(self) -> None: ...

    def point(self) -> None: ...

    def go_back(self, point: Point) -> None: ...

    def take_back(self, point: Point, weights: WeightTables) -> None: ...


def n_passes(record: Training) -> int:
    """Return the number of passes that produced the weights of an earlier fit, given its record."""
    (refits,) = np.nonzero(record.pass_stage == REFIT)
    (trained,) = np.nonzero(record.pass_stage == TRAIN)
    if not len(refits):  # no stage "refit": the best pass was kept, or there were no held-out rows
        precisions = record.pass_precision[trained]
        return len(trained) if np.isnan(precisions).any() else int(np.argmax(precisions)) + 1
    n_rows = record.pass_rows[refits[0]]
    if n_rows - record.pass_rows[trained[0]] > REFIT_SHARE * n_rows:  # the refit started at zero
        return len(refits)
    return int(np.nanargmax(record.pass_precision[trained])) + 1 + len(refits)
