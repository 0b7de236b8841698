"""`longtail inspect MODEL`: what a model is made of, and the strongest weights of one label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.output import say, say_json, size
from longtail.cli.reading import Json, Model, label_called, load_model

if TYPE_CHECKING:
    from longtail.methods import ExtremeClassifier

QUANTILES = (0, 25, 50, 75, 99, 100)  # of the weights per label, in per cent
NAMES = 8  # label names shown


def inspect(
    model: Model,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="Show the weights of this label.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many weights of the label.")] = 20,
    json: Json = False,
) -> None:
    """Show what a model is made of, or one label of it."""
    clf = load_model(model)
    if label is not None:
        weights = _weights(clf, label_called(clf, label), top)
        say_json(weights) if json else say(_weights_for_people(weights))
        return
    description = _description(clf, model)
    say_json(description) if json else say(_for_people(description))


def _description(clf: ExtremeClassifier, model: str) -> dict[str, Any]:
    import numpy as np

    from longtail import store

    inner = clf.model_
    per_label = np.diff(inner.W.indptr)
    quantiles = np.percentile(per_label, QUANTILES).tolist()
    return {
        "model": model,
        "method": clf.method,
        "parameters": clf.saved_params(),
        "measured": clf.measured(),
        "labels": inner.n_labels,
        "features": inner.n_features,
        "bias": inner.bias,
        "one_label_per_row": inner.multiclass,
        "weights": int(inner.W.nnz),
        "weights_per_label": dict(zip(map(str, QUANTILES), quantiles, strict=True)),
        "labels_without_weights": int((per_label == 0).sum()),
        "bytes": store.model_size(model),
        "text_pipeline": None if inner.features is None else inner.features.to_arrays()[1],  # type: ignore[attr-defined]
        "label_names": clf.classes_[:NAMES].tolist(),
    }


def _for_people(about: dict[str, Any]) -> Any:
    from longtail.report import Facts

    more = ", …" if about["labels"] > NAMES else ""
    share = about["weights"] / max(about["labels"] * (about["features"] + (about["bias"] > 0)), 1)
    return Facts(
        {
            "method": about["method"],
            "parameters": _pairs(about["parameters"]),
            **{name.replace("_", " "): _pairs(values) for name, values in about["measured"].items()},
            "labels": about["labels"],
            "features": about["features"],
            "bias": str(about["bias"]),
            "rows have": "exactly one label" if about["one_label_per_row"] else "any number of labels",
            "weights": f"{about['weights']:,} ({share:.3%} of all are not zero)",
            "weights per label": ", ".join(f"{at}%: {value:,.0f}" for at, value in about["weights_per_label"].items()),
            "empty labels": about["labels_without_weights"],
            "on disk": size(about["bytes"]),
            "text pipeline": _pairs(about["text_pipeline"]) if about["text_pipeline"] else "none; rows of numbers",
            "label names": ", ".join(map(str, about["label_names"])) + more,
        }
    )


def _pairs(values: Any) -> str:
    """name=value, ...; a mapping within stands in brackets."""
    if not isinstance(values, dict):
        return str(values)
    inner = {name: f"({_pairs(value)})" if isinstance(value, dict) else value for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in inner.items())


def _weights(clf: ExtremeClassifier, label: int, top: int) -> dict[str, Any]:
    import numpy as np

    inner = clf.model_
    row = inner.W[[label]]
    order = np.argsort(-np.abs(row.data), kind="stable")
    pairs = [(int(j), float(row.data[at])) for at in order if (j := row.indices[at]) < inner.n_features]
    bias = row.data[row.indices == inner.n_features] * inner.bias if inner.bias else np.zeros(0)
    name = clf.classes_[label]
    return {
        "label": name.item() if isinstance(name, np.generic) else name,
        "weights": len(pairs),
        "bias": float(bias.sum()),
        "strongest": [{"feature": inner.feature_name(j), "weight": weight} for j, weight in pairs[:top]],
    }


def _weights_for_people(about: dict[str, Any]) -> str:
    from longtail.report import Paragraph, Table

    head = f"Label {about['label']} has {about['weights']:,} weights, bias {about['bias']:+.3f}"
    rows = [[f"{each['weight']:+.3f}", each["feature"]] for each in about["strongest"]]
    return f"{Paragraph(head)}\n\n{Table(['weight', 'feature'], rows)}"
