"""The form in which the weights of a linear model are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.errors import InputError
from longtail.models import Model
from longtail.models.compact import FORMS, compacted
from longtail.models.compact_weights import half_bytes
from longtail.models.sharded import SHARD_BYTES, WEIGHT_BYTES

STORED_FROM = 1 << 20  # weights; smaller models are stored plainly, and their index is made in milliseconds


@dataclass(frozen=True)
class Form:
    """How weights are stored.

    weights : one of FORMS; None means "half" if the model is large, nothing is lost, and `index` is not given
    index : whether float32 weights are stored with the lists of their index; None means if there are many
    """

    weights: str | None = None
    index: bool | None = None

    def check(self) -> None:
        if self.weights is not None and self.weights not in FORMS:
            raise InputError(f"weights must be {', '.join(map(repr, FORMS))} or None, but is {self.weights!r}")

    def of(self, model: Model) -> Any:
        """Return a linear model in one piece in this form. Any other model is returned as it is."""
        if self.weights is None and self.index is not None:
            return model
        return compacted(model, self.weights, least=STORED_FROM)


def stored_bytes(counts: np.ndarray, n_labels: int, *, half: bool) -> float:
    """The expected bytes of the weights in a folder, without an index, if feature j has weights for counts[j] labels.

    The labels are taken as drawn at random.
    half : whether half precision holds the weights exactly
    """
    n_bytes = WEIGHT_BYTES * float(counts.sum())
    n_shards = max(1, -(-int(n_bytes) // SHARD_BYTES))
    if half and n_bytes >= n_shards * WEIGHT_BYTES * STORED_FROM:
        return n_shards * half_bytes(counts / n_shards, -(-n_labels // n_shards))
    return n_bytes + 8 * n_labels
