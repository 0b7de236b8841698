"""Texts and the names of their labels, from JSON lines and from tables with a header row.

    {"text": "Cholera due to Vibrio cholerae 01", "labels": ["A00", "A00.0"]}        .jsonl: one object per line

    text,labels                                                                       .csv, .tsv: names joined by "|"
    "Cholera, unspecified",A00|A00.9

A label is a name; a whole number counts as its decimal name. The labels may be left out (texts to predict for). Files
are UTF-8, with or without byte order mark. Empty lines are allowed only at the end. Anything else is a DataError with
file, line and column (in characters): nothing is skipped or repaired silently.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from longtail.data import files
from longtail.data.files import PathLike
from longtail.errors import DataError

Texts = tuple[list[str], list[list[str]]]

MAX_FIELD_CHARACTERS = 1 << 24  # in a field of a table; else a missing quote makes the rest of the file one field
_NOUNS = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number", type(None): "null"}


def read_names(path: PathLike) -> list[str]:
    """One name per line."""
    return [line for _, line in _lines(path)]


def read_jsonl(path: PathLike, *, text_field: str, labels_field: str) -> Texts:
    """The texts and label names of JSON lines."""
    where = files.name_of(path)
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    texts, labels = [], []
    blank = None
    for number, line in _lines(path):
        if not line.strip():
            blank = blank or number
            continue
        _refuse_blank(where, blank)
        try:
            record = _parse(decoder, line)
            texts.append(_text(record, text_field))
            labels.append(_labels(record, labels_field))
            if "\\u" in line:  # only an escape can produce characters that are not text
                _refuse_odd_characters(texts[-1], text_field)
                _refuse_odd_characters("".join(labels[-1]), labels_field)
        except _Refused as error:
            raise DataError(where, error.reason, line=number, column=error.column) from None
    return texts, labels


def read_table(path: PathLike, *, delimiter: str, text_field: str, labels_field: str, label_separator: str) -> Texts:
    """The texts and label names of two columns of a comma- or tab-separated file."""
    where = files.name_of(path)
    texts, labels = [], []
    blank = None
    with _field_limit(MAX_FIELD_CHARACTERS):
        rows = _rows(path, delimiter)
        _, header = next(rows, (1, []))
        text_at, labels_at = _column(where, header, text_field), _column(where, header, labels_field)
        if text_at is None:
            reason = f"found {_listed(header)} in the header, expected a column {_quoted(text_field)}"
            raise DataError(where, reason, line=1)
        for line, row in rows:
            if not row:
                blank = blank or line
                continue
            _refuse_blank(where, blank)
            if len(row) != len(header):
                raise DataError(where, f"found {len(row)} fields, expected {len(header)} as in the header", line=line)
            texts.append(row[text_at])
            labels.append([] if labels_at is None else _split(where, line, row[labels_at], label_separator))
    return texts, labels


class _Refused(Exception):  # noqa: N818  (never leaves this file: it becomes a DataError where the line is known)
    def __init__(self, reason: str, column: int | None = None) -> None:
        self.reason, self.column = reason, column


# --- lines -----------------------------------------------------------------------------------------------------------


def _lines(path: PathLike) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without its end."""
    for number, raw in files.iter_lines(path):
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            reason = f"found the byte 0x{raw[error.start]:02x}, expected UTF-8 text"
            column = len(raw[: error.start].decode()) + 1
            raise DataError(files.name_of(path), reason, line=number, column=column) from None
        if (at := line.find("\0")) >= 0:
            raise DataError(files.name_of(path), "found a NUL byte, expected UTF-8 text", line=number, column=at + 1)
        yield number, line


def _refuse_blank(where: str, blank: int | None) -> None:
    if blank is not None:
        raise DataError(where, "found an empty line before others; only the last lines may be empty", line=blank)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise _Refused(f"found the field {_quoted(key)} twice in one object")
        record[key] = value
    return record


def _parse(decoder: json.JSONDecoder, line: str) -> dict[str, Any]:
    try:
        record = decoder.decode(line)
    except json.JSONDecodeError as error:
        raise _Refused(f"is not valid JSON: {error.msg}", error.colno) from None
    except RecursionError:
        raise _Refused("the JSON is nested too deeply") from None
    except ValueError:  # Python's limit for the digits of an integer
        raise _Refused("found a number of too many digits") from None
    if not isinstance(record, dict):
        raise _Refused(f"found {_noun(record)}, expected one object per line")
    return record


def _text(record: dict[str, Any], field: str) -> str:
    if field not in record:
        raise _Refused(f"found {_listed(list(record))} in the object, expected a field {_quoted(field)}")
    text = record[field]
    if not isinstance(text, str):
        raise _Refused(f"found {_noun(text)} in the field {_quoted(field)}, expected a string")
    return text


def _labels(record: dict[str, Any], field: str) -> list[str]:
    labels = record.get(field)
    if labels is None:
        return []
    if not isinstance(labels, list):
        raise _Refused(f'found {_noun(labels)} in the field {_quoted(field)}, expected a list of names like ["a", "b"]')
    for label in labels:
        if type(label) is not str and type(label) is not int:
            raise _Refused(f"found the label {_noun(label)} in {_quoted(field)}, expected a string or a whole number")
        if label == "":
            raise _Refused(f"found an empty label name in the field {_quoted(field)}")
    return [str(label) for label in labels]


def _refuse_odd_characters(text: str, field: str) -> None:
    """NUL, and halves of a surrogate pair: no UTF-8 file could hold the name or the text again."""
    odd = next((char for char in text if char == "\0" or "\ud800" <= char <= "\udfff"), None)
    if odd is not None:
        raise _Refused(f"found the escape \\u{ord(odd):04x} in the field {_quoted(field)}, which is no character")


def _noun(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _NOUNS[type(value)]


def _quoted(name: str) -> str:
    short = name if len(name) <= 40 else name[:40] + "…"
    return json.dumps(short, ensure_ascii=False).encode(errors="replace").decode()


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - 8} more"] if len(names) > 8 else []
    return ", ".join([_quoted(name) for name in names[:8]] + more) or "nothing"


# --- tables ----------------------------------------------------------------------------------------------------------


def _rows(path: PathLike, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line on which each row begins, and its fields (none for an empty line)."""
    reader = csv.reader((f"{line}\n" for _, line in _lines(path)), delimiter=delimiter, strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise _table_error(files.name_of(path), str(error), begin, reader.line_num) from None
        if row is None:
            return
        yield begin, row


def _table_error(where: str, message: str, begin: int, end: int) -> DataError:
    if "end of data" in message:
        return DataError(where, "a quote opens in this row and never closes", line=begin)
    if "field limit" in message:
        reason = f"a field has more than {MAX_FIELD_CHARACTERS:,} characters; is the closing quote missing?"
        return DataError(where, reason, line=begin)
    return DataError(where, f'is not a valid table: {message}; inside a quoted field a quote is written ""', line=end)


@contextmanager
def _field_limit(characters: int) -> Iterator[None]:
    """Set the limit of the csv module, which is one for the whole process, and restore it afterwards."""
    before = csv.field_size_limit(characters)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _column(where: str, header: list[str], field: str) -> int | None:
    if header.count(field) > 1:
        raise DataError(where, f"found the column {_quoted(field)} {header.count(field)} times in the header", line=1)
    return header.index(field) if field in header else None


def _split(where: str, line: int, field: str, separator: str) -> list[str]:
    if not field.strip():
        return []
    names = [name.strip() for name in field.split(separator)]
    if "" in names:
        reason = f"found an empty label name in {_quoted(field)}, which is divided at {_quoted(separator)}"
        raise DataError(where, reason, line=line)
    return names
