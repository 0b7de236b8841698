"""Texts and the names of their labels from Parquet and Arrow files, by pyarrow (`longtail[data]`).

The column of texts holds strings. The column of labels holds lists of names or numbers, single numbers, or strings in
which names are joined by a separator. Rows are read batch by batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from longtail.data import files
from longtail.data.lines import listed, quoted
from longtail.data.text import Record, Source, fields_named
from longtail.errors import DataError, MissingExtra

BATCH = 8192  # rows


def arrow_records(
    source: Source, form: str, *, label_separator: str, waiting: files.Waiting | None = None
) -> Iterator[Record]:
    """The rows of a Parquet file, or of an Arrow file or stream (also called Feather).

    `waiting` is called before every batch of a Parquet file, with the number of rows so far and of all rows.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtra("pyarrow", "data", f"reading {files.name_of(source.path)}") from None
    where = files.name_of(source.path)
    if os.fspath(source.path) == "-":
        raise DataError(where, f"{form} cannot be read from standard input; name a file")
    files.open_regular(source.path).close()  # a DataError for what cannot be read
    number = 0
    try:
        for batch, total in _batches(os.fspath(source.path), form):
            if waiting is not None and total is not None:
                waiting(number, total)
            text_at = _text_columns(where, batch.schema.names, source.text_field)
            for row in batch.to_pylist():
                number += 1
                text = "\n".join(_text(where, number, row, name) for name in text_at)
                yield Record(text, _labels(where, number, row, source.labels_field, label_separator), row)
    except (pa.ArrowException, OSError) as error:
        raise DataError(where, f"is not a valid {form} file: {' '.join(str(error).split())}") from None


def _batches(path: str, form: str) -> Iterator[tuple[Any, int | None]]:
    """Batches of rows, each with the number of all rows if that is known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if form == "parquet":
        with pq.ParquetFile(path) as file:
            yield from ((batch, file.metadata.num_rows) for batch in file.iter_batches(batch_size=BATCH))
        return
    with pa.OSFile(path) as file:
        if file.read(6) == b"ARROW1":
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            file.seek(0)
            batches = iter(pa.ipc.open_stream(file))
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH):
                yield batch.slice(start, BATCH), None


def _text_columns(where: str, names: list[str], field: str) -> list[str]:
    wanted = [field] if field in names else fields_named(field)
    for name in wanted:
        if name not in names:
            raise DataError(
                where,
                f"found the columns {listed(names)}, expected a column {quoted(name)}; "
                "name the column of the texts with text_field (--text-field)",
            )
    return wanted


def _text(where: str, number: int, row: dict[str, Any], name: str) -> str:
    text = row[name]
    if not isinstance(text, str):
        raise DataError(where, f"row {number}: found {_noun(text)} in the column {quoted(name)}, expected a string")
    return text


def _labels(where: str, number: int, row: dict[str, Any], field: str | None, separator: str) -> list[str]:
    labels = None if field is None else row.get(field)
    if labels is None:
        return []
    if isinstance(labels, str):
        labels = [name.strip() for name in labels.split(separator)] if labels.strip() else []
    if isinstance(labels, int) and not isinstance(labels, bool):
        labels = [labels]
    if not isinstance(labels, list):
        raise DataError(
            where, f"row {number}: found {_noun(labels)} in the column {quoted(str(field))}, expected a list"
        )
    for label in labels:
        if (type(label) is not str and type(label) is not int) or label == "":
            found = "an empty name" if label == "" else _noun(label)
            raise DataError(where, f"row {number}: found the label {found}, expected a name or a whole number")
    return [str(label) for label in labels]


def _noun(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
