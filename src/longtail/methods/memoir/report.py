"""How inexact the margins were, measured while training on a sample of the queries.

The margin of a row over its true rival is m = x.w_y - max_r x.w_r, the one that training uses is m' = x.w_y - x.w_r'
with the class r' that the oracle found. A margin is (epsilon, delta) inexact if m' - m <= epsilon with probability 1 -
delta. (As printed, the definition bounds m - m', which is never positive; its use in Theorem 1 is the other way round.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.methods.memoir.oracles import Oracle

DELTAS = (0.5, 0.25, 0.1, 0.05, 0.01)
N_BATCHES, N_ROWS = 32, 8  # how many batches are looked at, and how many of their rows
TIE = 1e-6  # scores that differ by less are equal: they were summed in another order


@dataclass(frozen=True)
class OracleReport:
    """What sampled queries found. `recall`: how often the oracle found the true rival (or its equal in score).
    `epsilon[delta]`: the excess m' - m that a share delta of the queries exceeded. `excess`: the mean of m' - m."""

    oracle: str
    n_queries: int
    recall: float
    excess: float
    epsilon: dict[float, float]

    @staticmethod
    def of(oracle: str, excess: np.ndarray) -> OracleReport:
        if not len(excess):
            return OracleReport(oracle, 0, 1.0, 0.0, dict.fromkeys(DELTAS, 0.0))
        quantiles = np.quantile(excess, [1.0 - delta for delta in DELTAS], method="inverted_cdf")
        epsilon = {delta: round(float(value), 6) for delta, value in zip(DELTAS, quantiles, strict=True)}
        recall, mean = round(float((excess <= TIE).mean()), 6), round(float(excess.mean()), 6)
        return OracleReport(oracle, len(excess), recall, mean, epsilon)

    def to_json(self) -> dict[str, Any]:
        epsilon = {str(delta): value for delta, value in self.epsilon.items()}
        return {**vars(self), "epsilon": epsilon}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> OracleReport:
        """Raises KeyError, TypeError or ValueError where `to_json` could not have written the values."""
        pairs = [(float(delta), float(value)) for delta, value in dict(values["epsilon"]).items()]
        epsilon = dict(sorted(pairs, reverse=True))  # JSON sorts by name
        name, n_queries = values["oracle"], values["n_queries"]
        if not isinstance(name, str) or not isinstance(n_queries, int):
            raise TypeError("the oracle has a name and a whole number of queries")
        return OracleReport(name, n_queries, float(values["recall"]), float(values["excess"]), epsilon)


class Examiner:
    """Compares what the oracle found with the truth, for a few rows of some batches, evenly spread over training."""

    def __init__(self, oracle: Oracle, n_iter: int) -> None:
        self.oracle = oracle
        self.when = set(np.linspace(0, n_iter - 1, min(N_BATCHES, n_iter)).astype(int).tolist()) if n_iter else set()
        self.excess: list[np.ndarray] = []

    def look(self, t: int, rows: np.ndarray, rivals: np.ndarray) -> None:
        """Called in step t, before the weights move."""
        if t not in self.when:
            return
        rows, rivals = rows[:N_ROWS], rivals[:N_ROWS]
        best = self.oracle.best(rows)
        rows, rivals, best = rows[best >= 0], rivals[best >= 0], best[best >= 0]
        weights, X = self.oracle.weights, self.oracle.X
        lowest = np.minimum(weights.scores(X, rows, best), 0.0)  # where nothing was found: as if one of no weights
        found = np.where(rivals >= 0, weights.scores(X, rows, rivals), lowest)
        self.excess.append(np.maximum(weights.scores(X, rows, best) - found, 0.0))

    def report(self, name: str) -> OracleReport:
        return OracleReport.of(name, np.concatenate(self.excess) if self.excess else np.empty(0))
