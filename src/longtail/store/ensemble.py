"""Conversion of an EnsembleModel to arrays and back: the arrays of every member, with a prefix, and the mixture.

Folders of earlier versions hold `member_weights` and an intercept instead of a mixture: (2) of models/mixture.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from longtail import content
from longtail.errors import InputError, ModelError
from longtail.models import EnsembleModel, Mixture, Model
from longtail.store import compact, decisions, hashed, linear, sharded
from longtail.store.form import Form
from longtail.store.meta import member

MODEL = EnsembleModel
MEMBER_KINDS: dict[str, Any] = {"linear": linear, "compact": compact, "sharded": sharded, "hashed": hashed}
MAX_MEMBERS = 16
LINES = ("intercept", "margin", "rank", "best")  # the coefficients of a mixture


def to_arrays(model: EnsembleModel, root: Path, form: Form) -> tuple[Iterator[tuple[str, np.ndarray]], dict[str, Any]]:
    """Return the arrays of the model and its metadata."""
    mixture = model.mixture
    own = {f"mixture_{name}": getattr(mixture, name).astype(np.float64) for name in ("knots", *LINES)}
    if mixture.curved is not None:
        own = {"member_weights": mixture.curved.astype(np.float64)}
    if model.knots is not None and model.values is not None:
        own |= {"ensemble_knots": model.knots.astype(np.float64), "ensemble_values": model.values.astype(np.float64)}
    parts: list[Iterator[tuple[str, np.ndarray]]] = [iter(own.items())]
    members = []
    for number, given in enumerate(model.members):
        each = form.of(given)
        kind = next((name for name, room in MEMBER_KINDS.items() if isinstance(each, room.MODEL)), None)
        if kind is None:
            raise ModelError(root, f"cannot save a {type(each).__name__} as member of an ensemble")
        trained, about = MEMBER_KINDS[kind].to_arrays(each, root, form)
        decided, more = decisions.to_arrays(each)
        parts.append(_prefixed(number, chain(trained, decided.items())))
        members.append({"model": kind, "bias": float(each.bias), "normalize": each.normalize, **about, **more})
    meta = {"members": members, "depth": int(model.depth)}
    if mixture.curved is not None:
        meta["intercept"] = float(mixture.shift)
    return chain.from_iterable(parts), meta


def from_arrays(
    arrays: dict[str, np.ndarray], meta: dict[str, Any], n_labels: int, n_features: int, bias: float, where: Path
) -> dict[str, Any]:
    """Return the members and weights, after checks."""
    described = member(meta, "members", list, where)
    if not 1 <= len(described) <= MAX_MEMBERS or not all(isinstance(each, dict) for each in described):
        raise ModelError(where, f"members must be a list of 1 to {MAX_MEMBERS} descriptions")
    members = []
    for number, about in enumerate(described):
        kind = member(about, "model", str, where)
        own_bias = member(about, "bias", float, where)
        if kind not in MEMBER_KINDS or not 0 <= own_bias < np.inf:
            raise ModelError(where, f"member {number} of the ensemble is of a kind that this version lacks")
        prefix = _name(number, "")
        own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        fields = MEMBER_KINDS[kind].from_arrays(own, about, n_labels, n_features, own_bias, where)
        decided = decisions.from_arrays(own, about, n_labels, where)
        normalize = member(about, "normalize", bool, where)
        members.append(MEMBER_KINDS[kind].MODEL(**fields, **decided, n_features=n_features, normalize=normalize))
    found: dict[str, Any] = {
        "members": tuple(members),
        "depth": member(meta, "depth", int, where),
    }
    for name in ("knots", "values"):
        if f"ensemble_{name}" in arrays:
            found[name] = content.take(arrays, f"ensemble_{name}", "<f8", 1, where)
    try:
        found["mixture"] = _mixture(arrays, meta, members, where)
        EnsembleModel(**found, n_features=n_features)
    except InputError as error:
        raise ModelError(where, str(error)) from None
    return found


def _mixture(arrays: dict[str, np.ndarray], meta: dict[str, Any], members: list[Model], where: Path) -> Mixture:
    if "mixture_knots" in arrays:
        a, w, r, b = (content.take(arrays, f"mixture_{name}", "<f8", 2, where) for name in LINES)
        return Mixture(content.take(arrays, "mixture_knots", "<f8", 1, where), a, w, r, b)
    weights = content.take(arrays, "member_weights", "<f8", 1, where)
    calibrators = [each.calibrator for each in members if each.calibrator is not None]
    return Mixture.calibrated(calibrators, weights, member(meta, "intercept", float, where))


def _prefixed(number: int, arrays: Iterable[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    return ((_name(number, name), array) for name, array in arrays)


def _name(number: int, name: str) -> str:
    return f"member{number}_{name}"
