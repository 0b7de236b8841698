"""Embeddings that were computed elsewhere: every call that reads texts brings their vectors along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from longtail.data.embeddings.base import MAX_DIMS, Encoder
from longtail.errors import InputError, ModelError


class GivenVectors(Encoder):
    """Takes the place of an unknown encoder. It cannot encode texts, but knows the length of the vectors."""

    kind = "given"
    name = "given embeddings"

    def __init__(self, n_dims: int) -> None:
        self.n_dims = n_dims

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        raise InputError(
            f"the model was trained with embeddings that were computed elsewhere, {self.n_dims} numbers per text; give "
            "those of these texts, too, with dense (--dense FILE)"
        )

    def check(self, vectors: np.ndarray, n_texts: int) -> np.ndarray:
        """Return the vectors of `n_texts` texts in float32. Raise InputError if they do not fit."""
        if vectors.shape != (n_texts, self.n_dims):
            raise InputError(
                f"the embeddings have shape {vectors.shape}, but {n_texts} texts with {self.n_dims} numbers each are "
                "needed"
            )
        return np.asarray(vectors, np.float32)

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {}, {"kind": self.kind, "n_dims": self.n_dims}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Mapping[str, Any], where: Path) -> Self:
        n_dims = meta.get("n_dims")
        if set(meta) != {"kind", "n_dims"} or type(n_dims) is not int or not 1 <= n_dims <= MAX_DIMS:
            raise ModelError(where, f"given embeddings need the member n_dims, from 1 to {MAX_DIMS}")
        return cls(n_dims)
