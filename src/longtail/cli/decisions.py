"""`longtail thresholds` and `longtail rules`: change what a trained model returns, without training again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.output import UsageError, say, say_json
from longtail.cli.progress import step
from longtail.cli.reading import Json, Model, OptionalData, load_estimator, read_data

if TYPE_CHECKING:
    from longtail.methods import ExtremeClassifier

Allow = Annotated[
    str | None, typer.Option("--allow", metavar="FILE", help="Return only these labels; one name per line.")
]
Deny = Annotated[
    str | None, typer.Option("--deny", metavar="FILE", help="Never return these labels; one name per line.")
]
Offsets = Annotated[
    str | None,
    typer.Option("--offsets", metavar="FILE", help="Add numbers to scores; a name, a tab and a number per line."),
]
TailBoost = Annotated[
    float, typer.Option("--tail-boost", metavar="NUMBER", help="Rank rare labels higher: times log(1 / propensity).")
]


def thresholds(
    model: Model,
    data: OptionalData = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="TARGET", help="micro-f1, macro-f1:by=band or macro-f1:by=label.")
    ] = None,
    precision: Annotated[
        float | None, typer.Option("--precision", metavar="SHARE", help="As many labels as possible at this precision.")
    ] = None,
    recall: Annotated[
        float | None, typer.Option("--recall", metavar="SHARE", help="As few labels as possible at this recall.")
    ] = None,
    per_row: Annotated[
        int | None, typer.Option("--per-row", metavar="K", min=1, help="The K best labels of every row.")
    ] = None,
    fixed: Annotated[float | None, typer.Option("--fixed", metavar="VALUE", help="This threshold.")] = None,
    json: Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Choose which labels MODEL predicts, on the held-out rows DATA.

    DATA must not be the training data, whose scores are too good. --per-row and --fixed need no DATA. The choice is
    saved in the model folder.
    """
    wanted = {
        target: target is not None,
        f"precision:at_least={precision}": precision is not None,
        f"recall:at_least={recall}": recall is not None,
        f"top:k={per_row}": per_row is not None,
        f"fixed:value={fixed}": fixed is not None,
    }
    chosen = [str(text) for text, given in wanted.items() if given] or ["micro-f1"]
    if len(chosen) > 1:
        raise UsageError("give one of --target, --precision, --recall, --per-row and --fixed")
    clf = load_estimator(model)
    rows = None if data is None else read_data(data, reading, like=clf.model_)[0]
    clf.set_threshold(chosen[0], rows)
    _save(clf, model)
    found = clf.model_.thresholds
    assert found is not None
    limit = float(found.limits) if found.limits.ndim == 0 else None
    result = {"model": model, "target": found.target, "threshold": limit, **found.figures}
    say_json(result) if json else say(_facts(result))


def rules(
    model: Model,
    allow: Allow = None,
    deny: Deny = None,
    offsets: Offsets = None,
    tail_boost: TailBoost = 0.0,
    json: Json = False,
) -> None:
    """Restrict or shift the labels that MODEL returns.

    The rules replace those of the model folder; without options, they are removed.
    """
    clf = load_estimator(model)
    set_rules(clf, allow, deny, offsets, tail_boost)
    _save(clf, model)
    found = clf.model_.rules
    allowed = clf.model_.n_labels if found is None else found.n_allowed
    shifted = 0 if found is None else int(((found.offsets != 0) & (found.offsets > float("-inf"))).sum())
    result = {"model": model, "labels": clf.model_.n_labels, "allowed": allowed, "shifted": shifted}
    say_json(result) if json else say(_facts(result))


def set_rules(
    clf: ExtremeClassifier, allow: str | None, deny: str | None, offsets: str | None, tail_boost: float
) -> None:
    """Rules from files of names, for one command."""
    shifts = {name: _number(value, str(offsets)) for name, value in _pairs(clf, offsets)}
    clf.set_rules(
        allow=None if allow is None else _names(clf, allow),
        deny=[] if deny is None else _names(clf, deny),
        offsets=shifts,
        tail_boost=tail_boost,
    )


def _names(clf: ExtremeClassifier, path: str) -> list[Any]:
    lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
    return [_name(clf, line) for line in lines]


def _pairs(clf: ExtremeClassifier, path: str | None) -> list[tuple[Any, str]]:
    if path is None:
        return []
    lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
    return [(_name(clf, name), value) for name, _, value in (line.rpartition("\t") for line in lines)]


def _name(clf: ExtremeClassifier, text: str) -> Any:
    """The name as `classes_` has it: a number where names are numbers."""
    return int(text) if clf.classes_.dtype.kind in "iu" and text.lstrip("-").isdecimal() else text


def _number(text: str, path: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{path}: each line is a label, a tab and a number, but got {text!r} as number") from None


def _save(clf: ExtremeClassifier, model: str) -> None:
    with step(f"Saving {model}"):
        clf.save(model)


def _facts(result: dict[str, Any]) -> Any:
    from longtail.report import Facts

    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in result.items()}
    return Facts({name.replace("_", " "): "one per label" if value is None else value for name, value in shown.items()})
