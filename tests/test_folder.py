"""Folders of arrays: what goes in comes out, bytes are reproducible, and nothing of a stranger's is touched."""

from __future__ import annotations

import json
import mmap
import os
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail import content, folder
from longtail.errors import ModelError
from longtail.folder import DATASET, MODEL

SHAPES = hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5)
ARRAYS = st.sampled_from(folder.DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,39}", fullmatch=True)
META = st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
ONE = {"a": np.arange(5, dtype=np.int32)}


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


def is_mapped(array: np.ndarray) -> bool:
    owner = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, mmap.mmap)


# --- what goes in comes out ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays=st.dictionaries(NAMES, ARRAYS, max_size=4), meta=META, seed=st.integers(0, 2**60))
def test_arrays_and_meta_data_come_back(memory_path, arrays, meta, seed):
    root = memory_path / str(seed)
    folder.write(root, MODEL, arrays, meta)
    first = contents(root)
    for mapped in (True, False):
        found, found_meta = folder.read(root, MODEL, mmap=mapped)
        assert found_meta == meta
        assert list(found) == sorted(arrays)
        for name, array in arrays.items():
            assert (found[name].dtype.str, found[name].shape) == (array.dtype.str, array.shape)
            assert found[name].tobytes() == array.tobytes()  # NaN payloads included
            assert not found[name].flags.writeable
            assert type(found[name]) is np.ndarray
            assert is_mapped(found[name]) == (mapped and array.size > 0)
    assert folder.size(root, MODEL) == sum(len(raw) for raw in first.values())
    folder.write(root, MODEL, arrays, meta)
    assert contents(root) == first


def test_every_file_is_named_by_its_own_checksum(tmp_path):
    folder.write(tmp_path / "m", MODEL, {"W_data": np.ones(3, np.float32), "b": np.zeros((0, 2))}, {"x": 1})
    files = contents(tmp_path / "m")
    manifest = json.loads(files.pop("model.json"))
    assert set(files) == {f"{name}-{entry['crc32']:08x}.npy" for name, entry in manifest["arrays"].items()}
    for entry in manifest["arrays"].values():
        assert zlib.crc32(files[entry["file"]]) == entry["crc32"]
        assert len(files[entry["file"]]) == entry["bytes"]
        array = np.load(tmp_path / "m" / entry["file"], allow_pickle=False)
        assert (array.dtype.str, list(array.shape)) == (entry["dtype"], entry["shape"])


def test_any_memory_layout_is_stored_in_the_one_order(tmp_path):
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    for i, form in enumerate((array, np.asfortranarray(array), array.astype(">i8"), np.repeat(array, 2, 1)[:, ::2])):
        folder.write(tmp_path / str(i), MODEL, {"a": form}, {})
        assert contents(tmp_path / str(i)) == contents(tmp_path / "0")


def test_saving_what_was_mapped_over_itself(tmp_path):
    folder.write(tmp_path / "m", MODEL, ONE, {})
    arrays, meta = folder.read(tmp_path / "m", MODEL)
    folder.write(tmp_path / "m", MODEL, {"b": arrays["a"] * 2, **arrays}, meta)
    again, _ = folder.read(tmp_path / "m", MODEL)
    assert (again["a"].tolist(), again["b"].tolist()) == ([0, 1, 2, 3, 4], [0, 2, 4, 6, 8])
    assert arrays["a"].tolist() == [0, 1, 2, 3, 4]  # the old view still holds


def test_every_file_is_on_disk_before_it_gets_its_name_and_the_manifest_goes_last(tmp_path, monkeypatch):
    """The order that survives a loss of power, which no test can cause: flush, rename, flush the folder."""
    steps, fsync, replace = [], os.fsync, os.replace

    def recorded_fsync(handle):
        steps.append(("fsync", os.fstat(handle).st_ino))
        fsync(handle)

    def recorded_replace(source, target):
        steps.append(("rename", os.stat(source).st_ino, Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    folder.write(tmp_path, MODEL, {"a": np.zeros(3), "b": np.ones(3)}, {})
    inode = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    order = sorted(inode)  # a-..., b-..., model.json
    wanted = [
        step
        for name in order
        for step in (("fsync", inode[name]), ("rename", inode[name], name), ("fsync", tmp_path.stat().st_ino))
    ]
    assert steps == wanted


def test_nested_folders_are_made(tmp_path):
    folder.write(tmp_path / "a" / "b" / "c", MODEL, ONE, {})
    assert folder.holds(tmp_path / "a" / "b" / "c", MODEL)
    assert not folder.holds(tmp_path / "a" / "b" / "c", DATASET)


# --- what is refused at writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "1a", "a-b", "../a", "a/b", "a.b", "ä", "a" * 41, "a\0", "_a"])
def test_array_names_are_plain_words(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be a file name"):
        folder.write(tmp_path / "m", MODEL, {name: np.zeros(1)}, {})


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["a"]), np.zeros(1, np.float16), np.zeros(1, bool)])
def test_array_types_are_the_listed_ones(tmp_path, array):
    with pytest.raises(ValueError, match=r"array a has dtype .*; a folder holds <f4, <f8, <i4, <i8, \|u1"):
        folder.write(tmp_path / "m", MODEL, {"a": array}, {})
    assert not folder.holds(tmp_path / "m", MODEL)


def test_the_limits_hold_for_the_writer_too(tmp_path, monkeypatch):
    assert folder.MAX_ARRAYS > 13 * 256  # the arrays of all shards of a model
    monkeypatch.setattr(folder, "MAX_ARRAYS", 64)
    with pytest.raises(ModelError, match="a model folder may hold at most 64 arrays"):
        folder.write(tmp_path / "m", MODEL, {f"a{i}": np.zeros(1) for i in range(65)}, {})
    with pytest.raises(ModelError, match="bytes of meta data are over the limit of 1,048,576") as caught:
        folder.write(tmp_path / "m", MODEL, ONE, {"x": "y" * 2**20})
    assert caught.value.path == str(tmp_path / "m" / "model.json")
    folder.write(tmp_path / "m", MODEL, {f"a{i}": np.zeros(1) for i in range(64)}, {})
    assert len(folder.read(tmp_path / "m", MODEL)[0]) == 64


def test_arrays_can_be_made_while_they_are_written(tmp_path):
    """Each array is on disk, and can be forgotten, before the next one is made."""

    def made():
        for number in range(4):
            assert len(list((tmp_path / "m").glob("*.npy"))) == number
            yield f"a{number}", np.full(3, number)

    folder.write(tmp_path / "m", MODEL, made(), {"x": 1})
    folder.write(tmp_path / "n", MODEL, {f"a{number}": np.full(3, number) for number in range(4)}, {"x": 1})
    assert (tmp_path / "m" / "model.json").read_bytes() == (tmp_path / "n" / "model.json").read_bytes()


def test_an_array_that_cannot_be_made_leaves_the_old_folder(tmp_path):
    def broken():
        yield "a", np.zeros(2)
        raise MemoryError

    folder.write(tmp_path / "m", MODEL, ONE, {"x": 1})
    with pytest.raises(MemoryError):
        folder.write(tmp_path / "m", MODEL, broken(), {"x": 2})
    assert folder.read(tmp_path / "m", MODEL)[1] == {"x": 1}


def test_a_mapped_folder_survives_the_next_save(tmp_path):
    """A save writes new files and never changes old ones, so that a process that maps them keeps its content."""
    folder.write(tmp_path / "m", MODEL, {"a": np.arange(5000), "b": np.ones(2)}, {})
    mapped = folder.read(tmp_path / "m", MODEL)[0]
    old = {path.name: path.stat().st_ino for path in (tmp_path / "m").glob("*.npy")}
    for arrays in ({"a": np.arange(5000), "b": np.zeros(2)}, {"a": np.zeros(9)}, {}):
        folder.write(tmp_path / "m", MODEL, arrays, {})
        new = {path.name: path.stat().st_ino for path in (tmp_path / "m").glob("*.npy")}
        assert not {inode for name, inode in new.items() if old.get(name) == inode}
        assert mapped["a"].tolist() == list(range(5000))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, np.int64(1)])
def test_meta_data_that_json_cannot_hold_leaves_the_old_folder(tmp_path, value):
    folder.write(tmp_path / "m", MODEL, ONE, {"x": 1})
    with pytest.raises((ValueError, TypeError)):
        folder.write(tmp_path / "m", MODEL, {"b": np.zeros(2)}, {"x": value})
    assert folder.read(tmp_path / "m", MODEL)[1] == {"x": 1}


# --- strangers -------------------------------------------------------------------------------------------------------

LOOKALIKES = ("X-20240101.npy", ".tmp-0123456789abcdef", ".longtail-0123.tmp", "a-00000000.npy.bak", "notes.txt")


@pytest.mark.parametrize("name", [*LOOKALIKES, "model.json.bak", "dataset.json"])
def test_a_folder_of_other_things_is_not_written_into(tmp_path, name):
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(ModelError, match="the folder is not empty and holds no model; choose a new or empty folder"):
        folder.write(tmp_path, MODEL, ONE, {})
    assert contents(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("text", [b'{"format": "layers-model", "weightsManifest": []}', b"", b"\0" * 100, b"x" * 2**21])
def test_a_model_json_of_another_program_is_not_replaced(tmp_path, text):
    (tmp_path / "model.json").write_bytes(text)
    with pytest.raises(ModelError, match=r"was not written by longtail|is larger than") as caught:
        folder.write(tmp_path, MODEL, ONE, {})
    assert caught.value.path == str(tmp_path / "model.json")
    assert contents(tmp_path) == {"model.json": text}


def test_other_files_in_a_model_folder_are_never_removed(tmp_path):
    folder.write(tmp_path, MODEL, ONE, {})
    for name in LOOKALIKES:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / ".longtail-0123456789abcdef.tmp").mkdir()
    (tmp_path / "W-00000001.npy").mkdir()
    (tmp_path / "link-00000000.npy").symlink_to(tmp_path / "notes.txt")
    folder.write(tmp_path, MODEL, {"b": np.zeros(3)}, {})
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept >= {*LOOKALIKES, ".longtail-0123456789abcdef.tmp", "W-00000001.npy", "link-00000000.npy"}
    assert len(kept) == len(LOOKALIKES) + 3 + 2  # and the manifest and its array
    assert (tmp_path / "X-20240101.npy").read_bytes() == b"mine"


def test_what_an_unfinished_save_left_is_removed(tmp_path):
    folder.write(tmp_path / "other", MODEL, {"left": np.arange(9.0)}, {})
    (left,) = (tmp_path / "other").glob("left-*.npy")
    for root in (tmp_path / "new", tmp_path / "old"):
        root.mkdir()
        if root.name == "old":
            folder.write(root, MODEL, ONE, {})
        (root / left.name).write_bytes(left.read_bytes())
        (root / ".longtail-0123456789abcdef.tmp").write_bytes(b"half")
        folder.write(root, MODEL, {"b": np.zeros(3)}, {})
        assert sorted(path.name.partition("-")[0] for path in root.iterdir()) == ["b", "model.json"]


@pytest.mark.parametrize("damage", [lambda raw: raw[:-20], lambda raw: b"\0" + raw[1:], lambda raw: raw + raw])
def test_a_damaged_folder_can_be_saved_anew(tmp_path, damage):
    folder.write(tmp_path, MODEL, ONE, {})
    manifest, (array,) = tmp_path / "model.json", tmp_path.glob("*.npy")
    manifest.write_bytes(damage(manifest.read_bytes()))
    array.write_bytes(b"damaged")
    with pytest.raises(ModelError, match="is damaged or was edited by hand"):
        folder.read(tmp_path, MODEL)
    folder.write(tmp_path, MODEL, ONE, {})
    assert folder.read(tmp_path, MODEL)[0]["a"].tolist() == [0, 1, 2, 3, 4]


def test_a_damaged_array_does_not_stay_behind(tmp_path):
    folder.write(tmp_path, MODEL, ONE, {})
    (array,) = tmp_path.glob("*.npy")
    array.write_bytes(b"damaged")
    folder.write(tmp_path, MODEL, {"b": np.zeros(3)}, {})
    assert not array.exists()


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "m").write_bytes(b"mine")
    with pytest.raises(ModelError, match="is saved as a folder, but a file of this name exists"):
        folder.write(tmp_path / "m", MODEL, ONE, {})
    with pytest.raises(ModelError, match=r"is a file, not a folder; a model is a folder with a model\.json"):
        folder.read(tmp_path / "m", MODEL)
    with pytest.raises(ModelError, match="cannot write the model: Not a directory"):
        folder.write(tmp_path / "m" / "deeper", MODEL, ONE, {})


# --- what is no folder of ours ---------------------------------------------------------------------------------------


def test_absent_folders_are_said_to_be_absent(tmp_path):
    for path in (tmp_path / "nowhere", "x" * 5000, "nul\0byte"):
        assert not folder.holds(path, MODEL)
        with pytest.raises(ModelError, match=r"does not exist; a model is a folder with a model\.json"):
            folder.read(path, MODEL)
    with pytest.raises(ModelError, match="cannot write the model: File name too long"):
        folder.write("x" * 5000, MODEL, ONE, {})


def test_a_folder_without_manifest_holds_nothing(tmp_path):
    folder.write(tmp_path / "m", MODEL, ONE, {})
    (tmp_path / "m" / "model.json").unlink()
    for use in (folder.read, folder.size):
        with pytest.raises(ModelError, match=r"holds no model\.json, so no complete model; was it saved to the end\?"):
            use(tmp_path / "m", MODEL)


def test_a_dataset_is_not_a_model(tmp_path):
    folder.write(tmp_path, DATASET, ONE, {})
    with pytest.raises(ModelError, match=r"holds no model\.json"):
        folder.read(tmp_path, MODEL)
    os.rename(tmp_path / "dataset.json", tmp_path / "model.json")
    with pytest.raises(ModelError, match="describes a 'dataset', not a model"):
        folder.read(tmp_path, MODEL)


def test_files_that_the_manifest_does_not_list_are_ignored(tmp_path):
    folder.write(tmp_path, MODEL, ONE, {})
    (tmp_path / "W_data-00000000.npy").write_bytes(b"garbage")
    assert list(folder.read(tmp_path, MODEL)[0]) == ["a"]


# --- what arrays mean ------------------------------------------------------------------------------------------------


def is_csr(indptr: list[int], indices: list[int], shape: tuple[int, int]) -> bool:
    """The definition, in plain Python."""
    if len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        return False
    if any(b < a for a, b in pairwise(indptr)) or any(not 0 <= j < shape[1] for j in indices):
        return False
    return all(indices[a:b] == sorted(set(indices[a:b])) for a, b in pairwise(indptr))


@settings(deadline=None, max_examples=400)
@given(
    st.lists(st.sampled_from([0, 1, 2, 3, -1, 2**63 - 1, -(2**63), 2**62, -(2**62)]), min_size=1, max_size=6),
    st.lists(st.integers(-1, 3), max_size=4),
    st.integers(0, 5),
    st.booleans(),
)
def test_only_sound_csr_passes(cuts, indices, n_rows, tidy):
    indptr = [0, *sorted(abs(cut) for cut in cuts if 0 <= cut <= len(indices))[1:], len(indices)] if tidy else cuts
    n_rows = len(indptr) - 1 if tidy else n_rows
    arguments = np.array(indptr, np.int64), np.array(indices, np.int32), None, (n_rows, 3), "W", Path("here")
    if is_csr(indptr, indices, (n_rows, 3)):
        content.check_csr(*arguments)
    else:
        with pytest.raises(ModelError, match="here: W_ind"):
            content.check_csr(*arguments)


@pytest.mark.parametrize(
    ("data", "message"),
    [([1.0], "W_data has 1 values for 2 indices"), ([1.0, np.nan], "NaN"), ([-np.inf, 1.0], "infinity")],
)
def test_values_are_finite_and_as_many_as_indices(data, message):
    with pytest.raises(ModelError, match=message):
        content.check_csr(np.array([0, 2]), np.array([0, 1]), np.array(data), (1, 2), "W", Path("here"))


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=6))
def test_strings_come_back(strings):
    packed = content.pack_strings(strings)
    assert content.unpack_strings(packed["utf8"], packed["offsets"], "names", Path("here")) == strings


@pytest.mark.parametrize(
    "offsets", [[], [1, 3], [0, 2], [0, 4], [0, 2, 1, 3], [0, 2**63 - 1, -(2**63), -(2**62), 0, 3]]
)
def test_offsets_divide_the_bytes(offsets):
    with pytest.raises(ModelError, match="here: names_offsets does not divide 3 bytes"):
        content.unpack_strings(np.frombuffer(b"abc", np.uint8), np.array(offsets, np.int64), "names", Path("here"))


def test_bytes_are_utf8():
    with pytest.raises(ModelError, match="here: names_utf8 is not UTF-8"):
        content.unpack_strings(np.frombuffer("é".encode(), np.uint8), np.array([0, 1, 2]), "names", Path("here"))


def test_take_wants_the_promised_array():
    arrays = {"a": np.zeros(3, np.float32)}
    assert content.take(arrays, "a", ("<f4", "<f8"), 1, Path("here")) is arrays["a"]
    with pytest.raises(ModelError, match="here: lists no array b"):
        content.take(arrays, "b", "<f4", 1, Path("here"))
    with pytest.raises(ModelError, match="array a has dtype <f4 and 1 dimensions, not <f4 and 2"):
        content.take(arrays, "a", "<f4", 2, Path("here"))
    with pytest.raises(ModelError, match="array a has dtype <f4 and 1 dimensions, not <i4/<i8 and 1"):
        content.take(arrays, "a", ("<i4", "<i8"), 1, Path("here"))
