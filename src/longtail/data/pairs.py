"""Pairs of a row and a label that predictions must leave out.

In several datasets of the Extreme Classification Repository (LF-…), labels are documents, too, and a document must not
be predicted for itself. `filter_labels_test.txt` and `filter_labels_train.txt` list such pairs: `row label` per line,
counted from 0. Published scores leave them out.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from longtail.data import files
from longtail.data.files import PathLike, excerpt
from longtail.errors import DataError
from longtail.matrix import canonical_csr, indicator


def read_pairs(path: PathLike, shape: tuple[int, int]) -> csr_array:
    """The pairs as an indicator of this shape, rows by labels."""
    found: list[tuple[int, int]] = []
    for number, line in files.iter_lines(path):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not all(word.isdigit() and len(word) < 19 for word in words):
            raise DataError(
                files.name_of(path), f"found {excerpt(line)}, expected a row and a label number", line=number
            )
        row, label = map(int, words)
        if row >= shape[0] or label >= shape[1]:
            reason = f"found row {row} and label {label}, expected less than {shape[0]} rows and {shape[1]} labels"
            raise DataError(files.name_of(path), reason, line=number)
        found.append((row, label))
    rows, labels = np.array(found, np.int64).reshape(-1, 2).T
    return indicator(canonical_csr(csr_array((np.ones(len(found), np.int32), (rows, labels)), shape=shape)))
