"""Texts and the names of their labels: JSON lines, JSON arrays, and plain texts.

    {"text": "Cholera due to Vibrio cholerae 01", "labels": ["A00", "A00.0"]}        .jsonl: one object per line
    [{"text": "Cholera, unspecified", "labels": ["A00"]}, "a text alone"]            .json: one array of them
    Cholera, unspecified                                                             .txt: one text per line

A label is a name; a whole number counts as its decimal name. The labels may be left out (texts to predict for). Empty
lines are allowed only at the end; in plain texts, an empty line is an empty text. Anything else is a DataError with
file, line and column (in characters): nothing is skipped or repaired silently.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from longtail.data import files
from longtail.data.files import PathLike
from longtail.data.lines import Waiting, listed, quoted, refuse_blank, text_lines
from longtail.errors import DataError, InputError

Texts = tuple[list[str], list[list[str]]]

_NOUNS = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number", type(None): "null"}


class Record(NamedTuple):
    """One text, its labels, and all fields of its row."""

    text: str
    labels: list[str]
    fields: Mapping[str, Any]


class Source(NamedTuple):
    """A file of texts. Several text fields, joined by commas, make one text. Without `labels_field`, labels are not
    read."""

    path: PathLike
    text_field: str = "text"
    labels_field: str | None = "labels"
    encoding: str | None = None


def collected(records: Iterable[Record]) -> Texts:
    """All texts and all lists of labels."""
    texts, labels = [], []
    for record in records:
        texts.append(record.text)
        labels.append(record.labels)
    return texts, labels


def fields_named(field: str) -> list[str]:
    """The names in `title,abstract`."""
    names = [name.strip() for name in field.split(",")]
    if "" in names:
        raise InputError(f"text_field is {field!r}; give a name, or several names joined by commas")
    return names


def read_names(path: PathLike) -> list[str]:
    """One name per line."""
    return [line for _, line in text_lines(path)]


def plain_records(source: Source, *, waiting: Waiting | None = None) -> Iterator[Record]:
    """One text per line."""
    for _, line in text_lines(source.path, source.encoding, guess=True, waiting=waiting):
        yield Record(line, [], {})


# --- JSON ------------------------------------------------------------------------------------------------------------


class _Refused(Exception):  # noqa: N818  (never leaves this file: it becomes a DataError where the line is known)
    def __init__(self, reason: str, column: int | None = None, line: int | None = None) -> None:
        self.reason = reason
        self.column = column
        self.line = line


def json_records(source: Source, *, waiting: Waiting | None = None) -> Iterator[Record]:
    """The records of JSON lines, or of one array if the file begins with a bracket."""
    where = files.name_of(source.path)
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    lines = text_lines(source.path, source.encoding, waiting=waiting)
    first = next(lines, None)
    if first is None:
        return
    every = chain([first], lines)
    if first[1].lstrip().startswith("["):
        yield from _array(where, decoder, "\n".join(line for _, line in every), source)
        return
    blank = None
    for number, line in every:
        if not line.strip():
            blank = blank or number
            continue
        refuse_blank(where, blank)
        try:
            record = _decoded(decoder, line)
            if not isinstance(record, dict):
                raise _Refused(f"found {_noun(record)}, expected one object per line")
            yield _record(record, source, "\\u" in line)
        except _Refused as error:
            hint = "; for plain texts, set format (--format) to txt" if number == 1 and line.lstrip()[0] != "{" else ""
            raise DataError(where, error.reason + hint, line=number, column=error.column) from None


def _array(where: str, decoder: json.JSONDecoder, content: str, source: Source) -> Iterator[Record]:
    try:
        entries = _decoded(decoder, content)
    except _Refused as error:
        raise DataError(where, error.reason, line=error.line or 1, column=error.column) from None
    for number, entry in enumerate(entries, 1):
        try:
            if isinstance(entry, str):
                _refuse_odd_characters(entry, source.text_field)
                yield Record(entry, [], {})
            elif isinstance(entry, dict):
                yield _record(entry, source, True)
            else:
                raise _Refused(f"found {_noun(entry)}, expected an object or a text")
        except _Refused as error:
            raise DataError(where, f"entry {number} of the array: {error.reason}") from None


def _record(record: dict[str, Any], source: Source, escapes: bool) -> Record:
    text = _text(record, source.text_field)
    labels = [] if source.labels_field is None else _labels(record, source.labels_field)
    if escapes:  # only an escape can produce characters that are not text
        _refuse_odd_characters(text, source.text_field)
        _refuse_odd_characters("".join(labels), str(source.labels_field))
    return Record(text, labels, record)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise _Refused(f"found the field {quoted(key)} twice in one object")
        record[key] = value
    return record


def _decoded(decoder: json.JSONDecoder, content: str) -> Any:
    try:
        return decoder.decode(content)
    except json.JSONDecodeError as error:
        raise _Refused(f"is not valid JSON: {error.msg}", error.colno, error.lineno) from None
    except RecursionError:
        raise _Refused("the JSON is nested too deeply") from None
    except ValueError:  # Python's limit for the digits of an integer
        raise _Refused("found a number of too many digits") from None


def _text(record: dict[str, Any], field: str) -> str:
    if field in record or "," not in field:
        return _one_text(record, field)
    return "\n".join(_one_text(record, name) for name in fields_named(field))


def _one_text(record: dict[str, Any], field: str) -> str:
    if field not in record:
        raise _Refused(
            f"found {listed(list(record))} in the object, expected a field {quoted(field)}; "
            "name the field of the text with text_field (--text-field)"
        )
    text = record[field]
    if not isinstance(text, str):
        raise _Refused(f"found {_noun(text)} in the field {quoted(field)}, expected a string")
    return text


def _labels(record: dict[str, Any], field: str) -> list[str]:
    labels = record.get(field)
    if labels is None:
        return []
    if not isinstance(labels, list):
        raise _Refused(f'found {_noun(labels)} in the field {quoted(field)}, expected a list of names like ["a", "b"]')
    for label in labels:
        if type(label) is not str and type(label) is not int:
            raise _Refused(f"found the label {_noun(label)} in {quoted(field)}, expected a string or a whole number")
        if label == "":
            raise _Refused(f"found an empty label name in the field {quoted(field)}")
    return [str(label) for label in labels]


def _refuse_odd_characters(text: str, field: str) -> None:
    """NUL, and halves of a surrogate pair: no UTF-8 file could hold the name or the text again."""
    odd = next((char for char in text if char == "\0" or "\ud800" <= char <= "\udfff"), None)
    if odd is not None:
        raise _Refused(f"found the escape \\u{ord(odd):04x} in the field {quoted(field)}, which is no character")


def _noun(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _NOUNS[type(value)]
