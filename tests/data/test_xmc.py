"""data/xmc: right on good files, equal to its slow twin on any bytes, indifferent to how a file is cut into pieces."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from longtail.data import xmc, xmc_kernel
from longtail.data.xmc import read_split, read_xmc
from longtail.errors import DataError, DataWarning

from . import reference

ALPHABET = b"0123456789:,. \t\n\r-+eE#nai_x\x00\xff"


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("xmc") / "data.txt"


def read(path: Path, content: bytes, **options) -> tuple[csr_array, csr_array]:
    path.write_bytes(content)
    return read_xmc(path, **options)


def bits(matrix: csr_array) -> tuple:
    """Everything about a matrix, comparable with ==."""
    assert isinstance(matrix, csr_array)
    rebuilt = csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
    rebuilt.check_format(full_check=True)
    assert rebuilt.has_canonical_format
    return matrix.shape, matrix.dtype, matrix.data.tobytes(), matrix.indices.tolist(), matrix.indptr.tolist()


def from_rows(rows: list[list[tuple[int, float]]], n_columns: int, dtype: type) -> csr_array:
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    indices = np.array([j for row in rows for j, _ in row], np.int32)
    data = np.array([value for row in rows for _, value in row], np.float64).astype(dtype)
    return csr_array((data, indices, indptr), shape=(len(rows), n_columns))


def outcome(function) -> tuple:
    """Arrays and warnings, or the error, of a call: comparable with ==."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            matrices = function()
        except DataError as error:
            return "error", str(error), error.line, error.column
    assert all(warning.category is DataWarning for warning in caught)
    return "matrices", *map(bits, matrices), [str(warning.message) for warning in caught]


def messages(name: str, features: int, labels: int) -> list[str]:
    parts = [f"{features} rows name a feature more than once (the values were added)"] * (features > 0)
    parts += [f"{labels} rows name a label more than once (it counts once)"] * (labels > 0)
    return [f"{name}: {' and '.join(parts)}"] if parts else []


def twin(path: Path, content: bytes, **options) -> tuple:
    try:
        (_, n_features, n_labels), X, Y, (features, labels) = reference.xmc(str(path), content, **options)
    except DataError as error:
        return "error", str(error), error.line, error.column
    ones = [[(label, 1.0) for label in row] for row in Y]
    return (
        "matrices",
        bits(from_rows(X, n_features, np.float32)),
        bits(from_rows(ones, n_labels, np.int32)),
        messages(str(path), features, labels),
    )


def twin_split(paths: tuple[Path, Path], contents: tuple[bytes, bytes]) -> tuple:
    try:
        shape, X, x_twice = reference.pairs_file(str(paths[0]), contents[0], "feature")
        y_shape, Y, y_twice = reference.pairs_file(str(paths[1]), contents[1], "label")
    except DataError as error:
        return "error", str(error), error.line, error.column
    if shape[0] != y_shape[0]:
        reason = f"found {y_shape[0]:,} rows of labels, expected {shape[0]:,}, as many as {paths[0]} has"
        return "error", f"{paths[1]}: {reason}", None, None
    ones = [[(label, 1.0) for label, _ in row] for row in Y]
    caught = messages(str(paths[0]), x_twice, 0) + messages(str(paths[1]), 0, y_twice)
    return "matrices", bits(from_rows(X, shape[1], np.float32)), bits(from_rows(ones, y_shape[1], np.int32)), caught


# --- files as they should be -----------------------------------------------------------------------------------------


def test_a_file_with_header(path):
    X, Y = read(path, b"3 10 5\n0,4 1:0.5 7:1.25\n 2:1\n3\n")
    assert X.dtype == np.float32
    assert Y.dtype == np.int32
    assert X.shape == (3, 10)
    assert Y.shape == (3, 5)
    assert X.toarray()[:, [1, 2, 7]].tolist() == [[0.5, 0, 1.25], [0, 1, 0], [0, 0, 0]]
    assert Y.toarray().tolist() == [[1, 0, 0, 0, 1], [0] * 5, [0, 0, 0, 1, 0]]


def test_without_header_sizes_follow_from_the_rows(path):
    X, Y = read(path, b"0,4 1:0.5 7:1.25\n 2:1\n3\n")
    assert X.shape == (3, 8)
    assert Y.shape == (3, 5)


def test_one_based_features_leave_labels_alone(path):
    X, Y = read(path, b"2 3 2\n0 1:5 3:6\n1 2:7\n", zero_based=False)
    assert X.toarray().tolist() == [[5, 0, 6], [0, 7, 0]]
    assert Y.toarray().tolist() == [[1, 0], [0, 1]]


def test_the_split_layout(tmp_path):
    (tmp_path / "X").write_bytes(b"3 4\n0:1 3:0.5\n\n1:-2\n")
    (tmp_path / "Y").write_bytes(b"3 2\n0:1 1:1.0\n1:3\n")
    with pytest.raises(DataError, match="found 2 rows, expected 3"):
        read_split(tmp_path / "X", tmp_path / "Y")
    (tmp_path / "Y").write_bytes(b"3 2\n0:1 1:1.0\n1:3\n\n")
    X, Y = read_split(tmp_path / "X", tmp_path / "Y")
    assert X.toarray().tolist() == [[1, 0, 0, 0.5], [0] * 4, [0, -2, 0, 0]]
    assert Y.toarray().tolist() == [[1, 1], [0, 1], [0, 0]]
    assert Y.dtype == np.int32


def test_agrees_with_scikit_learn(path):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(50, 30)) * (rng.random((50, 30)) < 0.3)
    Y = (rng.random((50, 7)) < 0.3).astype(int)
    dump_svmlight_file(csr_array(dense), Y, str(path), multilabel=True, zero_based=True)
    X_theirs, labels = load_svmlight_file(str(path), multilabel=True, zero_based=True, dtype=np.float64)
    X, Y = read_xmc(path)
    np.testing.assert_array_equal(X.toarray(), X_theirs.toarray().astype(np.float32))
    assert [tuple(row.indices) for row in Y] == [tuple(map(int, row)) for row in labels]


def test_repeated_and_unsorted_numbers_are_put_in_order_with_one_warning(path):
    content = b"3,1,3 5:1 2:2 5:0.25\n1,0 4:1 3:1\n0 1:1 1:-1\n"
    with pytest.warns(DataWarning) as caught:
        X, Y = read(path, content)
    assert [str(warning.message) for warning in caught] == messages(str(path), 2, 1)
    assert caught[0].filename == __file__
    assert X[[0]].toarray().tolist() == [[0, 0, 2, 0, 0, 1.25]]
    assert X.indices.tolist() == [2, 5, 3, 4, 1]
    assert X.data.tolist() == [2, 1.25, 1, 1, 0]
    assert Y.indices.tolist() == [1, 3, 0, 1, 0]


def test_order_alone_is_no_reason_for_a_warning(path):
    X, _ = read(path, b"1,0 4:1 3:2\n")
    assert X.indices.tolist() == [3, 4]
    assert X.data.tolist() == [2, 1]


@pytest.mark.parametrize("pairs", [b"1:1e8 1:1 1:-1e8 1:0.5", b"1:0.5 1:-1e8 1:1 1:1e8"])
def test_repeated_values_are_added_in_double_precision_whatever_their_order(path, pairs):
    with pytest.warns(DataWarning):
        X, _ = read(path, b"0 " + pairs + b"\n")
    assert X.data.tolist() == [1.5]  # float32 would lose the 1


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 300), max_size=400), st.sampled_from([8, 300]))
def test_long_rows_are_sorted(path, features, n_distinct):
    features = [feature % n_distinct for feature in features]
    pairs = [(feature, float(i)) for i, feature in enumerate(features)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X, _ = read(path, b"0 0:1\n0 " + b" ".join(b"%d:%g" % pair for pair in pairs) + b"\n1 5:1")
    sums: dict[int, float] = {}
    for feature, value in pairs:
        sums[feature] = sums.get(feature, 0) + value
    assert X.indices.tolist() == [0, *sorted(sums), 5]
    assert X.data.tolist() == [1, *(sums[feature] for feature in sorted(sums)), 1]


def test_many_pieces_are_joined_in_order(path):
    rng = np.random.default_rng(1)
    lines = [f"{i % 7} {i}:{value:.6f}" for i, value in enumerate(rng.normal(size=3000))]
    X, Y = read(path, "\n".join(lines).encode(), chunk_bytes=1000)
    assert X.indices.tolist() == list(range(3000))
    assert Y.indices.tolist() == [i % 7 for i in range(3000)]
    assert X.data.tolist() == [np.float32(float(line.split(":")[1])) for line in lines]


# --- numbers ---------------------------------------------------------------------------------------------------------


def mostly(usual, rare):
    return st.sampled_from([usual] * 4 + [rare])


def values_of(path: Path, spellings: list[str]) -> np.ndarray:
    X, _ = read(path, "\n".join(f" 0:{spelling}" for spelling in spellings).encode())
    return X.data


def expected_values(spellings: list[str]) -> np.ndarray:
    return np.array([np.float32(float(spelling)) for spelling in spellings], np.float32)


def assert_bit_equal(path: Path, spellings: list[str]) -> None:
    found, wanted = values_of(path, spellings), expected_values(spellings)
    wrong = [s for s, a, b in zip(spellings, found.view(np.uint32), wanted.view(np.uint32), strict=True) if a != b]
    assert not wrong


SPELLINGS = """
    1e0000000000000000000000005 1e-0000000000000000000000005 1e-9999999999999999999999
    0 -0 +1 1. .5 -.5 00012 1e3 1E3 1e+3 1e-3 1.e2 .5e1 0e999999999999999999999 0.0e-5 1e-50 -1e-50 1e-45 7e-46 4.4e-44
    3.4028235677973362e38 -3.4028235677973362e38 1.17549435e-38 16777217 16777219 9007199254740993 0.30000000000000004
    18446744073709551615 18446744073709551616 99999999999999999999 0.1 1e22 1e23 1e38 0.1e-999999999999999999999
    0.000000000000000000000000000000000000000000001 123456789012345678901234567890e-25 1.000000059604644775390625
    1.00000005960464477539062500000000000000000000000000001 1.00000005960464477539062499999999999999999999999999999
"""


def test_spellings_of_numbers(path):
    assert_bit_equal(path, SPELLINGS.split())


def test_long_spellings_of_small_numbers(path):
    zeros = "0" * 200_000
    assert_bit_equal(
        path, [f"0.{zeros}7e200001", f"7{zeros}e-200000", f"1.{zeros}1", f"{zeros}5", f"1e{zeros}5", f"1e-{zeros}5"]
    )
    assert values_of(path, [f"0.{zeros}7e200001", f"7{zeros}e-200000"]).tolist() == [7, 7]


def test_numbers_written_with_full_precision(path):
    rng = np.random.default_rng(2)
    doubles = rng.normal(size=4000) * 10.0 ** rng.integers(-40, 38, 4000)
    assert_bit_equal(path, [repr(float(value)) for value in doubles])
    assert_bit_equal(path, [format(value, ".25f") for value in rng.normal(size=1000)])
    assert_bit_equal(path, [format(value, ".60f") for value in rng.normal(size=1000) * 1e-20])
    assert_bit_equal(path, [f"{m}e{e}" for m in (1, 7, 2**64 - 1, 10**25 - 1, 10**19) for e in range(-110, 13)])
    assert_bit_equal(path, [format(value, ".9g") for value in doubles])


def test_numbers_next_to_the_middle_between_two_floats(path):
    """The hard cases of rounding twice: a decimal to double, then to float32."""
    rng = np.random.default_rng(3)
    floats = np.abs(rng.integers(1, 0x7F7F_FFFF, 1500, dtype=np.int64)).astype(np.uint32).view(np.float32)
    middles = (floats.astype(np.float64) + np.nextafter(floats, np.float32(np.inf)).astype(np.float64)) / 2
    middles = middles[middles < 3.4e38]
    spellings = []
    for middle in middles:
        for double in (np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)):
            spellings += [repr(float(double)), format(float(double), ".17e"), format(float(double), ".30e")]
    assert_bit_equal(path, spellings)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.from_regex(r"[-+]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][-+]?[0-9]{1,2})?", fullmatch=True),
        min_size=1,
        max_size=30,
    )
)
def test_any_spelling_is_read_as_float_reads_it(path, spellings):
    spellings = [spelling for spelling in spellings if abs(float(spelling)) < xmc.FLOAT32_OVERFLOW] or ["1"]
    assert_bit_equal(path, spellings)


# --- the twin --------------------------------------------------------------------------------------------------------

number = st.one_of(
    st.floats(-(2.0**126), 2.0**126, width=32).map(repr),
    st.floats(-1e38, 1e38).map(repr),
    st.integers(-50, 50).map(str),
    st.sampled_from(["1", "0.5", "+1", "1.", ".25", "1e-50", "3e38", "-0", "1e5", "12345678901234567890123"]),
)
positive = st.one_of(st.floats(2.0**-126, 2.0**126, width=32).map(repr), st.sampled_from(["1", "1.0", "+2.5", "1e-3"]))
blank = st.sampled_from([" ", "  ", "\t", " \t "])


@st.composite
def rows(draw, n_features: int, n_labels: int) -> str:
    labels = draw(st.lists(st.integers(0, n_labels - 1), max_size=4))
    features = draw(st.lists(st.integers(0, n_features - 1), max_size=6))
    line = ",".join(map(str, labels))
    if not labels and not features:
        return draw(st.sampled_from(["", " ", "\t"]))
    for feature in features:
        line += f"{draw(blank)}{feature}:{draw(number)}"
    return line + draw(st.sampled_from(["", "", " ", "\t"])) + draw(st.sampled_from(["", "", "\r"]))


@st.composite
def valid_files(draw) -> bytes:
    n_features, n_labels = draw(st.integers(1, 20)), draw(st.integers(1, 10))
    lines = draw(st.lists(rows(n_features, n_labels), max_size=8))
    header = draw(st.sampled_from([[f"{len(lines)} {n_features} {n_labels}"], []]))
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    return (mark + "\n".join(header + lines) + draw(st.sampled_from(["", "\n", "\n\n"]))).encode()


@st.composite
def mutated_files(draw) -> bytes:
    content = bytearray(draw(valid_files()))
    for _ in range(draw(st.integers(1, 3))):
        a, b = sorted(draw(st.tuples(st.integers(0, len(content)), st.integers(0, len(content)))))
        match draw(st.integers(0, 3)):
            case 0:  # another byte
                content[a : a + 1] = draw(st.sampled_from([bytes([byte]) for byte in ALPHABET]))
            case 1:  # a cut
                del content[a : min(b, a + 5)]
            case 2:  # a splice
                content[a:a] = content[b : b + 12]
            case _:
                content[a:a] = draw(st.sampled_from([b"1e39", b"nan", b"2147483648", b"::", b",,", b"-1", b"\r\n"]))
    return bytes(content)


any_bytes = st.lists(st.sampled_from(list(ALPHABET)), max_size=40).map(bytes)
any_file = st.one_of(valid_files(), mutated_files(), mutated_files(), any_bytes)


@settings(deadline=None, max_examples=400)
@given(any_file, mostly(True, False), st.sampled_from([1, 2, 7, 64, xmc.CHUNK]), mostly(1 << 20, 12))
@example(b"0 1:2\n1 1:3e38 1:3e38\n0 x", True, 1, 1 << 20)
@example(b"0 1:2\n1 1:3e38 1:3e38\n0 x", True, xmc.CHUNK, 1 << 20)
@example(b"0 1:3e38 1:3e38\n0 1:1e99\n0 x", True, xmc.CHUNK, 1 << 20)
@example(b"0 1:1e99 x\n", True, xmc.CHUNK, 1 << 20)
def test_equals_its_twin_on_any_bytes(path, content, zero_based, chunk_bytes, max_line):
    path.write_bytes(content)
    found = outcome(lambda: read_xmc(path, zero_based=zero_based, chunk_bytes=chunk_bytes, max_line=max_line))
    assert found == twin(path, content, zero_based=zero_based, max_line=max_line)


@settings(deadline=None, max_examples=300)
@given(any_file)
def test_pieces_do_not_change_a_byte(path, content):
    path.write_bytes(content)
    whole = outcome(lambda: read_xmc(path))
    for chunk_bytes in (1, 2, 7, 64):
        assert outcome(lambda size=chunk_bytes: read_xmc(path, chunk_bytes=size)) == whole


@st.composite
def split_files(draw, usual, rare) -> bytes:
    """One half of a split pair, sometimes damaged."""
    n_columns, n_rows = draw(st.integers(1, 9)), draw(mostly(3, 2))
    row = st.lists(st.tuples(st.integers(0, n_columns - 1), draw(mostly(usual, rare))), max_size=4)
    lines = draw(
        st.lists(row.map(lambda pairs: " ".join(f"{j}:{v}" for j, v in pairs)), min_size=n_rows, max_size=n_rows)
    )
    content = "\n".join([f"{n_rows} {n_columns}", *lines, ""]).encode()
    if draw(mostly(True, False)):
        return content
    at = draw(st.integers(0, len(content)))
    return content[:at] + draw(st.sampled_from([b"", b"1", b" ", b"\n", b":", b"x"])) + content[at + 1 :]


@settings(deadline=None, max_examples=200)
@given(split_files(number, positive), split_files(positive, number), st.sampled_from([1, 7, xmc.CHUNK]))
def test_the_split_layout_equals_its_twin(path, features, labels, chunk_bytes):
    paths = path.with_name("X"), path.with_name("Y")
    paths[0].write_bytes(features)
    paths[1].write_bytes(labels)
    found = outcome(lambda: read_split(*paths, chunk_bytes=chunk_bytes))
    assert found == twin_split(paths, (features, labels))


@settings(deadline=None, max_examples=100)
@given(any_bytes)
def test_counts(content):
    text = np.frombuffer(content * 50, np.uint8)
    assert xmc_kernel.count(text) == (50 * content.count(b":"), 50 * content.count(b","), 50 * content.count(b"\n"))
