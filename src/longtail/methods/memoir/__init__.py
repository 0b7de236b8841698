"""MEMOIR: the Crammer-Singer machine with an inexact margin."""

from longtail.methods.memoir.estimator import Memoir
from longtail.methods.memoir.report import OracleReport

__all__ = ["Memoir", "OracleReport"]
