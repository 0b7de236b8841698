"""Every check of what a user hands in. Returns canonical arrays or raises; kernels trust what comes from here.

Canonical X: csr_array, float32, finite, indices sorted, unique and in range; or, where that is asked for, a contiguous
float32 array. Canonical Y: csr_array of int32 ones, likewise. The user's own arrays are never changed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from longtail.errors import InputError
from longtail.matrix import canonical_csr, indicator, ones

# --- features --------------------------------------------------------------------------------------------------------


def features(X: Any, *, estimator: Any = None, reset: bool = False, keep_dense: bool = False) -> Any:
    """Canonical X. With an estimator, scikit-learn's bookkeeping of `n_features_in_` is kept (`reset`) or compared.

    With `keep_dense`, a dense array most of whose entries are not zero stays one.
    """
    if isinstance(X, list | tuple | np.ndarray) and len(X) and isinstance(X[0], str):
        raise InputError(
            "X holds texts; fit a Dataset made of them, Dataset.from_texts(texts, labels), or rows made by TextFeatures"
        )
    options: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float32, "accept_large_sparse": True}
    try:
        if sp.issparse(X):
            X = canonical_csr(X)
        with np.errstate(over="ignore"):  # 1e39 becomes infinity, which is then refused
            if estimator is None:
                X = check_array(X, **options)
            else:
                X = validate_data(estimator, X, reset=reset, **options)
    except ValueError as error:
        raise _input_error(error) from None
    if keep_dense and not sp.issparse(X) and 2 * np.count_nonzero(X) > X.size:
        return np.ascontiguousarray(X)
    return sp.csr_array(X)


def _input_error(error: ValueError) -> InputError:
    """scikit-learn's message as ours, on one line."""
    return error if isinstance(error, InputError) else InputError(" ".join(str(error).split()))


# --- labels ----------------------------------------------------------------------------------------------------------


def labels(Y: Any, n_samples: int) -> tuple[sp.csr_array, np.ndarray, bool]:
    """Canonical Y, the names of its columns, and whether each row has exactly one label (a multi-class problem).

    Y is a sparse or dense 0/1 indicator (names are then column numbers), a 1-d array of classes, or a list with one
    collection of hashable names per row.
    """
    if Y is None:
        raise InputError("fit requires y to be passed, but the target y is None; give the labels of every row")
    try:
        if sp.issparse(Y):
            Y, names = _named_by_number(indicator(Y))
        elif _is_label_lists(Y):
            Y, names = encode(Y)
        else:
            Y, names = _from_array(Y)
    except ValueError as error:
        raise _input_error(error) from None
    if Y.shape[0] != n_samples:
        raise InputError(f"Y has {Y.shape[0]} rows but X has {n_samples}; each row of Y labels one row of X")
    if Y.shape[1] == 0:
        raise InputError("Y has no labels at all; give at least one")
    multiclass = bool((np.diff(Y.indptr) == 1).all())
    return Y, names, multiclass


def _named_by_number(Y: sp.csr_array) -> tuple[sp.csr_array, np.ndarray]:
    return Y, np.arange(Y.shape[1])


def _is_label_lists(Y: Any) -> bool:
    if isinstance(Y, np.ndarray) and (Y.dtype != object or Y.ndim != 1):
        return False
    if isinstance(Y, str | bytes) or not hasattr(Y, "__len__"):
        return False
    first = next((row for row in Y if row is not None), None) if len(Y) else None
    return isinstance(first, list | tuple | set | frozenset) or (isinstance(first, np.ndarray) and first.ndim == 1)


def encode(rows: Iterable[Any], names: Sequence[Hashable] | None = None) -> tuple[sp.csr_array, np.ndarray]:
    """One collection of names per row -> indicator and sorted names (or the given ones; others are then errors)."""
    rows = [_names_of(i, row) for i, row in enumerate(rows)]
    if names is None:
        names = _sorted({name for row in rows for name in row})
    column = {name: j for j, name in enumerate(names)}
    if len(column) != len(names):
        raise InputError("label names repeat; each label has one name")
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    try:
        indices = np.fromiter((column[name] for row in rows for name in row), np.int32, count=int(indptr[-1]))
    except KeyError as error:
        raise InputError(f"label {error.args[0]!r} is not among the {len(column)} known names") from None
    Y = ones(indices, indptr, (len(rows), len(names)))
    Y.sort_indices()
    return Y, name_array(names)


def _names_of(i: int, row: Any) -> list[Hashable]:
    if not isinstance(row, list | tuple | set | frozenset | np.ndarray):
        raise InputError(
            f"row {i} of Y is {type(row).__name__} {str(row)[:40]!r}, but the first one is a list of labels; "
            "give a list for every row (an empty one for no labels)"
        )
    try:
        return list(dict.fromkeys(row.tolist() if isinstance(row, np.ndarray) else row))
    except TypeError as error:
        raise InputError(f"row {i} of Y holds a label that is not hashable ({error}); use strings or numbers") from None


def _sorted(names: set[Hashable]) -> list[Hashable]:
    try:
        return sorted(names)  # type: ignore[type-var]
    except TypeError:  # names of several types: by type, then by how they print
        return sorted(names, key=lambda name: (type(name).__name__, repr(name)))


def name_array(names: Sequence[Any]) -> np.ndarray:
    """Names as a 1-d array: integers and strings as themselves, anything else (tuples, mixtures) as objects.

    Strings, too, stay objects where NumPy's fixed width would lose a NUL at the end of a name, or much memory (one long
    name among millions of short ones).
    """
    if len(names) and all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in names):
        array = np.array(names)
        if array.dtype.kind == "i":
            return array
    elif all(isinstance(name, str) and not name.endswith("\0") for name in names):
        lengths = [len(name) for name in names]
        if max(lengths, default=0) * len(names) <= 8 * sum(lengths) + 2**20:
            return np.array(names, dtype=str)
    array = np.empty(len(names), object)
    array[:] = list(names)
    return array


def _from_array(Y: Any) -> tuple[sp.csr_array, np.ndarray]:
    Y = np.asarray(Y)
    if Y.ndim == 2 and Y.shape[1] > 1:
        return _named_by_number(indicator(check_array(Y, dtype="numeric")))
    Y = column_or_1d(Y, warn=True)
    if Y.dtype == object:
        Y = name_array(Y.tolist())
    if Y.dtype.kind == "f" and not np.isfinite(Y).all():
        raise InputError("Y contains NaN or infinity; a class is a string or a whole number")
    check_classification_targets(Y)
    names, columns = np.unique(Y, return_inverse=True)
    return ones(columns, np.arange(len(Y) + 1), (len(Y), len(names))), names


# --- parameters ------------------------------------------------------------------------------------------------------


def number(
    owner: Any, name: str, *, least: float | None = None, above: float | None = None, whole: bool = False
) -> None:
    """The parameter `name` of `owner` is a finite number within these bounds (a whole one if `whole`)."""
    value: Any = getattr(owner, name)
    kind: Any = numbers.Integral if whole else numbers.Real
    bounds = f" of at least {least}" if least is not None else f" above {above}" if above is not None else ""
    wrong = isinstance(value, bool) or not isinstance(value, kind) or not _fits(value, whole)
    if wrong or (least is not None and value < least) or (above is not None and value <= above):
        noun = "a whole number" if whole else "a number"
        raise InputError(f"The '{name}' parameter of {_owner(owner)} must be {noun}{bounds}. Got {value!r} instead.")


def _fits(value: Any, whole: bool) -> bool:
    """Whether int64 or float64 can hold the number."""
    if whole:
        return -(2**63) <= int(value) < 2**63
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def candidates(owner: Any, name: str, *, least: float | None = None, above: float | None = None) -> list[float] | None:
    """The parameter `name` of `owner`: one number or several, perhaps as text ("1,10"); None for "auto"."""
    value: Any = getattr(owner, name)
    if isinstance(value, str) and value == "auto":
        return None
    bounds = f" of at least {least}" if least is not None else f" above {above}" if above is not None else ""
    parts = value.split(",") if isinstance(value, str) else np.atleast_1d(np.asarray(value, object)).ravel().tolist()
    try:
        found = [math.nan if isinstance(part, bool | np.bool_) else float(part) for part in parts]
    except (TypeError, ValueError, OverflowError):
        found = []
    low = [(least is not None and part < least) or (above is not None and part <= above) for part in found]
    if not found or any(low) or not all(map(math.isfinite, found)):
        raise InputError(
            f"The '{name}' parameter of {_owner(owner)} must be \"auto\" or one or more numbers{bounds}. "
            f"Got {value!r} instead."
        )
    return found


def row_numbers(owner: Any, name: str, n_samples: int) -> np.ndarray:
    """The parameter `name` of `owner`, an array of row numbers, none of them twice."""
    rows = np.asarray(getattr(owner, name))
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or (rows.size and (rows.min() < 0 or rows.max() >= n_samples)):
        raise InputError(
            f"The '{name}' parameter of {_owner(owner)} must be a list of row numbers from 0 to {n_samples - 1}"
        )
    return np.unique(rows)


def per_label(owner: Any, name: str, n_labels: int) -> np.ndarray:
    """The parameter `name` of `owner`, a positive number for all labels or one for each, as an array of n_labels."""
    values = np.asarray(getattr(owner, name))
    if values.dtype.kind not in "iuf" or values.shape not in ((), (n_labels,)):
        raise InputError(
            f"The '{name}' parameter of {_owner(owner)} must be a number or an array of {n_labels} numbers. "
            f"Got {'an array of shape ' + str(values.shape) if values.ndim else repr(getattr(owner, name))} instead."
        )
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"The '{name}' parameter of {_owner(owner)} must be above 0 and finite.")
    return np.broadcast_to(values.astype(np.float64), n_labels)


def choice(owner: Any, name: str, allowed: Sequence[str]) -> None:
    """The parameter `name` of `owner` is one of these words."""
    value = getattr(owner, name)
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise InputError(f"The '{name}' parameter of {_owner(owner)} must be one of {words}. Got {value!r} instead.")


def flag(owner: Any, name: str) -> None:
    """The parameter `name` of `owner` is True or False."""
    value = getattr(owner, name)
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"The '{name}' parameter of {_owner(owner)} must be True or False. Got {value!r} instead.")


def n_jobs(owner: Any) -> None:
    """None, -1, -2, ... or a positive whole number."""
    value = owner.n_jobs
    if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Integral) or value == 0):
        raise InputError(
            f"The 'n_jobs' parameter of {_owner(owner)} must be None, a positive number of threads, or -1 for all "
            f"cores. Got {value!r} instead."
        )


def random_state(owner: Any) -> None:
    """None, a whole number from 0 to 2^32 - 1, or NumPy's RandomState."""
    value = owner.random_state
    try:
        check_random_state(value)
    except ValueError:
        raise InputError(
            f"The 'random_state' parameter of {_owner(owner)} must be None, a whole number from 0 to 2^32 - 1 or a "
            f"RandomState. Got {value!r} instead."
        ) from None


def top_k(k: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(k, bool) or not isinstance(k, numbers.Integral) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, the number of labels to return. Got {k!r} instead.")
    return int(k)


def _owner(owner: Any) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__
