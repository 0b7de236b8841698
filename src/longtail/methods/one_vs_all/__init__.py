"""One-vs-all: an independent binary problem per label, solved by truncated Newton."""

from longtail.methods.one_vs_all.estimator import OneVsAll, Outcome, Status

__all__ = ["OneVsAll", "Outcome", "Status"]
