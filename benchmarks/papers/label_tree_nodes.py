"""The starts of one-vs-all inside a label tree, as the outlook of DiSMEC++ proposes (Parabel, probabilistic label trees).

The tree has two levels. Spherical 2-means, applied again and again to the mean positives of labels, splits the labels
into groups of equal size, as in Parabel. The root separates the groups on all rows. The node of a group separates its
labels on the rows that have one of them, so positives are a large share of the rows there.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import longtail as lt
from benchmarks.papers.common import Bench, Row, Rows, table
from benchmarks.papers.newton_runs import STEPS, data_of, passes, rounded
from longtail.matrix import normalize_rows

STARTS = ("zero", "bias", "ova-primal", "msi")
DATA = "bibtex"


def measure(bench: Bench) -> None:
    for start in STARTS:
        bench.row(f"{DATA}|{start}", in_nodes, bench.folder_of(DATA), start)


def groups_of(X: sp.csr_array, Y: sp.csr_array, n_groups: int) -> list[np.ndarray]:
    """Labels in groups of nearly equal size, by balanced spherical 2-means on the mean of their positives."""
    means = normalize_rows(sp.csr_array(Y.T.astype(np.float32) @ X))
    groups = [np.arange(Y.shape[1])]
    while len(groups) < n_groups:
        groups.sort(key=len)
        largest = groups.pop()
        groups += halves(means[largest], largest)
    return groups


def halves(means: sp.csr_array, labels: np.ndarray) -> list[np.ndarray]:
    first, second = means[[0]], means[[len(labels) - 1]]
    for _ in range(5):
        order = np.argsort((means @ (first - second).T).toarray().ravel(), kind="stable")
        parts = order[: len(order) // 2], order[len(order) // 2 :]
        second, first = (sp.csr_array(means[part].mean(axis=0).reshape(1, -1)) for part in parts)
    return [labels[part] for part in parts]


def in_nodes(folder: Path | None, start: str) -> Row:
    train, _ = data_of(folder)
    X, Y = normalize_rows(train.X), train.Y
    groups = groups_of(X, Y, max(2, round(Y.shape[1] ** 0.5)))
    member = np.zeros(Y.shape[1], np.int64)
    for number, labels in enumerate(groups):
        member[labels] = number
    to_group = sp.csr_array((np.ones(len(member), np.int32), (np.arange(len(member)), member)))
    above = sp.csr_array((Y @ to_group > 0).astype(np.int32))
    nodes = [above.T.tocsr()[[number]].indices for number in range(len(groups))]
    root, below = solved(X, above, start), []
    for rows, labels in zip(nodes, groups, strict=True):
        below.append(solved(X[rows], Y[rows][:, labels], start))
    steps, work = (np.concatenate(each) for each in zip(*below, strict=True))
    found = {"groups": len(groups), "rows per node": float(np.mean([len(rows) for rows in nodes]))}
    return rounded(
        {**found, "root": [float(each.mean()) for each in root], "nodes": [float(steps.mean()), float(work.mean())]}
    )


def solved(X: sp.csr_array, Y: sp.csr_array, start: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and passes of every label of a node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        record = lt.OneVsAll.paper(start=start, trace=STEPS, n_jobs=1).fit(X, Y).training_
    return record.n_iter.astype(float), passes(record, X.shape[0]).sum(axis=1)


def show(rows: Rows, folder: Path) -> str:
    lines, ratios = [], []
    for name in dict.fromkeys(key.partition("|")[0] for key in rows):
        own = {start: rows[f"{name}|{start}"] for start in STARTS}
        for level, size in (("root", "all"), ("nodes", f"{own['zero']['rows per node']:,.0f}")):
            cells = [f"{row[level][1]:.1f} ({row[level][0]:.1f})" for row in own.values()]
            ratios.append(own["zero"][level][1] / own["msi"][level][1])
            lines.append([name, level, size, *cells, f"{ratios[-1]:.1f}"])
    return (
        "A label tree of two levels: the root separates groups of similar labels, and each node the labels of a group, on the rows "
        "that have one of them. Passes over the rows of the node per classifier (Newton steps); no accuracy is measured.\n\n"
        f"{table(['data', 'level', 'rows', *STARTS, 'zero / msi'], lines)}\n\n"
        f"MSI saves a factor of {min(ratios):.1f} to {max(ratios):.1f} against `zero` here. The paper leaves this to future work. "
        "Its other proposal, bucket classifiers, is an experiment of [MACH](mach.md)."
    )
