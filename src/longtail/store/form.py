"""The form in which the weights of a linear model are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from longtail.errors import InputError
from longtail.models import Model
from longtail.models.compact import FORMS, compacted

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
        """A linear model in one piece in this form, and any other model as it is."""
        if self.weights is None and self.index is not None:
            return model
        return compacted(model, self.weights, least=STORED_FROM)
