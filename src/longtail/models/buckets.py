"""The bucket classifiers of a hashed model: packed linear weights, and probabilities from them.

    z_rb = bias w_rb,bias + sum_j x_j w_rbj          P_rb = softmax over b of z_rb, or the sigmoid of z_rb

The weights of a feature for all R B buckets are adjacent. Packing sets weights that are too small to matter to zero,
and turns the others into one byte each,

    w = step_r code,    code from -127 to 127,    step_r = min(largest |w| of repetition r, MAX_WEIGHT / scale) / 127

where `scale` is the root mean square length of the rows. Rounding a weight therefore moves a logit by at most a
quarter, except for weights beyond any sensible logit, which are clipped. A feature stores only its nonzero columns,
each with a column number of 2 bytes, unless storing all columns takes less. The codes of a repetition depend on no
other repetition.
"""

from __future__ import annotations

from collections.abc import Mapping
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
LARGEST_P = np.float32(1 - 2**-24)  # the largest float32 below 1
TINY = 1e-30  # probabilities are raised to this value before their logarithm is taken


class Buckets(Protocol):
    """What a hashed model needs from its R bucket classifiers."""

    @property
    def adds_up(self) -> bool:
        """Whether the probabilities of a repetition sum to 1, because a row has one label."""

    def probabilities(self, X: sp.csr_array) -> np.ndarray: ...

    def log_probabilities(self, X: sp.csr_array) -> np.ndarray: ...

    def rates(self, X: sp.csr_array) -> np.ndarray: ...


@dataclass(frozen=True)
class LinearBuckets:
    """Packed weights of R B buckets over n_features features and the bias, and the link from logits to probabilities.

    Links: "softmax" over the buckets of a repetition; "sigmoid" of each; "normalized" sigmoids, divided by their sum.
    """

    ends: np.ndarray  # (n_features + 2,) uint64: codes of feature j are codes[ends[j] : ends[j + 1]]; the bias is last
    codes: np.ndarray  # float32 or int8
    columns: np.ndarray | None  # uint16, or uint32 if R B is above 65,536; None: a feature has all columns, or none
    steps: np.ndarray  # (R,) float32, all 1 for float32 codes
    n_buckets: int
    bias: float
    link: str

    @classmethod
    def packed(
        cls, W: np.ndarray, features: np.ndarray, n_features: int, n_buckets: int, bias: float, link: str, *,
        weights: str = "float32", prune: float = 0.0, scale: float = 1.0,
    ) -> LinearBuckets:  # fmt: skip
        """Pack W, whose row i holds the weights of feature features[i] (increasing; n_features stands for the bias).

        Weights below prune / scale become zero. weights="int8" rounds the others to multiples of a step.
        """
        quantised = weights == "int8"
        peaks = np.empty(W.shape[1] // n_buckets, np.float32)
        kernels.find_peaks(W, n_buckets, peaks)
        steps = np.ones_like(peaks)
        if quantised:
            steps = np.minimum(peaks, np.float32(MAX_WEIGHT / scale)) / np.float32(127)
            steps[steps < np.finfo(np.float32).tiny] = 1.0
        how = n_buckets, np.float32(prune / scale), np.float32(1) / steps, quantised
        counts = np.zeros(n_features + 1, np.int64)
        row_counts = np.zeros(len(W), np.int64)
        kernels.count_codes(W, *how, row_counts)
        counts[features] = row_counts
        ends, codes, columns = _room(counts, W.shape[1], WEIGHTS[weights])
        kernels.fill_codes(W, *how, ends[features], codes, _column_array(columns), columns is not None)
        return cls.of(ends, codes, columns, steps, n_buckets, bias, link)

    @classmethod
    def of(
        cls, ends: np.ndarray, codes: np.ndarray, columns: np.ndarray | None, steps: np.ndarray, *rest: Any
    ) -> LinearBuckets:
        """Make an object whose arrays have the form that kernels take (see `compiled`)."""
        columns = None if columns is None else frozen(columns, columns.dtype)
        return cls(frozen(ends, np.uint64), frozen(codes, codes.dtype), columns, frozen(steps, np.float32), *rest)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights as arrays with the dtypes of the model's files."""
        arrays = {
            "W_codes": self.codes.view(np.uint8) if self.codes.dtype == np.int8 else self.codes,
            "W_ends": self.ends.view(np.int64),
            "W_steps": self.steps,
        }
        if self.columns is not None:
            wide = self.columns.dtype == np.uint32
            arrays["W_columns"] = self.columns.view(np.int32) if wide else self.columns
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], n_buckets: int, bias: float, link: str) -> LinearBuckets:
        """The weights of `to_arrays`. Dtypes are trusted here; `store` checks them."""
        codes = arrays["W_codes"]
        columns = arrays.get("W_columns")
        if columns is not None and columns.dtype == np.int32:
            columns = columns.view(np.uint32)
        codes = codes.view(np.int8) if codes.dtype == np.uint8 else codes
        return cls.of(arrays["W_ends"], codes, columns, arrays["W_steps"], n_buckets, bias, link)

    @property
    def adds_up(self) -> bool:
        return self.link != "sigmoid"

    @property
    def n_columns(self) -> int:
        return len(self.steps) * self.n_buckets

    @property
    def n_features(self) -> int:
        return len(self.ends) - 2

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, in memory and on disk."""
        arrays = (self.ends, self.codes, self.steps, self.columns)
        return sum(array.nbytes for array in arrays if array is not None)

    # --- prediction --------------------------------------------------------------------------------------------------

    def logits(self, X: sp.csr_array) -> np.ndarray:
        """(rows, R B) float32; finite for all finite rows."""
        out = np.empty((X.shape[0], self.n_columns), np.float32)
        kernels.fill_logits(
            csr_parts(X), np.float32(self.bias), self.codes, self._columns, self.ends, self.steps,
            self.columns is not None, self.n_buckets, out,
        )  # fmt: skip
        if not np.isfinite(out).all():  # replace infinity by large numbers that can still be added and subtracted
            np.nan_to_num(out, copy=False, nan=0.0, posinf=1e30, neginf=-1e30)
        return out

    def probabilities(self, X: sp.csr_array) -> np.ndarray:
        """P of every bucket: (rows, R B) float32."""
        if self.link != "normalized":
            return np.asarray(np.exp(self.log_probabilities(X)))
        P = self._by_repetition(np.exp(_log_sigmoid(self.logits(X))))
        P /= np.maximum(P.sum(axis=2, keepdims=True), TINY)
        return P.reshape(len(P), -1)

    def log_probabilities(self, X: sp.csr_array) -> np.ndarray:
        """log P of every bucket: (rows, R B) float32."""
        if self.link == "normalized":
            return np.asarray(np.log(np.maximum(self.probabilities(X), np.float32(TINY))))
        if self.link == "sigmoid":
            return _log_sigmoid(self.logits(X))
        z = self._by_repetition(self.logits(X))
        z -= z.max(axis=2, keepdims=True)
        z -= np.log(np.exp(z).sum(axis=2, keepdims=True))
        return z.reshape(len(z), -1)

    def rates(self, X: sp.csr_array) -> np.ndarray:
        """-log(1 - P) of every bucket: (rows, R B) float32. For a sigmoid it is log(1 + exp(z)), also where P is 1."""
        if self.link == "sigmoid":
            return np.asarray(-_log_sigmoid(-self.logits(X)))
        return rates_of(self.probabilities(X))

    def _by_repetition(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(values), -1, self.n_buckets)

    # --- weights -----------------------------------------------------------------------------------------------------

    @cached_property
    def matrix(self) -> sp.csr_array:
        """The stored codes, as a (n_features + 1, R B) matrix of float32 or int8."""
        columns, ends = self.columns, self.ends.view(np.int64)
        if columns is None:
            columns = np.tile(np.arange(self.n_columns, dtype=np.int32), len(self.codes) // max(self.n_columns, 1))
        wide = len(self.codes) > np.iinfo(np.int32).max
        index = np.int64 if wide else np.int32
        shape = (self.n_features + 1, self.n_columns)
        return sp.csr_array((self.codes, columns.astype(index), ends.astype(index)), shape=shape)

    def times(self, vector: np.ndarray) -> np.ndarray:
        """Return the product of W and a vector, in float64: one number for every feature, and one for the bias."""
        return np.asarray(self.matrix @ (np.repeat(self.steps, self.n_buckets) * vector.astype(np.float64)))

    @classmethod
    def joined(cls, parts: list[LinearBuckets]) -> LinearBuckets:
        """Join the repetitions of the parts, in their order. The bytes are the same as if they were packed together."""
        first = parts[0]
        if len(parts) == 1:
            return first
        steps = np.concatenate([part.steps for part in parts])
        counts = np.zeros(first.n_features + 1, np.int64)
        n_columns = len(steps) * first.n_buckets
        for part in parts:
            kernels.count_kept(part.codes, part.ends.view(np.int64), counts)
        ends, codes, columns = _room(counts, n_columns, first.codes.dtype)
        places = ends[:-1].copy()
        first_column = 0
        for part in parts:
            source = part.codes, part._columns, part.ends.view(np.int64), part.columns is not None
            kernels.copy_codes(*source, first_column, places, codes, _column_array(columns), columns is not None)
            first_column += part.n_columns
        return cls.of(ends, codes, columns, steps, first.n_buckets, first.bias, first.link)

    @property
    def _columns(self) -> np.ndarray:
        columns = _column_array(self.columns)
        return frozen(columns, columns.dtype)


def _room(counts: np.ndarray, n_columns: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Allocate the arrays ends, codes and columns for features with `counts` nonzero codes.

    There are two forms: nonzero codes with their columns, or all codes of the features that have any. The form that
    takes fewer bytes is chosen.
    """
    column_dtype = np.dtype(np.uint16 if n_columns <= 2**16 else np.uint32)
    code_dtype = np.dtype(dtype)
    dense = np.where(counts > 0, n_columns, 0)
    if counts.sum() * (code_dtype.itemsize + column_dtype.itemsize) >= dense.sum() * code_dtype.itemsize:
        return _ends(dense), np.zeros(dense.sum(), code_dtype), None
    return _ends(counts), np.empty(counts.sum(), code_dtype), np.empty(counts.sum(), column_dtype)


def _ends(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])


def _column_array(columns: np.ndarray | None) -> np.ndarray:
    """Return columns in the form that kernels take: an empty array instead of None."""
    return np.empty(0, np.uint16) if columns is None else columns


def rates_of(P: np.ndarray) -> np.ndarray:
    """-log(1 - P), finite also for P = 1."""
    return np.asarray(-np.log1p(-np.minimum(P, LARGEST_P)))


def _log_sigmoid(z: np.ndarray) -> np.ndarray:
    """log sigmoid(z) = min(z, 0) - log(1 + exp(-|z|)), with an error of 1e-7 and without overflow. Overwrites z."""
    tail = np.abs(z)
    np.negative(tail, out=tail)
    np.exp(tail, out=tail)
    tail += 1
    np.log(tail, out=tail)
    np.minimum(z, 0, out=z)
    z -= tail
    return z
