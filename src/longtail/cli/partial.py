"""The output file of a long prediction, which survives an interruption.

    out.jsonl.part            what has been written so far
    out.jsonl.part.json       the record: model, options, rows, and checksums of what was read and written
    out.jsonl                 appears when everything is written

The record is renewed every few seconds, after the rows that it counts are on disk. `--resume` verifies it, removes rows
that were written after it, and continues at the next row. It refuses to continue with another model, other options or
other rows at the beginning of the input. The final file therefore has the same bytes as one of an uninterrupted run.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from longtail import sealed
from longtail.cli.output import note
from longtail.errors import InputError, ModelError

FORMAT = 1
CHECKPOINT_SECONDS = 5.0  # at most this much work is lost
AGAIN = "or start again without --resume"
Finish = Callable[[Path, Path], None]


class Target(Protocol):
    """Where predictions go."""

    def already(self, n_rows: int, content: Callable[[], bytes]) -> bool:
        """Return whether the next rows of the input were written by an earlier run. `content` are their bytes."""
        ...

    def add(self, written: bytes, n_rows: int) -> None:
        """Write the predictions of the rows that `already` was asked about."""
        ...


class DirectOutput:
    """Standard output, or a file that is not a regular one."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def already(self, n_rows: int, content: Callable[[], bytes]) -> bool:
        return False

    def add(self, written: bytes, n_rows: int) -> None:
        self.file.write(written.decode("utf-8", "surrogatepass"))
        self.file.flush()


class Partial:
    """An unfinished output file and its record."""

    def __init__(self, output: Path, identity: Mapping[str, Any], resume: bool) -> None:
        self.path = output.with_name(output.name + ".part")
        self.record = output.with_name(output.name + ".part.json")
        self.identity = dict(identity)
        self.rows = self.bytes = self.crc = self.input_crc = 0
        self.refused = False  # whether the input was not the one of the earlier run
        self.skipped = 0  # rows of the input that were compared with the record
        self.compared = 0  # CRC-32 of these rows
        if resume and self.record.exists():
            self._read_record()
        elif self.record.exists():
            note(f"{output}: an interrupted run is discarded; --resume would continue it")
            self.record.unlink()
        with sealed.os_errors(self.path, "cannot be written"):
            self.file = open(self.path, "r+b" if self.rows else "wb")  # noqa: SIM115 - open until `close`
        if self.rows:
            self._verify()
        self.first = self.rows  # rows of earlier runs
        self.last_checkpoint = time.monotonic()

    # --- an earlier run ----------------------------------------------------------------------------------------------

    def _read_record(self) -> None:
        body = sealed.unseal(sealed.plain_bytes(self.record, sealed.MAX_MANIFEST_BYTES))
        numbers = [(body or {}).get(name) for name in ("rows", "bytes", "crc32", "input_crc32")]
        before = (body or {}).get("identity")
        if body is None or body.get("format") != FORMAT or not isinstance(before, dict) or not _are_counts(numbers):
            raise ModelError(self.record, f"is damaged, or was written by another version; delete it, {AGAIN}")
        for name in sorted({*before, *self.identity}):
            was, now = before.get(name), self.identity.get(name)
            if was != now:
                raise InputError(
                    f"{self.path} was made with another {name}: it was {_shown(was)} and is now {_shown(now)}; "
                    f"use the same, {AGAIN}"
                )
        self.rows, self.bytes, self.crc, self.input_crc = numbers  # type: ignore[assignment]

    def _verify(self) -> None:
        """Compare the file with the record, and remove what was written after the record."""
        size, crc = os.fstat(self.file.fileno()).st_size, 0
        if size < self.bytes:
            self.file.close()
            raise ModelError(self.path, f"has {size:,} bytes, but its record promises {self.bytes:,}; {AGAIN[3:]}")
        left = self.bytes
        while left and (chunk := self.file.read(min(left, 1 << 20))):
            crc, left = zlib.crc32(chunk, crc), left - len(chunk)
        if crc != self.crc:
            self.file.close()
            raise ModelError(self.path, f"was changed since it was written: its checksum is wrong; {AGAIN[3:]}")
        self.file.truncate(self.bytes)
        self.file.seek(self.bytes)

    def already(self, n_rows: int, content: Callable[[], bytes]) -> bool:
        crc = zlib.crc32(content(), self.compared)
        self.compared = crc
        if self.skipped >= self.first:
            return False
        self.skipped += n_rows
        if self.skipped >= self.first and (self.skipped > self.first or crc != self.input_crc):
            raise self._other_input()
        return True

    def _other_input(self) -> InputError:
        self.refused = True
        return InputError(
            f"the input is not the one of {self.path}: its first {self.first:,} rows differ from those that were "
            f"predicted before; use the same file, {AGAIN}"
        )

    # --- this run ----------------------------------------------------------------------------------------------------

    def add(self, written: bytes, n_rows: int) -> None:
        with sealed.os_errors(self.path, "cannot be written"):
            self.file.write(written)
        self.rows += n_rows
        self.bytes += len(written)
        self.crc = zlib.crc32(written, self.crc)
        self.input_crc = self.compared
        if time.monotonic() - self.last_checkpoint >= CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the rows so far to disk, then the record."""
        with sealed.os_errors(self.path, "cannot be written"):
            self.file.flush()
            os.fsync(self.file.fileno())
            body = {
                "format": FORMAT,
                "identity": self.identity,
                "rows": self.rows,
                "bytes": self.bytes,
                "crc32": self.crc,
                "input_crc32": self.input_crc,
            }
            text = sealed.seal(body)
            sealed.write_atomically(self.path.parent, lambda file: file.write(text), lambda: self.record.name)
        self.last_checkpoint = time.monotonic()

    def complete(self, output: Path, finish: Finish) -> None:
        """Make the final file."""
        if self.skipped < self.first:
            raise self._other_input()
        with sealed.os_errors(output, "cannot be written"):
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            finish(self.path, output)
            self.record.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Keep what was written after an error or Ctrl-C, and say how to continue. Without any row, keep nothing."""
        if self.rows > self.first:
            self.checkpoint()
        self.file.close()
        if self.refused:
            return
        if self.rows:
            note(f"{self.rows:,} rows are kept in {self.path}; the same command with --resume continues after them")
        else:
            self.path.unlink(missing_ok=True)


def _are_counts(numbers: list[Any]) -> bool:
    return all(type(number) is int and number >= 0 for number in numbers)


def _shown(value: Any) -> str:
    return "not given" if value is None else repr(value)


@contextmanager
def opened(output: str | None, finish: Finish, identity: Mapping[str, Any], resume: bool) -> Iterator[Target]:
    """Where the predictions go: a file, or standard output."""
    if output is None:
        yield DirectOutput(sys.stdout)
        return
    path = Path(os.path.realpath(output))  # a link stays a link
    if path.exists() and not path.is_file():  # a pipe or a device
        with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            yield DirectOutput(file)
        return
    partial = Partial(path, identity, resume)
    try:
        yield partial
        partial.complete(path, finish)
    except BaseException:
        with suppress(ModelError, ValueError):  # a full disk; the error itself is what matters
            partial.abandon()
        raise
