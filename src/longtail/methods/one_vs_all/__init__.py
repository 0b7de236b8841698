"""One-vs-all: an independent binary problem per label."""

from longtail.methods.one_vs_all.estimator import OneVsAll

__all__ = ["OneVsAll"]
