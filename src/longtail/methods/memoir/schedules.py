"""Schedules of the learning rate: "linear", or "inverse" with an option, as in "inverse:step=0.02"."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from longtail.errors import InputError
from longtail.methods import spec

WHERE = "The 'schedule' parameter of Memoir"


class Schedule(ABC):
    """A rule for the learning rate of each batch."""

    @abstractmethod
    def rate(self, first: float, t: int, n_batches: int) -> float:
        """The learning rate of batch t (from 0) of n_batches, if the parameter `learning_rate` is `first`."""


class Linear(Schedule):
    """The rate decreases linearly. It would be 0 in the batch after the last one."""

    def rate(self, first: float, t: int, n_batches: int) -> float:
        return first * (1.0 - t / n_batches)

    def __str__(self) -> str:
        return "linear"


class Inverse(Schedule):
    """first / (1 + step t). As in the paper, t counts from 1 here."""

    def __init__(self, *, step: float = 0.02) -> None:
        if step < 0:
            raise InputError(f"{WHERE}: the option 'step' must be at least 0. Got {step!r} instead.")
        self.step = step

    def rate(self, first: float, t: int, n_batches: int) -> float:
        return first / (1.0 + self.step * (t + 1))

    def __str__(self) -> str:
        return spec.to_text("inverse", {"step": self.step})


SCHEDULES: dict[str, type[Schedule]] = {"linear": Linear, "inverse": Inverse}


def parse(text: Any) -> Schedule:
    """Return the schedule that `text` names. Raise InputError if there is none."""
    name, options = spec.parse(text, SCHEDULES, WHERE)
    return SCHEDULES[name](**options)
