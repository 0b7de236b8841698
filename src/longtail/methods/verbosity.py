"""The lines that `verbose` prints during a fit, on standard output as in scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from longtail.compiled import watchers
from longtail.words import duration

if TYPE_CHECKING:
    from longtail.methods.solving import Progress

SECONDS = (10.0, 1.0)  # between two lines, for verbose=1 and for larger values


@contextmanager
def shown(estimator: Any, progress: Progress | None) -> Iterator[Progress]:
    """Yield the function that a fit calls with the share of its work that is done.

    It calls the user's function, if there is one, and prints lines if the estimator is verbose.
    """
    tell = progress or (lambda share: None)
    if not estimator.verbose:
        yield tell
        return
    lines = ProgressLines(type(estimator).__name__, SECONDS[min(int(estimator.verbose), 2) - 1])

    def both(share: float) -> None:
        tell(share)
        lines.share(share)

    watchers.append(lines.compiling)
    try:
        yield both
    finally:
        watchers.remove(lines.compiling)
    lines.say(f"done in {duration(lines.spent)}")


class ProgressLines:
    def __init__(self, title: str, seconds: float) -> None:
        self.title, self.seconds = title, seconds
        self.start = self.last = time.monotonic()
        self.told = False

    @property
    def spent(self) -> float:
        return time.monotonic() - self.start

    def say(self, text: str) -> None:
        print(f"[{self.title}] {text}", flush=True)

    def compiling(self) -> None:
        if not self.told:
            self.told = True
            self.say("compiling kernels, once")

    def share(self, share: float) -> None:
        if share > 0 and time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            left = self.spent * (1 - share) / share
            self.say(f"{share:.0%} after {duration(self.spent)}, about {duration(left)} left")
