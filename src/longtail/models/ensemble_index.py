"""The search of an ensemble: the best labels of the members' lists, by the log-odds of models/ensemble.py.

The candidates of a row are the labels in the members' lists of their `depth` best labels. A member that does not list a
candidate must still score it. Some members score the labels of earlier lists while they search. Of the other scores,
most are not needed: a label that a member does not list scores at most as much as the last label of its list. This
bounds the log-odds of every candidate from above, because log-odds rise with the score. So first the k candidates with
the highest bounds are scored by all members. Of the others, only those whose bound reaches the k-th best log-odds are
(the threshold algorithm; R. Fagin, A. Lotem, M. Naor, PODS 2001). The result is the same as if all members scored all
candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from longtail.compiled import frozen
from longtail.hybrid import Rows
from longtail.models.base import Model
from longtail.models.batch import Batch, PairIndex, ScoringBatch
from longtail.models.ensemble_kernels import join_lists, weigh
from longtail.models.mixture import Mixture
from longtail.models.rules import SCORES_AT_ONCE, Rules
from longtail.topk import TopK

SLACK = 1e-9  # bounds are computed in float64; rounding changes them by less than this


class Member(NamedTuple):
    """A member's terms of the log-odds, for kernels.

    lines : (K, 4), the coefficients a, w, r and b at the knots
    places : (n_labels,), the place of every label among the knots, by its frequency: 1.5 is halfway from knot 1 to 2
    curve_knots, curve_values, curve_weight : p_m(z) and the weight in (2) of mixture.py, or no points
    """

    lines: np.ndarray
    places: np.ndarray
    rank_offset: float
    log_scores: bool
    curve_knots: np.ndarray
    curve_values: np.ndarray
    curve_weight: float

    @classmethod
    def of(cls, model: Model, mixture: Mixture, m: int) -> Member:
        c = model.calibrator
        assert c is not None
        none = np.empty(0)
        return cls(
            lines=frozen(np.stack([each[m] for each in mixture.lines], axis=1), np.float64),
            places=frozen(mixture.places(c.counts), np.float32),
            rank_offset=float(c.rank_offset),
            log_scores=bool(c.log_scores),
            curve_knots=frozen(none if mixture.curved is None else c.knots, np.float64),
            curve_values=frozen(none if mixture.curved is None else c.values, np.float64),
            curve_weight=0.0 if mixture.curved is None else float(mixture.curved[m]),
        )


@dataclass(frozen=True, eq=False)
class EnsembleIndex:
    """The search for the best labels. Members that the mixture does not use are left out."""

    members: tuple[Model, ...]
    mixture: Mixture
    depth: int
    rules: Rules | None

    def top(self, X: Rows, k: int) -> TopK:
        """The k best candidates of every row of X."""
        return self.candidates(X, max(k, self.depth)).best(k)

    def above(self, X: Rows, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The candidates that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        candidates = self.candidates(X, self.depth)
        candidates.settle_from(threshold - SLACK)
        labels, scores = candidates.sorted_by_label()
        chosen = scores > threshold
        return labels[chosen], np.concatenate([[0], np.cumsum(chosen.sum(axis=1))])

    def scores(self, X: Rows, labels: np.ndarray) -> np.ndarray:
        """The scores of these labels, which need not be candidates, for every row: (rows, labels) float32."""
        scores = np.empty((X.shape[0], len(labels)), np.float32)
        size = max(1, SCORES_AT_ONCE // (len(self.members) * self.members[0].n_labels))
        for start in range(0, X.shape[0], size):
            candidates = self.candidates(X[start : start + size], self.depth)
            scores[start : start + size] = candidates.scores_of(labels)
        return scores

    def candidates(self, X: Rows, depth: int) -> Candidates:
        """The candidates of every row of X."""
        members = [self.members[m] for m in self.mixture.used]
        batches = []
        forms = {}  # members with the same form of rows share them
        for member in members:
            form = member.normalize, member.dense_columns is None
            if form not in forms:
                forms[form] = member._rows(X)
            batches.append(cast(PairIndex, member.index).batch(forms[form]))
        depth = min(depth, self.members[0].n_labels if self.rules is None else self.rules.n_allowed)
        offsets = None if self.rules is None else self.rules.offsets
        return Candidates(depth, batches, self._weighed, self.mixture.shift, offsets)

    @cached_property
    def _weighed(self) -> list[Member]:
        """The members that are used, for kernels."""
        return [Member.of(self.members[m], self.mixture, m) for m in self.mixture.used]


class Candidates:
    """The candidates of some rows, whose log-odds are bounds until they are settled.

    labels : (rows, c) int32, -1 after the last candidate of a row
    ranks, found : (members, rows, c), rank and score of each candidate for each member, as `join_lists` defines them
    terms : (members, rows, c), the terms of the log-odds
    known : (members, rows, c), whether the member has scored the candidate; true after the last candidate of a row
    """

    def __init__(
        self,
        depth: int,
        batches: list[Batch],
        weighed: list[Member],
        shift: float,
        offsets: np.ndarray | None,
    ) -> None:
        self.batches = batches
        self.weighed = weighed
        self.shift = shift
        self.offsets = offsets
        lists, others = search(batches, depth)
        labels = np.stack([top.labels for top in lists])
        values = np.stack([top.scores for top in lists])
        n_members, n, self.k = labels.shape
        width = n_members * self.k
        self.labels = np.full((n, width), -1, np.int32)
        self.ranks = np.empty((n_members, n, width), np.int32)
        self.found = np.empty((n_members, n, width), np.float32)
        self.known = np.empty((n_members, n, width), np.bool_)
        place = np.full(len(weighed[0].places), -1, np.int32)
        join_lists(labels, values, *others, place, self.labels, self.ranks, self.found, self.known)
        width = int((self.labels >= 0).sum(axis=1).max(initial=self.k))
        self.labels = np.ascontiguousarray(self.labels[:, :width])
        self.ranks = np.ascontiguousarray(self.ranks[:, :, :width])
        self.found = np.ascontiguousarray(self.found[:, :, :width])
        self.best_scores = np.ascontiguousarray(values[:, :, 0])
        self.log_ranks = [log_ranks(self.k + 1, member.rank_offset) for member in weighed]
        there = self.labels >= 0
        self.known = ~there | self.known[:, :, :width]
        self.terms = np.zeros(self.found.shape)
        for m in range(n_members):
            self._weigh(m, there)
        self.base = np.where(there, self._base(self.labels), -np.inf)

    def _base(self, labels: np.ndarray) -> np.ndarray:
        """The part of the score that does not depend on the row."""
        return np.asarray(self.shift + (0.0 if self.offsets is None else self.offsets[labels]))

    def _weigh(self, m: int, wanted: np.ndarray) -> None:
        ranks, scores, best = self.ranks[m], self.found[m], self.best_scores[m]
        weigh(self.weighed[m], self.log_ranks[m], self.labels, scores, ranks, best, wanted, self.terms[m])

    def settle(self, wanted: np.ndarray) -> None:
        """Let all members score these candidates."""
        for m in range(len(self.batches)):
            self._score(m, wanted)

    def settle_from(self, least: np.ndarray | float) -> None:
        """Let all members score the candidates with log-odds from `least` on.

        Every score lowers the bound of a candidate. If it falls below `least`, the other members need not score it.
        """
        for m in range(len(self.batches)):
            self._score(m, self.scores() >= least)

    def _score(self, m: int, wanted: np.ndarray) -> None:
        """Let one member score those of these candidates that it has not scored."""
        missing = wanted & ~self.known[m]
        rows, _ = np.nonzero(missing)
        if len(rows):
            self.found[m][missing] = self.batches[m].pairs(rows, self.labels[missing])
            self.known[m] |= missing
            self._weigh(m, missing)

    def settled(self) -> np.ndarray:
        """Whether all members have scored the candidate: (rows, c)."""
        return np.asarray(self.known.all(axis=0))

    def scores(self) -> np.ndarray:
        """The log-odds of the candidates, or their upper bounds: (rows, c), -inf after the last candidate."""
        return np.asarray(self.base + self.terms.sum(axis=0))

    def scores_of(self, labels: np.ndarray) -> np.ndarray:
        """The log-odds of these labels, which need not be candidates, for every row."""
        n, c = len(self.labels), len(labels)
        labels = np.ascontiguousarray(np.broadcast_to(labels.astype(np.int32), (n, c)))
        row = np.repeat(np.arange(n), c)
        total = self._base(labels) + np.zeros((n, c))
        here, at = np.nonzero(self.labels >= 0)
        for m, batch in enumerate(self.batches):
            ranks = np.full((n, len(self.weighed[m].places)), self.k + 1, np.int32)
            ranks[here, self.labels[here, at]] = self.ranks[m][here, at]
            found = batch.pairs(row, labels.ravel()).reshape(n, c)
            term = np.empty((n, c))
            own = np.ascontiguousarray(np.take_along_axis(ranks, labels, axis=1))
            everything = np.ones((n, c), bool)
            weigh(self.weighed[m], self.log_ranks[m], labels, found, own, self.best_scores[m], everything, term)
            total += term
        return total

    def best(self, k: int) -> TopK:
        """The k best candidates of every row, best first. Candidates with equal scores are in the order of columns."""
        width = self.labels.shape[1]
        if k < width:
            bounds = self.scores()
            likely = np.zeros(self.labels.shape, bool)
            np.put_along_axis(likely, np.argpartition(-bounds, k - 1, axis=1)[:, :k], True, axis=1)
            self.settle(likely)
            bounds = self.scores()
            known = np.where(self.settled(), bounds, -np.inf)
            enough = np.partition(known, width - k, axis=1)[:, width - k, None]
            self.settle_from(enough - SLACK)
        else:
            self.settle(self.labels >= 0)
        labels, scores = self.sorted_by_label()
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return TopK(np.take_along_axis(labels, order, axis=1), np.take_along_axis(scores, order, axis=1))

    def sorted_by_label(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels in the order of columns, and their scores as float32; -inf for those that are not settled."""
        scores = np.where(self.settled(), self.scores(), -np.inf).astype(np.float32)
        order = np.argsort(self.labels, axis=1)
        return np.take_along_axis(self.labels, order, axis=1), np.take_along_axis(scores, order, axis=1)


def search(batches: list[Batch], k: int) -> tuple[list[TopK], tuple[np.ndarray, np.ndarray]]:
    """The k best labels of every member, and what members found of the labels in the lists of others.

    Members that score further labels while they search come last, so that they can score those of the lists before.
    Returns the lists and, for `join_lists`, these labels and their scores.
    """
    lists: dict[int, TopK] = {}
    scored: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for m in sorted(range(len(batches)), key=lambda m: isinstance(batches[m], ScoringBatch)):
        batch = batches[m]
        if lists and isinstance(batch, ScoringBatch):
            wanted = np.sort(np.concatenate([top.labels for top in lists.values()], axis=1), axis=1)
            lists[m], values = batch.top_and_scores(k, wanted)
            scored[m] = wanted, values
        else:
            lists[m] = batch.top(k)
    n, depth = lists[0].labels.shape
    shape = len(batches), n, depth * (len(batches) - 1) if scored else 0
    others, other_values = np.full(shape, -1, np.int32), np.empty(shape, np.float32)
    for m, (wanted, values) in scored.items():
        others[m, :, : wanted.shape[1]], other_values[m, :, : wanted.shape[1]] = wanted, values
    return [lists[m] for m in range(len(batches))], (others, other_values)


def log_ranks(last: int, offset: float) -> np.ndarray:
    """log(r + offset) for the ranks r = 0, 1, ..., last. There is no rank 0; it gets 0."""
    return np.concatenate([[0.0], np.log(np.arange(1, last + 1) + offset)])
