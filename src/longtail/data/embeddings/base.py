"""The base class of all encoders, and how a saved model recognises its encoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from longtail import content
from longtail.errors import InputError, ModelError

PROBE = ["longtail", "the classification of short texts into very many labels", "Äpfel, naïve façade, 数据"]
SAME = 0.999  # least cosine between the stored and the present vectors of PROBE; hardware changes the last digits
MAX_DIMS = 65536


class Encoder(ABC):
    """Turns texts into vectors.

    kind : its name in a model folder
    name : its name in explanations and errors
    n_dims : length of the vectors
    """

    kind: ClassVar[str]
    name: str
    n_dims: int

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return one vector per text: a float32 array of shape (len(texts), n_dims). A text without content is zero."""

    @abstractmethod
    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return what a model folder keeps of the encoder: arrays, whose names begin with `encoder_`, and JSON values.

        The values have the member `kind`.
        """

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Mapping[str, Any], where: Path) -> Self:
        """Rebuild the encoder. Raise ModelError about `where` if the values are damaged or do not fit."""


class ProbedEncoder(Encoder):
    """An encoder that stays outside of the model folder. The folder keeps its vectors of some texts, the probe.

    If the encoder that is present at prediction gives other vectors, the scores would be wrong without any sign of it.
    """

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"encoder_probe": self.encode(PROBE)}, {"kind": self.kind, "name": self.name}

    def check_probe(self, probe: np.ndarray) -> None:
        """Raise InputError unless the encoder gives the vectors `probe` for PROBE."""
        found = self.encode(PROBE)
        if found.shape != probe.shape:
            raise InputError(
                f"the encoder {self.name} makes {found.shape[1]} numbers per text, and the model was trained with "
                f"{probe.shape[1]}; use the encoder of the training"
            )
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(probe, axis=1)
        cosines = np.einsum("ij,ij->i", found, probe) / np.maximum(lengths, 1e-30)
        if cosines[lengths > 0].min(initial=1.0) < SAME:
            raise InputError(
                f"the encoder {self.name} differs from the one of the training (cosine {cosines.min():.3f} on the same "
                "texts); use the encoder of the training, or train again"
            )


def stored_probe(arrays: dict[str, np.ndarray], where: Path) -> np.ndarray:
    """The vectors of PROBE in a model folder, after checks."""
    probe = content.take(arrays, "encoder_probe", "<f4", 2, where)
    if len(probe) != len(PROBE) or not 1 <= probe.shape[1] <= MAX_DIMS or not np.isfinite(probe).all():
        raise ModelError(where, f"encoder_probe must hold {len(PROBE)} finite vectors of at most {MAX_DIMS} numbers")
    return probe


def checked_vectors(vectors: Any, n_texts: int, name: str) -> np.ndarray:
    """The vectors that foreign code returned, as a float32 array. Raise InputError if they are not one per text."""
    try:
        array = np.asarray(vectors, np.float32)
    except (TypeError, ValueError):
        raise InputError(f"the encoder {name} returned {type(vectors).__name__}, not an array of numbers") from None
    if array.ndim != 2 or len(array) != n_texts or not 1 <= array.shape[1] <= MAX_DIMS:
        raise InputError(
            f"the encoder {name} returned an array of shape {array.shape} for {n_texts} texts; one row per text is "
            "needed"
        )
    if not np.isfinite(array).all():
        raise InputError(f"the encoder {name} returned NaN or infinity")
    return np.ascontiguousarray(array)
