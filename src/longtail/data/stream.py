"""Texts of any number into a dataset folder, in memory that does not grow with their number.

The file is read once. Terms and labels get numbers at their first use, and the counts of a few hundred texts at a time
go to temporary files. When all texts are read, the final columns are known. The counts are then read again, numbered by
column, weighted, and written. The result has the same bytes as `read(path).save(folder)`.

The memory holds the vocabulary and its numbers, the names of the labels, and one block of texts. With hashed features
there is no vocabulary.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy.sparse import csr_array

from longtail.check import name_array
from longtail.data.dataset import Dataset
from longtail.data.embeddings import DensePart
from longtail.data.stored_texts import StoredTexts
from longtail.data.terms import TEXTS_AT_ONCE, csr_rows, renumbered
from longtail.data.text import Record
from longtail.data.text_features import TextFeatures
from longtail.hybrid import HybridRows
from longtail.matrix import LARGEST_INT32, csr_view


def write_texts(records: Iterable[Record], text_features: TextFeatures, folder: Path) -> None:
    """Write the dataset of these texts and labels to a folder. The features are fitted on the texts."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch, ExitStack() as files:
        parts = _Parts(Path(scratch), files, text_features)
        for block in _blocks(records):
            parts.add(block)
        parts.dataset().save(folder)


def _blocks(records: Iterable[Record]) -> Iterator[list[Record]]:
    source = iter(records)
    while block := list(islice(source, TEXTS_AT_ONCE)):
        yield block


class _Growing:
    """An array in a file that grows at its end."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self.path, self.dtype = path, np.dtype(dtype)
        self.file: IO[bytes] = path.open("w+b")

    def append(self, array: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(array, self.dtype).data)

    def array(self) -> np.ndarray:
        """All that was appended, memory-mapped."""
        self.file.close()
        size = self.path.stat().st_size // self.dtype.itemsize
        return np.memmap(self.path, self.dtype, "r", shape=(size,)) if size else np.empty(0, self.dtype)


class _Parts:
    """What was read so far, in temporary files."""

    def __init__(self, scratch: Path, files: ExitStack, text_features: TextFeatures) -> None:
        self.scratch = scratch
        self.files = files
        self.text_features = text_features
        text_features._check_parameters()
        self.learner = text_features._learner()
        self.dense = text_features._dense_part()
        self.vectors = None if self.dense is None else self._file("vectors", np.float32)
        self.counts, self.numbers = self._file("counts", np.float32), self._file("numbers", np.int32)
        self.lengths = self._file("lengths", np.int64)
        self.labels, self.label_counts = self._file("labels", np.int32), self._file("label_counts", np.int64)
        self.utf8, self.text_sizes = self._file("utf8", np.uint8), self._file("text_sizes", np.int64)
        self.label_number: defaultdict[str, int] = defaultdict()
        self.label_number.default_factory = self.label_number.__len__

    def _file(self, name: str, dtype: Any) -> _Growing:
        file = _Growing(self.scratch / name, dtype)
        self.files.callback(file.file.close)
        return file

    def add(self, block: list[Record]) -> None:
        texts = [record.text for record in block]
        counted = self.learner.add(texts)
        if self.dense is not None and self.vectors is not None:
            self.vectors.append(self.dense.learn(self.dense.encoder.encode(texts)))
        for file, array in zip((self.counts, self.numbers, self.lengths), counted, strict=True):
            file.append(array)
        rows = [list(dict.fromkeys(record.labels)) for record in block]
        self.labels.append(np.array([self.label_number[name] for row in rows for name in row], np.int32))
        self.label_counts.append(np.array([len(row) for row in rows]))
        encoded = [record.text.encode("utf-8", "surrogatepass") for record in block]
        self.utf8.append(np.frombuffer(b"".join(encoded), np.uint8))
        self.text_sizes.append(np.array([len(each) for each in encoded]))

    def dataset(self) -> Dataset:
        """The dataset of all rows. Its arrays are memory-mapped."""
        column_of = self.text_features._finish(self.learner, self.dense)
        words, Y = self._features(column_of), self._labels()
        X = words if self.dense is None else HybridRows(words, self._dense_columns(self.dense, len(words.indptr) - 1))
        texts = StoredTexts(self.utf8.array(), _offsets(self.text_sizes.array(), np.int64))
        names = name_array(sorted(self.label_number))
        return Dataset(X, Y, names, text_features=self.text_features, texts=texts)

    def _dense_columns(self, dense: DensePart, n_texts: int) -> np.ndarray:
        """The columns of the embedding, from the vectors of all blocks."""
        assert self.vectors is not None
        vectors = self.vectors.array().reshape(n_texts, -1)
        columns = self._file("columns", np.float32)
        for start in range(0, n_texts, TEXTS_AT_ONCE):
            columns.append(dense.columns(np.array(vectors[start : start + TEXTS_AT_ONCE])))
        return columns.array().reshape(n_texts, -1)

    def _features(self, column_of: np.ndarray | None) -> csr_array:
        """The columns of words, from the counts of all blocks."""
        counts = self.counts.array()
        numbers = self.numbers.array()
        lengths = self.lengths.array()
        n_columns = self.text_features._terms.n_columns
        wide = np.int32 if len(counts) <= LARGEST_INT32 else np.int64
        data, indices, sizes = (
            self._file("data", np.float32),
            self._file("indices", wide),
            self._file("sizes", np.int64),
        )
        at = 0
        for row in range(0, len(lengths), TEXTS_AT_ONCE):
            own = np.array(lengths[row : row + TEXTS_AT_ONCE])
            span = slice(at, at + int(own.sum()))
            at = span.stop
            part = (np.array(counts[span]), np.array(numbers[span]), own)
            if column_of is not None:
                part = renumbered(part, column_of)
            rows = self.text_features._terms.weigh(csr_rows(*part, n_columns))
            data.append(rows.data)
            indices.append(rows.indices)
            sizes.append(part[2])
        indptr = _offsets(sizes.array(), wide)
        return csr_view(data.array(), indices.array(), indptr, (len(lengths), n_columns))

    def _labels(self) -> csr_array:
        """Y, with the labels sorted by name."""
        names = sorted(self.label_number)
        column_of = np.empty(len(names), np.int32)
        column_of[[self.label_number[name] for name in names]] = np.arange(len(names))
        columns = column_of[self.labels.array()]
        indptr = _offsets(self.label_counts.array(), np.int32 if len(columns) <= LARGEST_INT32 else np.int64)
        shape = (len(indptr) - 1, len(names))
        Y = csr_array((np.ones(len(columns), np.int32), columns.astype(indptr.dtype, copy=False), indptr), shape=shape)
        Y.sort_indices()
        return Y


def _offsets(sizes: np.ndarray, dtype: Any) -> np.ndarray:
    offsets = np.zeros(len(sizes) + 1, dtype)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
