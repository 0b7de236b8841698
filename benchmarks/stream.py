"""`longtail predict` on a large file: rows per second, memory on the way, and what an interruption costs.

    python benchmarks/stream.py demo-output/model                a million texts of ICD-10-CM with their words mixed
    python benchmarks/stream.py demo-output/model --rows 100000

The same file is predicted twice: without a break, and killed (SIGKILL) after a third and continued with --resume. Both
must write the same bytes, or the run fails. Memory is the largest resident set until a tenth, until half and until all
of the output is written.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

LOOK_SECONDS = 0.1


def write_texts(path: Path, n_rows: int) -> None:
    from longtail.data import icd10

    texts = [text for text, _ in icd10.load().test]
    chance = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(n_rows):
            words = f"{texts[i % len(texts)]} {chance.choice(texts)}".split()
            chance.shuffle(words)
            file.write(json.dumps({"id": i, "text": " ".join(words)}) + "\n")


def predict(
    model: str, data: Path, output: Path, *more: str, kill_at: float | None = None, total: int = 1
) -> tuple[float, list[tuple[int, int]]]:
    """Seconds of wall clock, and bytes written and resident memory as they grew.

    kill_at : end the process when it has written this share of `total` bytes
    """
    words = [sys.executable, "-m", "longtail", "--quiet", "predict", model, str(data), "-o", str(output), *more]
    begin, seen = time.perf_counter(), []
    process = subprocess.Popen(words)
    while process.poll() is None:
        time.sleep(LOOK_SECONDS)
        written = sum(each.stat().st_size for each in output.parent.glob(f"*{output.name}*"))
        seen.append((written, resident(process.pid)))
        if kill_at is not None and written > kill_at * total:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return time.perf_counter() - begin, seen
    if process.returncode:
        raise SystemExit("longtail predict failed")
    return time.perf_counter() - begin, seen


def resident(pid: int) -> int:
    """Bytes of the resident set; 0 if the process has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


def at_share(seen: Sequence[tuple[int, int]], share: float, total: int) -> float:
    """Megabytes of memory when this share of the output had been written."""
    return max(memory for written, memory in seen if memory and written <= share * total) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, whole, broken = (folder / each for each in ("texts.jsonl", "whole.jsonl", "broken.jsonl"))
        write_texts(data, options.rows)
        print(f"{options.rows:,} texts, {data.stat().st_size / 1e6:,.0f} MB")
        seconds, seen = predict(options.model, data, whole)
        total = whole.stat().st_size
        print(f"predicted in {seconds:.0f} s, {options.rows / seconds:,.0f} rows/s, {total / 1e6:,.0f} MB written")
        print("largest memory until", ", ".join(f"{s:.0%}: {at_share(seen, s, total):.0f} MB" for s in (0.1, 0.5, 1.0)))
        first, _ = predict(options.model, data, broken, kill_at=1 / 3, total=total)
        again, _ = predict(options.model, data, broken, "--resume")
        if not filecmp.cmp(whole, broken, shallow=False):
            raise SystemExit("the interrupted run wrote other bytes")
        print(f"killed after {first:.0f} s; --resume took {again:.0f} s, and the output has the same bytes")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
