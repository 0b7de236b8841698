"""The zero start: w = 0, as in plain DiSMEC."""

from __future__ import annotations

import numpy as np

from longtail.methods.one_vs_all.inputs import OneVsAllData
from longtail.methods.one_vs_all.starts.base import Start


class Zero(Start):
    def weights(self, data: OneVsAllData, labels: np.ndarray, out: np.ndarray) -> None:
        out[:] = 0.0
