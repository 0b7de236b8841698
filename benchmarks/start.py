"""How quickly the command line starts, and what a process that predicts keeps in memory.

    python benchmarks/start.py                                   all of it, on texts made here
    python benchmarks/start.py --model MODEL                     memory for a model of yours
    python benchmarks/start.py --quick                           fewer repetitions, and no training

Every figure is that of a new process; CPU seconds are the minimum of several.

help                longtail --help
predict warm        longtail predict MODEL --text …, when all kernels are cached
predict cold        the same with an empty kernel cache
predict 500         longtail predict MODEL FILE for 500 texts, warm: this needs the kernels
train first         longtail train for 600 texts with an empty kernel cache, and how much of it was compilation
second, model       memory of the second process that predicts with longtail.load_model, as commands and the service do
second, estimator   the same with longtail.load, which imports scikit-learn

`benchmarks/compilation.py` lists the kernels that take the time of a first training.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

METHODS = ("one-vs-all", "pd-sparse", "memoir", "mach")
TEXT = "a text about word7, word19 and word3"

PROCESS = """
import sys

path, text, how = sys.argv[1:]
import longtail as lt

model = lt.load(path).model_ if how == "estimator" else lt.load_model(path)
if model.text_features is not None:
    X = model.text_features.transform([text])
else:
    import numpy as np
    from scipy.sparse import csr_array

    columns = np.arange(min(100, model.n_features))
    X = csr_array((np.ones(len(columns), np.float32), columns, [0, len(columns)]), shape=(1, model.n_features))
_ = model.index
model.predict_topk(X, 5)
print("ready", flush=True)
sys.stdin.readline()
"""


def run(words: list[str], cache: str) -> float:
    """CPU seconds of a process, with the kernel cache in this folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "longtail", "--quiet", *words]
    done = subprocess.run(command, env={**os.environ, "NUMBA_CACHE_DIR": cache}, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def texts(path: Path, n_rows: int) -> Path:
    """Texts of 40 words from a vocabulary of 3,000, with one to three of 100 labels, which are among the words."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(n_rows):
            words = [f"word{int(3000 * draw.random() ** 2)}" for _ in range(40)]
            labels = sorted({f"label{int(word[4:]) % 100}" for word in words[: draw.randint(1, 3)]})
            file.write(json.dumps({"text": " ".join(words), "labels": labels}) + "\n")
    return path


def memory(pid: int) -> dict[str, float]:
    """Resident, private and anonymous memory of a process, in MB (Linux)."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0])
    private = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return {"resident": sizes["Rss"] / 1024, "private": private / 1024, "anonymous": sizes["Anonymous"] / 1024}


def second_process(model: str, how: str) -> dict[str, float]:
    """The memory of the second of two processes that have predicted with the same model."""
    words = [sys.executable, "-c", PROCESS, model, TEXT, how]
    started = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in started:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("a process could not predict")
    found = memory(started[1].pid)
    for process in started:
        process.communicate("\n")
    return found


def say(name: str, figures: dict[str, Any]) -> None:
    print(f"{name:19}" + "  ".join(f"{key} {value:.2f}" for key, value in figures.items()), flush=True)


def say_memory(model: str) -> None:
    for how in ("model", "estimator"):
        figures = second_process(model, how)
        say(f"second, {how}", {f"{key} MB": value for key, value in figures.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder whose memory is measured")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, and no training")
    options = parser.parse_args()
    if options.model:
        say_memory(options.model)
        return
    times = 1 if options.quick else 5
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        data, some, model = texts(root / "train.jsonl", 600), texts(root / "some.jsonl", 500), str(root / "model")
        warm = str(root / "warm")
        first = run(["train", str(data), model], warm)
        again = run(["train", str(data), model, "--force"], warm)
        say("help", {"CPU s": min(run(["--help"], warm) for _ in range(times))})
        words = ["predict", model, "--text", TEXT]
        say("predict warm", {"CPU s": min(run(words, warm) for _ in range(times))})
        say("predict cold", {"CPU s": min(run(words, str(root / f"cold{i}")) for i in range(times))})
        run(["predict", model, str(some)], warm)
        say("predict 500", {"CPU s": min(run(["predict", model, str(some)], warm) for _ in range(times))})
        say("train one-vs-all", {"first CPU s": first, "compilation": first - again})
        for method in () if options.quick else METHODS[1:]:
            cache, words = str(root / method), ["train", str(data), str(root / f"{method}-model"), "--method", method]
            first = run(words, cache)
            say(f"train {method}", {"first CPU s": first, "compilation": first - run([*words, "--force"], cache)})
        say_memory(model)


if __name__ == "__main__":
    main()
