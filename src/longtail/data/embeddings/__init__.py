"""Encoders: they turn texts into vectors, which `TextFeatures` puts beside the columns of words.

folder with tokenizer.json and model.safetensors    StaticEncoder: one vector per token, averaged; no torch
"wordllama"                                         StaticEncoder: the table of this package
name or folder of a sentence-transformers model     SentenceEncoder
any callable, texts -> array                        CallableEncoder
vectors that were computed elsewhere                GivenVectors
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.embeddings.base import Encoder
from longtail.data.embeddings.callables import CallableEncoder, MissingEncoder
from longtail.data.embeddings.given import GivenVectors
from longtail.data.embeddings.part import DensePart
from longtail.data.embeddings.sentences import SentenceEncoder
from longtail.data.embeddings.static import PACKAGED, StaticEncoder
from longtail.errors import InputError, ModelError

__all__ = [
    "CallableEncoder",
    "DensePart",
    "Encoder",
    "GivenVectors",
    "MissingEncoder",
    "StaticEncoder",
    "encoder",
    "from_arrays",
]

KINDS: dict[str, type[Encoder]] = {
    kind.kind: kind for kind in (StaticEncoder, SentenceEncoder, CallableEncoder, MissingEncoder, GivenVectors)
}


def encoder(source: Any) -> Encoder:
    """The encoder that `source` stands for: see the table above. An Encoder is returned as it is."""
    if isinstance(source, Encoder):
        return source
    if callable(source):
        return CallableEncoder(source)
    if not isinstance(source, str | Path):
        raise InputError(
            "The 'embeddings' parameter of TextFeatures must be a folder, the name of a sentence-transformers model or "
            f"a callable. Got {type(source).__name__} instead."
        )
    if str(source) == PACKAGED and not Path(source).exists():
        return StaticEncoder.packaged()
    return StaticEncoder.open(Path(source)) if StaticEncoder.is_there(Path(source)) else SentenceEncoder(str(source))


def from_arrays(arrays: dict[str, np.ndarray], meta: Any, where: Path) -> Encoder:
    """Rebuild an encoder from what its `to_arrays` returned. Raise ModelError about `where` if that is damaged."""
    if not isinstance(meta, Mapping) or meta.get("kind") not in KINDS:
        raise ModelError(where, f"the encoder of the text features must be of a kind among {', '.join(KINDS)}")
    return KINDS[meta["kind"]].from_arrays(arrays, meta, where)
