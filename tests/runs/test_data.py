"""Training data on disk: a saved dataset and the copy of a run are mapped, so that processes share one copy."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

import longtail as lt
from longtail import runs
from tests.runs.problems import data
from tests.store.test_sharded import is_mapped


@pytest.fixture
def dataset(tmp_path):
    lt.Dataset(*data()).save(tmp_path / "data")
    return lt.read(tmp_path / "data")


def test_a_saved_dataset_is_trained_on_without_a_copy(dataset):
    canonical = lt.OneVsAll()._canonical(dataset, None, None, None, None)
    assert is_mapped(canonical.X.data)
    assert is_mapped(canonical.X.indices)
    assert is_mapped(canonical.Y.indices)
    problem = lt.OneVsAll(solver="newton")._problem(canonical.X, canonical.Y)  # the dual solver renumbers features
    assert is_mapped(problem.X.data)
    assert is_mapped(problem.X.indices)
    rows = lt.HybridRows(canonical.X, canonical.X.data[: 3 * canonical.X.shape[0]].reshape(-1, 3))
    assert is_mapped(lt.OneVsAll()._problem(rows, canonical.Y).X.dense)
    assert is_mapped(lt.Mach()._problem(canonical.X, canonical.Y).data.rows.X[0])


def test_workers_map_the_copy_of_the_run(tmp_path, dataset):
    runs.write_data(tmp_path / "copy", dataset.X, dataset.Y, "mark")
    X, Y = runs.read_data(tmp_path / "copy", "mark")
    assert all(is_mapped(array) for array in (X.data, X.indices, Y.indices))
    problem = lt.OneVsAll(solver="newton")._problem(X, Y)
    assert np.shares_memory(problem.X.data, X.data)
    assert np.shares_memory(problem.X.indices, X.indices)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs the list of maps of Linux")
def test_worker_processes_have_the_data_mapped(tmp_path, dataset):
    """Seen from outside, while they work: each worker maps the files of the run, and none has them for itself."""
    seen: dict[int, set[str]] = {}

    def look(share):
        for child in multiprocessing.active_children():
            lines = Path(f"/proc/{child.pid}/maps").read_text(encoding="utf-8").splitlines()
            found = {
                line.rpartition("/")[2].partition("-")[0] for line in lines if str(tmp_path / "run" / "data") in line
            }
            seen.setdefault(child.pid, set()).update(found)

    lt.OneVsAll(block_size=2).fit(dataset, run=tmp_path / "run", workers="processes:2", progress=look)
    mapped = [names for names in seen.values() if names]
    assert len(mapped) == 2
    assert all(names >= {"X_data", "X_indices", "Y_indices"} for names in mapped)
