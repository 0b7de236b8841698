"""The theorems of MACH by simulation: what the estimators give for known probabilities, and how many classes merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.papers.common import Bench, Row, Rows, table
from longtail.methods.mach.sizes import Sizes, repetitions_for
from longtail.models import HashedModel
from longtail.models.hashing import Hashes

K, B, R = 500, 32, 2000
CASES = {  # name -> (labels per row that have the probability, the probability, whether exactly one label is present)
    "one label": (2, 0.5, True),
    "2 labels": (2, 0.6, False),
    "20 labels": (20, 0.6, False),
    "88 labels": (88, 0.6, False),
}


class Known:
    """Bucket classifiers that know the truth, for a single row."""

    def __init__(self, P: np.ndarray, adds_up: bool) -> None:
        self.P = P.reshape(1, -1).astype(np.float32)
        self.adds_up = adds_up

    def probabilities(self, X: Any) -> np.ndarray:
        return self.P

    def log_probabilities(self, X: Any) -> np.ndarray:
        return np.log(np.maximum(self.P, 1e-30))

    def rates(self, X: Any) -> np.ndarray:
        return -np.log(np.maximum(1 - self.P, 1e-30))


def measure_bias(bench: Bench) -> None:
    for name, case in CASES.items():
        bench.row(name, estimates, *case, R if not bench.quick else 50)


def estimates(m: int, p: float, one: bool, n_repetitions: int) -> Row:
    """The mean estimate of the labels with probability p, and of those with probability 0, by each aggregate."""
    truth = np.zeros(K)
    truth[:m] = p
    hashes = Hashes.draw(K, B, range(n_repetitions), 0)
    P = np.zeros((n_repetitions, B))
    for r in range(n_repetitions):
        if one:
            np.add.at(P[r], hashes.table[:, r], truth)
        else:
            absent = np.ones(B)
            np.multiply.at(absent, hashes.table[:, r], 1 - truth)
            P[r] = 1 - absent
    row = sp.csr_array(np.ones((1, 1), np.float32))
    found: Row = {"p": p}
    for aggregate in ("mean", "rate", "median", "geometric", "min"):
        scores = HashedModel(hashes, Known(P, one), 1, aggregate).scores(row, np.arange(K))[0]
        found[aggregate] = [float(scores[:m].mean()), float(scores[m:].mean())]
    return found


def show_bias(rows: Rows, folder: Path) -> str:
    names = ("mean", "rate", "median", "geometric", "min")
    lines = [
        [name, f"{row['p']:g} / 0", *(f"{row[each][0]:.2f} / {row[each][1]:.2f}" for each in names)]
        for name, row in rows.items()
    ]
    return (
        f"Simulation with true bucket probabilities, K = {K} labels, B = {B}, R = {R:,}: the mean estimate of the labels that "
        f"are likely, and of those with probability 0.\n\n{table(['labels per row', 'truth', *names], lines)}\n\n"
        "**Agreement:** with one label per row, `mean` (estimator 2) is unbiased, as Theorem 1 says. **Difference:** with "
        "several labels it is not. Then `rate`, which is unbiased on the scale −log(1 − p), comes near the truth. With exactly "
        "one label per row, labels are not independent, and `rate` is far off: each has its case."
    )


def measure_pairs(bench: Bench) -> None:
    for n_classes, n_buckets in ((1000, 4), (1000, 16), (18_521, 32)):
        for delta in (0.5, 0.1):
            n_repetitions = repetitions_for(n_classes, n_buckets, delta)
            bench.row(f"{n_classes}|{n_buckets}|{delta}", merged, n_classes, n_buckets, n_repetitions,
                      200 if not bench.quick else 5)  # fmt: skip


def merged(n_classes: int, n_buckets: int, n_repetitions: int, n_draws: int) -> Row:
    """How many of some draws of hashes have two classes that share all buckets."""
    draws = [Hashes.draw(n_classes, n_buckets, range(n_repetitions), seed) for seed in range(n_draws)]
    bound = Sizes(n_classes, 1, n_buckets, n_repetitions, "int8").pair_bound
    failed = sum(hashes.n_indistinguishable > 0 for hashes in draws)
    return {"R": n_repetitions, "bound": bound, "share": failed / n_draws}


def show_pairs(rows: Rows, folder: Path) -> str:
    lines = [[*key.split("|"), row["R"], f"{row['bound']:.3f}", f"{row['share']:.3f}"] for key, row in rows.items()]
    head = ["K", "B", "δ", "R of Theorem 2", "bound (6), K²/B^R", "share of draws with an indistinguishable pair"]
    return (
        f"200 draws of the hashes for each line.\n\n{table(head, lines)}\n\n"
        "**Agreement:** the share is below the bound, which counts K² pairs where there are K(K − 1)/2. Mostly it is far below. "
        "The bound sums over pairs. With h(k) = (ak + b mod p) mod B, pairs of the same difference tend to merge together, so "
        "many pairs merge in few draws."
    )
