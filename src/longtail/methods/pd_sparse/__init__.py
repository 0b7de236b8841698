"""PD-Sparse: all labels are trained together, with few weights and few dual variables."""

from longtail.methods.pd_sparse.estimator import PDSparse
from longtail.methods.pd_sparse.stages import STAGES

__all__ = ["STAGES", "PDSparse"]
