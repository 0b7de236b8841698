"""The log of a run: one JSON object per line. The process that holds the lock appends; any process may read.

The log is only for information. The parts on disk decide which blocks are done. Incomplete lines, which a crash may
leave, are skipped.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail import sealed

NAME = "events.jsonl"
MAX_LINE = 4096
HEARTBEAT = 1.0  # seconds between two lines about progress
RECENT = 20  # number of failures that a summary keeps


class Log:
    """The log, open for appending."""

    def __init__(self, root: Path) -> None:
        self._path = root / NAME
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._beat = float("-inf")
        try:
            if os.fstat(self._handle).st_size:
                os.write(self._handle, b"\n")  # ends an incomplete line that a crash may have left
        except OSError:
            os.close(self._handle)
            raise

    def add(self, event: str, **facts: Any) -> None:
        """Append one line, in one write."""
        line = json.dumps({"event": event, "time": round(time.time(), 3), **facts}, ensure_ascii=True, allow_nan=False)
        if len(line) >= MAX_LINE:
            raise ValueError(f"an event of {len(line)} characters is too long for one line")
        with sealed.os_errors(self._path, "cannot write the log of the run"):
            os.write(self._handle, f"{line}\n".encode())

    def progress(self, share: float) -> None:
        """Log the share of the whole work that is done. Calls within HEARTBEAT seconds of the last line do nothing."""
        now = time.monotonic()
        if now - self._beat >= HEARTBEAT:
            self._beat = now
            self.add("progress", share=round(share, 6))

    def close(self) -> None:
        os.close(self._handle)


@dataclass
class RunSummary:
    """A summary of the log."""

    workers: str = ""
    sessions: int = 0  # how often the run was started
    started: float = 0.0  # when the current session began
    updated: float = 0.0
    share_at_start: float = 0.0
    share: float = 0.0
    finished: bool = False
    retries: int = 0
    session_blocks: int = 0  # blocks solved in the current session
    seconds: float = 0.0  # spent in blocks, summed over all sessions
    failures: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=RECENT))
    unsolved: dict[int, str] = field(default_factory=dict)  # block -> reason, in the current session

    @property
    def speed(self) -> float:
        """Share of the work per second in the current session, or 0 if it is unknown."""
        elapsed = self.updated - self.started
        return max(0.0, self.share - self.share_at_start) / elapsed if elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        return (1.0 - self.share) / self.speed if self.speed > 0 else None


def summary(root: Path) -> RunSummary:
    """Summarise the log of the run in `root`. Invalid lines are skipped."""
    result = RunSummary()
    for line in _lines(root / NAME):
        try:
            event = json.loads(line)
            _take(result, event)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
    return result


def _take(result: RunSummary, event: Mapping[str, Any]) -> None:
    kind, at = event["event"], float(event["time"])
    if kind == "started":
        result.workers = str(event["workers"])
        result.sessions += 1
        result.started = at
        result.share_at_start = result.share = _share(event["share"])
        result.session_blocks = 0
        result.finished = False
        result.unsolved = {}
    elif kind == "progress":
        result.share = _share(event["share"])
    elif kind == "solved":
        result.session_blocks += 1
        result.seconds += float(event["seconds"])
    elif kind == "failed":
        result.retries += 1
        result.failures.append(
            {"block": int(event["block"]), "attempt": int(event["attempt"]), "reason": str(event["reason"])}
        )
    elif kind == "unsolved":
        result.unsolved[int(event["block"])] = str(event["labels"])
    elif kind == "finished":
        result.finished, result.share = True, 1.0
    result.updated = at


def _share(value: Any) -> float:
    return min(1.0, max(0.0, float(value)))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE + 1):
                if len(line) <= MAX_LINE and line.strip():
                    yield line
    except OSError:
        return
