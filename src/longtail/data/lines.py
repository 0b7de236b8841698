"""Lines of text: bytes decoded as characters, and the words that messages about them share.

Files are UTF-8, with or without byte order mark. Tables and plain texts are often saved by spreadsheets in Windows-1252
instead: with `guess`, a file whose first bytes beyond ASCII are not UTF-8 is read as Windows-1252, with a DataWarning.
"""

from __future__ import annotations

import codecs
import json
import warnings
from collections.abc import Iterator

from longtail.data import files
from longtail.data.files import PathLike
from longtail.errors import DataError, DataWarning, InputError

WINDOWS = "cp1252"
UTF_8 = "utf-8"
Waiting = files.Waiting


def text_lines(
    path: PathLike, encoding: str | None = None, *, guess: bool = False, waiting: Waiting | None = None
) -> Iterator[tuple[int, str]]:
    """Number and text of each line, without its end. Without an `encoding` it is UTF-8, or found if `guess` is set."""
    code = UTF_8 if encoding is None else _checked(encoding)
    guess = guess and encoding is None
    for number, raw in files.iter_lines(path, waiting=waiting):
        try:
            line = raw.decode(code)
        except UnicodeDecodeError as error:
            if not (guess and code == UTF_8 and raw[: error.start].isascii()):
                raise _undecodable(path, raw, number, error, code) from None
            code = WINDOWS
            try:
                line = raw.decode(code)
            except UnicodeDecodeError:  # a byte that Windows-1252 does not have either
                raise _undecodable(path, raw, number, error, UTF_8) from None
            _warn_of_windows(path, number)
        if guess and not line.isascii():
            guess = False  # the first line beyond ASCII has decided
        if (at := line.find("\0")) >= 0:
            raise DataError(files.name_of(path), "found a NUL byte, expected UTF-8 text", line=number, column=at + 1)
        yield number, line


def _checked(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        plain = "a\n".encode(name) == b"a\n"
    except (LookupError, ValueError):
        raise InputError(
            f"encoding {encoding!r} is not known; use a name such as 'utf-8', 'cp1252' or 'iso8859-15'"
        ) from None
    if not plain:
        raise InputError(f"encoding {encoding!r} is not an extension of ASCII; convert the file to UTF-8")
    return name


def _undecodable(path: PathLike, raw: bytes, number: int, error: UnicodeDecodeError, code: str) -> DataError:
    if code == UTF_8:
        expected = "UTF-8 text"
        column = len(raw[: error.start].decode()) + 1
    else:
        expected, column = f"text in the encoding {code}", error.start + 1
    reason = f"found the byte 0x{raw[error.start]:02x}, expected {expected}"
    return DataError(files.name_of(path), reason, line=number, column=column)


def _warn_of_windows(path: PathLike, number: int) -> None:
    warnings.warn(
        f"{files.name_of(path)}, line {number}: is not UTF-8; read as Windows-1252 ({WINDOWS}). If letters are wrong, "
        "set encoding (--encoding)",
        DataWarning,
        stacklevel=2,
    )


def refuse_blank(where: str, blank: int | None) -> None:
    if blank is not None:
        raise DataError(where, "found an empty line before others; only the last lines may be empty", line=blank)


def quoted(name: str) -> str:
    short = name if len(name) <= 40 else name[:40] + "…"
    return json.dumps(short, ensure_ascii=False).encode(errors="replace").decode()


def listed(names: list[str]) -> str:
    more = [f"{len(names) - 8} more"] if len(names) > 8 else []
    return ", ".join([quoted(name) for name in names[:8]] + more) or "nothing"
