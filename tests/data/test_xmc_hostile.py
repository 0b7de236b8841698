"""data/xmc on hostile files: each ends in the right arrays or in one exact message, soon and in little memory."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from longtail.data import xmc
from longtail.data.xmc import read_split, read_xmc
from longtail.errors import DataError, DataWarning

HEADER = b"2 10 5\n"
ROW = b"0 1:1\n"
ANY_FEATURE = "feature:value, the feature a whole number from 0 to 2147483645"
ANY_LABEL = "a label, a whole number from 0 to 2147483645"
FEATURE = "feature:value, the feature a whole number from 0 to 9 (the header promises 10 features)"
LABEL = "a label, a whole number from 0 to 4 (the header promises 5 labels)"
VALUE = "a decimal number after the colon"
FLOAT32 = "a value that fits float32, at most 3.4e38 in size"
FIRST_LINE = "the header 'rows features labels' or a row 'label,label feature:value …'"
NO_ROWS = "found no rows, expected the header 'rows features labels' or rows 'label,label feature:value …'"


def number_of(what: str) -> str:
    return f"the number of {what}, a whole number from 0 to 2147483646"


def in_row(pair: bytes) -> bytes:
    return HEADER + ROW + b"1 2:1 " + pair + b" 7:1\n"


REFUSED = {
    "json": (
        b'{"text": "cat"}\n',
        1,
        1,
        "found JSON, expected rows 'label,label feature:value …'; name the format jsonl if these are texts",
    ),
    # the header lies
    "rows: too many": (b"3 10 5\n" + 2 * ROW, 1, None, "found 2 rows, expected 3, as many as the header promises"),
    "rows: too few": (b"1 10 5\n" + 2 * ROW, 1, None, "found 2 rows, expected 1, as many as the header promises"),
    "rows: none": (b"2 10 5\n", 1, None, "found 0 rows, expected 2, as many as the header promises"),
    "rows: none, no newline": (b"2 10 5", 1, None, "found 0 rows, expected 2, as many as the header promises"),
    "rows: blank at the end": (
        b"5 10 5\n" + 2 * ROW + b"\n\n",
        1,
        None,
        "found 4 rows, expected 5, as many as the header promises",
    ),
    "rows: a billion": (
        b"1000000000 1000000000 1000000000\n" + ROW,
        1,
        None,
        "found 1 rows, expected 1000000000, as many as the header promises",
    ),
    "rows: negative": (b"-2 10 5\n" + 2 * ROW, 1, 1, f"found '-2', expected {number_of('rows')}"),
    "features: negative": (b"2 -10 5\n" + 2 * ROW, 1, 3, f"found '-10', expected {number_of('features')}"),
    "labels: negative": (b"2 10 -5\n" + 2 * ROW, 1, 6, f"found '-5', expected {number_of('labels')}"),
    "header: 1e9": (b"1e9 1e9 1e9\n" + ROW, 1, 1, f"found '1e9', expected {number_of('rows')}"),
    "header: float": (b"2.0 10 5\n" + 2 * ROW, 1, 1, f"found '2.0', expected {number_of('rows')}"),
    "header: plus": (b"2 +10 5\n" + 2 * ROW, 1, 3, f"found '+10', expected {number_of('features')}"),
    "header: 2^31 features": (
        b"2 2147483648 5\n" + 2 * ROW,
        1,
        3,
        f"found '2147483648', expected {number_of('features')}",
    ),
    "header: 10^30": (
        b"2 10 1" + b"0" * 30 + b"\n" + 2 * ROW,
        1,
        6,
        f"found '1{'0' * 30}', expected {number_of('labels')}",
    ),
    "header: a long number": (
        b"9" * 10_000 + b" 10 5\n",
        1,
        1,
        f"found '{'9' * 39}…', expected {number_of('rows')}",
    ),
    "header: 4 numbers": (b"2 10 5 7\n" + 2 * ROW, 1, 1, f"found '2 10 5 7', expected {FIRST_LINE}"),
    "header: 2 numbers": (b"2 10\n" + 2 * ROW, 1, 1, f"found '2 10', expected {FIRST_LINE}"),
    "header: words": (b"hello big world\n" + ROW, 1, 1, f"found 'hello', expected {number_of('rows')}"),
    "header: in the second line": (b"\n2 10 5\n" + 2 * ROW, 2, 3, f"found '10', expected {ANY_FEATURE}"),
    "header: old Mac lines": (b"2 10 5\r0 1:1\r", 1, 3, f"found '10', expected {ANY_FEATURE}"),
    # feature numbers
    "feature: negative": (in_row(b"-3:1"), 3, 7, f"found '-3:1', expected {FEATURE}"),
    "feature: beyond D": (in_row(b"10:1"), 3, 7, f"found '10:1', expected {FEATURE}"),
    "feature: 2^31": (in_row(b"2147483648:1"), 3, 7, f"found '2147483648:1', expected {FEATURE}"),
    "feature: 2^31, no header": (b"0 2147483648:1\n", 1, 3, f"found '2147483648:1', expected {ANY_FEATURE}"),
    "feature: 2^31 - 1, no header": (b"0 2147483647:1\n", 1, 3, f"found '2147483647:1', expected {ANY_FEATURE}"),
    "feature: 2^32 + 3": (in_row(b"4294967299:1"), 3, 7, f"found '4294967299:1', expected {FEATURE}"),
    "feature: 2^63": (in_row(b"9223372036854775808:1"), 3, 7, f"found '9223372036854775808:1', expected {FEATURE}"),
    "feature: 2^64 + 3": (
        in_row(b"18446744073709551619:1"),
        3,
        7,
        f"found '18446744073709551619:1', expected {FEATURE}",
    ),
    "feature: 10^30": (in_row(b"1" + b"0" * 30 + b":1"), 3, 7, f"found '1{'0' * 30}:1', expected {FEATURE}"),
    "feature: 1.5": (in_row(b"1.5:1"), 3, 7, f"found '1.5:1', expected {FEATURE}"),
    "feature: +3": (in_row(b"+3:1"), 3, 7, f"found '+3:1', expected {FEATURE}"),
    "feature: empty": (in_row(b":1"), 3, 7, f"found ':1', expected {FEATURE}"),
    "feature: word": (in_row(b"qid:1"), 3, 7, f"found 'qid:1', expected {FEATURE}"),
    "feature: after a comment": (HEADER + b"# note\n" + ROW + b"0 x:1 # 1\n", 4, 3, f"found 'x:1', expected {FEATURE}"),
    "feature: D is 0": (
        b"1 0 5\n0 0:1\n",
        2,
        3,
        "found '0:1', expected feature:value, the feature absent (the header promises 0 features)",
    ),
    # colons
    "colon: doubled": (in_row(b"3::1"), 3, 9, f"found ':1', expected {VALUE}"),
    "colon: missing": (in_row(b"3"), 3, 7, f"found '3', expected {FEATURE}"),
    "colon: trailing": (in_row(b"3:"), 3, 9, f"found nothing, expected {VALUE}"),
    "colon: trailing, last": (b"0 3:\n", 1, 5, f"found nothing, expected {VALUE}"),
    "colon: trailing, end of file": (b"0 3:", 1, 5, f"found nothing, expected {VALUE}"),
    "colon: alone": (in_row(b":"), 3, 7, f"found ':', expected {FEATURE}"),
    "colon: two values": (in_row(b"3:1:2"), 3, 9, f"found '1:2', expected {VALUE}"),
    "colon: blank after": (in_row(b"3: 1"), 3, 9, f"found nothing, expected {VALUE}"),
    # values
    "value: nan": (in_row(b"3:nan"), 3, 9, f"found 'nan', expected {VALUE}"),
    "value: NaN": (in_row(b"3:NaN"), 3, 9, f"found 'NaN', expected {VALUE}"),
    "value: inf": (in_row(b"3:inf"), 3, 9, f"found 'inf', expected {VALUE}"),
    "value: -inf": (in_row(b"3:-inf"), 3, 9, f"found '-inf', expected {VALUE}"),
    "value: Infinity": (in_row(b"3:Infinity"), 3, 9, f"found 'Infinity', expected {VALUE}"),
    "value: 1e39": (in_row(b"3:1e39"), 3, 9, f"found '1e39', expected {FLOAT32}"),
    "value: -1e39": (in_row(b"3:-1e39"), 3, 9, f"found '-1e39', expected {FLOAT32}"),
    "value: 1e400": (in_row(b"3:1e400"), 3, 9, f"found '1e400', expected {FLOAT32}"),
    "value: 1e(10^30)": (in_row(b"3:1e1" + b"0" * 30), 3, 9, f"found '1e1{'0' * 30}', expected {FLOAT32}"),
    "value: rounds to infinity": (
        in_row(b"3:3.4028235677973366e38"),
        3,
        9,
        f"found '3.4028235677973366e38', expected {FLOAT32}",
    ),
    "value: many digits": (in_row(b"3:" + b"9" * 60), 3, 9, f"found '{'9' * 39}…', expected {FLOAT32}"),
    "value: hexadecimal": (in_row(b"3:0x1p3"), 3, 9, f"found '0x1p3', expected {VALUE}"),
    "value: underscore": (in_row(b"3:1_000"), 3, 9, f"found '1_000', expected {VALUE}"),
    "value: locale comma": (in_row(b"3:1,5"), 3, 9, f"found '1,5', expected {VALUE}"),
    "value: sign alone": (in_row(b"3:-"), 3, 9, f"found '-', expected {VALUE}"),
    "value: two signs": (in_row(b"3:+-1"), 3, 9, f"found '+-1', expected {VALUE}"),
    "value: point alone": (in_row(b"3:."), 3, 9, f"found '.', expected {VALUE}"),
    "value: two points": (in_row(b"3:1.2.3"), 3, 9, f"found '1.2.3', expected {VALUE}"),
    "value: exponent alone": (in_row(b"3:e5"), 3, 9, f"found 'e5', expected {VALUE}"),
    "value: exponent empty": (in_row(b"3:1e"), 3, 9, f"found '1e', expected {VALUE}"),
    "value: exponent a sign": (in_row(b"3:1e+"), 3, 9, f"found '1e+', expected {VALUE}"),
    "value: exponent a fraction": (in_row(b"3:1e1.5"), 3, 9, f"found '1e1.5', expected {VALUE}"),
    "value: suffix": (in_row(b"3:1.5f"), 3, 9, f"found '1.5f', expected {VALUE}"),
    "value: complex": (in_row(b"3:1j"), 3, 9, f"found '1j', expected {VALUE}"),
    "value: sum": (
        in_row(b"3:3e38 3:3e38"),
        3,
        None,
        "found a feature repeated with values that add up to infinity, expected a sum that fits float32",
    ),
    # labels
    "label: negative": (HEADER + ROW + b"1,-1 2:1\n", 3, 3, f"found '-1', expected {LABEL}"),
    "label: beyond L": (HEADER + ROW + b"1,5 2:1\n", 3, 3, f"found '5', expected {LABEL}"),
    "label: 2^31, no header": (ROW + b"2147483648 2:1\n", 2, 1, f"found '2147483648', expected {ANY_LABEL}"),
    "label: 2^64 + 1": (
        HEADER + ROW + b"18446744073709551617\n",
        3,
        1,
        f"found '18446744073709551617', expected {LABEL}",
    ),
    "label: float": (HEADER + ROW + b"1.0 2:1\n", 3, 1, f"found '1.0', expected {LABEL}"),
    "label: plus": (HEADER + ROW + b"+1 2:1\n", 3, 1, f"found '+1', expected {LABEL}"),
    "label: word": (b"spam 2:1\n", 1, 1, f"found 'spam', expected {ANY_LABEL}"),
    "label: comma at the end": (HEADER + ROW + b"1,2, 2:1\n", 3, 5, f"found nothing, expected {LABEL}"),
    "label: comma at the end, only": (HEADER + ROW + b"1,\n", 3, 3, f"found nothing, expected {LABEL}"),
    "label: comma at the start": (HEADER + ROW + b",1 2:1\n", 3, 1, f"found nothing, expected {LABEL}"),
    "label: comma doubled": (HEADER + ROW + b"1,,2 2:1\n", 3, 3, f"found nothing, expected {LABEL}"),
    "label: blank after comma": (HEADER + ROW + b"1, 2 2:1\n", 3, 3, f"found nothing, expected {LABEL}"),
    "label: colon in a list": (HEADER + ROW + b"1,2:1\n", 3, 3, f"found '2:1', expected {LABEL}"),
    "label: after a comment": (b"# made by: hand\r\nx 1:1\n", 2, 1, f"found 'x', expected {ANY_LABEL}"),
    "header: after a comment": (b"# made by hand\n0 1\n", 2, 1, f"found '0 1', expected {FIRST_LINE}"),
    "label: L is 0": (
        b"1 9 0\n0 0:1\n",
        2,
        1,
        "found '0', expected a label, absent (the header promises 0 labels)",
    ),
    # bytes
    "byte: NUL for a label": (b"0 1:1\n\x00 1:1\n", 2, 1, f"found '\\x00', expected {ANY_LABEL}"),
    "byte: NUL in a value": (in_row(b"3:1\x00"), 3, 9, f"found '1\\x00', expected {VALUE}"),
    "byte: NULs only": (bytes(100), 1, 1, "found '" + 9 * "\\x00" + f"\\x0…', expected {ANY_LABEL}"),
    "byte: not UTF-8": (in_row(b"\xff\xfe:1"), 3, 7, f"found '\\xff\\xfe:1', expected {FEATURE}"),
    "byte: lone surrogate": (in_row(b"\xed\xa0\x80"), 3, 7, f"found '\\xed\\xa0\\x80', expected {FEATURE}"),
    "byte: digits of another script": (in_row("٣:1".encode()), 3, 7, f"found '\\xd9\\xa3:1', expected {FEATURE}"),
    "byte: no-break space": (in_row(b"3:1\xc2\xa04:1"), 3, 9, f"found '1\\xc2\\xa04:1', expected {VALUE}"),
    "byte: return inside a line": (in_row(b"3:1\r"), 3, 9, f"found '1\\x0d', expected {VALUE}"),
    "byte: form feed": (in_row(b"\x0c3:1"), 3, 7, f"found '\\x0c3:1', expected {FEATURE}"),
    "byte: quote": (in_row(b"'3:1'"), 3, 7, f"found '\\x273:1\\x27', expected {FEATURE}"),
    "byte: UTF-16": (
        "2 10 5\n".encode("utf-16"),
        1,
        1,
        "found UTF-16 or UTF-32 (a byte order mark), expected UTF-8; save it as UTF-8",
    ),
    "byte: UTF-16 without mark": (
        "2 10 5\n".encode("utf-16-le"),
        1,
        1,
        f"found '2\\x00', expected {number_of('rows')}",
    ),
    "byte: two marks": (b"\xef\xbb\xbf" * 2 + HEADER, 1, 1, f"found '\\xef\\xbb\\xbf2', expected {number_of('rows')}"),
    "byte: mark in the middle": (HEADER + b"\xef\xbb\xbf" + ROW, 2, 1, f"found '\\xef\\xbb\\xbf0', expected {LABEL}"),
    # nothing
    "empty": (b"", None, None, NO_ROWS),
    "empty: a mark": (b"\xef\xbb\xbf", None, None, NO_ROWS),
    "empty: a newline": (b"\n", None, None, NO_ROWS),
    "empty: blanks": (b"  \t \r\n" * 1000, None, None, NO_ROWS),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "data.txt"


def refusal(read, *arguments, **options) -> DataError:
    with pytest.raises(DataError) as caught:
        read(*arguments, **options)
    return caught.value


@pytest.mark.parametrize("chunk_bytes", [1, xmc.CHUNK])
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_exact_message(path, case, chunk_bytes):
    content, line, column, reason = REFUSED[case]
    path.write_bytes(content)
    error = refusal(read_xmc, path, chunk_bytes=chunk_bytes)
    place = "".join(f", {name} {at}" for name, at in (("line", line), ("column", column)) if at is not None)
    assert str(error) == f"{path}{place}: {reason}"
    assert (error.line, error.column) == (line, column)


X = [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]
Y = [[1, 0], [0, 1], [0, 0]]
BODY = b"0 0:1 2:2\n1\n 1:3\n"
ACCEPTED = {
    "as it should be": b"3 3 2\n" + BODY,
    "no header": BODY,
    "CR LF": (b"3 3 2\n" + BODY).replace(b"\n", b"\r\n"),
    "CR at the end of the file": b"3 3 2\n" + BODY[:-1] + b"\r",
    "tabs": (b"3 3 2\n" + BODY).replace(b" ", b"\t"),
    "blanks doubled": (b"3 3 2\n" + BODY).replace(b" ", b"  \t"),
    "blanks at the ends of lines": (b"3 3 2\n" + BODY).replace(b"\n", b" \t\n"),
    "blanks before the header": b"  3 3 2\n" + BODY,
    "no newline at the end": b"3 3 2\n" + BODY[:-1],
    "blank lines at the end": b"3 3 2\n" + BODY + b"\n \n\r\n",
    "blank lines at the end, no header": BODY + b"\n \n\r\n",
    "byte order mark": b"\xef\xbb\xbf3 3 2\n" + BODY,
    "byte order mark, no header": b"\xef\xbb\xbf" + BODY,
    "leading zeros": b"003 03 2\n00 0:1 02:2\n" + b"0" * 50 + b"1\n " + b"0" * 50 + b"1:" + b"0" * 50 + b"3\n",
    "unsorted": b"3 3 2\n0 2:2 0:1\n1\n 1:3\n",
    "no blank before a pair without labels": b"3 3 2\n0 0:1 2:2\n1\n1:3\n",
    "signs, points, exponents": b"3 3 2\n0 0:+1. 2:.2e1\n1\n 1:300e-2\n",
    "gzip members": gzip.compress(b"3 3 2\n0 0:1 2") + gzip.compress(b":2\n1\n 1:3\n"),
}


@pytest.mark.parametrize("chunk_bytes", [1, xmc.CHUNK])
@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted_with_the_exact_result(path, case, chunk_bytes):
    path.write_bytes(ACCEPTED[case])
    features, labels = read_xmc(path, chunk_bytes=chunk_bytes)
    assert features.toarray().tolist() == X
    assert labels.toarray().tolist() == Y


@pytest.mark.parametrize("header", [b"", b"5 3 2\n"])
def test_a_blank_line_is_a_row_with_nothing(path, header):
    path.write_bytes(header + b"\n0 0:1\n\n \r\n1 2:2\n")
    features, labels = read_xmc(path)
    assert features.toarray().tolist() == [[0] * 3, [1, 0, 0], [0] * 3, [0] * 3, [0, 0, 2]]
    assert labels.toarray().tolist() == [[0, 0], [1, 0], [0, 0], [0, 0], [0, 1]]


def test_blank_lines_at_the_end_are_rows_as_far_as_the_header_says(path):
    path.write_bytes(b"3 3 2\n0 0:1\n\n\n\n\n")
    features, labels = read_xmc(path)
    assert features.shape == (3, 3)
    assert features.indptr.tolist() == [0, 1, 1, 1]
    assert labels.indptr.tolist() == [0, 1, 1, 1]


def test_a_header_of_no_rows(path):
    path.write_bytes(b"0 3 2\n")
    features, labels = read_xmc(path)
    assert (features.shape, features.dtype) == ((0, 3), np.float32)
    assert (labels.shape, labels.dtype) == ((0, 2), np.int32)


def test_two_billion_features_and_labels(path):
    path.write_bytes(b"1 2147483646 2147483646\n2147483645 0:1 2147483645:2\n")
    features, labels = read_xmc(path)
    assert features.shape == labels.shape == (1, 2147483646)
    assert features.indices.tolist() == [0, 2147483645]
    assert features.indices.dtype == np.int32
    path.write_bytes(b"2147483645 2147483645:2\n")
    features, labels = read_xmc(path)
    assert features.shape == labels.shape == (1, 2147483646)


def test_counting_from_one(path):
    path.write_bytes(b"0 0:1\n")
    error = refusal(read_xmc, path, zero_based=False)
    expected = "feature:value, the feature a whole number from 1 to 2147483646"
    assert str(error) == f"{path}, line 1, column 3: found '0:1', expected {expected}"
    path.write_bytes(b"1 3 1\n0 3:1 4:1\n")
    error = refusal(read_xmc, path, zero_based=False)
    expected = "feature:value, the feature a whole number from 1 to 3 (the header promises 3 features)"
    assert str(error) == f"{path}, line 2, column 7: found '4:1', expected {expected}"
    path.write_bytes(b"1 2147483646 1\n0 2147483646:1\n")
    assert read_xmc(path, zero_based=False)[0].indices.tolist() == [2147483645]


def test_repeated_numbers_are_merged_and_told(path):
    path.write_bytes(b"1 4 3\n2,1,2 3:1 1:2 3:4\n")
    with pytest.warns(DataWarning) as caught:
        features, labels = read_xmc(path)
    assert features.toarray().tolist() == [[0, 2, 0, 5]]
    assert labels.toarray().tolist() == [[0, 1, 1]]
    added, once = "1 rows name a feature more than once (the values were added)", "1 rows name a label more than once"
    assert [str(warning.message) for warning in caught] == [f"{path}: {added} and {once} (it counts once)"]


SPLIT_REFUSED = {
    "no header": (b"0:1\n", 1, 1, "found '0:1', expected the header 'rows labels'"),
    "header of three": (b"2 3 4\n", 1, 1, "found '2 3 4', expected the header 'rows labels'"),
    "blank first line": (b"\n2 3\n", 1, 1, "found nothing, expected the header 'rows labels'"),
    "empty": (b"", None, None, "found no rows, expected the header 'rows labels'"),
    "rows": (b"3 3\n0:1\n1:1\n", 1, None, "found 2 rows, expected 3, as many as the header promises"),
    "other rows": (b"1 3\n0:1\n", None, None, "found 1 rows of labels, expected 2, as many as {X} has"),
    "zero": (b"2 3\n0:0\n1:1\n", 2, 3, "found '0', expected a positive value, usually 1"),
    "minus zero": (b"2 3\n0:-0.0\n1:1\n", 2, 3, "found '-0.0', expected a positive value, usually 1"),
    "negative": (b"2 3\n0:1\n1:1 2:-1\n", 3, 7, "found '-1', expected a positive value, usually 1"),
    "tiny": (b"2 3\n0:1e-60\n1:1\n", 2, 3, "found '1e-60', expected a positive value, usually 1"),
    "nan": (b"2 3\n0:nan\n1:1\n", 2, 3, f"found 'nan', expected {VALUE}"),
    "list": (b"2 3\n0,1\n1:1\n", 2, 1, "found '0,1', expected label:value, the label {three}"),
    "beyond L": (b"2 3\n0:1\n3:1\n", 3, 1, "found '3:1', expected label:value, the label {three}"),
    "L is 0": (
        b"2 0\n\n0:1\n",
        3,
        1,
        "found '0:1', expected label:value, the label absent (the header promises 0 labels)",
    ),
}


@pytest.mark.parametrize("case", SPLIT_REFUSED)
def test_labels_of_a_split_pair_refused_with_the_exact_message(path, case):
    content, line, column, reason = SPLIT_REFUSED[case]
    features = path.with_name("X.txt")
    features.write_bytes(b"2 3\n0:1\n\n")
    path.write_bytes(content)
    three = "a whole number from 0 to 2 (the header promises 3 labels)"
    error = refusal(read_split, features, path)
    assert error.reason == reason.format(X=features, three=three)
    assert (error.path, error.line, error.column) == (str(path), line, column)


def test_repeated_labels_of_a_split_pair(path):
    features = path.with_name("X.txt")
    features.write_bytes(b"1 3\n0:1\n")
    path.write_bytes(b"1 3\n2:3e38 2:3e38 0:1\n")
    with pytest.warns(DataWarning, match=r"1 rows name a label more than once \(it counts once\)"):
        _, labels = read_split(features, path)
    assert labels.toarray().tolist() == [[1, 0, 1]]


# --- time and memory -------------------------------------------------------------------------------------------------


def test_the_longest_line(path):
    line = b"0 1:1 2:1"
    for end in (b"", b"\n"):
        path.write_bytes(ROW + line + end)
        assert read_xmc(path, max_line=9)[0].nnz == 3
        path.write_bytes(ROW + line + b" " + end)
        error = refusal(read_xmc, path, max_line=9)
        assert str(error) == f"{path}, line 2: found more than 9 bytes in a line, expected its end"


def test_a_line_that_never_ends_costs_no_more_than_the_limit(path):
    with open(path, "wb") as file:
        file.write(ROW)
        file.truncate(1 << 30)  # a hole: a gigabyte of NUL bytes, no newline
    peak = peak_of(path)
    assert peak.reason == "line 2: found more than 67,108,864 bytes in a line, expected its end"
    assert peak.bytes < 3 * (64 << 20)
    os.truncate(path, 0)


def test_a_lying_header_allocates_nothing(path):
    path.write_bytes(b"2147483646 2147483646 2147483646\n" + ROW)
    peak = peak_of(path)
    assert peak.reason == "line 1: found 1 rows, expected 2147483646, as many as the header promises"
    assert peak.bytes < 16 << 20


def test_five_million_blank_lines(path):
    path.write_bytes(b"\n" * 5_000_000)
    assert str(refusal(read_xmc, path)) == f"{path}: {NO_ROWS}"
    path.write_bytes(b"3 3 2\n" + BODY + b"\n" * 5_000_000)
    assert read_xmc(path)[0].toarray().tolist() == X


@pytest.mark.parametrize("filler", [b"\n", b":", b",", b"1:", b"1,", b"0:1 ", b"1:1e-99 ", b" ", b"0\n", b"a", b"7"])
@pytest.mark.parametrize("start", [b"", b"0 ", b"0\n0 "])
def test_memory_follows_the_file_whatever_is_in_it(path, filler, start):
    """At most 4 times the file, what is needed once for any file, and what a row needs even if it holds nothing."""
    content = start + filler * ((16 << 20) // len(filler)) + b"x"
    path.write_bytes(content)
    began = time.monotonic()
    tracemalloc.start()
    try:
        refusal(read_xmc, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < 30
    assert peak < 4 * len(content) + 6 * xmc.CHUNK + 8 * content.count(b"\n")


def test_memory_is_near_what_is_returned(path):
    path.write_bytes(b"".join(b"%d,7 1:0.5 %d:1.25 60:1 70:2\n" % (i % 7, 2 + i % 50) for i in range(400_000)))
    read_xmc(path)
    tracemalloc.start()
    matrices = read_xmc(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    returned = sum(part.nbytes for m in matrices for part in (m.data, m.indices, m.indptr))
    assert peak < 3 * returned


def test_a_gzip_bomb_of_rows(path):
    path.write_bytes(gzip.compress(b"0 1:1\n" * 10_000_000))
    began = time.monotonic()
    error = refusal(read_xmc, path)
    assert error.reason.startswith("unpacks to more than 200 times its size")
    assert time.monotonic() - began < 30


def test_truncated_gzip(path):
    path.write_bytes(gzip.compress(b"2 10 5\n" + 2 * ROW)[:-4])
    assert str(refusal(read_xmc, path)) == f"{path}: the gzip data is cut off; copy or download the file again"


def test_no_regular_file(path):
    pipe, loop = path.with_name("pipe"), path.with_name("loop")
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    assert str(refusal(read_xmc, pipe)) == f"{pipe}: is a named pipe; expected a regular file"
    assert str(refusal(read_xmc, loop)) == f"{loop}: cannot be opened: Too many levels of symbolic links"
    assert str(refusal(read_xmc, path.parent)) == f"{path.parent}: is a folder; expected a regular file"
    assert str(refusal(read_xmc, "/dev/zero")) == "/dev/zero: is a device; expected a regular file"


def test_a_file_that_shrinks_while_it_is_read(path, monkeypatch):
    path.write_bytes(ROW * 1_000_000)
    add = xmc._Text._add

    def add_and_cut(self, text):
        add(self, text)
        os.truncate(path, 5_000_000)

    monkeypatch.setattr(xmc._Text, "_add", add_and_cut)
    reason = "had 6,000,000 bytes when it was opened, but 5,000,000 could be read; is it being written?"
    assert str(refusal(read_xmc, path)) == f"{path}: {reason}"


class Peak:
    def __init__(self, answer: str, path: Path) -> None:
        n_bytes, message = answer.split(" ", 1)
        self.bytes, self.reason = int(n_bytes), message.removeprefix(f"{path}, ")


def peak_of(path: Path) -> Peak:
    """Read `path` in a process of its own: the message of its error, and by how much its memory peak rose."""
    code = """if True:
        import resource, sys, tempfile
        from longtail.data.xmc import read_xmc
        from longtail.errors import DataError

        def status(field):  # in kilobytes
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))

        with tempfile.NamedTemporaryFile() as file:
            file.write(b"0 1:1\\n")
            file.flush()
            read_xmc(file.name)
        before, limit = status("VmRSS"), (status("VmSize") << 10) + (400 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            read_xmc(sys.argv[1])
        except DataError as error:
            sys.stdout.write(f"{(status('VmHWM') - before) * 1024} {error}")
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=100, check=True
    )
    return Peak(done.stdout, path)
