"""The dense part of text features: the vectors of an encoder, centred, with one length.

    z = scale (e - c) / |e - c|

e is the vector of a text and c the mean of the training texts. The columns of words have length 1, so `scale` is the
weight of meaning against words. A text whose vector is zero, such as an empty text, has z = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longtail import content
from longtail.data.embeddings.base import Encoder
from longtail.errors import ModelError


class DensePart:
    """An encoder with its centre, which is learned from the vectors of a few texts at a time."""

    def __init__(self, encoder: Encoder, scale: float, centre: np.ndarray | None = None) -> None:
        self.encoder = encoder
        self.scale = scale
        self.centre = np.zeros(encoder.n_dims, np.float32) if centre is None else centre
        self._total = np.zeros(encoder.n_dims)
        self._n_texts = 0

    def learn(self, vectors: np.ndarray) -> np.ndarray:
        """Count the vectors of some training texts for the centre, and return them."""
        used = vectors.any(axis=1)
        self._total += vectors[used].sum(axis=0, dtype=np.float64)
        self._n_texts += int(used.sum())
        self.centre = (self._total / max(self._n_texts, 1)).astype(np.float32)
        return vectors

    def columns(self, vectors: np.ndarray) -> np.ndarray:
        """Return the columns z of these vectors."""
        used = vectors.any(axis=1, keepdims=True)
        centred = np.where(used, vectors - self.centre, np.float32(0))
        lengths = np.sqrt(np.einsum("ij,ij->i", centred, centred, dtype=np.float64))
        lengths[lengths == 0] = 1.0
        return np.asarray(centred * (self.scale / lengths).astype(np.float32)[:, None])

    def transform(self, texts: list[str]) -> np.ndarray:
        return self.columns(self.encoder.encode(texts))

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, meta = self.encoder.to_arrays()
        return {**arrays, "encoder_centre": self.centre}, meta

    @classmethod
    def from_arrays(cls, encoder: Encoder, arrays: Mapping[str, np.ndarray], scale: float, where: Path) -> DensePart:
        centre = content.take(dict(arrays), "encoder_centre", "<f4", 1, where)
        if len(centre) != encoder.n_dims or not np.isfinite(centre).all():
            raise ModelError(where, f"encoder_centre must hold {encoder.n_dims} finite numbers")
        return cls(encoder, scale, centre)
