"""Blocks of work, and the threads, processes and cluster nodes that run them. Training starts them only here."""

from longtail.parallel.dispatch import AttemptLimits, Engine, Unsolved, dispatch
from longtail.parallel.local import Team, n_threads, run
from longtail.parallel.ranges import ranges
from longtail.parallel.threads import Threads, solve
from longtail.parallel.work import Stopped, Work
from longtail.parallel.workers import Workers

__all__ = [
    "AttemptLimits",
    "Engine",
    "Stopped",
    "Team",
    "Threads",
    "Unsolved",
    "Work",
    "Workers",
    "dispatch",
    "n_threads",
    "ranges",
    "run",
    "solve",
]
