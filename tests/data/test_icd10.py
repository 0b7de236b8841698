"""data.icd10: the demo corpus is what it says, from the real package and from a small table."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from longtail.data import icd10
from longtail.data.text_features import TextFeatures
from longtail.errors import DataError, MissingExtra


@pytest.fixture(scope="module")
def corpus() -> icd10.IcdCorpus:
    return icd10.load()


def test_the_sizes_of_the_corpus(corpus):
    """Bounds, not equalities: each release of the package moves the figures a little."""
    train, test = len(corpus.train), len(corpus.test)
    assert 55_000 < train + test < 66_000
    assert 0.19 < test / (train + test) < 0.21
    assert 13_000 < len(corpus.titles) < 17_000
    per_text = sum(len(labels) for _, labels in corpus.train) / train
    assert 4 < per_text < 5.5


def test_no_text_of_the_test_part_is_in_the_training_part(corpus):
    train, test = ([text.casefold() for text, _ in part] for part in (corpus.train, corpus.test))
    assert len(set(train)) == len(train)
    assert len(set(test)) == len(test)
    assert not set(train) & set(test)


def test_every_label_has_training_texts_and_a_title(corpus):
    count = Counter(label for _, labels in corpus.train for label in labels)
    assert min(count.values()) == 2
    assert {label for _, labels in corpus.test for label in labels} <= set(count)
    assert set(corpus.titles) == set(count)
    assert all(corpus.titles.values())
    assert all(labels and len(set(labels)) == len(labels) for _, labels in corpus.train + corpus.test)


def test_labels_are_the_path_from_the_chapter_to_the_code(corpus):
    labels = dict(corpus.train + corpus.test)
    assert labels["Typhoid fever, unspecified"][:4] == ("1", "A00-A09", "A01", "A01.0")
    assert labels["Cholera"] == ("1", "A00-A09", "A00")
    assert corpus.titles["1"] == "Certain infectious and parasitic diseases"  # without its range of codes
    assert corpus.titles["A01.0"] == "Typhoid fever"


def test_datasets():
    train, test, titles = icd10.datasets()
    assert train.label_names.tolist() == test.label_names.tolist() == sorted(titles)
    assert test.text_features is train.text_features
    assert test.n_features == train.n_features
    summary = train.summary()
    assert (summary.unused_labels, summary.rows_without_label, summary.rows_without_feature) == (0, 0, 0)


def test_the_package_is_not_imported(corpus):
    assert corpus.train
    assert icd10.PACKAGE not in sys.modules


# --- a small table ---------------------------------------------------------------------------------------------------

TABLE = """<?xml version="1.0" encoding="utf-8"?>
<ICD10CM.tabular>
  <introduction><note>not a text</note></introduction>
  <chapter>
    <name>1</name>
    <desc>First   chapter (A00-A09)</desc>
    <includes><note>a wider term</note></includes>
    <excludes1><note>not a text either</note></excludes1>
    <section id="A00">
      <desc>Block title (A00)</desc>
      <diag>
        <name>A00</name>
        <desc>Category title</desc>
        <diag><name>A00.0</name><desc>Disease (A00)</desc>
          <inclusionTerm><note>synonym</note><note>  Other
            NAME </note><note/></inclusionTerm>
        </diag>
        <diag><name>A00.1</name><desc>other name</desc></diag>
      </diag>
    </section>
  </chapter>
</ICD10CM.tabular>
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the package, with this table in it."""

    def install(content: str | None) -> None:
        (tmp_path / "data").mkdir(exist_ok=True)
        if content is not None:
            (tmp_path / "data" / "icd10c-tabular-May-1-2031.xml").write_text(content, encoding="utf-8")
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)

    return install


def test_a_small_table(package, monkeypatch):
    package(TABLE)
    monkeypatch.setattr(icd10, "_hash", lambda text: 0 if text == "synonym" else 1)
    corpus = icd10.load()
    assert corpus.train == [
        ("First chapter", ("1",)),
        ("a wider term", ("1",)),
        ("Block title", ("1", "A00")),
        ("Category title", ("1", "A00")),
        ("Disease (A00)", ("1", "A00", "A00.0")),
        ("Other NAME", ("1", "A00", "A00.0")),  # also the title of A00.1, which has no second text
    ]
    assert corpus.test == [("synonym", ("1", "A00", "A00.0"))]
    assert corpus.titles == {"1": "First chapter", "A00": "Category title", "A00.0": "Disease (A00)"}
    train, test, _ = icd10.datasets(TextFeatures("hashing", n_features=8))
    assert train.X.shape == (6, 8)
    assert test.Y.toarray().tolist() == [[1, 1, 1]]


def test_the_part_of_a_text_depends_on_nothing_but_the_text():
    assert [icd10._hash(text) % 5 for text in ("cholera", "typhoid fever", "")] == [0, 4, 2]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, icd10.PACKAGE, None)
    with pytest.raises(MissingExtra) as error:
        icd10.load()
    assert str(error.value) == (
        "the demo corpus needs the package simple-icd-10-cm; install it with: pip install 'longtail[demo]'"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "data: found no file *tabular*.xml; install simple-icd-10-cm again, or an older release of it"),
        ("<a>\n <b></a>", ".xml, line 2, column 7: is not valid XML: mismatched tag"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', ".xml: found a document type declaration, expected plain XML"),
    ],
)
def test_a_table_that_cannot_be_read(package, content, reason):
    package(content)
    with pytest.raises(DataError) as error:
        icd10.load()
    assert str(error.value).endswith(reason)


def test_a_table_that_cannot_be_opened(package, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tabular.xml").mkdir()
    package(None)
    with pytest.raises(DataError, match=r"tabular.xml: cannot be read: "):
        icd10.load()
