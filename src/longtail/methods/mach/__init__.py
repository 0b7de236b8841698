"""MACH: merged-average classifiers via hashing."""

from longtail.methods.mach.estimator import Mach
from longtail.methods.mach.sizes import Sizes

__all__ = ["Mach", "Sizes"]
