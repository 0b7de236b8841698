"""Blocks of work and the threads that run them: the only room that starts a thread."""

from longtail.parallel.local import n_threads, run, team
from longtail.parallel.plan import ranges

__all__ = ["n_threads", "ranges", "run", "team"]
