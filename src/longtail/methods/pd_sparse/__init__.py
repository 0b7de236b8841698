"""PD-Sparse: all labels trained together, with few weights and few dual variables."""

from longtail.methods.pd_sparse.estimator import PDSparse
from longtail.methods.pd_sparse.path import Pass

__all__ = ["PDSparse", "Pass"]
