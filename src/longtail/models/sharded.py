"""A linear model in shards: ranges of labels, each with its own weights and index.

No array covers all weights. So a model can be written while it is trained, one shard at a time, and a model that is
larger than the memory can be opened memory-mapped. Every answer has the same bits as from a model in one piece: a
score depends on the weights of one label only, and the best labels of all shards are merged by the usual order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.hybrid import Rows
from longtail.matrix import LARGEST_INT32, csr_view
from longtail.models.base import FeaturePipeline
from longtail.models.batch import Batch, PlainBatch
from longtail.models.calibrator import Calibrator
from longtail.models.compact import CompactIndex, CompactModel
from longtail.models.dense import DenseWeights, HybridIndex
from longtail.models.index import InvertedIndex, canonical
from longtail.models.linear import LabelWeights, LinearModel
from longtail.models.rules import Rules
from longtail.models.thresholds import Thresholds
from longtail.topk import TopK

WEIGHT_BYTES = 8  # of a weight and its column
SHARD_BYTES = 512 * 1024**2  # weights of a shard; smaller models are in one piece
MAX_SHARDS = 256


@dataclass(frozen=True)
class ShardedModel(LabelWeights):
    """Shards in the order of their labels. Only the whole model has names, `normalize`, calibrator and rules."""

    shards: tuple[LinearModel | CompactModel, ...]
    n_features: int
    multiclass: bool = False
    label_names: np.ndarray | None = None
    feature_names: Sequence[str] | None = None
    text_features: FeaturePipeline | None = None
    normalize: bool = False
    calibrator: Calibrator | None = None
    thresholds: Thresholds | None = None
    rules: Rules | None = None

    def __post_init__(self) -> None:
        if not self.shards:
            raise InputError("a sharded model needs at least one shard")
        if {(shard.n_features, shard.bias) for shard in self.shards} != {(self.n_features, self.bias)}:
            raise InputError("the shards of a model must have its number of features and the same bias")
        self._check_names()
        self._check_decisions()

    @cached_property
    def starts(self) -> np.ndarray:
        """The first label of each shard, and the number of labels."""
        return np.concatenate([[0], np.cumsum([shard.n_labels for shard in self.shards])])

    @property
    def bias(self) -> float:  # type: ignore[override]
        return self.shards[0].bias

    @property
    def form(self) -> str:
        return self.shards[0].form

    @property
    def n_labels(self) -> int:
        return int(self.starts[-1])

    @property
    def n_weights(self) -> int:
        return sum(shard.n_weights for shard in self.shards)

    @property
    def weights_per_label(self) -> np.ndarray:
        return np.concatenate([shard.weights_per_label for shard in self.shards])

    @property
    def dense_columns(self) -> np.ndarray | None:
        return self.shards[0].dense_columns

    @property
    def W(self) -> sp.csr_array:  # noqa: N802 - as in LinearModel
        """The weights of all shards in one matrix, which is made in memory."""
        return sp.csr_array(sp.vstack([shard.W for shard in self.shards], format="csr"))

    @cached_property
    def index(self) -> ShardedIndex:
        offsets = None if self.rules is None else self.rules.offsets
        parts = []
        for shard, start in zip(self.shards, self.starts[:-1], strict=True):
            own = None if offsets is None else offsets[start : start + shard.n_labels]
            parts.append(shard.index if own is None else shard.indexed(own))
        return ShardedIndex(tuple(parts), self.starts)

    def scores(self, X: Rows, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of the given labels, which are column numbers: a float32 array of shape (rows, len(labels))."""
        X = self._rows(X)
        ids = self._label_ids(labels)
        scores = np.empty((X.shape[0], len(ids)), np.float32)
        for shard, own, places in self._shares_of(ids):
            scores[:, places] = shard.scores(X, own)
        if self.rules is not None:
            scores += self.rules.offsets[ids]
        return scores

    def all_weights(self) -> sp.csr_array:
        return sp.csr_array(sp.vstack([shard.all_weights() for shard in self.shards], format="csr"))

    def with_dense(self, columns: np.ndarray) -> ShardedModel:
        """The model with the weights of these features in dense arrays, if that pays in every shard."""
        shards: tuple[LinearModel | CompactModel, ...] = tuple(shard.with_dense(columns) for shard in self.shards)
        return replace(self, shards=shards) if all(shard.dense is not None for shard in shards) else self

    def _shares_of(self, ids: np.ndarray) -> list[tuple[LinearModel | CompactModel, np.ndarray, np.ndarray]]:
        """The shards of these labels, each with its own numbers of its labels, and their positions in `ids`."""
        number = shard_of(self.starts, ids)
        found = [(s, np.flatnonzero(number == s)) for s in np.unique(number)]
        return [(self.shards[s], ids[places] - self.starts[s], places) for s, places in found]

    def label_weights(self, label: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the features with a weight (in increasing order), their weights, and the bias term of every score."""
        number = int(shard_of(self.starts, np.array([label]))[0])
        return self.shards[number].label_weights(int(label - self.starts[number]))


def shard_of(starts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The number of the shard that has each label."""
    return np.searchsorted(starts, labels, side="right") - 1


@dataclass(frozen=True)
class ShardedIndex:
    """The indexes of all shards. Scores of labels do not depend on each other, so each shard is searched alone."""

    parts: tuple[InvertedIndex | CompactIndex | HybridIndex, ...]
    starts: np.ndarray

    @property
    def _firsts(self) -> np.ndarray:
        """The first label of each shard."""
        return self.starts[:-1].astype(np.int32)

    def top(self, X: Any, k: int) -> TopK:
        """The `min(k, n_labels)` best labels of every row of X.

        The labels of each shard are in the order of their rank, and shards are in the order of their labels. A stable
        sort by score therefore keeps labels of equal scores in the order of their columns.
        """
        found = [part.top(X, k) for part in self.parts]
        labels = np.concatenate([top.labels + first for top, first in zip(found, self._firsts, strict=True)], axis=1)
        scores = np.concatenate([top.scores for top in found], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return TopK(np.take_along_axis(labels, best, axis=1), np.take_along_axis(scores, best, axis=1))

    def above(self, X: Any, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """The labels that score more than `threshold`, as CSR `indices` (int32) and `indptr` (int64)."""
        found = [part.above(X, threshold) for part in self.parts]
        labels = np.concatenate([own + first for (own, _), first in zip(found, self._firsts, strict=True)])
        counts = np.stack([np.diff(ends) for _, ends in found])
        rows = np.concatenate([np.repeat(np.arange(X.shape[0]), own) for own in counts])
        ends = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
        return labels[np.argsort(rows, kind="stable")], ends

    def pairs(self, X: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The scores of some pairs of a row and a label."""
        scores = np.empty(len(labels), np.float32)
        number = shard_of(self.starts, labels)
        for s in np.unique(number):
            own = number == s
            scores[own] = self.parts[s].pairs(X, rows[own], labels[own] - self.starts[s])
        return scores

    def batch(self, X: Any) -> Batch:
        """These rows, to be searched and scored."""
        return PlainBatch(self, X)


# --- dividing --------------------------------------------------------------------------------------------------------


def shard_weights(shard_bytes: int | None) -> int:
    """The weights that a shard of this size may have."""
    wanted = (SHARD_BYTES if shard_bytes is None else shard_bytes) // WEIGHT_BYTES
    return max(1, min(wanted, LARGEST_INT32))


def dense_size(dense: DenseWeights | None) -> int:
    """The sparse weights that take as many bytes as the dense weights of a label."""
    return 0 if dense is None else -(-dense.weights.itemsize * dense.n_dense // WEIGHT_BYTES)


def cut(indptr: np.ndarray, most: int) -> list[int]:
    """The first row of each shard, and the number of rows. A shard has at most `most` weights, or one row.

    Each shard takes as many rows as fit. `most` is increased if there were too many shards.
    """
    most = max(most, 2 * int(indptr[-1]) // (MAX_SHARDS - 1) + 1)  # two neighbours have more than `most` together
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        start = cuts[-1]
        cuts.append(max(start + 1, int(np.searchsorted(indptr, indptr[start] + most, side="right")) - 1))
    return cuts


def divided(model: LinearModel, most: int) -> LinearModel | ShardedModel:
    """The model in shards of at most `most` weights, which share its memory. The model itself if one is enough."""
    indptr = model.W.indptr.astype(np.int64)
    cuts = cut(indptr + np.arange(len(indptr)) * dense_size(model.dense), most)
    if len(cuts) <= 2:
        return model
    W = canonical(model.W)
    shards = []
    for start, stop in pairwise(cuts):
        own = slice(indptr[start], indptr[stop])
        indices = W.indices[own].astype(np.int32, copy=False)
        ends = (indptr[start : stop + 1] - indptr[start]).astype(np.int32)
        rows = csr_view(W.data[own], indices, ends, (stop - start, W.shape[1]))
        dense = None if model.dense is None else model.dense[start:stop]
        shards.append(LinearModel(rows, model.n_features, model.bias, dense=dense))
    return ShardedModel(
        tuple(shards),
        model.n_features,
        multiclass=model.multiclass,
        label_names=model.label_names,
        feature_names=model.feature_names,
        text_features=model.text_features,
        normalize=model.normalize,
        calibrator=model.calibrator,
        thresholds=model.thresholds,
        rules=model.rules,
    )
