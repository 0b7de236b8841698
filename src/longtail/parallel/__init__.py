"""Blocks of work and the threads that run them: the only room that starts a thread."""

from longtail.parallel.local import Team, n_threads, run
from longtail.parallel.plan import ranges

__all__ = ["Team", "n_threads", "ranges", "run"]
