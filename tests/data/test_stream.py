"""Files of texts into dataset folders, piece by piece: the bytes of reading in memory, in bounded memory."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import numpy as np
import pytest

from longtail import folder
from longtail.data import Dataset, TextFeatures, read, terms
from longtail.data.stored_texts import StoredTexts
from longtail.errors import DataWarning, InputError, ModelError

WORDS = ["cholera", "Ärzte", "fever", "of", "the", "B", "x_1", "typhoid", "naïve", "wound"]
ROWS = [
    {"text": " ".join(random.Random(i).choices(WORDS, k=i % 9)), "labels": random.Random(-i).choices("abcdé", k=i % 4)}
    for i in range(70)
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in ("terms", "stream"):
        monkeypatch.setattr(f"longtail.data.{module}.TEXTS_AT_ONCE", 8)
    monkeypatch.setattr(terms.blocks, "__defaults__", (8,))


def written(tmp_path: Path, form: str) -> Path:
    path = tmp_path / f"rows.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    elif form == "csv":
        lines = [f"{row['text']};{'|'.join(row['labels'])}\n" for row in ROWS]
        path.write_text("text;labels\n" + "".join(lines), encoding="utf-8")
    elif form == "json":
        path.write_text(json.dumps(ROWS), encoding="utf-8")
    else:
        pa = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize("form", ["jsonl", "csv", "json", "parquet"])
def test_the_folder_has_the_bytes_of_reading_in_memory(form, tmp_path):
    path = written(tmp_path, form)
    read(path).save(tmp_path / "whole")
    data = read(path, save=tmp_path / "pieces")
    assert files(tmp_path / "pieces") == files(tmp_path / "whole")
    assert data.n_samples == len(ROWS)
    assert data.texts == [row["text"] for row in ROWS]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pieces", path.name, "whole"]


@pytest.mark.parametrize(
    "params",
    [
        {"kind": "hashing", "n_features": 64},
        {"min_df": 3, "max_features": 5, "ngram_range": (1, 2)},
        {"analyzer": "char_wb", "ngram_range": (2, 3), "norm": "l1", "use_idf": False},
    ],
)
def test_other_features(params, tmp_path):
    path = written(tmp_path, "jsonl")
    read(path, text_features=TextFeatures(**params)).save(tmp_path / "whole")
    read(path, text_features=TextFeatures(**params), save=tmp_path / "pieces")
    assert files(tmp_path / "pieces") == files(tmp_path / "whole")


def test_with_like_or_vectors_the_result_is_saved_all_the_same(tmp_path):
    path = written(tmp_path, "jsonl")
    train = read(path)
    again = read(path, like=train, save=tmp_path / "like")
    assert (again.X != train.X).nnz == 0
    vectors = tmp_path / "rows.txt"
    vectors.write_text("2 3 2\n0,1 0:1 2:0.5\n1 1:2\n", encoding="utf-8")
    assert read(vectors, save=tmp_path / "vectors").X.toarray().tolist() == [[1, 0, 0.5], [0, 2, 0]]
    assert isinstance(Dataset.open(tmp_path / "vectors").X.data, np.ndarray)


def test_nothing_is_written_if_a_line_is_wrong(tmp_path):
    path = written(tmp_path, "jsonl")
    path.write_text(path.read_text(encoding="utf-8") + '{"text": 3}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 71"):
        read(path, save=tmp_path / "folder")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_folder_with_other_files_is_refused_before_the_file_is_read(tmp_path):
    path = written(tmp_path, "jsonl")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ModelError, match="not empty"):
        read(path, save=tmp_path / "full")


def test_a_wrong_separator_is_told(tmp_path):
    path = tmp_path / "rows.csv"
    rows = "".join(f"text {i},a{i % 4};b{i % 5}\n" for i in range(30))
    path.write_text("text,labels\n" + rows, encoding="utf-8")
    with pytest.warns(DataWarning, match="label_separator"):
        read(path, save=tmp_path / "folder")


def test_no_terms_are_an_error_and_leave_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "...", "labels": ["a"]}\n', encoding="utf-8")
    with pytest.raises(InputError, match="no term is left"):
        read(path, save=tmp_path / "folder")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


# --- stored texts ----------------------------------------------------------------------------------------------------


def test_stored_texts_are_a_sequence(tmp_path):
    data = Dataset.from_texts(["one", "", "zwölf"], [["a"], ["b"], ["a"]])
    data.save(tmp_path / "data")
    texts = Dataset.open(tmp_path / "data").texts
    assert isinstance(texts, StoredTexts)
    assert texts == ["one", "", "zwölf"]
    assert texts != ["one"]
    assert (texts[-1], texts[np.int64(0)], texts[:2]) == ("zwölf", "one", ["one", ""])
    assert texts.to_list() == list(texts)
    assert "zwölf" in texts
    with pytest.raises(IndexError):
        texts[3]
    opened = Dataset.open(tmp_path / "data")
    assert opened.select([2, 0]).texts == ["zwölf", "one"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(TextFeatures().fit_transform(opened.texts).toarray(), data.X.toarray())


@pytest.mark.parametrize("damage", ["bytes", "offset"])
def test_damaged_texts_are_found_when_the_folder_is_opened(damage, tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.data.stored_texts.BYTES_AT_ONCE", 4)
    Dataset.from_texts(["one", "zwölf", "drei"], [["a"], ["b"], ["a"]]).save(tmp_path / "data")
    arrays, meta = folder.read(tmp_path / "data", folder.DATASET, mmap=False)
    changed = {name: np.array(array) for name, array in arrays.items()}
    if damage == "bytes":
        changed["texts_utf8"][4] = 255
    else:
        changed["texts_offsets"][1] = 6  # between the two bytes of ö
    folder.write(tmp_path / "data", folder.DATASET, changed, meta)
    with pytest.raises(ModelError, match="texts_utf8 is not UTF-8"):
        Dataset.open(tmp_path / "data")
