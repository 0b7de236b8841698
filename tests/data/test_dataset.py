"""data.dataset: checked, summarised, split, saved and opened; a damaged folder is always an error that names a file."""

from __future__ import annotations

import json
import mmap
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix
from sklearn.exceptions import NotFittedError

from longtail import folder, sealed
from longtail.data.dataset import Dataset
from longtail.data.text_features import TextFeatures
from longtail.errors import DataWarning, InputError, ModelError
from longtail.methods import OneVsAll

NOT_FINITE = "X contains NaN or infinity (or a value beyond float32); every feature value is a finite number"
NO_INDICATOR = (
    "an indicator Y holds only 0 and 1, but 2 was found; "
    "mark each label of a row by 1 (class numbers go into a 1-d array)"
)
TOO_WIDE = "X is not a valid sparse matrix: 2,147,483,648 columns are more than the 2,147,483,646 that can be numbered"
NUMBERS = "meta data must be the whole numbers n_samples, n_features, n_labels and text_features"


def small(**others) -> Dataset:
    X = csr_array(np.array([[1.5, 0, 0], [0, 2, -1], [0, 0, 0], [3, 0, 0.5]], np.float32))
    Y = csr_array(np.array([[1, 0], [1, 1], [0, 0], [1, 0]], np.int32))
    return Dataset(X, Y, **others)


def texts_and_names() -> Dataset:
    texts = ["a first text", "a second text", "", "the third"]
    return Dataset.from_texts(texts, [["b", 7], ["b"], [], ["ä"]])


def assert_same(a: Dataset, b: Dataset) -> None:
    for name in ("X", "Y"):
        ours, theirs = getattr(a, name), getattr(b, name)
        assert isinstance(theirs, csr_array)
        assert ours.shape == theirs.shape
        for part in ("data", "indices", "indptr"):
            assert getattr(ours, part).dtype == getattr(theirs, part).dtype
            assert getattr(ours, part).tobytes() == getattr(theirs, part).tobytes()
    assert (a.label_names is None) == (b.label_names is None)
    assert a.label_names is None or a.label_names.tolist() == b.label_names.tolist()
    assert (a.feature_names, a.texts) == (b.feature_names, b.texts)
    assert (a.text_features is None) == (b.text_features is None)
    assert a.text_features is None or a.text_features.same_as(b.text_features)


# --- construction ----------------------------------------------------------------------------------------------------


def test_canonical_arrays_are_shared_and_others_are_made_canonical():
    X = csr_array(np.eye(3, dtype=np.float32))
    Y = csr_array(np.ones((3, 1), np.int32))
    data = Dataset(X, Y)
    assert np.shares_memory(data.X.data, X.data)
    assert np.shares_memory(data.Y.indices, Y.indices)

    wide = csr_matrix((np.array([1.0, 2.0, 4.0]), [1, 0, 1], [0, 3]), shape=(1, 2))
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    marks = coo_array((np.array([1.0, 0.0]), ([0, 0], [0, 1])), shape=(1, 2))
    data = Dataset(wide, marks)
    assert data.X.toarray().tolist() == [[2, 5]]
    assert data.X.dtype == np.float32
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32
    assert data.Y.toarray().tolist() == [[1, 0]]
    assert data.Y.dtype == np.int32
    assert data.Y.nnz == 1
    assert wide.indices.tolist() == [1, 0, 1]  # the caller's matrix is as it was
    assert marks.nnz == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"Y": csr_array((3, 2))}, "Y has 3 rows but X has 4; each row of Y labels one row of X"),
        ({"X": np.eye(4)}, "X must be a SciPy sparse matrix, but is ndarray; use scipy.sparse.csr_array"),
        ({"Y": [["a"]]}, "Y must be a SciPy sparse matrix, but is list; use scipy.sparse.csr_array"),
        ({"X": csr_array([[np.nan]] * 4)}, NOT_FINITE),
        ({"X": csr_array([[1e39]] * 4)}, NOT_FINITE),
        ({"X": csr_array([[1j]] * 4)}, "X holds complex128, but numbers are needed"),
        ({"X": csr_array((4, 2**31))}, TOO_WIDE),
        ({"Y": csr_array([[2]] * 4)}, NO_INDICATOR),
        ({"label_names": ["a"]}, "1 label names were given for 2 labels; give one for each"),
        ({"feature_names": ["a"]}, "1 feature names were given for 3 features; give one for each"),
        ({"texts": ["a"]}, "1 texts were given for 4 rows; give one for each"),
        ({"texts": "abcd"}, "one text was passed where several are expected; pass a list of texts: ['abcd']"),
        ({"text_features": TextFeatures().fit(["a b"])}, "the text features make 2 columns but X has 3"),
    ],
)
def test_parts_that_do_not_fit(fields, message):
    data = small()
    with pytest.raises(InputError) as error:
        Dataset(**({"X": data.X, "Y": data.Y} | fields))
    assert str(error.value) == message


def test_text_features_must_be_fitted():
    with pytest.raises(NotFittedError, match="This TextFeatures instance is not fitted yet"):
        Dataset(small().X, small().Y, text_features=TextFeatures())


def test_a_matrix_with_indices_out_of_range_is_refused():
    X = csr_array(np.eye(4, dtype=np.float32))
    X.indices[0] = 99
    with pytest.raises(InputError, match="X is not a valid sparse matrix"):
        Dataset(X, small().Y)


def test_texts_make_features_and_sorted_label_names():
    data = texts_and_names()
    assert data.label_names.tolist() == ["7", "b", "ä"]
    assert data.Y.toarray().tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert (
        data.feature_names
        == data.text_features.get_feature_names_out().tolist()
        == ["a", "first", "second", "text", "the", "third"]
    )
    unfitted = TextFeatures(norm="l1")
    again = Dataset.from_texts(data.texts, [["b"]] * 4, text_features=unfitted, label_names=["x", "b"])
    assert not hasattr(unfitted, "n_features_out_")
    assert again.Y.toarray().tolist() == [[0, 1]] * 4
    assert Dataset.from_texts(["text"], [[]], text_features=data.text_features).text_features is data.text_features


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["x"], "yes"], "row 1 of labels is str, but must be a list of label names; write ['name']"),
        ([3, 4], "row 0 of labels is int, but must be a list of label names; write ['name']"),
        ([["x"]], "Y has 1 rows but X has 2; each row of Y labels one row of X"),
    ],
)
def test_labels_that_are_no_lists(labels, message):
    with pytest.raises(InputError) as error:
        Dataset.from_texts(["a", "b"], labels)
    assert str(error.value) == message


def test_hashed_texts_have_no_feature_names():
    assert Dataset.from_texts(["a b"], [["x"]], text_features=TextFeatures("hashing")).feature_names is None


# --- summary ---------------------------------------------------------------------------------------------------------


def test_summary():
    summary = small().summary()
    assert (summary.n_samples, summary.n_features, summary.n_labels) == (4, 3, 2)
    assert (summary.nnz, summary.n_assigned) == (5, 4)
    assert (summary.features_per_row, summary.labels_per_row) == (1.25, 1.0)
    assert summary.label_frequency == {0: 1.0, 25: 1.5, 50: 2.0, 75: 2.5, 90: 2.8, 99: 2.98, 100: 3.0}
    assert (summary.unused_labels, summary.rows_without_label, summary.rows_without_feature) == (0, 1, 1)
    assert summary.memory_bytes == 4 * (5 + 5 + 5 + 4 + 4 + 5)


def test_summary_for_people():
    data = Dataset(csr_array((1200, 5), dtype=np.float32), csr_array((1200, 3), dtype=np.int32))
    assert str(data).splitlines() == [
        "rows                  1,200",
        "features              5  (0.0 per row)",
        "labels                3  (0.0 per row)",
        "rows per label        0%: 0  25%: 0  50%: 0  75%: 0  90%: 0  99%: 0  100%: 0",
        "labels without row    3",
        "rows without label    1,200",
        "rows without feature  1,200",
        "memory                0.01 MB",
    ]
    assert data.describe() == str(data)
    assert repr(data) == "Dataset(1200 rows, 5 features, 3 labels)"


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 3, 0), (0, 0, 0)])
def test_empty_datasets_are_datasets(shape, tmp_path):
    n, d, L = shape
    data = Dataset(csr_array((n, d), dtype=np.float32), csr_array((n, L), dtype=np.int32), label_names=[""] * L)
    assert data.summary().n_labels == L
    assert "rows" in str(data)
    data.save(tmp_path / "data")
    assert_same(data, Dataset.open(tmp_path / "data"))


# --- parts -----------------------------------------------------------------------------------------------------------


def test_select_keeps_rows_texts_and_columns_together():
    data = texts_and_names()
    for rows in ([3, 0], np.array([3, 0]), slice(3, None, -3)):
        part = data.select(rows)
        assert part.texts == ["the third", "a first text"]
        assert part.Y.toarray().tolist() == [[0, 0, 1], [1, 1, 0]]
        assert abs(part.X - data.X[[3, 0]]).nnz == 0
        assert part.text_features is data.text_features
    assert data.select(np.array([True, False, False, True])).texts == ["a first text", "the third"]
    assert data.select([]).n_samples == 0
    with pytest.raises(InputError, match="rows cannot be selected from 4"):
        data.select([4])


def test_a_dataset_has_a_length_and_parts():
    data = texts_and_names()
    assert len(data) == 4
    assert data[1:3].texts == data[[1, 2]].texts == data[np.array([False, True, True, False])].texts
    assert data[-1].texts == ["the third"]
    assert [row.texts[0] for row in data] == data.texts
    with pytest.raises(IndexError, match="row 4 was asked for, but there are 4 rows"):
        data[4]


def test_test_texts_get_the_columns_of_the_training_texts():
    train = texts_and_names()
    with pytest.warns(DataWarning, match=r"labels: 1 unknown label\(s\) dropped, 2 of 3 uses: 'new'"):
        test = Dataset.from_texts(["a text", "other"], [["b", "new"], ["new"]], like=train)
    assert test.text_features is train.text_features
    assert test.label_names.tolist() == train.label_names.tolist()
    assert test.Y.toarray().tolist() == [[0, 1, 0], [0, 0, 0]]
    clf = OneVsAll().fit(train)
    assert Dataset.from_texts(["a text"], [["b"]], like=clf.model_).X.shape == (1, train.n_features)
    with pytest.raises(InputError, match="got like and text_features or label_names"):
        Dataset.from_texts(["a"], [[]], like=train, label_names=["b"])
    with pytest.raises(InputError, match="2 of 2 label uses are not among the 1 label names"):
        Dataset.from_texts(["a", "b"], [["x"], ["y"]], label_names=["b"])
    with pytest.warns(DataWarning, match="2 of 2 uses"):
        Dataset.from_texts(["a", "b"], [["x"], ["y"]], label_names=["b"], drop_unknown=True)
    with pytest.raises(InputError, match="like has no text features"):
        Dataset.from_texts(["a"], [[]], like=numbered(2))


def numbered(n: int) -> Dataset:
    return Dataset(csr_array(np.arange(1, n + 1, dtype=np.float32)[:, None]), csr_array((n, 1), dtype=np.int32))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 300), st.floats(0.01, 0.99), st.integers(0, 2**32 - 1))
def test_a_split_is_a_partition_in_order_of_the_promised_size(n, fraction, seed):
    train, test = numbered(n).split(fraction, seed)
    parts = [part.X.data.astype(int).tolist() for part in (train, test)]
    assert sorted(parts[0] + parts[1]) == list(range(1, n + 1))
    assert all(rows == sorted(rows) for rows in parts)
    assert len(parts[1]) == min(max(round(n * fraction), 1), n - 1)
    assert numbered(n).split(fraction, seed)[1].X.data.astype(int).tolist() == parts[1]


def test_a_split_is_the_same_for_ever():
    tests = [numbered(12).split(0.25, seed)[1].X.data.astype(int).tolist() for seed in (0, 1)]
    assert tests == [[3, 5, 7], [5, 9, 11]]


def test_splits_of_different_seeds_are_independent():
    tests = [set(numbered(2000).split(0.5, seed)[1].X.data) for seed in (0, 1)]
    assert abs(len(tests[0] & tests[1]) - 500) < 60


@pytest.mark.parametrize("test_size", [0.0, 1.0, -0.1, 1.5, True, float("nan"), "0.2", None])
def test_a_split_needs_a_fraction(test_size):
    with pytest.raises(InputError, match="test_size must be a number of rows or lie between 0 and 1, but is"):
        small().split(test_size)


def test_a_split_takes_a_number_of_rows():
    assert [part.n_samples for part in numbered(12).split(5)] == [7, 5]
    assert numbered(12).split(np.int64(3))[1].X.data.tolist() == numbered(12).split(0.25)[1].X.data.tolist()
    for rows in (0, -1, 4):
        with pytest.raises(InputError, match=f"test_size is {rows} rows, but must be from 1 to 3; a float"):
            small().split(rows)


def test_a_split_takes_every_random_state_of_scikit_learn():
    drawn = [numbered(500).split(random_state=np.random.RandomState(seed))[1].X.data.tolist() for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(numbered(500).split(random_state=None)[1].X.data) == 100
    for wrong in ("x", -1, 1.5):
        with pytest.raises(InputError, match="random_state must be None, a whole number from 0 to"):
            small().split(random_state=wrong)


def test_a_single_row_cannot_be_split():
    with pytest.raises(InputError) as error:
        numbered(1).split()
    assert str(error.value) == "1 row(s) cannot be split into train and test; at least 2 are needed"


# --- to disk and back ------------------------------------------------------------------------------------------------


@st.composite
def any_dataset(draw) -> Dataset:
    n, d, L = draw(st.integers(0, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 5))
    values = st.sampled_from([0.0, 0.0, 1.0, -2.5, 1e-30, 3e38])
    X = np.array(draw(st.lists(values, min_size=n * d, max_size=n * d)), np.float32).reshape(n, d)
    Y = np.array(draw(st.lists(st.integers(0, 1), min_size=n * L, max_size=n * L)), np.int32).reshape(n, L)

    def names(size: int) -> list[str] | None:
        return draw(st.none() | st.lists(st.text(max_size=5), min_size=size, max_size=size))

    return Dataset(csr_array(X), csr_array(Y), names(L), names(d), texts=names(n))


@settings(deadline=None, max_examples=60)
@given(any_dataset(), st.booleans())
def test_what_is_saved_is_opened(tmp_path_factory, data, mapped):
    path = tmp_path_factory.mktemp("round") / "data"
    data.save(path)
    assert_same(data, Dataset.open(path, mmap=mapped))
    shutil.rmtree(path.parent)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.text(max_size=20), min_size=1, max_size=5),
    st.sampled_from(["tfidf", "hashing"]),
    st.booleans(),
    st.data(),
)
def test_texts_and_their_pipeline_travel_with_the_dataset(tmp_path_factory, texts, kind, idf, draw):
    labels = [draw.draw(st.lists(st.text(min_size=1, max_size=3) | st.integers(), max_size=3)) for _ in texts]
    features = TextFeatures(kind, analyzer="char", use_idf=idf, n_features=50)
    data = Dataset.from_texts(["some text", *texts], [[], *labels], text_features=features)
    path = tmp_path_factory.mktemp("round") / "data"
    data.save(path)
    again = Dataset.open(path)
    assert_same(data, again)
    assert (again.text_features.transform(data.texts) != data.X).nnz == 0
    shutil.rmtree(path.parent)


def is_mapped(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def test_an_opened_dataset_stays_on_disk(tmp_path):
    texts_and_names().save(tmp_path / "data")
    data = Dataset.open(tmp_path / "data")
    for array in (data.X.data, data.X.indices, data.X.indptr, data.Y.indices, data.Y.indptr):
        assert is_mapped(array)
        assert not array.flags.writeable
    assert not is_mapped(Dataset.open(tmp_path / "data", mmap=False).X.data)
    assert data.select([0]).texts == ["a first text"]
    assert data.split()[0].n_samples == 3


def test_saving_replaces_the_dataset_that_was_there(tmp_path):
    small().save(tmp_path / "data")
    texts_and_names().save(tmp_path / "data")
    assert_same(texts_and_names(), Dataset.open(tmp_path / "data"))


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "data"
    texts_and_names().save(path)
    return path


def test_every_random_damage_is_an_error_that_names_the_file(saved, tmp_path):
    rng = np.random.default_rng(0)
    files = sorted(path.name for path in saved.iterdir())
    for case in range(300):
        copy = tmp_path / "copy"
        shutil.copytree(saved, copy)
        victim = copy / files[case % len(files)]
        content = bytearray(victim.read_bytes())
        at = int(rng.integers(len(content)))
        kind = case // len(files) % 4
        if kind == 0:
            content[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            content[at:] = b""
        elif kind == 2:
            content.insert(at, int(rng.integers(256)))
        else:
            content[at : at + 4] = bytes(rng.integers(0, 256, 4, np.uint8))
        if bytes(content) == victim.read_bytes():
            content += b"\0"
        victim.write_bytes(content)
        with pytest.raises(ModelError) as error:
            Dataset.open(copy)
        assert Path(error.value.path) == victim, case
        shutil.rmtree(copy)


def resealed(path: Path, change) -> None:
    """Edit the manifest as an attacker would: with a right checksum at the end."""
    manifest = path / folder.DATASET.manifest
    body = json.loads(manifest.read_text())
    del body["~crc32"]
    change(body)
    manifest.write_bytes(sealed.seal(body))


def stored(path: Path, name: str, array: np.ndarray) -> None:
    """Put another array in place of one that a folder holds, with a right checksum."""

    def change(body):
        body["arrays"][name] = folder._write_array(path, name, array)

    resealed(path, change)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("n_samples", 5, "X_indptr does not span 5 rows and 8 entries"),
        ("n_samples", 2**62, "4611686018427387904 rows, 6 features and 3 labels are out of range"),
        ("n_samples", -1, "-1 rows, 6 features and 3 labels are out of range"),
        ("n_samples", True, NUMBERS),
        ("n_samples", 4.0, NUMBERS),
        ("n_features", 5, "X_indices leaves the range 0 to 4"),
        ("n_features", 7, "the text features make 6 columns but X has 7"),
        ("n_labels", 2, "Y_indices leaves the range 0 to 1"),
        ("n_labels", 4, "3 label names were given for 4 labels; give one for each"),
        ("n_labels", 2**31, "4 rows, 6 features and 2147483648 labels are out of range"),
        ("more", 1, NUMBERS),
    ],
)
def test_a_manifest_that_lies_about_sizes(saved, tmp_path, key, value, reason):
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    resealed(copy, lambda body: body["meta"].update({key: value}))
    with pytest.raises(ModelError) as error:
        Dataset.open(copy)
    assert str(error.value) == f"{copy / 'dataset.json'}: {reason}"


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("X_data", np.full(8, np.inf, np.float32), "X_data holds NaN or infinity"),
        ("X_data", np.ones(7, np.float32), "X_data has 7 values for 8 indices"),
        ("X_data", np.ones(8), "array X_data has dtype <f8 and 1 dimensions, not <f4 and 1"),
        ("X_indices", np.zeros(8, np.int32), "X_indices are not sorted and unique within a row"),
        ("X_indices", np.full(8, -1, np.int32), "X_indices leaves the range 0 to 5"),
        ("X_indptr", np.array([0, 3, 6, 6, 8]), "array X_indptr has dtype <i8 and 1 dimensions, not <i4 and 1"),
        ("X_indptr", np.array([0, 6, 3, 6, 8], np.int32), "X_indptr decreases"),
        ("Y_indices", np.full(4, 3, np.int32), "Y_indices leaves the range 0 to 2"),
        ("texts_offsets", np.array([0, 30]), "texts_offsets does not divide 34 bytes"),
        ("texts_offsets", np.array([0, 34]), "1 texts were given for 4 rows; give one for each"),
        ("label_names_utf8", np.full(4, 200, np.uint8), "label_names_utf8 is not UTF-8"),
        ("text_idf", np.ones(5, np.float32), "text_idf has 5 weights for 6 features"),
    ],
)
def test_sealed_arrays_that_do_not_mean_anything(saved, tmp_path, name, array, reason):
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    stored(copy, name, array)
    with pytest.raises(ModelError) as error:
        Dataset.open(copy)
    assert str(error.value) == f"{copy / 'dataset.json'}: {reason}"


@pytest.mark.parametrize("name", ["X_data", "X_indptr", "Y_indices", "texts_utf8", "label_names_offsets", "text_idf"])
def test_an_array_that_is_not_listed(saved, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    resealed(copy, lambda body: body["arrays"].pop(name))
    with pytest.raises(ModelError) as error:
        Dataset.open(copy)
    assert str(error.value) == f"{copy / 'dataset.json'}: lists no array {name}"


def test_a_folder_that_is_no_dataset(tmp_path):
    with pytest.raises(ModelError) as error:
        Dataset.open(tmp_path / "absent")
    assert str(error.value) == f"{tmp_path / 'absent'}: does not exist; a dataset is a folder with a dataset.json"
