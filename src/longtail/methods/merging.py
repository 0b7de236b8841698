"""Join models that were trained apart, each on labels of its own."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from longtail import check, training
from longtail.data import TextFeatures
from longtail.errors import InputError
from longtail.growth import Growth
from longtail.models import LabelWeights, LinearModel, Rules

if TYPE_CHECKING:
    from longtail.methods.base import ExtremeClassifier
    from longtail.models.base import FeaturePipeline


def merge(models: Sequence[ExtremeClassifier | str | os.PathLike[str]]) -> ExtremeClassifier:
    """Join linear models with different labels into one model with the labels of all, in their order.

    The result is an estimator like any other: it predicts, explains, and can be saved, loaded and evaluated. The scores
    of a label are those of its own model.

    Parameters
    ----------
    models : fitted estimators, or folders of saved models
        They must be linear models of one method (`OneVsAll`, `PDSparse` or `Memoir`) with the same features: the same
        text pipeline, number of features, bias and `normalize`. No two of them may have a label in common.

    Returns
    -------
    merged : estimator with the parameters of the first model
        Offsets and denied labels are kept. Probabilities and thresholds are not, because every model learned its own on
        its own labels; `set_threshold` chooses a new threshold. If the models were trained on the same rows, the
        result can be updated.
    """
    from longtail.methods import load

    parts = [load(each) if isinstance(each, str | os.PathLike) else each for each in models]
    if len(parts) < 2:
        raise InputError(f"merge needs at least two models, and got {len(parts)}")
    first = parts[0]
    inner = [_linear(part) for part in parts]
    _check_compatible(parts)
    label_names = check.name_array([name for part in parts for name in part.classes_.tolist()])
    seen: set[object] = set()
    for name in label_names.tolist():
        if name in seen:
            raise InputError(f"label {name!r} is in more than one of the models; every label must be in one model only")
        seen.add(name)
    bare = [
        LinearModel(model.all_weights(), model.n_features, model.bias, normalize=model.normalize) for model in inner
    ]
    offsets = np.concatenate(
        [np.zeros(model.n_labels, np.float32) if model.rules is None else model.rules.offsets for model in inner]
    )
    merged = copy.copy(first)
    stacked = LinearModel.stack(bare)
    if inner[0].dense_columns is not None:
        stacked = stacked.with_dense(inner[0].dense_columns)
    merged.model_ = replace(
        stacked,
        multiclass=first.multiclass_,
        label_names=label_names,
        feature_names=inner[0].feature_names,
        text_features=inner[0].text_features,
        rules=Rules(offsets) if offsets.any() else None,
    )
    merged.training_ = training.joined([part.training_ for part in parts])
    merged.growth_ = _growth(parts)
    merged.held_out_ = None
    merged.calibrate = False
    merged._expose()
    return merged


def _linear(part: ExtremeClassifier) -> LabelWeights:
    if not isinstance(getattr(part, "model_", None), LabelWeights):
        raise InputError(
            f"merge joins fitted linear models, and {type(part).__name__} is none; train it, or leave it out"
        )
    return part.model_  # type: ignore[return-value]


def _check_compatible(parts: Sequence[ExtremeClassifier]) -> None:
    """Raise InputError if a model cannot be in one model with the first."""
    first = parts[0]
    wanted = first.model_.text_features
    for number, part in enumerate(parts[1:], start=1):
        reasons = {
            "method": part.method != first.method,
            "number of features": part.model_.n_features != first.model_.n_features,
            "bias": part.model_.bias != first.model_.bias,
            "normalize": part.model_.normalize != first.model_.normalize,
            "form of y": part.multiclass_ != first.multiclass_,
        }
        reasons["text pipeline"] = not _same_pipeline(part.model_.text_features, wanted)
        different = [name for name, is_so in reasons.items() if is_so]
        if different:
            raise InputError(
                f"model {number} differs from model 0 in its {', '.join(different)}; models to be merged must agree"
            )


def _same_pipeline(one: FeaturePipeline | None, other: FeaturePipeline | None) -> bool:
    if isinstance(one, TextFeatures):
        return one.same_as(other)
    return one is other


def _growth(parts: Sequence[ExtremeClassifier]) -> Growth | None:
    """Return what the merged model remembers of its rows. None if the models were trained on different rows."""
    known = [part.growth_ for part in parts]
    rows = [each.rows for each in known if each is not None]
    if len(rows) < len(parts) or not all(np.array_equal(each, rows[0]) for each in rows):
        return None
    starts = np.cumsum([0, *(part.model_.n_labels for part in parts)])
    entry = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "what": "merge",
        "models": len(parts),
        "labels": int(starts[-1]),
    }
    return Growth(
        rows[0],
        np.concatenate([each.labels for each in known if each is not None]),
        np.concatenate([each.retired + start for each, start in zip(known, starts, strict=False) if each is not None]),
        (*(line for each in known if each is not None for line in each.history), entry),
    )
