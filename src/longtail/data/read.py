"""`read`: a data file of any known format as a Dataset.

    a folder with dataset.json       written by Dataset.save
    X.npz with labels="Y.npz"        SciPy sparse matrices
    two text files                   the split layout of the Extreme Classification Repository: features, labels
    .jsonl  .csv  .tsv               texts with label names (longtail.data.text)
    anything else, and -             one text file of the repository, or svmlight: `l1,l2 f:v f:v`

Names for vectors: files `labels.txt` and `features.txt` in the folder of the data file, with one name per line, are
used if they are UTF-8 and have exactly one line per label or feature, and otherwise ignored. Names given as an argument
must fit; otherwise they are an error.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone

from longtail import folder
from longtail.data import files, npz, text, xmc
from longtail.data.dataset import Dataset
from longtail.data.files import PathLike
from longtail.data.text_features import TextFeatures
from longtail.errors import DataError, DataWarning, InputError

FORMATS = ("dataset", "xmc", "split", "npz", "jsonl", "csv", "tsv")
_ENDINGS = {".npz": "npz", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_PAIRS = ("split", "npz")
_TEXTS = ("jsonl", "csv", "tsv")
Names = PathLike | Sequence[str] | np.ndarray | None


def read(
    path: PathLike,
    labels: PathLike | None = None,
    *,
    format: str | None = None,
    like: Any = None,
    text_features: TextFeatures | None = None,
    label_names: Names = None,
    feature_names: Names = None,
    zero_based: bool = True,
    text_field: str = "text",
    labels_field: str = "labels",
    label_separator: str = "|",
) -> Dataset:
    """Read a dataset; plain, gzip and xz files, and `-` for standard input.

    Parameters
    ----------
    path : the data file, or a folder that `Dataset.save` wrote.
    labels : the second file of a split or .npz pair.
    format : "dataset", "xmc" (also svmlight), "split", "npz", "jsonl", "csv" or "tsv"; None infers it from the path.
    like : a Dataset or model whose columns the result must have. Texts are transformed by its text features, and labels
        are matched by its names (unknown ones are dropped, with one DataWarning). Vectors with fewer columns get
        empty ones.
    text_features : how to make features of texts, fitted on this file; None is `TextFeatures()`. Not with `like`.
    label_names, feature_names : names in column order, or a file with one per line. For texts, `label_names` fixes the
        labels and their order; by default they are all names of the file, sorted as strings.
    zero_based : whether the numbers of an "xmc" file begin at 0.
    text_field, labels_field : fields of .jsonl, columns of .csv and .tsv.
    label_separator : the text between two names in the column of labels.
    """
    form = _form(path, labels, format)
    where = files.name_of(path)
    if like is not None and not (hasattr(like, "n_features") and hasattr(like, "n_labels")):
        raise InputError(f"like must be a Dataset or a model, but is {type(like).__name__}; read or load it first")
    if like is not None and text_features is not None:
        raise InputError("text_features and like were both given; with like, its own text features are used")
    if form in _TEXTS:
        if feature_names is not None:
            raise InputError("feature_names were given for texts; their features are named by the words themselves")
        if form == "jsonl":
            texts = text.read_jsonl(path, text_field=text_field, labels_field=labels_field)
        else:
            fields = {"text_field": text_field, "labels_field": labels_field, "label_separator": label_separator}
            texts = text.read_table(path, delimiter="," if form == "csv" else "\t", **fields)
        return _from_texts(where, texts, text_features, like, label_names)
    if text_features is not None:
        raise InputError(f"text_features were given, but {where} was read as {form}, which holds vectors, not texts")
    data = _vectors(path, labels, form, zero_based, beside=like is None)
    if label_names is not None:
        data = replace(data, label_names=_names(label_names, data.n_labels, "labels"))
    if feature_names is not None:
        data = replace(data, feature_names=_names(feature_names, data.n_features, "features"))
    return data if like is None else _align(data, like, where)


def _form(path: PathLike, labels: PathLike | None, form: str | None) -> str:
    if form is None:
        form = _guess(path, labels)
    elif form not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, but is {form!r}")
    if labels is None and form in _PAIRS:
        raise InputError(
            f"{files.name_of(path)} holds features only; give the file of labels, too: read(features, labels)"
        )
    if labels is not None and form not in _PAIRS:
        raise InputError(
            f"a second file was given, but {files.name_of(path)} ({form}) has its labels inside; give one file"
        )
    return form


def _guess(path: PathLike, labels: PathLike | None) -> str:
    if folder.holds(path, folder.DATASET):
        return "dataset"
    if folder.holds(path, folder.MODEL):
        raise DataError(path, "is a model, not data; open it with longtail.load")
    if Path(path).is_dir():
        raise DataError(path, f"is a folder without {folder.DATASET.manifest}; name a data file or a saved dataset")
    name = os.path.basename(os.fspath(path)).lower()
    ending = os.path.splitext(name.removesuffix(".gz").removesuffix(".xz"))[1]
    return _ENDINGS.get(ending, "xmc" if labels is None else "split")


# --- vectors ---------------------------------------------------------------------------------------------------------


def _vectors(path: PathLike, labels: PathLike | None, form: str, zero_based: bool, beside: bool) -> Dataset:
    if form == "dataset":
        return Dataset.open(path)
    if labels is None:
        X, Y = xmc.read_xmc(path, zero_based=zero_based)
    else:
        X, Y = (xmc.read_split if form == "split" else npz.read_npz)(path, labels)
    if not beside or os.fspath(path) == "-":
        return Dataset(X, Y)
    taken = {Path(part).resolve() for part in (path, labels) if part is not None}
    label_names = _beside(Path(path).with_name("labels.txt"), Y.shape[1], taken)
    feature_names = _beside(Path(path).with_name("features.txt"), X.shape[1], taken)
    return Dataset(X, Y, label_names=_array(label_names), feature_names=feature_names)


def _beside(path: Path, wanted: int, taken: set[Path]) -> list[str] | None:
    """The names in a file in the folder of the data, if their number is right; else None."""
    if not path.is_file() or path.resolve() in taken:
        return None
    try:
        names = text.read_names(path)
    except DataError:
        return None
    return names if len(names) == wanted else None


def _names(given: Names, wanted: int | None, things: str) -> Any:
    """Names given as an argument: a sequence, or a file with one name per line."""
    if isinstance(given, str | os.PathLike):
        names = text.read_names(given)
        if wanted is not None and len(names) != wanted:
            raise DataError(
                files.name_of(given), f"found {len(names)} names, expected one line for each of {wanted} {things}"
            )
        return _array(names)
    return given


def _array(names: Sequence[str] | None) -> np.ndarray | None:
    return None if names is None else np.array(names, dtype=object)


# --- texts -----------------------------------------------------------------------------------------------------------


def _from_texts(
    where: str, content: text.Texts, text_features: TextFeatures | None, like: Any, label_names: Names
) -> Dataset:
    texts, labels = content
    known = _names(label_names, None, "labels")
    if like is not None:
        text_features = getattr(like, "text_features", None)
        if text_features is None:
            raise InputError(f"{where} holds texts, but like has no text features; it was made from vectors")
        if known is not None:
            raise InputError("label_names and like were both given for texts; with like, its own label names are used")
        known = _label_names(like) or [str(label) for label in range(like.n_labels)]
    elif not texts:
        raise DataError(where, "found no text at all")
    else:
        text_features = None if text_features is None else clone(text_features)
    if known is not None:
        known = [str(name) for name in known]
        labels = _drop_unknown(where, labels, set(known))
    return Dataset.from_texts(texts, labels, text_features=text_features, label_names=known)


def _label_names(like: Any) -> list[str] | None:
    """The label names of `like`; None if its labels are just column numbers."""
    names = getattr(like, "label_names", None)
    if names is None or (np.asarray(names).dtype.kind in "iu" and np.array_equal(names, np.arange(like.n_labels))):
        return None
    return [str(name) for name in names]


def _drop_unknown(where: str, labels: list[list[str]], known: set[str]) -> list[list[str]]:
    unknown = Counter(name for row in labels for name in row if name not in known)
    if not unknown:
        return labels
    _warn_unknown(where, unknown, sum(map(len, labels)))
    return [[name for name in row if name in known] for row in labels]


def _warn_unknown(where: str, unknown: Mapping[str, int], n_assigned: int) -> None:
    most = sorted(unknown, key=lambda name: (-unknown[name], name))
    few = ", ".join(repr(name[:40]) for name in most[:5]) + (", …" if len(most) > 5 else "")
    message = f"{where}: {len(unknown)} unknown label(s) dropped, {sum(unknown.values())} of {n_assigned} uses: {few}"
    warnings.warn(message, DataWarning, stacklevel=5)  # the line that called read


# --- like another ----------------------------------------------------------------------------------------------------


def _align(data: Dataset, like: Any, where: str) -> Dataset:
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
    X = csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], like.n_features))
    names = _label_names(like)
    if names is not None and data.label_names is not None:
        Y = _by_name(data, names, where)
    else:
        Y = _by_number(data.Y, like.n_labels, where)
    label_names = _array(names)
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
        _warn_unknown(where, unknown, data.Y.nnz)
    kept = np.concatenate([[0], np.cumsum(moved >= 0)])[data.Y.indptr]
    moved = moved[moved >= 0]
    return csr_array((np.ones(moved.size, np.int32), moved, kept), shape=(data.n_samples, len(names)))
