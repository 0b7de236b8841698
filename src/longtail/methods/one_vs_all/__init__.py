"""One-vs-all: an independent binary problem per label."""

from longtail.methods.one_vs_all.estimator import OneVsAll
from longtail.methods.one_vs_all.outcome import Outcome, Status

__all__ = ["OneVsAll", "Outcome", "Status"]
