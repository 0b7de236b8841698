"""The training problem of PD-Sparse: one block, because all labels are trained together.

X, Y -> PDSparseProblem (rows with renumbered labels, held-out rows, pairs of C and lam) -> one block
     -> stages of Frank-Wolfe passes -> Part(W as CSR) -> stack -> LinearModel

An update has the stage "update" alone, which begins with the weights of the old model, its C and its lam.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.methods.forecast import SAMPLE_SHARE
from longtail.methods.pd_sparse.frank_wolfe import FrankWolfe
from longtail.methods.pd_sparse.rows import LabelledRows
from longtail.methods.pd_sparse.search import Search
from longtail.methods.pd_sparse.stage_options import PROBE_PASSES, PROBE_ROWS, PathStage, PostSolve
from longtail.methods.pd_sparse.stages import (
    StagedTraining,
    ValidationRows,
    pass_figures,
    planned_visits,
    refits_from_zero,
)
from longtail.methods.problem import Block, CoupledProblem, OldModel, Part
from longtail.parallel import Team, Work

AUTO_C = (1.0, 10.0)
AUTO_LAM = 0.02  # lam="auto" is this times C
MIN_HELD_OUT, MAX_HELD_OUT = 20, 2000  # fewer rows are too noisy, and more hardly change the choices
MIN_PASSES, MAX_PASSES = 4, 100
MIN_PROBE = 500  # rows on which a plan compares the pairs of C and lam
LATER_PASS, POST_PASS = 1.35, 0.9  # time of a visit, against a visit of the first pass, for plans
FILLING = 0.05  # power by which the mean time of the first visits falls
VISITS = 40_000  # total number of rows to process with max_iter=None


class PDSparseParameters(NamedTuple):
    """The checked parameters of `PDSparse`. None stands for "auto"."""

    C: list[float] | None
    lam: list[float] | None
    search: Search
    max_iter: int | None
    tol: float
    early_stopping: bool
    validation_fraction: float
    validation_depth: int
    n_iter_no_change: int
    path: PathStage
    post_solve: PostSolve
    refit: bool
    batch_size: int
    bias: float
    seed: int
    repeat: int | None = None  # if given: train this many passes with the only C and lam, without held-out rows


class PDSparseProblem(CoupledProblem):
    """Canonical X and Y with resolved parameters."""

    def __init__(
        self, X: sp.csr_array, Y: sp.csr_array, parameters: PDSparseParameters, old: OldModel | None = None
    ) -> None:
        self.parameters = parameters
        self.old_model = old
        self.n_features = X.shape[1]
        self.n_labels = Y.shape[1]
        self.bias = parameters.bias
        self._rng = np.random.default_rng(parameters.seed)
        self.samples = LabelledRows.of(X, Y, parameters.bias, self._rng)
        self.training, held_out = self._split()
        self.held_out = ValidationRows(
            held_out, sp.csr_array(Y[held_out]), parameters.n_iter_no_change, parameters.validation_depth
        )
        self.search = parameters.search.for_labels(Y.shape[1])
        self.pairs = pairs_to_try(parameters.C, parameters.lam, can_compare=bool(self.held_out))
        enough_passes = max(MIN_PASSES, min(VISITS // max(len(self.training), 1), MAX_PASSES))
        self.max_iter = enough_passes if parameters.max_iter is None else parameters.max_iter
        self.settings = {
            "C": [C for C, _ in self.pairs],
            "lam": [lam for _, lam in self.pairs],
            "search": str(self.search),
            "max_iter": self.max_iter,
            "tol": parameters.tol,
            "early_stopping": bool(self.held_out),
            "validation_fraction": parameters.validation_fraction,
            "validation_depth": parameters.validation_depth,
            "n_iter_no_change": parameters.n_iter_no_change,
            "path": str(parameters.path),
            "post_solve": str(parameters.post_solve),
            "refit": parameters.refit,
            "batch_size": parameters.batch_size,
            "bias": parameters.bias,
            "seed": parameters.seed,
        }

    def settled(self, n_threads: int) -> PDSparseProblem:
        """Return the problem with the C and lam that training will choose, found on fewer rows if there are few."""
        if len(self.pairs) == 1:
            return self
        path = self.parameters.path
        passes = path.passes or PROBE_PASSES  # training every pair in full would take too long
        visits = SAMPLE_SHARE * self.max_iter * len(self.training)
        n_rows = max(MIN_PROBE, min(path.rows or PROBE_ROWS, int(visits / passes / len(self.pairs))))
        with Team(n_threads) as team:
            training = self._staged(team, Work(n_threads))
            sample = training.solver.rng.permutation(self.training)[:n_rows]
            C, lam = training.best_pair(self.pairs, sample, PathStage(n_rows, passes))
        same = copy(self)
        same.parameters = self.parameters._replace(C=[C], lam=[lam])
        same.pairs = [(C, lam)]
        return same

    def effort(self, share: float) -> float:
        """Return the time of all passes divided by that of the planned visits at the pace of the first ones.

        A visit in a later pass takes LATER_PASS times as long as in the first, because tables are larger and searches
        return more labels, and a visit of a post-solve POST_PASS times. Of two post-solves, the second is done in about
        half of the cases. Within the first pass, visits become faster while tables fill: their mean time falls with a
        power of their number.
        """
        how, n, n_held_out = self.parameters, len(self.training) + len(self.held_out.rows), len(self.held_out.rows)
        from_zero = how.refit and refits_from_zero(n, n_held_out)
        n_sample = min(how.path.rows or n, len(self.training))
        planned = planned_visits(n, n_sample, 1, how.path, self.max_iter, from_zero=from_zero)
        if not self.held_out or how.repeat is not None or not planned:
            return 1.0

        def passes(count: int) -> float:
            return 1.0 + LATER_PASS * (count - 1)

        work = passes(how.path.passes or self.max_iter) * len(self.pairs) * n_sample if len(self.pairs) > 1 else 0.0
        work += passes(max(1, self.max_iter - (how.refit and not from_zero))) * len(self.training)
        if how.refit:
            work += (passes(self.max_iter) if from_zero else LATER_PASS) * n
        if how.post_solve.when != "never":
            work += 1.5 * POST_PASS * how.post_solve.passes * n
        visited = min(1.0, max(share * planned, 1.0) / len(self.training))
        return float(visited**FILLING * work / planned)

    def like(self, X: sp.csr_array, Y: sp.csr_array) -> PDSparseProblem:
        return PDSparseProblem(X, Y, self.parameters._replace(max_iter=self.max_iter))

    def _split(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows to train on and the rows to hold out."""
        rows = self.samples.with_loss
        fraction = self.parameters.validation_fraction if self.parameters.early_stopping else 0.0
        size = min(int(fraction * len(rows)), MAX_HELD_OUT)
        held_out = self._rng.permutation(rows)[: size if size >= MIN_HELD_OUT else 0]
        return np.setdiff1d(rows, held_out), np.sort(held_out)

    def _staged(self, team: Team, work: Work) -> StagedTraining:
        return StagedTraining(
            FrankWolfe(self.samples, self.search, deepcopy(self._rng), team, self.parameters.batch_size),
            self.training,
            self.held_out,
            max_iter=self.max_iter,
            may_run_out=self.parameters.max_iter is None,
            tol=self.parameters.tol,
            work=work,
        )

    def solve(self, block: Block, work: Work) -> Part:
        with work.team() as team:
            how = self.parameters
            training = self._staged(team, work)
            if self.old_model is not None:
                training.run_update(self.pairs[0], self.old_model.weights())
            elif how.repeat is None:
                training.run(self.pairs, how.path, post_solve=how.post_solve, refit=how.refit)
            else:
                training.run_as_before(self.pairs[0], passes=how.repeat, post_solve=how.post_solve)
            W = training.solver.W()
        C, lam = training.chosen
        chosen = {"C": np.array([C]), "lam": np.array([lam]), "post_solved": np.array([training.post_solved], np.uint8)}
        figures = {**chosen, **pass_figures(training.history)}
        return self.part(W, training.status, training.n_iter, figures)


def pairs_to_try(
    C_values: Sequence[float] | None, lam_values: Sequence[float] | None, *, can_compare: bool
) -> list[tuple[float, float]]:
    """Return all pairs of C and lam, with C increasing and lam decreasing. Raise InputError if there are several pairs
    and no held-out rows to compare them on."""
    if C_values is None:
        C_values = AUTO_C if can_compare else AUTO_C[-1:]
    pairs = []
    for C in sorted(C_values):
        lams = [AUTO_LAM * C] if lam_values is None else lam_values
        pairs += [(C, lam) for lam in sorted(lams, reverse=True)]
    if len(pairs) > 1 and not can_compare:
        raise InputError(
            f"{len(pairs)} pairs of C and lam can only be compared on held-out rows, and there are none; give one "
            f"value of each, or set early_stopping=True with enough rows to hold out {MIN_HELD_OUT}"
        )
    return pairs
