"""What a run folder and other workers cost: wall and CPU time of the same fit, kept or not, by one worker and by two.

    python benchmarks/run_overhead.py DATA --method one-vs-all [--repeats 3] [--ray] [--labels 20000]

Prints one line per way to train, then the figures that matter, and checks that all models have the same bytes. CPU time
is that of the whole tree of processes, with those of Ray. Wall time means something on an idle machine only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

import longtail as lt
from longtail import store
from longtail.methods import METHODS

TICKS = os.sysconf("SC_CLK_TCK")


class Way(NamedTuple):
    title: str
    n_jobs: int | None
    workers: str | None
    kept: bool


WAYS = [
    Way("threads:1", 1, None, False),
    Way("threads:2", 2, None, False),
    Way("threads:1, run folder", 1, None, True),
    Way("threads:2, run folder", 2, None, True),
    Way("processes:1", 1, "processes:1", True),
    Way("processes:2", 2, "processes:2", True),
]
RAY = [Way("ray, 2 CPUs", None, "ray", True)]


class TreeClock:
    """CPU seconds of this process and all its descendants, also of those that end meanwhile."""

    def __enter__(self) -> TreeClock:
        self.first = self._look()
        self.last = dict(self.first)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    @property
    def seconds(self) -> float:
        return sum(spent - self.first.get(pid, 0.0) for pid, spent in self.last.items())

    def _watch(self) -> None:
        while not self.over.wait(0.1):
            self.last |= self._look()
        self.last |= self._look()

    @staticmethod
    def _look() -> dict[int, float]:
        parents, spent = {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            spent[pid] = (int(fields[11]) + int(fields[12])) / TICKS
        mine = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
            mine |= more
        return {pid: spent[pid] for pid in mine if pid in spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--method", default="one-vs-all", choices=METHODS)
    parser.add_argument("--ray", action="store_true", help="also on a Ray cluster of this machine")
    parser.add_argument("--repeats", type=int, default=1, help="the shortest time of each way counts")
    parser.add_argument("--labels", type=int, help="train only this number of labels, of all frequencies")
    words = parser.parse_args()
    dataset = lt.read(words.data)
    X, Y = dataset.X, dataset.Y
    if words.labels and words.labels < Y.shape[1]:
        Y = sp.csr_array(Y[:, np.linspace(0, Y.shape[1] - 1, words.labels).astype(np.int64)])
    print(f"{X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels")
    ways = [*WAYS, *(RAY if words.ray else [])]
    METHODS[words.method](n_jobs=2).fit(X, Y[:, :512])  # compiles
    names: set[str] = set()
    wall: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for _ in range(words.repeats):
        for way in ways:
            seconds, spent, name = timed(way, words.method, X, Y)
            names.add(name)
            wall[way.title] = min(seconds, wall.get(way.title, seconds))
            cpu[way.title] = min(spent, cpu.get(way.title, spent))
    assert len(names) == 1, f"the models differ: {names}"
    print()
    for threads in (1, 2):
        plain, kept = f"threads:{threads}", f"threads:{threads}, run folder"
        print(f"run folder, {threads} thread(s): {wall[kept] / wall[plain] - 1:+.1%} of wall time (goal: at most 5 %)")
    for kind in ("threads", "processes"):
        gain = wall[f"{kind}:1"] / wall[f"{kind}:2"]
        print(f"two {kind} against one: {gain:.2f} times as fast (goal: at least 1.7)")
    for title in cpu:
        if title.startswith(("processes", "ray")):
            print(f"{title}: {cpu[title] / cpu['threads:2, run folder'] - 1:+.1%} of CPU time")


def timed(way: Way, method: str, X: sp.csr_array, Y: sp.csr_array) -> tuple[float, float, str]:
    """Wall and CPU seconds of one fit, and the name of its model."""
    with tempfile.TemporaryDirectory() as place:
        clf = METHODS[method](n_jobs=way.n_jobs)
        with TreeClock() as clock:
            begin = time.perf_counter()
            clf.fit(X, Y, run=Path(place) / "run" if way.kept else None, workers=way.workers)
            wall = time.perf_counter() - begin
        clf.save(Path(place) / "model")
        size = sum(path.stat().st_size for path in Path(place).glob("run/parts/*.part")) / 1e6
        print(
            f"{way.title:<24}{wall:8.2f} s{clock.seconds:9.2f} s of CPU"
            f"{len(clf.training_.block_seconds):6} blocks{size:9.1f} MB of parts",
            flush=True,
        )
        return wall, clock.seconds, store.model_id(Path(place) / "model")


if __name__ == "__main__":
    main()
