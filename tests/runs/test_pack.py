"""Arrays in one file: exact, written in one step, and every changed bit is found."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail import sealed
from longtail.errors import ModelError
from longtail.runs import pack

ARRAYS = {
    "floats": np.arange(7, dtype=np.float32),
    "none": np.empty((0, 3), np.int64),
    "one": np.array(5),
    "truth": np.array([[True, False]]),
    "bytes": np.arange(130, dtype=np.uint8),
}


def written(path, arrays=ARRAYS):
    pack.write(path, "part", arrays, {"run": "x", "block": 3})
    return path


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_arrays_come_back_as_they_were(tmp_path_factory, data):
    dtypes = st.sampled_from([np.dtype(text) for text in pack.DTYPES])
    shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
    arrays = data.draw(st.dictionaries(st.text(max_size=8), hnp.arrays(dtypes, shapes), max_size=5))
    path = tmp_path_factory.mktemp("pack") / "p"
    size = pack.write(path, "part", arrays, {"note": "é"})
    found, meta = pack.read(path, "part")
    assert size == path.stat().st_size
    assert meta == {"note": "é"}
    assert list(found) == sorted(arrays) or set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable


def test_equal_arrays_give_equal_bytes(tmp_path):
    assert written(tmp_path / "a").read_bytes() == written(tmp_path / "b").read_bytes()


def test_every_changed_bit_is_found(memory_path):
    path = written(memory_path / "p")
    raw = path.read_bytes()
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(ModelError) as error:
            pack.read(path, "part")
        assert str(path) in str(error.value)


def test_every_other_length_is_found(tmp_path):
    path = written(tmp_path / "p")
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(ModelError):
            pack.read(path, "part")
    path.write_bytes(raw + b"\0")
    with pytest.raises(ModelError, match=r"bytes, but its manifest promises"):
        pack.read(path, "part")


def forged(path, **members):
    """A file whose manifest lies, with every checksum right."""
    body_bytes = b"\0" * 64
    body = {"kind": "part", "meta": {}, "arrays": {"a": ["<f4", [4], 0]}, "bytes": 64, "crc32": zlib.crc32(body_bytes)}
    manifest = sealed.seal({**body, **members})
    manifest += b" " * (-(24 + len(manifest)) % 64)
    path.write_bytes(pack.MAGIC + len(manifest).to_bytes(8, "little") + manifest + body_bytes)
    return path


def test_a_forged_file_without_a_lie_is_read(tmp_path):
    assert pack.read(forged(tmp_path / "p"), "part")[0]["a"].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "members",
    [
        {"kind": "state"},
        {"meta": []},
        {"arrays": []},
        {"arrays": {"a": ["<f4", [17], 0]}},
        {"arrays": {"a": ["<f4", [2**61, 2**61], 0]}},
        {"arrays": {"a": ["<f4", [-1], 0]}},
        {"arrays": {"a": ["<f4", [True], 0]}},
        {"arrays": {"a": ["<f4", [1.0], 0]}},
        {"arrays": {"a": ["<f4", [4], 4]}},
        {"arrays": {"a": ["<f4", [4], 64]}},
        {"arrays": {"a": ["<f4", [1] * 5, 0]}},
        {"arrays": {"a": ["|O", [4], 0]}},
        {"arrays": {"a": ["<f4", [4]]}},
        {"arrays": {"a": None}},
        {"arrays": {str(number): ["<f4", [0], 0] for number in range(257)}},
        {"bytes": 2**62},
        {"bytes": "64"},
        {"more": 1},
    ],
)
def test_a_manifest_that_lies_is_refused(tmp_path, members):
    with pytest.raises(ModelError):
        pack.read(forged(tmp_path / "p", **members), "part")


def test_what_is_no_plain_file_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(written(tmp_path / "p"))
    for name in ("folder", "link", "absent"):
        with pytest.raises(ModelError):
            pack.read(tmp_path / name, "part")


def test_arrays_that_no_file_can_hold(tmp_path):
    for array in (np.array([None]), np.array(["text"]), np.zeros((1,) * 5), np.zeros(2, complex)):
        with pytest.raises(ValueError, match="dtype"):
            pack.write(tmp_path / "p", "part", {"a": array}, {})
    assert list(tmp_path.iterdir()) == []
