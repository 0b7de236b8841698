"""What a start is: it fills the first weights of labels, and says in which order they are solved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from longtail import parallel
from longtail.methods.one_vs_all.problem import Problem

DENSE_WEIGHTS = 4_000_000  # entries of the dense (labels, D) buffer that a thread solves into before pruning


@dataclass(frozen=True)
class Task:
    """What Newton minimises and when it stops; first weights may depend on it. `loss` is a code of newton_kernels."""

    problem: Problem
    loss: int
    C: float
    tol: float
    max_iter: int


class Start(ABC):
    """First weights of labels. The options of a start are the keywords of its `__init__`: numbers, or a few words."""

    needs_bias: ClassVar[bool] = False

    def __init__(self, task: Task) -> None:
        self.problem = task.problem

    @abstractmethod
    def guess(self, labels: np.ndarray, out: np.ndarray) -> None:
        """Write the first weights of `labels` into the rows of `out` (labels, D)."""

    def blocks(self, size: int) -> list[np.ndarray]:
        """All labels, in blocks of about `size` that can be solved apart from each other."""
        return [np.arange(part.start, part.stop) for part in parallel.ranges(self.problem.n_labels, size)]

    def walk(self, labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """A few labels at a time, in the order to solve them, with first weights W that the caller turns into solutions
        in place before it asks for the next. So a start can go on from the solutions that it saw, and keeps no state
        between calls. Every label comes at least once; some that were not asked for may come, too."""
        for part in parallel.ranges(len(labels), DENSE_WEIGHTS // self.problem.D):
            chunk = labels[part.start : part.stop]
            W = np.empty((len(chunk), self.problem.D))
            self.guess(chunk, W)
            yield chunk, W
