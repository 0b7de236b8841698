"""The text formats of extreme classification: one sparse row per line.

    read_xmc     3 10 5                header: rows, features, labels; or no header at all (multi-label svmlight)
                 0,4 1:0.5 7:1.25      labels, then feature:value
                  2:1                  a line that begins with a blank has no labels
    read_split   3 10     3 5          two files, each with rows and columns as header, then column:value
                 1:0.5    0:1 4:1

The formats leave some questions open. This reader answers them as follows. It never skips anything silently:

- Numbers count from 0. `zero_based=False` makes the feature numbers of a file count from 1; labels stay as they are.
- The first line is a header if it is three whole numbers and nothing else. It must give the right number of
  rows, and all numbers must be in its ranges; no memory is allocated because of it. Without a header, the sizes
  follow from the rows.
- A blank line is a row without labels and features. Blank lines at the end of a file are not rows (with a header: those
  beyond its number of rows). If the first word has a colon, it is a pair, and the row has no labels.
- Words are separated by spaces or tabs, lines by LF or CR LF; the last line need not end. In the format with labels,
  `#` begins a comment that goes to the end of the line, and a line that holds only a comment is no row.
- Labels and features are digits only (no sign). A value is a plain decimal number with an optional sign and exponent,
  rounded to float32 as `np.float32(float(word))` does; NaN, infinity and numbers beyond float32 are refused. Zeros are
  kept as entries. In the labels file of a split pair a value must be positive; it becomes 1.
- Features and labels may come in any order and are sorted. The values of a feature that occurs twice in a row are added
  (smallest first, in double precision), and a label that occurs twice counts once. One DataWarning gives the number of
  such rows.

A stream is read in pieces of complete lines, which xmc_kernel.py parses. The pieces are joined one array at a time, so
that the peak memory stays near the size of the returned arrays.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from longtail.compiled import frozen
from longtail.data import xmc_kernel
from longtail.data.files import MAX_LINE, PathLike, Waiting, after_mark, excerpt, iter_chunks, line_too_long, name_of
from longtail.errors import DataError, DataWarning
from longtail.matrix import MAX_COLUMNS

CHUNK = 2 << 20  # bytes parsed at once: small beside the arrays, large beside the cost of a call
FLOAT32_OVERFLOW = (2 - 2**-24) * 2.0**127  # the smallest double that rounds to infinity

_COMMENT = re.compile(rb"(^[ \t]*)?#[^\n]*?(?=\r?$)", re.MULTILINE)  # group 1 is None if something stands before it
_LINE = re.compile(rb"[^\n]*")
_WORD = re.compile(rb"[^ \t]+")
_LABEL = re.compile(rb"((?!\r\n)[^ \t\n,]){0,41}")  # one more character than a message shows
_PAIR_OR_VALUE = re.compile(rb"((?!\r\n)[^ \t\n]){0,41}")
_NUMBER = re.compile(rb"[-+0-9.eE]+")


class _Layout(NamedTuple):
    """The layout of a kind of file: its header, its rows, and the noun for the number before a colon."""

    header: tuple[str, ...]
    noun: str
    header_optional: bool = False
    with_labels: bool = False
    positive: bool = False


_XMC = _Layout(("rows", "features", "labels"), "feature", header_optional=True, with_labels=True)
_FEATURES = _Layout(("rows", "features"), "feature")
_LABELS = _Layout(("rows", "labels"), "label", positive=True)


def read_xmc(
    path: PathLike, *, zero_based: bool = True, max_line: int = MAX_LINE, chunk_bytes: int = CHUNK
) -> tuple[csr_array, csr_array]:
    """Read features X (float32) and labels Y (int32 ones) from one file, with or without header."""
    text = _Text(path, _XMC, 0 if zero_based else 1)
    text.read(max_line, chunk_bytes)
    text.warn()
    return text.pairs(), text.labels()


def iter_features(
    path: PathLike,
    *,
    split: bool = False,
    zero_based: bool = True,
    max_line: int = MAX_LINE,
    chunk_bytes: int = CHUNK,
    waiting: Waiting | None = None,
) -> Iterator[csr_array]:
    """The features of one file, some rows at a time. With `split`, it is the file of features of the split layout.

    Without a header, the pieces have as many columns as they need.
    """
    text = _Text(path, _FEATURES if split else _XMC, 0 if zero_based else 1)
    for _ in text.chunks(max_line, chunk_bytes, waiting):
        if text.n_rows > text.taken:
            yield text.take()
    if text.n_rows > text.taken or not text.n_rows:
        yield text.take()
    text.warn()


def read_split(
    features_path: PathLike, labels_path: PathLike | None, *, max_line: int = MAX_LINE, chunk_bytes: int = CHUNK
) -> tuple[csr_array, csr_array]:
    """Read features X (float32) and labels Y (int32 ones) from the two files of the split layout.

    Without a file of labels, Y has no columns.
    """
    X_text = _Text(features_path, _FEATURES, 0)
    X_text.read(max_line, chunk_bytes)
    X_text.warn()
    X = X_text.pairs()
    if labels_path is None:
        return X, no_labels(X)
    Y_text = _Text(labels_path, _LABELS, 0)
    Y_text.read(max_line, chunk_bytes)
    Y_text.warn()
    Y = Y_text.pairs()
    check_same_rows(X, Y, features_path, labels_path)
    return X, Y


def no_labels(X: csr_array) -> csr_array:
    """The Y of rows to predict for: no columns."""
    return csr_array((X.shape[0], 0), dtype=np.int32)


def check_same_rows(X: csr_array, Y: csr_array, features_path: PathLike, labels_path: PathLike) -> None:
    if X.shape[0] != Y.shape[0]:
        raise DataError(
            name_of(labels_path),
            f"found {Y.shape[0]:,} rows of labels, expected {X.shape[0]:,}, as many as {name_of(features_path)} has",
        )


class _Rows:
    """CSR rows that arrive in pieces, with values, or with ones if the values do not matter."""

    def __init__(self, with_values: bool) -> None:
        self.with_values = with_values
        self.lengths: list[np.ndarray] = []
        self.indices: list[np.ndarray] = []
        self.data: list[np.ndarray] = []
        self.repeats = 0  # number of rows in which an index occurred twice

    def add(
        self, n_blank: int, lengths: np.ndarray, indices: np.ndarray, values: np.ndarray | None, unsorted: bool
    ) -> int | None:
        """Append blank rows, then these. Returns the first row whose repeated entries add up to infinity, or None."""
        n = int(lengths.sum(dtype=np.int64))
        lengths = lengths.copy()  # copies release the unused ends of arrays that were allocated too long
        indices = indices if n == indices.size else indices[:n].copy()
        data = values[:n] if self.with_values and values is not None else None
        overflow = None
        if unsorted:
            indices, data, n_repeats, overflow = merge(lengths, indices, data)
            self.repeats += n_repeats
        self.lengths += [np.zeros(n_blank, np.int32), lengths]
        self.indices.append(indices)
        if data is not None:
            self.data.append(data)
        return overflow

    def matrix(self, n_rows: int, n_columns: int | None) -> csr_array:
        """Return all rows as one matrix, and release the pieces. The number of columns is inferred if it is None."""
        n_entries = sum(part.size for part in self.indices)
        indptr = np.zeros(n_rows + 1, np.int32 if n_entries < 2**31 else np.int64)
        lengths = _joined(self.lengths, np.int32)
        np.cumsum(lengths, out=indptr[1 : lengths.size + 1])
        indptr[lengths.size + 1 :] = n_entries
        indices = _joined(self.indices, np.int32)
        data = _joined(self.data, np.float32) if self.with_values else np.ones(n_entries, np.int32)
        if n_columns is None:
            n_columns = int(indices.max()) + 1 if n_entries else 0
        return canonical(data, indices, indptr, (n_rows, n_columns))


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    """Join the parts into one array. Each part is released as soon as it is copied."""
    whole: np.ndarray = np.empty(sum(part.size for part in parts), dtype)
    end = whole.size
    while parts:
        part = parts.pop()
        whole[end - part.size : end] = part
        end -= part.size
    return whole


def canonical(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """A CSR array whose rows are known to be sorted and without duplicates."""
    matrix = csr_array((data, indices, indptr), shape=shape)
    matrix.has_canonical_format = True
    return matrix


def merge(
    lengths: np.ndarray, indices: np.ndarray, data: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, int, int | None]:
    """Sort each row in place and add up entries of equal index. `lengths` is updated.

    Returns indices and data, the number of rows that had equal entries, and the first row where a sum is infinite.
    """
    values = np.empty(0, np.float32) if data is None else data
    n, n_repeats, overflow = xmc_kernel.merge(lengths, indices, values, data is not None)
    if n < indices.size:  # copies release the unused ends
        indices, data = indices[:n].copy(), None if data is None else data[:n].copy()
    return indices, data, n_repeats, None if overflow < 0 else overflow


class _Text:
    """One file while it is read: the rows so far, and the position in the file."""

    def __init__(self, path: PathLike, layout: _Layout, first_feature: int) -> None:
        self.path = path
        self.name = name_of(path)
        self.layout = layout
        self.first_feature = first_feature
        self.sizes: dict[str, int] | None = None  # from the header
        self.header_line = 1
        self.lines = 0  # number of lines read, including the header
        self.begun = False  # whether the first line, which may be a header, was read
        self.n_rows = 0  # number of rows up to the last one that is not blank
        self.blank = 0  # number of blank rows after these
        self.taken = 0  # number of rows that `take` has returned
        self.X, self.Y = _Rows(with_values=not layout.positive), _Rows(with_values=False)

    # --- the stream --------------------------------------------------------------------------------------------------

    def read(self, max_line: int, chunk_bytes: int) -> None:
        for _ in self.chunks(max_line, chunk_bytes):
            pass

    def chunks(self, max_line: int, chunk_bytes: int, waiting: Waiting | None = None) -> Iterator[None]:
        """Read piece by piece. After each, `take` returns its rows."""
        max_line = min(max_line, 2**32 - 2)  # byte positions are kept in 32 bits
        for chunk in iter_chunks(self.path, max_line=max_line, chunk_bytes=chunk_bytes, waiting=waiting):
            if chunk[-1] != xmc_kernel.LF:
                raise line_too_long(self.path, self.lines + 1, max_line)
            if not self.lines:
                head = bytes(chunk[:4])
                chunk = chunk[len(head) - len(after_mark(self.path, head)) :]
            for part in self._without_comments(chunk):
                text = part if self.begun else self._after_header(part)
                self.begun = True
                self._add(frozen(np.frombuffer(text, np.uint8), np.uint8))
            yield
        self._check_rows()

    def _without_comments(self, chunk: memoryview) -> Iterator[memoryview]:
        """The lines of a piece, with blanks in place of comments. A line that is all comment is left out."""
        if not self.layout.with_labels or not (np.frombuffer(chunk, np.uint8) == ord("#")).any():
            yield chunk
            return
        content, begin = memoryview(bytearray(chunk)), 0
        for comment in _COMMENT.finditer(chunk):
            start, end = comment.span()
            if comment[1] is None:
                content[start:end] = b" " * (end - start)
                continue
            if start > begin:
                yield content[begin:start]
            self.lines += 1
            begin = end + 1 + (content[end] == ord("\r"))
        if begin < len(content):
            yield content[begin:]

    def _after_header(self, chunk: memoryview) -> memoryview:
        """The first piece without the header."""
        raw = _LINE.match(chunk)[0]  # type: ignore[index]  # matches anything
        line = raw.removesuffix(b"\r")
        number = self.lines + 1
        if line.lstrip().startswith(b"{"):
            reason = "found JSON, expected rows 'label,label feature:value …'; name the format jsonl if these are texts"
            raise DataError(self.name, reason, line=number, column=1)
        if self.layout.header_optional and (b":" in line or b"," in line):
            return chunk
        words = list(islice(_WORD.finditer(line), len(self.layout.header) + 1))
        if self.layout.header_optional and len(words) < 2:
            return chunk
        if len(words) != len(self.layout.header):
            row = " or a row 'label,label feature:value …'" if self.layout.header_optional else ""
            reason = f"found {excerpt(line)}, expected the header '{' '.join(self.layout.header)}'{row}"
            raise DataError(self.name, reason, line=number, column=1)
        self.sizes = {}
        for noun, word in zip(self.layout.header, words, strict=True):
            digits = word[0].lstrip(b"0") or b"0"
            if not word[0].isdigit() or len(digits) > 10 or int(digits) > MAX_COLUMNS:
                reason = (
                    f"found {excerpt(word[0])}, expected the number of {noun}, a whole number from 0 to {MAX_COLUMNS}"
                )
                raise DataError(self.name, reason, line=number, column=word.start() + 1)
            self.sizes[noun] = int(digits)
        self.header_line = self.lines = number
        return chunk[len(raw) + 1 :]

    # --- rows --------------------------------------------------------------------------------------------------------

    def _add(self, text: np.ndarray) -> None:
        """Parse complete lines. Of several faults, the first one in the file is reported."""
        colons, commas, newlines = xmc_kernel.count(text)
        n_pairs = min(colons, text.size // 4)  # the shortest pair is "1:2 ",
        n_labels = min(commas + newlines, text.size // 2)  # the shortest label "1,"
        X_lengths, Y_lengths = np.empty(newlines, np.int32), np.empty(newlines, np.int32)
        X_indices, X_data = np.empty(n_pairs, np.int32), np.empty(n_pairs, np.float32)
        Y_indices = np.empty(n_labels, np.int32)
        status, at, n_rows, n_filled, n_pairs, all_sure, X_unsorted, Y_unsorted = xmc_kernel.parse(
            text, self._rules(), X_lengths, X_indices, X_data, X_data.view(np.uint32), Y_lengths, Y_indices
        )
        if not all_sure:
            fault = _settle(text, X_indices[:n_pairs], X_data[:n_pairs], self.layout.positive)
            if fault:
                status, at = fault
                n_rows = xmc_kernel.count(text[:at])[2]
        good = n_filled if status == xmc_kernel.OK else n_rows
        if good:
            overflow = self.X.add(self.blank, X_lengths[:good], X_indices, X_data, X_unsorted)
            self.Y.add(self.blank, Y_lengths[:good], Y_indices, None, Y_unsorted)
            if overflow is not None:
                reason = (
                    "found a feature repeated with values that add up to infinity, expected a sum that fits float32"
                )
                raise DataError(self.name, reason, line=self.lines + overflow + 1)
            self.n_rows, self.blank = self.n_rows + self.blank + good, 0
        if status != xmc_kernel.OK:
            raise self._fault(text, status, at, self.lines + n_rows + 1)
        self.lines += n_rows
        self.blank += n_rows - good

    def _rules(self) -> tuple[bool, bool, int, int, int]:
        last_column, last_label = self._last(self.layout.noun), self._last("label")
        return self.layout.with_labels, self.layout.positive, self.first_feature, last_column, last_label

    def _last(self, noun: str) -> int:
        """Return the largest allowed number of a feature or label. If none is allowed, it is the first number minus
        1."""
        size = MAX_COLUMNS if self.sizes is None else self.sizes.get(noun + "s", 0)
        return size - 1 + (self.first_feature if noun == "feature" else 0)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _check_rows(self) -> None:
        """Decide which blank lines at the end of the file are rows."""
        if self.sizes is None:
            if not self.n_rows:
                header = " ".join(self.layout.header)
                row = " or rows 'label,label feature:value …'" if self.layout.header_optional else ""
                raise DataError(self.name, f"found no rows, expected the header '{header}'{row}")
            return
        promised = self.sizes["rows"]
        if not self.n_rows <= promised <= self.n_rows + self.blank:
            found = self.n_rows + (self.blank if self.n_rows < promised else 0)
            reason = f"found {found} rows, expected {promised}, as many as the header promises"
            raise DataError(self.name, reason, line=self.header_line)
        self.n_rows = promised

    def take(self) -> csr_array:
        """The features of the rows since the last call. They are released, and so are all labels."""
        n_rows, self.taken = self.n_rows - self.taken, self.n_rows
        self.Y = _Rows(with_values=False)
        return self.X.matrix(n_rows, self.sizes["features"] if self.sizes else None)

    def pairs(self) -> csr_array:
        return self.X.matrix(self.n_rows, self.sizes[self.layout.noun + "s"] if self.sizes else None)

    def labels(self) -> csr_array:
        return self.Y.matrix(self.n_rows, self.sizes["labels"] if self.sizes else None)

    def warn(self) -> None:
        """Issue one warning for all rows that contain a feature or label twice."""
        features = 0 if self.layout.positive else self.X.repeats
        labels = self.X.repeats if self.layout.positive else self.Y.repeats
        if features or labels:
            warnings.warn(repeats_message(self.name, features, labels), DataWarning, stacklevel=3)

    def _fault(self, text: np.ndarray, status: int, at: int, line_number: int) -> DataError:
        word = (_LABEL if status == xmc_kernel.BAD_LABEL else _PAIR_OR_VALUE).match(text.data, at)
        reason = f"found {excerpt(word[0] if word else b'')}, expected {self._expected(status)}"
        return DataError(self.name, reason, line=line_number, column=at - xmc_kernel.line_start(text, at) + 1)

    def _expected(self, status: int) -> str:
        noun = self.layout.noun
        return {
            xmc_kernel.BAD_LABEL: f"a label, {self._range('label')}",
            xmc_kernel.BAD_FEATURE: f"{noun}:value, the {noun} {self._range(noun)}",
            xmc_kernel.BAD_VALUE: "a decimal number after the colon",
            xmc_kernel.VALUE_TOO_LARGE: "a value that fits float32, at most 3.4e38 in size",
            xmc_kernel.VALUE_NOT_POSITIVE: "a positive value, usually 1",
        }[status]

    def _range(self, noun: str) -> str:
        first, last = self.first_feature if noun == "feature" else 0, self._last(noun)
        promised = "" if self.sizes is None else f" (the header promises {last - first + 1} {noun}s)"
        return f"a whole number from {first} to {last}{promised}" if last >= first else f"absent{promised}"


def _settle(text: np.ndarray, X_indices: np.ndarray, X_data: np.ndarray, positive: bool) -> tuple[int, int] | None:
    """Parse the values that need exact arithmetic. Returns the status and position of the first invalid value."""
    unsure = np.flatnonzero(X_indices < 0)
    X_indices[unsure] = -1 - X_indices[unsure]
    for p, at in zip(unsure.tolist(), X_data.view(np.uint32)[unsure].tolist(), strict=True):
        word = _NUMBER.match(text.data, at)
        value = float(word[0]) if word else float("nan")
        if abs(value) >= FLOAT32_OVERFLOW:
            return xmc_kernel.VALUE_TOO_LARGE, at
        X_data[p] = value
        if positive and not X_data[p] > 0:
            return xmc_kernel.VALUE_NOT_POSITIVE, at
    return None


def repeats_message(name: str, features: int, labels: int) -> str:
    parts = []
    if features:
        parts.append(f"{features} rows name a feature more than once (the values were added)")
    if labels:
        parts.append(f"{labels} rows name a label more than once (it counts once)")
    return f"{name}: {' and '.join(parts)}"
