"""What a block may use while it is solved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from longtail.parallel.local import Team

Arrays = Mapping[str, np.ndarray]


class Keeper(Protocol):
    """Where a block can keep how far it is."""

    def saved(self) -> Arrays | None: ...

    def save(self, state: Callable[[], Arrays]) -> None: ...


class Stopped(Exception):  # noqa: N818 - not an error: the run was stopped from outside
    """Raised inside a block when the run that it belongs to was stopped."""


class Work:
    """What a block may use while it is solved: some threads, a way to report how far it is, and a place to keep it."""

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
        """Say which share of the block is done, from 0 to 1. Call it now and then: it ends the block, by raising
        `Stopped`, when the run was stopped."""
        if self._report is not None:
            self._report(share)

    def saved(self) -> Arrays | None:
        """The state that an earlier attempt at this block kept last; None if the block has to start at its beginning.

        A solver that uses it must end with the same bytes as one that was never interrupted, so its state includes the
        random generators and everything else that changes while it runs.
        """
        return None if self._keeper is None else self._keeper.saved()

    def save(self, state: Callable[[], Arrays]) -> None:
        """Offer the present state. `state` is called only if the last one was kept long enough ago, so a long block may
        offer its state after every pass. Without a run folder nothing is kept."""
        if self._keeper is not None:
            self._keeper.save(state)

    def keeping(self, keeper: Keeper) -> Work:
        """The same work with a place to keep states."""
        return Work(self.n_threads, self._report, keeper)

    def team(self) -> Team:
        """The threads of the block."""
        return Team(self.n_threads)
