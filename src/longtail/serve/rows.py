"""Converts the rows of a request to the form that the model takes. All checks of the request's content are here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.serve.batching import ROW_UNITS
from longtail.serve.limits import Limits
from longtail.serve.messages import HttpError
from longtail.serve.predictor import ServedModel
from longtail.serve.schema import SparseRow

FLOAT32_MAX = float(np.finfo(np.float32).max)


def bad(message: str, field: str | None = None) -> HttpError:
    return HttpError(400, "bad_request", message, field=field)


def check_count(count: int, limits: Limits) -> None:
    if count == 0:
        raise bad("there is no row; send at least one")
    if count > limits.max_rows:
        raise bad(f"{count:,} rows are more than {limits.max_rows:,}; send several requests, or a stream")


def check_top_k(top_k: int, limits: Limits, field: str = "$.top_k") -> int:
    if top_k > limits.max_top_k:
        raise bad(f"{field[2:]} {top_k} is more than {limits.max_top_k:,}", field)
    return top_k


def texts(given: str | list[str], model: ServedModel, limits: Limits, field: str = "$.texts") -> list[str]:
    """Check texts for a model that reads texts."""
    if not model.takes_texts:
        raise bad(f"the model {model.name} was trained on rows of numbers and cannot read texts; send rows", field)
    found = [given] if isinstance(given, str) else given
    check_count(len(found), limits)
    for i, text in enumerate(found):
        if len(text) > limits.max_text:
            raise bad(f"the text has {len(text):,} characters, more than {limits.max_text:,}", f"{field}[{i}]")
    return found


def sparse(given: Sequence[SparseRow], model: ServedModel, limits: Limits, field: str = "$.rows") -> sp.csr_array:
    """Make a canonical matrix of sparse rows, whose features may be in any order."""
    check_count(len(given), limits)
    indptr = np.zeros(len(given) + 1, np.int64)
    for i, row in enumerate(given):
        if len(row.indices) != len(row.values):
            raise bad(f"{len(row.indices):,} indices have {len(row.values):,} values", f"{field}[{i}]")
        if len(row.indices) > limits.max_features:
            raise bad(f"{len(row.indices):,} features are more than {limits.max_features:,}", f"{field}[{i}]")
        indptr[i + 1] = indptr[i] + len(row.indices)
    try:
        indices = np.fromiter((j for row in given for j in row.indices), np.int64, int(indptr[-1]))
    except OverflowError:
        raise bad(f"an index is not between 0 and {model.n_features - 1:,}", field) from None
    values = np.fromiter((v for row in given for v in row.values), np.float64, int(indptr[-1]))
    return matrix(values, indices, indptr, model, field)


def matrix(values: np.ndarray, indices: np.ndarray, indptr: np.ndarray, model: ServedModel, field: str) -> sp.csr_array:
    """Make a canonical matrix of CSR arrays whose row pointers are valid."""
    outside = (indices < 0) | (indices >= model.n_features)
    if outside.any():
        raise bad(f"index {indices[outside][0]} is not between 0 and {model.n_features - 1:,}", field)
    if not (np.abs(values) <= FLOAT32_MAX).all():
        raise bad("a value is too large, or no number", field)
    X = sp.csr_array(
        (values.astype(np.float32), indices.astype(np.int32), indptr.astype(np.int32)),
        shape=(len(indptr) - 1, model.n_features),
    )
    X.sort_indices()
    rows_of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    twice = (X.indices[1:] == X.indices[:-1]) & (rows_of[1:] == rows_of[:-1])
    if twice.any():
        raise bad(f"index {X.indices[1:][twice][0]} occurs twice in a row", field)
    X.has_canonical_format = True
    return X


def dense(given: list[list[float]], model: ServedModel, limits: Limits, field: str = "$.dense") -> sp.csr_array:
    """Make a canonical matrix of dense rows."""
    check_count(len(given), limits)
    for i, row in enumerate(given):
        if len(row) != model.n_features:
            raise bad(f"a row has {len(row):,} values; the model has {model.n_features:,} features", f"{field}[{i}]")
    return dense_array(np.array(given, np.float64), model, field)


def dense_array(array: np.ndarray, model: ServedModel, field: str) -> sp.csr_array:
    if not (np.abs(array) <= FLOAT32_MAX).all():
        raise bad("a value is too large, or no number", field)
    return sp.csr_array(array.astype(np.float32))


def columns(given: Sequence[Any], model: ServedModel, limits: Limits, field: str) -> np.ndarray:
    """Return the column numbers of labels, in increasing order."""
    if len(given) > limits.max_labels:
        raise bad(f"{len(given):,} labels are more than {limits.max_labels:,}", field)
    return np.array(sorted({column(label, model, f"{field}[{i}]") for i, label in enumerate(given)}), np.int64)


def column(label: Any, model: ServedModel, field: str) -> int:
    """Return the column number of a label."""
    try:
        return model.column(label)
    except InputError:
        raise bad(f"the model {model.name} has no label {str(label)[:80]!r}", field) from None


def units(rows: Any) -> np.ndarray:
    """Return the cost of each row, for the batching queue."""
    sizes = [len(text) for text in rows] if isinstance(rows, list) else 2 * np.diff(rows.indptr)
    return np.asarray(sizes, np.float64) + ROW_UNITS
