"""Pairs of SciPy `.npz` files (`scipy.sparse.save_npz`): features in one, labels in the other.

An `.npz` is a zip of `.npy` arrays. `scipy.sparse.load_npz` trusts what it reads; here everything is checked in the order
of what it costs, before anything is allocated and before any compiled code sees an index:

1. the zip directory: known names only, none twice, none encrypted, stored or deflated; all members together unpack to at
   most MAX_RATIO times the size of the file (or RATIO_FREE bytes);
2. each array's header: a plain number type (no pickle) and a shape that fills its member exactly;
3. its bytes: as many as promised, with the right checksum;
4. what they mean: lengths that agree, `indptr` that starts at 0 and never falls, indices in range, finite values.

The formats csr, csc and coo are read. Values become float32; entries of equal row and column are added. In the labels
file an entry is a label if it is positive; zeros are no labels, as in any sparse matrix; negative entries are refused.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
import zipfile
import zlib
from typing import IO, Any

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from longtail.data.files import MAX_RATIO, RATIO_FREE, PathLike, open_regular
from longtail.data.xmc import MAX_SIZE, canonical, check_same_rows, merge, repeats_message
from longtail.errors import DataError, DataWarning

MAX_HEADER = 4096
_COMPRESSED = ("indices", "indptr", "data")
_ARRAYS = {"csr": _COMPRESSED, "csc": _COMPRESSED, "coo": ("row", "col", "data")}
_KNOWN = {"format", "shape", "_is_array", "offsets", "coords", *_COMPRESSED, "row", "col"}


def read_npz(features_path: PathLike, labels_path: PathLike) -> tuple[csr_array, csr_array]:
    """Features X (float32) and labels Y (int32 ones) from two files written by `scipy.sparse.save_npz`."""
    X, x_repeats = _read_matrix(features_path, labels=False)
    Y, y_repeats = _read_matrix(labels_path, labels=True)
    check_same_rows(X, Y, features_path, labels_path)
    for path, features, labels in ((features_path, x_repeats, 0), (labels_path, 0, y_repeats)):
        if features or labels:
            warnings.warn(repeats_message(os.fspath(path), features, labels), DataWarning, stacklevel=2)
    return X, Y
