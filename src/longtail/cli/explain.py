"""`longtail explain MODEL --text "…"`: show which features made the score of a label."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.output import UsageError, say, say_json
from longtail.cli.reading import Json, Model, label_called, load_estimator, read_data
from longtail.errors import InputError

if TYPE_CHECKING:
    from longtail.methods import ExtremeClassifier
    from longtail.models import Explanation


DIGITS = 6  # float32 has no more


def explain(
    model: Model,
    text: Annotated[str | None, typer.Option("--text", help="The text to explain.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="DATA", help="A data file.")] = None,
    row: Annotated[int, typer.Option("--row", min=0, help="Which row of --data, from 0.")] = 0,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="The label to explain. Default: the best one.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many features to show.")] = 10,
    json: Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Show which words or features made a score."""
    if (text is None) == (data is None):
        raise UsageError("explain needs either --text or --data; see longtail explain --help")
    clf = load_estimator(model)
    x = _row(clf, text, data, row, reading)
    column = int(clf.predict_topk(x, 1).labels[0, 0]) if label is None else label_called(clf, label)
    explanation = clf.model_.explain(x, column)
    say_json(_as_dict(explanation, top)) if json else say(_for_people(explanation, top))


def _row(clf: ExtremeClassifier, text: str | None, data: str | None, row: int, reading: dict[str, Any]) -> Any:
    if text is not None:
        return clf._rows([text])
    dataset, _ = read_data(str(data), reading, like=clf.model_)
    if row >= dataset.n_samples:
        raise InputError(f"{data} has the rows 0 to {dataset.n_samples - 1:,}, but row {row:,} was asked for")
    return dataset.X[[row]]


def _as_dict(explanation: Explanation, top: int) -> dict[str, Any]:
    name = explanation.name
    shown = [asdict(part) for part in explanation.contributions[:top]]
    return {
        "label": name.item() if hasattr(name, "item") else name,
        "score": round(explanation.score, DIGITS),
        **({} if explanation.probability is None else {"probability": round(explanation.probability, DIGITS)}),
        **({"offset": round(explanation.offset, DIGITS)} if explanation.offset else {}),
        "bias": round(explanation.bias, DIGITS),
        "contributions": [{key: _rounded(value) for key, value in part.items()} for part in shown],
    }


def _rounded(value: Any) -> Any:
    return round(value, DIGITS) if isinstance(value, float) else value


def _for_people(explanation: Explanation, top: int) -> str:
    from longtail.report import Paragraph, Table

    chance = "" if explanation.probability is None else f" and the probability {explanation.probability:.3f}"
    head = Paragraph(f"Label {explanation.name} has the score {explanation.score:+.3f}{chance}")
    shown, rest = explanation.contributions[:top], explanation.contributions[top:]
    rows = [[f"{part.contribution:+.3f}", f"{part.value:.3f}", f"{part.weight:+.3f}", part.feature] for part in shown]
    if rest:
        rows.append([f"{sum(part.contribution for part in rest):+.3f}", "", "", f"({len(rest):,} more features)"])
    rows.append([f"{explanation.bias:+.3f}", "", "", "(bias)"])
    if explanation.offset:
        rows.append([f"{explanation.offset:+.3f}", "", "", "(rule)"])
    return f"{head}\n\n{Table(['share', 'value', 'weight', 'feature'], rows)}"
