"""Fitted models: what prediction, saving and explaining need. They know nothing of how they were trained."""

from longtail.models.base import Explanation, Model
from longtail.models.hashed import HashedModel
from longtail.models.linear import LinearModel

__all__ = ["Explanation", "HashedModel", "LinearModel", "Model"]
