"""Chooses a method and its main parameters on held-out rows, within a time budget."""

from longtail.tuning.search import tune
from longtail.tuning.trials import Trial, Tuning

__all__ = ["Trial", "Tuning", "tune"]
