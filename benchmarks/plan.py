"""Plans against reality: time, peak memory and size of the model, for every method on every dataset.

    python benchmarks/plan.py DATA… [--methods one-vs-all mach …]

Every fit is planned and then done in a process of its own, after a small fit that compiles the kernels. A figure is
right if the plan is within 30 % of what happened. The size is that of the model folder. Wall time means something on an
idle machine only; CPU time suffers less from other programs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import longtail as lt
from longtail import store
from longtail.methods import METHODS

CLOSE = 0.3
FIGURES = {"cpu": ("CPU s", 1.0), "wall": ("wall s", 1.0), "peak": ("peak MB", 1e6), "model": ("folder MB", 1e6)}


def measure(path: str, method: str) -> dict[str, Any]:
    """Plan one fit, do it, and return both."""
    data = lt.read(path)
    make = METHODS[method]
    make().fit(data.X[:300], data.Y[:300])  # compiles
    begin = time.process_time()
    plan = make().plan(data)
    spent = time.process_time() - begin
    clf = make().fit(data)
    with tempfile.TemporaryDirectory() as place:
        clf.save(Path(place) / "model")
        size = store.model_size(Path(place) / "model")
    record = clf.training_
    planned = {"cpu": plan.cpu_seconds, "wall": plan.seconds, "peak": plan.peak_bytes, "model": plan.disk_bytes}
    real = {"cpu": record.cpu_seconds, "wall": record.wall_seconds, "peak": record.peak_bytes, "model": size}
    return {"planned": planned, "real": real, "plan_seconds": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="training files or dataset folders")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.one:
        print(json.dumps(measure(words.data[0], words.methods[0])))
        return
    titles = [f"{title}: plan | real | plan/real" for title, _ in FIGURES.values()]
    print("| data | method | " + " | ".join(titles) + " | CPU s of the plan |")
    print("|---" * (3 + 3 * len(FIGURES)) + "|")
    wrong = 0
    for path in words.data:
        for method in words.methods:
            command = [sys.executable, __file__, path, "--methods", method, "--one"]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            cells = []
            for name, (_, unit) in FIGURES.items():
                planned, real = found["planned"][name][1], found["real"][name]
                ratio = planned / real
                is_wrong = not 1 - CLOSE <= ratio <= 1 + CLOSE
                wrong += is_wrong
                cells += [f"{planned / unit:,.1f}", f"{real / unit:,.1f}", f"{ratio:.2f}{' !' if is_wrong else ''}"]
            name = Path(path).parent.name if Path(path).is_file() else Path(path).name
            print(f"| {name} | {method} | " + " | ".join(cells) + f" | {found['plan_seconds']:.1f} |", flush=True)
    print(f"\n{wrong} figures are not within {CLOSE:.0%}")


if __name__ == "__main__":
    main()
