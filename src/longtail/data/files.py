"""Open a data file as one stream of bytes: plain, gzip, xz or zstd, from disk or from standard input.

The compression is recognised by the first bytes, never by the name. Several compressed members in a row are one
stream, as for `zcat` and `xzcat`. Only regular files (also through a link) are opened, because others could block or be
endless; standard input (`-`) may be anything. Anything wrong with a file is a DataError that names it:

- it is missing, unreadable, a folder, a pipe, a device, a socket, or a link that leads to itself;
- its size changes while it is read;
- the compressed data is damaged, cut off, or followed by something else;
- it unpacks to more than MAX_RATIO times its size (checked after the first RATIO_FREE bytes): a decompression bomb.

Readers of text drop a UTF-8 byte order mark at the start of the file (`after_mark`) and do not count it as a column.
UTF-16 and UTF-32 are refused.
"""

from __future__ import annotations

import contextlib
import errno
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from longtail.errors import DataError, MissingExtra

MAX_RATIO = 200  # text is compressed 3 to 30 times; gzip can reach 1,032, xz far more
RATIO_FREE = 16 << 20  # bytes that any compressed file may unpack to
MAX_LINE = 64 << 20  # bytes in one line of text
XZ_MEMORY = 256 << 20  # bytes that the decoder of an xz file may use; files of `xz -9` need 65 MB
BLOCK = 1 << 20
STDIN = "<stdin>"

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"
_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)

PathLike = str | os.PathLike[str]
# Called before every read, with how much has been read and how much there is; for standard input, which may keep the
# reader waiting, the second is None.
Waiting = Callable[[int, int | None], None]


def name_of(path: PathLike) -> str:
    """The name of the file in messages: its path, or <stdin> for `-`."""
    return STDIN if os.fspath(path) == "-" else os.fspath(path)


@contextlib.contextmanager
def open_stream(
    path: PathLike, *, max_ratio: float = MAX_RATIO, waiting: Waiting | None = None
) -> Iterator[io.BufferedReader]:
    """The unpacked bytes of `path` as a buffered binary stream; `-` is standard input.

    `waiting` is called before every read. A read of standard input may wait for a slow writer; it returns what is
    there, so that lines can be used as they arrive.
    """
    name = name_of(path)
    if name == STDIN:
        if sys.stdin is None:
            raise DataError(name, "standard input is closed")
        source = _Source(name, sys.stdin.buffer, None, waiting)
        yield io.BufferedReader(_unpacked(source, max_ratio), BLOCK)
        return
    with open_regular(path) as file:
        source = _Source(name, file, os.fstat(file.fileno()).st_size, waiting)
        yield io.BufferedReader(_unpacked(source, max_ratio), BLOCK)


def iter_lines(
    path: PathLike, *, max_line: int = MAX_LINE, waiting: Waiting | None = None
) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of each line, without its LF or CR LF and without a UTF-8 byte order mark."""
    with open_stream(path, waiting=waiting) as stream:
        number = 0
        while line := stream.readline(max_line + 6):  # room for a mark, CR LF, and one byte too many
            number += 1
            if number == 1:
                line = after_mark(path, line)
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > max_line:
                raise line_too_long(path, number, max_line)
            yield number, line


def iter_chunks(
    path: PathLike, *, max_line: int = MAX_LINE, chunk_bytes: int = 2 << 20, waiting: Waiting | None = None
) -> Iterator[memoryview]:
    """Pieces of complete lines. Each is valid until the next one is requested.

    The last line gets a newline if it has none. No piece is longer than `chunk_bytes`, unless it is a single line. A
    piece that does not end with a newline is the last one and holds the start of a line of more than `max_line` bytes.
    """
    buffer = bytearray(min(chunk_bytes, max_line) + 1)
    filled = 0
    with open_stream(path, waiting=waiting) as stream:
        while n := stream.readinto(memoryview(buffer)[filled:]):
            filled += n
            cut = buffer.rfind(b"\n", 0, filled) + 1
            if cut:
                yield memoryview(buffer)[:cut]
                buffer[: filled - cut] = buffer[cut:filled]
                filled -= cut
            if filled > max_line:
                yield memoryview(buffer)[:filled]
                return
            if filled == len(buffer):
                buffer = buffer.ljust(min(2 * filled, max_line + 1))
    if filled:
        buffer[filled] = ord("\n")
        yield memoryview(buffer)[: filled + 1]


def line_too_long(path: PathLike, number: int, max_line: int) -> DataError:
    return DataError(name_of(path), f"found more than {max_line:,} bytes in a line, expected its end", line=number)


def after_mark(path: PathLike, head: bytes) -> bytes:
    """`head`, the beginning of a text, without its UTF-8 byte order mark."""
    if head.startswith(_WIDE_MARKS):
        reason = "found UTF-16 or UTF-32 (a byte order mark), expected UTF-8; save it as UTF-8"
        raise DataError(name_of(path), reason, line=1, column=1)
    return head.removeprefix(_MARK)


def open_regular(path: PathLike) -> IO[bytes]:
    """Open a regular file, unbuffered, without waiting. DataError for anything else."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer; reading a regular file does not care about it.
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    except (OSError, ValueError) as error:
        raise DataError(path, f"cannot be opened: {_reason(path, error)}") from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        kind = next((word for test, word in _KINDS if test(mode)), "something special")
        raise DataError(path, f"is {kind}; expected a regular file")
    return open(handle, "rb", buffering=0)


def _reason(path: PathLike, error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):  # Python's own words differ between versions
        return "there is a NUL character in its name"
    if error.errno == errno.ENXIO:  # the path is a socket or an absent device
        return "it is a socket or an absent device; expected a regular file"
    return error.strerror or str(error)


class _Source:
    """The raw bytes of a file, with a count and a way to look at the first ones before they are read."""

    def __init__(self, name: str, file: IO[bytes], size: int | None, waiting: Waiting | None = None) -> None:
        self.name = name
        self.file = file
        self.waiting = waiting or (lambda done, total: None)
        # A buffered standard input would wait until the whole view is filled; its "1" methods read once.
        once = "1" if size is None else ""
        self.read_some = getattr(file, f"read{once}", file.read)
        self.read_into = getattr(file, f"readinto{once}", None) or file.readinto  # type: ignore[attr-defined]
        self.size = size
        self.count = 0
        self.ahead = b""

    def head(self, n: int) -> bytes:
        """The next n bytes (fewer at the end), which `read` will still return."""
        while len(self.ahead) < n and (more := self._read(n - len(self.ahead))):
            self.ahead += more
        return self.ahead[:n]

    def read(self, n: int) -> bytes:
        """At most n bytes; none only at the end of the file."""
        if self.ahead:
            block, self.ahead = self.ahead[:n], self.ahead[n:]
            return block
        return self._read(n)

    def readinto(self, view: Any) -> int:
        if self.ahead:
            block = self.read(len(view))
            view[: len(block)] = block
            return len(block)
        return self._counted(self._attempt(lambda: self.read_into(view)))

    def _read(self, n: int) -> bytes:
        block: bytes = self._attempt(lambda: self.read_some(n))
        self._counted(len(block))
        return block

    def _attempt(self, action: Any) -> Any:
        self.waiting(self.count, self.size)
        try:
            result = action()
        except (OSError, ValueError) as error:  # ValueError: standard input was closed
            raise DataError(self.name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if result is None:
            raise DataError(self.name, "cannot be read: it has no data yet and does not wait for it")
        return result

    def _counted(self, n: int) -> int:
        self.count += n
        if self.size is not None and (self.count > self.size or (n == 0 and self.count < self.size)):
            now = "more" if self.count > self.size else f"{self.count:,}"
            raise DataError(
                self.name, f"had {self.size:,} bytes when it was opened, but {now} could be read; is it being written?"
            )
        return n


def _unpacked(source: _Source, max_ratio: float) -> io.RawIOBase:
    head = source.head(len(_XZ))
    if head.startswith(_GZIP):
        return _Packed(source, "gzip", max_ratio)
    if head.startswith(_XZ):
        return _Packed(source, "xz", max_ratio)
    if head.startswith(_ZSTD):
        return _Zstd(source, max_ratio)
    return _Plain(source)


class _Plain(io.RawIOBase):
    def __init__(self, source: _Source) -> None:
        self.source = source

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        return self.source.readinto(memoryview(view).cast("B"))


class _Packed(io.RawIOBase):
    """Unpacks the members of a gzip or xz file one after the other."""

    def __init__(self, source: _Source, form: str, max_ratio: float) -> None:
        self.source = source
        self.form = form
        self.max_ratio = max_ratio
        self.magic = _GZIP if form == "gzip" else _XZ
        self.member: Any = None  # the decoder of the current member; None between members
        self.packed = b""  # bytes read but not yet given to a decoder
        self.made = 0

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        view = memoryview(view).cast("B")
        while len(view):
            if self.member is None and not self._next_member():
                return 0
            block = self._unpack(len(view))
            if self.member.eof:
                self.packed = self.member.unused_data
                self.member = None
            if block:
                self._check_ratio(len(block))
                view[: len(block)] = block
                return len(block)
        return 0

    def _next_member(self) -> bool:
        """Start a decoder for the next member; False at the end of the file. Members may be padded with zero bytes."""
        self.packed = self.packed.lstrip(b"\0")
        while len(self.packed) < len(self.magic) and (more := self.source.read(BLOCK)):
            self.packed = (self.packed + more).lstrip(b"\0")
        if not self.packed:
            return False
        if not self.packed.startswith(self.magic):
            raise DataError(
                self.source.name,
                f"found {excerpt(self.packed)} after the {self.form} data, expected the end of the file",
            )
        if self.form == "gzip":
            self.member = zlib.decompressobj(wbits=31)
        else:
            self.member = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
        return True

    def _unpack(self, n: int) -> bytes:
        """Up to n bytes of the current member; none if another call is needed."""
        gzip = self.form == "gzip"
        if not self.packed and (gzip or self.member.needs_input):
            self.packed = self.source.read(BLOCK)
            if not self.packed:
                raise DataError(self.source.name, f"the {self.form} data is cut off; copy or download the file again")
        try:
            block: bytes = self.member.decompress(self.packed, n)
        except (zlib.error, lzma.LZMAError) as error:
            raise DataError(self.source.name, f"the {self.form} data is damaged: {error}") from error
        self.packed = self.member.unconsumed_tail if gzip else b""
        return block

    def _check_ratio(self, n: int) -> None:
        self.made += n
        _check_ratio(self.source, self.made, self.max_ratio)


class _Zstd(io.RawIOBase):
    """Unpacks the frames of a zstd file, by pyarrow: Python has no decoder of its own before 3.14."""

    def __init__(self, source: _Source, max_ratio: float) -> None:
        try:
            import pyarrow as pa
        except ImportError:
            raise MissingExtra("pyarrow", "data", f"reading {source.name}, which is packed by zstd,") from None
        self.source = source
        self.max_ratio = max_ratio
        self.made = 0
        self.stream = pa.CompressedInputStream(pa.PythonFile(_Readable(source), mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        view = memoryview(view).cast("B")
        try:
            block = self.stream.read(min(len(view), BLOCK))
        except OSError as error:
            word = "cut off" if "runcated" in str(error) else "damaged"
            raise DataError(self.source.name, f"the zstd data is {word}: {error}") from None
        view[: len(block)] = block
        self.made += len(block)
        _check_ratio(self.source, self.made, self.max_ratio)
        return len(block)


class _Readable(io.RawIOBase):
    """A source as a file object."""

    def __init__(self, source: _Source) -> None:
        self.source = source

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        return self.source.read(BLOCK if n < 0 else n)


def _check_ratio(source: _Source, made: int, max_ratio: float) -> None:
    if made > RATIO_FREE and made > max_ratio * source.count:
        raise DataError(
            source.name,
            f"unpacks to more than {max_ratio:g} times its size, like a decompression bomb; "
            "if it is none, unpack it by hand",
        )


def excerpt(found: bytes, limit: int = 40) -> str:
    """The beginning of `found` for a message, quoted and escaped, at most `limit` characters long."""
    if not found:
        return "nothing"
    text = "".join(chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}" for byte in found[:limit])
    return f"'{text}'" if len(text) <= limit and len(found) <= limit else f"'{text[: limit - 1]}…'"
