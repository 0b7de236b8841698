"""Chooses a method and its main parameters on held-out rows, within a time budget; and the scale of embeddings."""

from longtail.tuning.embedding_scale import choose_embedding_scale
from longtail.tuning.search import tune
from longtail.tuning.trials import Trial, Tuning

__all__ = ["Trial", "Tuning", "choose_embedding_scale", "tune"]
