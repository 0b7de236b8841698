"""Fitted models. They hold what prediction, saving and explaining need, and do not depend on the training code."""

from longtail.models.base import Explanation, Model
from longtail.models.calibrator import Calibrator
from longtail.models.compact import CompactModel
from longtail.models.ensemble import EnsembleModel
from longtail.models.hashed import HashedModel
from longtail.models.linear import LabelWeights, LinearModel
from longtail.models.mixture import Mixture
from longtail.models.rules import Rules
from longtail.models.sharded import ShardedModel
from longtail.models.thresholds import Thresholds

__all__ = [
    "Calibrator",
    "CompactModel",
    "EnsembleModel",
    "Explanation",
    "HashedModel",
    "LabelWeights",
    "LinearModel",
    "Mixture",
    "Model",
    "Rules",
    "ShardedModel",
    "Thresholds",
]
