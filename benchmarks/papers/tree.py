"""The algorithms and theorems of OvA-Primal++ (2019) on our data: see common.py for the options.

Only the supplement of the paper is at hand: its proofs, Algorithm 1 and the stopping rule. The tables of the paper
itself are not known here; Table 3 of DiSMEC++ has times of its code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

import longtail as lt
from benchmarks.papers import tree_bounds, tree_dual
from benchmarks.papers.common import Bench, Experiment, Paper, Row, Rows, gathered, main, table
from benchmarks.papers.newton_runs import STEPS, data_of, labels_of, measured, passes, rounded
from longtail.matrix import normalize_rows
from longtail.methods.one_vs_all.label_tree import edges, label_tree, spanning_tree
from longtail.methods.one_vs_all.order import ROOT
from longtail.methods.one_vs_all.parts import weights_of
from longtail.methods.one_vs_all.problem import OneVsAllProblem
from longtail.methods.problem import Block
from longtail.parallel import Work
from longtail.training import Training

SMALL, LARGE = ("bibtex", "tib-gnd-en-papers"), ("debian-tags", "debian-deps", "moby-thesaurus")
DATA = (SMALL[0], LARGE[0], SMALL[1], *LARGE[1:])
SAMPLES = {  # random labels that are solved, with all labels above them in the tree; all labels of the other data sets
    "tib-gnd-en-papers": 200, "debian-deps": 200, "moby-thesaurus": 100,
}  # fmt: skip
RULE = {"tol": 1.0, "max_tol": 1e-4}  # of the paper, for every start
STARTS = ("zero", "ova-primal", "tree", "msi")
EPSILON = 0.01  # of Theorem 3.2: the objective is measured to this distance from the optimum


# --- Algorithm 1, Lemma 3.2, Theorem 3.3 -----------------------------------------------------------------------------


def measure_graph(bench: Bench) -> None:
    for name in DATA[:1] if bench.quick else DATA:
        bench.row(name, graph_of, bench.folder_of(name), name not in LARGE[1:])


def graph_of(folder: Path | None, all_pairs: bool) -> Row:
    """The graph and the tree of all labels."""
    train, _ = data_of(folder)
    problem = lt.OneVsAll(solver="newton", start="zero")._problem(train.X, train.Y)
    n, labels, positives = problem.n_samples, problem.labels, problem.positives
    started = time.process_time()
    _, parent = spanning_tree(positives, n, labels)
    seconds = time.process_time() - started
    distance = to_parent(problem, parent)
    near = labels[parent[labels] != ROOT]
    return rounded({
        "rows": n,
        "labels": problem.n_labels,
        "distinct": len(labels),
        "bound": tree_bounds.theorem_3_3(np.diff(train.Y.indptr), len(labels)),
        "edges": len(edges(positives, n, labels)[0]),
        "pairs": sharing_pairs(train.Y[:, labels]) if all_pairs else None,
        "cost": int(distance[labels].sum()),
        "cost of all pairs": cost_of_all_pairs(train.Y[:, labels]) if all_pairs else None,
        "cost of the star": int(positives.n_positive[labels].sum()),
        "with parent": len(near) / len(labels),
        "distance": float(distance[near].mean()) if len(near) else None,
        "positives": float(positives.n_positive[near].mean()) if len(near) else None,
        "cut": int((label_tree(positives, n, labels) != parent).sum()),
        "CPU s": seconds,
    })  # fmt: skip


def sharing_pairs(Y: sp.csr_array) -> int:
    """Edges of the paper's graph: those to the root, and all pairs of labels that share a row."""
    return int((Y.T.astype(np.int32) @ Y).nnz - Y.shape[1]) // 2 + Y.shape[1]


def cost_of_all_pairs(Y: sp.csr_array) -> int:
    """The cost of a minimum spanning tree of the paper's graph, before any edge is left out."""
    both = sp.coo_array(sp.triu(Y.T.astype(np.int64) @ Y, k=1))
    sizes = np.asarray(Y.sum(axis=0)).ravel().astype(np.int64)
    p = np.concatenate([both.row, np.arange(Y.shape[1])])
    q = np.concatenate([both.col, np.full(Y.shape[1], Y.shape[1])])
    weight = np.concatenate([sizes[both.row] + sizes[both.col] - 2 * both.data, sizes])
    graph = sp.coo_array((weight + 1.0, (p, q)), shape=(Y.shape[1] + 1,) * 2)  # SciPy takes 0 for no edge
    return round(minimum_spanning_tree(graph.tocsr()).sum()) - Y.shape[1]


def to_parent(problem: OneVsAllProblem, parent: np.ndarray) -> np.ndarray:
    """The Hamming distance of every label to its parent; to the root it is the number of positives."""
    rows, indptr = problem.positives.rows, problem.positives.indptr.astype(np.int64)
    sizes = problem.positives.n_positive
    found = sizes.astype(np.int64).copy()
    for label in np.flatnonzero(parent != ROOT):
        above = parent[label]
        own, others = (rows[indptr[each] : indptr[each + 1]] for each in (label, above))
        found[label] = sizes[label] + sizes[above] - 2 * len(np.intersect1d(own, others, assume_unique=True))
    return found


def show_graph(rows: Rows, folder: Path) -> str:
    head = ["data", "labels", "distinct", "bound on edges", "edges of Lemma 3.2", "edges kept", "edges / bound",
            "cost of the tree", "cost with all pairs", "cost of the star", "CPU s"]  # fmt: skip
    lines = [
        [name, row["labels"], row["distinct"], int(row["bound"]), row["pairs"], row["edges"], f"{row['edges'] / row['bound']:.3f}",
         row["cost"], row["cost of all pairs"], row["cost of the star"], row["CPU s"]]
        for name, row in rows.items()
    ]  # fmt: skip
    shape = [
        [name, f"{100 * row['with parent']:.0f} %", row["distance"], row["positives"], row["cut"]]
        for name, row in rows.items()
    ]
    checked = [row for row in rows.values() if row["cost of all pairs"] is not None]
    same = sum(row["cost"] == row["cost of all pairs"] for row in checked)
    return (
        "The graph on all labels. Labels with the same rows are one vertex. `edges kept` are those of `label_tree.py`, which leaves "
        f"out more than Lemma 3.2 allows.\n\n{table(head, lines)}\n\n"
        "The tree: labels whose parent is another label, the mean Hamming distance to it, their mean number of positives (which is "
        "their distance to the root), and how many subtrees are cut to at most 256 labels.\n\n"
        f"{table(['data', 'parent is a label', 'distance to the parent', 'positives', 'cuts'], shape)}\n\n"
        f"The number of edges is below the bound of Theorem 3.3 on {sum(row['edges'] <= row['bound'] for row in rows.values())} of "
        f"{len(rows)} data sets. The tree of the edges kept costs the same as that of all edges of Lemma 3.2 on {same} of "
        f"{len(checked)} data sets where both were computed, so leaving edges out loses nothing."
    )


# --- the worth of the tree -------------------------------------------------------------------------------------------


def worth_on(*names: str) -> Callable[[Bench], None]:
    """The measurement of all starts on some data sets."""

    def measure(bench: Bench) -> None:
        for name in names[:1] if bench.quick else names:
            for start in STARTS:
                bench.row(f"{name}|{start}", worth_of, bench.folder_of(name), start, bench.sample(SAMPLES.get(name)))

    return measure


measure_worth = worth_on(*SMALL)


def worth_of(folder: Path | None, start: str, most: int | None) -> Row:
    """Solve a sample of labels with the paper's stopping rule. The tree is that of all labels."""
    train, _ = data_of(folder)
    clf = lt.OneVsAll.paper(start=start, prune=0.0, trace=STEPS, n_jobs=1, **RULE)
    problem = clf._problem(normalize_rows(train.X), train.Y)
    parent = problem.parent
    if start != "tree":
        parent = label_tree(problem.positives, problem.n_samples, problem.labels)
    sample = np.sort(np.random.default_rng(0).permutation(problem.labels)[:most])
    wanted = with_parents(sample, parent) if start == "tree" else sample
    started = time.process_time()
    part = problem.solve(Block(0, wanted, 1.0), Work())
    seconds = time.process_time() - started
    place = np.searchsorted(part.items[np.argsort(part.items)], sample)
    at = np.argsort(part.items)[place]
    figures = {name: values[at] for name, values in part.figures.items()}
    record = Training("label", part.status[at], part.n_iter[at], *(np.empty(0),) * 3, figures=figures)
    work = passes(record, problem.n_samples).sum(axis=1)
    near = parent[sample] != ROOT
    found = {
        "sampled": most is not None,
        "labels": len(sample),
        "of": len(problem.labels),
        "solved": len(wanted),
        "CPU s per label": seconds / len(wanted),
        "steps": record.n_iter.mean(),
        "passes": work.mean(),
        "active": record.n_active.mean(),
        "near": int(near.sum()),
        "near steps": record.n_iter[near].mean() if near.any() else None,
        "near passes": work[near].mean() if near.any() else None,
        "near start": np.median(record.trace_objective[near, 0]) if near.any() else None,
        "gaps": gaps_of(problem, record, sample),
    }
    if start in ("ova-primal", "tree"):
        W = weights_of(part, problem.D)
        norms = dict(zip(part.items.tolist(), np.sqrt(W.multiply(W).sum(axis=1)).tolist(), strict=True))
        used = parent if start == "tree" else np.full(len(parent), ROOT)
        found["lemma"] = lemma_of(problem, record, sample, used, norms)
    return rounded(found)


def with_parents(labels: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """These labels and all labels above them, each once, in order."""
    found = np.unique(labels)
    while True:
        above = parent[found]
        larger = np.union1d(found, above[above != ROOT])
        if len(larger) == len(found):
            return found
        found = larger


def gap_at_start(record: Training) -> np.ndarray:
    """f at the start minus a lower bound of the optimum, so that the true difference is never larger."""
    return np.asarray(record.trace_objective[:, 0] - record.objective * (1 - record.gap))


def gaps_of(problem: OneVsAllProblem, record: Training, sample: np.ndarray) -> Row:
    """What Theorems 3.1 and 3.2 are about: the gap at the start, and how the steps follow its logarithm."""
    gap = np.maximum(gap_at_start(record), EPSILON)
    mean_log, log_mean = tree_bounds.theorem_3_2(gap, EPSILON)
    logs = np.log(gap / EPSILON)
    moving = logs.std() > 0 and record.n_iter.std() > 0
    return {
        "mean": gap.mean(),
        "mean log": mean_log,
        "log mean": log_mean,
        "correlation": np.corrcoef(logs, record.n_iter)[0, 1] if moving else None,
        "positives": problem.positives.n_positive[sample].mean(),
        "rows": problem.n_samples,
    }


def lemma_of(
    problem: OneVsAllProblem, record: Training, sample: np.ndarray, parent: np.ndarray, norms: Mapping[int, float]
) -> Row:
    """The gap at the start beside the bound of Lemma 3.1, for the start at the parent's solution."""
    root = float(np.linalg.norm(problem.start.w))  # type: ignore[attr-defined]
    R = float(np.sqrt(problem.X.squares.max() + problem.X.bias**2))
    own = np.array([norms[label] for label in sample.tolist()])
    above = np.array([root if parent[label] == ROOT else norms[int(parent[label])] for label in sample])
    hamming = to_parent(problem, parent)[sample]
    bound = tree_bounds.lemma_3_1(hamming, problem.C, R, np.maximum(own, above))
    ratio = gap_at_start(record)[bound > 0] / bound[bound > 0]  # a label without positives has the root's problem
    return {
        "R": R,
        "B": float(np.maximum(own, above).max()),
        "gap": gap_at_start(record).mean(),
        "bound": bound.mean(),
        "median ratio": np.median(ratio),
        "largest ratio": ratio.max(),
        "hamming": hamming.mean(),
    }


def sets_of(rows: Rows) -> list[str]:
    found = {key.partition("|")[0] for key in rows}
    return [name for name in DATA if name in found]


def show_worth(rows: Rows, folder: Path) -> str:
    rows = gathered(folder, "worth")
    lines, near, gains = [], [], []
    for name in sets_of(rows):
        own = {start: rows[f"{name}|{start}"] for start in STARTS}
        lines.append([name, labels_of(own["tree"]), *(f"{row['passes']:.1f} ({row['steps']:.1f})" for row in own.values()),
                      *(f"{1000 * row['CPU s per label']:.0f}" for row in own.values())])  # fmt: skip
        if own["tree"]["near"]:
            cells = [f"{row['near passes']:.1f} ({row['near steps']:.1f})" for row in own.values()]
            starts = [f"{own[start]['near start']:.3g}" for start in ("ova-primal", "tree")]
            near.append([name, own["tree"]["near"], *cells, *starts])
            gains.append(own["ova-primal"]["near passes"] / own["tree"]["near passes"])
    head = [*STARTS, *(f"{start}, ms" for start in STARTS)]
    most = max(gains, default=1.0)
    sets = [{start: rows[f"{name}|{start}"]["passes"] for start in STARTS} for name in sets_of(rows)]
    over_all = [own["ova-primal"] / own["tree"] for own in sets]
    n_best = sum(min(own, key=own.__getitem__) == "msi" for own in sets)
    return (
        "The tree of all labels. All distinct labels, or a random sample of them, are solved with the paper's stopping rule (with "
        "`tree`, also the labels above the sample): passes over the rows per label (Newton steps), and CPU milliseconds per label "
        f"on a machine with other work.\n\n{table(['data', 'labels', *head], lines)}\n\n"
        "The same for the labels of the sample whose parent is another label, with the median objective at the start:\n\n"
        f"{table(['data', 'labels', *STARTS, 'ova-primal starts at', 'tree starts at'], near)}\n\n"
        f"For labels with a parent, the tree divides the passes of OvA-Primal by {min(gains, default=1.0):.1f} to {most:.1f}; over all "
        f"labels by {min(over_all):.1f} to {max(over_all):.1f}, because the other labels are next to the root. `msi` needs no tree and "
        f"takes the fewest passes on {n_best} of {len(lines)} data sets; DiSMEC++ (Table 3) also finds it ahead of the tree."
    )


# --- the theorems ----------------------------------------------------------------------------------------------------


def show_lemma(rows: Rows, folder: Path) -> str:
    rows = gathered(folder, "worth")
    lines = []
    for name in sets_of(rows):
        for start in ("ova-primal", "tree"):
            own = rows[f"{name}|{start}"]["lemma"]
            lines.append(
                [
                    name,
                    start,
                    own["hamming"],
                    own["B"],
                    own["gap"],
                    own["bound"],
                    own["median ratio"],
                    own["largest ratio"],
                ]
            )
    worst = max(line[-1] for line in lines)
    head = [
        "data",
        "start",
        "mean l_H",
        "B",
        "mean gap at the start",
        "mean bound",
        "median gap / bound",
        "largest gap / bound",
    ]
    return (
        "f(y_q, w\\*_p) − f(y_q, w\\*_q) of the labels of the sample, with p the root (`ova-primal`) or the parent (`tree`), beside "
        "4 l_H C α R B. The squared hinge is not Lipschitz; on the scores that occur, |x·w| ≤ R B, it is with α = 2 (1 + R B). R is "
        "the length of the longest row with its bias feature, √2 here, where the paper has 1.\n\n"
        f"{table(head, lines)}\n\n"
        f"The bound holds for every label, and is loose by a factor of {1 / worst:.0f} at least: the largest ratio is {worst:.2g}. "
        "w\\*_p is the solution to the tolerance of the stopping rule."
    )


def show_totals(rows: Rows, folder: Path) -> str:
    rows = gathered(folder, "worth")
    lines, second = [], []
    for name in sets_of(rows):
        own = {start: rows[f"{name}|{start}"] for start in ("zero", "ova-primal", "tree")}
        zero, primal, tree = (row["gaps"] for row in own.values())
        bound = rows[f"{name}|ova-primal"]["lemma"]["bound"]
        lines.append([name, zero["rows"], zero["mean"], primal["positives"], primal["mean"], bound, tree["mean"]])
        steps = [f"{row['steps']:.1f}" for row in own.values()]
        logs = [f"{each['mean log']:.1f} ≤ {each['log mean']:.1f}" for each in (zero, primal, tree)]
        predicted = zero["mean log"] / primal["mean log"]
        found = own["zero"]["steps"] / own["ova-primal"]["steps"]
        seen = [None if each["correlation"] is None else f"{each['correlation']:.2f}" for each in (zero, primal, tree)]
        second.append([name, *logs, *steps, f"{predicted:.1f}", f"{found:.1f}", " / ".join(str(each) for each in seen)])
    columns = [
        "data",
        "zero",
        "ova-primal",
        "tree",
        "steps: zero",
        "ova-primal",
        "tree",
        "predicted",
        "measured",
        "correlation",
    ]
    return (
        "Theorem 3.1: the mean gap at the start per label. From `zero` it is about the number of rows N; from w\\*_0 it is bounded by "
        "a multiple of the mean number of positives.\n\n"
        f"{table(['data', 'N', 'gap of zero', 'mean positives', 'gap of ova-primal', 'its bound', 'gap of tree'], lines)}\n\n"
        f"Theorem 3.2: the mean of log(gap / ε) with ε = {EPSILON:g} and its bound by (7); the mean number of Newton steps; the ratio "
        "of `zero` to `ova-primal` that the logarithms predict, and the one that is measured; and the correlation of steps and "
        f"logarithm over labels.\n\n{table(columns, second)}\n\n"
        "The theorem assumes a linear rate of convergence. Newton with line search is faster near the optimum, so its steps follow "
        "the logarithm of the first gap only loosely. The text of the supplement simplifies log(N/ε) / log(N̄/ε) to log((N − N̄)/ε), "
        "which is an error; the ratio above is the correct one."
    )


# --- the stopping rule -----------------------------------------------------------------------------------------------

RULES: Mapping[str, Row] = {
    "LIBLINEAR and DiSMEC++: 0.01 min(P, N) / n": {"tol": 0.01, "max_tol": None},
    "OvA-Primal++: min(min(P, N) / n, 1e-4)": RULE,
}


def measure_rules(bench: Bench) -> None:
    for start in ("tree", "msi"):
        for rule, parameters in RULES.items():
            given = {"start": start, **parameters}
            bench.row(f"{SMALL[0]}|{start}|{rule}", rule_of, bench.folder_of(SMALL[0]), given)


def rule_of(folder: Path | None, parameters: Row) -> Row:
    row = measured(folder, parameters)
    return {name: row[name] for name in ("CPU s", "steps", "passes", "gap", "P", "unsolved")}


def show_rules(rows: Rows, folder: Path) -> str:
    lines = []
    for key, row in rows.items():
        scores = " / ".join(f"{value:.1f}" for value in row["P"])
        lines.append(
            [*key.split("|"), f"{row['passes']:.1f} ({row['steps']:.1f})", f"{row['gap']:.1g}", scores, row["unsolved"]]
        )
    loosest = max(row["gap"] for row in rows.values())
    return (
        "Section 2.1 of the supplement: the factor of |g(0)| at which a label stops. Passes per label (steps), median relative gap "
        f"at the end, P@1/3/5 on test rows, all labels.\n\n"
        f"{table(['data', 'start', 'rule', 'passes (steps)', 'median gap', 'P@1 / 3 / 5', 'not converged'], lines)}\n\n"
        "The paper calls LIBLINEAR's rule very strict for rare labels. Its own rule is looser for labels below n / 100 positives and "
        f"stricter above. With either, the median gap is at most {loosest:.1g}, and P@k says what that costs."
    )


ABOUT = (
    "H. Fang, M. Cheng, C.-J. Hsieh, M. Friedlander: Fast training for large-scale one-versus-all linear classifiers using "
    "tree-structured initialization. SDM 2019. Only its supplement was at hand: the proofs, Algorithm 1 and the stopping rule. "
    "Times of its code are in [Table 3 of DiSMEC++](one_vs_all.md#table-3-ova-primal-and-msi). "
    '`OneVsAll.paper(start="tree")` has its settings. Where the method differs is on the page of '
    "[OneVsAll](../methods/one-vs-all.md#differences-from-the-paper)."
)

PAPER = Paper(
    "tree",
    "OvA-Primal++: algorithm and theorems",
    ABOUT,
    (
        Experiment(
            "theorem-3-3", "Algorithm 1, Lemma 3.2 and Theorem 3.3: the graph and the tree", measure_graph, show_graph
        ),
        Experiment("worth-small", "The worth of the tree", measure_worth, show_worth, minutes=4),
        Experiment("lemma-3-1", "Lemma 3.1: the gap at the start", measure_worth, show_lemma, "worth-small", minutes=4),
        Experiment(
            "theorem-3-1", "Theorems 3.1 and 3.2: gaps and steps", measure_worth, show_totals, "worth-small", minutes=4
        ),
        *(
            Experiment(f"worth-{name}", f"The worth of the tree on {name}", worth_on(name), None, minutes=5 + number)
            for number, name in enumerate(LARGE)
        ),
        Experiment("section-2-1", "Section 2.1: the stopping rule", measure_rules, show_rules),
        Experiment(
            "beyond-1", "Beyond the paper: the tree in the dual solver", tree_dual.measure, tree_dual.show, minutes=3
        ),
    ),
)

if __name__ == "__main__":
    main(PAPER)
