"""Sentence embeddings of a sentence-transformers model, which is found by its name or in a folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from longtail.data.embeddings.base import ProbedEncoder, checked_vectors, stored_probe
from longtail.errors import InputError, ModelError

MANY = 1000  # texts from which on a terminal shows a progress bar


class SentenceEncoder(ProbedEncoder):
    """A model of sentence-transformers. It is loaded at its first use, and must be there at prediction, too."""

    kind = "sentence-transformers"

    def __init__(self, name: str, probe: np.ndarray | None = None) -> None:
        self.name = name
        self._probe = probe
        self._model: Any = None
        self.n_dims = int(self.model.get_sentence_embedding_dimension()) if probe is None else int(probe.shape[1])

    @property
    def model(self) -> Any:
        if self._model is None:
            self._model = _loaded(self.name)
            if self._probe is not None:
                self.check_probe(self._probe)
        return self._model

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        show = len(texts) >= MANY and sys.stderr.isatty()
        vectors = self.model.encode(list(texts), convert_to_numpy=True, show_progress_bar=show)
        return (
            checked_vectors(np.reshape(vectors, (len(texts), -1)), len(texts), self.name)
            if len(texts)
            else (np.empty((0, self.n_dims), np.float32))
        )

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Mapping[str, Any], where: Path) -> Self:
        name = meta.get("name")
        if set(meta) != {"kind", "name"} or not isinstance(name, str):
            raise ModelError(where, "the encoder of the text features needs the members kind and name")
        return cls(name, stored_probe(arrays, where))


def _loaded(name: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise InputError(
            f"the embeddings {name!r} are neither a folder with a table of token vectors (tokenizer.json and "
            "model.safetensors) nor can they be read by sentence-transformers, which is not installed: pip install "
            "sentence-transformers"
        ) from None
    try:
        return SentenceTransformer(name)
    except Exception as error:  # it raises many kinds, and each means that there is no such model
        found = " ".join(str(error).split())[:200]
        raise InputError(f"sentence-transformers cannot load {name!r}: {found}") from None
