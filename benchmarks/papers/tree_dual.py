"""Whether the tree helps the dual solver: labels that begin at the solution of their parent, or at its positives.

The solution of a label is its alphas. A label that begins with those of its parent keeps them on the rows where both
have the same sign; the rest of the parent's support joins the working set with alpha 0. All labels are solved first,
and this time is not counted, so the gain is what the best order of labels could reach.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import longtail as lt
from benchmarks.papers.common import Bench, Row, Rows, table
from benchmarks.papers.newton_runs import data_of, rounded
from longtail.matrix import normalize_rows
from longtail.methods.one_vs_all.label_tree import label_tree
from longtail.methods.one_vs_all.order import ROOT
from longtail.methods.one_vs_all.parts import alphas_of
from longtail.methods.one_vs_all.problem import OneVsAllProblem
from longtail.methods.problem import Block, Extras, Part
from longtail.parallel import Work

DATA = ("tib-gnd-en-papers", "debian-tags")
ROUNDS = 3  # the fastest of so many is kept


def measure(bench: Bench) -> None:
    for name in DATA[:1] if bench.quick else DATA:
        bench.row(name, compared, bench.folder_of(name), 1 if bench.quick else ROUNDS)


def problem_of(train: lt.Dataset, start: str = "msi", extras: Extras | None = None) -> OneVsAllProblem:
    clf = lt.OneVsAll(start=start, n_jobs=1)
    clf._extras = extras or Extras()
    return clf._problem(normalize_rows(train.X), train.Y)


def solved(problem: OneVsAllProblem, labels: np.ndarray) -> tuple[float, Part]:
    started = time.process_time()
    part = problem.solve(Block(0, labels, 1.0), Work())
    return time.process_time() - started, part


def compared(folder: Path | None, n_rounds: int) -> Row:
    train, _ = data_of(folder)
    plain = problem_of(train, extras=Extras(keep_alphas=True))
    parent = label_tree(plain.positives, plain.n_samples, plain.labels)
    near = plain.labels[parent[plain.labels] != ROOT]
    _, part = solved(plain, plain.labels)
    begun = {
        "as usual": problem_of(train),
        "parent's positives": problem_of(train, "tree"),
        "parent's solution": problem_of(train, extras=Extras(alphas=of_parents(part, parent, near, train))),
    }
    times: dict[str, list[float]] = {name: [] for name in begun}
    found: Row = {"labels": len(near), "of": len(plain.labels)}
    for _ in range(n_rounds):
        for name, problem in begun.items():
            seconds, part = solved(problem, near)
            times[name].append(1000 * seconds / len(near))
            found[name] = {"ms": min(times[name]), "rounds": part.n_iter.mean(), "gap": part.figures["gap"].max()}
    return rounded(found)


def of_parents(part: Part, parent: np.ndarray, near: np.ndarray, train: lt.Dataset) -> sp.csr_array:
    """The alphas of the parents, in the rows of their children; other labels have none."""
    place = np.full(train.n_labels, -1)
    place[part.items] = np.arange(len(part.items))
    chosen = sp.csr_array(
        (np.ones(len(near), np.float32), (near, place[parent[near]])), shape=(train.n_labels, len(part.items))
    )
    return sp.csr_array(chosen @ alphas_of(part, train.n_samples))


def show(rows: Rows, folder: Path) -> str:
    names = ("as usual", "parent's positives", "parent's solution")
    lines = [
        [data, f"{row['labels']:,} of {row['of']:,}", *(f"{row[name]['ms']:.2f} ({row[name]['rounds']:.1f})" for name in names)]
        for data, row in rows.items()
    ]  # fmt: skip
    ratios = [row["parent's solution"]["ms"] / row["as usual"]["ms"] for row in rows.values()]
    told = "to ".join(f"{value:.2f} " for value in (min(ratios), max(ratios)))
    return (
        "The supplement starts a primal solver at the parent's solution. Our default is a dual solver, for which the parent's "
        "solution is its alphas. Labels whose parent is another label: CPU milliseconds per label (rounds), one thread, the fastest "
        f"of three, to a gap of 1 %.\n\n{table(['data', 'labels', *names], lines)}\n\n"
        f"Beginning at the parent's solution takes {told}times as long as beginning as usual. A label would also have to wait for its "
        "parent, where 32 labels now share a pass. "
        + (
            "So it does not pay, and the dual solver does not do it."
            if max(ratios) > 0.85
            else "It would pay where labels can wait."
        )
    )
