"""What shards and a stored index do to memory.

    python benchmarks/shards.py share DATA TEST       two processes predict with one model: what does the second add?
    python benchmarks/shards.py stack DATA            parts of a finished run become the model: peak of private memory
    python benchmarks/shards.py data DATA             two worker processes train: what does each hold for itself?

Memory is that of Linux: private pages belong to one process; shared ones are pages of files that both have mapped.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import longtail as lt
from longtail import store

SHARD_BYTES = 32 * 10**6


def memory_of(pid: int | str = "self") -> dict[str, float]:
    """MB of a process: resident, its share of all pages, and its own pages. Anonymous pages belong to no file."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kb = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    private = kb["Private_Clean"] + kb["Private_Dirty"]
    return {name: value / 1024 for name, value in
            (("rss", kb["Rss"]), ("pss", kb["Pss"]), ("private", private), ("anonymous", kb["Anonymous"]))}  # fmt: skip


class Peak:
    """The largest anonymous memory of this process, looked at often."""

    def __enter__(self) -> Peak:
        self.first = self.most = memory_of()["anonymous"]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.over.wait(0.02):
            self.most = max(self.most, memory_of()["anonymous"])


def isolated(task: Any, *words: Any) -> Any:
    """The result of a function in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(task, words)


# --- prediction ------------------------------------------------------------------------------------------------------


def predict_and_wait(model: str, data: str, pipe: Any) -> None:
    rows = lt.read(data).X
    begin = time.process_time()
    clf = lt.load(model)
    loaded = time.process_time()
    _ = clf.model_.index  # else the first rows are scored without kernels
    clf.predict_topk(rows[:1], 5)  # may compile
    first = time.process_time()
    clf.predict_topk(rows, 5)
    pipe.send((loaded - begin, first - loaded, time.process_time() - first))
    pipe.recv()


def share(data: str, test: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        clf = lt.OneVsAll().fit(lt.read(data))
        lt.read(test).save(f"{place}/test")
        clf.save(f"{place}/stored", index=True)
        clf.save(f"{place}/made", index=False)
        clf.fit(lt.read(data), shard_size=SHARD_BYTES).save(f"{place}/shards", index=True)
        print(f"model {store.model_size(f'{place}/stored') / 1e6:.0f} MB, "
              f"index {store.index_size(f'{place}/stored') / 1e6:.0f} MB")  # fmt: skip
        for name in ("made", "stored", "shards"):
            tell_second_process(f"{place}/{name}", f"{place}/test", name)


def tell_second_process(model: str, test: str, name: str) -> None:
    context = multiprocessing.get_context("spawn")
    started = []
    for _ in range(2):
        mine, theirs = context.Pipe()
        process = context.Process(target=predict_and_wait, args=(model, test, theirs))
        process.start()
        load, first, rest = mine.recv()
        started.append((process, mine))
    facts = memory_of(started[1][0].pid)
    print(f"index {name:<7} rss {facts['rss']:5.0f}  pss {facts['pss']:5.0f}  private {facts['private']:5.0f} MB;  "
          f"load {load:.2f}  first row {first:.2f}  all rows {rest:.2f} CPU s", flush=True)  # fmt: skip
    for process, mine in started:
        mine.send(None)
        process.join()


# --- stacking --------------------------------------------------------------------------------------------------------


def stack_again(data: str, run: str, shard_size: int | None, model: str) -> tuple[float, float, float]:
    """Anonymous MB before, while the parts become the model, and while it is saved."""
    dataset = lt.read(data)
    estimator = lt.OneVsAll()
    estimator.fit(dataset[:50])  # loads the kernels
    with Peak() as fitting:
        estimator.fit(dataset, run=run, shard_size=shard_size)
    with Peak() as saving:
        estimator.save(model)
    return fitting.first, fitting.most, saving.most


def stack(data: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        lt.read(data).save(f"{place}/data")
        isolated(_fit, f"{place}/data", f"{place}/run")
        for title, size in (("in one piece", None), (f"shards of {SHARD_BYTES / 1e6:.0f} MB", SHARD_BYTES)):
            before, fit, save = isolated(stack_again, f"{place}/data", f"{place}/run", size, f"{place}/model-{size}")
            print(f"{title:<18} anonymous memory: {before:.0f} MB before, {fit:.0f} MB while parts become the model, "
                  f"{save:.0f} MB while it is saved", flush=True)  # fmt: skip
        print(f"model {store.model_size(f'{place}/model-None') / 1e6:.0f} MB")


def _fit(data: str, run: str) -> None:
    lt.OneVsAll().fit(lt.read(data), run=run)


# --- training data ---------------------------------------------------------------------------------------------------


def data(path: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        lt.read(path).save(f"{place}/data")
        dataset = lt.read(f"{place}/data")
        matrices = (dataset.X, dataset.Y)
        held = sum(array.nbytes for each in matrices for array in (each.data, each.indices, each.indptr))
        print(f"X and Y: {held / 1e6:.0f} MB")
        seen: dict[int, dict[str, float]] = {}

        def look(share: float) -> None:
            for child in multiprocessing.active_children():
                if child.pid is not None and share > 0.3:
                    seen[child.pid] = memory_of(child.pid)

        lt.OneVsAll().fit(dataset, workers="processes:2", progress=look)
        print(f"driver: {memory_of(os.getpid())['private']:.0f} MB private")
        for facts in seen.values():
            print("worker: " + ", ".join(f"{name} {value:.0f} MB" for name, value in facts.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("share", "stack", "data"))
    parser.add_argument("files", nargs="+")
    words = parser.parse_args()
    {"share": share, "stack": stack, "data": data}[words.what](*words.files)
