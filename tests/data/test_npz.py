"""data/npz: reads what SciPy writes, and refuses everything else before it can do harm."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data.npz import read_npz
from longtail.errors import DataError, DataWarning


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("npz")


@pytest.fixture(scope="module")
def labels(tmp_path_factory) -> Path:
    return labels_file(tmp_path_factory.mktemp("labels"))


def npy(array, *, header: dict | None = None) -> bytes:
    out = io.BytesIO()
    array = np.asarray(array)
    if header is None:
        np.lib.format.write_array(out, array, allow_pickle=True)
    else:
        np.lib.format.write_array_header_1_0(out, {**np.lib.format.header_data_from_array_1_0(array), **header})
        out.write(array.tobytes())
    return out.getvalue()


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as out:
        for name, content in members.items():
            out.writestr(name + ".npy", content)
    return path


def csr_members(**changes) -> dict[str, bytes]:
    """The file of [[0, 5, 0], [6, 0, 7]], with some arrays replaced."""
    arrays = {
        "format": np.bytes_("csr"),
        "shape": np.array([2, 3]),
        "data": np.array([5.0, 6.0, 7.0]),
        "indices": np.array([1, 0, 2], np.int32),
        "indptr": np.array([0, 1, 3], np.int32),
    }
    arrays.update(changes)
    return {
        name: value if isinstance(value, bytes) and name != "format" else npy(value) for name, value in arrays.items()
    }


def labels_file(folder: Path, n_rows: int = 2) -> Path:
    sp.save_npz(folder / "Y.npz", sp.eye_array(n_rows, 4, format="csr"))
    return folder / "Y.npz"


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", [sp.random_array, sp.random])
@pytest.mark.parametrize("compressed", [True, False])
def test_reads_what_scipy_writes(folder, form, kind, compressed):
    shape = {"shape": (20, 9)} if kind is sp.random_array else {"m": 20, "n": 9}
    rng = np.random.default_rng(0)
    matrix = kind(**shape, density=0.3, format=form, rng=rng)
    truth = kind(
        **({"shape": (20, 5)} if kind is sp.random_array else {"m": 20, "n": 5}), density=0.3, format=form, rng=rng
    )
    sp.save_npz(folder / "X.npz", matrix, compressed=compressed)
    sp.save_npz(folder / "T.npz", truth, compressed=compressed)
    X, Y = read_npz(folder / "X.npz", folder / "T.npz")
    np.testing.assert_array_equal(X.toarray(), matrix.toarray().astype(np.float32))
    np.testing.assert_array_equal(Y.toarray(), truth.toarray() > 0)
    for found, dtype in ((X, np.float32), (Y, np.int32)):
        assert isinstance(found, sp.csr_array)
        assert found.dtype == dtype
        assert found.indices.dtype == np.int32
        assert sp.csr_array((found.data, found.indices, found.indptr), shape=found.shape).has_canonical_format


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", "i1", "<i8", ">u4", "?"])
def test_any_plain_number_type(folder, dtype):
    path = archive(folder / "X.npz", csr_members(data=np.ones(3, dtype), indices=np.array([1, 0, 2], ">i8")))
    X, _ = read_npz(path, labels_file(folder))
    assert X.toarray().tolist() == [[0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_repeated_entries_are_added_with_one_warning(folder, form):
    arrays = {
        "csr": {"indices": np.array([2, 0, 2, 1]), "indptr": np.array([0, 3, 4])},
        "csc": {"indices": np.array([0, 1, 0, 0]), "indptr": np.array([0, 1, 2, 4])},
        "coo": {"row": np.array([0, 1, 0, 0]), "col": np.array([2, 1, 0, 2])},
    }[form]
    members = csr_members(format=np.bytes_(form), data=np.array([1.0, 2.0, 4.0, 8.0]), **arrays)
    path = archive(folder / "X.npz", members)
    with pytest.warns(DataWarning) as caught:
        X, _ = read_npz(path, labels_file(folder))
    reason = "1 rows name a feature more than once (the values were added)"
    assert [str(warning.message) for warning in caught] == [f"{path}: {reason}"]
    assert caught[0].filename == __file__
    expected = {"csr": [[2, 0, 5], [0, 8, 0]], "csc": [[1, 0, 12], [0, 2, 0]], "coo": [[4, 0, 9], [0, 2, 0]]}[form]
    assert X.toarray().tolist() == expected


def test_labels_are_the_positive_entries(folder):
    sp.save_npz(folder / "X.npz", sp.eye_array(2, 3, format="csr"))
    path = archive(folder / "Y.npz", csr_members(data=np.array([0.0, 1e-300, 1e300])))
    _, Y = read_npz(folder / "X.npz", path)
    assert Y.toarray().tolist() == [[0, 0, 0], [1, 0, 1]]
    path = archive(folder / "Y.npz", csr_members(indices=np.array([1, 2, 2])))
    with pytest.warns(DataWarning, match=r"1 rows name a label more than once \(it counts once\)"):
        _, Y = read_npz(folder / "X.npz", path)
    assert Y.toarray().tolist() == [[0, 1, 0], [0, 0, 1]]
    for value in (-1.0, np.nan):
        archive(path, csr_members(data=np.array([1.0, value, 1.0])))
        with pytest.raises(DataError, match=re.escape(f"{path}: found value {value} (entry 1), expected 0 or 1")):
            read_npz(folder / "X.npz", path)


def test_rows_must_agree(folder):
    path = archive(folder / "X.npz", csr_members())
    labels = labels_file(folder, 3)
    with pytest.raises(DataError) as caught:
        read_npz(path, labels)
    assert str(caught.value) == f"{labels}: found 3 rows of labels, expected 2, as many as {path} has"


def test_a_matrix_without_rows_and_one_of_two_billion_columns(folder):
    members = csr_members(
        shape=np.array([0, 2**31 - 2]), data=np.empty(0), indices=np.empty(0, np.int32), indptr=np.zeros(1, np.int32)
    )
    X, _ = read_npz(archive(folder / "X.npz", members), labels_file(folder, 0))
    assert X.shape == (0, 2**31 - 2)
    members = csr_members(shape=np.array([2, 2**31 - 2]), indices=np.array([1, 0, 2**31 - 3], np.int64))
    X, _ = read_npz(archive(folder / "X.npz", members), labels_file(folder))
    assert X.indices.tolist() == [1, 0, 2**31 - 3]


SCIPY = "expected one of scipy.sparse.save_npz"
OUT_OF_RANGE = "found unusable numbers (indices leaves the range 0 to 2), expected whole numbers from 0 to 2"
REFUSED = {
    "bsr": ({"format": np.bytes_("bsr")}, "found format 'bsr', expected one of csr, csc, coo; try .tocsr()"),
    "no format": ({"format": np.array([], "S3")}, "found format nothing, expected one of csr, csc, coo; try .tocsr()"),
    "format a number": (
        {"format": np.array(3)},
        "found array format of int64 and shape (), expected a list of plain numbers",
    ),
    "three sizes": (
        {"shape": np.array([2, 3, 4])},
        "found shape [2, 3, 4], expected two whole numbers from 0 to 2147483646",
    ),
    "negative": ({"shape": np.array([-2, 3])}, "found shape [-2, 3], expected two whole numbers from 0 to 2147483646"),
    "too wide": (
        {"shape": np.array([2, 2**31])},
        "found shape [2, 2147483648], expected two whole numbers from 0 to 2147483646",
    ),
    "float shape": (
        {"shape": np.array([2.0, 3])},
        "found array shape of float64 and shape (2,), expected a list of plain numbers",
    ),
    "more rows": (
        {"shape": np.array([9, 3])},
        "found a bad indptr (indptr does not span 9 rows and 3 entries), expected 10 numbers that rise from 0 to 3",
    ),
    "pickle": (
        {"data": np.array([1, None, 3], object)},
        "found array data of object and shape (3,), expected a list of plain numbers",
    ),
    "text": (
        {"data": np.array(["a", "b", "c"])},
        "found array data of <U1 and shape (3,), expected a list of plain numbers",
    ),
    "complex": (
        {"data": np.ones(3, complex)},
        "found array data of complex128 and shape (3,), expected a list of plain numbers",
    ),
    "record": (
        {"data": np.zeros(3, "i4,i4")},
        "found array data of [('f0', '<i4'), ('f1', '<i4')] and shape (3,), expected a list of plain numbers",
    ),
    "matrix": (
        {"data": np.ones((3, 1))},
        "found array data of float64 and shape (3, 1), expected a list of plain numbers",
    ),
    "short data": ({"data": np.ones(2)}, "found 3 entries in indices, expected 2, as in data"),
    "nan": ({"data": np.array([1, np.nan, 3])}, "found value nan (entry 1), expected finite numbers that fit float32"),
    "inf": (
        {"data": np.array([1, 2, -np.inf])},
        "found value -inf (entry 2), expected finite numbers that fit float32",
    ),
    "1e39": ({"data": np.array([1e39, 2, 3])}, "found value 1e+39 (entry 0), expected finite numbers that fit float32"),
    "float indices": (
        {"indices": np.zeros(3)},
        "found unusable numbers (indices has dtype float64, not integers), expected whole numbers from 0 to 2",
    ),
    "index -1": ({"indices": np.array([1, -1, 2])}, OUT_OF_RANGE),
    "index 3": ({"indices": np.array([1, 0, 3])}, OUT_OF_RANGE),
    "index 2^63": (
        {"indices": np.array([1, 0, 2**63], np.uint64)},
        OUT_OF_RANGE,
    ),
    "indptr falls": (
        {"indptr": np.array([0, 4, 3]), "shape": np.array([2, 3])},
        "found a bad indptr (indptr decreases), expected 3 numbers that rise from 0 to 3",
    ),
    "indptr starts late": (
        {"indptr": np.array([1, 1, 3])},
        "found a bad indptr (indptr does not span 2 rows and 3 entries), expected 3 numbers that rise from 0 to 3",
    ),
    "indptr ends early": (
        {"indptr": np.array([0, 1, 2])},
        "found a bad indptr (indptr does not span 2 rows and 3 entries), expected 3 numbers that rise from 0 to 3",
    ),
    "indptr of floats": (
        {"indptr": np.array([0.0, 1, 3])},
        "found a bad indptr (indptr has dtype float64, not integers), expected 3 numbers that rise from 0 to 3",
    ),
    "lying header": (
        {"data": npy(np.ones(3), header={"shape": (10**12,)})},
        "found array data with shape (1000000000000,), which its size contradicts, expected a shape that fits",
    ),
    "overflowing header": (
        {"data": npy(np.ones(3), header={"shape": (2**61 + 3,)})},
        "found array data with shape (2305843009213693955,), which its size contradicts, expected a shape that fits",
    ),
    "version 3": (
        {"data": b"\x93NUMPY\x03\x00" + npy(np.ones(3))[8:]},
        "found array data in version (3, 0), expected version 1.0 or 2.0",
    ),
    "no npy": (
        {"data": b"hello"},
        f"found a damaged file (EOF: reading magic string, expected 8 bytes got 5), {SCIPY}",
    ),
    "sum": (
        {"data": np.full(3, 3e38), "indices": np.array([1, 2, 2])},
        "found an entry repeated with values that add up to infinity, expected a sum that fits float32",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_means_nothing_is_refused(folder, case):
    changes, reason = REFUSED[case]
    path = archive(folder / "bad.npz", csr_members(**changes))
    with pytest.raises(DataError) as caught:
        read_npz(path, labels_file(folder))
    assert str(caught.value) == f"{path}: {reason}"


def test_an_array_that_is_missing(folder):
    members = csr_members()
    del members["indices"]
    path = archive(folder / "bad.npz", members)
    with pytest.raises(DataError, match="found no array indices, expected the arrays of csr"):
        read_npz(path, path)
    with pytest.raises(DataError, match="found no array format, expected the arrays of a sparse matrix"):
        read_npz(archive(folder / "bad.npz", {"arr_0": npy(np.ones(3))}), path)


def test_a_member_that_occurs_twice(folder):
    path = archive(folder / "bad.npz", csr_members())
    with zipfile.ZipFile(path, "a") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out.writestr("data.npy", npy(np.zeros(3)))
    with pytest.raises(DataError, match=r"found two members 'data.npy', expected each once"):
        read_npz(path, path)


def test_an_unusual_compression(folder):
    path = archive(folder / "bad.npz", csr_members(), zipfile.ZIP_BZIP2)
    with pytest.raises(
        DataError, match=r"found member 'format.npy' encrypted or packed unusually, expected a deflated"
    ):
        read_npz(path, path)


def test_files_that_are_no_zip(folder):
    path = folder / "bad.npz"
    for content in (b"", b"3 10 5\n", b"PK\x03\x04" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_npz(path, path)
        assert str(caught.value) == f"{path}: found a damaged file (File is not a zip file), {SCIPY}"
    with pytest.raises(DataError, match=r"is a folder; expected a regular file"):
        read_npz(folder, path)
    with pytest.raises(DataError, match="cannot be opened: No such file or directory"):
        read_npz(folder / "absent.npz", path)


BOMBS = {
    "zeros": (
        csr_members(data=np.zeros(1 << 22), indices=np.zeros(1 << 22, np.int32), indptr=np.array([0, 1, 1 << 22])),
        "members",
    ),
    "coo rows": (
        csr_members(
            format=np.bytes_("coo"), shape=np.array([2**31 - 2, 3]), row=np.array([1, 0, 1]), col=np.array([1, 0, 2])
        ),
        "rows",
    ),
    "csc rows": (
        csr_members(format=np.bytes_("csc"), shape=np.array([2**31 - 2, 3]), indptr=np.array([0, 1, 2, 3])),
        "rows",
    ),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_small_file_cannot_make_us_allocate_much(folder, case):
    members, what = BOMBS[case]
    path = archive(folder / "bomb.npz", members)
    code = (
        "import resource, sys\n"
        "from longtail.data.npz import read_npz\n"
        "from longtail.errors import DataError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), used + (24 << 20)))\n"
        "try:\n    read_npz(sys.argv[1], sys.argv[1])\nexcept DataError as error:\n    sys.stdout.write(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    size = os.stat(path).st_size
    reason = rf"found {what} of [0-9,]+ bytes in a file of {size:,}, expected at most 200 times as many"
    assert re.fullmatch(f"{path}: {reason}", done.stdout)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damaged_bytes_never_give_a_wrong_matrix(folder, labels, data):
    """Any change of the file is an error or changes nothing: every number is under the zip's checksum."""
    whole = archive(folder / "good.npz", csr_members()).read_bytes()
    content = bytearray(whole)
    at = data.draw(st.integers(0, len(content) - 1))
    match data.draw(st.integers(0, 2)):
        case 0:
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        case 1:
            del content[at:]
        case _:
            content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    path = folder / "damaged.npz"
    path.write_bytes(content)
    message = ""
    try:
        X, _ = read_npz(path, labels)
    except DataError as error:
        message = str(error)
    if message:
        assert re.fullmatch(rf"{path}: .+", message)
    else:
        assert X.toarray().tolist() == [[0, 5, 0], [6, 0, 7]]
