"""What a parameter that is left at None means: the one home of these defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Parameters of Memoir that a preset decides; their meaning is told there. batch_size 0 stands for 100 sqrt(C)."""

    lam: float
    eta0: float
    schedule: str
    batch_size: int
    passes: float
    max_iter: int
    project: bool
    bias: float
    n_groups: int
    augment: bool
    prune: float
    truncate_every: int


# What works, chosen on held-out rows of wordnet-hypernym; docs/methods/memoir.md has the figures.
DEFAULT = Settings(
    lam=0.0, eta0=0.5, schedule="linear", batch_size=64, passes=6.0, max_iter=0, project=False, bias=0.3, n_groups=4,
    augment=False, prune=0.0, truncate_every=64,
)  # fmt: skip
# Table 4 of the paper, and its algorithm as written.
PAPER = Settings(
    lam=1.0, eta0=0.1, schedule="inverse", batch_size=0, passes=0.0, max_iter=25, project=True, bias=0.0, n_groups=1,
    augment=True, prune=0.0, truncate_every=1,
)  # fmt: skip

PRESETS = {
    ("default", "l2"): DEFAULT,
    ("default", "l1"): replace(DEFAULT, lam=1e-6, prune=0.1),
    ("paper", "l2"): PAPER,
    ("paper", "l1"): replace(PAPER, lam=1e-6),
}
NAMES = ("default", "paper")


def settings_of(owner: Any) -> Settings:
    """The preset of an estimator with the parameters that were given in place of its own."""
    given = {field.name: getattr(owner, field.name) for field in fields(Settings)}
    chosen = {name: value for name, value in given.items() if value is not None}
    if "passes" in chosen and "max_iter" not in chosen:
        chosen["max_iter"] = 0  # the one that was given counts
    return replace(PRESETS[owner.preset, owner.penalty], **chosen)
