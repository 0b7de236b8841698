"""The seam between estimators, solvers and whatever runs them: problem, block, part, stack.

    estimator --_problem(X, Y)--> Problem --blocks()--> Block --solve(block, work)--> Part --Stack.add--> model

A *problem* is made once per fit, with all that its blocks share. Its *blocks* need nothing from each other. Solving a
block gives a *part*: plain arrays and numbers, so that another process can solve the block, write the part to disk, and
read it back. A *stack* takes parts in any order and becomes the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.models import LinearModel, Model
from longtail.parallel import Work


class Block(NamedTuple):
    """A piece of work. The plan depends on the data and the parameters, never on the number of workers."""

    number: int  # position in the plan
    items: np.ndarray  # what to solve: columns of Y, or repetitions; [0] for a problem of one block
    cost: float  # expected work, in a unit that all blocks of a problem share


@dataclass(frozen=True, eq=False)
class Part:
    """The solution of one block.

    `arrays` are what the stack makes the model of. `status` and `n_iter` have one entry per item of the block, and so
    have `figures`, except in a problem of a single item, where they may have any shape.
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

    @abstractmethod
    def add(self, part: Part) -> None:
        """Take a part; each comes once."""

    @abstractmethod
    def model(self) -> Model:
        """The model of all parts, without names; nothing can be added afterwards."""


class Problem(ABC):
    """One training problem: canonical X and Y with resolved parameters, and everything that all blocks share."""

    unit: ClassVar[str]  # what an item is: "label", "repetition" or "model"
    settings: Mapping[str, Any]  # the resolved parameters, as plain JSON values

    @abstractmethod
    def blocks(self) -> list[Block]:
        """The plan: every item is in exactly one block."""

    @abstractmethod
    def solve(self, block: Block, work: Work) -> Part:
        """Solve one block. Pure: the same part, byte for byte, wherever it is solved and on any number of threads."""

    @abstractmethod
    def stack(self) -> Stack: ...

    @abstractmethod
    def item_of(self) -> np.ndarray:
        """For each unit (label, repetition) the item that is solved for it. Labels on the same rows share one."""

    def earlier(self) -> list[Part]:
        """Parts that need no solving, because a warm start brings them. Their items are in no block."""
        return []


# --- problems of a single block --------------------------------------------------------------------------------------


class CoupledProblem(Problem):
    """A problem that couples all labels: its only block gives all weights of a linear model."""

    unit = "model"
    n_labels: int
    n_features: int
    bias: float

    def blocks(self) -> list[Block]:
        return [Block(0, self.item_of(), 1.0)]

    def item_of(self) -> np.ndarray:
        return np.zeros(1, np.int64)

    def part(self, W: sp.csr_array, status: int, n_iter: int, figures: Mapping[str, np.ndarray]) -> Part:
        """The solution: weights W, one row per label."""
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
