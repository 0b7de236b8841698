"""One row as an example for readers: its text, its true and predicted labels, the words behind the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.methods import ExtremeClassifier
    from longtail.report import Example
    from longtail.topk import TopK

WORDS = 6


def example(
    clf: ExtremeClassifier, dataset: Dataset, i: int, top: TopK, titles: Mapping[str, str] | None = None
) -> Example:
    """Row `i` of `dataset`, whose predictions are row `i` of `top`."""
    from longtail.report import Example, Label

    titles = titles or {}

    def label(column: int, score: float | None = None) -> Label:
        name = str(clf.classes_[column])
        return Label(name, titles.get(name, ""), score)

    why = clf.model_.explain(dataset.X[[i]], int(top.labels[i, 0]), top=WORDS)
    return Example(
        text=f"row {i}" if dataset.texts is None else dataset.texts[i],
        true=[label(column) for column in dataset.Y[[i]].indices],
        predicted=[label(column, float(score)) for column, score in zip(top.labels[i], top.scores[i], strict=True)],
        words=[(part.feature, part.contribution) for part in why.contributions],
    )
