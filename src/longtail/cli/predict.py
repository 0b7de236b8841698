"""`longtail predict MODEL DATA`: the best labels of every row, as JSON lines, CSV or Parquet.

Texts are read, predicted and written some thousand at a time, in memory that does not grow with the file. From standard
input every text is answered as soon as no further one is waiting.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli import reading as limits
from longtail.cli.decisions import Allow, Deny, Offsets, TailBoost, set_rules
from longtail.cli.output import UsageError
from longtail.cli.progress import step
from longtail.cli.reading import Filter, Model, load_model, open_model, read_data, read_filter, top_without
from longtail.cli.writing import OWN, form_of, opened
from longtail.errors import DataError, DataWarning, InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from longtail.cli.progress import Step
    from longtail.cli.writing import Row, Sink
    from longtail.data.text import Record
    from longtail.models import Model as AnyModel
    from longtail.topk import TopK

Fields = Mapping[str, Any]
_READ_BY_RECORD = ("format", "text_field", "delimiter", "encoding")


def predict(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="A data file, a saved dataset, or - for standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="One text, in place of DATA.")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many labels per row.")] = 5,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file: .jsonl, .csv or .parquet.")
    ] = None,
    output_format: Annotated[
        str | None, typer.Option("--output-format", metavar="NAME", help="jsonl, csv or parquet; else by --output.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="NAME,NAME,…", help="Texts: fields of the input to repeat.  [default: id]"),
    ] = None,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Only labels above the model's threshold, however many.")
    ] = False,
    filter: Filter = None,
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
    form = form_of(output, output_format)
    _check_paths(model, data, output)
    opened_model = open_model(model)
    if allow is not None or deny is not None or offsets is not None or tail_boost:
        clf = load_model(model)
        set_rules(clf, allow, deny, offsets, tail_boost)
        opened_model = clf.model_
    if threshold and opened_model.thresholds is None:
        raise UsageError(f"{model} has no threshold; choose one with: longtail thresholds {model} DATA")
    quiet = output is None and sys.stdout.isatty()
    with opened(output, form) as sink, step("Predicting", "rows", show=not quiet) as shown:
        writer = _Writer(opened_model, sink, shown, top_k, threshold, keep)
        if text is not None:
            writer.vectors(_features([text], opened_model), None)
        elif opened_model.text_features is None or filter is not None or not writer.texts(str(data), reading):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # of labels that the model does not know
                X = read_data(str(data), reading, like=opened_model, empty=True)[0].X
            writer.vectors(X, read_filter(filter, X.shape[0], opened_model.n_labels))


def _features(texts: list[str], model: AnyModel) -> csr_array:
    if model.text_features is None:
        raise InputError("the model was trained without a text pipeline, so it cannot read texts; pass rows of numbers")
    return model.text_features.transform(texts)


def _check_paths(model: str, data: str | None, output: str | None) -> None:
    if data is None or data == "-":
        return
    if not os.path.exists(data) and len(data.split()) > 1:
        raise UsageError(f"there is no file {data!r}; for one text, write: longtail predict {model} --text {data!r}")
    if output is not None and os.path.exists(output) and os.path.exists(data) and os.path.samefile(data, output):
        raise UsageError(f"--output is the input {data!r}, which would be lost; choose another file")


class _Writer:
    """Predicts rows in blocks and writes them."""

    def __init__(self, model: AnyModel, sink: Sink, shown: Step, k: int, threshold: bool, keep: str | None) -> None:
        self.model, self.sink, self.shown = model, sink, shown
        self.above = model.thresholds if threshold else None
        self.k = k if self.above is None else self.above.n_candidates
        self.keep = ["id"] if keep is None else [name.strip() for name in keep.split(",")]
        self.must_have = keep is not None
        if set(self.keep) & set(OWN):
            raise UsageError(f"--keep cannot keep {', '.join(OWN)}, which predictions have themselves")
        self.pending: list[Record] = []
        self.done = 0

    def vectors(self, X: Any, pairs: Any) -> None:
        for start in range(0, X.shape[0], limits.ROWS):
            rows = slice(start, start + limits.ROWS)
            self._write(X[rows], None, None if pairs is None else pairs[rows])
            self.shown.update(self.done, X.shape[0])

    def texts(self, path: str, reading: dict[str, Any]) -> bool:
        """Predict the texts of a file as they are read; False if it holds vectors."""
        from longtail.data.read import read_records

        how = {name: value for name, value in reading.items() if name in _READ_BY_RECORD}
        records = read_records(path, **how, waiting=self.flush)
        if records is None:
            return False
        for record in records:
            if not self.done and not self.pending:
                self._choose_fields(path, record)
            self.pending.append(record)
            if len(self.pending) >= limits.ROWS:
                self.flush()
        self.flush()
        return True

    def flush(self) -> None:
        """Predict and write what was read."""
        if self.pending:
            block, self.pending = self.pending, []
            X = _features([record.text for record in block], self.model)
            self._write(X, [record.fields for record in block])
            self.shown.update(self.done, self.done)

    def _choose_fields(self, path: str, first: Record) -> None:
        missing = [name for name in self.keep if name not in first.fields]
        if missing and self.must_have:
            found = ", ".join(map(repr, first.fields)) or "no fields"
            raise DataError(path, f"found {found}, but --keep asks for {missing[0]!r}")
        self.keep = [name for name in self.keep if name in first.fields]

    def _write(self, X: Any, fields: Sequence[Fields] | None, pairs: Any = None) -> None:
        top = top_without(self.model, X, self.k, pairs)
        self.sink.write(list(self._rows(top, fields)))
        self.done += len(top)

    def _rows(self, top: TopK, fields: Sequence[Fields] | None) -> Iterator[Row]:
        names = self.model.label_names
        columns = {
            "labels": top.labels if names is None else names[top.labels],
            "scores": top.scores.astype(float).round(6),
        }
        if top.probabilities is not None:
            columns["probabilities"] = top.probabilities.astype(float).round(6)
        chosen = top.scores > float("-inf") if self.above is None else self.above.chosen(top)
        for i in range(len(top)):
            kept = {} if fields is None else {name: fields[i].get(name) for name in self.keep}
            yield {**kept, **{name: values[i][chosen[i]].tolist() for name, values in columns.items()}}
