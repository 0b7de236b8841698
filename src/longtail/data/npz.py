"""Pairs of SciPy `.npz` files (`scipy.sparse.save_npz`): features in one, labels in the other.

An `.npz` is a zip of `.npy` arrays. `scipy.sparse.load_npz` trusts what it reads. Here everything is checked before
memory is allocated and before compiled code uses an index:

1. the zip directory: no name twice, nothing encrypted, all stored or deflated; all members together unpack to at most
   MAX_RATIO times the size of the file (or RATIO_FREE bytes);
2. each array's header: a plain number type (no pickle) and a shape that fills its member exactly;
3. its bytes: the number that the header gives, with the right checksum;
4. their meaning: lengths that agree, an `indptr` that starts at 0 and never decreases, indices in range, finite values.

The formats csr, csc and coo are read. Values become float32; entries of equal row and column are added. In the labels
file a positive entry is a label, a zero is none, as in any sparse matrix, and a negative entry is refused.
"""

from __future__ import annotations

import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from typing import Any, NoReturn

import numpy as np
from scipy.sparse import csc_array, csr_array

from longtail.data.files import MAX_RATIO, RATIO_FREE, PathLike, excerpt, open_regular
from longtail.data.npy import read_npy
from longtail.data.xmc import canonical, check_same_rows, merge, no_labels, repeats_message
from longtail.errors import DataError, DataWarning
from longtail.matrix import MAX_COLUMNS, index_fault, pointer_fault

MAX_HEADER = 4096  # bytes before the numbers of an array
_COMPRESSED = ("data", "indices", "indptr")
_ARRAYS = {"csr": _COMPRESSED, "csc": _COMPRESSED, "coo": ("data", "row", "col")}
_BROKEN = (  # exceptions of zipfile and NumPy for damaged bytes
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    SyntaxError,
    RuntimeError,
    OverflowError,
)


def read_npz(features_path: PathLike, labels_path: PathLike | None) -> tuple[csr_array, csr_array]:
    """Features X (float32) and labels Y (int32 ones) from two files written by `scipy.sparse.save_npz`.

    A file that ends in .npy holds a dense array. Without a file of labels, Y has no columns.
    """
    X, x_repeats = _matrix(features_path, labels=False)
    if labels_path is None:
        labels_path = features_path
        Y = no_labels(X)
        y_repeats = 0
    else:
        Y, y_repeats = _matrix(labels_path, labels=True)
    check_same_rows(X, Y, features_path, labels_path)
    for path, features, labels in ((features_path, x_repeats, 0), (labels_path, 0, y_repeats)):
        if features or labels:
            warnings.warn(repeats_message(os.fspath(path), features, labels), DataWarning, stacklevel=2)
    return X, Y


def _matrix(path: PathLike, *, labels: bool) -> tuple[csr_array, int]:
    """The matrix of a file, and the number of rows with repeated entries."""
    if os.fspath(path).lower().endswith(".npy"):
        return read_npy(path, labels=labels), 0
    return _File(path).matrix(labels=labels)


class _File:
    """One `.npz` file: its verified arrays, then its verified matrix."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        with open_regular(path) as file:
            self.size = os.fstat(file.fileno()).st_size
            try:
                with zipfile.ZipFile(file) as archive:
                    members = self._directory(archive)
                    self.form = self._format(archive, members)
                    self.shape = self._shape(archive, members)
                    self.arrays = {name: self._array(archive, members, name) for name in _ARRAYS[self.form]}
            except _BROKEN as error:
                if isinstance(error, DataError):
                    raise
                raise DataError(
                    path, f"found a damaged file ({error}), expected one of scipy.sparse.save_npz"
                ) from error

    def _refuse(self, found: str, expected: str) -> NoReturn:
        raise DataError(self.path, f"found {found}, expected {expected}")

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _directory(self, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
        """The members by name, after checks of their names, packing and sizes."""
        members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in members:
                self._refuse(f"two members {excerpt(info.filename.encode())}", "each once")
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                self._refuse(
                    f"member {excerpt(info.filename.encode())} encrypted or packed unusually", "a deflated one"
                )
            members[name] = info
        self._check_promise("members", sum(info.file_size for info in members.values()))
        return members

    def _check_promise(self, what: str, n_bytes: int) -> None:
        """Refuse a small file that would make us allocate much memory."""
        if n_bytes > max(RATIO_FREE, MAX_RATIO * self.size):
            self._refuse(
                f"{what} of {n_bytes:,} bytes in a file of {self.size:,}", f"at most {MAX_RATIO} times as many"
            )

    def _array(
        self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str, kinds: str = "iufb"
    ) -> np.ndarray:
        """The numbers of one member, whose size must be exactly the one in its header."""
        if name not in members:
            self._refuse(f"no array {name}", f"the arrays of {getattr(self, 'form', 'a sparse matrix')}")
        stream: Any
        with archive.open(members[name]) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0)):
                self._refuse(f"array {name} in version {version}", "version 1.0 or 2.0")
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream, max_header_size=MAX_HEADER)
            if dtype.kind not in kinds or dtype.itemsize > 64 or len(shape) > 1:
                self._refuse(f"array {name} of {dtype} and shape {shape}", "a list of plain numbers")
            if math.prod(shape) * dtype.itemsize != members[name].file_size - stream.tell():
                self._refuse(f"array {name} with shape {shape}, which its size contradicts", "a shape that fits")
            array = np.empty(math.prod(shape), dtype)
            view, filled = array.view(np.uint8).data, 0
            while filled < len(view) and (n := stream.readinto(view[filled:])):
                filled += n
            if filled < len(view):
                self._refuse(f"array {name} cut off after {filled:,} bytes", f"{len(view):,}")
        return array

    def _format(self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> str:
        words = self._array(archive, members, "format", "SU").astype("U64").tolist()
        if len(words) != 1 or words[0] not in _ARRAYS:
            self._refuse(f"format {excerpt(' '.join(words).encode())}", f"one of {', '.join(_ARRAYS)}; try .tocsr()")
        return str(words[0])

    def _shape(self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> tuple[int, int]:
        sizes = self._array(archive, members, "shape", "iu").tolist()
        if len(sizes) != 2 or not all(0 <= size <= MAX_COLUMNS for size in sizes):
            self._refuse(f"shape {sizes!s:.80}", f"two whole numbers from 0 to {MAX_COLUMNS}")
        if self.form != "csr":  # no array of these formats has one entry per row, so the number of rows is unproved
            self._check_promise("rows", 4 * sizes[0])
        return sizes[0], sizes[1]

    # --- meaning -----------------------------------------------------------------------------------------------------

    def matrix(self, *, labels: bool) -> tuple[csr_array, int]:
        """The matrix, sorted and without repeated entries, and the number of rows that had repeated entries."""
        lengths, indices, values = self.to_rows(labels)
        rows = np.repeat(np.arange(lengths.size), lengths)
        data: np.ndarray | None = values
        if labels:
            rows = rows[values > 0]
            indices = indices[values > 0]
            data = None
            lengths = np.bincount(rows, minlength=lengths.size)
        n_repeats = 0
        if not ((rows[1:] != rows[:-1]) | (indices[1:] > indices[:-1])).all():
            lengths = lengths.astype(np.int32)
            indices, data, n_repeats, overflow = merge(lengths, indices, data)
            if overflow is not None:
                self._refuse("an entry repeated with values that add up to infinity", "a sum that fits float32")
        indptr = np.zeros(lengths.size + 1, np.int32 if indices.size < 2**31 else np.int64)
        np.cumsum(lengths, out=indptr[1:])
        return canonical(
            np.ones(indices.size, np.int32) if data is None else data, indices, indptr, self.shape
        ), n_repeats

    def to_rows(self, labels: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The length of each row, and the column and value of each entry, by row."""
        data = self._values(labels)
        if self.form == "coo":
            row, column = self._indices("row", self.shape[0], data), self._indices("col", self.shape[1], data)
            order = np.argsort(row, kind="stable")
            return np.bincount(row, minlength=self.shape[0]), column[order], data[order]
        n_major, n_minor = self.shape if self.form == "csr" else self.shape[::-1]
        indices, indptr = self._indices("indices", n_minor, data), self.arrays["indptr"]
        if fault := pointer_fault(indptr, n_major, data.size):
            self._refuse(f"a bad indptr ({fault})", f"{n_major + 1:,} numbers that rise from 0 to {data.size:,}")
        if self.form == "csc":
            rows = csc_array((data, indices, indptr.astype(np.int64)), shape=self.shape).tocsr()
            return np.diff(rows.indptr), rows.indices.astype(np.int32), rows.data
        return np.diff(indptr.astype(np.int64)), indices, data

    def _indices(self, name: str, size: int, data: np.ndarray) -> np.ndarray:
        array = self.arrays[name]
        if array.size != data.size:
            self._refuse(f"{array.size:,} entries in {name}", f"{data.size:,}, as in data")
        if fault := index_fault(array, size, name=name):
            self._refuse(f"unusable numbers ({fault})", f"whole numbers from 0 to {size - 1}")
        return array.astype(np.int32)

    def _values(self, labels: bool) -> np.ndarray:
        """The values as float32; of labels only the sign matters."""
        data = self.arrays["data"]
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.sign(data.astype(np.float64)).astype(np.float32) if labels else data.astype(np.float32)
        good = np.isfinite(values) & ((values >= 0) | (not labels))
        if not good.all():
            p = int(np.argmin(good))
            self._refuse(f"value {data[p]} (entry {p:,})", "0 or 1" if labels else "finite numbers that fit float32")
        return values
