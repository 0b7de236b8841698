"""The slow, obvious twin of longtail.data.xmc: one line, one word, one regular expression at a time."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from longtail.errors import DataError

TOP = 2**31 - 2
WHOLE = re.compile(rb"[0-9]+")
VALUE = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
Row = tuple[dict[int, float], set[int]]
Matrix = list[list[tuple[int, float]]]


def show(word: bytes) -> str:
    if not word:
        return "nothing"
    text = ""
    for byte in word:
        text += chr(byte) if 32 <= byte <= 126 and chr(byte) not in "'\\" else f"\\x{byte:02x}"
    return f"'{text}'" if len(text) <= 40 and len(word) <= 40 else f"'{text[:39]}…'"


def words(line: bytes) -> list[tuple[int, bytes]]:
    """Column (from 1) and bytes of each word."""
    return [(match.start() + 1, match[0]) for match in re.finditer(rb"[^ \t]+", line)]


def xmc(path: str, content: bytes, *, zero_based: bool = True, max_line: int = 64 << 20) -> tuple:
    """Shape, rows of (feature, value) and rows of labels; or the DataError that the fast reader must raise."""
    kept, numbers = [], []
    for number, line in enumerate(split(path, content, max_line), 1):
        bare = line.partition(b"#")[0]
        if isinstance(line, _TooLong) or b"#" not in line:
            kept.append(line)
        elif bare.strip(b" \t"):
            kept.append(bare + b" " * (len(line) - len(bare)))
        else:
            continue
        numbers.append(number)
    try:
        return xmc_lines(path, kept, zero_based)
    except DataError as error:
        line = None if error.line is None else numbers[error.line - 1]
        raise DataError(error.path, error.reason, line=line, column=error.column) from None


def xmc_lines(path: str, lines: list[bytes], zero_based: bool) -> tuple:
    """The rows of lines without comments."""
    header = None
    if lines:
        found = words(lines[0])
        if len(found) > 1 and b":" not in lines[0] and b"," not in lines[0]:
            header = sizes(path, lines[0], ("rows", "features", "labels"), " or a row 'label,label feature:value …'")
    start = 0 if zero_based else 1
    n_features, n_labels = header[1:] if header else (TOP, TOP)

    def parse(number: int, line: bytes) -> Row:
        labels: set[int] = set()
        pairs = words(line)
        if line[:1] not in (b"", b" ", b"\t") and not re.match(rb"[0-9]+:", line):
            column = 1
            for word in pairs.pop(0)[1].split(b","):
                if not WHOLE.fullmatch(word) or int_of(word) >= n_labels:
                    expected = f"a label, {span('label', 0, n_labels, header is not None)}"
                    raise DataError(path, f"found {show(word)}, expected {expected}", line=number, column=column)
                rows_with_twice[1].update([number] if int_of(word) in labels else [])
                labels.add(int_of(word))
                column += len(word) + 1
        return features(path, number, pairs, "feature", start, n_features, header is not None, rows_with_twice), labels

    rows_with_twice: tuple[set[int], set[int]] = (set(), set())
    rows = all_rows(path, lines, header, parse, ("rows", "features", "labels"))
    X = [sorted(pairs.items()) for pairs, _ in rows]
    Y = [sorted(labels) for _, labels in rows]
    if header is None:
        n_features = max((j + 1 for row in X for j, _ in row), default=0)
        n_labels = max((label + 1 for row in Y for label in row), default=0)
    return (len(rows), n_features, n_labels), X, Y, tuple(map(len, rows_with_twice))


def pairs_file(path: str, content: bytes, noun: str, *, max_line: int = 64 << 20) -> tuple:
    """One file of the split layout: shape and rows of (column, value)."""
    lines = split(path, content, max_line)
    header = sizes(path, lines[0], ("rows", noun + "s"), "") if lines else None
    rows_with_twice: tuple[set[int], set[int]] = (set(), set())

    def parse(number: int, line: bytes) -> Row:
        assert header is not None
        return features(path, number, words(line), noun, 0, header[1], True, rows_with_twice), set()

    rows = all_rows(path, lines, header, parse, ("rows", noun + "s"))
    assert header is not None
    return (len(rows), header[1]), [sorted(pairs.items()) for pairs, _ in rows], len(rows_with_twice[0])


def split(path: str, content: bytes, max_line: int) -> list[bytes]:
    """Lines without their ends; the first that is too long ends the list and is marked, for its turn to come."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for i, line in enumerate(lines):
        if len(line) > max_line:
            lines[i:] = [_TooLong(max_line)]
            break
    if lines and isinstance(lines[0], _TooLong):
        raise too_long(path, 1, max_line)
    if lines and lines[0].startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        raise DataError(
            path, "found UTF-16 or UTF-32 (a byte order mark), expected UTF-8; save it as UTF-8", line=1, column=1
        )
    if lines:
        lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
    return [line if isinstance(line, _TooLong) else line.removesuffix(b"\r") for line in lines]


class _TooLong(bytes):
    """Stands for a line that is longer than its length in bytes here."""


def too_long(path: str, number: int, max_line: int) -> DataError:
    return DataError(path, f"found more than {max_line:,} bytes in a line, expected its end", line=number)


def sizes(path: str, line: bytes, nouns: tuple[str, ...], alternative: str) -> list[int]:
    found = words(line)
    if len(found) != len(nouns):
        reason = f"found {show(line)}, expected the header '{' '.join(nouns)}'{alternative}"
        raise DataError(path, reason, line=1, column=1)
    for (column, word), noun in zip(found, nouns, strict=True):
        if not WHOLE.fullmatch(word) or int_of(word) > TOP:
            reason = f"found {show(word)}, expected the number of {noun}, a whole number from 0 to {TOP}"
            raise DataError(path, reason, line=1, column=column)
    return [int_of(word) for _, word in found]


def int_of(word: bytes) -> int:
    return int(word[-4000:]) if not word[:-4000].strip(b"0") else 10**4000


def span(noun: str, start: int, size: int, promised: bool) -> str:
    text = f" (the header promises {size} {noun}s)" if promised else ""
    return f"a whole number from {start} to {start + size - 1}{text}" if size else f"absent{text}"


def features(
    path: str,
    number: int,
    pairs: list[tuple[int, bytes]],
    noun: str,
    start: int,
    size: int,
    promised: bool,
    rows_with_twice: tuple[set[int], set[int]],
) -> dict[int, float]:
    row: dict[int, list[np.float32]] = {}
    for column, word in pairs:
        name, colon, value = word.partition(b":")
        if not colon or not WHOLE.fullmatch(name) or not start <= int_of(name) < start + size:
            reason = f"found {show(word)}, expected {noun}:value, the {noun} {span(noun, start, size, promised)}"
            raise DataError(path, reason, line=number, column=column)
        column += len(name) + 1
        if not VALUE.fullmatch(value):
            reason = f"found {show(value)}, expected a decimal number after the colon"
            raise DataError(path, reason, line=number, column=column)
        with np.errstate(over="ignore"):
            single = np.float32(float(value))
        if np.isinf(single):
            reason = f"found {show(value)}, expected a value that fits float32, at most 3.4e38 in size"
            raise DataError(path, reason, line=number, column=column)
        if noun == "label" and not single > 0:
            reason = f"found {show(value)}, expected a positive value, usually 1"
            raise DataError(path, reason, line=number, column=column)
        row.setdefault(int_of(name) - start, []).append(single)
    return {j: added(path, number, values, noun, rows_with_twice[0]) for j, values in row.items()}


def added(path: str, number: int, values: list[np.float32], noun: str, twice: set[int]) -> float:
    if len(values) == 1:
        return float(values[0])
    twice.add(number)
    total = 0.0
    for value in sorted(values):
        total += float(value)
    with np.errstate(over="ignore"):
        single = float(np.float32(total))
    if np.isinf(single) and noun == "feature":
        reason = "found a feature repeated with values that add up to infinity, expected a sum that fits float32"
        raise DataError(path, reason, line=number)
    return single


def all_rows(
    path: str, lines: list[bytes], header: list[int] | None, parse: Callable[[int, bytes], Row], nouns: tuple[str, ...]
) -> list[Row]:
    rows = []
    for number, line in enumerate(lines, 1):
        if isinstance(line, _TooLong):
            raise too_long(path, number, len(line))
        if number > 1 or header is None:
            rows.append(parse(number, line))
    filled = len(rows)
    while filled and rows[filled - 1] == ({}, set()):
        filled -= 1
    if header is None:
        if not filled:
            alternative = " or rows 'label,label feature:value …'" if len(nouns) == 3 else ""
            raise DataError(path, f"found no rows, expected the header '{' '.join(nouns)}'{alternative}")
        return rows[:filled]
    if not filled <= header[0] <= len(rows):
        found = len(rows) if filled < header[0] else filled
        raise DataError(path, f"found {found} rows, expected {header[0]}, as many as the header promises", line=1)
    return rows[: header[0]]
