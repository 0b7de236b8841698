"""The tables of PD-Sparse (Yen et al. 2016) on our data, and its theorem and corollary: see common.py for the options."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import longtail as lt
from benchmarks.papers import multiclass, multilabel
from benchmarks.papers.common import Bench, Experiment, Paper, Row, Rows, figure, main, of_seeds, picture, spread, table
from longtail import metrics

MULTICLASS, FEW_CLASSES = "wordnet-hypernym", 100  # dense weights of all classes would take days, as in the paper
SMALL = "bibtex"  # the only data set that the paper has too
LABELS = (SMALL, "debian-tags", "tib-gnd-en-papers")
SEEDS = (0, 1)
BATCH = 64  # rows one after the other take long on all but the smallest data; Table "beyond-1" compares
OURS: Row = {"method": "pd-sparse", "parameters": {}}
LITERAL: Row = {"method": "pd-sparse", "paper": True, "parameters": {}}
BUSY = "CPU seconds are from a busy machine, where they vary by half; accuracy, sizes and counts do not depend on it."

# --- Appendix B ------------------------------------------------------------------------------------------------------

PAPER_DATA = (
    ("LSHTC1", 83_805, 347_255, 12_294), ("Dmoz", 345_068, 833_484, 11_947), ("imgNet", 1_261_404, 1_000, 1_000),
    ("aloi.bin", 100_000, 636_911, 1_000), ("sector", 8_658, 55_197, 105), ("LSHTC-wiki", 2_355_436, 2_085_167, 320_338),
    ("EUR-Lex", 15_643, 5_000, 3_956), ("RCV1-regions", 20_835, 47_237, 225), ("bibtex", 5_991, 1_837, 159),
)  # fmt: skip


def measure_data(bench: Bench) -> None:
    for name in (MULTICLASS, *LABELS):
        bench.row(name, sizes_of, bench.folder_of(name))


def sizes_of(folder: Path | None) -> Row:
    train, test = multilabel.rows_of(folder)
    return {
        "N": train.n_samples, "test": test.n_samples, "D": train.n_features, "K": train.n_labels,
        "labels": train.Y.nnz / train.n_samples, "nonzeros": train.X.nnz / train.n_samples,
    }  # fmt: skip


def show_data(rows: Rows, folder: Path) -> str:
    ours = [
        [name, row["N"], row["test"], row["D"], row["K"], f"{row['labels']:.1f}", f"{row['nonzeros']:.0f}"]
        for name, row in rows.items()
    ]
    columns = ["data", "training rows N", "test rows", "features D", "labels K", "labels per row", "features per row"]
    return (
        f"Ours:\n\n{table(columns, ours)}\n\nThe paper's:\n\n"
        f"{table(['data', 'training rows N', 'features D', 'labels K'], PAPER_DATA)}\n\n"
        f"{SMALL} is the only data set that both have, in different splits: the paper trains on 5,991 rows, we on the 4,880 of "
        "the split in general use, of which 10 % are held out. tib-gnd-en-papers is nearest to EUR-Lex, and wordnet-hypernym "
        "to LSHTC1."
    )


# --- Table 1 ---------------------------------------------------------------------------------------------------------

CLASS_SYSTEMS: dict[str, tuple[str, Row]] = {
    "1vsA-Logi": ("scikit-learn", {"loss": "logistic"}),
    "1vsA-SVM": ("scikit-learn", {}),
    "Multi-SVM": ("scikit-learn", {"multi_class": "crammer_singer"}),
    "1vsA-L1-Logi": ("scikit-learn", {"loss": "logistic", "penalty": "l1"}),
    "VW (oaa)": ("vw", {"reduction": "oaa", "bits": 22}),
    "VW (tree)": ("vw", {"reduction": "log_multi", "bits": 22}),
    "`OneVsAll()`": ("longtail", {"method": "one-vs-all", "parameters": {}}),
    "`PDSparse.paper()`": ("longtail", LITERAL),
    "`PDSparse()`": ("longtail", OURS),
}
PAPER_CLASSES = {  # test accuracy on sector, K = 105, with training seconds and model size
    "1vsA-Logi": "90.8, 107 s, 129 MB", "1vsA-SVM": "94.8, 19 s, 62 MB", "Multi-SVM": "95.1, 11 s, 57 MB",
    "1vsA-L1-Logi": "93.1, 102 s, 0.6 MB", "VW (oaa)": "92.1, 154 s, 47 MB", "VW (tree)": "82.1, 327 s, 17 MB",
    "`PDSparse.paper()`": "95.3, 14 s, 1.6 MB",
}  # fmt: skip


def measure_classes(bench: Bench) -> None:
    few = FEW_CLASSES if not bench.quick else 10
    for system, (package, arguments) in CLASS_SYSTEMS.items():
        if multiclass.is_installed(package):
            for seed in seeds_of(bench, system):
                own = with_seed(bench, arguments, seed)
                folder = bench.folder_of(MULTICLASS)
                bench.alone(f"{system}|{seed}", multiclass.measure, folder, few, package, own)


def seeds_of(bench: Bench, system: str) -> tuple[int, ...]:
    """PD-Sparse draws rows and subsets of labels at random; the others are deterministic."""
    return SEEDS if "PDSparse" in system and not bench.quick else SEEDS[:1]


def with_seed(bench: Bench, arguments: Row, seed: int) -> Row:
    if arguments.get("method") != "pd-sparse":
        return arguments
    parameters = {**arguments["parameters"], "random_state": seed, **({"max_iter": 2} if bench.quick else {})}
    return {**arguments, "parameters": parameters}


def grouped(rows: Rows) -> dict[str, Row]:
    """{key without the seed: one row with the values of all seeds}."""
    each: dict[str, list[Row]] = {}
    for key, row in rows.items():
        each.setdefault(key.rpartition("|")[0], []).append(row)
    return {key: of_seeds(found) for key, found in each.items()}


def show_classes(rows: Rows, folder: Path) -> str:
    found = grouped(rows)
    lines = [
        [system, spread(row["accuracy"]), f"{np.mean(row['train CPU s']):.1f}", f"{np.mean(row['predict s']):.2f}",
         f"{np.mean(row['model MB']):.2f}", PAPER_CLASSES.get(system)]
        for system, row in found.items()
    ]  # fmt: skip
    head = ["", "accuracy", "train CPU s", "predict s", "model MB", "the paper, on sector (K = 105)"]
    value = {system: float(np.mean(row["accuracy"])) for system, row in found.items()}
    best = max(("1vsA-Logi", "1vsA-SVM", "Multi-SVM", "1vsA-L1-Logi"), key=lambda system: value[system])
    sizes = {system: float(np.mean(row["model MB"])) for system, row in found.items()}
    return (
        f"{MULTICLASS}, its {FEW_CLASSES} most frequent classes, C = 1 for all as in the paper; one thread, two seeds for "
        f"PD-Sparse. {BUSY}\n\n{table(head, lines)}\n\n"
        f"**In the paper** PD-Sparse (95.3) is as accurate as the best other method (95.1), with a model that is smaller than "
        f"all but that of 1vsA-L1-Logi. **Here** it has {value['`PDSparse.paper()`']:.1f} with the paper's settings and "
        f"{value['`PDSparse()`']:.1f} with ours, and the best LIBLINEAR method, {best}, {value[best]:.1f}. The models have "
        f"{sizes['`PDSparse.paper()`']:.2f} MB, {sizes['`PDSparse()`']:.2f} MB and {sizes[best]:.2f} MB. FastXML, LEML and "
        "SLEEC are not on PyPI. LSHTC1, Dmoz, imgNet and aloi.bin are not free to get, or too large for this machine."
    )


# --- Tables 2 and 3 --------------------------------------------------------------------------------------------------

LABEL_SYSTEMS: dict[str, tuple[str, Row]] = {
    "1vsA-Logi": ("scikit-learn", {"loss": "logistic"}),
    "1vsA-SVM": ("scikit-learn", {}),
    "1vsA-L1-Logi": ("scikit-learn", {"loss": "logistic", "penalty": "l1"}),
    "`OneVsAll()`": ("longtail", {"method": "one-vs-all", "parameters": {}}),
    "`PDSparse.paper()`": ("longtail", LITERAL),
    "`PDSparse.paper(normalize=True)`": ("longtail", {**LITERAL, "parameters": {"normalize": True}}),
    "`PDSparse()`": ("longtail", OURS),
    "`PDSparse(normalize=True)`": ("longtail", {**OURS, "parameters": {"normalize": True}}),
}
PAPER_BIBTEX = {
    "1vsA-Logi": (62.65, 8.9, 3.7), "1vsA-SVM": (58.46, 3.2, 3.3), "1vsA-L1-Logi": (61.16, 14.0, 0.41),
    "`PDSparse.paper()`": (64.55, 5.0, 0.068),
}  # fmt: skip
PAPER_COUNTS = (("EUR-Lex (K = 3,956)", 20.73, 45.24), ("LSHTC-wiki (K = 320,338)", 18.24, 20.95),
                ("LSHTC1 (K = 12,294)", 7.15, 4.88), ("aloi.bin (K = 1,000)", 3.24, 0.31), ("bibtex (K = 159)", 18.17, 1.94),
                ("Dmoz (K = 11,947)", 5.87, 0.116))  # fmt: skip


def measure_labels(bench: Bench) -> None:
    for name in LABELS if not bench.quick else LABELS[:2]:
        for system, (package, arguments) in LABEL_SYSTEMS.items():
            if name != SMALL and (package != "longtail" or "normalize" in system):
                continue
            if name != SMALL and arguments.get("paper"):
                arguments = {**arguments, "parameters": {**arguments["parameters"], "batch_size": BATCH}}
            for seed in seeds_of(bench, system) if name == SMALL else SEEDS[:1]:
                own = with_seed(bench, arguments, seed)
                bench.alone(f"{name}|{system}|{seed}", multilabel.measure, bench.folder_of(name), package, own)


def show_labels(rows: Rows, folder: Path) -> str:
    found = grouped(rows)
    lines, counts = [], []
    for key, row in found.items():
        name, system = key.split("|")
        paper = PAPER_BIBTEX.get(system) if name == SMALL else None
        lines.append(
            [name, system, *(spread(row[f"P@{k}"]) for k in (1, 3, 5)), f"{np.mean(row['train CPU s']):.1f}",
             f"{np.mean(row['predict s']):.2f}", f"{np.mean(row['model MB']):.2f}",
             None if paper is None else f"{paper[0]}, {paper[1]:g} s, {paper[2]:g} MB"]
        )  # fmt: skip
        if "k_A" in row:
            counts.append(
                [name, system, f"{row['C'][0]:g}", "/".join(f"{value:g}" for value in row["lam"]), spread(row["k_A"]),
                 spread(row["k_W"], 2), "/".join(str(value) for value in row["passes"]),
                 "/".join(str(value) for value in row["best pass"])]
            )  # fmt: skip
    head = ["data", "", "P@1", "P@3", "P@5", "train CPU s", "predict s", "model MB", "the paper: P@1, seconds, size"]
    mine, own = found[f"{SMALL}|`PDSparse.paper()`"], found[f"{SMALL}|`PDSparse.paper(normalize=True)`"]
    literal, unit = float(np.mean(mine["P@1"])), float(np.mean(own["P@1"]))
    counted = ["data", "", "C", "λ", "k_A", "k_W", "passes", "best pass"]
    return (
        f"{SMALL} has two seeds for PD-Sparse. On the other data there is one, and the paper's settings run with "
        f"`batch_size={BATCH}` to save time. {BUSY}\n\n{table(head, lines)}\n\n"
        f"**bibtex.** The paper has P@1 64.55; here it is {literal:.1f} with the paper's settings and {unit:.1f} with rows of "
        "unit length too. The paper trains on 5,991 of the 7,395 rows and has 1,837 features, we on "
        "the 4,880 rows of the split that is in general use, with 10 % of them held out, so on 4,392. The paper does not say "
        "whether it scales rows. A test on 2,515 rows has a standard error of 1.0.\n\n"
        f"### Table 3: active dual and primal variables\n\n{table(counted, counts)}\n\nThe paper:\n\n"
        f"{table(['data', 'k_A', 'k_W'], PAPER_COUNTS)}\n\n"
        f"**bibtex.** k_A is {np.mean(mine['k_A']):.1f} here and 18.17 in the paper, k_W {np.mean(mine['k_W']):.2f} and 1.94. "
        "Both depend on λ and on the pass at which training stops: k_A grows by up to one label per pass and row, so the "
        "paper's takes at least 16 passes, and k_W falls with λ."
    )


# --- bibtex with the paper's sizes -----------------------------------------------------------------------------------

TRAINED, HELD_OUT, ROWS = 5991, 702, 7395  # of bibtex; the paper gives the first, and half of the rest are held out
SPLITS = (0, 1, 2, 3, 4)
BASELINES = ("1vsA-Logi", "1vsA-SVM", "1vsA-L1-Logi")
PATIENT = "`PDSparse.paper(n_iter_no_change=10)`"


def measure_sizes(bench: Bench) -> None:
    for system in (*PAPER_BIBTEX, PATIENT):
        package, arguments = LABEL_SYSTEMS.get(system, ("longtail", LITERAL))
        n_seen = TRAINED
        if package == "longtail":
            n_seen += HELD_OUT
            own = {"validation_fraction": HELD_OUT / n_seen, **({"n_iter_no_change": 10} if system == PATIENT else {})}
            arguments = {**arguments, "parameters": own}
        shares = n_seen / ROWS, HELD_OUT / ROWS
        for seed in SPLITS if not bench.quick else SPLITS[:1]:
            own = with_seed(bench, arguments, seed)
            folder = bench.folder_of(SMALL)
            bench.alone(f"{system}|{seed}", multilabel.measure_split, folder, shares, seed, package, own)


def show_sizes(rows: Rows, folder: Path) -> str:
    found = grouped(rows)
    lines = []
    for system, row in found.items():
        theirs = PAPER_BIBTEX.get(system, (None, None, None))
        lines.append([system, spread(row["P@1"]), theirs[0], f"{np.mean(row['train CPU s']):.1f}", theirs[1],
                      f"{np.mean(row['model MB']):.2f}", theirs[2]])  # fmt: skip
    own = found["`PDSparse.paper()`"]
    chosen = ", ".join(f"{value:g}" for value in own["lam"])
    head = ["", "P@1", "the paper", "train CPU s", "the paper, s", "model MB", "the paper, MB"]
    ours, other, best = (
        float(np.mean(found[system]["P@1"])) for system in ("`PDSparse.paper()`", PATIENT, "1vsA-Logi")
    )
    away = max(abs(float(np.mean(found[system]["P@1"])) - PAPER_BIBTEX[system][0]) for system in BASELINES)
    return (
        f"The two parts of {SMALL} together, divided again at random: {TRAINED:,} rows to train, as in the paper, {HELD_OUT} to "
        f"choose λ and the pass, {HELD_OUT} to test; {len(own['lam'])} divisions. The paper's own division is not known. "
        f"{BUSY}\n\n{table(head, lines)}\n\n"
        f"`PDSparse.paper()` chooses λ = {chosen}. k_A is {spread(own['k_A'])}, in the paper 18.17; k_W is {spread(own['k_W'], 2)}, in "
        f"the paper 1.94. A test on {HELD_OUT} rows has a standard error of 1.8.\n\n"
        f"**Agreement:** the three baselines are within {away:.1f} points of the paper, and the model is as small as the paper's. "
        f"**Difference:** in the paper PD-Sparse is 1.9 above 1vsA-Logi in P@1, here it is {ours - best:+.1f}, "
        f"and {other - best:+.1f} if training stops only after ten passes without gain, with k_A {spread(found[PATIENT]['k_A'])} and k_W "
        f"{spread(found[PATIENT]['k_W'], 2)}. So the stopping rule explains the smaller k_A, which grows by up to one label per pass and "
        "row, but not P@1. The paper has one feature more than the data, and does not say whether it scales rows; unit rows do not "
        "bring the difference either (Tables 2 and 3 above). It stays unexplained."
    )


# --- Theorem 1 and Corollary 1 ---------------------------------------------------------------------------------------


def measure_convergence(bench: Bench) -> None:
    passes = 60 if not bench.quick else 4
    for search in ("exact:returned=1", "sampled:subsets=3,returned=1,least=1"):
        bench.row(search, objectives, bench.folder_of(SMALL), search, passes)


def objectives(folder: Path | None, search: str, passes: int) -> Row:
    """The dual objective after every pass, and what the bound (27) needs, on 1,000 rows of unit length."""
    train, _ = multilabel.rows_of(folder)
    X, Y = sp.csr_array(train.X[:1000]), sp.csr_array(train.Y[:1000])
    clf = lt.PDSparse.paper(
        lam=0.1,
        search=search,
        early_stopping=False,
        max_iter=passes,
        tol=0,
        normalize=True,
        post_solve="never",
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf.fit(X, Y)
    used = (np.diff(Y.indptr) > 0) & (np.diff(X.indptr) > 0)
    return {"G": clf.training_.pass_objective.tolist(), "Q": float(used.sum()), "C": 1.0,
            "k_A": clf.training_.pass_k_A.tolist(), "k_W": clf.training_.pass_k_W.tolist(),
            "N": int(used.sum()), "D": X.shape[1]}  # fmt: skip


def show_convergence(rows: Rows, folder: Path) -> str:
    drawn, (left, right) = figure(2)
    best = min(min(row["G"]) for row in rows.values())
    lines = []
    for search, row in rows.items():
        passes = np.arange(1, len(row["G"]))
        gap = np.maximum(np.array(row["G"][:-1]) - best, 1e-12)
        factor, nu = (2, 1) if search.startswith("exact") else (4, 3)
        bound = factor * (4 * row["Q"] * row["C"] ** 2 - best) / (passes / nu + 2)
        (line,) = left.plot(passes, gap, label=search.partition(":")[0])
        left.plot(passes, bound, ":", color=line.get_color())
        right.plot(passes, row["k_A"][:-1], color=line.get_color(), label=f"{search.partition(':')[0]}: k_A")
        right.plot(
            passes, np.array(row["k_W"][:-1]) * row["D"] / row["N"], "--", color=line.get_color(), label="k_W D / N"
        )
        lines += [
            [search.partition(":")[0], t, f"{gap[t - 1]:.3g}", f"{bound[t - 1]:.0f}", f"{row['k_A'][t - 1]:.1f}",
             f"{row['k_W'][t - 1] * row['D'] / row['N']:.1f}"]
            for t in (1, 5, 20, len(passes)) if t <= len(passes)
        ]  # fmt: skip
    left.set(xlabel="passes", yscale="log", ylabel="G - G*; dotted: the bound")
    right.set(xlabel="passes", ylabel="nonzeros per row")
    left.legend()
    right.legend(fontsize=7)
    shown = picture(drawn, folder, "convergence", "Dual objective against its bound, and nonzeros of A and W per row")
    sparse = all(row["k_W"][-1] * row["D"] <= row["k_A"][-1] * row["N"] for row in rows.values())
    head = ["search", "passes t / N", "G − G*", "bound", "nnz(A) / N", "nnz(W) / N"]
    return (
        "The first 1,000 rows of bibtex with unit length, `PDSparse.paper()` with λ = 0.1, one row after the other, one seed. "
        "G* is the smallest value that was reached. The bounds are (27) for the exact search, with Q = Σ|x_i|² and R = 2C, "
        f"and (28) with ν = 3 for the sampled one.\n\n{shown}\n\n{table(head, lines)}\n\n"
        "**Agreement:** the gap is far below the bound, and falls faster than 1/t. **Corollary 1** says nnz(W) ≤ nnz(A) for "
        "the l1 problem (7) and features of a continuous distribution; the elastic net (13), which is solved, need not obey "
        f"it. Here it {'does' if sparse else 'does not'}: λ = 0.1 is small beside the l2 term."
    )


# --- beyond the paper ------------------------------------------------------------------------------------------------


def measure_batches(bench: Bench) -> None:
    for name in (SMALL, "tib-gnd-en-papers") if not bench.quick else (SMALL,):
        for size in (1, 16, 64, 256):
            bench.alone(f"{name}|{size}", batches, bench.folder_of(name), size, 8 if not bench.quick else 1)


def batches(folder: Path | None, size: int, passes: int) -> Row:
    """Passes over all training rows with some batch size: CPU seconds, objective and precision on test rows."""
    train, test = multilabel.rows_of(folder)
    clf = lt.PDSparse(
        10.0,
        early_stopping=False,
        max_iter=passes,
        tol=0,
        batch_size=size,
        normalize=True,
        post_solve="never",
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf.fit(sp.csr_array(train.X[:100]), sp.csr_array(train.Y[:100]))  # compiles
        start = time.process_time()
        clf.fit(train)
        seconds = time.process_time() - start
    at = 100 * metrics.precision_curve(test.Y, clf.predict_topk(test.X, 5))
    return {"seconds": seconds, "G": clf.training_.pass_objective.tolist(), "P": [float(at[k]) for k in (0, 2, 4)]}


def show_batches(rows: Rows, folder: Path) -> str:
    lines = [
        [*key.split("|"), f"{row['seconds']:.1f}", f"{row['G'][0]:,.0f}", f"{row['G'][-1]:,.0f}",
         " / ".join(f"{value:.1f}" for value in row["P"])]
        for key, row in rows.items()
    ]  # fmt: skip
    passes = len(next(iter(rows.values()))["G"])
    return (
        f"C = 10, λ = 0.2, {passes} passes, one thread, one seed. Batch size 1 is Algorithm 1. Larger batches are searched with "
        "the weights from before the batch; scores are fresh in the updates. A pass has at least 64 batches, so the largest "
        f"sizes are cut on small data. {BUSY}\n\n"
        f"{table(['data', '`batch_size`', 'CPU s', 'G after one pass', 'G at the end', 'P@1 / 3 / 5'], lines)}\n\n"
        "The objective after each pass and the precision hardly depend on the batch size. Single rows cost more, because the "
        "kernels are called for each of them."
    )


PAPER = Paper(
    "pd_sparse",
    "PD-Sparse: tables and theorems",
    "I. Yen, X. Huang, K. Zhong, P. Ravikumar, I. Dhillon: PD-Sparse: a primal and dual sparse approach to extreme multiclass "
    "and multilabel classification. ICML 2016. `PDSparse.paper()` has the paper's settings: C = 1, λ of 10, 1, 0.1 and 0.01 by "
    "held-out rows, the sampled search with ν = 3 that returns one label, a stop after three passes without gain, rows one "
    "after the other, no training on held-out rows. Where it differs from the paper is on the page of "
    "[PDSparse](../methods/pd-sparse.md#differences-from-the-paper). The paper has no figures.",
    (
        Experiment("appendix-b", "Appendix B: data", measure_data, show_data),
        Experiment("table-1", "Table 1: multi-class data", measure_classes, show_classes),
        Experiment("table-2", "Tables 2 and 3: multi-label data, active variables", measure_labels, show_labels),
        Experiment("table-2-sizes", f"Tables 2 and 3 on {SMALL}, with the paper's sizes", measure_sizes, show_sizes),
        Experiment("theorem-1", "Theorems 1 and 2, Corollary 1: convergence", measure_convergence, show_convergence),
        Experiment("beyond-1", "Beyond the paper: mini-batches", measure_batches, show_batches),
    ),
)

if __name__ == "__main__":
    main(PAPER)
