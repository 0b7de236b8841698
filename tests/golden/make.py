"""Writes the golden model folders: one per kind of model, in the format of the day.

    python -m tests.golden.make

Folders of a format version are written once, committed and never written again. `test_golden.py` proves that every
later version still reads them and gives the same answers.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import longtail as lt
from longtail.data.embeddings import StaticEncoder

HERE = Path(__file__).parent
TEXTS = ["red apple", "green apple", "red cherry", "green pear", "yellow pear", "red plum", "ripe yellow plum"]
LABELS = [["apple", "red"], ["apple"], ["cherry", "red"], ["pear"], ["pear"], ["plum", "red"], ["plum"]]
QUESTIONS = ["a red pear", "yellow cherry", "nothing known"]
ESTIMATORS = {
    "linear-1": lt.OneVsAll(C=10),
    "hashed-1": lt.Mach(n_buckets=4, n_repetitions=3, max_iter=40),
    "calibrated-1": lt.OneVsAll(C=10, calibrate="held-out:fraction=0.3"),
    "calibrated-2": lt.OneVsAll(C=10, calibrate="held-out:fraction=0.3"),  # with a rank offset
    "ensemble-1": lt.Ensemble([lt.OneVsAll(C=10), lt.Mach(n_buckets=4, n_repetitions=3, max_iter=40)]),
    "ensemble-2": lt.Ensemble([lt.OneVsAll(C=10), lt.Mach(n_buckets=4, n_repetitions=3, max_iter=40)]),  # a mixture
    "sharded-1": lt.OneVsAll(C=10),
    "hybrid-1": lt.OneVsAll(C=10),
    "hybrid-8-bit-1": lt.OneVsAll(C=10),
}
WEIGHTS = {"hybrid-8-bit-1": "8-bit"}  # their form in the folder
SHARD_BYTES = {"sharded-1": 200}  # its folder also has the index
COPIES = 4  # calibration needs some rows


def fruit_vectors() -> StaticEncoder:
    """A table of token vectors, with a tokenizer that divides texts at spaces."""
    words = ["[UNK]", *sorted({word for text in TEXTS for word in text.split()})]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(words)}, "unk_token": "[UNK]"},
    }  # fmt: skip
    table = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float16).astype(np.float32)
    return StaticEncoder(table, json.dumps(tokenizer), "fruit")


def main() -> None:
    for name, estimator in ESTIMATORS.items():
        folder = HERE / name
        if folder.exists():
            continue
        copies = COPIES if estimator.calibrate else 1
        features = lt.TextFeatures(embeddings=fruit_vectors()) if "hybrid" in name else None
        clf = estimator.fit(copies * TEXTS, copies * LABELS, text_features=features, shard_size=SHARD_BYTES.get(name))
        clf.save(folder / "model", weights=WEIGHTS.get(name), index=name in SHARD_BYTES)
        clf = lt.load(folder / "model")
        top = clf.predict_topk(QUESTIONS, 3)
        answers = {
            "method": clf.method,
            "classes": clf.classes_.tolist(),
            "labels": top.labels.tolist(),
            "scores": np.round(top.scores.astype(float), 5).tolist(),
            "probabilities": None
            if top.probabilities is None
            else np.round(top.probabilities.astype(float), 5).tolist(),
            "predict": clf.predict(QUESTIONS).toarray().tolist(),
            "n_iter": clf.training_.n_iter.tolist(),
            "why": [share.feature for share in clf.explain(QUESTIONS[0], "red").contributions],
        }
        (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
