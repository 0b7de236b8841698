"""The interface between estimators, solvers and the code that runs them: problem, block, part, stack.

    estimator --_problem(X, Y)--> Problem --blocks()--> Block --solve(block, work)--> Part --Stack.add--> model

A *problem* is made once per fit and holds everything that its blocks share. The *blocks* are independent of each other.
Solving a block gives a *part*, which holds only arrays and numbers. Another process can therefore solve the block and
write the part to disk. A *stack* takes the parts in any order and builds the model from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from longtail.methods import forecast
from longtail.methods.forecast import Forecast
from longtail.models import LabelWeights, LinearModel, Model
from longtail.parallel import Work
from longtail.store import Shelf
from longtail.topk import TopK
from longtail.training import Training


class Folds(NamedTuple):
    """Rows that calibration holds out, one fold after the other.

    fold_of : for every row of X, the fold in which it is held out, or -1
    to_score : for every fold, the rows of X to score without this fold
    depth : how many of the best labels of each are wanted
    """

    fold_of: np.ndarray
    to_score: tuple[np.ndarray, ...]
    depth: int


@dataclass(frozen=True, eq=False)
class Extras:
    """What a problem may be given beside X and Y, and what its parts keep beside the model.

    Methods that have no use for it ignore it.
    """

    sample_weight: np.ndarray | None = None  # of every row, above 0
    folds: Folds | None = None  # the best labels of held-out rows are wanted beside the model
    kept: Part | None = None  # labels that are not trained again, because an update does not touch them
    old: OldModel | None = None  # what an update continues from

    def arrays(self) -> list[np.ndarray]:
        """Return the arrays that the parts depend on."""
        arrays = [] if self.sample_weight is None else [self.sample_weight]
        folds = self.folds
        return arrays if folds is None else [*arrays, folds.fold_of, *folds.to_score, np.array(folds.depth)]


NO_EXTRAS = Extras()


@dataclass(frozen=True, eq=False)
class OldModel:
    """The model that an update continues from, if the method trains labels together.

    changed : boolean, one per row of X: whether the row is new, or may have other labels than before
    touched : boolean, one per label of the updated model: whether it is new or has other rows than before
    retired : boolean, one per label of the updated model
    """

    model: Model
    record: Training
    changed: np.ndarray
    touched: np.ndarray
    retired: np.ndarray

    def weights(self) -> sp.csr_array:
        """Return the weights of a linear model with a row for every label. New and retired labels have none."""
        assert isinstance(self.model, LabelWeights)
        W = self.model.all_weights()
        sizes = np.zeros(len(self.retired), np.int64)
        sizes[: W.shape[0]] = np.diff(W.indptr)
        stays = np.repeat(~self.retired, sizes)
        indptr = np.concatenate([[0], np.cumsum(np.where(self.retired, 0, sizes))])
        return sp.csr_array((W.data[stays], W.indices[stays], indptr), shape=(len(sizes), W.shape[1]))


class Block(NamedTuple):
    """A piece of work. The blocks depend on the data and the parameters, never on the number of workers."""

    number: int  # position in the list of all blocks
    items: np.ndarray  # what to solve: columns of Y, or repetitions; [0] for a problem of one block
    cost: float  # expected work, in a unit that all blocks of a problem share


@dataclass(frozen=True, eq=False)
class Part:
    """The solution of one block.

    The stack builds the model from `arrays`. `status`, `n_iter` and `figures` have one entry per item of the block. In
    a problem with a single item, `figures` may have any shape.
    """

    block: int
    items: np.ndarray
    arrays: Mapping[str, np.ndarray]
    status: np.ndarray
    n_iter: np.ndarray
    figures: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0


class Stack(ABC):
    """Puts the parts of a problem together, in any order of arrival."""

    def use_shelf(self, shelf: Shelf, most: int) -> None:  # noqa: B027 - not every stack can do without memory
        """Write weights to the shelf in shards of at most `most` weights, instead of holding all of them in memory.

        This is called before the first part is added. A stack that does not hold weight rows ignores it.
        """

    @abstractmethod
    def add(self, part: Part) -> None:
        """Add a part. Each part is added once."""

    def held_out(self) -> list[TopK] | None:
        """Return the best labels of the rows to score, for every fold (`Folds`), if all parts have them."""
        return None

    @abstractmethod
    def model(self) -> Model:
        """Return the model of all parts, without names. No part can be added afterwards."""


class Problem(ABC):
    """One training problem: canonical X and Y with resolved parameters, and everything that all blocks share."""

    unit: ClassVar[str]  # what an item is: "label", "repetition" or "model"
    settings: Mapping[str, Any]  # the resolved parameters, as plain JSON values

    @abstractmethod
    def blocks(self) -> list[Block]:
        """Return the blocks. Every item is in exactly one of them."""

    @abstractmethod
    def solve(self, block: Block, work: Work) -> Part:
        """Solve one block.

        The part has the same bytes in any process and on any number of threads.
        """

    @abstractmethod
    def stack(self) -> Stack: ...

    @abstractmethod
    def item_of(self) -> np.ndarray:
        """Return, for each unit (label, repetition), the item that is solved for it.

        Labels with the same rows share an item.
        """

    def earlier(self) -> list[Part]:
        """Return the parts that a warm start provides. Their items are in no block."""
        return []

    @abstractmethod
    def forecast(self, X: Any, Y: sp.csr_array, n_threads: int) -> Forecast:
        """Solve a small sample of the work, and return what all of it will take on this number of threads.

        X and Y are the ones that the problem was made of.
        """


# --- problems of a single block --------------------------------------------------------------------------------------


class CoupledProblem(Problem):
    """A problem that couples all labels. Its only block gives all weights of a linear model."""

    unit = "model"
    n_labels: int
    n_features: int
    bias: float

    def blocks(self) -> list[Block]:
        return [Block(0, self.item_of(), 1.0)]

    def item_of(self) -> np.ndarray:
        return np.zeros(1, np.int64)

    def part(self, W: sp.csr_array, status: int, n_iter: int, figures: Mapping[str, np.ndarray]) -> Part:
        """Return the part for the weights W, which have one row per label."""
        return Part(
            0,
            self.item_of(),
            arrays={"W_data": W.data, "W_indices": W.indices, "W_indptr": W.indptr},
            status=np.array([status], np.uint8),
            n_iter=np.array([n_iter], np.int32),
            figures=figures,
        )

    def stack(self) -> Stack:
        return _OnePart(self)

    def settled(self, n_threads: int) -> Self:
        """Return the same problem after the choices that training makes first. They are made on fewer rows here."""
        return self

    def effort(self, share: float) -> float:
        """Return the time of all work divided by what it would be at the pace of the first `share` of the work.

        The work is that of the `settled` problem. What it leaves out is counted here.
        """
        return 1.0

    @abstractmethod
    def like(self, X: sp.csr_array, Y: sp.csr_array) -> Self:
        """Return the same problem on other rows and labels, with the same number of passes."""

    def forecast(self, X: Any, Y: sp.csr_array, n_threads: int) -> Forecast:
        return forecast.of_coupled(self, X, Y, n_threads)


class _OnePart(Stack):
    """Turns the only part of a coupled problem into the model."""

    def __init__(self, problem: CoupledProblem) -> None:
        self.problem = problem

    def add(self, part: Part) -> None:
        arrays = part.arrays
        shape = (self.problem.n_labels, self.problem.n_features + (self.problem.bias > 0))
        self.W = sp.csr_array((arrays["W_data"], arrays["W_indices"], arrays["W_indptr"]), shape=shape)

    def model(self) -> LinearModel:
        return LinearModel(self.W, self.problem.n_features, self.problem.bias)
