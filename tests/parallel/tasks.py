"""Light work for the engines, importable by workers: it needs NumPy and nothing else, so a worker starts quickly."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests import faults


class Piece(NamedTuple):
    number: int
    cost: float = 1.0


@dataclass(frozen=True)
class Squares:
    """The square of the number of a block. `fault` is one of `tests.faults`; attempts are counted in `root`."""

    root: Path
    fault: str = ""
    pause: float = 0.0
    mark: str = "squares"

    def __call__(self, data=None):
        if self.fault == "unready":
            raise RuntimeError("the data is gone")
        if self.fault == "unborn":
            os._exit(7)

        def task(number, work):
            faults.strike(self.fault, number, faults.count(self.root, str(number)))
            work.report(0.5)
            time.sleep(self.pause)
            return number * number, work.n_threads, os.getpid()

        return task

    def shipped(self):
        return {"nothing": np.zeros(1)}

    def accept(self, result):
        return result

    def attempts(self) -> dict[int, int]:
        return {int(name): count for name, count in faults.counts(self.root).items()}
