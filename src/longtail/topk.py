"""The result of a top-k prediction."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from longtail.errors import MissingExtra

SHOWN = 10  # rows that a printed TopK shows


class Prediction(NamedTuple):
    """One label of a row: its name (its column number if it has none), its score, and its probability or None."""

    label: Any
    score: float
    probability: float | None


@dataclass(frozen=True, eq=False, repr=False)
class TopK:
    """The k best labels of each row, best first.

    labels : (n_samples, k) int32, column numbers of Y.
    scores : (n_samples, k) float32, the scores of these labels.
    probabilities : (n_samples, k) float32, the probability of each label. None if the model is not calibrated.
    names : the names of all labels, in column order; None if labels are just numbers.

    A TopK is a sequence: `top[3]` are the predictions of row 3, `top[:10]` is a TopK of ten rows, and iteration
    gives one row at a time. `print(top)` shows a table, and `top.to_frame()` is a pandas DataFrame.
    """

    labels: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None = None
    names: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[list[Prediction]]:
        return (self._row(i) for i in range(len(self)))

    def __getitem__(self, rows: Any) -> Any:
        """The predictions of one row as a list, or a TopK of several rows (a slice, numbers or truth values)."""
        if isinstance(rows, numbers.Integral):
            return self._row(int(rows))
        chosen = rows if isinstance(rows, slice) else np.asarray(rows, None if len(rows) else np.intp)
        probabilities = None if self.probabilities is None else self.probabilities[chosen]
        return TopK(self.labels[chosen], self.scores[chosen], probabilities, self.names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopK):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in ("labels", "scores", "probabilities"))

    __hash__ = None  # type: ignore[assignment]  # arrays can change

    def __str__(self) -> str:
        lines = [["row", *(f"label {rank + 1}" for rank in range(self.labels.shape[1]))]]
        for i, row in enumerate(self[:SHOWN]):
            values = (each.score if each.probability is None else each.probability for each in row)
            lines.append([str(i), *(f"{each.label} {v:.3f}" for each, v in zip(row, values, strict=True))])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([*text, *([f"({len(self):,} rows)"] if len(self) > SHOWN else [])])

    def __repr__(self) -> str:
        return f"TopK({len(self)} rows, {self.labels.shape[1]} labels each)\n{self}"

    @property
    def values(self) -> np.ndarray:
        """The values that thresholds are compared with: probabilities if there are any, otherwise scores."""
        return self.scores if self.probabilities is None else self.probabilities

    def first(self, k: int) -> TopK:
        """The k best labels only."""
        probabilities = None if self.probabilities is None else self.probabilities[:, :k]
        return TopK(self.labels[:, :k], self.scores[:, :k], probabilities, self.names)

    def without(self, pairs: Any, k: int) -> TopK:
        """The k best labels that `pairs` (a sparse indicator, rows by labels) does not have.

        A row with fewer than k others is filled up with left-out labels of score -inf and probability 0.
        """
        n, n_labels = pairs.shape
        listed = np.repeat(np.arange(n), np.diff(pairs.indptr)) * n_labels + pairs.indices
        out = np.isin(np.arange(n)[:, None] * n_labels + self.labels, listed)
        best = np.argsort(out, axis=1, kind="stable")[:, :k]
        lost = np.take_along_axis(out, best, axis=1)
        chances = None
        if self.probabilities is not None:
            chances = np.where(lost, np.float32(0), np.take_along_axis(self.probabilities, best, axis=1))
        scores = np.where(lost, np.float32("-inf"), np.take_along_axis(self.scores, best, axis=1))
        return TopK(np.take_along_axis(self.labels, best, axis=1), scores, chances, self.names)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one line per row and rank: row, rank (from 1), label, score and probability."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("pandas", "data", "TopK.to_frame") from None
        n, k = self.labels.shape
        labels = self.labels.ravel()
        columns = {
            "row": np.repeat(np.arange(n), k),
            "rank": np.tile(np.arange(1, k + 1), n),
            "label": labels if self.names is None else self.names[labels],
            "score": self.scores.ravel(),
        }
        if self.probabilities is not None:
            columns["probability"] = self.probabilities.ravel()
        return pd.DataFrame(columns)

    def _row(self, i: int) -> list[Prediction]:
        labels = self.labels[i] if self.names is None else self.names[self.labels[i]]
        chances = [None] * len(labels) if self.probabilities is None else self.probabilities[i].tolist()
        return [Prediction(*each) for each in zip(labels.tolist(), self.scores[i].tolist(), chances, strict=True)]


def _equal(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    return left is right if left is None or right is None else np.array_equal(left, right)
