"""Measures during training how exact the oracle is, on a sample of its queries.

The true margin of a row x with label y is m = x.w_y - max_r x.w_r, over all classes r that are not labels of the row.
Training uses m' = x.w_y - x.w_r' with the rival r' that the oracle found, so m' >= m, and m' - m is called the *excess*
of the margin. An oracle has an (epsilon, delta)-inexact margin if m' - m <= epsilon with probability 1 - delta. (The
definition in the paper bounds m - m', which is never positive; its Theorem 1 uses the bound as written here.)
"""

from __future__ import annotations

import numpy as np

from longtail.methods.memoir.oracles import Oracle

DELTAS = (0.5, 0.25, 0.1, 0.05, 0.01)
N_BATCHES = 32  # number of sampled batches
N_ROWS = 8  # number of sampled rows per batch
TIE = 1e-6  # scores that differ by less count as equal, because the oracle and the exact search sum in different orders


class RecallSample:
    """Compares the oracle with an exact search, for a few rows of some batches, spread evenly over training."""

    def __init__(self, oracle: Oracle, n_batches: int, n_parts: int = 1) -> None:
        self.oracle = oracle
        self.batches = _spread(n_batches, N_BATCHES)
        self.parts = _spread(n_parts, N_ROWS)
        self.n_rows = N_ROWS // len(self.parts)  # of a part
        self.excess: list[np.ndarray] = []

    def compare(self, batch: int, part: int, rows: np.ndarray, rivals: np.ndarray) -> None:
        """Compare the rivals that the oracle found in a part of a batch with the true ones. Called before the weights
        change."""
        if batch not in self.batches or part not in self.parts:
            return
        rows, rivals = rows[: self.n_rows], rivals[: self.n_rows]
        best = self.oracle.best(rows)
        has_rival = best >= 0
        best = best[has_rival]
        rows = rows[has_rival]
        rivals = rivals[has_rival]
        vectors, X = self.oracle.vectors, self.oracle.X
        best_scores = vectors.scores(X, rows, best)
        nothing_found = np.minimum(best_scores, 0.0)  # as if the rival was a class without weights
        found_scores = np.where(rivals >= 0, vectors.scores(X, rows, rivals), nothing_found)
        self.excess.append(np.maximum(best_scores - found_scores, 0.0))

    def figures(self) -> dict[str, np.ndarray]:
        """The figures of the training record; see `figures_of`."""
        return figures_of(np.concatenate(self.excess) if self.excess else np.empty(0))


def _spread(n: int, wanted: int) -> frozenset[int]:
    """At most `wanted` of the numbers from 0 to n - 1, evenly spaced."""
    return frozenset(np.linspace(0, n - 1, min(wanted, n)).astype(int).tolist())


def figures_of(excess: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the figures from the excesses of all sampled queries.

    recall : share of the queries that found the true rival, or a class with the same score
    excess : mean excess of the margin
    epsilon, delta : at most a share delta[k] of the queries has an excess above epsilon[k]
    n_queries : number of sampled queries; if it is 0, recall is 1 and the excess is 0
    """
    delta = np.array(DELTAS)
    known = excess if len(excess) else np.zeros(1)
    return {
        "recall": np.array([(known <= TIE).mean()]),
        "excess": np.array([known.mean()]),
        "epsilon": np.quantile(known, 1.0 - delta, method="inverted_cdf"),
        "delta": delta,
        "n_queries": np.array([len(excess)], np.int64),
    }
