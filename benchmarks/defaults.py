"""Chooses the defaults of `OneVsAll`, C and positive_weight, on held-out training rows.

    python benchmarks/defaults.py FOLDER ... [--rows 15000] [--setting 1,1 ...] [--kept FILE]

A FOLDER holds `train.txt` (plain, .gz or .xz) in Extreme Classification Repository format; `icd-10-cm` stands for the
corpus of the demo. Test rows are not used. Every setting is trained on the same rows and scored on the same held-out
rows: a fifth of the training rows, at most 10,000. Larger data are sampled to --rows rows first.

The table has P@1/3/5 of the first setting, and for every other setting how the mean of P@1, P@3 and P@5 differs from
the first: in points, with the standard error of the paired difference over rows. --kept FILE keeps finished fits, so
that a later run continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import longtail as lt
from longtail.data import split
from longtail.metrics.hits import find_hits
from longtail.metrics.table import align
from quality import load

SETTINGS = ["1,1", "1/3,auto", "1/3,3", "1/3,1", "1/2,2", "1,2", "1/3,5", "1,3", "1/10,10", "3,1"]
HELD_OUT = 10_000
KS = (1, 3, 5)


def number(text: str) -> float:
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


def row_gains(Y: Any, top: Any) -> np.ndarray:
    """P@1, P@3 and P@5 of every row: (rows, 3)."""
    hit = find_hits(Y, top).hit
    return np.stack([hit[:, :k].sum(axis=1) / k for k in KS], axis=1)


def measure(folder: str, settings: list[str], most: int, kept: Path | None) -> dict[str, dict[str, Any]]:
    done = {} if kept is None or not kept.exists() else json.loads(kept.read_text())
    found: dict[str, dict[str, Any]] = done.get(folder, {})
    left = [setting for setting in settings if setting not in found]
    if not left:
        return found
    data, _ = load(folder)
    if data.n_samples > most:
        data = data.select(np.sort(np.random.RandomState(0).permutation(data.n_samples)[:most]))
    mask = split.held_out(data.Y, min(0.2, HELD_OUT / data.n_samples), 0)
    train, held_out = data.select(np.flatnonzero(~mask)), data.select(np.flatnonzero(mask))
    for setting in left:
        C, weight = (word if word == "auto" else number(word) for word in setting.split(","))
        start = time.process_time()
        clf = lt.OneVsAll(C, positive_weight=weight, n_jobs=1).fit(train)
        seconds = time.process_time() - start
        gains = row_gains(held_out.Y, clf.predict_topk(held_out.X, 5))
        found[setting] = {
            "rows": train.n_samples, "P": gains.mean(axis=0).round(6).tolist(), "cpu": round(seconds, 1),
            "mean": gains.mean(axis=1).round(4).tolist(),
        }  # fmt: skip
        sys.stderr.write(f"{folder} {setting} {gains.mean(axis=0).round(4)} {seconds:.1f} s\n")
        if kept is not None:
            done[folder] = found
            kept.write_text(json.dumps(done))
    return found


def table_row(folder: str, settings: list[str], found: dict[str, dict[str, Any]]) -> list[Any]:
    first = found[settings[0]]
    cells = ["/".join(f"{100 * value:.1f}" for value in first["P"])]
    for setting in settings[1:]:
        gain = 100 * (np.array(found[setting]["mean"]) - np.array(first["mean"]))
        cells.append(f"{gain.mean():+.2f} ± {gain.std() / np.sqrt(len(gain)):.2f}")
    return [Path(folder).name, f"{first['rows']:,}", *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--rows", type=int, default=10**9, help="sample larger data to this many training rows")
    parser.add_argument("--setting", action="append", metavar="C,WEIGHT", help="the first is the base of comparison")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="keep finished fits there")
    options = parser.parse_args()
    settings = options.setting or SETTINGS
    rows = [
        table_row(folder, settings, measure(folder, settings, options.rows, options.kept)) for folder in options.folders
    ]
    header = ["data", "rows", f"{settings[0]}: P@1/3/5", *settings[1:]]
    sys.stdout.write(align(header, rows) + "\n")


if __name__ == "__main__":
    main()
