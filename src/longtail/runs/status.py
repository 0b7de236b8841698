"""The status of a run. Any process can read it from the run folder at any time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longtail import content, folder
from longtail.errors import ModelError
from longtail.runs.events import RunSummary, summary
from longtail.runs.lock import holder, is_held


@dataclass(frozen=True)
class RunStatus:
    """The state of a run: `state` is "running", "stopped" or "finished"."""

    state: str
    holder: str | None  # the process that trains, while the run is running
    identity: dict[str, Any]
    n_blocks: int
    n_done: int
    n_items: int
    bytes: int
    share: float  # share of the work that is done, by cost
    log: RunSummary
    plan: dict[str, Any] | None = None  # what the run was expected to take when it began

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the speed of the current session. None if the run is not running or the speed is unknown."""
        return self.log.seconds_left if self.state == "running" else None

    def planned(self, name: str) -> float | None:
        """Return the likely value that the plan has for a name, such as "seconds". None without a plan."""
        value = (self.plan or {}).get(name)
        likely = value.get("likely") if isinstance(value, dict) else None
        return float(likely) if isinstance(likely, int | float) else None

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last line of the log."""
        return max(0.0, time.time() - self.log.updated)


def within(root: str | os.PathLike[str]) -> list[Path]:
    """Return the runs in a folder. A fit that consists of several fits has its runs in subfolders. Otherwise the folder
    itself is returned."""
    root = Path(root)
    if folder.holds(root, folder.RUN) or not root.is_dir():
        return [root]
    return sorted(path for path in root.iterdir() if folder.holds(path, folder.RUN)) or [root]


def status(root: str | os.PathLike[str]) -> RunStatus:
    """The status of the run in `root`."""
    root = Path(root)
    arrays, meta = folder.read(root, folder.RUN)
    where = root / folder.RUN.manifest
    numbers = content.take(arrays, "block_numbers", "<i8", 1, where)
    counts = content.take(arrays, "block_counts", "<i8", 1, where)
    costs = content.take(arrays, "block_costs", "<f8", 1, where)
    identity = meta.get("identity")
    if not isinstance(identity, dict) or not len(numbers) == len(counts) == len(costs):
        raise ModelError(where, "the blocks and the identity of the run do not fit together")
    sizes = [_size(root / "parts" / f"{number:08d}.part") for number in numbers.tolist()]
    done = np.array([size is not None for size in sizes], bool)
    total = costs.sum()
    held = is_held(root / "lock")
    log = summary(root)
    finished = bool(done.all()) and log.finished and not held
    share = float(costs[done].sum() / total) if total > 0 else 1.0
    return RunStatus(
        state="running" if held else "finished" if finished else "stopped",
        holder=holder(root / "lock") if held else None,
        identity=identity,
        n_blocks=len(numbers),
        n_done=int(done.sum()),
        n_items=int(counts.sum()),
        bytes=sum(size for size in sizes if size is not None),
        share=max(share, log.share) if held else share,
        log=log,
        plan=meta["plan"] if isinstance(meta.get("plan"), dict) else None,
    )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
