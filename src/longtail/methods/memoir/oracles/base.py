"""The base class of all oracles.

For rows of X, an oracle finds the rival: the class with the largest score that is not a label of the row.

    r_i = argmax over all classes r outside Y_i of x_i.w_r                     Algorithms 1 and 2, "approximately"

The rivals of a query are found with the same weights, in threads. Each row is searched by itself, so the number of
threads does not change the result.

With n_groups = G > 1, the rivals of one batch come from one group of classes: those with c mod G = g, for a g drawn at
random for the batch. The best of all classes is then found with probability 1 / G, the second best with nearly the
same probability, and so on. This makes models better: the rivals are still hard to distinguish from the row's class,
but training does not always change the same few classes.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from longtail import parallel
from longtail.errors import InputError
from longtail.methods.memoir.oracles.exact_kernels import best_of_all
from longtail.methods.memoir.weights import ClassVectors, CsrRows, RowLabels
from longtail.methods.memoir.weights_kernels import best_of
from longtail.methods.state import of_generator, set_generator

MAX_ROWS = 256  # rows that a thread searches at a time


class SearchSpace(NamedTuple):
    """The data that an oracle searches, and the resources it may use."""

    vectors: ClassVectors
    X: CsrRows
    Y: RowLabels
    team: parallel.Team
    seed: int
    n_groups: int = 1


class Moves(NamedTuple):
    """How the class vectors changed in one batch, in units of stored values (w / scale).

    First, in this order, v_c += factors[k] x_i for c = classes[k] and i = rows[k]. Then all values of class
    truncated[k] moved towards zero by amounts[k].
    """

    classes: np.ndarray
    rows: np.ndarray
    factors: np.ndarray
    touched: np.ndarray  # all classes that changed, sorted, each once
    truncated: np.ndarray
    amounts: np.ndarray


class Oracle(ABC):
    """Base of the oracles. `query` finds the rivals of a batch; `update` receives the changes of the weights."""

    indexed: ClassVar[bool] = False  # whether it reads inverted lists
    needs_moves: ClassVar[bool] = True  # whether `update` does anything
    smallest: ClassVar[Mapping[str, float]] = {}  # smallest value of each numeric option

    def __init__(self, space: SearchSpace) -> None:
        self.vectors = space.vectors
        self.X = space.X
        self.Y = space.Y
        self.team = space.team
        self.n_groups = space.n_groups
        self.random = np.random.default_rng(space.seed)
        self.group = 0  # group and salt are drawn for each query
        self.salt = 0

    @classmethod
    def default_options(cls) -> dict[str, Any]:
        """The options and their defaults: the keyword-only parameters of `__init__`."""
        parameters = inspect.signature(cls).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}

    @classmethod
    def check_options(cls, options: Mapping[str, Any], where: str) -> None:
        """Raise InputError if an option has an invalid value. The message starts with `where`."""
        for name, least in cls.smallest.items():
            if options[name] < least:
                raise InputError(
                    f"{where}: the option {name!r} must be at least {least:g}. Got {options[name]!r} instead."
                )

    @classmethod
    @abstractmethod
    def column_bytes(cls, options: Mapping[str, Any]) -> tuple[int, int]:
        """Return the bytes that training needs per feature and per class, including unused features and classes."""

    @classmethod
    def reads_top(cls, options: Mapping[str, Any]) -> bool:
        """Whether the search reads the top classes of features, so that the class vectors must know them."""
        return False

    def query(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Find a rival for each row, or -1 if there is none. targets[k] is the label of row rows[k] to be learned.

        If the search finds no class for a row (at the beginning no class has weights), a class is drawn at random.
        """
        rivals = np.empty(len(rows), np.int64)
        self.group = int(self.random.integers(self.n_groups))
        self.salt = int(self.random.integers(2**31))

        def search(chunk: range) -> None:
            part = slice(chunk.start, chunk.stop)
            self.search(rows[part], targets[part], rivals[part])

        self.team.run(search, parallel.ranges(len(rows), min(MAX_ROWS, -(-len(rows) // self.team.size))))
        (missing,) = np.nonzero(rivals < 0)
        if len(missing):
            drawn = self.random.integers(self.vectors.shape[0], size=(len(missing), 1))
            rivals[missing] = self._best_of(rows[missing], drawn, 0, 1)  # -1 if a label of the row was drawn
        return rivals

    def best(self, rows: np.ndarray) -> np.ndarray:
        """The true rival of each row, by scoring all classes. The recall of `query` is measured against it."""
        n = len(rows)
        rivals = np.empty(n, np.int64)
        n_entries = int((self.X.indptr[rows + 1] - self.X.indptr[rows]).sum())
        panel = np.zeros((n_entries, n), np.float32)
        line_of = np.zeros(self.vectors.shape[1], np.int32)
        best_of_all(self.vectors.arrays, self.X, self.Y, rows, line_of, panel, np.empty(n), rivals, np.empty(n))
        return rivals

    @abstractmethod
    def search(self, rows: np.ndarray, targets: np.ndarray, rivals: np.ndarray) -> None:
        """Write a rival for each row, or -1, into `rivals`. Called in several threads: `self` must not change."""

    @abstractmethod
    def update(self, moves: Moves) -> None:
        """Called after each batch, when the class vectors already have their new values."""

    def rescale(self, factor: float) -> None:
        """Called when all stored values were multiplied by a factor. The order of scores does not change, so only
        oracles that store other values need this."""
        return

    def state(self) -> dict[str, np.ndarray]:
        """Return everything that training changes, except the class vectors. Subclasses add their own state."""
        return {"random": of_generator(self.random)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state`, after the class vectors were restored."""
        set_generator(self.random, state["random"])

    def _best_of(self, rows: np.ndarray, candidates: np.ndarray, group: int, n_groups: int) -> np.ndarray:
        """Return the candidate with the largest score for each row. See the kernel."""
        best = np.empty(len(rows), np.int64)
        scores = np.empty(len(rows))
        best_of(
            self.vectors.arrays, self.X, self.Y, rows, candidates, group, n_groups, self._zero_per_class(), best, scores
        )
        return best

    def _zero_per_class(self) -> np.ndarray:
        return np.zeros(self.vectors.shape[0], np.int32)
