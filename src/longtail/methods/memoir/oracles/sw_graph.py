"""The small-world graph oracle (Malkov et al.): a walk from class to class towards larger scores.

The classes that have weights are the nodes of a graph. A node is linked to classes with which it has a large inner
product: these are its nearest neighbours. A search keeps the best classes that it has visited (the beam). It follows
the links of the best class in the beam whose links it has not followed yet, until there is none left.

The classes move during training. A class is removed and inserted again when it has moved, since its last insertion, by
more than `drift` times its length. A class that has lost all its weights is removed. To insert a class, its nearest
neighbours are searched for in the graph itself. Scoring a long vector against many classes is slow, so only the
heaviest weights of the class are used in this search.

A walk starts at a random class, and with `likely=yes` also at the row's own class, whose neighbours are likely rivals,
and at the candidates of candidates.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from longtail.methods.memoir.oracles import sw_graph_kernels as kernels
from longtail.methods.memoir.oracles.base import Moves, SearchSpace
from longtail.methods.memoir.oracles.candidates import CandidateOracle

N_HEAVIEST = 12  # weights of a class that are used in the search for its neighbours
INSERTION_BEAM = 8


class Graph(NamedTuple):
    """The arrays of the graph; see sw_graph_kernels. A class is *live* while it is in the graph."""

    links: np.ndarray  # (classes, max links)
    strengths: np.ndarray  # (classes, max links) inner product when the link was made
    degrees: np.ndarray  # number of links of each class
    after: np.ndarray  # the next class in the ring
    before: np.ndarray  # the previous class in the ring
    live: np.ndarray  # the live classes, in no order; only the first n_live entries count
    at: np.ndarray  # position of each class in `live`; -1: not in the graph
    n_live: np.ndarray  # (1,)

    @classmethod
    def empty(cls, n_classes: int, n_links: int) -> Graph:
        def none(*shape: int) -> np.ndarray:
            return np.full(shape, -1, np.int32)

        return cls(
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
    """The state of a search: the best classes that it has visited, best first."""

    visited: np.ndarray  # one mark per class; see sw_graph_kernels.visit
    classes: np.ndarray
    scores: np.ndarray
    open: np.ndarray  # whether the links of the class have not been followed yet
    answer: np.ndarray  # (2,) the best class that can be a rival, and its score


class SWGraph(CandidateOracle):
    """Options: the largest number of `links` of a class, the size of the `beam` of a search, `drift` as above, and
    whether a walk also starts at `likely` rivals."""

    smallest: ClassVar[Mapping[str, float]] = {"links": 1, "beam": 1, "drift": 0}

    def __init__(
        self, space: SearchSpace, *, links: int = 8, beam: int = 4, drift: float = 1.0, likely: bool = True
    ) -> None:
        super().__init__(space, likely)
        n_classes = self.vectors.shape[0]
        self.graph = Graph.empty(n_classes, links)
        self.beam_size = beam
        self.drift = drift
        self.moved = np.zeros(n_classes)  # upper bound of the distance moved since insertion, in stored units
        self.row_lengths = _row_lengths(self.X.data, self.X.indptr.astype(np.int64))

    @classmethod
    def column_bytes(cls, options: Mapping[str, Any]) -> tuple[int, int]:
        likely = options["likely"]
        return 128 * likely, 80 + 36 * likely + 8 * options["links"]

    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        starts = self.candidates(rows, targets)
        if self.likely:
            starts = np.concatenate([targets[:, None], starts], axis=1, dtype=np.int32)
        kernels.search_rows(
            self.vectors.arrays, self.graph, self.X, self.Y, rows, starts, self.group, self.n_groups, self.salt,
            self._beam(self.beam_size), rivals,
        )  # fmt: skip

    def update(self, moves: Moves) -> None:
        """Insert the classes that have moved far again."""
        np.add.at(self.moved, moves.classes, np.abs(moves.factors) * self.row_lengths[moves.rows])
        self.moved[moves.truncated] += moves.amounts * np.sqrt(self.vectors.arrays.counts[moves.truncated])
        is_new = self.graph.at[moves.touched] < 0
        is_far = self.moved[moves.touched] >= self.drift * self.vectors.lengths(moves.touched)
        due = moves.touched[is_new | is_far]
        self.moved[due] = 0.0
        features, values = np.empty(N_HEAVIEST, np.uint32), np.empty(N_HEAVIEST, np.float32)
        kernels.relink(self.vectors.arrays, self.graph, due, self.salt, features, values, self._beam(INSERTION_BEAM))

    def rescale(self, factor: float) -> None:
        self.moved *= factor

    def state(self) -> dict[str, np.ndarray]:
        return {**super().state(), **self.graph._asdict(), "moved": self.moved}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        super().restore(state)
        self.graph = Graph(**{name: state[name].copy() for name in Graph._fields})
        self.moved[:] = state["moved"]

    def _beam(self, size: int) -> Beam:
        return Beam(
            visited=self._zero_per_class(),
            classes=np.empty(size, np.int32),
            scores=np.empty(size),
            open=np.empty(size, np.bool_),
            answer=np.array([-1.0, -np.inf]),
        )


def _row_lengths(data: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """|x_i| of every row, in float64."""
    starts, is_empty = indptr[:-1], indptr[:-1] == indptr[1:]
    squares = np.append(data.astype(np.float64) ** 2, 0.0)  # the last one is for empty rows at the end
    sums = np.add.reduceat(squares, starts) if len(starts) else np.empty(0)
    return np.asarray(np.sqrt(np.where(is_empty, 0.0, sums)))
