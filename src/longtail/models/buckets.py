"""The bucket classifiers of a hashed model: packed linear weights, and probabilities from them.

    z_rb = bias w_rb,bias + sum_j x_j w_rbj          P_rb = softmax over b of z_rb, or the sigmoid of z_rb

The weights of a feature for all R B buckets lie together. Packing cuts weights that are too small to matter and turns
the others into one byte each,

    w = step_r code,    code from -127 to 127,    step_r = min(largest |w| of repetition r, MAX_WEIGHT / scale) / 127

`scale` being the root mean square length of the rows: so no weight moves a logit by more than a quarter, save those
that are larger than any sensible logit and are cut to that. Features keep only the columns that are left, with a number
of 2 bytes each, unless all columns take less. A repetition's codes depend on no other repetition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, frozen
from longtail.models import bucket_kernels as kernels

LINKS = ("softmax", "sigmoid", "normalized")
WEIGHTS = {"float32": np.float32, "int8": np.int8}
MAX_WEIGHT = 63.5
TINY = 1e-30  # the least probability that has a logarithm here


class Buckets(Protocol):
    """What a hashed model needs of its R bucket classifiers."""

    def probabilities(self, X: sp.csr_array) -> np.ndarray: ...

    def log_probabilities(self, X: sp.csr_array) -> np.ndarray: ...

    @property
    def convention(self) -> object:
        """What must agree for `joined`, which puts repetitions together."""

    @classmethod
    def joined(cls, parts: list[Any]) -> Buckets: ...


@dataclass(frozen=True)
class LinearBuckets:
    """Packed weights of R B buckets over n_features features and the bias, and the link from logits to probabilities.

    Links: "softmax" over the buckets of a repetition; "sigmoid" of each; "normalized" sigmoids, divided by their sum.
    """

    ends: np.ndarray  # (n_features + 2,) uint64: where the codes of each feature begin; the bias comes last
    codes: np.ndarray  # float32 or int8
    columns: np.ndarray | None  # uint16, or uint32 where R B is above 65,536; None: all columns of a feature, or none
    steps: np.ndarray  # (R,) float32, all 1 for float32 codes
    n_buckets: int
    bias: float
    link: str

    @classmethod
    def packed(
        cls, W: np.ndarray, features: np.ndarray, n_features: int, n_buckets: int, bias: float, link: str, *,
        weights: str = "float32", prune: float = 0.0, scale: float = 1.0,
    ) -> LinearBuckets:  # fmt: skip
        """Pack W, whose row i holds the weights of feature features[i] (rising; n_features stands for the bias).

        Weights below prune / scale are cut; weights="int8" rounds the others to multiples of a step.
        """
        quantised, peaks = weights == "int8", np.empty(W.shape[1] // n_buckets, np.float32)
        kernels.find_peaks(W, n_buckets, peaks)
        steps = np.ones_like(peaks)
        if quantised:
            steps = np.minimum(peaks, np.float32(MAX_WEIGHT / scale)) / np.float32(127)
            steps[steps < np.finfo(np.float32).tiny] = 1.0
        how = n_buckets, np.float32(prune / scale), np.float32(1) / steps, quantised
        counts, of_rows = np.zeros(n_features + 1, np.int64), np.zeros(len(W), np.int64)
        kernels.count_codes(W, *how, of_rows)
        counts[features] = of_rows
        ends, codes, columns = _room(counts, W.shape[1], WEIGHTS[weights])
        kernels.fill_codes(W, *how, ends[features], codes, _column_array(columns), columns is not None)
        return cls.of(ends, codes, columns, steps, n_buckets, bias, link)

    @classmethod
    def of(
        cls, ends: np.ndarray, codes: np.ndarray, columns: np.ndarray | None, steps: np.ndarray, *rest: Any
    ) -> LinearBuckets:
        """With arrays as kernels take them; see `compiled`."""
        columns = None if columns is None else frozen(columns, columns.dtype)
        return cls(frozen(ends, np.uint64), frozen(codes, codes.dtype), columns, frozen(steps, np.float32), *rest)

    @property
    def convention(self) -> object:
        return self.bias, self.link, self.codes.dtype

    @property
    def n_columns(self) -> int:
        return len(self.steps) * self.n_buckets

    @property
    def n_features(self) -> int:
        return len(self.ends) - 2

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, in memory as on disk."""
        arrays = (self.ends, self.codes, self.steps, self.columns)
        return sum(array.nbytes for array in arrays if array is not None)

    # --- prediction --------------------------------------------------------------------------------------------------

    def logits(self, X: sp.csr_array) -> np.ndarray:
        """(rows, R B) float32; finite, whatever the rows hold."""
        out = np.empty((X.shape[0], self.n_columns), np.float32)
        kernels.fill_logits(
            csr_parts(X), np.float32(self.bias), self.codes, self._columns, self.ends, self.steps,
            self.columns is not None, self.n_buckets, out,
        )  # fmt: skip
        if not np.isfinite(out).all():  # an overflow: the largest numbers that can still be added and subtracted
            np.nan_to_num(out, copy=False, nan=0.0, posinf=1e30, neginf=-1e30)
        return out

    def probabilities(self, X: sp.csr_array) -> np.ndarray:
        """P of every bucket: (rows, R B) float32."""
        if self.link != "normalized":
            return np.exp(self.log_probabilities(X))
        P = self._by_repetition(np.exp(_log_sigmoid(self.logits(X))))
        P /= np.maximum(P.sum(axis=2, keepdims=True), TINY)
        return P.reshape(len(P), -1)

    def log_probabilities(self, X: sp.csr_array) -> np.ndarray:
        """log P of every bucket: (rows, R B) float32."""
        if self.link == "normalized":
            return np.log(np.maximum(self.probabilities(X), np.float32(TINY)))
        if self.link == "sigmoid":
            return _log_sigmoid(self.logits(X))
        z = self._by_repetition(self.logits(X))
        z -= z.max(axis=2, keepdims=True)
        z -= np.log(np.exp(z).sum(axis=2, keepdims=True))
        return z.reshape(len(z), -1)

    def _by_repetition(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(values), -1, self.n_buckets)

    # --- weights -----------------------------------------------------------------------------------------------------

    @cached_property
    def matrix(self) -> sp.csr_array:
        """The codes as they are stored, as a (n_features + 1, R B) matrix; float32 or int8."""
        columns, ends = self.columns, self.ends.view(np.int64)
        if columns is None:
            columns = np.tile(np.arange(self.n_columns, dtype=np.int32), len(self.codes) // max(self.n_columns, 1))
        wide = len(self.codes) > np.iinfo(np.int32).max
        index = np.int64 if wide else np.int32
        shape = (self.n_features + 1, self.n_columns)
        return sp.csr_array((self.codes, columns.astype(index), ends.astype(index)), shape=shape)

    def times(self, vector: np.ndarray) -> np.ndarray:
        """W vector, in float64: a number for every feature, and for the bias."""
        return np.asarray(self.matrix @ (np.repeat(self.steps, self.n_buckets) * vector.astype(np.float64)))

    @classmethod
    def joined(cls, parts: list[LinearBuckets]) -> LinearBuckets:
        """All repetitions of the parts, in their order, to the bit."""
        first, steps = parts[0], np.concatenate([part.steps for part in parts])
        counts, n_columns = np.zeros(first.n_features + 1, np.int64), len(steps) * first.n_buckets
        for part in parts:
            kernels.count_kept(part.codes, part.ends.view(np.int64), counts)
        ends, codes, columns = _room(counts, n_columns, first.codes.dtype)
        places, at = ends[:-1].copy(), 0
        for part in parts:
            source = part.codes, part._columns, part.ends.view(np.int64), part.columns is not None
            kernels.copy_codes(*source, at, places, codes, _column_array(columns), columns is not None)
            at += part.n_columns
        return cls.of(ends, codes, columns, steps, first.n_buckets, first.bias, first.link)

    @property
    def _columns(self) -> np.ndarray:
        columns = _column_array(self.columns)
        return frozen(columns, columns.dtype)


def _room(counts: np.ndarray, n_columns: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Where features begin, and arrays for their codes and columns, `counts` of each feature being not 0.

    In the form that takes fewer bytes: such codes with their columns, or all codes of the features that have any.
    """
    narrow, dtype = np.dtype(np.uint16 if n_columns <= 2**16 else np.uint32), np.dtype(dtype)
    dense = np.where(counts > 0, n_columns, 0)
    if counts.sum() * (dtype.itemsize + narrow.itemsize) >= dense.sum() * dtype.itemsize:
        return _ends(dense), np.zeros(dense.sum(), dtype), None
    return _ends(counts), np.empty(counts.sum(), dtype), np.empty(counts.sum(), narrow)


def _ends(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])


def _column_array(columns: np.ndarray | None) -> np.ndarray:
    """Columns as kernels take them, of which there are none where every column has its code."""
    return np.empty(0, np.uint16) if columns is None else columns


def _log_sigmoid(z: np.ndarray) -> np.ndarray:
    """min(z, 0) - log(1 + exp(-|z|)), to an absolute 1e-7 and without overflow; z is used up."""
    tail = np.abs(z)
    np.negative(tail, out=tail)
    np.exp(tail, out=tail)
    tail += 1
    np.log(tail, out=tail)
    np.minimum(z, 0, out=z)
    z -= tail
    return z
