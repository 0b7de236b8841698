"""Predictions as JSON lines, CSV or Parquet: one row per row of the input.

Blocks of rows become bytes, which go to standard output or to a file (longtail.cli.partial). A block does not depend on
the blocks before it, except that the first one has the header. So an interrupted run can be continued at any block.

A Parquet file ends with a table of its contents and cannot be appended to. Its blocks are therefore collected as an
Arrow stream, and the stream becomes the Parquet file in the end, one row group per block.
"""

from __future__ import annotations

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from longtail.cli.output import UsageError
from longtail.errors import MissingExtra

FORMATS = ("jsonl", "csv", "parquet")
OWN = ("labels", "scores", "probabilities")
SEPARATOR = "|"  # between the labels, and between the scores, of a row in CSV

Row = dict[str, Any]


class RowEncoder(Protocol):
    """Turns blocks of rows into bytes, and the bytes of all blocks into the final file."""

    def encode(self, rows: Sequence[Row], *, first: bool) -> bytes:
        """The bytes of a block. `first` tells that there are no rows before it."""
        ...

    def finish(self, collected: Path, output: Path) -> None:
        """Turn the collected bytes into the file `output`. `collected` may be gone afterwards."""
        ...


def form_of(output: str | None, form: str | None) -> str:
    """The format by its name, else by the ending of the file."""
    if form is None:
        ending = "" if output is None else output.lower().rpartition(".")[2]
        form = ending if ending in FORMATS else "jsonl"
    if form not in FORMATS:
        raise UsageError(f"--output-format takes {', '.join(FORMATS)}, but got {form!r}")
    if form == "parquet" and (output is None or (os.path.exists(output) and not os.path.isfile(output))):
        raise UsageError("Parquet is not written to standard output or a pipe; name a file with --output FILE")
    return form


def encoder(form: str, *, numbered: bool, calibrated: bool) -> RowEncoder:
    """The encoder of a format. Labels are numbers if the model has no names for them (`numbered`)."""
    if form == "parquet":
        return _Parquet(numbered, calibrated)
    return _Csv() if form == "csv" else _JsonLines()


class _TextFormat(ABC):
    """A text format, which is complete when it is collected."""

    def encode(self, rows: Sequence[Row], *, first: bool) -> bytes:
        return self.text(rows, first).encode("utf-8", "surrogatepass")

    def finish(self, collected: Path, output: Path) -> None:
        collected.replace(output)

    @abstractmethod
    def text(self, rows: Sequence[Row], first: bool) -> str:
        """The rows as text. The first block has the header, if the format has one."""


class _JsonLines(_TextFormat):
    def text(self, rows: Sequence[Row], first: bool) -> str:
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


class _Csv(_TextFormat):
    """A header, then one line per row. The labels of a row are joined by a bar, and so are their numbers."""

    def text(self, rows: Sequence[Row], first: bool) -> str:
        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\n")
        if rows and first:
            writer.writerow(rows[0])
        writer.writerows([_joined(value) for value in row.values()] for row in rows)
        return made.getvalue()


def _joined(value: Any) -> Any:
    return SEPARATOR.join(map(str, value)) if isinstance(value, list) else value


class _Parquet:
    def __init__(self, numbered: bool, calibrated: bool) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtra("pyarrow", "data", "Parquet") from None
        self.pa, self.pq = pa, pq
        self.own = {"labels": pa.int64() if numbered else pa.string(), "scores": pa.float32()}
        if calibrated:
            self.own["probabilities"] = pa.float32()

    def encode(self, rows: Sequence[Row], *, first: bool) -> bytes:
        kept = [name for name in rows[0] if name not in OWN] if rows else []
        schema = self._schema(kept)
        texts = [{**row, **{name: None if row[name] is None else str(row[name]) for name in kept}} for row in rows]
        batch = self.pa.RecordBatch.from_pylist(texts, schema=schema)
        head = schema.serialize().to_pybytes() if first else b""
        return bytes(head + batch.serialize().to_pybytes())

    def _schema(self, kept: Sequence[str]) -> Any:
        """Kept fields become strings."""
        pa = self.pa
        return pa.schema([*((name, pa.string()) for name in kept), *((n, pa.list_(t)) for n, t in self.own.items())])

    def finish(self, collected: Path, output: Path) -> None:
        made = collected.with_name(f"{collected.name}.parquet")
        try:
            with open(collected, "rb") as file:
                empty = not file.read(1)
                file.seek(0)
                reader = None if empty else self.pa.ipc.open_stream(file)
                with self.pq.ParquetWriter(str(made), reader.schema if reader else self._schema([])) as writer:
                    for batch in reader or ():
                        writer.write_batch(batch)
            made.replace(output)
        finally:
            made.unlink(missing_ok=True)
        collected.unlink()
