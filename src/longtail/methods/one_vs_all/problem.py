"""The training problem of one-vs-all: the data, the start, the order of solving, blocks, and the stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import parallel
from longtail.methods.forecast import Forecast
from longtail.methods.one_vs_all import dual, newton, starts
from longtail.methods.one_vs_all.best_labels import no_limit
from longtail.methods.one_vs_all.first_rows import rare_features
from longtail.methods.one_vs_all.forecast import of_labels
from longtail.methods.one_vs_all.inputs import Features, OneVsAllData, first_twins, some_rows
from longtail.methods.one_vs_all.label_tree import label_tree
from longtail.methods.one_vs_all.lanes import DualSpace
from longtail.methods.one_vs_all.order import ROOT, subtree_blocks
from longtail.methods.one_vs_all.panel import FULL, SHORT, PanelType, panel_type
from longtail.methods.one_vs_all.parts import WeightStack
from longtail.methods.one_vs_all.verify_kernels import visiting_order
from longtail.methods.problem import NO_EXTRAS, Block, Extras, Part, Problem
from longtail.parallel import Work


class OneVsAllProblem(OneVsAllData, Problem):
    """One binary problem per label, each independent of the others.

    Everything that blocks share is made here once: the data in the form of the kernels, the start (with w*(-1) for
    "ova-primal" and "tree"), its scores of all rows for the dual solver, and the label tree. `parent` is that tree, or
    a forest of single labels. `twins` has for every label the first label with the same rows and weight. Only that
    label is solved.
    """

    unit = "label"

    def __init__(
        self,
        X: Features,
        Y: sp.csr_array,
        *,
        start: str,
        block_size: int | None,
        seed: int,
        extras: Extras = NO_EXTRAS,
        **parameters: Any,
    ) -> None:
        super().__init__(X, Y, extras=extras, **parameters)
        self.kept = extras.kept
        kept = np.empty(0, np.int64) if self.kept is None else self.kept.items
        self.twins = first_twins(self.positives, kept)
        self.labels = np.setdiff1d(self.twins, kept)  # in rising order, each once
        self.start = starts.make(start, self)
        self.first = self.start.scores(self) if self.solver == "dual" else None
        if self.first is not None:
            rare = self.first.by_rare_features and self.X.n_sparse > 0
            self.rare_features = rare_features(self.X) if rare else None
            self.panel_type = panel_type(self.tol)
            self.visiting_order = visiting_order(self.X)
            to_score = () if self.folds is None else self.folds.to_score
            self.held_out_rows = [some_rows(self.X, rows) for rows in to_score]
            self.held_out_orders = [visiting_order(rows) for rows in self.held_out_rows]
            self.limit = no_limit(to_score)  # blocks that have ended raise it
        self.idle_spaces: dict[PanelType, list[DualSpace]] = {SHORT: [], FULL: []}  # of blocks that have ended
        self.parent = np.full(self.n_labels, ROOT)
        if self.start.begins_at_parent and len(self.labels):
            self.parent = label_tree(self.positives, self.n_samples, self.labels)
        usual = (dual if self.solver == "dual" else newton).block_labels(self.pass_work)
        self.block_size = usual if block_size is None else block_size
        weight = np.unique(self.positives.weight)
        self.settings = {
            **{name: value for name, value in parameters.items() if value is not None},
            "solver": self.solver,
            "start": starts.text(start, self.start),
            "positive_weight": float(weight[0]) if len(weight) == 1 else "one per label",
            "tol": self.tol,
            "block_size": self.block_size,
            "seed": seed,
            **({} if extras.sample_weight is None else {"sample_weight": "one per row"}),
        }

    def blocks(self) -> list[Block]:
        """Return ranges of labels, or whole subtrees if labels start at the solution of their parent."""
        if not len(self.labels):
            return []
        if self.solver != "dual":
            pieces = subtree_blocks(self.labels, self.parent, self.block_size)
        else:  # frequent labels come first, so that lanes finish together
            n_positive = self.positives.n_positive
            ranges = parallel.ranges(len(self.labels), self.block_size)
            pieces = [self.labels[part.start : part.stop] for part in ranges]
            pieces = [piece[np.argsort(-n_positive[piece], kind="stable")] for piece in pieces]
        return [Block(number, piece, float(len(piece))) for number, piece in enumerate(pieces)]

    def solve(self, block: Block, work: Work) -> Part:
        if self.first is None:
            return newton.solve(self, block, work, start=self.start, tol=self.tol, trace=self.trace)
        return dual.solve(self, self.first, block, work)

    def stack(self) -> WeightStack:
        return WeightStack(self.twins, self.n_features, self.X.bias, self.folds)

    def item_of(self) -> np.ndarray:
        return self.twins

    def earlier(self) -> list[Part]:
        return [] if self.kept is None else [self.kept]

    def forecast(self, X: Features, Y: sp.csr_array, n_threads: int) -> Forecast:
        return of_labels(self, n_threads)
