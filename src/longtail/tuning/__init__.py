"""Chooses a method and its main parameters on held-out rows, within a time budget."""

from longtail.tuning.search import Trial, Tuning, tune

__all__ = ["Trial", "Tuning", "tune"]
