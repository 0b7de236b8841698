"""`longtail inspect MODEL`: show sizes, parameters and training of a model, or the weights of one label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.output import note, say, say_json
from longtail.cli.reading import Json, Model, label_called, load_estimator
from longtail.cli.update import facts
from longtail.words import size

if TYPE_CHECKING:
    from longtail.methods import ExtremeClassifier
    from longtail.models import LabelWeights

QUANTILES = (0, 25, 50, 75, 99, 100)  # of the weights per label, in per cent
NAMES = 8  # label names shown
UPDATES = 10  # the last of the history


def inspect(
    model: Model,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="Show the weights of this label.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many weights of the label.")] = 20,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Also compare the stored index with the weights; all else is always checked."),
    ] = False,
    json: Json = False,
) -> None:
    """Show what a model is and how it was trained.

    With --label: the strongest weights of one label.
    """
    clf = load_estimator(model)
    if verify:
        _verify(clf, model)
    if label is not None:
        weights = _weights(clf, label_called(clf, label), top)
        say_json(weights) if json else say(_weights_for_people(weights))
        return
    description = _description(clf, model)
    say_json(description) if json else say(_for_people(description, clf.training_.facts()))


def _verify(clf: ExtremeClassifier, model: str) -> None:
    from longtail import folder, store

    count = store.verify_index(clf.model_, Path(model) / folder.MODEL.manifest)
    note(f"All files are sound; {count} stored indexes are those of the weights." if count else "All files are sound.")


def _description(clf: ExtremeClassifier, model: str) -> dict[str, Any]:
    from longtail import store
    from longtail.models import LabelWeights

    inner = clf.model_
    return {
        "model": model,
        "method": clf.method,
        "parameters": clf._saved_params(),
        "training": clf.training_.as_dict(),
        "labels": inner.n_labels,
        "features": inner.n_features,
        "bias": inner.bias,
        "one_class_per_row": inner.multiclass,
        "weights": inner.n_weights,
        **(_of_labels(inner) if isinstance(inner, LabelWeights) else _of_buckets(inner)),
        "bytes": store.model_size(model),
        "index_bytes": store.index_size(model),
        "text_pipeline": _pipeline(inner),
        "label_names": clf.classes_[:NAMES].tolist(),
        "history": clf.history_,
    }


def _of_labels(inner: LabelWeights) -> dict[str, Any]:
    import numpy as np

    per_label = inner.weights_per_label
    quantiles = np.percentile(per_label, QUANTILES).tolist()
    return {
        "weight_type": inner.form,
        "shards": len(getattr(inner, "shards", [inner])),
        "all_weights": inner.n_labels * (inner.n_features + (inner.bias > 0)),
        "weights_per_label": dict(zip(map(str, QUANTILES), quantiles, strict=True)),
        "labels_without_weights": int((per_label == 0).sum()),
    }


def _of_buckets(inner: Any) -> dict[str, Any]:
    hashes, buckets = inner.hashes, inner.linear
    return {
        "all_weights": (inner.n_features + 1) * buckets.n_columns,
        "buckets": hashes.n_buckets,
        "repetitions": hashes.n_repetitions,
        "link": buckets.link,
        "aggregate": inner.aggregate,
        "weight_type": buckets.codes.dtype.name,
        "one_vs_all_bytes": 4 * inner.n_labels * inner.n_features,
    }


def _pipeline(inner: Any) -> dict[str, Any] | None:
    """The parameters of the text pipeline, if the model has one."""
    return None if inner.text_features is None else inner.text_features.to_arrays()[1]


def _for_people(about: dict[str, Any], training: dict[str, str]) -> Any:
    from longtail.report import Facts

    more = ", …" if about["labels"] > NAMES else ""
    share = about["weights"] / max(about["all_weights"], 1)
    return Facts(
        {
            "method": about["method"],
            "parameters": _pairs(about["parameters"]),
            "labels": about["labels"],
            "features": about["features"],
            "bias": str(about["bias"]),
            "predicts": "one class per row" if about["one_class_per_row"] else "any number of labels per row",
            "weights": f"{about['weights']:,} ({share:.3%} of all are not zero)",
            **(_labels_for_people(about) if "weights_per_label" in about else _buckets_for_people(about)),
            "on disk": size(about["bytes"]) + _more_on_disk(about),
            "text pipeline": _pairs(about["text_pipeline"]) if about["text_pipeline"] else "none; rows of numbers",
            "label names": ", ".join(map(str, about["label_names"])) + more,
            **training,
            **_history_for_people(about["history"]),
        }
    )


def _history_for_people(history: list[dict[str, Any]]) -> dict[str, str]:
    """The last updates, by date."""
    told = (("; ".join(f"{name} {text}" for name, text in facts(entry).items()), entry) for entry in history[-UPDATES:])
    return {f"{entry['what']} {number}, {entry['when'][:10]}": text for number, (text, entry) in enumerate(told, 1)}


def _more_on_disk(about: dict[str, Any]) -> str:
    index = f", and {size(about['index_bytes'])} of index" if about["index_bytes"] else ""
    return f"{index}, in {about['shards']} shards" if about.get("shards", 1) > 1 else index


def _labels_for_people(about: dict[str, Any]) -> dict[str, Any]:
    return {
        "weight type": about["weight_type"],
        "weights per label": ", ".join(f"{at}%: {value:,.0f}" for at, value in about["weights_per_label"].items()),
        "empty labels": about["labels_without_weights"],
    }


def _buckets_for_people(about: dict[str, Any]) -> dict[str, Any]:
    return {
        "buckets": f"{about['repetitions']} times {about['buckets']}, {about['link']}, {about['weight_type']} weights",
        "score": f"{about['aggregate']} over the repetitions",
        "one-vs-all": f"{size(about['one_vs_all_bytes'])} with all its weights",
    }


def _pairs(values: Any) -> str:
    """name=value, name=value; a nested mapping stands in brackets."""
    if not isinstance(values, dict):
        return str(values)
    inner = {name: f"({_pairs(value)})" if isinstance(value, dict) else value for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in inner.items())


def _weights(clf: ExtremeClassifier, label: int, top: int) -> dict[str, Any]:
    import numpy as np

    inner = clf.model_
    features, values, bias = inner.label_weights(label)
    order = np.argsort(-np.abs(values), kind="stable")
    pairs = [(int(features[at]), float(values[at])) for at in order]
    name = clf.classes_[label]
    return {
        "label": name.item() if isinstance(name, np.generic) else name,
        "weights": len(pairs),
        "bias": bias,
        "strongest": [{"feature": inner.feature_name(j), "weight": weight} for j, weight in pairs[:top]],
    }


def _weights_for_people(about: dict[str, Any]) -> str:
    from longtail.report import Paragraph, Table

    head = f"Label {about['label']} has {about['weights']:,} weights, bias {about['bias']:+.3f}"
    rows = [[f"{each['weight']:+.3f}", each["feature"]] for each in about["strongest"]]
    return f"{Paragraph(head)}\n\n{Table(['weight', 'feature'], rows)}"
