"""The card of a model: what `longtail serve` shows beside its predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.metrics import Evaluation
    from longtail.topk import TopK


def write_card(
    model: str,
    *,
    train_Y: Any = None,
    test: Dataset | None = None,
    top: TopK | None = None,
    evaluation: Evaluation | None = None,
    titles: Mapping[str, str] | None = None,
    examples: Sequence[str] = (),
    names: Sequence[str] = (),
) -> None:
    """Put a card into the folder of the model. Texts are written only where they are given as examples."""
    import numpy as np

    from longtail import metrics, store

    data: dict[str, Any] = {}
    if train_Y is not None:
        data["training rows"] = int(train_Y.shape[0])
        data["labels per row"] = round(train_Y.nnz / max(train_Y.shape[0], 1), 1)
    if test is not None:
        data["test rows"] = test.n_samples
    reliability = None
    if test is not None and top is not None and top.probabilities is not None:
        found = metrics.reliability(test.Y, top, top.labels.shape[1])
        names_of = {"predicted": found.probability, "observed": found.share, "count": found.count}
        reliability = {name: values.tolist() for name, values in names_of.items()}
    store.write_card(
        model,
        store.Card(
            store.model_id(model),
            data=data,
            metrics=None if evaluation is None else evaluation.as_dict(),
            reliability=reliability,
            examples=examples,
            titles=None if titles is None else [titles.get(str(name), "") for name in names],
            frequency=None if train_Y is None else np.asarray(train_Y.sum(axis=0)).ravel(),
            quality=None if test is None or top is None else metrics.recall_of_labels(test.Y, top),
        ),
    )
