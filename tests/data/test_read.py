"""data.read: every format from its name, and the columns of another dataset or model."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.data.text_features import TextFeatures
from longtail.errors import DataError, DataWarning, InputError

XMC = "3 4 3\n0,2 0:1 3:0.5\n 1:2\n1 2:-1\n"
X = [[1, 0, 0, 0.5], [0, 2, 0, 0], [0, 0, -1, 0]]
Y = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
TRAIN = '{"text": "red apple", "labels": ["fruit", 7]}\n{"text": "green leaf", "labels": ["plant"]}\n'
TEST = (
    '{"text": "green apple pie", "labels": ["plant", "fruit", "pie", "cake"]}\n{"text": "a pie", "labels": ["pie"]}\n'
)


@dataclass
class Model:
    """The attributes of a model that `like` looks at."""

    n_features: int
    n_labels: int
    label_names: Any = None
    feature_names: Any = None
    text_features: Any = None


@pytest.fixture
def put(tmp_path):
    def write(name: str, content: str | bytes) -> Path:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return write


# --- formats ---------------------------------------------------------------------------------------------------------


def test_one_screen(put):
    put("train.jsonl", TRAIN)
    put("test.jsonl", TEST)
    train = lt.read(put("train.jsonl", TRAIN))
    with pytest.warns(DataWarning):
        test = lt.read(put("test.jsonl", TEST), like=train)
    assert train.label_names.tolist() == test.label_names.tolist() == ["7", "fruit", "plant"]
    assert train.feature_names == test.feature_names == ["apple", "green", "leaf", "red"]
    assert test.text_features is train.text_features
    assert test.texts == ["green apple pie", "a pie"]
    assert test.Y.toarray().tolist() == [[0, 1, 1], [0, 0, 0]]
    np.testing.assert_allclose(test.X.toarray(), [[0.5**0.5, 0.5**0.5, 0, 0], [0, 0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("name", ["a.txt", "a.svm", "a", "jsonl"])
def test_a_name_that_says_nothing_is_the_repository_format(put, name):
    data = lt.read(put(name, XMC))
    assert (data.X.toarray() == X).all()
    assert data.Y.toarray().tolist() == Y
    assert data.label_names is data.feature_names is data.texts is data.text_features is None


def test_packed_files(put):
    for name, pack in (("a.txt.gz", gzip.compress), ("a.txt.xz", lzma.compress), ("b", lzma.compress)):
        assert lt.read(put(name, pack(XMC.encode()))).Y.toarray().tolist() == Y
    for name, pack in (("a.jsonl.gz", gzip.compress), ("A.JSONL.XZ", lzma.compress), ("a.ndjson", bytes)):
        assert lt.read(put(name, pack(TRAIN.encode()))).texts == ["red apple", "green leaf"]


def test_standard_input(monkeypatch):
    for content, form, rows in ((XMC, None, 3), (TRAIN, "jsonl", 2), ("text\na\n", "csv", 1)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        assert lt.read("-", format=form).n_samples == rows


def test_numbers_from_one(put):
    path = put("a.txt", "0,2 1:1 4:0.5\n 2:2\n1 3:-1\n")
    assert (lt.read(path, zero_based=False).X.toarray() == X).all()


def test_split_layout(put):
    features = put("X.txt", "3 4\n0:1 3:0.5\n1:2\n2:-1\n")
    data = lt.read(features, put("Y.txt", "3 3\n0:1 2:1\n\n1:1\n"))
    assert (data.X.toarray() == X).all()
    assert data.Y.toarray().tolist() == Y


def test_npz_pair(tmp_path):
    sp.save_npz(tmp_path / "X.npz", sp.csr_array(np.array(X)))
    sp.save_npz(tmp_path / "Y.npz", sp.csr_matrix(np.array(Y)))
    data = lt.read(tmp_path / "X.npz", tmp_path / "Y.npz")
    assert (data.X.toarray() == X).all()
    assert data.X.dtype == np.float32
    assert data.Y.toarray().tolist() == Y


def test_tables(put):
    for name, content in (
        ("a.csv", "text,labels\nred apple,fruit|7\n"),
        ("a.tsv", "text\tlabels\nred apple\tfruit|7\n"),
    ):
        data = lt.read(put(name, content))
        assert data.texts == ["red apple"]
        assert data.label_names.tolist() == ["7", "fruit"]
    path = put("a.csv", "body,tags\nred apple,fruit;7\n")
    assert lt.read(path, text_field="body", labels_field="tags", label_separator=";").n_labels == 2


def test_a_saved_dataset(put, tmp_path):
    data = lt.read(put("train.jsonl", TRAIN))
    data.save(tmp_path / "folder.jsonl")
    again = lt.read(tmp_path / "folder.jsonl")
    assert again.texts == data.texts
    assert again.text_features.same_as(data.text_features)


def test_the_format_can_be_told(put):
    assert lt.read(put("a.txt", TRAIN), format="jsonl").n_samples == 2
    assert lt.read(put("a.csv", XMC), format="xmc").n_samples == 3


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_beside_the_data_are_taken_up_if_they_fit(put):
    path = put("train.txt", XMC)
    put("labels.txt", "a\nb\nc\n")
    put("features.txt", "f0\nf1\nf2\nf3")
    data = lt.read(path)
    assert data.label_names.tolist() == ["a", "b", "c"]
    assert data.feature_names == ["f0", "f1", "f2", "f3"]


@pytest.mark.parametrize("content", ["a\nb\n", "a\nb\nc\nd\n", b"a\n\xff\nc\n", ""])
def test_names_beside_the_data_that_do_not_fit_are_left_alone(put, content):
    path = put("train.txt", XMC)
    put("labels.txt", content)
    assert lt.read(path).label_names is None


def test_the_data_itself_is_no_list_of_names(put):
    features, labels = put("features.txt", "2 3\n0:1\n1:1\n"), put("labels.txt", "2 3\n0:1\n2:1\n")
    data = lt.read(features, labels)
    assert data.label_names is data.feature_names is None


def test_names_by_argument(put):
    path = put("train.txt", XMC)
    put("labels.txt", "no\nno\nno\n")
    data = lt.read(path, label_names=["a", "b", "c"], feature_names=put("names", "f0\nf1\nf2\nf3\n"))
    assert data.label_names.tolist() == ["a", "b", "c"]
    assert data.feature_names == ["f0", "f1", "f2", "f3"]
    with pytest.raises(DataError) as error:
        lt.read(path, label_names=put("names", "a\nb\n"))
    assert error.value.reason == "found 2 names, expected one line for each of 3 labels"
    with pytest.raises(InputError) as error:
        lt.read(path, feature_names=["a"])
    assert str(error.value) == "1 feature names were given for 4 features; give one for each"


def test_label_names_fix_the_labels_of_texts(put):
    path = put("train.jsonl", TRAIN)
    assert lt.read(path, label_names=["plant", "tree", "fruit", "7"]).Y.toarray().tolist() == [
        [0, 0, 1, 1],
        [1, 0, 0, 0],
    ]
    with pytest.warns(DataWarning) as seen:
        data = lt.read(path, label_names=put("names", "plant\n"), drop_unknown=True)
    assert data.Y.toarray().tolist() == [[0], [1]]
    assert [str(warning.message) for warning in seen] == [
        f"{path}: 2 unknown label(s) dropped, 2 of 3 uses: '7', 'fruit'"
    ]


def test_label_names_that_drop_many_labels_are_an_error(put):
    path = put("train.jsonl", "".join(f'{{"text": "word{i}", "labels": [{i % 3}]}}\n' for i in range(30)))
    with pytest.raises(InputError) as error:
        lt.read(path, label_names=["zero", "one", "two"])
    assert str(error.value) == (
        f"{path}: 30 of 30 label uses are not among the 3 label names: found '0', '1', '2', expected names such as "
        "'zero', 'one', 'two'; the labels are numbers and the names are not; leave out label_names (--label-names), "
        "correct them, or set drop_unknown (--drop-unknown)"
    )
    rare = put("rare.jsonl", path.read_text() + '{"text": "word", "labels": ["new"]}\n')
    with pytest.warns(DataWarning, match=r"1 unknown label\(s\) dropped, 1 of 31 uses: 'new'"):
        assert lt.read(rare, label_names=["0", "1", "2"]).n_samples == 31


# --- files as people have them ---------------------------------------------------------------------------------------


def test_a_table_of_a_european_spreadsheet(put):
    path = put("a.csv", "\ufeffNr;Titel;Schlagwörter\r\n1;rote Äpfel, 2,5 kg;Obst|Rot\r\n2;Öl;Küche\r\n")
    how = {"text_field": "Titel", "labels_field": "Schlagwörter"}
    data = lt.read(path, **how)
    assert data.texts == ["rote Äpfel, 2,5 kg", "Öl"]
    assert data.label_names.tolist() == ["Küche", "Obst", "Rot"]
    windows = put("b.csv", path.read_text(encoding="utf-8-sig").encode("cp1252"))
    with pytest.warns(DataWarning, match="line 1: is not UTF-8; read as Windows-1252") as seen:
        assert lt.read(windows, **how).texts == data.texts
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lt.read(windows, **how, encoding="cp1252", delimiter=";").texts == data.texts


def test_labels_in_an_unnamed_column(put):
    with pytest.warns(DataWarning) as seen:
        data = lt.read(put("a.csv", "text;Tags\na b;x\nc d;y\n"))
    assert data.n_labels == 0
    assert [str(warning.message) for warning in seen] == [
        f'{put("a.csv", "")}: found "text", "Tags", but no "labels", so the texts have no labels; '
        'name their field with labels_field (--labels-field), perhaps "Tags"'
    ]


@pytest.mark.parametrize("sign", [";", ",", "|"])
def test_a_wrong_label_separator_is_noticed(put, sign):
    rows = [f'"text {i}"\t"{sign.join(map(str, (i % 12, (i // 12 + 5) % 12, 11)))}"\n' for i in range(40)]
    path = put("a.tsv", "text\tlabels\n" + "".join(rows))
    with pytest.warns(DataWarning) as seen:
        wrong = lt.read(path, label_separator="#")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = lt.read(path, label_separator=sign)
    assert (wrong.n_labels, right.n_labels) == (len(set(wrong.label_names)), 12)
    assert [str(warning.message) for warning in seen] == [
        f'{path}: no row has more than one label, but 40 of 40 contain "{sign}". Divided there, they are 12 labels in '
        f'place of {wrong.n_labels}; if that is meant, set label_separator (--label-separator) to "{sign}"'
    ]


def test_names_with_commas_are_no_mistake(put):
    content = "".join(f'{{"text": "t", "labels": ["Place {i % 5}, Country {i % 5}"]}}\n' for i in range(20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lt.read(put("a.jsonl", content)).n_labels == 5


def test_plain_texts_for_a_model_of_texts(put):
    train = lt.read(put("train.jsonl", TRAIN))
    data = lt.read(put("a.txt", "green apple\n1 of 2\n"), like=train)
    assert data.texts == ["green apple", "1 of 2"]
    assert lt.read(put("a.dat", "green apple\n"), like=train, format="txt").texts == ["green apple"]
    assert lt.read(put("a.json", '["green apple", {"text": "x"}]'), like=train).texts == ["green apple", "x"]


def test_parquet_and_arrow(tmp_path):
    texts = ["red apple", "green leaf"]
    columns = {"id": [1, 2], "text": texts, "labels": [["fruit", "red"], []], "joined": ["a;b", ""], "class": [7, 8]}
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "a.parquet")
    pa.feather.write_feather(table, tmp_path / "a.feather")
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as stream:
        stream.write_table(table)
    for name in ("a.parquet", "a.feather", "a.arrow"):
        data = lt.read(tmp_path / name)
        assert data.texts == texts
        assert data.label_names.tolist() == ["fruit", "red"]
        assert data.Y.toarray().tolist() == [[1, 1], [0, 0]]
        joined = lt.read(tmp_path / name, labels_field="joined", label_separator=";")
        assert joined.label_names.tolist() == ["a", "b"]
        assert lt.read(tmp_path / name, labels_field="class").label_names.tolist() == ["7", "8"]
        with pytest.raises(DataError, match=r'found the columns "id", .*, expected a column "body"; .*--text-field'):
            lt.read(tmp_path / name, text_field="body")
        with pytest.raises(DataError, match=r'row 1: found a value of type int in the column "id", expected a string'):
            lt.read(tmp_path / name, text_field="id")
        content = (tmp_path / name).read_bytes()
        (tmp_path / f"cut-{name}").write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=r"is not a valid (parquet|arrow) file"):
            lt.read(tmp_path / f"cut-{name}")
    with pytest.raises(DataError, match="cannot be opened"):
        lt.read(tmp_path / "absent.parquet")


def test_zstd(put):
    packed = pa.compress(TRAIN.encode(), codec="zstd", asbytes=True)
    data = lt.read(put("train.jsonl.zst", packed))
    assert data.texts == ["red apple", "green leaf"]
    assert lt.read(put("two.jsonl.zst", packed + packed)).texts == 2 * data.texts
    assert lt.read(put("a.txt.zst", pa.compress(XMC.encode(), codec="zstd", asbytes=True))).Y.toarray().tolist() == Y
    for damaged in (packed[:-9], packed[:20] + b"xx" + packed[22:]):
        with pytest.raises(DataError, match=r"the zstd data is (damaged|cut off)"):
            lt.read(put("cut.jsonl.zst", damaged))
    bomb = pa.compress(b" " * (64 << 20), codec="zstd", asbytes=True)
    with pytest.raises(DataError, match="like a decompression bomb"):
        lt.read(put("bomb.jsonl.zst", bomb))


def test_comments_of_svmlight(put):
    text = "# made by hand\r\n  # and more\n3 4 3\n0,2 0:1 3:0.5 # first\n 1:2\n# no row\n1 2:-1#last\n#"
    for content in (text, "\ufeff" + text):
        data = lt.read(put("a.svm", content))
        assert (data.X.toarray() == X).all()
        assert data.Y.toarray().tolist() == Y


def test_features_alone_are_read_like_a_model(put, tmp_path):
    model = Model(4, 3)
    data = lt.read(put("X.txt", "2 3\n0:1\n2:2\n"), like=model)
    assert (data.X.shape, data.Y.shape, data.Y.nnz) == ((2, 4), (2, 3), 0)
    assert (lt.read(tmp_path / "X.txt", like=model, format="split").X != data.X).nnz == 0
    sp.save_npz(tmp_path / "X.npz", sp.csr_array(X))
    assert lt.read(tmp_path / "X.npz", like=model).Y.shape == (3, 3)


def test_dense_arrays(tmp_path):
    np.save(tmp_path / "X.npy", np.array(X))
    np.save(tmp_path / "Y.npy", np.array(Y))
    np.save(tmp_path / "classes.npy", np.array([2, 0, 1]))
    sp.save_npz(tmp_path / "Y.npz", sp.csr_array(Y))
    for labels in ("Y.npy", "Y.npz"):
        data = lt.read(tmp_path / "X.npy", tmp_path / labels)
        assert (data.X.toarray() == X).all()
        assert data.Y.toarray().tolist() == Y
    assert lt.read(tmp_path / "X.npy", tmp_path / "classes.npy").Y.toarray().tolist() == [
        [0, 0, 1], [1, 0, 0], [0, 1, 0],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([["a"]]), "found <U1, expected an array of numbers; write it with numpy.save"),
        (np.array([{}]), "is not an array of numbers in a .npy file: Array can't be memory-mapped"),
        (np.ones(3), "found an array of shape (3,), expected rows and columns"),
        (np.array([[np.nan]]), "found NaN or infinity, expected finite numbers; replace missing values"),
    ],
)
def test_arrays_that_cannot_be_read(tmp_path, array, message):
    np.save(tmp_path / "X.npy", array)
    with pytest.raises(DataError) as error:
        lt.read(tmp_path / "X.npy", like=Model(1, 1))
    assert str(error.value).startswith(f"{tmp_path / 'X.npy'}: {message}")
    np.save(tmp_path / "X.npy", np.eye(2))
    np.save(tmp_path / "Y.npy", -np.eye(2))
    with pytest.raises(DataError, match="found a negative entry, expected zeros and ones"):
        lt.read(tmp_path / "X.npy", tmp_path / "Y.npy")
    np.save(tmp_path / "Y.npy", np.array([0.5, 1]))
    with pytest.raises(DataError, match="found a 1-d array of float64, expected whole numbers from 0"):
        lt.read(tmp_path / "X.npy", tmp_path / "Y.npy")
    (tmp_path / "X.npy").write_bytes(b"not NumPy")
    with pytest.raises(DataError, match=r"is not an array of numbers in a .npy file"):
        lt.read(tmp_path / "X.npy", like=Model(2, 2))


# --- texts -----------------------------------------------------------------------------------------------------------


def test_features_are_fitted_on_a_copy(put):
    features = TextFeatures("hashing", n_features=16).fit(["something else"])
    before = features.to_arrays()[0]["text_idf"].copy()
    data = lt.read(put("train.jsonl", TRAIN), text_features=features)
    assert data.n_features == 16
    assert data.text_features is not features
    assert (features.to_arrays()[0]["text_idf"] == before).all()


def test_one_warning_counts_unknown_labels_and_points_at_the_caller(put):
    train = lt.read(put("train.jsonl", TRAIN))
    lines = [
        {"text": "apple", "labels": ["fruit", *(f"new{i}" for i in range(7)), "new3"]},
        {"text": "", "labels": ["new3"]},
    ]
    path = put("test.jsonl", "\n".join(map(json.dumps, lines)))
    with pytest.warns(DataWarning) as seen:
        lt.read(path, like=train)
    assert [str(warning.message) for warning in seen] == [
        f"{path}: 7 unknown label(s) dropped, 9 of 10 uses: 'new3', 'new0', 'new1', 'new2', 'new4', …"
    ]
    assert seen[0].filename == __file__


def test_texts_without_labels_can_be_predicted(put):
    train = lt.read(put("train.jsonl", TRAIN))
    data = lt.read(put("new.csv", "text\nan apple\n"), like=train)
    assert data.Y.shape == (1, 3)
    assert data.Y.nnz == 0
    assert lt.read(put("empty.jsonl", ""), like=train).X.shape == (0, 4)


def test_a_model_with_numbered_labels_reads_numbers(put):
    train = lt.read(put("train.jsonl", TRAIN))
    path = put("test.jsonl", '{"text": "apple", "labels": [2, "0"]}')
    for names in (None, np.arange(3)):
        model = Model(4, 3, label_names=names, text_features=train.text_features)
        assert lt.read(path, like=model).Y.toarray().tolist() == [[1, 0, 1]]
    model = Model(4, 3, label_names=np.array([2, 5, 0]), text_features=train.text_features)
    assert lt.read(path, like=model).Y.toarray().tolist() == [[1, 0, 1]]
    assert lt.read(path, like=model).label_names.tolist() == ["2", "5", "0"]


# --- like ------------------------------------------------------------------------------------------------------------


def test_vectors_are_widened(put):
    train = lt.read(put("train.txt", XMC), label_names=["a", "b", "c"], feature_names=["e", "f", "g", "h"])
    data = lt.read(put("test.svm", "1 0:1 1:2\n"), like=train)
    assert data.X.toarray().tolist() == [[1, 2, 0, 0]]
    assert data.Y.toarray().tolist() == [[0, 1, 0]]
    assert data.label_names.tolist() == ["a", "b", "c"]
    assert data.feature_names == ["e", "f", "g", "h"]
    assert lt.read(put("test.svm", "1 0:1 1:2\n"), like=Model(9, 8)).Y.shape == (1, 8)


def test_vectors_with_more_features_are_refused_and_unknown_labels_left_out(put):
    train = lt.read(put("train.txt", XMC))
    path = put("test.svm", "1 4:1")
    with pytest.raises(DataError) as error:
        lt.read(path, like=train)
    assert str(error.value) == f"{path}: found 5 features, expected at most the 4 of the model"
    path = put("labels.svm", "1,3 0:1")
    with pytest.warns(DataWarning) as seen:
        data = lt.read(path, like=train)
    assert data.Y.toarray().tolist() == [[0, 1, 0]]
    assert [str(warning.message) for warning in seen] == [
        f"{path}: 1 labels have numbers from 3 on, unknown to the model; they are left out"
    ]


def test_vectors_are_no_texts(put):
    model = Model(7, 3, text_features=lt.TextFeatures().fit(["a b", "c d"]))
    path = put("test.svm", "1 3:1")
    with pytest.raises(DataError) as error:
        lt.read(path, like=model)
    assert str(error.value) == f"{path}: found vectors of 4 features; the model makes 7 of texts itself"


def test_labels_of_vectors_go_by_name_where_both_have_names(put):
    train = lt.read(put("train.txt", XMC), label_names=["a", "b", "c"])
    path = put("test.txt", "2 2 4\n0,2,3 0:1\n1,3 1:1\n")
    with pytest.warns(DataWarning) as seen:
        data = lt.read(path, like=train, label_names=["c", "new", "a", "other"])
    assert data.Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0]]
    assert data.Y.has_sorted_indices
    assert [str(warning.message) for warning in seen] == [
        f"{path}: 2 unknown label(s) dropped, 3 of 5 uses: 'other', 'new'"
    ]
    assert seen[0].filename == __file__
    with pytest.raises(InputError, match="label names repeat"):
        lt.read(path, like=Model(4, 2, label_names=["a", "a"]), label_names=["c", "new", "a", "other"])


def test_names_stay_where_like_has_none_and_move_where_it_has(put):
    path, names = put("train.txt", XMC), {"label_names": ["a", "b", "c"], "feature_names": ["e", "f", "g", "h"]}
    data = lt.read(path, like=Model(4, 3), **names)
    assert data.label_names.tolist() == ["a", "b", "c"]
    assert data.feature_names == ["e", "f", "g", "h"]
    wider = lt.read(path, like=Model(5, 4), **names)
    assert wider.label_names is wider.feature_names is None
    moved = lt.read(path, like=Model(4, 4, label_names=["c", "new", "b", "a"]), **names)
    assert moved.Y.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_a_saved_dataset_takes_the_columns_of_another(put, tmp_path):
    train = lt.read(put("train.jsonl", TRAIN))
    test = lt.read(put("test.jsonl", TEST))
    test.save(tmp_path / "test")
    with pytest.warns(DataWarning) as seen:
        expected, data = lt.read(tmp_path / "test.jsonl", like=train), lt.read(tmp_path / "test", like=train)
    assert len(seen) == 2
    assert (data.X != expected.X).nnz == 0
    assert (data.Y != expected.Y).nnz == 0
    assert data.text_features is train.text_features

    expected.save(tmp_path / "aligned")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = lt.read(tmp_path / "aligned", like=train)
    assert (again.X != expected.X).nnz == 0
    assert again.label_names.tolist() == train.label_names.tolist()


def test_vectors_of_other_text_features_are_refused(put, tmp_path):
    test = lt.read(put("test.jsonl", TEST))
    lt.Dataset(test.X, test.Y, text_features=test.text_features).save(tmp_path / "test")
    with pytest.raises(InputError, match="was made with other text features and holds no texts to make them again"):
        lt.read(tmp_path / "test", like=lt.read(put("train.jsonl", TRAIN)))


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_read(put, tmp_path):
    vectors, texts, empty = put("a.txt", XMC), put("a.jsonl", TRAIN), put("empty.jsonl", "\n")
    (tmp_path / "model").mkdir()
    put("model/model.json", "{}")
    like = lt.read(texts)
    cases: list[tuple[type, str, tuple, dict]] = [
        (
            InputError,
            "format must be one of dataset, xmc, split, npz, jsonl, json, csv, tsv, txt, parquet, arrow, but is 'xls'",
            (vectors,),
            {"format": "xls"},
        ),
        (
            InputError,
            f"{tmp_path / 'X.npz'} holds features only; give the file of labels, too: read(features, labels) "
            "(--labels FILE). Only with like, as for prediction, labels may be absent",
            (tmp_path / "X.npz",),
            {},
        ),
        (
            InputError,
            f"a second file was given, but {texts} (jsonl) has its labels inside; give one file",
            (texts, vectors),
            {},
        ),
        (
            InputError,
            f"text_features were given, but {vectors} was read as xmc, which holds vectors, not texts",
            (vectors,),
            {"text_features": TextFeatures()},
        ),
        (
            InputError,
            "text_features and like were both given; with like, its own text features are used",
            (texts,),
            {"text_features": TextFeatures(), "like": like},
        ),
        (
            InputError,
            "feature_names were given for texts; their features are named by the words themselves",
            (texts,),
            {"feature_names": ["a"]},
        ),
        (
            InputError,
            "label_names and like were both given for texts; with like, its own label names are used",
            (texts,),
            {"label_names": ["a"], "like": like},
        ),
        (
            InputError,
            "like must be a Dataset or a model, but is str; read or load it first",
            (texts,),
            {"like": "model"},
        ),
        (
            InputError,
            f"{texts} holds texts, but like has no text features; it was made from vectors",
            (texts,),
            {"like": Model(4, 3)},
        ),
        (DataError, f"{empty}: found no text at all", (empty,), {}),
        (
            DataError,
            f"{tmp_path}: is a folder without dataset.json; name a data file or a saved dataset",
            (tmp_path,),
            {},
        ),
        (
            DataError,
            f"{tmp_path / 'model'}: is a model, not data; open it with longtail.load",
            (tmp_path / "model",),
            {},
        ),
        (DataError, f"{tmp_path / 'no.txt'}: cannot be opened: No such file or directory", (tmp_path / "no.txt",), {}),
    ]
    for kind, message, arguments, options in cases:
        with pytest.raises(kind) as error:
            lt.read(*arguments, **options)
        assert str(error.value) == message
