"""Words alone, and words with embeddings: precision, training CPU, prediction time and model size of each method.

    python benchmarks/hybrid.py FOLDER --dense FOLDER [--method one-vs-all ...] [--scale 0.5] [--set C=1/3 ...]
    python benchmarks/hybrid.py FOLDER --table FOLDER [...]

A FOLDER of data holds `train.txt` and `test.txt` as for quality.py. `--dense` is a second such folder, whose rows are
the embeddings of the same texts. `--table` is a folder with a table of token vectors (`embeddings` of TextFeatures).
The texts are then read from `raw_train.jsonl.xz` and `raw_test.jsonl.xz` beside the data, line by line the same rows.
Embeddings are centred and get the length `--scale`. Prediction runs on two threads; of three runs the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import longtail as lt
from benchmarks.quality import load
from longtail import store
from longtail.data.embeddings import DensePart, encoder
from longtail.methods import METHODS


def texts(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def precomputed(folder: str, scale: float) -> list[np.ndarray]:
    """The embeddings of the training and the test rows, centred by the training rows."""
    train, test = (part.X.toarray() for part in load(folder))
    centre = train.mean(axis=0)
    return [scale * (X - centre) / np.linalg.norm(X - centre, axis=1, keepdims=True) for X in (train, test)]


def encoded(folder: str, table: str, scale: float) -> list[np.ndarray]:
    """The same, from texts and a table of token vectors. Prints how many texts per CPU second are encoded."""
    part = DensePart(encoder(table), scale)
    both = [texts(Path(folder) / f"raw_{name}.jsonl.xz") for name in ("train", "test")]
    part.encoder.encode(both[0][:10])  # compiles
    begin = time.process_time()
    vectors = [part.learn(part.encoder.encode(both[0])), part.encoder.encode(both[1])]
    seconds = time.process_time() - begin
    print(f"{sum(map(len, both)) / seconds:,.0f} texts per CPU second")
    return [part.columns(each) for each in vectors]


def measured(clf: Any, X: Any, Y: Any, X_test: Any, Y_test: Any) -> list[str]:
    cpu = time.process_time()
    clf.fit(X, Y)
    cpu = time.process_time() - cpu
    clf.predict_topk(X_test[:4], 5)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        top = clf.predict_topk(X_test, 5)
        seconds.append(time.perf_counter() - begin)
    with tempfile.TemporaryDirectory() as folder:
        clf.save(folder, index=False)
        size = store.model_size(folder)
    precision = " / ".join(f"{100 * lt.metrics.precision_at_k(Y_test, top, k):.2f}" for k in (1, 3, 5))
    return [precision, f"{cpu:.1f}", f"{1e3 * min(seconds) / X_test.shape[0]:.3f}", f"{size / 1e6:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--dense")
    parser.add_argument("--table")
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--method", action="append", choices=list(METHODS))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    train, test = load(options.folder)
    if options.table:
        dense = encoded(options.folder, options.table, options.scale)
    else:
        dense = precomputed(options.dense, options.scale)
    rows = [lt.HybridRows(data.X, columns) for data, columns in zip((train, test), dense, strict=True)]
    chosen = {name: float(Fraction(value)) for name, value in (each.split("=") for each in options.set)}
    print("method", "rows", "P@1 / 3 / 5", "train CPU s", "predict ms/row", "model MB", sep=" | ")
    for method in options.method or ["one-vs-all"]:
        make = METHODS[method]
        make(n_jobs=2, **chosen).fit(rows[0][:200], train.Y[:200]).predict_topk(rows[1][:300])  # compiles
        for name, X, X_test in (("words", train.X, test.X), ("words and embeddings", *rows)):
            found = measured(make(n_jobs=2, **chosen), X, train.Y, X_test, test.Y)
            print(method, name, *found, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
