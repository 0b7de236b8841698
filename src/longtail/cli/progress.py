"""Progress on standard error: a spinner or a bar with the time left; in files and pipes, a line every 30 seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from longtail.cli.output import note
from longtail.words import duration

LINE_SECONDS = 30.0  # between two lines where there is no terminal
quiet = False  # set by `longtail --quiet`: no progress at all


class Step:
    """One step of a command. `update` and `share` move its bar; `seconds` is how long it took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._bar: Any = None
        self._pace: Pace | None = None

    def update(self, done: int, total: int) -> None:
        """`done` of `total` items are done."""
        if self._bar is not None:
            self._bar.update(done, total)

    def share(self, share: float) -> None:
        """This share of the work is done, from 0 to 1."""
        if self._bar is not None:
            self._bar.share(share)

    def flow(self, done: int, share: float | None) -> None:
        """`done` items are done, of an unknown number. `share` of the input has been read, if that is known."""
        if self._bar is not None:
            self._pace = self._pace or Pace()
            self._bar.flow(done, share, self._pace)
            self._pace.begin(done, share or 0.0)

    def skip(self) -> None:
        """What was done so far cost nothing, so it does not count for the speed."""
        self._pace = None


class Pace:
    """Items per second and time left, from the first report on."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.done, self.read = 0, 0.0
        self.begun = False

    def begin(self, done: int, share: float) -> None:
        if not self.begun:
            self.start = time.monotonic()
            self.done = done
            self.read = share
            self.begun = True

    def rate(self, done: int) -> float | None:
        """Items per second."""
        spent = time.monotonic() - self.start
        return (done - self.done) / spent if self.begun and spent > 0 and done > self.done else None

    def left(self, share: float | None) -> float | None:
        """Seconds left."""
        if not self.begun or share is None or share <= self.read:
            return None
        return (time.monotonic() - self.start) * (1 - share) / (share - self.read)


@contextmanager
def step(title: str, unit: str = "", *, show: bool = True) -> Iterator[Step]:
    """A step of a command, shown while it runs and removed when it is done. With a `unit` it has a bar."""
    this = Step()
    start = time.perf_counter()
    try:
        if quiet or not show:
            yield this
        elif sys.stderr.isatty():
            with _shown(title, unit) as this._bar:
                yield this
        else:
            this._bar = _Lines(title, unit)
            with _compiler_watched(this._bar):
                yield this
    finally:
        this.seconds = time.perf_counter() - start


class _Lines:
    """Progress without a terminal: a line now and then."""

    def __init__(self, title: str, unit: str) -> None:
        self.title, self.unit = title, unit
        self.last = time.monotonic()
        self.told = False

    def compiling(self) -> None:
        if not self.told:
            self.told = True
            note(f"{self.title}: compiling kernels, once")

    def update(self, done: int, total: int) -> None:
        self._say(f"{done:,} {self.unit}" if done == total else f"{done:,} of {total:,} {self.unit}")

    def share(self, share: float) -> None:
        self._say(f"{share:.0%}")

    def flow(self, done: int, share: float | None, pace: Pace) -> None:
        left = pace.left(share)
        self._say(_flow(done, self.unit, share, pace) + ("" if left is None else f", {duration(left)} left"))

    def _say(self, count: str) -> None:
        now = time.monotonic()
        if now - self.last >= LINE_SECONDS:
            self.last = now
            note(f"{self.title}: {count}")


class _Bar:
    def __init__(self, progress: Any, title: str, unit: str) -> None:
        self.progress = progress
        self.title = title
        self.unit = unit
        self.task = progress.add_task(title, total=None, count="")

    def update(self, done: int, total: int) -> None:
        count = f"{done:,} of {total:,} {self.unit}"
        self.progress.update(self.task, completed=done, total=total, count=count, description=self.title)

    def share(self, share: float) -> None:
        self.progress.update(self.task, completed=share, total=1.0, count=f"{share:.0%}", description=self.title)

    def flow(self, done: int, share: float | None, pace: Pace) -> None:
        known: dict[str, float] = {} if share is None else {"completed": share, "total": 1.0}
        count = _flow(done, self.unit, None, pace)
        self.progress.update(self.task, count=count, description=self.title, **known)

    def compiling(self) -> None:
        self.progress.update(self.task, description=f"{self.title} (compiling kernels, once)")


def _flow(done: int, unit: str, share: float | None, pace: Pace) -> str:
    """Such as `8,192 rows (12%), 4,000 rows/s`."""
    rate = pace.rate(done)
    part = "" if share is None else f" ({share:.0%})"
    return f"{done:,} {unit}{part}" + ("" if rate is None else f", {rate:,.0f} {unit}/s")


@contextmanager
def _shown(title: str, unit: str) -> Iterator[_Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
    from rich.text import Text

    class Clock(ProgressColumn):
        """The time left, or the elapsed time while that is unknown."""

        def render(self, task: Any) -> Text:
            left = task.time_remaining
            minutes, seconds = divmod(round(task.elapsed or 0 if left is None else left), 60)
            return Text(f"{minutes}:{seconds:02d}{'' if left is None else ' left'}")

    words = TextColumn("{task.description}", markup=False)
    counts = TextColumn("{task.fields[count]}", markup=False)
    parts = [SpinnerColumn(), words, *([BarColumn(), counts] if unit else []), Clock()]
    with Progress(*parts, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        bar = _Bar(progress, title, unit)
        with _compiler_watched(bar):
            yield bar


@contextmanager
def _compiler_watched(bar: _Bar | _Lines) -> Iterator[None]:
    """Show when Numba compiles, which takes seconds."""
    from longtail.compiled import watchers

    watchers.append(bar.compiling)
    try:
        yield
    finally:
        watchers.remove(bar.compiling)
