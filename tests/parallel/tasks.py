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


class Answer(NamedTuple):
    square: int
    n_threads: int
    pid: int
    shipped: bool  # whether the data was sent to the worker
    accepted: bool = False  # whether the driver took the result over, as it does if workers cannot write it


@dataclass(frozen=True)
class Squares:
    """The square of the number of a block. `fault` is one of `tests.faults`; attempts are counted in `root`."""

    root: Path
    fault: str = ""
    pause: float = 0.0
    mark: str = "squares"

    def share(self) -> None:
        """Make the folder look like a run, which nodes of a cluster that see it then use."""
        (self.root / "run.json").write_text(self.mark, encoding="utf-8")
        (self.root / "parts").mkdir(exist_ok=True)

    def __call__(self, data=None):
        assert data is None or not data["rows"].flags.writeable  # all workers of a node map one copy
        if self.fault == "unready":
            raise RuntimeError("the data is gone")
        if self.fault == "unborn":
            os._exit(7)

        def task(number, work):
            faults.strike(self.fault, number, faults.count(self.root / "attempts", str(number)))
            work.report(0.5)
            time.sleep(self.pause)
            return Answer(number * number, work.n_threads, os.getpid(), data is not None)

        return task

    def shipped(self):
        faults.count(self.root / "attempts", "shipped")
        return {"rows": np.zeros(100_000)}

    def accept(self, result):
        return result._replace(accepted=True)

    def attempts(self) -> dict[int, int]:
        found = faults.counts(self.root / "attempts")
        return {int(name): count for name, count in found.items() if name != "shipped"}
