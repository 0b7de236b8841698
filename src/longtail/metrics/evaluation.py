"""All metrics in one call, overall and for frequent, medium and rare labels.

The number of training rows of a label decides its band: tail (at most `bands[0]` rows), torso (at most `bands[1]`) or
head (more). One definition holds for every metric in a band: only labels of the band can be true, only rows with such a
label count, and the predictions are unchanged. A rare label must therefore compete with all other labels. P@k is low in
a band even for perfect predictions, because it divides by k; recall, nDCG and PSP can reach 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from longtail.errors import InputError
from longtail.matrix import one_label_per_row
from longtail.metrics.hits import Hits, find_hits, first_columns
from longtail.metrics.multiclass import accuracy_of, macro_f1_of, maf1_of
from longtail.metrics.propensity import DEFAULT_A, DEFAULT_B, psndcg, psp, weights_from_counts
from longtail.metrics.ranking import coverage, ndcg, precision, recall
from longtail.metrics.table import Cell, align
from longtail.metrics.truth import read_truth

BANDS = (10, 100)  # a tail label has at most 10 training rows, a torso label at most 100
KS = (1, 3, 5)


@dataclass(frozen=True)
class Evaluation:
    """Metrics as fractions from 0 to 1. `evaluation["P@1"]` returns one of them, `print` shows all in per cent.

    overall         metric name -> value over all rows
    bands           "head", "torso", "tail" -> the same names, and the numbers of "labels" and "rows" of the band;
                    every metric of a band without rows is NaN
    edges           the largest number of training rows of a tail label and of a torso label
    n_rows          number of rows evaluated
    n_labels        number of labels
    counted_in      where label frequencies were counted: "train_Y", or "Y" if that was not given
    """

    overall: dict[str, float]
    bands: dict[str, dict[str, float]]
    edges: tuple[int, int]
    n_rows: int
    n_labels: int
    counted_in: str

    def __getitem__(self, metric: str) -> float:
        return self.overall[metric]

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain dicts and numbers for JSON, with None instead of NaN."""
        bands = {
            name: {key: None if math.isnan(value) else value for key, value in band.items()}
            for name, band in self.bands.items()
        }
        return {
            "rows": self.n_rows,
            "labels": self.n_labels,
            "overall": dict(self.overall),
            "bands": bands,
            "band_edges": list(self.edges),
            "frequencies_counted_in": self.counted_in,
        }

    def table(self) -> tuple[list[str], list[list[Cell]]]:
        """Header and rows of a table of all metrics in per cent, with one column per band."""
        header = ["", "overall", *(f"{name} ({meaning})" for name, meaning in band_meanings(self.edges).items())]
        columns = [{"labels": self.n_labels, "rows": self.n_rows, **self.overall}, *self.bands.values()]
        counts: list[list[Cell]] = [[key, *(column[key] for column in columns)] for key in ("labels", "rows")]
        metrics: list[list[Cell]] = [[key, *(100 * column[key] for column in columns)] for key in self.overall]
        return header, counts + metrics

    @property
    def note(self) -> str:
        """One sentence that says how to read the table."""
        source = (
            "training rows" if self.counted_in == "train_Y" else "rows of the evaluated data (no training labels given)"
        )
        return f"Metrics in per cent. Head, torso and tail: labels by their number of {source}."

    def __str__(self) -> str:
        return f"{align(*self.table())}\n\n{self.note}"


def evaluate(
    Y: Any,
    top: Any,
    *,
    train_Y: Any = None,
    ks: Sequence[int] | None = None,
    A: float = DEFAULT_A,
    B: float = DEFAULT_B,
    bands: tuple[int, int] = BANDS,
) -> Evaluation:
    """Compute all metrics that apply to the predictions `top` for rows with the true labels `Y`.

    `train_Y`, the labels of the training rows, gives the label frequencies. Without it there is no PSP and no PSnDCG,
    and the bands use the frequencies in `Y` itself. Data with exactly one label per row also get accuracy, macro-F1 and
    MaF1. By default `ks` are 1, 3 and 5, without those that exceed the width of `top`.
    """
    if ks is None:
        width = first_columns(top).shape[1]
        ks = [k for k in KS if k <= width] or KS[:1]
    ks, edges = _check_ks(ks), _check_edges(bands)
    train = None if train_Y is None else read_truth(train_Y, name="train_Y", n_labels=_width(Y, train_Y, top))
    hits = find_hits(Y, top, max(ks), n_labels=None if train is None else train.n_labels)
    counted = train or hits.truth
    inv_p = None if train is None else weights_from_counts(train.counts, train.n_rows, A=A, B=B)
    one_each = one_label_per_row(hits.truth)

    by_band: dict[str, dict[str, float]] = {}
    for name, members in split_bands(counted.counts, edges).items():
        part = hits.restricted(members)
        sizes = {"labels": int(np.count_nonzero(members)), "rows": part.truth.n_rows}
        by_band[name] = {**sizes, **_all_metrics(part, ks, inv_p, one_each, members)}
    return Evaluation(
        overall=_all_metrics(hits, ks, inv_p, one_each),
        bands=by_band,
        edges=edges,
        n_rows=hits.truth.n_rows,
        n_labels=hits.truth.n_labels,
        counted_in="Y" if train is None else "train_Y",
    )


def split_bands(counts: np.ndarray, edges: tuple[int, int] = BANDS) -> dict[str, np.ndarray]:
    """Three boolean arrays: the labels in the head, the torso and the tail, from the number of rows of each label."""
    low, high = edges
    return {"head": counts > high, "torso": (counts > low) & (counts <= high), "tail": counts <= low}


def band_meanings(edges: tuple[int, int] = BANDS) -> dict[str, str]:
    """The number of rows per label in each band, as text."""
    low, high = edges
    return {"head": f"> {high}", "torso": f"{low + 1}-{high}", "tail": f"≤ {low}"}


def _all_metrics(
    hits: Hits, ks: Sequence[int], inv_p: np.ndarray | None, one_each: bool, among: np.ndarray | None = None
) -> dict[str, float]:
    """Return all metrics of these hits. `one_each` adds the metrics for data with one label per row. `among` marks the
    labels of a band."""
    curves: dict[str, Callable[[Hits], np.ndarray]] = {
        "P": precision,
        "nDCG": ndcg,
        "recall": recall,
        "coverage": coverage,
    }
    if inv_p is not None:
        curves |= {"PSP": partial(psp, inv_p=inv_p), "PSnDCG": partial(psndcg, inv_p=inv_p)}
    single: dict[str, Callable[[Hits], float]] = {}
    if one_each:
        single = {"accuracy": accuracy_of, "macro-F1": partial(macro_f1_of, among=among), "MaF1": maf1_of}
    if hits.truth.n_rows == 0:
        names = [f"{name}@{k}" for name in curves for k in ks] + list(single)
        return dict.fromkeys(names, math.nan)
    values = {name: curve(hits) for name, curve in curves.items()}
    metrics = {f"{name}@{k}": float(curve[k - 1]) for name, curve in values.items() for k in ks}
    return metrics | {name: metric(hits) for name, metric in single.items()}


def _width(Y: Any, train_Y: Any, top: Any) -> int | None:
    """Return the number of labels: the width of a sparse matrix, or the largest class number plus 1."""
    for matrix in (Y, train_Y):
        if sparse.issparse(matrix):
            return int(matrix.shape[-1])
    largest = int(first_columns(top).max(initial=-1)) + 1
    return max(largest, read_truth(Y).n_labels, read_truth(train_Y, name="train_Y").n_labels)


def _check_ks(ks: Any) -> tuple[int, ...]:
    numbers = tuple(np.ravel(ks).tolist())
    if not numbers or any(type(k) is not int or k < 1 for k in numbers):
        raise InputError(f"ks is {ks!r}; give one or more whole numbers from 1, such as (1, 3, 5)")
    return numbers


def _check_edges(bands: Any) -> tuple[int, int]:
    edges = np.ravel(bands).tolist()
    if len(edges) != 2 or any(type(edge) is not int for edge in edges) or not 0 <= edges[0] < edges[1]:
        raise InputError(
            f"bands is {bands!r}; give the largest number of rows of a tail and of a torso label, as (10, 100)"
        )
    return (edges[0], edges[1])
