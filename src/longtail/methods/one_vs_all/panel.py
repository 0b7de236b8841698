"""The panel of the dual solver: bfloat16 or float32.

A pass over X reads 32 weights, one per label, for every nonzero of X. In bfloat16, which is the upper half of a
float32, these fill one cache line of 64 bytes, and an instruction makes floats of half of them. Rounding takes nothing
from the certificate: the rounded weights are themselves the primal point whose objective is computed over all rows, and
the dual point is not rounded. It may only cost more rounds, or fail to reach a tiny `tol`, for which float32 is used.

Most nonzeros of text are of few features. With features numbered by falling frequency (inputs.py), the lines of the
panel that a pass reads most often are neighbours and stay in the cache.

The dense features have a panel of their own. Its weights are stored as float32, because a dense product is bound by
arithmetic, not by the cache; but their values are those of the panel's precision.
"""

from __future__ import annotations

from typing import TypeAlias

import llvmlite.binding as llvm
import numba
import numpy as np

PanelType: TypeAlias = "type[np.uint16] | type[np.float32]"
SHORT: PanelType = np.uint16  # the bits of a bfloat16 number, which NumPy and Numba do not know
FULL: PanelType = np.float32
MIN_SHORT_TOL = 1e-4  # rounding the weights moves P by about 1e-6 of its value


def panel_type(tol: float) -> PanelType:
    """SHORT, unless `tol` is too small for it."""
    return SHORT if tol >= MIN_SHORT_TOL else FULL


def dense_rows() -> int:
    """How many dense rows are scored together. With as many, the sums of 32 labels fill the vector registers of the
    processor that Numba compiles for, and it need not wait for an addition to the same sum."""
    return 6 if _has("avx512f") else 2


def _has(feature: str) -> bool:
    """Whether the processor that Numba compiles for has a feature. That of a processor given by name is not known."""
    if numba.config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        return f"+{feature}" in numba.config.CPU_FEATURES.split(",")  # type: ignore[attr-defined]
    is_host = numba.config.CPU_NAME is None  # type: ignore[attr-defined]
    return is_host and bool(llvm.get_host_cpu_features().get(feature, False))
