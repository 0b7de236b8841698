"""MEMOIR: the Crammer-Singer machine with an inexact margin."""

from longtail.methods.memoir.estimator import Memoir

__all__ = ["Memoir"]
