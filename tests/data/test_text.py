"""data.text: JSON lines and tables; every hostile file is a DataError with its exact place."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import table as tables
from longtail.data import text
from longtail.errors import DataError, DataWarning


def jsonl(path: Path, **fields) -> text.Texts:
    return text.collected(text.json_records(text.Source(path, **fields)))


def table(path: Path, **fields) -> text.Texts:
    how = {"usual": ",", "label_separator": "|"}
    how |= {name: fields.pop(name) for name in ("usual", "delimiter", "label_separator") if name in fields}
    return text.collected(tables.table_records(text.Source(path, **fields), **how))


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- JSON lines ------------------------------------------------------------------------------------------------------


def test_json_lines(tmp_path):
    lines = (
        '{"text": "a b", "labels": ["x", 7, "-1"], "id": {"any": [1.5, null]}}\r\n'
        ' {"labels": [], "text": "\\ud83d\\ude00 ä"} \n'
        '{"text": "no labels"}\n'
        '{"text": "", "labels": null}'
    )
    expected = (["a b", "😀 ä", "no labels", ""], [["x", "7", "-1"], [], [], []])
    for content in (lines, "\ufeff" + lines, lines + "\n\n \n"):
        assert jsonl(written(tmp_path / "a.jsonl", content)) == expected


def test_other_field_names(tmp_path):
    path = written(tmp_path / "a.jsonl", '{"body": "a", "tags": ["x"], "text": 3}')
    assert jsonl(path, text_field="body", labels_field="tags") == (["a"], [["x"]])


def test_packed_files_and_standard_input(tmp_path, monkeypatch):
    line = b'{"text": "a", "labels": ["x"]}\n'
    for pack in (gzip.compress, lzma.compress):
        assert jsonl(written(tmp_path / "packed", pack(line))) == (["a"], [["x"]])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line)))
    assert jsonl("-") == (["a"], [["x"]])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line + b"7")))
    with pytest.raises(DataError) as error:
        jsonl("-")
    assert str(error.value) == "<stdin>, line 2: found a number, expected one object per line"


NAME_IT = "; name the field of the text with text_field (--text-field)"
GOOD = '{"text": "a", "labels": ["x"]}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a" "b"}', ", line 2, column 14: is not valid JSON: Expecting ',' delimiter"),
        ("{'text': 'a'}", ", line 2, column 2: is not valid JSON: Expecting property name enclosed in double quotes"),
        ('{"text": "a', ", line 2, column 10: is not valid JSON: Unterminated string starting at"),
        ('{"text": "a\tb"}', ", line 2, column 12: is not valid JSON: Invalid control character at"),
        ('{"text": "a"} {}', ", line 2, column 15: is not valid JSON: Extra data"),
        ('{"text": "ä", "x": bad}', ", line 2, column 20: is not valid JSON: Expecting value"),
        ('{"text": "\\x41"}', ", line 2, column 11: is not valid JSON: Invalid \\escape"),
        ("[1]", ", line 2: found a list, expected one object per line"),
        ("null", ", line 2: found null, expected one object per line"),
        ('"text"', ", line 2: found a string, expected one object per line"),
        ("true", ", line 2: found true, expected one object per line"),
        ('{"labels": ["x"]}', ', line 2: found "labels" in the object, expected a field "text"' + NAME_IT),
        ("{}", ', line 2: found nothing in the object, expected a field "text"' + NAME_IT),
        ('{"text": null}', ', line 2: found null in the field "text", expected a string'),
        ('{"text": 3}', ', line 2: found a number in the field "text", expected a string'),
        ('{"text": ["a"]}', ', line 2: found a list in the field "text", expected a string'),
        (
            '{"text": "a", "labels": "x"}',
            ', line 2: found a string in the field "labels", expected a list of names like ["a", "b"]',
        ),
        (
            '{"text": "a", "labels": {"x": 1}}',
            ', line 2: found an object in the field "labels", expected a list of names like ["a", "b"]',
        ),
        (
            '{"text": "a", "labels": [1.5]}',
            ', line 2: found the label a number in "labels", expected a string or a whole number',
        ),
        (
            '{"text": "a", "labels": [true]}',
            ', line 2: found the label true in "labels", expected a string or a whole number',
        ),
        (
            '{"text": "a", "labels": [null]}',
            ', line 2: found the label null in "labels", expected a string or a whole number',
        ),
        (
            '{"text": "a", "labels": [["x"]]}',
            ', line 2: found the label a list in "labels", expected a string or a whole number',
        ),
        ('{"text": "a", "labels": [""]}', ', line 2: found an empty label name in the field "labels"'),
        ('{"text": "a", "text": "b"}', ', line 2: found the field "text" twice in one object'),
        ('{"text": "a", "id": {"k": 1, "k": 2}}', ', line 2: found the field "k" twice in one object'),
        ('{"text": "a\\ud800b"}', ', line 2: found the escape \\ud800 in the field "text", which is no character'),
        (
            '{"text": "a", "labels": ["\\udfff"]}',
            ', line 2: found the escape \\udfff in the field "labels", which is no character',
        ),
        ('{"text": "a\\u0000b"}', ', line 2: found the escape \\u0000 in the field "text", which is no character'),
        ('{"\\ud800": 1}', ', line 2: found "?" in the object, expected a field "text"' + NAME_IT),
        ('{"text": "a", "id": ' + "9" * 5000 + "}", ", line 2: found a number of too many digits"),
        ('{"text": "a\0b"}', ", line 2, column 12: found a NUL byte, expected UTF-8 text"),
        ('{"text": "ä\n'.encode("latin-1"), ", line 2, column 11: found the byte 0xe4, expected UTF-8 text"),
        (b'{"text": "\xed\xa0\x80"}', ", line 2, column 11: found the byte 0xed, expected UTF-8 text"),
        ("\n" + GOOD, ", line 2: found an empty line before others; only the last lines may be empty"),
        ("\n\n \n" + GOOD, ", line 2: found an empty line before others; only the last lines may be empty"),
    ],
)
def test_hostile_json_lines(tmp_path, content, message):
    content = content.encode() if isinstance(content, str) else content
    path = written(tmp_path / "a.jsonl", GOOD.encode() + content)
    with pytest.raises(DataError) as error:
        jsonl(path)
    assert str(error.value) == f"{path}{message}"


def test_json_that_is_nested_too_deeply(tmp_path):
    for deep in ("[" * 200_000, '{"text": ' * 200_000):
        path = written(tmp_path / "a.jsonl", deep)
        with pytest.raises(DataError) as error:
            jsonl(path)
        assert str(error.value) == f"{path}, line 1: the JSON is nested too deeply"


def test_an_object_with_very_many_fields_is_read_in_linear_time(tmp_path):
    fields = ", ".join(f'"f{i}": {i}' for i in range(200_000))
    path = written(tmp_path / "a.jsonl", f'{{{fields}, "f199999": 0}}')
    with pytest.raises(DataError, match='found the field "f199999" twice'):
        jsonl(path)
    path = written(tmp_path / "a.jsonl", f"{{{fields}}}")
    with pytest.raises(DataError) as error:
        jsonl(path)
    found = ", ".join(f'"f{i}"' for i in range(8))
    assert (
        str(error.value)
        == f'{path}, line 1: found {found}, 199992 more in the object, expected a field "text"' + NAME_IT
    )


def test_utf_16_is_refused(tmp_path):
    for read, content in ((jsonl, GOOD), (table, "text,labels\n")):
        path = written(tmp_path / "a", content.encode("utf-16"))
        with pytest.raises(DataError) as error:
            read(path)
        assert (error.value.path, error.value.line, error.value.column) == (str(path), 1, 1)
        assert "UTF-16" in error.value.reason
        path = written(tmp_path / "a", content.encode("utf-16-le"))
        with pytest.raises(DataError) as error:
            read(path)
        assert str(error.value) == f"{path}, line 1, column 2: found a NUL byte, expected UTF-8 text"


def test_an_empty_file_holds_no_texts(tmp_path):
    assert jsonl(written(tmp_path / "a", "")) == ([], [])
    assert jsonl(written(tmp_path / "a", "\n\n")) == ([], [])


plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(plain_text, st.lists(plain_text.filter(bool) | st.integers(), max_size=3)), max_size=5))
def test_json_lines_written_by_anyone_are_read(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    for ascii_only in (True, False):
        lines = [json.dumps({"text": words, "labels": labels}, ensure_ascii=ascii_only) for words, labels in rows]
        path.write_bytes("\n".join(lines).encode())
        assert jsonl(path) == ([words for words, _ in rows], [[str(name) for name in labels] for _, labels in rows])


@pytest.mark.filterwarnings("ignore:.*read as Windows-1252")
@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60), st.sampled_from([jsonl, table]))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content, read):
    path = tmp_path_factory.getbasetemp() / "any.bin"
    path.write_bytes(b"text,labels\n" + content if read is table else content)
    try:
        texts, labels = read(path)
    except DataError as error:
        message = str(error)
    else:
        message = str(path)
        assert len(texts) == len(labels)
        "".join(texts + [name for row in labels for name in row]).encode()
    assert message.startswith(str(path))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_tables(tmp_path):
    content = 'id,text,labels\r\n1,"a, ""b""\nc",x|y z\r\n2,plain, x | 7 \r\n3,"",\r\n'
    expected = (['a, "b"\nc', "plain", ""], [["x", "y z"], ["x", "7"], []])
    for changed in (content, "\ufeff" + content, content + "\r\n\n"):
        assert table(written(tmp_path / "a.csv", changed)) == expected
    path = written(tmp_path / "a.tsv", 'text\tlabels\na, b\tx|y\n"a\tb"\t\n')
    assert table(path, delimiter="\t") == (["a, b", "a\tb"], [["x", "y"], []])


def test_a_table_without_labels_and_with_other_columns(tmp_path):
    assert table(written(tmp_path / "a.csv", "text\nfirst\n")) == (["first"], [[]])
    path = written(tmp_path / "a.csv", "body,tags\nfirst,a;b\n")
    assert table(path, text_field="body", labels_field="tags", label_separator=";") == (["first"], [["a", "b"]])


def test_packed_tables_and_long_fields(tmp_path):
    long = "word " * 100_000  # beyond the limit of the csv module
    before = csv.field_size_limit()
    path = written(tmp_path / "a.csv.xz", lzma.compress(f"text,labels\n{long},x\n".encode()))
    assert table(path) == ([long], [["x"]])
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ', line 1: found nothing in the header, expected a column "text"'),
        ("\ntext,labels\n", ', line 1: found nothing in the header, expected a column "text"'),
        (
            "id,body\n1,a long one\n",
            ', line 1: found the columns "id", "body" (divided at ","), expected a column "text"; '
            'name the column of the texts with text_field (--text-field), perhaps "body"',
        ),
        (
            "Nr;Text;Tags\n1;a;b\n",
            ', line 1: found the columns "Nr", "Text", "Tags" (divided at ";"), expected a column "text"; '
            'name the column of the texts with text_field (--text-field), perhaps "Text"',
        ),
        ("text,text\na,b\n", ', line 1: found the column "text" 2 times in the header'),
        ("text,labels,labels\na,b,c\n", ', line 1: found the column "labels" 2 times in the header'),
        ('text,labels\n"a\nb",x\nc\n', ", line 4: found 1 fields, expected 2 as in the header"),
        ("text,labels\na,x,y\n", ", line 2: found 3 fields, expected 2 as in the header"),
        ("text,labels\na,x\n\nb,y\n", ", line 3: found an empty line before others; only the last lines may be empty"),
        ('text,labels\na,x\n"b,y\nc,z\n', ", line 3: a quote opens in this row and never closes"),
        (
            'text,labels\n"a"b,x\n',
            ", line 2: is not a valid table: ',' expected after '\"'; inside a quoted field a quote is written \"\"",
        ),
        ("text,labels\na,x||y\n", ', line 2: found an empty label name in "x||y", which is divided at "|"'),
        ("text,labels\na\0b,x\n", ", line 2, column 2: found a NUL byte, expected UTF-8 text"),
        (b"text,labels\na\x81,x\n", ", line 2, column 2: found the byte 0x81, expected UTF-8 text"),
        (b"text,labels\n\xc3\xa4,x\n\xe4,x", ", line 3, column 1: found the byte 0xe4, expected UTF-8 text"),
        (b"text,labels\n\xc3\xa4\xc3\xa4\xe4,x\n", ", line 2, column 3: found the byte 0xe4, expected UTF-8 text"),
    ],
)
def test_hostile_tables(tmp_path, content, message):
    path = written(tmp_path / "a.csv", content)
    before = csv.field_size_limit()
    with pytest.raises(DataError) as error:
        table(path)
    assert str(error.value) == f"{path}{message}"
    assert csv.field_size_limit() == before


def test_a_wrong_delimiter_is_told_the_right_one(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("text;labels\na;b\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        table(path, delimiter=",")
    assert str(caught.value).endswith(
        'found the column "text;labels" (divided at ","), expected a column "text"; the columns are perhaps divided at '
        '";": set delimiter (--delimiter) to it'
    )


def test_a_forgotten_quote_does_not_swallow_a_big_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_FIELD_CHARACTERS", 1000)
    path = written(tmp_path / "a.csv", 'text,labels\na,x\n"b,y\n' + "c,z\n" * 1000)
    with pytest.raises(DataError) as error:
        table(path)
    assert str(error.value) == f"{path}, line 3: a field has more than 1,000 characters; is the closing quote missing?"


def test_a_lone_carriage_return_ends_no_row(tmp_path):
    path = written(tmp_path / "a.csv", "text,labels\na\rb,x\n")
    with pytest.raises(DataError, match="line 2: is not a valid table: new-line character seen in unquoted field"):
        table(path)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(plain_text, st.lists(st.sampled_from(["a", "b c", "ä,"]), max_size=3)), max_size=5))
def test_tables_written_by_the_csv_module_are_read(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    rows = [(" ".join(words.split()), labels) for words, labels in rows]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "labels"])
        writer.writerows((words, "|".join(labels)) for words, labels in rows)
    assert table(path) == ([words for words, _ in rows], [labels for _, labels in rows])


@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
@pytest.mark.parametrize("usual", [",", "\t"])
def test_the_sign_between_columns_is_found(tmp_path, sign, usual):
    path = written(tmp_path / "a.csv", "\ufeffid,text,labels\r\n1,a; b,x\r\n".replace(",", sign).replace("; b", " b"))
    assert table(path, usual=usual) == (["a b"], [["x"]])


def test_a_given_sign_and_one_named_in_the_first_line(tmp_path):
    assert table(written(tmp_path / "a.csv", 'sep=;\ntext;labels\n"a;b";x|y\n')) == (["a;b"], [["x", "y"]])
    assert table(written(tmp_path / "a.csv", "text#labels\na,b#x\n"), delimiter="#") == (["a,b"], [["x"]])
    with pytest.raises(ValueError, match="delimiter must be one character"):
        table(tmp_path / "a.csv", delimiter="ab")


def test_windows_1252_is_read_with_a_warning(tmp_path):
    path = written(tmp_path / "a.csv", "text;labels\nGrün für 5 €;Öl\n".encode("cp1252"))
    with pytest.warns(DataWarning, match=r"a.csv, line 2: is not UTF-8; read as Windows-1252 .*--encoding"):
        assert table(path) == (["Grün für 5 €"], [["Öl"]])
    assert table(path, encoding="cp1252") == (["Grün für 5 €"], [["Öl"]])
    with pytest.raises(DataError, match="line 2, column 3: found the byte 0xfc, expected UTF-8 text"):
        table(path, encoding="utf-8")
    with pytest.raises(ValueError, match="encoding 'cp9999' is not known"):
        table(path, encoding="cp9999")
    with pytest.raises(ValueError, match="convert the file to UTF-8"):
        table(path, encoding="utf-16")


def test_several_columns_are_joined(tmp_path):
    path = written(tmp_path / "a.csv", "title;abstract;labels\na;b;x\n")
    assert table(path, text_field="title,abstract") == (["a\nb"], [["x"]])
    with pytest.raises(DataError, match=r'expected a column "body"; .*, perhaps'):
        table(path, text_field="title,body")
    path = written(tmp_path / "a.jsonl", '{"title": "a", "abstract": "b"}\n')
    assert jsonl(path, text_field="title, abstract") == (["a\nb"], [[]])


# --- arrays and plain texts ------------------------------------------------------------------------------------------


def test_a_json_array(tmp_path):
    content = '[\n {"text": "a",\n  "labels": ["x"]},\n "b"\n]\n'
    assert jsonl(written(tmp_path / "a.json", content)) == (["a", "b"], [["x"], []])
    assert jsonl(written(tmp_path / "a.json", "[]")) == ([], [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "a"},\n {"text": }]', ", line 2, column 11: is not valid JSON: Expecting value"),
        ('[{"text": "a"}, 7]', ": entry 2 of the array: found a number, expected an object or a text"),
        ('["\\u0000"]', ': entry 1 of the array: found the escape \\u0000 in the field "text", which is no character'),
    ],
)
def test_hostile_arrays(tmp_path, content, message):
    path = written(tmp_path / "a.json", content)
    with pytest.raises(DataError) as error:
        jsonl(path)
    assert str(error.value) == f"{path}{message}"


def test_plain_texts(tmp_path):
    source = text.Source(written(tmp_path / "a.txt", "first one\r\n\nthird"))
    assert text.collected(text.plain_records(source)) == (["first one", "", "third"], [[], [], []])


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_are_lines(tmp_path):
    assert text.read_names(written(tmp_path / "labels.txt", "\ufeffa b\r\n\nä")) == ["a b", "", "ä"]
