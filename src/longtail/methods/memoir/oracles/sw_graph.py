"""The small-world graph oracle: walk from class to class towards larger scores (Malkov et al.), while classes move.

Classes that have weights are linked to those with which they have large inner products. A query keeps the best classes
it has met (the beam) and follows the links of the best of them until the beam holds no unexplored one. A class is
placed anew when it has moved, since it was placed, by more than `drift` times its length; a class that has lost all its
weights leaves. Searching for all neighbours of a class means scoring a long vector, so only its heaviest weights are
searched for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.methods.memoir.oracles import sw_graph_kernels as kernels
from longtail.methods.memoir.oracles.base import Moves
from longtail.methods.memoir.oracles.recent import RememberingOracle

HEAVIEST = 12  # weights that stand for a class when its neighbours are searched
RELINK_BEAM = 8


class Graph(NamedTuple):
    """See sw_graph_kernels. `live` lists the classes in the graph, and at[c] says where (-1: not in it)."""

    links: np.ndarray  # (C, n_links)
    strengths: np.ndarray  # (C, n_links) inner product when the link was made
    degrees: np.ndarray
    after: np.ndarray  # the ring
    before: np.ndarray
    live: np.ndarray
    at: np.ndarray
    n_live: np.ndarray  # (1,)

    @staticmethod
    def empty(n_classes: int, n_links: int) -> Graph:
        def none(*shape: int) -> np.ndarray:
            return np.full(shape, -1, np.int32)

        return Graph(
            links=none(n_classes, n_links),
            strengths=np.zeros((n_classes, n_links), np.float32),
            degrees=np.zeros(n_classes, np.int32),
            after=none(n_classes),
            before=none(n_classes),
            live=none(n_classes),
            at=none(n_classes),
            n_live=np.zeros(1, np.int64),
        )


class Beam(NamedTuple):
    """The state of a search: which classes it has met, and the best of them, sorted; see `offer`."""

    met: np.ndarray
    classes: np.ndarray
    scores: np.ndarray
    open: np.ndarray  # whether the links of the class have yet to be followed
    answer: np.ndarray  # class and score


class SWGraph(RememberingOracle):
    """`n_links` at most per class; `beam` classes kept by a search; `drift` as above."""

    def __init__(self, *where: Any, n_groups: int, n_links: int, beam: int, drift: float) -> None:
        super().__init__(*where, n_groups=n_groups)
        self.graph = Graph.empty(self.weights.shape[0], n_links)
        self.beam, self.drift = beam, drift
        self.moved = np.zeros(self.weights.shape[0])  # since the class was placed, in stored units
        X = self.X
        starts = X.indptr[:-1].astype(np.int64)
        squares = np.add.reduceat(np.append(X.data.astype(np.float64) ** 2, 0.0), starts) if len(starts) else starts
        self.lengths = np.sqrt(np.where(np.diff(X.indptr.astype(np.int64)) > 0, squares, 0.0))

    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        kernels.search_rows(
            self.weights.store, self.graph, self.X, self.Y, rows, targets, self.likely(rows, targets), self.group,
            self.n_groups, self.salt, self._beam(self.beam), rivals,
        )  # fmt: skip

    def update(self, moves: Moves) -> None:
        np.add.at(self.moved, moves.classes, np.abs(moves.factors) * self.lengths[moves.rows])
        self.moved[moves.truncated] += moves.amounts * np.sqrt(self.weights.store.counts[moves.truncated])
        length = np.sqrt(np.maximum(self.weights.store.norms[moves.touched], 0.0))
        new = self.graph.at[moves.touched] < 0
        far = moves.touched[new | (self.moved[moves.touched] >= self.drift * length)]
        self.moved[far] = 0.0
        heaviest = np.empty(HEAVIEST, np.uint32), np.empty(HEAVIEST, np.float32)
        kernels.relink(self.weights.store, self.graph, far, self.salt, *heaviest, self._beam(RELINK_BEAM))

    def rescale(self, factor: float) -> None:
        self.moved *= factor

    def _beam(self, size: int) -> Beam:
        return Beam(self._unseen(), np.empty(size, np.int32), np.empty(size), np.empty(size, np.bool_), np.empty(2))
