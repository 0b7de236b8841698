"""Conversion of a ShardedModel to arrays and back: the arrays of every shard, with a prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from longtail.errors import ModelError
from longtail.matrix import MAX_COLUMNS
from longtail.models import CompactModel, ShardedModel
from longtail.models.sharded import MAX_SHARDS
from longtail.store import compact, linear
from longtail.store.form import Form
from longtail.store.meta import member

MODEL = ShardedModel
_OF_SHARD = re.compile(r"shard(\d{1,3})_(\w+)", re.ASCII)


def to_arrays(model: ShardedModel, root: Path, form: Form) -> tuple[Iterator[tuple[str, np.ndarray]], dict[str, Any]]:
    """Return the arrays of the model, one shard after the other, and its metadata."""
    if len(model.shards) > MAX_SHARDS:
        raise ModelError(root, f"{len(model.shards)} shards are more than {MAX_SHARDS}; save it in larger shards")

    def made() -> Iterator[tuple[str, np.ndarray]]:
        for number, shard in enumerate(model.shards):
            stored = form.of(shard)  # one shard at a time is in memory
            room: Any = compact if isinstance(stored, CompactModel) else linear
            for name, array in room.to_arrays(stored, root, form)[0]:
                yield f"shard{number}_{name}", array

    return made(), {"shards": [shard.n_labels for shard in model.shards]}


def from_arrays(
    arrays: dict[str, np.ndarray], meta: dict[str, Any], n_labels: int, n_features: int, bias: float, where: Path
) -> dict[str, Any]:
    """Return the shards, after checks."""
    sizes = member(meta, "shards", list, where)
    if not 1 <= len(sizes) <= MAX_SHARDS or not all(type(size) is int and 0 <= size <= MAX_COLUMNS for size in sizes):
        raise ModelError(where, f"shards must be a list of 1 to {MAX_SHARDS} numbers of labels")
    if sum(sizes) != n_labels:
        raise ModelError(where, f"the shards have {sum(sizes):,} labels, but the model has {n_labels:,}")
    own: list[dict[str, np.ndarray]] = [{} for _ in sizes]
    for name, array in arrays.items():
        match = _OF_SHARD.fullmatch(name)
        if match and int(match[1]) < len(sizes) and match[1] == str(int(match[1])):
            own[int(match[1])][match[2]] = array
    shards = []
    for size, mine in zip(sizes, own, strict=True):
        room: Any = compact if any(name.startswith(compact.PREFIX) for name in mine) else linear
        fields = room.from_arrays(mine, {}, size, n_features, bias, where)
        shards.append(room.MODEL(**fields, n_features=n_features))
    return {"shards": tuple(shards)}
