"""CPU seconds that Numba takes to compile the kernels of each method, from an empty cache.

    python benchmarks/compilation.py                        all methods, and prediction
    python benchmarks/compilation.py one-vs-all             one of them, kernel by kernel
    python benchmarks/compilation.py --json out.json        all of them, kernel by kernel, as JSON

Each method trains on the same 60 texts, in a process of its own. The time of a kernel is its own: the kernels that it
calls, and that are compiled on its behalf, have rows of their own. `signatures` above 1 are a hint that arrays of
different types, or of different layouts, reach the same kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

METHODS = ("one-vs-all", "one-vs-all newton", "pd-sparse", "memoir", "mach")
WORDS = ["cholera", "fever", "typhoid", "wound", "heart", "lung", "kidney", "bone", "skin", "eye", "ear", "nose"]


def texts() -> tuple[list[str], list[list[str]]]:
    """60 texts of a few words, with one to three labels each."""
    rows, labels = [], []
    for i in range(60):
        chosen = [WORDS[(i * step + step) % len(WORDS)] for step in (1, 3, 7, 11)]
        rows.append(" ".join(chosen))
        labels.append(sorted(set(chosen[: 1 + i % 3])))
    return rows, labels


def train(name: str) -> Any:
    import warnings

    import longtail as lt

    warnings.simplefilter("ignore")  # so few rows need not converge
    made: dict[str, Any] = {
        "one-vs-all": lambda: lt.OneVsAll(n_jobs=1),
        "one-vs-all newton": lambda: lt.OneVsAll(solver="newton", n_jobs=1),
        "pd-sparse": lambda: lt.PDSparse(n_jobs=1),
        "memoir": lambda: lt.Memoir(n_jobs=1),
        "mach": lambda: lt.Mach(n_buckets=4, n_repetitions=2, n_jobs=1),
    }
    return made[name]().fit(*texts())


class Clock:
    """The CPU seconds of every kernel without those of the kernels that are compiled on its behalf."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.signatures: Counter[str] = Counter()
        self.running: list[tuple[str, float]] = []

    def listen(self) -> Any:
        from numba.core import event

        clock = self

        class Listener(event.Listener):
            def on_start(self, event: Any) -> None:
                clock.turn(event.data["dispatcher"].py_func)

            def on_end(self, event: Any) -> None:
                clock.turn(None)

        return event.install_listener("numba:compile", Listener())

    def turn(self, function: Any) -> None:
        now = time.thread_time()
        if self.running:
            name, since = self.running[-1]
            self.seconds[name] += now - since
        if function is None:
            self.running.pop()
        else:
            name = f"{function.__module__.removeprefix('longtail.')}.{function.__name__}"
            self.signatures[name] += 1
            self.running.append((name, now))
        if self.running:
            self.running[-1] = (self.running[-1][0], time.thread_time())


def measure(name: str) -> dict[str, Any]:
    """Runs in a process of its own, with an empty cache."""
    clock = Clock()
    with clock.listen():
        clf = train(name)
        training = clock.seconds.copy()
        clf.predict_topk(texts()[0])
    kernels = [
        {"kernel": kernel, "signatures": clock.signatures[kernel], "seconds": round(seconds, 3)}
        for kernel, seconds in clock.seconds.most_common()
    ]
    total = sum(clock.seconds.values())
    return {
        "method": name,
        "training": round(training.total(), 2),
        "prediction": round(total - training.total(), 2),
        "kernels": kernels,
    }


def in_new_process(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        words = [sys.executable, __file__, "--inside", name]
        done = subprocess.run(
            words, env={**os.environ, "NUMBA_CACHE_DIR": cache}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", choices=[[], *METHODS], metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.inside)))
        return
    results = []
    for name in options.methods or METHODS:
        found = in_new_process(name)
        results.append(found)
        kernels = found["kernels"]
        print(
            f"{name:20} training {found['training']:6.2f} s, then prediction {found['prediction']:5.2f} s, "
            f"{len(kernels)} kernels, {sum(each['signatures'] for each in kernels)} signatures",
            flush=True,
        )
        for each in kernels if options.methods else ():
            print(f"  {each['seconds']:7.2f}  {each['signatures']:3}  {each['kernel']}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
