"""data/files: every kind of file is opened or refused in one line, and nothing blocks or explodes."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import socket
import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import files
from longtail.data.files import excerpt, iter_chunks, iter_lines, open_stream
from longtail.errors import DataError

TEXT = b"3 10 5\n" + b"0,4 1:0.5 7:1.25\n" * 5000
PACK = {
    "plain": lambda text: text,
    "gz": lambda text: gzip.compress(text, 1),
    "xz": lambda text: lzma.compress(text, preset=0),
}


def whole(path, **options) -> bytes:
    with open_stream(path, **options) as stream:
        return stream.read()


def refusal(path, **options) -> str:
    with pytest.raises(DataError) as caught:
        whole(path, **options)
    assert "\n" not in str(caught.value)
    assert caught.value.path == os.fspath(path)
    return caught.value.reason


# --- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", PACK)
@pytest.mark.parametrize("name", ["data.txt", "data.gz", "data.xz"])
def test_the_content_tells_the_compression_not_the_name(tmp_path, form, name):
    path = tmp_path / name
    path.write_bytes(PACK[form](TEXT))
    assert whole(path) == TEXT
    assert whole(str(path)) == TEXT


@pytest.mark.parametrize("form", ["gz", "xz"])
@pytest.mark.parametrize("padding", [0, 4, 3000000])
def test_members_one_after_the_other_are_one_stream(tmp_path, form, padding):
    path = tmp_path / "data"
    pack = PACK[form]
    path.write_bytes(pack(TEXT[:1000]) + pack(b"") + pack(TEXT[1000:]) + bytes(padding))
    assert whole(path) == TEXT


@pytest.mark.parametrize("form", PACK)
def test_an_empty_file(tmp_path, form):
    path = tmp_path / "data"
    path.write_bytes(PACK[form](b""))
    assert whole(path) == b""


@pytest.mark.parametrize("form", PACK)
@pytest.mark.parametrize("n", [1, 7, 1000, 1 << 20])
def test_reading_by_pieces(tmp_path, form, n):
    path = tmp_path / "data"
    text = TEXT[:5000]
    path.write_bytes(PACK[form](text))
    with open_stream(path) as stream:
        pieces = list(iter(lambda: stream.read(n), b""))
    assert b"".join(pieces) == text
    assert all(len(piece) == n for piece in pieces[:-1])


@pytest.mark.parametrize("form", PACK)
def test_standard_input(monkeypatch, form):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PACK[form](TEXT))))
    assert whole("-") == TEXT


def test_a_pipe_as_standard_input(monkeypatch):
    end, start = os.pipe()
    with os.fdopen(start, "wb") as writer:
        writer.write(gzip.compress(TEXT))
    with os.fdopen(end, "r") as reader:
        monkeypatch.setattr(sys, "stdin", reader)
        assert whole("-") == TEXT


def test_a_link_to_a_file(tmp_path):
    (tmp_path / "data").write_bytes(TEXT)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert whole(tmp_path / "link") == TEXT


# --- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert refusal(tmp_path) == "is a folder; expected a regular file"
    assert refusal(tmp_path / "pipe") == "is a named pipe; expected a regular file"
    assert refusal("/dev/zero") == "is a device; expected a regular file"
    assert refusal("/dev/null") == "is a device; expected a regular file"
    assert refusal(tmp_path / "loop") == "cannot be opened: Too many levels of symbolic links"
    assert refusal(tmp_path / "dangling") == "cannot be opened: No such file or directory"
    assert refusal(tmp_path / "absent") == "cannot be opened: No such file or directory"
    assert refusal(tmp_path / "absent" / "data") == "cannot be opened: No such file or directory"
    assert refusal(tmp_path / "a\0b") == "cannot be opened: there is a NUL character in its name"
    assert refusal(tmp_path / ("a" * 300)) == "cannot be opened: File name too long"
    assert refusal("") == "cannot be opened: No such file or directory"


def test_a_socket(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert refusal("socket") == "cannot be opened: it is a socket or an absent device; expected a regular file"


def test_a_file_without_permission(tmp_path, monkeypatch):
    def deny(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    assert refusal(tmp_path / "data") == "cannot be opened: Permission denied"


def test_a_disk_that_fails(tmp_path, monkeypatch):
    (tmp_path / "data").write_bytes(TEXT)

    class Failing(io.BytesIO):
        def read(self, _=-1):
            raise OSError(5, "Input/output error")

        def fileno(self):
            return handle

    with open(tmp_path / "data", "rb") as file:
        handle = file.fileno()
        monkeypatch.setattr(files, "open_regular", lambda _: Failing())
        assert refusal(tmp_path / "data") == "cannot be read: Input/output error"


@pytest.mark.parametrize("form", PACK)
def test_a_file_that_shrinks_while_it_is_read(tmp_path, form):
    path = tmp_path / "data"
    content = PACK[form](os.urandom(5 << 20))
    path.write_bytes(content)
    with open_stream(path) as stream:
        stream.read(1000)
        os.truncate(path, 3 << 20)
        with pytest.raises(DataError) as caught:
            stream.read()
    reason = f"had {len(content):,} bytes when it was opened, but 3,145,728 could be read; is it being written?"
    assert caught.value.reason == reason


def test_a_file_that_grows_while_it_is_read(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(3 << 20))
    with open_stream(path) as stream:
        stream.read(1000)
        with open(path, "ab") as file:
            file.write(bytes(1000))
        with pytest.raises(DataError) as caught:
            stream.read()
    assert caught.value.reason == "had 3,145,728 bytes when it was opened, but more could be read; is it being written?"


@pytest.mark.parametrize("form", ["gz", "xz"])
def test_compressed_data_cut_off_anywhere(tmp_path, form):
    path = tmp_path / "data"
    content = PACK[form](b"0 1:2\n")
    name = {"gz": "gzip", "xz": "xz"}[form]
    for n in range(6, len(content)):
        path.write_bytes(content[:n])
        assert refusal(path) == f"the {name} data is cut off; copy or download the file again"


@pytest.mark.parametrize("form", ["gz", "xz"])
def test_something_else_after_compressed_data(tmp_path, form):
    path = tmp_path / "data"
    name = {"gz": "gzip", "xz": "xz"}[form]
    for rest in (b"garbage", b"\0\0\0x", b"\x1e", b"3 10 5\n"):
        path.write_bytes(PACK[form](TEXT) + rest)
        found = excerpt(rest.lstrip(b"\0"))
        assert refusal(path) == f"found {found} after the {name} data, expected the end of the file"


def test_damaged_gzip(tmp_path):
    path = tmp_path / "data"
    content = bytearray(gzip.compress(TEXT))
    content[-5] ^= 1  # the checksum
    path.write_bytes(content)
    assert refusal(path) == "the gzip data is damaged: Error -3 while decompressing data: incorrect data check"
    path.write_bytes(b"\x1f\x8b\x07" + content[3:])
    assert refusal(path) == "the gzip data is damaged: Error -3 while decompressing data: unknown compression method"


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(["gz", "xz"]), st.data())
def test_a_flipped_bit_never_changes_what_is_read(tmp_path_factory, form, data):
    text = b"0,4 1:0.5 7:1.25\n1 2:3\n" * 3
    content = bytearray(PACK[form](text))
    at = data.draw(st.integers(6, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("flip", numbered=True) / "data"
    path.write_bytes(content)
    try:
        found = whole(path)
    except DataError:
        found = text
    assert found == text  # bits of the gzip header (time, system) may change without harm


@pytest.mark.parametrize("form", ["gz", "xz"])
def test_a_decompression_bomb(tmp_path, form):
    path = tmp_path / "bomb"
    path.write_bytes(PACK[form](bytes(100 << 20)))
    reason = "unpacks to more than 200 times its size, like a decompression bomb; if it is none, unpack it by hand"
    assert refusal(path) == reason
    with open_stream(path, max_ratio=1e6) as stream:
        assert sum(len(piece) for piece in iter(lambda: stream.read(1 << 20), b"")) == 100 << 20


def test_a_bomb_in_many_members(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(1 << 20)) * 60)
    assert refusal(path).startswith("unpacks to more than 200 times its size")


def test_a_small_file_may_be_as_compressible_as_it_likes(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(bytes(files.RATIO_FREE)))
    assert len(whole(path)) == files.RATIO_FREE


def test_an_xz_file_that_asks_for_much_memory(tmp_path):
    path = tmp_path / "data"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]
    content = bytearray(lzma.compress(b"text", filters=filters))
    content[16] = 39  # the size of the dictionary: 3 GB
    content[20:24] = zlib.crc32(content[12:20]).to_bytes(4, "little")
    path.write_bytes(content)
    assert refusal(path) == "the xz data is damaged: Memory usage limit exceeded"


def test_standard_input_that_is_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match=r"^<stdin>: standard input is closed$"):
        whole("-")
    stream = io.TextIOWrapper(io.BytesIO(b""))
    monkeypatch.setattr(sys, "stdin", stream)
    stream.buffer.close()
    with pytest.raises(DataError, match=r"^<stdin>: cannot be read: .*closed file"):
        whole("-")


def test_standard_input_that_does_not_wait(monkeypatch):
    end, start = os.pipe()
    os.set_blocking(end, False)
    with os.fdopen(end, "r") as reader, os.fdopen(start, "wb"):
        monkeypatch.setattr(sys, "stdin", reader)
        with pytest.raises(DataError, match=r"^<stdin>: cannot be read: it has no data yet and does not wait for it$"):
            whole("-")


# --- lines -----------------------------------------------------------------------------------------------------------


def test_lines(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo\n three\r")
    assert list(iter_lines(path)) == [(1, b"one"), (2, b""), (3, b"two"), (4, b" three")]
    path.write_bytes(gzip.compress(b"one\n"))
    assert list(iter_lines(path)) == [(1, b"one")]
    path.write_bytes(b"")
    assert list(iter_lines(path)) == []


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_longest_line(tmp_path, mark, end):
    path = tmp_path / "data"
    path.write_bytes(mark + b"1234567890" + end)
    assert list(iter_lines(path, max_line=10)) == [(1, b"1234567890")]
    path.write_bytes(mark + b"12345678901" + end)
    with pytest.raises(DataError) as caught:
        list(iter_lines(path, max_line=10))
    assert str(caught.value) == f"{path}, line 1: found more than 10 bytes in a line, expected its end"


@pytest.mark.parametrize("code", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_wide_text(tmp_path, code):
    path = tmp_path / "data"
    path.write_bytes("\ufeff".encode(code.removesuffix("-be") + "-be") * code.endswith("-be") + "text".encode(code))
    with pytest.raises(DataError) as caught:
        list(iter_lines(path))
    reason = "found UTF-16 or UTF-32 (a byte order mark), expected UTF-8; save it as UTF-8"
    assert str(caught.value) == f"{path}, line 1, column 1: {reason}"


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(list(b"ab\n\n")), max_size=40).map(bytes), st.integers(1, 50), st.integers(1, 20))
def test_chunks_are_complete_lines(tmp_path_factory, text, chunk_bytes, max_line):
    path = tmp_path_factory.mktemp("chunks", numbered=True) / "data"
    path.write_bytes(text)
    chunks = [bytes(chunk) for chunk in iter_chunks(path, max_line=max_line, chunk_bytes=chunk_bytes)]
    lines = (text if text.endswith(b"\n") or not text else text + b"\n").splitlines(keepends=True)
    long = next((i for i, line in enumerate(lines) if len(line) > max_line + 1), None)
    complete, rest = (chunks, b"") if long is None else (chunks[:-1], chunks[-1])
    assert b"".join(complete) == b"".join(lines[:long])
    assert all(chunk.endswith(b"\n") for chunk in complete)
    if long is not None:
        assert len(rest) == max_line + 1
        assert lines[long].startswith(rest)


def test_excerpts():
    assert excerpt(b"") == "nothing"
    assert excerpt(b"abc") == "'abc'"
    assert excerpt(b"a'\\\n\xff\0") == r"'a\x27\x5c\x0a\xff\x00'"
    assert excerpt(b"x" * 40) == "'" + "x" * 40 + "'"
    assert excerpt(b"x" * 41) == "'" + "x" * 39 + "…'"
    assert excerpt(b"\0" * 11) == "'" + r"\x00" * 9 + r"\x0" + "…'"
