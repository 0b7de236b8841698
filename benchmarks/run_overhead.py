"""What a run folder and other workers cost: wall and CPU time of the same fit, kept or not, by one worker and by two.

    python benchmarks/run_overhead.py DATA --method one-vs-all [--ray]

Prints one line per way to train, and checks that all models have the same name. CPU time includes worker processes, but
not those of Ray; wall time means something on an idle machine only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import longtail as lt
from longtail import store
from longtail.methods import METHODS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--method", default="one-vs-all", choices=METHODS)
    parser.add_argument("--ray", action="store_true", help="also on a Ray cluster of this machine")
    parser.add_argument("--repeats", type=int, default=1)
    words = parser.parse_args()
    dataset = lt.read(words.data)
    ways = [
        ("threads:1", 1, None, False),
        ("threads:2", 2, None, False),
        ("threads:1, run folder", 1, None, True),
        ("threads:2, run folder", 2, None, True),
        ("processes:1", 1, "processes:1", True),
        ("processes:2", 2, "processes:2", True),
        *([("ray, 2 CPUs", None, "ray", True)] if words.ray else []),
    ]
    METHODS[words.method](n_jobs=2).fit(dataset)  # compiles
    names = set()
    for _ in range(words.repeats):
        for title, n_jobs, workers, kept in ways:
            with tempfile.TemporaryDirectory() as place:
                clf = METHODS[words.method](n_jobs=n_jobs)
                begin = time.perf_counter()
                clf.fit(dataset, run=Path(place) / "run" if kept else None, workers=workers)
                wall = time.perf_counter() - begin
                clf.save(Path(place) / "model")
                names.add(store.model_id(Path(place) / "model"))
                parts = list(Path(place).glob("run/parts/*.part"))
                size = sum(path.stat().st_size for path in parts) / 1e6
                print(
                    f"{title:<24}{wall:8.2f} s{clf.training_.cpu_seconds:9.2f} s of CPU"
                    f"{len(clf.training_.block_seconds):6} blocks{size:9.1f} MB of parts",
                    flush=True,
                )
    assert len(names) == 1, f"the models differ: {names}"


if __name__ == "__main__":
    main()
