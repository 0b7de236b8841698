"""read_rows: a file of vectors in blocks is the same matrix as the file read as a whole, in constant memory."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import read, xmc
from longtail.data.read import read_rows
from longtail.errors import DataError

LIKE = SimpleNamespace(n_features=6, n_labels=4)


def blocks(path, n_rows=3, like=LIKE, **how):
    return list(read_rows(path, like=like, n_rows=n_rows, **how))


def joined(parts) -> sp.csr_array:
    return sp.csr_array(sp.vstack(parts)) if parts else sp.csr_array((0, LIKE.n_features), dtype=np.float32)


features = st.dictionaries(st.integers(0, 5), st.sampled_from(["1", "0.5", "-2e1"]), max_size=4)
row = st.tuples(st.sampled_from(["", "1", "0,3"]), features).map(
    lambda each: f"{each[0]} {' '.join(f'{j}:{value}' for j, value in each[1].items())}".rstrip() or " "
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(row, min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from(["", "\n", "\n\n"]),
    st.integers(1, 5),
    st.sampled_from([8, 40, 1 << 20]),
)
def test_blocks_are_the_rows_of_the_file(tmp_path_factory, lines, header, end, n_rows, chunk):
    path = tmp_path_factory.mktemp("rows") / "a.txt"
    first = [f"{len(lines)} 6 4"] if header else ["0 5:1"]  # without a header the first row names the last feature
    path.write_text("\n".join([*first, *lines]) + "\n" + end)
    whole = read(path, like=LIKE).X
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xmc.iter_features, "__kwdefaults__", {**xmc.iter_features.__kwdefaults__, "chunk_bytes": chunk})
        parts = blocks(path, n_rows)
    assert all(part.shape[0] == n_rows for part in parts[:-1])
    found = joined(parts)
    assert found.shape == whole.shape
    for name in ("indptr", "indices", "data"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()


def test_a_file_of_features_alone_and_one_based_numbers(tmp_path):
    (tmp_path / "X.txt").write_text("2 6\n1:1\n0:2 5:3\n")
    assert joined(blocks(tmp_path / "X.txt")).toarray().tolist() == [[0, 1, 0, 0, 0, 0], [2, 0, 0, 0, 0, 3]]
    (tmp_path / "a.txt").write_text("0 6:1\n1 1:2\n")
    found = joined(blocks(tmp_path / "a.txt", zero_based=False))
    assert found.toarray().tolist() == [[0, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1:1\n0 1:x\n", "line 2, column 5: found 'x'"),
        ("0 1:1\n0 9:1\n", "found 10 features, expected at most the 6 of the model"),
        ("3 6 4\n0 1:1\n", "line 1: found 1 rows, expected 3"),
        ("", "found no rows"),
    ],
)
def test_faults_are_those_of_read(tmp_path, text, message):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError) as whole:
        read(tmp_path / "a.txt", like=LIKE)
    with pytest.raises(DataError) as parts:
        blocks(tmp_path / "a.txt")
    assert message in str(parts.value)
    assert str(parts.value) == str(whole.value)


def test_other_formats_are_not_read_in_blocks(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"")
    assert read_rows(tmp_path / "a.npz", like=LIKE, n_rows=3) is None


def test_memory_does_not_grow_with_the_file(tmp_path):
    (tmp_path / "a.txt").write_text("1 " + " ".join(f"{j}:0.25" for j in range(6)) + "\n")
    line = (tmp_path / "a.txt").read_text()
    blocks(tmp_path / "a.txt")  # compiles
    peaks = []
    for n_lines in (100_000, 400_000):
        (tmp_path / "a.txt").write_text(line * n_lines)
        tracemalloc.start()
        count = sum(X.shape[0] for X in read_rows(tmp_path / "a.txt", like=LIKE, n_rows=8192))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == n_lines
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 30e6
