"""What cannot fit is refused before it is tried."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import memory
from longtail.errors import InputError
from longtail.methods import METHODS


def test_free_memory_is_that_of_the_system(monkeypatch, tmp_path):
    assert 1e6 < memory.free() < 1e15
    told = tmp_path / "meminfo"
    told.write_text("MemTotal:  9 kB\nMemAvailable:   2048 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", told)
    assert memory.free() == 2048 * 1024
    told.write_text("MemAvailable:\n")
    assert memory.free() > 2048 * 1024  # no number: that of the machine


def test_the_message_says_what_would_fit(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 8e9)
    memory.must_fit(10**8, "features", 24)
    with pytest.raises(InputError, match=r"1,000,000,000 features take 24 GB .* 8 GB of memory are free"):
        memory.must_fit(10**9, "features", 24)


def sparse(n_columns: int) -> sp.csr_array:
    return sp.csr_array((np.ones(3, np.float32), [0, 2, n_columns - 1], [0, 1, 2, 3]), shape=(3, n_columns))


@pytest.mark.parametrize("method", METHODS.values())
def test_headers_that_promise_too_many_labels_are_refused(method, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 16e9)
    with pytest.raises(InputError, match=r"2,147,483,646 labels take 215 GB"):
        method().fit(sparse(4), sparse(2**31 - 2))


@pytest.mark.parametrize("method", METHODS.values())
def test_headers_that_promise_too_many_features_are_refused(method, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 16e9)
    with pytest.raises(InputError, match="2,147,483,646 features take"):
        method().fit(sparse(2**31 - 2), sparse(4))


def test_a_model_for_too_many_features_does_not_predict(monkeypatch):
    clf = lt.OneVsAll().fit(sparse(5), sparse(4))
    monkeypatch.setattr(memory, "free", lambda: 99.0)
    with pytest.raises(InputError, match="5 features take"):
        clf.predict_topk(sparse(5))
