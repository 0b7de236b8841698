"""The parameters of Memoir: the library's choice for those that are None, the paper's values, and the resolved form."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from longtail.errors import InputError
from longtail.methods import spec
from longtail.methods.memoir import oracles, schedules

# Chosen on held-out rows of wordnet-hypernym; docs/methods/memoir.md has the figures.
CHOICES: dict[str, Any] = {
    "lam": 0.0,
    "rho": 1.0,
    "learning_rate": 0.5,
    "schedule": "linear",
    "batch_size": 64,
    "refresh": 0,
    "max_iter": 6,
    "n_batches": 0,
    "project": False,
    "average": False,
    "bias": 0.3,
    "n_groups": 4,
    "prune": 0.0,
    "truncate_every": 64,
    "truncate_limit": 1.0,
}
CHOICES_L1: dict[str, Any] = {**CHOICES, "lam": 1e-6, "prune": 0.1}

# Algorithms 1 and 2 as written, with the settings of the paper's Table 4. The paper says that truncation is done where
# the norm of what it removes is "sufficiently small", without a number; a tenth is our reading.
PAPER: dict[str, Any] = {
    "lam": 1.0,
    "rho": 1.0,
    "learning_rate": 0.1,
    "schedule": "inverse:step=0.02",
    "batch_size": "root:factor=100",
    "refresh": 1,
    "n_batches": 25,
    "project": True,
    "average": False,
    "bias": 0.0,
    "n_groups": 1,
    "prune": 0.0,
    "truncate_every": 1,
    "truncate_limit": 0.1,
}
PAPER_L1: dict[str, Any] = {**PAPER, "lam": 1e-6}
# The oracles without our additions. The paper gives the length of a code, and nothing else.
PAPER_ORACLES: dict[str, dict[str, Any]] = {
    "exact": {},
    "sw-graph": {"links": 10, "beam": 10, "drift": 0.0, "likely": False},
    "simple-lsh": {"bits": 64, "tables": 4, "augment": True, "likely": False},
}


@dataclass(frozen=True)
class Parameters:
    """The parameters of `Memoir` after None was replaced. The docstring of `Memoir` explains them."""

    penalty: str
    oracle: str  # with all options
    lam: float
    rho: float
    learning_rate: float
    schedule: str  # with all options
    batch_size: str  # a number, or "root:factor=100"
    refresh: int  # 0: once per batch
    max_iter: int
    n_batches: int  # 0: the number of batches in max_iter passes
    project: bool
    average: bool
    bias: float
    n_groups: int
    prune: float
    truncate_every: int
    truncate_limit: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int


def resolve(estimator: Any) -> Parameters:
    """Return the parameters of an estimator, with the library's choice for those that are None."""
    types = typing.get_type_hints(Parameters)
    given = {field.name: getattr(estimator, field.name) for field in fields(Parameters)}
    values = dict(CHOICES_L1 if estimator.penalty == "l1" else CHOICES)
    values |= {name: value for name, value in given.items() if value is not None}
    values["oracle"] = spec.to_text(*oracles.parse(values["oracle"]))
    values["schedule"] = str(schedules.parse(values["schedule"]))
    return Parameters(**{name: types[name](value) for name, value in values.items()})


def of_paper(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the paper's parameters, with `given` in place of single ones.

    A penalty that is given brings its own lam, an oracle its own options, and max_iter replaces n_batches.
    """
    name, colon, options = str(given.get("oracle", "sw-graph")).partition(":")
    own = spec.to_text(name, PAPER_ORACLES.get(name, {}))
    if colon:
        own = f"{own}{',' if ':' in own else ':'}{options}"  # the last of two values of an option counts
    values = {**(PAPER_L1 if given.get("penalty") == "l1" else PAPER), **given, "oracle": own}
    if given.get("max_iter") is not None and "n_batches" not in given:
        del values["n_batches"]
    return values


# --- batch size ------------------------------------------------------------------------------------------------------

WHERE = "The 'batch_size' parameter of Memoir"


def root(*, factor: float = 100.0) -> float:
    """The batch size that is `factor` times the square root of the number of classes."""
    if factor <= 0:
        raise InputError(f"{WHERE}: the option 'factor' must be above 0. Got {factor!r} instead.")
    return factor


def rows_per_batch(batch_size: str, n_classes: int) -> int:
    """Return the number of rows of a batch: a number, or a multiple of the root of the number of classes."""
    if batch_size.isdecimal() and int(batch_size):
        return int(batch_size)
    _, options = spec.parse(batch_size, {"root": root}, WHERE)
    return math.ceil(root(**options) * math.sqrt(n_classes))
