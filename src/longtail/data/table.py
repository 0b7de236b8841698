"""Texts and the names of their labels from tables with a header row.

    text,labels                                     .csv, .tsv: names joined by "|"
    "Cholera, unspecified",A00|A00.9

Spreadsheets divide columns at a comma, a semicolon (where the comma is the decimal sign), a tab or a bar. The sign is
found in the header: the first one that gives a column of the wanted name, beginning with the usual sign of this format;
else the one that gives the most columns. A first line `sep=;`, as Excel writes it, names the sign and is no row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice

from longtail.data import files
from longtail.data.files import PathLike
from longtail.data.lines import Waiting, listed, quoted, refuse_blank, text_lines
from longtail.data.text import Record, Source, fields_named
from longtail.errors import DataError, InputError

MAX_FIELD_CHARACTERS = 1 << 24  # in a field of a table; else a missing quote makes the rest of the file one field
DELIMITERS = (",", ";", "\t", "|")
GUESS_ROWS = 20  # rows in which the column with the longest texts is searched, for a message

Lines = Iterator[tuple[int, str]]


def table_records(
    source: Source, *, usual: str, delimiter: str | None = None, label_separator: str, waiting: Waiting | None = None
) -> Iterator[Record]:
    """The rows of a table. `usual` is the sign of the file's ending; a given `delimiter` is used as it is."""
    where = files.name_of(source.path)
    blank = None
    with _field_limit(MAX_FIELD_CHARACTERS):
        lines, sign = _divided_at(text_lines(source.path, source.encoding, guess=True, waiting=waiting),
                                  source, usual, delimiter)  # fmt: skip
        rows = _rows(source.path, lines, sign)
        _, header = next(rows, (1, []))
        texts_at = _text_columns(where, header, source.text_field, sign, rows)
        labels_at = None if source.labels_field is None else _column(where, header, source.labels_field)
        for line, row in rows:
            if not row:
                blank = blank or line
                continue
            refuse_blank(where, blank)
            if len(row) != len(header):
                raise DataError(where, f"found {len(row)} fields, expected {len(header)} as in the header", line=line)
            text = "\n".join(row[at] for at in texts_at)
            labels = [] if labels_at is None else _split(where, line, row[labels_at], label_separator)
            yield Record(text, labels, dict(zip(header, row, strict=True)))


# --- the sign between columns ----------------------------------------------------------------------------------------


def _divided_at(lines: Lines, source: Source, usual: str, delimiter: str | None) -> tuple[Lines, str]:
    """The lines from the header on, and the sign at which they are divided."""
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise InputError(f"delimiter must be one character, such as ';', but is {delimiter!r}")
    first = next(lines, None)
    if first is None:
        return iter(()), delimiter or usual
    said = first[1].strip().strip('"').removeprefix("sep=")
    if first[1].strip().strip('"').startswith("sep=") and len(said) == 1:
        return lines, delimiter or said
    found = _found(first[1], source, usual) if delimiter is None else delimiter
    return chain([first], lines), found


def _found(header: str, source: Source, usual: str) -> str:
    wanted = fields_named(source.text_field)
    columns = {sign: _fields(header, sign) for sign in (usual, *DELIMITERS)}
    for sign, names in columns.items():
        if wanted[0] in names or source.text_field in names:
            return sign
    return max(columns, key=lambda sign: len(columns[sign]))


def _fields(header: str, sign: str) -> list[str]:
    try:
        return next(csv.reader([header], delimiter=sign), [])
    except csv.Error:
        return []


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows(path: PathLike, lines: Lines, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line on which each row begins, and its fields (none for an empty line)."""
    number = 0

    def ended() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007  (read by the loop below)
            yield f"{line}\n"

    reader = csv.reader(ended(), delimiter=delimiter, strict=True)
    while True:
        before = number
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise _table_error(files.name_of(path), str(error), before + 1, number) from None
        if row is None:
            return
        yield before + 1, row


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


# --- columns ---------------------------------------------------------------------------------------------------------


def _text_columns(
    where: str, header: list[str], field: str, sign: str, rows: Iterator[tuple[int, list[str]]]
) -> list[int]:
    """The columns of the text. Several names, joined by commas, are several columns."""
    whole = _column(where, header, field)
    if whole is not None:
        return [whole]
    found = [_column(where, header, name) for name in fields_named(field)]
    if None not in found:
        return [at for at in found if at is not None]
    missing = fields_named(field)[found.index(None)]
    reason = f"found {_columns(header, sign)}, expected a column {quoted(missing)}"
    others = [other for other in DELIMITERS if len(header) == 1 and other in header[0]]
    if others:
        reason += f"; the columns are perhaps divided at {quoted(others[0])}: set delimiter (--delimiter) to it"
    elif header:
        reason += "; name the column of the texts with text_field (--text-field)"
        reason += f", perhaps {quoted(_likely(header, missing, [row for _, row in islice(rows, GUESS_ROWS)]))}"
    raise DataError(where, reason, line=1)


def _columns(header: list[str], sign: str) -> str:
    noun = "column" if len(header) == 1 else "columns"
    return f"the {noun} {listed(header)} (divided at {quoted(sign)})" if header else "nothing in the header"


def _likely(header: Sequence[str], wanted: str, rows: list[list[str]]) -> str:
    """The column that is probably meant: one of the same name but for case and blanks, or the one of longest texts."""
    for name in header:
        if name.strip().lower() == wanted.strip().lower():
            return name
    lengths = [sum(len(row[at]) for row in rows if at < len(row)) for at in range(len(header))]
    return header[lengths.index(max(lengths))]


def _column(where: str, header: list[str], field: str) -> int | None:
    if header.count(field) > 1:
        raise DataError(where, f"found the column {quoted(field)} {header.count(field)} times in the header", line=1)
    return header.index(field) if field in header else None


def _split(where: str, line: int, field: str, separator: str) -> list[str]:
    if not field.strip():
        return []
    names = [name.strip() for name in field.split(separator)]
    if "" in names:
        reason = f"found an empty label name in {quoted(field)}, which is divided at {quoted(separator)}"
        raise DataError(where, reason, line=line)
    return names
