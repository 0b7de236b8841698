"""The rows of a training problem, and the active set of each row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, frozen
from longtail.matrix import row_squares
from longtail.methods.state import with_room

MEMBER = np.dtype([("label", np.uint32), ("alpha", np.float64)])
SPARE_MEMBERS = 4  # room for negative labels in a row's first active set


@dataclass(frozen=True)
class LabelledRows:
    """The rows, in the form that kernels take, and their labels.

    Labels are renumbered at random: label k has the number number_of[k] in training. X has the bias feature as its last
    column, if there is one.
    """

    X: tuple[np.ndarray, np.ndarray, np.ndarray]
    squares: np.ndarray  # |x_i|^2
    n_positive: np.ndarray  # number of labels of each row
    positives: np.ndarray  # numbers of the labels of row 0, of row 1, ...
    number_of: np.ndarray
    n_features: int

    @classmethod
    def of(cls, X: sp.csr_array, Y: sp.csr_array, bias: float, rng: np.random.Generator) -> LabelledRows:
        if bias:
            constant = np.full((X.shape[0], 1), bias, np.float32)
            X = sp.csr_array(sp.hstack([X, sp.csr_array(constant)], format="csr"))
        number_of = rng.permutation(Y.shape[1]).astype(np.uint32)
        return cls(
            X=csr_parts(X),
            squares=frozen(row_squares(X), np.float64),
            n_positive=frozen(np.diff(Y.indptr), np.uint32),
            positives=number_of[Y.indices],
            number_of=number_of,
            n_features=X.shape[1],
        )

    @property
    def n_samples(self) -> int:
        return len(self.squares)

    @property
    def n_labels(self) -> int:
        return len(self.number_of)

    @property
    def with_loss(self) -> np.ndarray:
        """The rows that can have a loss. Rows without labels, and rows with all labels, have none."""
        return np.flatnonzero((self.n_positive > 0) & (self.n_positive < self.n_labels))

    def sampling_rate(self, C: float) -> float:
        """Return d_i / d~_i: the features of a row divided by the features that are drawn (section 4.4)."""
        entries = len(self.X[0])
        log_labels = math.log(max(self.n_labels, 2))
        by_weights = 5.0 * self.n_features * self.n_labels / max(C * entries * log_labels, 1e-300)
        return float(math.ceil(max(1e-9, min(by_weights, entries / (5.0 * self.n_samples)))))


class Members(NamedTuple):
    """The active sets. Row i has held[start[i] : start[i] + size[i]], its positive labels first."""

    held: np.ndarray  # records of MEMBER
    start: np.ndarray
    size: np.ndarray
    room: np.ndarray  # records reserved for each row
    used: np.ndarray  # (1,) records reserved so far

    @classmethod
    def of(cls, samples: LabelledRows) -> Members:
        """The positive labels of every row, with alpha = 0."""
        sizes = samples.n_positive.astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(sizes + SPARE_MEMBERS)])
        held = np.zeros(ends[-1] + ends[-1] // 2 + 1024, MEMBER)
        first = np.repeat(ends[:-1] - np.cumsum(sizes) + sizes, sizes)
        held["label"][first + np.arange(sizes.sum())] = samples.positives
        return cls(
            held=held,
            start=ends[:-1].astype(np.uint64),
            size=samples.n_positive.copy(),
            room=(sizes + SPARE_MEMBERS).astype(np.uint32),
            used=ends[-1:].astype(np.uint64),
        )

    @classmethod
    def one_each(cls, labels: np.ndarray) -> Members:
        """One label for each row, with alpha = 1."""
        held = np.zeros(len(labels), MEMBER)
        held["label"] = labels
        held["alpha"] = 1.0
        ones = np.ones(len(labels), np.uint32)
        starts = np.arange(len(labels), dtype=np.uint64)
        return cls(held, starts, ones, ones, np.array([len(labels)], np.uint64))

    def reserve(self, records: int) -> None:
        """Make room for this many further records."""
        missing = int(self.used[0]) + records - len(self.held)
        if missing > 0:
            self.held.resize(len(self.held) + len(self.held) // 2 + missing, refcheck=False)

    def copy(self) -> Members:
        return Members(*(part.copy() for part in self))

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays without the unused end of `held`. Records are returned as bytes."""
        return {**self._asdict(), "held": self.held[: int(self.used[0])].view(np.uint8)}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Members:
        """Rebuild the members from a `state`."""
        arrays = {name: state[name].copy() for name in cls._fields}
        arrays["held"] = with_room(arrays["held"].view(MEMBER), 1024)
        return cls(**arrays)
