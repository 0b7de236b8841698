"""`longtail predict MODEL DATA`: one line of JSON per row, best labels first."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.output import UsageError
from longtail.cli.progress import step
from longtail.cli.reading import Model, load_model, predictions, read_data
from longtail.errors import DataWarning

if TYPE_CHECKING:
    from typing import TextIO

    from longtail.methods import ExtremeClassifier
    from longtail.topk import TopK


def predict(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="A data file, a saved dataset, or - for standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="One text, in place of DATA.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many labels per row.")] = 5,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")] = None,
    *,
    reading: dict[str, Any],
) -> None:
    """Predict the best labels of every row of DATA.

    One line of JSON per row: {"labels": [names or numbers, best first], "scores": […]}. Labels in DATA are ignored.
    """
    if (data is None) == (text is None):
        raise UsageError("predict needs either DATA or --text; see longtail predict --help")
    clf = load_model(model)
    if text is not None:
        rows: Any = clf._rows([text])
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # of labels that the model does not know
            rows = read_data(str(data), reading, like=clf.model_, empty=True)[0].X
    with _opened(output) as file, step("Predicting", "rows", show=not file.isatty()) as predicting:
        for top in predictions(clf, rows, top_k, predicting):
            file.writelines(_lines(clf, top))


def _lines(clf: ExtremeClassifier, top: TopK) -> Iterator[str]:
    names = clf.classes_[top.labels].tolist()
    scores = top.scores.astype(float).round(6).tolist()
    for labels, values in zip(names, scores, strict=True):
        yield json.dumps({"labels": labels, "scores": values}, ensure_ascii=False) + "\n"


@contextmanager
def _opened(output: str | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    with open(output, "w", encoding="utf-8", errors="surrogatepass") as file:
        yield file
