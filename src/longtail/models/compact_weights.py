"""Weights of a linear model in a compact form: by feature, in half precision or 8 bits, with label numbers of one byte.

compact_kernels.py explains columns and lists. In half precision nothing is lost if the weights are half-precision
numbers, as those of the dual solver of one-vs-all are (methods/one_vs_all/panel.py). In 8 bits a weight is a whole
number of steps, at most 127; every feature has its own step, so a weight changes by at most 1/254 of the largest weight
of its feature. The weights of the bias are float32 in both forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.compiled import frozen
from longtail.errors import InputError
from longtail.matrix import ENTRIES_AT_ONCE, LARGEST_INT32, canonical_csr
from longtail.models.index import width_of

HALF, EIGHT_BIT = "half", "8-bit"
LARGEST_CODE = 127
LARGEST_GAP = 255
WEIGHTS_AT_ONCE = 1 << 19  # that are packed together; packing takes some 80 bytes for each of them
COLUMN_SHARE = 6  # a feature with weights for more than L / COLUMN_SHARE labels gets a column
SMALLEST_STEP = 1e-37  # smaller weights vanish in 8 bits; smaller steps would underflow

DTYPES = {HALF: np.uint16, EIGHT_BIT: np.int8}  # of `weights` and `columns`; uint16 are the bits of float16


class ByFeature(NamedTuple):
    """W by column: the weights of column j, and their labels in rising order, are at ends[j] : ends[j + 1]."""

    weights: np.ndarray
    labels: np.ndarray
    ends: np.ndarray


class CompactWeights(NamedTuple):
    """The arrays of the kernels, all read-only. C is the number of columns."""

    weights: np.ndarray  # the list of feature j is at ends[j] : ends[j + 1]; int8, or the bits of float16 as uint16
    gaps: np.ndarray  # uint8: the distance of the entry's label to the label of the entry before it
    ends: np.ndarray
    columns: np.ndarray  # (C, labels rounded up to a multiple of 64)
    column_of: np.ndarray  # the column of each feature; C if it has a list
    steps: np.ndarray  # 8 bits: the weight of a code of 1, for each feature; half precision: empty
    bias_weights: np.ndarray  # (n_labels,) float32; empty without a bias
    n_labels: int

    @classmethod
    def of(cls, W: ByFeature, n_features: int, n_labels: int, form: str) -> CompactWeights:
        """The compact form of weights by feature. They have a last column for the bias if they have more columns."""
        counts = np.diff(W.ends[: n_features + 1].astype(np.int64))
        steps = _steps(W, counts) if form == EIGHT_BIT else np.empty(0, np.float32)
        features = np.flatnonzero(counts * COLUMN_SHARE > n_labels)
        column_of = np.full(n_features, len(features), np.uint32)
        column_of[features] = np.arange(len(features))
        columns = np.zeros((len(features), width_of(n_labels)), DTYPES[form])
        for column, j in zip(columns, features, strict=True):
            own = slice(int(W.ends[j]), int(W.ends[j + 1]))
            column[W.labels[own]] = _coded(W.weights[own], steps[j] if len(steps) else None)
        in_list = column_of == len(features)
        pieces: tuple[list[np.ndarray], ...] = ([], [], [])
        for block in _blocks(W.ends, n_features):
            for joined, piece in zip(pieces, _packed(W, counts, in_list, steps, block, form), strict=True):
                joined.append(piece)
        weights, gaps, lengths = map(_joined, pieces)
        bias_weights = np.zeros(n_labels if len(W.ends) > n_features + 1 else 0, np.float32)
        if len(bias_weights):
            own = slice(int(W.ends[n_features]), None)
            bias_weights[W.labels[own]] = W.weights[own]
        return cls(
            frozen(weights, DTYPES[form]),
            frozen(gaps, np.uint8),
            frozen(np.concatenate([[0], np.cumsum(lengths)]), np.uint64),
            frozen(columns, DTYPES[form]),
            frozen(column_of, np.uint32),
            frozen(steps, np.float32),
            frozen(bias_weights, np.float32),
            n_labels,
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], n_labels: int) -> CompactWeights:
        """The weights from arrays with the names of the fields, whose types may differ in sign. They are not copied."""
        types: dict[str, Any] = {"gaps": np.uint8, "ends": np.uint64, "column_of": np.uint32, "steps": np.float32}
        types |= {name: np.int8 if arrays[name].itemsize == 1 else np.uint16 for name in ("weights", "columns")}
        found = {name: frozen(arrays[name], types.get(name, np.float32)) for name in cls._fields[:-1]}
        return cls(**found, n_labels=n_labels)

    @property
    def form(self) -> str:
        return HALF if self.weights.dtype == np.uint16 else EIGHT_BIT

    @property
    def n_features(self) -> int:
        return len(self.column_of)

    @property
    def n_weights(self) -> int:
        """The number of weights that are not zero."""
        return sum(int(np.count_nonzero(part)) for part in (self.weights, self.columns, self.bias_weights))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))

    def add(self, x: np.float32, feature: int, out: np.ndarray) -> None:
        """out[label] += x times its weight of the feature, with the bits of the kernels."""
        if feature == self.n_features:
            out += x * self.bias_weights
            return
        factor = x * self.steps[feature] if len(self.steps) else x
        c = self.column_of[feature]
        if c < len(self.columns):
            out += factor * _as_float(self.columns[c, : self.n_labels])
            return
        own = slice(int(self.ends[feature]), int(self.ends[feature + 1]))
        out[np.cumsum(self.gaps[own], dtype=np.int64)] += factor * _as_float(self.weights[own])

    def to_csr(self) -> sp.csr_array:
        """W as a canonical matrix of float32 weights, with a last column for the bias if there is one."""
        parts = [self._column_entries(), self._list_entries()]
        if len(self.bias_weights):
            labels = np.flatnonzero(self.bias_weights)
            parts.append((np.full(len(labels), self.n_features), labels, self.bias_weights[labels]))
        features, labels, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
        shape = (self.n_labels, self.n_features + bool(len(self.bias_weights)))
        return canonical_csr(sp.csr_array((weights, (labels, features)), shape=shape))

    def _column_entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        features = np.flatnonzero(self.column_of < len(self.columns))
        own = self.columns[self.column_of[features], : self.n_labels]
        rows, labels = np.nonzero(own)
        return self._entries(features[rows], labels, own[rows, labels])

    def _list_entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lengths = np.diff(self.ends).astype(np.int64)
        features = np.repeat(np.arange(self.n_features), lengths)
        total = np.concatenate([[0], np.cumsum(self.gaps, dtype=np.int64)])
        labels = total[1:] - np.repeat(total[self.ends[:-1].astype(np.int64)], lengths)
        own = self.weights != 0
        return self._entries(features[own], labels[own], self.weights[own])

    def _entries(
        self, features: np.ndarray, labels: np.ndarray, codes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        index_type = np.int32 if len(self.weights) <= LARGEST_INT32 else np.int64
        weights = _as_float(codes)
        if len(self.steps):
            weights = self.steps[features] * weights
        return features.astype(index_type), labels.astype(index_type), weights


def half_bytes(counts: np.ndarray, n_labels: int) -> float:
    """The expected bytes in half precision, if feature j has weights for counts[j] labels at random."""
    in_column = counts * COLUMN_SHARE > n_labels
    listed = counts[~in_column & (counts > 0)]
    no_label = (1.0 - listed / max(n_labels, 1)) ** LARGEST_GAP  # the probability of a filler after an entry
    fillers = listed * np.minimum(no_label / (1.0 - no_label), n_labels / LARGEST_GAP / (listed + 1))
    entry, code = 3.0, 2.0  # bytes of a weight with its gap, and of a weight
    columns = code * width_of(n_labels) * np.count_nonzero(in_column)
    return float(entry * (listed.sum() + fillers.sum()) + columns + 12 * len(counts) + 4 * n_labels)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    """The pieces one after another. They are dropped, so that not all arrays are held twice."""
    whole = np.concatenate(pieces)
    pieces.clear()
    return whole


def is_half(W: ByFeature, n_features: int) -> bool:
    """Whether half precision holds all weights exactly, those of the bias excepted."""
    end = int(W.ends[n_features])
    pieces = (W.weights[at : min(at + ENTRIES_AT_ONCE, end)] for at in range(0, end, ENTRIES_AT_ONCE))
    with np.errstate(over="ignore"):
        return all(bool((piece.astype(np.float16) == piece).all()) for piece in pieces)


def _as_float(codes: np.ndarray) -> np.ndarray:
    return np.asarray(codes.view(np.float16) if codes.dtype == np.uint16 else codes, np.float32)


def _coded(weights: np.ndarray, steps: np.ndarray | None) -> np.ndarray:
    """Weights as codes: multiples of their steps, or the bits of half-precision numbers if there are no steps."""
    if steps is not None:
        return np.asarray(np.rint(weights / steps), np.int8)
    with np.errstate(over="ignore"):
        half = weights.astype(np.float16)
    if not np.isfinite(half).all():
        raise InputError("a weight is too large for half precision; save with weights='8-bit' or 'float32'")
    half[half == 0] = 0  # minus zero counts as no weight, too
    return np.asarray(half.view(np.uint16))


def steps_of(peaks: np.ndarray) -> np.ndarray:
    """The steps of features whose largest absolute weights are `peaks`."""
    steps = np.asarray(peaks / np.float32(LARGEST_CODE))
    steps[steps < SMALLEST_STEP] = 1
    return steps


def _steps(W: ByFeature, counts: np.ndarray) -> np.ndarray:
    peaks = np.zeros(len(counts), np.float32)
    used = np.flatnonzero(counts)
    if len(used):
        last = int(W.ends[len(counts)])
        starts = W.ends[used].astype(np.int64)
        own = W.weights[:last]
        peaks[used] = np.maximum(np.maximum.reduceat(own, starts), -np.minimum.reduceat(own, starts))
    return steps_of(peaks)


def _blocks(ends: np.ndarray, n_features: int) -> Iterator[range]:
    """Ranges of features with a bounded number of weights, or one feature. There is at least one range."""
    start = 0
    while True:
        most = int(ends[start]) + WEIGHTS_AT_ONCE
        stop = int(np.searchsorted(ends[: n_features + 1], most, side="right")) - 1
        stop = min(n_features, max(stop, start + 1))
        yield range(start, stop)
        if stop == n_features:
            return
        start = stop


def _packed(
    W: ByFeature, counts: np.ndarray, in_list: np.ndarray, steps: np.ndarray, block: range, form: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The codes and gaps of the lists of some features, and the number of entries of each of these features."""
    own = slice(int(W.ends[block.start]), int(W.ends[block.stop]))
    features = np.repeat(np.arange(len(block)), counts[block.start : block.stop])
    kept = np.flatnonzero(in_list[features + block.start])
    features, labels = features[kept], W.labels[own][kept].astype(np.int64)
    codes = _coded(W.weights[own][kept], steps[features + block.start] if len(steps) else None)
    there = codes != 0
    features, labels, codes = features[there], labels[there], codes[there]
    gaps = np.diff(labels, prepend=0)
    first = np.diff(features, prepend=-1) > 0
    gaps[first] = labels[first]
    fillers = np.maximum(gaps - 1, 0) // LARGEST_GAP
    places = np.cumsum(fillers + 1) - 1
    n_entries = int(places[-1]) + 1 if len(places) else 0
    packed_codes = np.zeros(n_entries, DTYPES[form])
    packed_gaps = np.full(n_entries, LARGEST_GAP, np.uint8)
    packed_codes[places] = codes
    packed_gaps[places] = gaps - LARGEST_GAP * fillers
    lengths = np.bincount(features, weights=fillers + 1, minlength=len(block)).astype(np.int64)
    return packed_codes, packed_gaps, lengths
