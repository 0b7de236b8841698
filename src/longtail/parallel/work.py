"""The resources of a block while it is solved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from longtail.parallel.local import Team

Arrays = Mapping[str, np.ndarray]


class Keeper(Protocol):
    """Stores the intermediate state of a block."""

    def saved(self) -> Arrays | None: ...

    def save(self, state: Callable[[], Arrays]) -> None: ...


class Stopped(Exception):  # noqa: N818 - not an error: the run was stopped from outside
    """Raised inside a block when the run that it belongs to was stopped."""


class Work:
    """The resources of a block while it is solved: threads, a way to report progress, and a place for its state."""

    def __init__(
        self,
        n_threads: int = 1,
        report: Callable[[float], None] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.n_threads = n_threads
        self._report = report
        self._keeper = keeper

    def report(self, share: float) -> None:
        """Report the share of the block that is done, from 0 to 1. A solver calls this regularly. If the run was
        stopped, the call raises `Stopped`, which ends the block."""
        if self._report is not None:
            self._report(share)

    def saved(self) -> Arrays | None:
        """Return the last state that an earlier attempt at this block saved. None if the block must start from the
        beginning.

        A solver that resumes from it must end with the same bytes as one that was never interrupted. The state must
        therefore include the random generators and everything else that changes while the solver runs.
        """
        return None if self._keeper is None else self._keeper.saved()

    def save(self, state: Callable[[], Arrays]) -> None:
        """Offer the current state. `state` is called only if no state was saved recently, so a long block may offer its
        state after every pass. Without a run folder, nothing is saved."""
        if self._keeper is not None:
            self._keeper.save(state)

    def keeping(self, keeper: Keeper) -> Work:
        """Return the same work with a place to save states."""
        return Work(self.n_threads, self._report, keeper)

    def team(self) -> Team:
        """The threads of the block."""
        return Team(self.n_threads)
