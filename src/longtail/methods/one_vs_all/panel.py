"""The panel of the dual solver: half precision or float32.

A pass over X reads 32 weights, one per label, for every nonzero of X. In half precision these fill one cache line of 64
bytes. Rounding takes nothing from the certificate: the rounded weights are themselves the primal point whose objective
is computed over all rows, and the dual point is not rounded. It may only cost more rounds, or fail to reach a tiny
`tol`; `panel_type` says where float32 is used instead.

Most nonzeros of text are of few features. With features numbered by falling frequency (inputs.py), the entries of
`line_of` that a pass reads most often are neighbours and stay in the first-level cache.

The dense features have a panel of their own, without `line_of`. Its weights are stored as float32, because a dense
product is bound by arithmetic, not by the cache; but their values are those of the panel's precision.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import llvmlite.binding as llvm
import numba
import numpy as np

from longtail.methods.one_vs_all.inputs import LabelRows, Samples

PanelType: TypeAlias = "type[np.uint16] | type[np.float32]"
HALF: PanelType = np.uint16  # the bits of a half-precision number; NumPy's float16 is unknown to Numba
FULL: PanelType = np.float32
LARGEST_HALF = 65504.0
MIN_HALF_TOL = 1e-4  # rounding the weights moves P by about 1e-7 of its value
MAX_HALF_SQUARE = 1e6  # |x|^2: longer rows have weights so small that half precision has few digits left for them


def panel_type(X: Samples, positives: LabelRows, C: float, tol: float) -> PanelType:
    """HALF if the processor converts it, `tol` and the scale of X allow it, and no weight can overflow."""
    squares = X.squares.max(initial=0.0)
    fits = (
        tol >= MIN_HALF_TOL
        and squares <= MAX_HALF_SQUARE
        and largest_weight(positives, len(X.squares), C) < LARGEST_HALF
    )
    return HALF if fits and converts_half() else FULL


def largest_weight(positives: LabelRows, n_samples: int, C: float) -> float:
    """A bound on every weight that coordinate descent can meet.

    D(alpha) never falls below its value at alpha = 0, which is 0. With costs c_i this gives

        1/2 |w|^2 <= sum_i alpha_i - alpha_i^2 / 4 c_i <= sum_i c_i
    """
    n_positive = positives.n_positive
    costs = C * (n_samples - n_positive + positives.weight * n_positive)
    return math.sqrt(2.0 * float(costs.max(initial=0.0)))


def converts_half() -> bool:
    """Whether the processor that Numba compiles for converts between half precision and float32."""
    return _has("f16c") or (_is_host() and llvm.get_process_triple().startswith(("aarch64", "arm64")))


def dense_rows() -> int:
    """How many dense rows are scored together. With as many, the sums of 32 labels fill the vector registers of the
    processor that Numba compiles for, and it need not wait for an addition to the same sum."""
    return 6 if _has("avx512f") else 2


def _is_host() -> bool:
    """Whether Numba compiles for this machine, and not for another processor that is named by its settings."""
    return numba.config.CPU_FEATURES is None and numba.config.CPU_NAME is None  # type: ignore[attr-defined]


def _has(feature: str) -> bool:
    """Whether the processor that Numba compiles for has a feature. That of a processor given by name is not known."""
    if numba.config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        return f"+{feature}" in numba.config.CPU_FEATURES.split(",")  # type: ignore[attr-defined]
    return _is_host() and bool(llvm.get_host_cpu_features().get(feature, False))
