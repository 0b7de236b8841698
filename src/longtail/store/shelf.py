"""Shards of a model that is being made, on disk. A shard leaves the memory as soon as it is complete."""

from __future__ import annotations

from pathlib import Path

from longtail import folder
from longtail.models import LinearModel
from longtail.store import linear
from longtail.store.form import Form


class Shelf:
    """A folder of shards. The same training run writes the same bytes, so shards of an earlier attempt are replaced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def put(self, shard: LinearModel) -> LinearModel:
        """Write a shard with its index. Returns the same shard, memory-mapped."""
        place = self.root / f"{self.count:04d}"
        self.count += 1
        folder.write(place, folder.SHARD, linear.to_arrays(shard, place, Form(index=True))[0], {})
        arrays, _ = folder.read(place, folder.SHARD)
        where = place / folder.SHARD.manifest
        fields = linear.from_arrays(arrays, {}, shard.n_labels, shard.n_features, shard.bias, where)
        return LinearModel(**fields, n_features=shard.n_features)
