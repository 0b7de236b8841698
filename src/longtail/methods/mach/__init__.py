"""MACH: merged-average classifiers via hashing."""

from longtail.methods.mach.estimator import Mach
from longtail.methods.mach.plan import Plan

__all__ = ["Mach", "Plan"]
