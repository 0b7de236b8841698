"""`read`: a data file of any known format as a Dataset.

    a folder with dataset.json       written by Dataset.save
    X.npz with labels="Y.npz"        SciPy sparse matrices, or dense NumPy arrays (.npy)
    two text files                   the split layout of the Extreme Classification Repository: features, labels
    .jsonl  .json  .csv  .tsv        texts with label names (longtail.data.text, longtail.data.table)
    .parquet  .arrow  .feather       texts with label names (longtail.data.arrow)
    .txt and like a model of texts   one text per line
    anything else, and -             one text file of the repository, or svmlight: `l1,l2 f:v f:v`

Names for vectors: files `labels.txt` and `features.txt` in the folder of the data file, with one name per line, are
used if they are UTF-8 and have exactly one line per label or feature, and otherwise ignored. Names given as an argument
must fit; otherwise they are an error.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, vstack

from longtail import folder
from longtail.data import files, npy, npz, text, xmc
from longtail.data.arrow import arrow_records
from longtail.data.files import PathLike
from longtail.data.label_names import warn_if_joined
from longtail.data.lines import Waiting, listed, quoted
from longtail.data.table import table_records
from longtail.data.text import Record, Source
from longtail.errors import DataError, DataWarning, InputError
from longtail.hybrid import HybridRows, widened

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset
    from longtail.data.text_features import TextFeatures

TEXT_FORMATS = ("jsonl", "json", "csv", "tsv", "txt", "parquet", "arrow")
FORMATS = ("dataset", "xmc", "split", "npz", *TEXT_FORMATS)
_ENDINGS = {f".{form}": form for form in ("npz", *TEXT_FORMATS) if form != "txt"}
_ENDINGS |= {".npy": "npz", ".ndjson": "jsonl", ".feather": "arrow"}
_PAIRS = ("split", "npz")
LABELS_CHECKED = 100_000  # rows whose labels are looked at for a wrong separator, where a file is not held in memory
_HEADER_OF_TWO = re.compile(rb"\s*\d+\s+\d+\s*")
_VECTOR = re.compile(rb"\s*\d+\s+\d+(\s+\d+)?\s*|[\d,]*(\s+\d+:[-+.\deE]+)+\s*")
Names = PathLike | Sequence[str] | np.ndarray | None


def read(
    path: PathLike,
    labels: PathLike | None = None,
    *,
    format: str | None = None,
    like: Any = None,
    text_features: TextFeatures | None = None,
    dense: PathLike | np.ndarray | None = None,
    label_names: Names = None,
    feature_names: Names = None,
    drop_unknown: bool = False,
    save: PathLike | None = None,
    zero_based: bool = True,
    text_field: str = "text",
    labels_field: str = "labels",
    label_separator: str = "|",
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Dataset:
    """Read a dataset; plain, gzip, xz and zstd files, and `-` for standard input.

    Parameters
    ----------
    path : the data file, or a folder that `Dataset.save` wrote.
    labels : the second file of a split or .npz pair. May be absent with `like`, for rows to predict for.
    format : "dataset", "xmc" (also svmlight), "split", "npz", "jsonl", "json", "csv", "tsv", "txt" (one text per line),
        "parquet" or "arrow"; None infers it from the path.
    like : a Dataset or model whose columns the result must have. Texts are transformed by its text features, and labels
        are matched by its names (unknown ones are dropped, with one DataWarning). Vectors with fewer columns get
        empty ones.
    text_features : how to make features of texts, fitted on this file; None is `TextFeatures()`. Not with `like`.
    dense : embeddings of the rows that were computed elsewhere: an array, or a .npy file, which is memory-mapped. They
        become further columns. Beside texts they are centred and scaled as `TextFeatures` says, and every later text
        must come with its embedding. Beside vectors they are used as they are.
    label_names, feature_names : names in column order, or a file with one per line. For texts, `label_names` fixes the
        labels and their order; by default they are all names of the file, sorted as strings.
    drop_unknown : with `label_names` for texts: whether more than a few per cent of the label uses may be dropped
        because their names are not given. Otherwise that is an error.
    save : a folder, as for `Dataset.save`. The dataset is written there and opened memory-mapped. Files of texts are
        written piece by piece, unless `like` or `label_names` are given: the memory does not grow with the file.
    zero_based : whether the numbers of an "xmc" file begin at 0.
    text_field, labels_field : fields of JSON, columns of .csv and .tsv. Several text fields, "title,abstract", are
        joined.
    label_separator : the text between two names in the column of labels.
    delimiter : the sign between two columns; None finds a comma, semicolon, tab or bar in the header.
    encoding : of texts. None is UTF-8; tables and plain texts that are not UTF-8 are read as Windows-1252, with a
        DataWarning.
    """
    from longtail.data.align import align

    form = _form(path, labels, format, like)
    where = files.name_of(path)
    if like is not None and not (hasattr(like, "n_features") and hasattr(like, "n_labels")):
        raise InputError(f"like must be a Dataset or a model, but is {type(like).__name__}; read or load it first")
    if like is not None and text_features is not None:
        raise InputError("text_features and like were both given; with like, its own text features are used")
    given = None if dense is None else _given(dense)
    if form in TEXT_FORMATS:
        if feature_names is not None:
            raise InputError("feature_names were given for texts; their features are named by the words themselves")
        source = Source(path, text_field, labels_field, encoding)
        records = _records(source, form, label_separator, delimiter)
        first = next(records, None)
        if save is not None and first is not None and like is None and label_names is None and given is None:
            return _streamed(where, first, records, text_features, source, Path(save))
        texts, names = text.collected([] if first is None else chain([first], records))
        if like is None and first is not None:
            _check_labels(where, first, names, source)
        _check_rows(dense, given, len(texts), where)
        data = _from_texts(where, (texts, names), text_features, like, label_names, drop_unknown, given)
        return data if save is None else _saved(data, save)
    if text_features is not None:
        raise InputError(f"text_features were given, but {where} was read as {form}, which holds vectors, not texts")
    data = _vectors(path, labels, form, zero_based, beside=like is None)
    if label_names is not None:
        data = replace(data, label_names=_names(label_names, data.n_labels, "labels"))
    if feature_names is not None:
        data = replace(data, feature_names=_names(feature_names, data.n_features, "features"))
    if given is not None:
        _check_rows(dense, given, data.n_samples, where)
        data = _beside_vectors(data, given, like, where)
    data = data if like is None else align(data, like, where)
    return data if save is None else _saved(data, save)


def _given(dense: PathLike | np.ndarray) -> np.ndarray:
    """The embeddings that `dense` names."""
    return npy.open_npy(dense) if isinstance(dense, str | os.PathLike) else np.asarray(dense)


def _check_rows(dense: Any, given: np.ndarray | None, n_rows: int, where: str) -> None:
    if given is not None and len(given) != n_rows:
        name = os.fspath(dense) if isinstance(dense, str | os.PathLike) else "dense"
        raise DataError(name, f"found {len(given):,} rows, expected one for each of the {n_rows:,} rows of {where}")


def _beside_vectors(data: Dataset, given: np.ndarray, like: Any, where: str) -> Dataset:
    """The dataset with the columns `given` after its own, or at the end of the columns of `like`."""
    if data.text_features is not None:
        raise InputError(f"{where} was made from texts; give their embeddings when these are read, not later")
    width = data.n_features if like is None else like.n_features - given.shape[1]
    if isinstance(data.X, HybridRows) or width < data.n_features:
        raise DataError(
            where,
            f"found {data.n_features:,} features and {given.shape[1]:,} of dense, but there are {like.n_features:,} in "
            "the training data"
            if like is not None
            else "has dense columns already",
        )
    names = data.feature_names
    names = None if names is None else [*names, *(f"dense {number}" for number in range(given.shape[1]))]
    return replace(data, X=HybridRows(widened(data.X, width), given), feature_names=names)


def _saved(data: Dataset, folder: PathLike) -> Dataset:
    """The dataset from the folder where it is saved."""
    data.save(folder)
    return type(data).open(folder)


def read_records(
    path: PathLike,
    *,
    format: str | None = None,
    text_field: str = "text",
    delimiter: str | None = None,
    encoding: str | None = None,
    waiting: Waiting | None = None,
) -> Iterator[Record] | None:
    """The texts of a file, one by one, with all fields of their rows; labels are not read. None if it holds vectors.

    `waiting` is called before every read, with how much has been read, and how much there is (None: standard input).
    """
    form = format or _guess(path, None, texts=True)
    if form not in TEXT_FORMATS:
        return None
    return _records(Source(path, text_field, None, encoding), form, "|", delimiter, waiting)


def read_rows(
    path: PathLike,
    *,
    like: Any,
    n_rows: int,
    format: str | None = None,
    labels: PathLike | None = None,
    zero_based: bool = True,
    waiting: Waiting | None = None,
) -> Iterator[csr_array] | None:
    """The features of a text file of vectors, `n_rows` at a time, with the columns of `like`. None for other formats.

    Labels are not read. `waiting` is used as in `read_records`.
    """
    from longtail.data.align import align
    from longtail.data.dataset import Dataset

    form = _form(path, labels, format, like)
    if form not in ("xmc", "split"):
        return None
    pieces = xmc.iter_features(path, split=form == "split", zero_based=zero_based, waiting=waiting)
    aligned = (align(Dataset(X, xmc.no_labels(X)), like, files.name_of(path)).X for X in pieces)
    return _blocks(aligned, n_rows)


def _blocks(pieces: Iterator[csr_array], n_rows: int) -> Iterator[csr_array]:
    """The rows of all pieces, in blocks of this size. The last one may be smaller."""
    waiting: list[csr_array] = []
    count = 0
    for piece in pieces:
        waiting.append(piece)
        count += piece.shape[0]
        if count >= n_rows:
            whole = vstack(waiting, format="csr")
            full = count - count % n_rows
            yield from (whole[start : start + n_rows] for start in range(0, full, n_rows))
            waiting, count = [whole[full:]], count - full
    if count:
        yield vstack(waiting, format="csr")


def _form(path: PathLike, labels: PathLike | None, form: str | None, like: Any) -> str:
    if form is None:
        form = _guess(path, labels, texts=getattr(like, "text_features", None) is not None)
        if form == "xmc" and like is not None and os.fspath(path) != "-" and _HEADER_OF_TWO.fullmatch(_line_1(path)):
            form = "split"  # a file of features alone
    elif form not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, but is {form!r}")
    if labels is None and form in _PAIRS and like is None:
        raise InputError(
            f"{files.name_of(path)} holds features only; give the file of labels, too: read(features, labels) "
            "(--labels FILE). Only with like, as for prediction, labels may be absent"
        )
    if labels is not None and form not in _PAIRS:
        raise InputError(
            f"a second file was given, but {files.name_of(path)} ({form}) has its labels inside; give one file"
        )
    return form


def _guess(path: PathLike, labels: PathLike | None, *, texts: bool) -> str:
    """The format by name. `texts` tells that texts are expected, so that .txt can be one text per line."""
    if folder.holds(path, folder.DATASET):
        return "dataset"
    if folder.holds(path, folder.MODEL):
        raise DataError(path, "is a model, not data; open it with longtail.load")
    if Path(path).is_dir():
        raise DataError(path, f"is a folder without {folder.DATASET.manifest}; name a data file or a saved dataset")
    if os.fspath(path) == "-":
        return "jsonl" if texts else "xmc"
    name = os.path.basename(os.fspath(path)).lower()
    ending = os.path.splitext(name.removesuffix(".gz").removesuffix(".xz").removesuffix(".zst"))[1]
    if ending == ".txt" and texts and labels is None and not _looks_like_vectors(path):
        return "txt"
    return _ENDINGS.get(ending, "xmc" if labels is None else "split")


def _looks_like_vectors(path: PathLike) -> bool:
    """Whether the first line is a header of numbers or a row `label,label feature:value`."""
    return _VECTOR.fullmatch(_line_1(path)) is not None


def _line_1(path: PathLike) -> bytes:
    return next(files.iter_lines(path), (1, b""))[1]


# --- vectors ---------------------------------------------------------------------------------------------------------


def _vectors(path: PathLike, labels: PathLike | None, form: str, zero_based: bool, beside: bool) -> Dataset:
    from longtail.data.dataset import Dataset

    if form == "dataset":
        return Dataset.open(path)
    if form == "xmc":
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


def _records(
    source: Source, form: str, label_separator: str, delimiter: str | None, waiting: Waiting | None = None
) -> Iterator[Record]:
    if form in ("json", "jsonl"):
        return text.json_records(source, waiting=waiting)
    if form in ("parquet", "arrow"):
        return arrow_records(source, form, label_separator=label_separator, waiting=waiting)
    if form == "txt":
        return text.plain_records(source, waiting=waiting)
    usual = "," if form == "csv" else "\t"
    return table_records(source, usual=usual, delimiter=delimiter, label_separator=label_separator, waiting=waiting)


def _check_labels(where: str, first: Record, labels: list[list[str]], source: Source) -> None:
    """Warn if the labels are probably in another field, or joined by another sign."""
    fields = list(first.fields)
    others = [name for name in fields if name not in (source.text_field, *text.fields_named(source.text_field))]
    if others and not any(labels) and source.labels_field not in fields:
        warnings.warn(
            f"{where}: found {listed(fields)}, but no {quoted(str(source.labels_field))}, so the texts have no labels; "
            f"name their field with labels_field (--labels-field), perhaps {quoted(others[-1])}",
            DataWarning,
            stacklevel=3,
        )
    warn_if_joined(where, labels)


def _streamed(
    where: str, first: Record, records: Iterator[Record], text_features: TextFeatures | None, source: Source, save: Path
) -> Dataset:
    """Write the dataset of these texts to the folder `save`, a few at a time, and open it."""
    from sklearn.base import clone

    from longtail.data.dataset import Dataset
    from longtail.data.stream import write_texts
    from longtail.data.text_features import TextFeatures

    folder.check_target(save, folder.DATASET)
    begin: list[list[str]] = []

    def watched() -> Iterator[Record]:
        for record in chain([first], records):
            if len(begin) < LABELS_CHECKED:
                begin.append(record.labels)
            yield record

    write_texts(watched(), clone(text_features or TextFeatures()), save)
    _check_labels(where, first, begin, source)
    return Dataset.open(save)


def _from_texts(
    where: str,
    content: text.Texts,
    text_features: TextFeatures | None,
    like: Any,
    label_names: Names,
    drop_unknown: bool,
    given: np.ndarray | None,
) -> Dataset:
    from sklearn.base import clone

    from longtail.data.dataset import Dataset

    texts, labels = content
    known = _names(label_names, None, "labels")
    if like is not None and getattr(like, "text_features", None) is None:
        raise InputError(f"{where} holds texts, but like has no text features; it was made from vectors")
    if like is not None and known is not None:
        raise InputError("label_names and like were both given for texts; with like, its own label names are used")
    if like is None and not texts:
        raise DataError(where, "found no text at all")
    text_features = None if text_features is None else clone(text_features)
    return Dataset._from_texts(where, texts, labels, text_features, known, like, drop_unknown, given)
