"""`longtail predict MODEL DATA`: one line of JSON per row, best labels first."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.decisions import Allow, Deny, Offsets, TailBoost, set_rules
from longtail.cli.output import UsageError
from longtail.cli.progress import step
from longtail.cli.reading import Model, load_model, predictions, read_data
from longtail.errors import DataWarning

if TYPE_CHECKING:
    from typing import TextIO

    from longtail.methods import ExtremeClassifier
    from longtail.models import Thresholds
    from longtail.topk import TopK


def predict(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="A data file, a saved dataset, or - for standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="One text, in place of DATA.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many labels per row.")] = 5,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")] = None,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Only labels above the model's threshold, however many.")
    ] = False,
    allow: Allow = None,
    deny: Deny = None,
    offsets: Offsets = None,
    tail_boost: TailBoost = 0.0,
    *,
    reading: dict[str, Any],
) -> None:
    """Predict the best labels of every row of DATA.

    One line of JSON per row: {"labels": [names or numbers, best first], "scores": […]}, with "probabilities" if MODEL
    is calibrated. Labels in DATA are ignored.
    """
    if (data is None) == (text is None):
        raise UsageError("predict needs either DATA or --text; see longtail predict --help")
    clf = load_model(model)
    if allow is not None or deny is not None or offsets is not None or tail_boost:
        set_rules(clf, allow, deny, offsets, tail_boost)
    above = clf.model_.thresholds if threshold else None
    if threshold and above is None:
        raise UsageError(f"{model} has no threshold; choose one with: longtail thresholds {model} DATA")
    if text is not None:
        rows: Any = clf._rows([text])
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # of labels that the model does not know
            rows = read_data(str(data), reading, like=clf.model_, empty=True)[0].X
    with _opened(output) as file, step("Predicting", "rows", show=not file.isatty()) as predicting:
        for top in predictions(clf, rows, top_k if above is None else above.n_candidates, predicting):
            file.writelines(_lines(clf, top, above))


def _lines(clf: ExtremeClassifier, top: TopK, above: Thresholds | None = None) -> Iterator[str]:
    columns = {"labels": clf.classes_[top.labels], "scores": top.scores.astype(float).round(6)}
    if top.probabilities is not None:
        columns["probabilities"] = top.probabilities.astype(float).round(6)
    chosen = None if above is None else above.chosen(top)
    for i in range(len(top)):
        shown = slice(None) if chosen is None else chosen[i]
        line = {name: values[i][shown].tolist() for name, values in columns.items()}
        yield json.dumps(line, ensure_ascii=False) + "\n"


@contextmanager
def _opened(output: str | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    with open(output, "w", encoding="utf-8", errors="surrogatepass") as file:
        yield file
