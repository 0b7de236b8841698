"""What cannot fit is refused before it is tried."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import memory
from longtail.errors import InputError
from longtail.methods import METHODS
from longtail.models import plain


def test_free_memory_is_that_of_the_system(monkeypatch, tmp_path):
    assert 1e6 < memory.free() < 1e15
    told = tmp_path / "meminfo"
    told.write_text("MemTotal:  9 kB\nMemAvailable:   2048 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", told)
    assert memory.free() == 2048 * 1024
    told.write_text("MemAvailable:\n")
    assert memory.free() > 2048 * 1024  # no number: that of the machine


@pytest.mark.parametrize(("most", "left"), [("5000", 3000), ("max", 1e9)])
def test_a_container_may_have_less_than_the_machine(monkeypatch, tmp_path, most, left):
    monkeypatch.setattr(memory, "_machine", lambda: 1e9)
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    (tmp_path / "memory.max").write_text(f"{most}\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert memory.free() == left


def test_the_message_says_what_would_fit(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 8e9)
    memory.must_fit(10**8, "features", 24, "take fewer")
    with pytest.raises(
        InputError, match=r"1,000,000,000 features need 24.0 GB .* 8.0 GB of memory are free; take fewer"
    ):
        memory.must_fit(10**9, "features", 24, "take fewer")


def test_freed_memory_goes_back_to_the_system():
    pieces = [np.ones(10_000) for _ in range(1000)]  # 80 MB, each too small for a mapping of its own
    before = memory.resident()
    last = pieces[-1]  # keeps the end of the heap, so that freeing alone gives nothing back
    del pieces
    memory.release()
    assert memory.resident() < before - 40e6 or memory._trim().__name__ == "<lambda>"
    assert last.sum() == 10_000


def test_another_c_library_keeps_what_it_wants(monkeypatch):
    class Without:
        def __init__(self, name):
            raise TypeError("no library of the process")

    memory._trim.cache_clear()
    monkeypatch.setattr(memory.ctypes, "CDLL", Without)
    memory.release()
    memory._trim.cache_clear()


def sparse(n_columns: int) -> sp.csr_array:
    return sp.csr_array((np.ones(3, np.float32), [0, 2, n_columns - 1], [0, 1, 2, 3]), shape=(3, n_columns))


@pytest.mark.parametrize("method", METHODS.values())
def test_headers_that_promise_too_many_labels_are_refused(method, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 16e9)
    with pytest.raises(InputError, match=r"2,147,483,646 labels need .* correct the number in the file"):
        method().fit(sparse(4), sparse(2**31 - 2))


@pytest.mark.parametrize("method", METHODS.values())
def test_headers_that_promise_too_many_features_are_refused(method, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 16e9)
    with pytest.raises(InputError, match=r"2,147,483,646 features need .* correct the number in the file"):
        method().fit(sparse(2**31 - 2), sparse(4))


@pytest.mark.parametrize("what", ["features", "labels"])
@pytest.mark.parametrize(
    "clf",
    [
        lt.OneVsAll(),
        lt.PDSparse(),
        lt.Memoir(),
        lt.Memoir(oracle="sw-graph"),
        lt.Memoir(oracle="simple-lsh"),
        lt.Mach(),
    ],
    ids=str,
)
def test_no_method_refuses_columns_that_it_would_not_take_the_memory_for(clf, what):
    shapes = {"features": (300_000, 4), "labels": (4, 60_000)}[what]
    clf.set_params(n_jobs=1).fit(sparse(4), sparse(4))  # compiles
    tracemalloc.start()
    try:
        clf.fit(sparse(shapes[0]), sparse(shapes[1]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    per_feature, per_label = clf._column_bytes()
    assert peak > {"features": per_feature, "labels": per_label}[what] * max(shapes)


def test_a_model_for_too_many_features_does_not_predict(monkeypatch):
    clf = lt.OneVsAll().fit(sparse(5), sparse(4))
    monkeypatch.setattr(plain, "BUDGET", -1)  # rows that are scored without kernels need no index
    monkeypatch.setattr(memory, "free", lambda: 99.0)
    with pytest.raises(InputError, match=r"5 features need .* train on fewer"):
        clf.predict_topk(sparse(5))


def test_resident_memory_is_that_of_the_process(monkeypatch, tmp_path):
    assert 1e7 < memory.resident() <= 1.01 * memory.peak()
    before = memory.resident()
    held = np.ones(20_000_000)
    assert memory.resident() - before > 0.9 * held.nbytes
    monkeypatch.setattr(memory, "STATM", tmp_path / "none")
    assert memory.resident() == memory.peak()  # where there is no such file
