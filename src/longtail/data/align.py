"""Vectors with the columns of another dataset or model."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from longtail.data.dataset import Dataset
from longtail.data.label_names import names_of, warn_unknown
from longtail.errors import DataError, DataWarning, InputError
from longtail.hybrid import widened


def align(data: Dataset, like: Any, where: str) -> Dataset:
    """`data` with the columns of `like`."""
    text_features, X = data.text_features, data.X
    wanted = getattr(like, "text_features", None)
    if wanted is not None and text_features is not None and not text_features.same_as(wanted):
        if data.texts is None:
            raise InputError(f"{where} was made with other text features and holds no texts to make them again")
        text_features, X = wanted, wanted.transform(data.texts)
    if wanted is not None and text_features is None and X.shape[1] != like.n_features:
        raise DataError(
            where, f"found vectors of {X.shape[1]} features; the model makes {like.n_features} of texts itself"
        )
    if X.shape[1] > like.n_features:
        raise DataError(where, f"found {X.shape[1]} features, expected at most the {like.n_features} of the model")
    X = widened(X, like.n_features)
    names = names_of(like)
    if names is not None and data.label_names is not None:
        Y = _by_name(data, names, where)
    else:
        Y = _by_number(data.Y, like.n_labels, where)
    label_names = None if names is None else np.array(names, dtype=object)
    if names is None and data.n_labels == Y.shape[1]:
        label_names = data.label_names
    columns = getattr(like, "feature_names", None)
    if columns is None and data.n_features == X.shape[1]:
        columns = data.feature_names
    return Dataset(X, Y, label_names, columns, text_features, data.texts)


def _by_number(Y: csr_array, n_labels: int, where: str) -> csr_array:
    """Y with its first `n_labels` columns; a DataWarning tells if labels are lost."""
    unknown = int((Y.indices >= n_labels).sum())
    if unknown:
        warnings.warn(
            f"{where}: {unknown:,} labels have numbers from {n_labels:,} on, unknown to the model; they are left out",
            DataWarning,
            stacklevel=4,
        )
        Y = csr_array(Y[:, :n_labels])
    return csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def _by_name(data: Dataset, names: list[str], where: str) -> csr_array:
    """Y with one column for each of `names`, matched by the label names of `data`."""
    own: Iterable[str] = data.label_names if data.label_names is not None else ()
    if list(own) == names:
        return data.Y
    column = {name: j for j, name in enumerate(names)}
    if len(column) != len(names):
        raise InputError("label names repeat, so that labels cannot be matched by name; give each label its own")
    target = np.array([column.get(name, -1) for name in own], np.int32)
    moved = target[data.Y.indices]
    if (moved < 0).any():
        uses = np.bincount(data.Y.indices, minlength=data.n_labels)
        unknown = {name: int(n) for name, j, n in zip(own, target, uses, strict=True) if j < 0 and n}
        warn_unknown(where, unknown, data.Y.nnz, stacklevel=5)  # the line that called read
    kept = np.concatenate([[0], np.cumsum(moved >= 0)])[data.Y.indptr]
    moved = moved[moved >= 0]
    return csr_array((np.ones(moved.size, np.int32), moved, kept), shape=(data.n_samples, len(names)))
