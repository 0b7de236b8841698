"""Predictions as JSON lines, CSV or Parquet: one row per row of the input."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from longtail.cli.output import UsageError
from longtail.errors import MissingExtra

FORMATS = ("jsonl", "csv", "parquet")
OWN = ("labels", "scores", "probabilities")
SEPARATOR = "|"  # between the labels, and between the scores, of a row in CSV

Row = dict[str, Any]


class Sink(Protocol):
    """Takes rows of predictions."""

    def write(self, rows: list[Row]) -> None: ...


def form_of(output: str | None, form: str | None) -> str:
    """The format by its name, else by the ending of the file."""
    if form is None:
        ending = "" if output is None else output.lower().rpartition(".")[2]
        return ending if ending in FORMATS else "jsonl"
    if form not in FORMATS:
        raise UsageError(f"--output-format takes {', '.join(FORMATS)}, but got {form!r}")
    return form


@contextmanager
def opened(output: str | None, form: str) -> Iterator[Sink]:
    """Where the rows go: a file, or standard output."""
    if form == "parquet":
        if output is None:
            raise UsageError("Parquet is not written to standard output; name a file with --output FILE")
        with _parquet(output) as sink:
            yield sink
        return
    kind = _Csv if form == "csv" else _JsonLines
    if output is None:
        yield kind(sys.stdout)
        return
    with open(output, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        yield kind(file)


class _JsonLines:
    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, rows: list[Row]) -> None:
        self.file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        self.file.flush()


class _Csv:
    """A header, then a row each. Labels and numbers of a row are joined by a bar."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.header = file, False

    def write(self, rows: list[Row]) -> None:
        writer = csv.writer(self.file, lineterminator="\n")
        if rows and not self.header:
            writer.writerow(rows[0])
            self.header = True
        writer.writerows([_joined(value) for value in row.values()] for row in rows)
        self.file.flush()


def _joined(value: Any) -> Any:
    return SEPARATOR.join(map(str, value)) if isinstance(value, list) else value


@contextmanager
def _parquet(output: str) -> Iterator[Sink]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "data", "Parquet") from None

    class Sheet:
        def __init__(self) -> None:
            self.writer: Any = None

        def write(self, rows: list[Row]) -> None:
            if not rows:
                return
            kept = [name for name in rows[0] if name not in OWN]
            if self.writer is None:
                self.writer = pq.ParquetWriter(output, self.schema(rows, kept))
            texts = [{**row, **{name: None if row[name] is None else str(row[name]) for name in kept}} for row in rows]
            self.writer.write_table(pa.Table.from_pylist(texts, schema=self.writer.schema))

        def schema(self, rows: list[Row], kept: list[str]) -> Any:
            """Kept fields become strings. Labels are numbers if the model has no names for them."""
            label = next((label for row in rows for label in row["labels"]), "")
            kinds = {"labels": pa.int64() if isinstance(label, int) else pa.string()}
            fields = [(name, pa.string()) for name in kept]
            own = [(name, pa.list_(kinds.get(name, pa.float32()))) for name in OWN if name in rows[0]]
            return pa.schema([*fields, *own])

    sheet = Sheet()
    try:
        yield sheet
    finally:
        if sheet.writer is not None:
            sheet.writer.close()
