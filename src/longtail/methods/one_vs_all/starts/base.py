"""What a start is: it fills the first weights of labels, and says in which order they are solved, and with which rows
the dual solver begins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from longtail import parallel
from longtail.compiled import frozen
from longtail.methods.one_vs_all.newton_kernels import margins
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


class First(NamedTuple):
    """First scores of all rows, for the dual solver: a label begins with its own rows and others that score highest.

    Row i scores base_i. With `separate`, it scores u p.x_i + v base_i instead, p being the mean of the label's rows and
    base_i = m.x_i with the mean row m, such that p scores `positive` and the mean of the other rows `negative`.
    The rows of label parent[label], where that is not negative, are among the first rows of a label, too.
    """

    base: np.ndarray
    separate: bool
    mean_square: float  # m.m
    positive: float
    negative: float
    parent: np.ndarray


class Start(ABC):
    """First weights of labels. The options of a start are the keywords of its `__init__`: numbers, or a few words."""

    needs_bias: ClassVar[bool] = False

    def __init__(self, task: Task) -> None:
        self.problem = task.problem

    @abstractmethod
    def guess(self, labels: np.ndarray, out: np.ndarray) -> None:
        """Write the first weights of `labels` into the rows of `out` (labels, D)."""

    def first(self) -> First:
        """What the dual solver begins with; `Start` itself has all rows score alike."""
        return First(
            base=np.zeros(self.problem.n_samples, np.float32),
            separate=False,
            mean_square=0.0,
            positive=0.0,
            negative=0.0,
            parent=np.full(self.problem.n_labels, -1),
        )

    def scores(self, w: np.ndarray) -> np.ndarray:
        """X w, in float32."""
        p, z = self.problem, np.empty(self.problem.n_samples)
        margins(*p.X, p.bias, frozen(w, np.float64), z)
        return z.astype(np.float32)

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
