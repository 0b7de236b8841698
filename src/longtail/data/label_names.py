"""Label names of a file against the names that are known: what is dropped, and what is probably a mistake."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longtail.data.lines import quoted
from longtail.errors import DataWarning, InputError

MAX_DROPPED = 0.05  # share of label uses that given label names may drop
SEPARATORS = (";", ",", "|", "\t")
JOINED = 0.1  # share of labels that hold such a sign, from which on it probably divides labels


def names_of(like: Any) -> list[str] | None:
    """The label names of `like`; None if its labels are just column numbers."""
    names = getattr(like, "label_names", None)
    if names is None or (np.asarray(names).dtype.kind in "iu" and np.array_equal(names, np.arange(like.n_labels))):
        return None
    return [str(name) for name in names]


def text_names_of(like: Any) -> list[str]:
    """The names of the labels of `like` in texts: column numbers count as their decimal names."""
    return names_of(like) or [str(label) for label in range(like.n_labels)]


def known_only(where: str, labels: list[list[str]], known: Sequence[str], *, limit: float) -> list[list[str]]:
    """`labels` without the unknown ones, with one DataWarning. InputError if they are more than `limit` of all uses."""
    names = set(known)
    unknown = Counter(name for row in labels for name in row if name not in names)
    if not unknown:
        return labels
    n_uses, n_unknown = sum(map(len, labels)), sum(unknown.values())
    if n_unknown > limit * n_uses:
        numbers = all(name.isdecimal() for name in unknown) and not any(name.isdecimal() for name in names)
        hint = "the labels are numbers and the names are not; " if numbers else ""
        some = ", ".join(repr(name[:40]) for name in known[:3])
        raise InputError(
            f"{where}: {n_unknown:,} of {n_uses:,} label uses are not among the {len(names):,} label names: found "
            f"{few_of(unknown)}, expected names such as {some}; {hint}leave out label_names (--label-names), correct "
            "them, or set drop_unknown (--drop-unknown)"
        )
    warn_unknown(where, unknown, n_uses, stacklevel=6)  # the line that called read
    return [[name for name in row if name in names] for row in labels]


def few_of(unknown: Mapping[str, int]) -> str:
    """The most frequent names, for a message."""
    most = sorted(unknown, key=lambda name: (-unknown[name], name))
    return ", ".join(repr(name[:40]) for name in most[:5]) + (", …" if len(most) > 5 else "")


def warn_unknown(where: str, unknown: Mapping[str, int], n_assigned: int, *, stacklevel: int) -> None:
    message = (
        f"{where}: {len(unknown)} unknown label(s) dropped, {sum(unknown.values())} of {n_assigned} uses: "
        f"{few_of(unknown)}"
    )
    warnings.warn(message, DataWarning, stacklevel=stacklevel)


def warn_if_joined(where: str, labels: list[list[str]]) -> None:
    """A DataWarning if rows have one label each, which looks like several ones joined by another sign."""
    if any(len(row) > 1 for row in labels):
        return
    uses = [row[0] for row in labels if row]
    names = set(uses)
    for sign in SEPARATORS:
        n_joined = sum(sign in name for name in uses)
        divided = {part.strip() for name in uses for part in name.split(sign)} - {""}
        if n_joined and n_joined >= JOINED * len(uses) and len(divided) < len(names):
            warnings.warn(
                f"{where}: no row has more than one label, but {n_joined:,} of {len(uses):,} contain {quoted(sign)}. "
                f"Divided there, they are {len(divided):,} labels in place of {len(names):,}; if that is meant, set "
                f"label_separator (--label-separator) to {quoted(sign)}",
                DataWarning,
                stacklevel=4,
            )
            return
