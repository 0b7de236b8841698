"""Presets: the values for parameters that are None, and the parameters after these values were filled in."""

from __future__ import annotations

import typing
from dataclasses import dataclass, fields
from typing import Any

from longtail.methods import spec
from longtail.methods.memoir import oracles, schedules

# Chosen on held-out rows of wordnet-hypernym; docs/methods/memoir.md has the figures.
DEFAULT: dict[str, Any] = {
    "lam": 0.0,
    "learning_rate": 0.5,
    "schedule": "linear",
    "batch_size": 64,
    "max_iter": 6,
    "n_batches": 0,
    "project": False,
    "bias": 0.3,
    "n_groups": 4,
    "augment": False,
    "prune": 0.0,
    "truncate_every": 64,
}
# The algorithm of the paper as written, with the settings of its Table 4.
PAPER: dict[str, Any] = {
    "lam": 1.0,
    "learning_rate": 0.1,
    "schedule": "inverse:step=0.02",
    "batch_size": 0,
    "max_iter": 0,
    "n_batches": 25,
    "project": True,
    "bias": 0.0,
    "n_groups": 1,
    "augment": True,
    "prune": 0.0,
    "truncate_every": 1,
}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {  # preset -> penalty -> values
    "default": {"l2": DEFAULT, "l1": {**DEFAULT, "lam": 1e-6, "prune": 0.1}},
    "paper": {"l2": PAPER, "l1": {**PAPER, "lam": 1e-6}},
}


@dataclass(frozen=True)
class Parameters:
    """The parameters of `Memoir` after None was replaced. The docstring of `Memoir` explains them."""

    penalty: str
    oracle: str  # with all options
    preset: str
    lam: float
    learning_rate: float
    schedule: str  # with all options
    batch_size: int  # 0: 100 times the square root of the number of classes
    max_iter: int
    n_batches: int  # 0: the number of batches in max_iter passes
    project: bool
    bias: float
    n_groups: int
    prune: float
    truncate_every: int
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int


def resolve(estimator: Any) -> Parameters:
    """Return the parameters of an estimator. Its preset gives the values of those that are None."""
    types = typing.get_type_hints(Parameters)
    given = {field.name: getattr(estimator, field.name) for field in fields(Parameters)}
    given = {name: value for name, value in given.items() if value is not None}
    if "max_iter" in given:
        given = {"n_batches": 0, **given}  # max_iter was given, so it replaces the preset's n_batches
    values = {**PRESETS[estimator.preset][estimator.penalty], **given}
    name, options = oracles.parse(values["oracle"])
    augment = values.pop("augment")
    if options.get("augment", augment) is None:
        options["augment"] = augment
    values["oracle"] = spec.to_text(name, options)
    values["schedule"] = str(schedules.parse(values["schedule"]))
    return Parameters(**{name: types[name](value) for name, value in values.items()})
