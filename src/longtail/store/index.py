"""Conversion of the lists of a linear model's index to arrays and back (models/index.py).

The lists can be made again from W, so they are optional. A model folder has them if W is large: processes that open the
folder then share one memory-mapped copy, and none of them has to make the lists.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from longtail import content, matrix
from longtail.errors import ModelError
from longtail.models import EnsembleModel, LinearModel, Model, ShardedModel
from longtail.models.index import FeatureLists, width_of

PREFIX = "index_"

# the fields of FeatureLists, and their types in a folder
TYPES = {
    "weights": "<f4",
    "labels": "<i4",
    "ends": "<i8",
    "codes": "|u1",
    "column_of": "<i4",
    "steps": "<f4",
    "spill_weights": "<f4",
    "spill_labels": "<i4",
    "spill_ends": "<i8",
    "peaks": "<f4",
}


def verify(model: Model, where: Path) -> int:
    """Raise ModelError if a stored index is not the one of its weights. Returns the number of indexes compared.

    Loading a folder checks only that an index is safe to use. The comparison makes every index again, which takes the
    memory of the largest.
    """
    if isinstance(model, EnsembleModel):
        return sum(verify(member, where) for member in model.members)
    if isinstance(model, ShardedModel):
        return sum(verify(shard, where) for shard in model.shards)
    if not isinstance(model, LinearModel) or model.stored is None:
        return 0
    made = FeatureLists.of(model.W, model.n_features)
    for name, mine, wanted in zip(made._fields, model.stored.lists, made, strict=True):
        if not np.array_equal(mine, wanted):
            raise ModelError(where, f"{PREFIX}{name} does not belong to the weights; save the model again")
    return 1


def to_arrays(lists: FeatureLists) -> dict[str, np.ndarray]:
    return {PREFIX + name: array.view(TYPES[name]) for name, array in lists._asdict().items()}


def from_arrays(
    arrays: dict[str, np.ndarray], n_weights: int, shape: tuple[int, int], n_features: int, where: Path
) -> FeatureLists | None:
    """The lists of a W of this shape, after checks. None if the folder has none."""
    if not any(name.startswith(PREFIX) for name in arrays):
        return None
    found = {}
    for name, dtype in TYPES.items():
        found[name] = content.take(arrays, PREFIX + name, dtype, 2 if name == "codes" else 1, where)
    _check(found, n_weights, shape, n_features, where)
    return FeatureLists.from_arrays(found)


def _check(found: dict[str, np.ndarray], n_weights: int, shape: tuple[int, int], n_features: int, where: Path) -> None:
    """Raise ModelError if the kernels would read outside of an array."""
    n_labels, n_columns = shape[0], len(found["codes"])
    lengths = {
        "weights": n_weights,
        "labels": n_weights,
        "column_of": n_features,
        "peaks": n_features,
        "steps": n_columns,
        "spill_weights": len(found["spill_labels"]),
    }
    for name, length in lengths.items():
        if len(found[name]) != length:
            raise ModelError(where, f"{PREFIX}{name} has {len(found[name]):,} numbers, not {length:,}")
    if found["codes"].shape[1] != width_of(n_labels):
        raise ModelError(where, f"{PREFIX}codes has {found['codes'].shape[1]:,} columns for {n_labels:,} labels")
    faults = (
        matrix.pointer_fault(found["ends"], shape[1], n_weights, name=PREFIX + "ends"),
        matrix.pointer_fault(found["spill_ends"], n_columns, len(found["spill_labels"]), name=PREFIX + "spill_ends"),
        matrix.index_fault(found["labels"], n_labels, name=PREFIX + "labels"),
        matrix.index_fault(found["spill_labels"], n_labels, name=PREFIX + "spill_labels"),
        matrix.index_fault(found["column_of"], n_columns + 1, name=PREFIX + "column_of"),
    )
    for fault in faults:
        if fault is not None:
            raise ModelError(where, fault)
