"""The demo corpus: the diagnoses of ICD-10-CM, from the tables inside the PyPI package `simple-icd-10-cm`.

Each description of a code, block or chapter is a text, and so is each of its inclusion terms (other names for the same
thing). The labels of a text are its code and everything above it: subcategory, category, blocks, chapter. For example,
"Typhoid meningitis" belongs to A01.01 and has the labels 1, A00-A09, A01, A01.0 and A01.01.

- Texts that differ only in capitals or spaces are merged into one text, with the labels of all of them.
- A text is in the test part if its SHA-256 (the first 8 bytes as an integer) is a multiple of 5. This is a fifth of
  the texts, and the part of a text is the same in every release.
- Labels with fewer than 2 training texts are dropped, because only their name could be learned.
- A block and its only category may share a name (B20). They are then one label with the title of the category.

The tables are published by the National Center for Health Statistics of the United States. The package itself is not
imported, because that would take seconds. Only its XML file is read, with the standard library. A file that declares
entities is refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.parsers import expat

from longtail.data.dataset import Dataset
from longtail.data.text_features import TextFeatures
from longtail.errors import DataError, MissingExtra

PACKAGE = "simple_icd_10_cm"
MIN_TRAINING_TEXTS = 2
TEST_ONE_IN = 5
_BELOW = ("section", "diag")
_TERMS = ("includes", "inclusionTerm")
_RANGE = re.compile(r"\s*\([A-Z]\d\w(-[A-Z]\d\w)?\)$")  # block and chapter titles end in their own codes

Example = tuple[str, tuple[str, ...]]  # a text, and its labels from the chapter down to the code


@dataclass(frozen=True)
class IcdCorpus:
    """The two parts of the corpus, and the title of each label."""

    train: list[Example]
    test: list[Example]
    titles: dict[str, str]


def load() -> IcdCorpus:
    """Load the corpus. It depends only on the release of the package."""
    labels_of: dict[str, dict[str, None]] = {}  # an ordered set per text
    spelling: dict[str, str] = {}
    titles: dict[str, str] = {}
    for chapter in _root(_table()).iter("chapter"):
        for label, text, path in _texts(chapter, ()):
            if label:
                titles[label] = text
            key = text.casefold()
            spelling.setdefault(key, text)
            labels_of.setdefault(key, {}).update(dict.fromkeys(path))
    in_test = {key: _hash(key) % TEST_ONE_IN == 0 for key in labels_of}
    count = Counter(label for key, labels in labels_of.items() if not in_test[key] for label in labels)
    kept = {label for label, texts in count.items() if texts >= MIN_TRAINING_TEXTS}
    train: list[Example] = []
    test: list[Example] = []
    for key, labels in labels_of.items():
        part = test if in_test[key] else train
        part.append((spelling[key], tuple(label for label in labels if label in kept)))
    return IcdCorpus(train, test, {label: title for label, title in titles.items() if label in kept})


def datasets(text_features: TextFeatures | None = None) -> tuple[Dataset, Dataset, dict[str, str]]:
    """Return (train, test, titles). `text_features` is fitted on the training texts. Label names are codes."""
    corpus = load()
    train = Dataset.from_texts(*_columns(corpus.train), text_features=text_features)
    names = None if train.label_names is None else train.label_names.tolist()
    test = Dataset.from_texts(*_columns(corpus.test), text_features=train.text_features, label_names=names)
    return train, test, corpus.titles


def _columns(examples: list[Example]) -> tuple[list[str], list[tuple[str, ...]]]:
    return [text for text, _ in examples], [labels for _, labels in examples]


def _table() -> Path:
    """Return the path of the XML file. Its name contains the date of the release."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("simple-icd-10-cm", "demo", "the demo corpus")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    found = sorted(folder.glob("*tabular*.xml"))
    if not found:
        raise DataError(
            folder, "found no file *tabular*.xml; install simple-icd-10-cm again, or an older release of it"
        )
    return found[-1]


def _root(path: Path) -> ElementTree.Element:
    try:
        content = path.read_bytes()
        if b"<!DOCTYPE" in content:  # the only way to declare entities
            raise DataError(path, "found a document type declaration, expected plain XML")
        return ElementTree.fromstring(content)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error
    except ElementTree.ParseError as error:
        line, column = error.position
        raise DataError(
            path, f"is not valid XML: {expat.ErrorString(error.code)}", line=line, column=column + 1
        ) from error


def _texts(node: ElementTree.Element, above: tuple[str, ...]) -> Iterator[tuple[str | None, str, tuple[str, ...]]]:
    """Yield, for a code and all codes below it: the label if the text is its title, the text, and all its labels."""
    label = node.get("id") or _line(node.findtext("name"))
    labels = above if label in above else (*above, label)
    title = _line(node.findtext("desc"))
    if node.tag != "diag":
        title = _RANGE.sub("", title)
    yield label, title, labels
    for child in node:
        if child.tag in _BELOW:
            yield from _texts(child, labels)
        elif child.tag in _TERMS:
            yield from ((None, term, labels) for note in child if (term := _line(note.text)))


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
