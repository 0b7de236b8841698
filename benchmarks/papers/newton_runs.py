"""Fits of one-vs-all whose Newton steps are recorded, summarised for the scripts `one_vs_all` and `tree`.

A step of Newton visits the active rows once for the gradient, once for the preconditioner and twice per CG step, and all
rows once for the line search. The work of a step is given in *passes*, the number of visits divided by the number of
rows. Passes are counted, so they do not depend on the load of the machine, and stand here for the milliseconds of the
papers' figures.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import longtail as lt
from benchmarks.papers.common import Row, seconds_of, synthetic
from benchmarks.quality import load, warm_up
from longtail import metrics
from longtail.training import Training

STEPS = 20  # of the trace
BANDS = (5, 50, 95)  # per cent, of the objective at each step


def data_of(folder: Path | None) -> tuple[lt.Dataset, lt.Dataset]:
    """The training and test rows in a folder; synthetic rows with three labels each if there is none."""
    return synthetic(labels_per_row=3) if folder is None else load(str(folder))


def measured(folder: Path | None, parameters: Row, most: int | None = None) -> Row:
    """Train with the paper's settings and these parameters, on one thread, and measure.

    most : train a random sample of this many labels, and compare predictions among them.
    """
    train, test = data_of(folder)
    labels = np.sort(np.random.default_rng(0).permutation(train.n_labels)[:most])
    Y, truth = train.Y[:, labels], test.Y[:, labels]
    newton = parameters.get("solver", "newton") == "newton"
    given = {"normalize": True, "n_jobs": 1, **parameters, **({"trace": STEPS} if newton else {})}
    warm_up(lt.OneVsAll, lt.OneVsAll.paper(**given).get_params())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cpu, clf = seconds_of(lambda: lt.OneVsAll.paper(**given).fit(train.X, Y))
    scores = metrics.evaluate(truth, clf.predict_topk(test.X, 5))
    binary = metrics.set_metrics(truth, clf.predict(test.X), zero_division=float("nan"))
    record = clf.training_
    n_positive = np.bincount(Y.indices, minlength=len(labels))
    found = {
        "sampled": most is not None,
        "labels": len(labels),
        "of": train.n_labels,
        "CPU s": cpu,
        "steps": record.n_iter.mean(),
        "active": record.n_active.mean(),
        "unsolved": int((~record.converged).sum()),
        "gap": np.median(record.gap),
        "P": [100 * scores[f"P@{k}"] for k in (1, 3, 5)],
        "precision": 100 * binary["macro-precision"],
        "recall": 100 * binary["macro-recall"],
    }
    if newton:
        found |= {
            "passes": passes(record, train.n_samples).sum(axis=1).mean(),
            "histogram": np.bincount(record.n_iter, minlength=1),
            "by step": by_step(record, train.n_samples),
            "by positives": by_positives(record, n_positive, train.n_samples),
        }
    return rounded(found)


def labels_of(row: Row) -> str:
    """How many labels a row of a table is about: "all 159", or "1,000 of 4,882"."""
    return f"{row['labels']:,} of {row['of']:,}" if row["sampled"] else f"all {row['labels']:,}"


def passes(record: Training, n_samples: int) -> np.ndarray:
    """The work of every recorded step (n_labels, STEPS), in passes over the rows; 0 where there was no step."""
    work = 1 + record.trace_n_active * (2 + 2 * record.trace_n_cg) / n_samples
    return np.nan_to_num(work)


def by_step(record: Training, n_samples: int) -> Row:
    """Figures of each step, over the labels that are not solved before it."""
    taken = ~np.isnan(record.trace_multiplier)
    n_steps = int(taken.any(axis=0).sum())
    each = [np.flatnonzero(taken[:, t]) for t in range(n_steps)]
    work = passes(record, n_samples)

    def over(name: str, statistic: Any) -> list[float]:
        return [float(statistic(record.figures[name][labels, t])) for t, labels in enumerate(each)]

    low, middle, high = (over("trace_objective", lambda x, q=q: np.percentile(x, q)) for q in BANDS)
    return {
        "labels": [len(labels) for labels in each],
        "objective": over("trace_objective", np.mean),
        "objective low": low,
        "objective median": middle,
        "objective high": high,
        "active": [value / n_samples for value in over("trace_n_active", np.mean)],
        "CG": over("trace_n_cg", np.mean),
        "multiplier": over("trace_multiplier", np.mean),
        "multiplier spread": over("trace_multiplier", np.std),
        "passes": [float(work[labels, t].mean()) for t, labels in enumerate(each)],
    }


def by_positives(record: Training, n_positive: np.ndarray, n_samples: int) -> Row:
    """Means over labels with 1, 2, 3-4, 5-8, 9-16, ... positives. Labels without positives are left out."""
    group = np.where(n_positive > 0, np.ceil(np.log2(np.maximum(n_positive, 1))), -1).astype(int)
    each = [np.flatnonzero(group == number) for number in np.unique(group[group >= 0])]
    work = passes(record, n_samples).sum(axis=1)
    values = {
        "positives": n_positive,
        "steps": record.n_iter,
        "passes": work,
        "start objective": record.trace_objective[:, 0],
        "start distance": record.start_distance,
    }
    found: Row = {name: [float(of[labels].mean()) for labels in each] for name, of in values.items()}
    found["labels"] = [len(labels) for labels in each]
    return found


def rounded(value: Any) -> Any:
    """Plain values with four significant digits, which keeps the files small."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | np.ndarray):
        return [rounded(each) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return float(f"{value:.4g}") if isinstance(value, float | np.floating) else value
