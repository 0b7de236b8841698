"""One-vs-all at the size of Amazon-670K: a plan for all labels, some of the labels really trained, and extrapolations.

    python benchmarks/scale.py [--size 1.0] [--trained 0.02] [--real TRAIN_FILE…] [--cluster 50x32]

Amazon-670K has 490,449 rows, 135,909 features, 670,091 labels, 76 nonzeros and 5.5 labels per row. The generator makes
data of this shape (times --size). Rows belong to topics. A topic has its words and 32 labels, a label has words of its
own, and all rows have common words with Zipf's frequencies; values are tf-idf. Whether solvers find such data as hard
as text is shown by a table: rounds of the dual solver and rows inside the margin (`n_active`), by the number of
positives of a label, beside those of real datasets (--real).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

import longtail as lt
from longtail.methods.planning import Plan
from longtail.words import duration, size

T = TypeVar("T")

ROWS, FEATURES, LABELS = 490_449, 135_909, 670_091
LABELS_PER_ROW = 5.5
TOPIC_LABELS = 32  # labels of a topic
TOPIC_WORDS, LABEL_WORDS = 60, 8  # words of a topic, and of a label
# Words that a row draws: common, of its topic, of each label. Chosen so that rounds and active rows by the number of
# positives are between those of tib-gnd-40k and debian-deps.
COMMON_DRAWS, TOPIC_DRAWS, LABEL_DRAWS = 70, 10, 2
CHUNK = 20_000
BANDS = ((1, 1), (2, 4), (5, 9), (10, 29), (30, 99), (100, 10**9))


def generate(n: int, d: int, n_labels: int, seed: int = 0) -> tuple[sp.csr_array, sp.csr_array]:
    """Rows and labels that are correlated as in text."""
    rng = np.random.default_rng(seed)
    n_topics = max(1, n_labels // TOPIC_LABELS)
    topic_words = _ranks(rng, (n_topics, TOPIC_WORDS), 50, d)
    label_words = _ranks(rng, (n_topics * TOPIC_LABELS, LABEL_WORDS), 500 if d > 2000 else 1, d)
    popularity = (np.arange(n_topics) + 0.02 * n_topics + 1.0) ** -0.7
    popularity /= popularity.sum()
    within = np.log((np.arange(TOPIC_LABELS) + 1.0) ** -0.9)
    renamed = rng.permutation(n_topics * TOPIC_LABELS)  # a label's number says nothing about its topic or frequency
    X_parts, Y_parts = [], []
    for start in range(0, n, CHUNK):
        count = min(CHUNK, n - start)
        topic = rng.choice(n_topics, count, p=popularity)
        n_own = np.clip(rng.poisson(LABELS_PER_ROW - 1.0, count) + 1, 1, TOPIC_LABELS)
        order = np.argsort(-(within + rng.gumbel(size=(count, TOPIC_LABELS))), axis=1)
        taken = np.arange(TOPIC_LABELS) < n_own[:, None]
        own_row = np.repeat(np.arange(count), n_own)
        own = (topic[:, None] * TOPIC_LABELS + order)[taken]
        words = [_ranks(rng, (count, COMMON_DRAWS), 0, d).ravel()]
        rows = [np.repeat(np.arange(count), COMMON_DRAWS)]
        some = (TOPIC_WORDS * rng.random((count, TOPIC_DRAWS)) ** 1.5).astype(np.int64)
        words.append(topic_words[topic[:, None], some].ravel())
        rows.append(np.repeat(np.arange(count), TOPIC_DRAWS))
        words.append(label_words[own[:, None], rng.integers(LABEL_WORDS, size=(len(own), LABEL_DRAWS))].ravel())
        rows.append(np.repeat(own_row, LABEL_DRAWS))
        at = np.concatenate(rows), np.concatenate(words)
        counts = sp.csr_array((np.ones(len(at[0]), np.float32), at), shape=(count, d))
        counts.sum_duplicates()
        X_parts.append(counts)
        ones = np.ones(len(own), np.int8)
        Y_parts.append(sp.csr_array((ones, (own_row, renamed[own])), shape=(count, n_topics * TOPIC_LABELS)))
    X, Y = sp.csr_array(sp.vstack(X_parts, format="csr")), sp.csr_array(sp.vstack(Y_parts, format="csr"))
    del X_parts, Y_parts
    df = np.bincount(X.indices, minlength=d)
    idf = (np.log((1 + n) / (1 + df)) + 1).astype(np.float32)
    X.data = (1 + np.log(X.data)) * idf[X.indices]
    lengths = np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))
    X.data /= np.repeat(lengths, np.diff(X.indptr)).astype(np.float32)
    return X, Y


def _ranks(rng: np.random.Generator, shape: tuple[int, ...], least: int, d: int) -> np.ndarray:
    """Word numbers from `least` to d - 1, with Zipf's frequencies: the logarithm of the rank is uniform."""
    low, high = np.log(least + 1), np.log(d + 1)
    return np.minimum(np.exp(low + (high - low) * rng.random(shape)).astype(np.int64) - 1 + (least > 0), d - 1)


def some_labels(Y: sp.csr_array, share: float) -> np.ndarray:
    """This share of the labels with rows, of all frequencies."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    count = max(1, round(share * len(order)))
    return np.sort(order[((np.arange(count) + 0.5) * len(order) / count).astype(np.int64)])


def bands(title: str, Y: sp.csr_array, clf: lt.OneVsAll) -> None:
    """Rounds and active rows by the number of positives."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    print(f"\n| {title}: positives | labels | rounds | active rows | weights |\n|---|---|---|---|---|")
    for low, high in BANDS:
        inside = (counts >= low) & (counts <= high)
        if inside.any():
            weights = np.diff(clf.model_.W.indptr)[inside].mean()
            rounds, active = clf.training_.n_iter[inside].mean(), clf.training_.n_active[inside].mean()
            name = f"{low}" if low == high else f"{low} to {high}" if high < 10**9 else f"{low} and more"
            print(f"| {name} | {inside.sum():,} | {rounds:.2f} | {active:,.0f} | {weights:,.0f} |")


# --- steps, each in a process of its own, so that none inherits the peak memory of another ---------------------------


def make_data(folder: str, share: float) -> None:
    """Generate the data and save it."""
    begin = time.process_time()
    X, Y = generate(*(max(64, int(share * whole)) for whole in (ROWS, FEATURES, LABELS)))
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    print(
        f"data: {X.shape[0]:,} rows, {X.shape[1]:,} features, {X.nnz / X.shape[0]:.1f} nonzeros per row; "
        f"{Y.shape[1]:,} labels, {Y.nnz / Y.shape[0]:.2f} per row, {np.count_nonzero(counts):,} with rows, "
        f"{np.mean(counts[counts > 0] <= 5):.0%} of these with at most 5, {counts.max():,} at most; "
        f"made in {time.process_time() - begin:.0f} s of CPU",
        flush=True,
    )
    lt.Dataset(X, Y).save(folder)


def ready(folder: str, n_jobs: int) -> tuple[lt.Dataset, lt.OneVsAll]:
    """The data, mapped into memory, and an estimator whose kernels are compiled."""
    lt.OneVsAll(n_jobs=n_jobs).fit(*generate(2000, 1000, 640))
    return lt.read(folder), lt.OneVsAll(n_jobs=n_jobs)


def plan_all(folder: str, n_jobs: int) -> Plan:
    data, clf = ready(folder, n_jobs)
    begin = time.process_time()
    plan = clf.plan(data)
    print(f"\nplan for all labels, made in {time.process_time() - begin:.0f} s of CPU\n{plan}", flush=True)
    return plan


def train_some(folder: str, n_jobs: int, share: float) -> tuple[float, float]:
    """Plan and train some labels. Return CPU seconds and bytes of weights per label."""
    data, clf = ready(folder, n_jobs)
    columns = some_labels(data.Y, share)
    some = sp.csr_array(data.Y[:, columns])
    plan = clf.plan(data.X, some)
    print(f"\nplan for {len(columns):,} labels: {plan.short()}", flush=True)
    clf.fit(data.X, some)
    record, weights = clf.training_, 8.0 * clf.model_.n_weights
    print(
        f"trained {len(columns):,} labels: {record.wall_seconds:.1f} s (plan {plan.seconds.likely:.1f}), "
        f"{record.cpu_seconds:.1f} s of CPU (plan {plan.cpu_seconds.likely:.1f}), peak {size(record.peak_bytes)} (plan "
        f"{size(plan.peak_bytes.likely)}), weights {size(weights)} (plan {size(plan.model_bytes.likely)})"
    )
    bands("generated", some, clf)
    return record.cpu_seconds / len(columns), weights / len(columns)


def compare_real(path: str, n_jobs: int, share: float) -> None:
    data = lt.read(path)
    chosen = sp.csr_array(data.Y[:, some_labels(data.Y, share)])
    title = f"{Path(path).resolve().parent.name}, {data.n_samples:,} rows"
    bands(title, chosen, lt.OneVsAll(n_jobs=n_jobs).fit(data.X, chosen))


def apart(task: Callable[..., T], *words: Any) -> T:
    """The result of the task, in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(task, *words).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=1.0, help="share of the rows, features and labels of Amazon-670K")
    parser.add_argument("--trained", type=float, default=0.02, help="share of the labels that are trained")
    parser.add_argument("--real", nargs="*", default=[], help="real training files to compare with")
    parser.add_argument("--real-trained", type=float, default=0.04, help="share of their labels that are trained")
    parser.add_argument("--cluster", default="50x32", help="nodes x cores for the extrapolation")
    parser.add_argument("--n-jobs", type=int, default=2)
    words = parser.parse_args()
    nodes, cores = (int(part) for part in words.cluster.split("x"))
    with tempfile.TemporaryDirectory() as place:
        folder = f"{place}/data"
        apart(make_data, folder, words.size)
        plan = apart(plan_all, folder, words.n_jobs)
        seconds, weights = apart(train_some, folder, words.n_jobs, words.trained)
    there = plan.on_cluster(nodes, cores)
    print(
        f"\nall {plan.n_labels:,} labels, as if each had rows: {plan.n_labels * seconds / 3600:.2f} CPU hours (goal "
        f"below 4; plan {plan.cpu_seconds.likely / 3600:.2f} for those with rows), weights "
        f"{size(plan.n_labels * weights)}"
    )
    in_shards = plan.peak_bytes.likely - plan.needed_bytes.likely + plan.needed_in_shards
    print(
        f"peak memory by the plan: {size(plan.peak_bytes.likely)} in one piece, {size(in_shards)} with a run folder "
        f"(goal below 8 GB); {size(plan.disk_bytes.likely)} on disk"
    )
    print(
        f"on {nodes} x {cores} cores: {duration(plan.n_labels * seconds / nodes / cores)} of solving; by the plan "
        f"{duration(there.likely)} with start and set-up",
        flush=True,
    )
    for path in words.real:
        apart(compare_real, path, words.n_jobs, words.real_trained)


if __name__ == "__main__":
    main()
