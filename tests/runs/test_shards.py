"""Runs whose model is divided into shards on disk: the same model, whatever interrupts, in the memory of one shard."""

from __future__ import annotations

import subprocess
import sys

import pytest

import longtail as lt
from longtail import folder, store
from longtail.errors import DataWarning, InputError
from longtail.models import LinearModel, ShardedModel
from tests.runs.problems import KINDS, data

X, Y = data()
SIZE = 1200  # bytes


def answers(clf):
    top = clf.predict_topk(X, 5)
    return top.labels.tobytes() + top.scores.tobytes() + clf.decision_function(X).tobytes()


@pytest.mark.parametrize("kind", ["one-vs-all", "one-vs-all newton", "pd-sparse", "memoir"])
def test_shards_give_the_model_of_a_plain_fit(tmp_path, kind):
    plain = KINDS[kind]().fit(X, Y)
    assert isinstance(plain.model_, LinearModel)
    ids = set()
    for name, run in (("in memory", None), ("on disk", tmp_path / "run")):
        clf = KINDS[kind]().fit(X, Y, run=run, shard_size=SIZE)
        assert isinstance(clf.model_, ShardedModel)
        assert len(clf.model_.shards) > 2
        assert answers(clf) == answers(plain)
        clf.save(tmp_path / name)
        ids.add(store.model_id(tmp_path / name))
        assert answers(lt.load(tmp_path / name)) == answers(plain)
    assert len(ids) == 1  # the same shards, whatever made them


def test_shards_of_a_run_are_mapped_and_outlive_the_run_folder_once_saved(tmp_path):
    clf = lt.OneVsAll().fit(X, Y, run=tmp_path / "run", shard_size=SIZE)
    shards = sorted((tmp_path / "run" / "shards").iterdir())
    assert len(shards) == len(clf.model_.shards)
    assert all(folder.holds(shard, folder.SHARD) for shard in shards)
    assert all(shard.stored is not None for shard in clf.model_.shards)
    clf.save(tmp_path / "model")
    for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert answers(lt.load(tmp_path / "model")) == answers(lt.OneVsAll().fit(X, Y))


def test_a_damaged_part_is_solved_again_and_shards_are_made_again(tmp_path):
    wanted = answers(lt.OneVsAll(block_size=4).fit(X, Y))
    for damage in ("part", "shard"):
        clf = lt.OneVsAll(block_size=4).fit(X, Y, run=tmp_path / "run", shard_size=SIZE)
        assert answers(clf) == wanted
        pattern = "parts/00000002.part" if damage == "part" else "shards/0001/W_data-*.npy"
        (path,) = (tmp_path / "run").glob(pattern)
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.unlink()  # a new file: the model of the run before maps the old one
        path.write_bytes(raw)
        if damage == "part":
            with pytest.warns(DataWarning, match="checksum is wrong.*block 2 is solved again"):
                clf = lt.OneVsAll(block_size=4).fit(X, Y, run=tmp_path / "run", shard_size=SIZE)
        else:
            clf = lt.OneVsAll(block_size=4).fit(X, Y, run=tmp_path / "run", shard_size=SIZE)
        assert answers(clf) == wanted


def test_the_size_of_shards_may_change_between_two_starts(tmp_path):
    wanted = answers(lt.OneVsAll().fit(X, Y))
    numbers = []
    for size in (None, SIZE, 3 * SIZE):
        clf = lt.OneVsAll().fit(X, Y, run=tmp_path / "run", shard_size=size)
        numbers.append(len(getattr(clf.model_, "shards", [0])))
        assert answers(clf) == wanted
    assert numbers[0] == 1 < numbers[2] < numbers[1]


@pytest.mark.parametrize("size", [0, -1, 1.5, "1GB", True])
def test_sizes_that_are_none(size):
    with pytest.raises(InputError, match="shard_size is a number of bytes"):
        lt.OneVsAll().fit(X, Y, shard_size=size)


LIMITED = """
import resource, sys
import numpy as np
import scipy.sparse as sp
from longtail.methods.one_vs_all.parts import WeightStack, part_of
from longtail.methods.problem import Block
from longtail.models.sharded import shard_weights
from longtail.store import Shelf
from pathlib import Path

LABELS, ROW, PARTS = 4000, 5000, 20  # 160 MB
stack = WeightStack(np.arange(LABELS), 100_000, 0.0)
if sys.argv[1] == "shelf":
    stack.use_shelf(Shelf(Path(sys.argv[2])), shard_weights(8_000_000))
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + 100_000_000, used + 100_000_000))
for number, labels in enumerate(np.split(np.arange(LABELS), PARTS)):
    indptr = np.arange(len(labels) + 1, dtype=np.int32) * ROW
    columns = (np.arange(len(labels) * ROW, dtype=np.int32) % ROW) * 20 + number
    W = sp.csr_array((np.ones(len(columns), np.float32), columns, indptr), shape=(len(labels), 100_000))
    each = np.zeros(len(labels))
    stack.add(part_of(Block(number, labels, 1.0), labels, W, each, each, np.zeros((len(labels), 4))))
    del W, columns
print(stack.model().n_weights)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is kept by Linux only")
@pytest.mark.parametrize(("how", "said"), [("memory", "MemoryError"), ("shelf", "20000000")])
def test_a_model_that_does_not_fit_into_memory_is_stacked_on_a_shelf(memory_path, how, said):
    """160 MB of weights with 100 MB of memory."""
    words = [sys.executable, "-c", LIMITED, how, str(memory_path / "shards")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert said in ended.stdout + ended.stderr
