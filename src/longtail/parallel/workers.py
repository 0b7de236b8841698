"""The workers that solve the blocks: `threads`, `processes:4`, `ray` or `ray:ADDRESS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from longtail.errors import InputError
from longtail.parallel.dispatch import AttemptLimits, Engine
from longtail.parallel.local import n_threads
from longtail.parallel.processes import Prepare, Processes
from longtail.parallel.threads import Threads
from longtail.parallel.work import Work

FORMS = "threads, processes:NUMBER, ray (on this machine) or ray:ADDRESS (of a cluster)"


@dataclass(frozen=True)
class Workers:
    """A choice of workers, and the limits of an attempt at a block."""

    kind: str = "threads"
    count: int | None = None  # number of processes; None means one per core
    address: str | None = None  # address of a Ray cluster; None starts one on this machine
    limits: AttemptLimits = field(default_factory=AttemptLimits)
    save_seconds: float = 5.0  # least time between two saved states of a long block

    @classmethod
    def of(cls, choice: str | Workers | None) -> Workers:
        """Return the workers that a text names."""
        if choice is None or isinstance(choice, Workers):
            return choice or cls()
        kind, colon, rest = str(choice).partition(":")
        if kind == "threads" and not colon:
            return cls()
        if kind == "processes" and (not colon or (rest.isdecimal() and 0 < int(rest) <= 4096)):
            return cls(kind, count=int(rest) if colon else None)
        if kind == "ray" and (not colon or rest):
            return cls(kind, address=rest or None)
        raise InputError(f"workers={choice!r} is not understood; use {FORMS}")

    def __str__(self) -> str:
        detail = self.count if self.kind == "processes" else self.address
        return self.kind if detail is None else f"{self.kind}:{detail}"

    @property
    def are_threads(self) -> bool:
        """Whether blocks are solved in this process."""
        return self.kind == "threads"

    def engine(self, task: Callable[[Any, Work], Any], prepare: Prepare | None, n_jobs: int | None) -> Engine:
        """Return the engine that runs the blocks: `task` in this process, or the result of `prepare` in others."""
        if self.are_threads or prepare is None:
            return Threads(task, n_jobs)
        if self.kind == "processes":
            return Processes(prepare, self.count or n_threads(None), n_jobs, self.limits.start)
        from longtail.parallel.cluster import Cluster  # imports Ray

        return Cluster(prepare, self.address, n_jobs)
