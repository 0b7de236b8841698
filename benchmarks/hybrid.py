"""Words alone, and words with embeddings: precision, training CPU, prediction time and model size of each method.

    python -m benchmarks.hybrid FOLDER --dense FOLDER [--method one-vs-all ...] [--scale 0.5] [--set C=1/3 ...]
    python -m benchmarks.hybrid FOLDER --table FOLDER [...]

A FOLDER of data holds `train.txt` and `test.txt` as for quality.py. `--dense` is a second such folder, whose rows are
the embeddings of the same texts. `--table` is a folder with a table of token vectors, or "wordllama" (`embeddings` of
TextFeatures). The texts are then read from `raw_train.jsonl.xz` and `raw_test.jsonl.xz` beside the data, line by line
the same rows. Embeddings are centred and get the length `--scale`; with "auto" it is chosen on held-out training rows.
`--tune SECONDS` chooses the parameters of one-vs-all on held-out training rows, for words and for both alone.
`--method all` measures the four methods. Prediction runs on two threads; of three runs the fastest counts. Linear
models are also saved in 8 bits: the last columns are the size of that folder and its precision.
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
from longtail.tuning.embedding_scale import best_factor


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


def precision(Y: Any, top: Any) -> str:
    return " / ".join(f"{100 * lt.metrics.precision_at_k(Y, top, k):.2f}" for k in (1, 3, 5))


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
    figures = [precision(Y_test, top), f"{cpu:.1f}", f"{1e3 * min(seconds) / X_test.shape[0]:.3f}"]
    for weights in (None, "8-bit"):
        with tempfile.TemporaryDirectory() as folder:
            clf.save(folder, weights=weights, index=None if weights else False)
            figures.append(f"{store.model_size(folder) / 1e6:.1f}")
            if weights is not None:
                figures.append(precision(Y_test, lt.load(folder).predict_topk(X_test, 5)))
        if clf.method == "mach":  # its weights have 8 bits anyway
            break
    return figures


def tuned(X: Any, Y: Any, seconds: float) -> dict[str, Any]:
    """The parameters of one-vs-all that are best on held-out training rows."""
    return lt.tune(lt.Dataset(X, Y), seconds, methods=["one-vs-all"], n_jobs=2).best.params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--dense")
    parser.add_argument("--table")
    parser.add_argument("--scale", default="0.5", metavar="NUMBER|auto")
    parser.add_argument("--method", action="append", choices=[*METHODS, "all"])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tune", type=float, metavar="SECONDS")
    options = parser.parse_args()
    train, test = load(options.folder)
    start = 0.5 if options.scale == "auto" else float(options.scale)
    dense = encoded(options.folder, options.table, start) if options.table else precomputed(options.dense, start)
    if options.scale == "auto":
        begin = time.process_time()
        factor = best_factor(lt.HybridRows(train.X, dense[0]), train.Y, n_jobs=2)
        print(f"scale {start * factor:.3g}, chosen in {time.process_time() - begin:.1f} CPU s")
        dense = [np.float32(factor) * each for each in dense]
    rows = [lt.HybridRows(data.X, columns) for data, columns in zip((train, test), dense, strict=True)]
    chosen = {name: float(Fraction(value)) for name, value in (each.split("=") for each in options.set)}
    header = "P@1 / 3 / 5", "train CPU s", "predict ms/row", "model MB", "8-bit MB", "its P@1 / 3 / 5"
    print("method", "rows", *header, sep=" | ")
    methods = options.method or ["one-vs-all"]
    for method in METHODS if "all" in methods else methods:
        make = METHODS[method]
        make(n_jobs=2, **chosen).fit(rows[0][:200], train.Y[:200]).predict_topk(rows[1][:300])  # compiles
        for name, X, X_test in (("words", train.X, test.X), ("words and embeddings", *rows)):
            own = chosen if options.tune is None or method != "one-vs-all" else tuned(X, train.Y, options.tune)
            found = measured(make(n_jobs=2, **own), X, train.Y, X_test, test.Y)
            print(
                method,
                " ".join([name, *(f"{key}={value}" for key, value in own.items())]),
                *found,
                sep=" | ",
                flush=True,
            )


if __name__ == "__main__":
    main()
