"""The Dataset class: features, labels, the names of their columns, and the text pipeline that made the features.

On disk a dataset is a folder (longtail.folder) with `dataset.json` and one file per array. It is opened by
memory-mapping, so that a big text file is parsed only once. The values of Y are all ones and are not stored.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from longtail import check, content, folder
from longtail.data.label_names import MAX_DROPPED, known_only, text_names_of
from longtail.data.split import held_out
from longtail.data.stored_texts import StoredTexts
from longtail.data.text_features import TextFeatures
from longtail.data.text_pipeline import text_list
from longtail.errors import InputError, ModelError
from longtail.hybrid import HybridRows, Rows
from longtail.matrix import MAX_COLUMNS, all_finite, canonical_csr, indicator

QUANTILES = (0, 25, 50, 75, 90, 99, 100)  # of the label frequencies, in per cent
_INDEX = ("<i4", "<i8")


@dataclass(frozen=True)
class Summary:
    """Sizes of a dataset. The frequency of a label is its number of rows."""

    n_samples: int
    n_features: int
    n_labels: int
    nnz: int
    n_assigned: int  # number of pairs of a row and one of its labels
    features_per_row: float
    labels_per_row: float
    label_frequency: dict[int, float]  # per cent -> quantile of the label frequencies
    unused_labels: int
    rows_without_label: int
    rows_without_feature: int
    memory_bytes: int

    def __str__(self) -> str:
        quantiles = "  ".join(f"{share}%: {value:,.0f}" for share, value in self.label_frequency.items())
        lines = [
            ("rows", f"{self.n_samples:,}"),
            ("features", f"{self.n_features:,}  ({self.features_per_row:.1f} per row)"),
            ("labels", f"{self.n_labels:,}  ({self.labels_per_row:.1f} per row)"),
            ("rows per label", quantiles or "no labels"),
            ("labels without row", f"{self.unused_labels:,}"),
            ("rows without label", f"{self.rows_without_label:,}"),
            ("rows without feature", f"{self.rows_without_feature:,}"),
            ("memory", f"{self.memory_bytes / 1e6:,.2f} MB"),
        ]
        return "\n".join(f"{name:<22}{value}" for name, value in lines)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Features X (n_samples, n_features), labels Y (n_samples, n_labels), and what is known about them.

    X becomes a csr_array of float32 and Y a csr_array of int32 ones, both with sorted and unique indices. X may also be
    HybridRows, which have a sparse and a dense part. Arrays that
    already have this form are shared, not copied. `label_names` are strings. `text_features` is the fitted pipeline
    that made X from `texts`; if it is given, `feature_names` come from it.
    """

    X: Rows
    Y: csr_array
    label_names: np.ndarray | None = None
    feature_names: list[str] | None = None
    text_features: TextFeatures | None = None
    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        X, Y = _feature_matrix(self.X), _label_matrix(self.Y)
        if X.shape[0] != Y.shape[0]:
            raise InputError(f"Y has {Y.shape[0]} rows but X has {X.shape[0]}; each row of Y labels one row of X")
        names = None if self.label_names is None else [str(name) for name in self.label_names]
        columns = None if self.feature_names is None else [str(name) for name in self.feature_names]
        if self.text_features is not None:
            check_is_fitted(self.text_features)
            columns = None if self.text_features.kind == "hashing" else list(self.text_features.get_feature_names_out())
            width = self.text_features.n_features_out_
            if width != X.shape[1]:
                raise InputError(f"the text features make {width} columns but X has {X.shape[1]}")
        texts = self.texts if self.texts is None or isinstance(self.texts, StoredTexts) else text_list(self.texts)
        for noun, given, wanted, things in (
            ("label names", names, Y.shape[1], "labels"),
            ("feature names", columns, X.shape[1], "features"),
            ("texts", texts, X.shape[0], "rows"),
        ):
            if given is not None and len(given) != wanted:
                raise InputError(f"{len(given)} {noun} were given for {wanted} {things}; give one for each")
        fields = {"X": X, "Y": Y, "label_names": _objects(names), "feature_names": columns, "texts": texts}
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        labels: Iterable[Iterable[str | int]],
        *,
        text_features: TextFeatures | None = None,
        label_names: Sequence[str] | None = None,
        like: Any = None,
        drop_unknown: bool = False,
        dense: np.ndarray | None = None,
    ) -> Dataset:
        """A dataset of texts and one collection of label names per text.

        Fitted `text_features` are used as they are. Otherwise a copy of them (by default of `TextFeatures()`) is fitted
        on these texts. The columns of Y follow `label_names`, by default all names in sorted order. A whole number
        counts as its decimal name.

        For test data, `like` is the Dataset or model of the training: its text features and labels are used. Labels
        that it does not know are dropped, with one DataWarning. Names beyond `label_names` are dropped in the same way
        if they are a few per cent of all uses; more are an error, unless `drop_unknown` is set.

        `dense` are embeddings of the texts that were computed elsewhere, one row per text.
        """
        if like is not None and (text_features is not None or label_names is not None):
            raise InputError("from_texts got like and text_features or label_names; with like, its own are used")
        rows = [_label_row(i, row) for i, row in enumerate(labels)]
        return cls._from_texts("labels", text_list(texts), rows, text_features, label_names, like, drop_unknown, dense)

    @classmethod
    def _from_texts(
        cls,
        where: str,
        texts: list[str],
        labels: list[list[str]],
        text_features: TextFeatures | None,
        label_names: Sequence[str] | None,
        like: Any,
        drop_unknown: bool,
        dense: np.ndarray | None = None,
    ) -> Dataset:
        """`from_texts` of checked lists; `where` names them in messages."""
        names = None if label_names is None else [str(name) for name in label_names]
        if like is not None:
            text_features, names = getattr(like, "text_features", None), text_names_of(like)
            if text_features is None:
                raise InputError("like has no text features, because it was made from vectors; it cannot take texts")
        if names is not None:
            limit = 1.0 if like is not None or drop_unknown else MAX_DROPPED
            labels = known_only(where, labels, names, limit=limit)
        if text_features is not None and text_features.__sklearn_is_fitted__():
            X = text_features.transform(texts, dense)
        else:
            text_features = clone(text_features or TextFeatures())
            X = text_features.fit_transform(texts, dense=dense)
        Y, found = check.encode(labels, names)
        return cls(X, Y, found, text_features=text_features, texts=texts)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def n_samples(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    def summary(self) -> Summary:
        """Sizes, label-frequency quantiles, empty rows and labels, memory."""
        frequency = np.bincount(self.Y.indices, minlength=self.n_labels)
        rows = max(self.n_samples, 1)
        quantiles = np.percentile(frequency, QUANTILES).tolist() if self.n_labels else []
        X, dense = _parts(self.X)
        parts = (X.data, X.indices, X.indptr, dense, self.Y.data, self.Y.indices, self.Y.indptr)
        return Summary(
            n_samples=self.n_samples,
            n_features=self.n_features,
            n_labels=self.n_labels,
            nnz=int(self.X.nnz),
            n_assigned=int(self.Y.nnz),
            features_per_row=self.X.nnz / rows,
            labels_per_row=self.Y.nnz / rows,
            label_frequency=dict(zip(QUANTILES, quantiles, strict=False)),
            unused_labels=int((frequency == 0).sum()),
            rows_without_label=int((np.diff(self.Y.indptr) == 0).sum()),
            rows_without_feature=int(((np.diff(X.indptr) == 0) & ~dense.any(axis=1)).sum()),
            memory_bytes=sum(part.nbytes for part in parts),
        )

    def describe(self) -> str:
        """The summary as aligned text."""
        return str(self.summary())

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        return f"Dataset({self.n_samples} rows, {self.n_features} features, {self.n_labels} labels)"

    def __len__(self) -> int:
        return self.n_samples

    # --- parts of it -------------------------------------------------------------------------------------------------

    def __getitem__(self, rows: Any) -> Dataset:
        """These rows as a dataset: a slice, one row number, row numbers, or one truth value per row."""
        if isinstance(rows, numbers.Integral) and not isinstance(rows, bool):
            if not -self.n_samples <= int(rows) < self.n_samples:
                raise IndexError(f"row {rows} was asked for, but there are {self.n_samples} rows")
            return self.select([int(rows)])
        return self.select(rows)

    def select(self, rows: Any) -> Dataset:
        """The dataset of some rows, given as row numbers, a slice or a boolean array. All columns and names stay."""
        everything = np.arange(self.n_samples)
        try:
            chosen = everything[rows if isinstance(rows, slice) else _row_numbers(rows)]
        except IndexError as error:
            raise InputError(f"rows cannot be selected from {self.n_samples}: {error}") from None
        texts = None if self.texts is None else [self.texts[i] for i in chosen]
        return replace(self, X=self.X[chosen], Y=self.Y[chosen], texts=texts)

    def split(
        self, test_size: float = 0.2, random_state: Any = 0, *, stratify: bool = False
    ) -> tuple[Dataset, Dataset]:
        """(train, test), as scikit-learn's train_test_split. The rows of each part keep their order.

        test_size : the share of the rows in the test part (a float between 0 and 1), or their number (an int).
        random_state : an int, or None or a RandomState to draw one. For an int, the part of a row depends only on the
            int, the row's number and the number of rows, on every machine and with every version of NumPy.
        stratify : spread the rows of rare labels over both parts, as `longtail.data.split` explains. The part of a row
            then also depends on the labels.

        Columns and text pipeline stay as they are. To fit the features on the training texts only, keep the two parts
        in two files and `read` the second one with `like` set to the first.
        """
        n_test = _test_rows(test_size, self.n_samples)
        if stratify:
            in_test = held_out(self.Y, n_test / self.n_samples, random_state)
            return self.select(~in_test), self.select(in_test)
        in_test = np.zeros(self.n_samples, bool)
        in_test[np.argsort(_row_hashes(self.n_samples, check.seed(random_state)), kind="stable")[:n_test]] = True
        return self.select(~in_test), self.select(in_test)

    def with_embedding_scale(self, scale: float) -> Dataset:
        """The dataset with embeddings of this length. Its text pipeline gives other texts the same length."""
        if self.text_features is None or not isinstance(self.X, HybridRows):
            raise InputError("this dataset has no embeddings of texts, so there is no scale to change")
        fitted = self.text_features.with_embedding_scale(scale)
        dense = self.X.dense * np.float32(scale / self.text_features.embedding_scale)
        return replace(self, X=HybridRows(self.X.sparse, dense, self.X.columns), text_features=fitted)

    # --- to disk and back --------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the dataset to a folder, replacing an old dataset there in one step."""
        X, dense = _parts(self.X)
        arrays: dict[str, np.ndarray] = {"X_data": X.data}
        if isinstance(self.X, HybridRows):
            arrays |= {"X_dense": dense, "X_dense_columns": self.X.columns}
        for name, matrix in (("X", X), ("Y", self.Y)):
            arrays[f"{name}_indices"], arrays[f"{name}_indptr"] = matrix.indices, matrix.indptr
        columns = None if self.text_features is not None else self.feature_names
        named: list[tuple[str, Any]] = [("label_names", self.label_names), ("feature_names", columns)]
        for name, strings in [*named, ("texts", self.texts)]:
            if isinstance(strings, StoredTexts):
                arrays |= {f"{name}_utf8": strings.utf8, f"{name}_offsets": strings.offsets}
            elif strings is not None:
                arrays |= {f"{name}_{part}": array for part, array in content.pack_strings(strings).items()}
        meta: dict[str, Any] = {"n_samples": self.n_samples, "n_features": self.n_features, "n_labels": self.n_labels}
        meta["text_features"] = None
        if self.text_features is not None:
            text_arrays, meta["text_features"] = self.text_features.to_arrays()
            arrays |= text_arrays
        folder.write(path, folder.DATASET, arrays, meta)

    @classmethod
    def open(cls, path: str | os.PathLike[str], mmap: bool = True) -> Dataset:
        """Read and verify the dataset in a folder. With `mmap`, X, the indices of Y and the texts stay on disk until
        they are used."""
        arrays, meta = folder.read(path, folder.DATASET, mmap=mmap)
        where = Path(path) / folder.DATASET.manifest
        keys = ("n_samples", "n_features", "n_labels", "text_features")
        if set(meta) != set(keys) or any(type(meta[key]) is not int for key in keys[:3]):
            raise ModelError(where, f"meta data must be the whole numbers {', '.join(keys[:3])} and {keys[3]}")
        n, d = meta["n_samples"], meta["n_features"]
        L = meta["n_labels"]
        if not (0 <= n < 2**62 and 0 <= d <= MAX_COLUMNS and 0 <= L <= MAX_COLUMNS):
            raise ModelError(where, f"{n} rows, {d} features and {L} labels are out of range")
        text_features = None
        if meta["text_features"] is not None:
            text_features = TextFeatures.from_arrays(arrays, meta["text_features"], where)
        try:
            return cls(
                X=_stored_rows(arrays, (n, d), where),
                Y=_stored_csr(arrays, "Y", None, (n, L), where),
                label_names=_objects(_stored_strings(arrays, "label_names", where)),
                feature_names=_stored_strings(arrays, "feature_names", where),
                text_features=text_features,
                texts=_stored_texts(arrays, where),
            )
        except InputError as error:  # each part is sound, but they do not fit together
            raise ModelError(where, str(error)) from None


def _label_row(i: int, row: Any) -> list[str]:
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        raise InputError(
            f"row {i} of labels is {type(row).__name__}, but must be a list of label names; write ['name']"
        )
    return [str(label) for label in row]


def _parts(X: Rows) -> tuple[csr_array, np.ndarray]:
    """The sparse and the dense part of X. The latter may have no columns."""
    return (X.sparse, X.dense) if isinstance(X, HybridRows) else (X, np.empty((X.shape[0], 0), np.float32))


def _feature_matrix(X: Any) -> Rows:
    if isinstance(X, HybridRows):  # checked when it was made
        return X
    X = _checked_csr(X, "X")
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinity, which is refused below
        X = X.astype(np.float32, copy=False)
    if not all_finite(X.data):
        raise InputError(
            "X contains NaN or infinity (or a value beyond float32); every feature value is a finite number"
        )
    return X


def _label_matrix(Y: Any) -> csr_array:
    return indicator(_checked_csr(Y, "Y"))


def _checked_csr(matrix: Any, name: str) -> csr_array:
    if not issparse(matrix):
        raise InputError(
            f"{name} must be a SciPy sparse matrix, but is {type(matrix).__name__}; use scipy.sparse.csr_array"
        )
    try:
        csr = canonical_csr(matrix)
    except ValueError as error:
        raise InputError(f"{name} is not a valid sparse matrix: {error}") from None
    if csr.dtype.kind not in "biuf":
        raise InputError(f"{name} holds {csr.dtype}, but numbers are needed")
    return csr


def _objects(names: Sequence[str] | None) -> np.ndarray | None:
    if names is None:
        return None
    array = np.empty(len(names), object)
    array[:] = names
    return array


def _row_numbers(rows: Any) -> np.ndarray:
    numbers_or_flags: np.ndarray = np.asarray(rows)
    if numbers_or_flags.size == 0 and numbers_or_flags.dtype.kind == "f":  # the empty list
        return numbers_or_flags.astype(np.intp)
    return numbers_or_flags


def _test_rows(test_size: Any, n_samples: int) -> int:
    """How many rows the test part has; both parts have at least one."""
    if n_samples < 2:
        raise InputError(f"{n_samples} row(s) cannot be split into train and test; at least 2 are needed")
    if isinstance(test_size, numbers.Integral) and not isinstance(test_size, bool):
        if not 1 <= int(test_size) < n_samples:
            raise InputError(
                f"test_size is {test_size} rows, but must be from 1 to {n_samples - 1}; "
                "a float, such as 0.2, is a share of the rows"
            )
        return int(test_size)
    if not isinstance(test_size, numbers.Real) or isinstance(test_size, bool) or not 0 < float(test_size) < 1:
        raise InputError(
            f"test_size must be a number of rows or lie between 0 and 1, but is {test_size!r}; "
            "0.2 keeps a fifth for the test"
        )
    return min(max(round(n_samples * float(test_size)), 1), n_samples - 1)


def _row_hashes(n_samples: int, seed: int) -> np.ndarray:
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) at position `row` of the stream that starts at `seed`."""
    z = np.arange(1, n_samples + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(seed % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _stored_rows(arrays: dict[str, np.ndarray], shape: tuple[int, int], where: Path) -> Rows:
    """X over the stored arrays, without a copy."""
    sparse = _stored_csr(arrays, "X", content.take(arrays, "X_data", "<f4", 1, where), shape, where)
    if "X_dense" not in arrays and "X_dense_columns" not in arrays:
        return sparse
    dense = content.take(arrays, "X_dense", "<f4", 2, where)
    return HybridRows(sparse, dense, content.take(arrays, "X_dense_columns", "<i8", 1, where))


def _stored_csr(
    arrays: dict[str, np.ndarray], name: str, data: np.ndarray | None, shape: tuple[int, int], where: Path
) -> csr_array:
    """A csr_array over the stored arrays, without a copy. SciPy copies unless both index arrays have the same dtype."""
    indices = content.take(arrays, f"{name}_indices", _INDEX, 1, where)
    indptr = content.take(arrays, f"{name}_indptr", indices.dtype.str, 1, where)
    content.check_csr(indptr, indices, data, shape, name, where)
    values = np.ones(indices.size, np.int32) if data is None else data
    return csr_array((values, indices, indptr), shape=shape, copy=False)


def _stored_texts(arrays: dict[str, np.ndarray], where: Path) -> StoredTexts | None:
    if "texts_utf8" not in arrays and "texts_offsets" not in arrays:
        return None
    utf8 = content.take(arrays, "texts_utf8", "|u1", 1, where)
    return StoredTexts(utf8, content.take(arrays, "texts_offsets", "<i8", 1, where)).check("texts", where)


def _stored_strings(arrays: dict[str, np.ndarray], name: str, where: Path) -> list[str] | None:
    if f"{name}_utf8" not in arrays and f"{name}_offsets" not in arrays:
        return None
    utf8 = content.take(arrays, f"{name}_utf8", "|u1", 1, where)
    offsets = content.take(arrays, f"{name}_offsets", "<i8", 1, where)
    return content.unpack_strings(utf8, offsets, name, where)
