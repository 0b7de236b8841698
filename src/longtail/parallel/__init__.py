"""Blocks of work and the threads that run them: the only room that starts a thread."""

from longtail.parallel.local import Stopped, Team, Work, n_threads, run, solve
from longtail.parallel.plan import ranges

__all__ = ["Stopped", "Team", "Work", "n_threads", "ranges", "run", "solve"]
