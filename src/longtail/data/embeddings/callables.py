"""An encoder from any Python function, and what stands in its place after loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from longtail.data.embeddings.base import ProbedEncoder, checked_vectors, stored_probe
from longtail.errors import InputError, ModelError

BATCH = 1024  # texts per call


class CallableEncoder(ProbedEncoder):
    """A function that takes a list of texts and returns an array with one row per text."""

    kind = "callable"

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.n_dims = checked_vectors(function(["longtail"]), 1, self.name).shape[1]

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        batches = [list(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        parts = [checked_vectors(self.function(batch), len(batch), self.name) for batch in batches]
        if any(part.shape[1] != self.n_dims for part in parts):
            raise InputError(f"the encoder {self.name} returned vectors of different lengths")
        return np.concatenate(parts) if parts else np.empty((0, self.n_dims), np.float32)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Mapping[str, Any], where: Path) -> Any:
        return MissingEncoder.from_arrays(arrays, meta, where)


class MissingEncoder(ProbedEncoder):
    """Stands for a function that a model folder cannot hold, until `TextFeatures.attach` brings it back."""

    kind = "missing"

    def __init__(self, name: str, probe: np.ndarray) -> None:
        self.name = name
        self.probe = probe
        self.n_dims = int(probe.shape[1])

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        raise InputError(
            f"the model was trained with the embeddings of the function {self.name}, which a model folder cannot hold; "
            "call model_.text_features.attach(function) first"
        )

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"encoder_probe": self.probe}, {"kind": CallableEncoder.kind, "name": self.name}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Mapping[str, Any], where: Path) -> Self:
        name = meta.get("name")
        if set(meta) != {"kind", "name"} or not isinstance(name, str):
            raise ModelError(where, "the encoder of the text features needs the members kind and name")
        return cls(name, stored_probe(arrays, where))
