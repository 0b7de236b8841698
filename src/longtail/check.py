"""Checks of everything a user passes in. Each check returns the canonical form or raises InputError.

Canonical X is a csr_array of finite float32 numbers with sorted, unique indices; or rows with a sparse and a dense part
(longtail.hybrid); or, for methods that take it, a C-contiguous float32 array. Canonical Y is a csr_array of int32 ones,
with indices of the same kind. Kernels trust both. The user's own arrays are never changed. pandas, polars and pyarrow
objects are recognised by their methods, so none of these packages is needed. scikit-learn is imported where it is used,
because a prediction does not need it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError
from longtail.hybrid import MIN_DENSE_COLUMNS, HybridRows, split
from longtail.matrix import canonical_csr, indicator, needs_no_conversion, ones

RANDOM_STATES = "None, a whole number from 0 to 2^32 - 1 or a RandomState"

# --- X ---------------------------------------------------------------------------------------------------------------


def feature_matrix(
    X: Any, *, estimator: Any = None, reset: bool = False, keep_dense: bool = False, find_dense: bool = False
) -> sp.csr_array | HybridRows | np.ndarray:
    """Canonical X from a SciPy matrix of any format, HybridRows, a NumPy array, nested lists, or a DataFrame of pandas
    or polars.

    With an estimator, scikit-learn's rules apply: `reset` sets its `n_features_in_` and, for a DataFrame with string
    columns, its `feature_names_in_`; otherwise X is compared with them. With `keep_dense`, a dense X with more nonzeros
    than zeros stays dense. With `find_dense`, columns that most rows use become a dense part.
    """
    if isinstance(X, HybridRows):  # checked when it was made
        feature_matrix(X.sparse, estimator=estimator, reset=reset)
        return X
    if not (reset or find_dense) and needs_no_conversion(X, estimator):
        X = canonical_csr(X)
        if np.isfinite(X.data).all():
            return X
    if texts(X) is not None:
        raise InputError(
            "X holds texts; fit a Dataset made of them, Dataset.from_texts(texts, labels), or rows made by TextFeatures"
        )
    from sklearn.utils.validation import check_array, validate_data

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
    if (keep_dense or find_dense) and not sp.issparse(X) and 2 * np.count_nonzero(X) > X.size:
        if keep_dense:
            return np.ascontiguousarray(X)
        if X.shape[1] >= MIN_DENSE_COLUMNS:
            return HybridRows(sp.csr_array((len(X), 0), dtype=np.float32), X)
    return split(sp.csr_array(X)) if find_dense else sp.csr_array(X)


def texts(X: Any) -> list[str] | None:
    """The texts of X as a list, or None if X does not hold texts.

    X is a list, tuple, 1-d NumPy array, pandas or polars Series, pyarrow array, or a table with a single column. If any
    entry is a string, all must be: InputError names the first row that is missing or of another type.
    """
    if isinstance(X, str | bytes):
        raise InputError(f"one text was passed where several are expected; pass a list of texts: [{X[:40]!r}]")
    values = _single_column(X)
    if values is None or not any(isinstance(value, str) for value in values):
        return None
    for row, value in enumerate(values):
        if isinstance(value, str):
            continue
        if _is_missing(value):
            raise InputError(f"text {row} is missing ({value!r}); put '' where there is no text, or drop the row")
        raise InputError(
            f"text {row} is {type(value).__name__} {str(value)[:40]!r}, not str, but other rows are texts; convert it"
        )
    return values


def _single_column(X: Any) -> list[Any] | None:
    """The entries of a list, of a 1-d array or Series, or of the only column of a table; None for anything else."""
    if isinstance(X, list | tuple):
        return list(X)
    if _is_table(X):
        return _entries(X[X.columns[0]]) if X.shape[1] == 1 else None
    if isinstance(X, np.ndarray):
        if X.dtype.kind not in "OUT" or not (X.ndim == 1 or (X.ndim == 2 and X.shape[1] == 1)):  # T: StringDType
            return None
        return list(X.ravel().tolist())
    return _entries(X) if len(getattr(X, "shape", (0,))) == 1 else None


def _is_table(X: Any) -> bool:
    """Whether X is a DataFrame of pandas or polars."""
    return hasattr(X, "columns") and hasattr(X, "dtypes") and len(getattr(X, "shape", ())) == 2


def _entries(series: Any) -> list[Any] | None:
    """The entries of a pandas or polars Series or of a pyarrow array; None for anything else."""
    for method in ("to_list", "to_pylist"):
        if hasattr(series, method):
            return list(getattr(series, method)())
    return None


def _is_missing(value: Any) -> bool:
    """Whether the value stands for a missing one: None, NaN, pandas' NA or NaT."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _input_error(error: ValueError) -> InputError:
    """scikit-learn's message as an InputError, on one line."""
    if isinstance(error, InputError):
        return error
    message = " ".join(str(error).split())
    if message.endswith("features as input."):
        message = f"{message[:-1]}; make it with the columns of the training data: read(path, like=model), or texts"
    return InputError(message)


# --- Y ---------------------------------------------------------------------------------------------------------------


def label_matrix(Y: Any, n_samples: int) -> tuple[sp.csr_array, np.ndarray, bool]:
    """Canonical Y, the names of its columns, and `multiclass`: whether Y was 1-d, so that a row has one class.

    Y has one of three forms:

    - an indicator of zeros and ones, (n_samples, n_labels): a SciPy matrix, an array, or a DataFrame. The names are the
      DataFrame's columns if all are strings, and otherwise column numbers;
    - one collection of label names per row: a list or Series of lists, tuples, sets or arrays;
    - one class per row: a list, 1-d array or Series. This is the only form with `multiclass`. Other forms are
      multi-label even if each row has one label.
    """
    from sklearn.utils.validation import check_array

    if Y is None:
        raise InputError("fit requires y to be passed, but the target y is None; give the labels of every row")
    multiclass = False
    try:
        if sp.issparse(Y):
            Y = indicator(Y)
            names = np.arange(Y.shape[1])
        elif _is_table(Y) and Y.shape[1] != 1:
            columns = list(Y.columns)
            Y = indicator(check_array(Y, dtype="numeric"))
            names = name_array(columns) if all(isinstance(name, str) for name in columns) else np.arange(Y.shape[1])
        else:
            if not isinstance(Y, np.ndarray) and not _is_table(Y):
                entries = _entries(Y)
                Y = Y if entries is None else entries
            if _is_label_lists(Y):
                Y, names = encode(Y)
            else:
                Y, names, multiclass = _from_array(Y)
    except ValueError as error:
        raise _input_error(error) from None
    if Y.shape[0] != n_samples:
        raise InputError(f"Y has {Y.shape[0]} rows but X has {n_samples}; each row of Y labels one row of X")
    if Y.shape[1] == 0:
        raise InputError("Y has no labels at all; give at least one")
    return Y, names, multiclass


def _is_label_lists(Y: Any) -> bool:
    if isinstance(Y, np.ndarray) and (Y.dtype != object or Y.ndim != 1):
        return False
    if isinstance(Y, str | bytes) or not hasattr(Y, "__len__"):
        return False
    first = next((row for row in Y if row is not None), None) if len(Y) else None
    return isinstance(first, list | tuple | set | frozenset) or (isinstance(first, np.ndarray) and first.ndim == 1)


def encode(rows: Iterable[Any], names: Sequence[Hashable] | None = None) -> tuple[sp.csr_array, np.ndarray]:
    """The indicator of one collection of names per row, and the names of its columns.

    The columns are `names` in this order, and any other name raises InputError. By default they are all names, sorted.
    """
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
    """The distinct names of one row."""
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
    except TypeError:  # names of several types are sorted by type, then by their text
        return sorted(names, key=lambda name: (type(name).__name__, repr(name)))


def name_array(names: Sequence[Any]) -> np.ndarray:
    """Return names as a 1-d array. Integers and strings get arrays of their own type, anything else an object array.

    Strings become an object array if NumPy's fixed width would lose a NUL at the end of a name, or waste much memory
    (one long name among millions of short ones).
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


def _from_array(Y: Any) -> tuple[sp.csr_array, np.ndarray, bool]:
    """Read Y as a dense indicator or as classes. The last return value is True for classes."""
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, column_or_1d

    if isinstance(Y, list | tuple):
        _refuse_missing(Y)  # NumPy would turn a missing class among strings into the string "nan" or "None"
    Y = np.asarray(Y)
    if Y.ndim == 2 and Y.shape[1] > 1:
        Y = indicator(check_array(Y, dtype="numeric"))
        return Y, np.arange(Y.shape[1]), False
    Y = column_or_1d(Y, warn=True)
    if Y.dtype == object:
        _refuse_missing(Y)
        Y = name_array(Y.tolist())
    if Y.dtype.kind == "f" and not np.isfinite(Y).all():
        raise InputError("Y contains NaN or infinity; a class is a string or a whole number")
    check_classification_targets(Y)
    names, columns = np.unique(Y, return_inverse=True)
    return ones(columns, np.arange(len(Y) + 1), (len(Y), len(names))), names, True


def _refuse_missing(classes: Sequence[Any] | np.ndarray) -> None:
    row = next((i for i, value in enumerate(classes) if _is_missing(value)), None)
    if row is not None:
        raise InputError(f"row {row} of Y has no class ({classes[row]!r}); give it one, or drop the row")


# --- parameters ------------------------------------------------------------------------------------------------------


def number(
    owner: Any, name: str, *, least: float | None = None, above: float | None = None, whole: bool = False
) -> None:
    """The parameter `name` of `owner` must be a finite number within these bounds (an integer if `whole`)."""
    value: Any = getattr(owner, name)
    kind: Any = numbers.Integral if whole else numbers.Real
    wrong = isinstance(value, bool) or not isinstance(value, kind) or not _fits(value, whole)
    if wrong or not _within(value, least, above):
        noun = "a whole number" if whole else "a number"
        raise _parameter_error(owner, name, f"{noun}{_bounds(least, above)}")


def fraction(owner: Any, name: str) -> None:
    """The parameter `name` of `owner` must be a number above 0 and below 1."""
    value: Any = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise _parameter_error(owner, name, "a number above 0 and below 1")


def candidates(owner: Any, name: str, *, least: float | None = None, above: float | None = None) -> list[float] | None:
    """The values of a parameter to choose from: one number or several, or a text such as "1,10". None for "auto"."""
    value: Any = getattr(owner, name)
    if isinstance(value, str) and value == "auto":
        return None
    parts = value.split(",") if isinstance(value, str) else np.atleast_1d(np.asarray(value, object)).ravel().tolist()
    try:
        found = [math.nan if isinstance(part, bool | np.bool_) else float(part) for part in parts]
    except (TypeError, ValueError, OverflowError):
        found = []
    if not found or not all(math.isfinite(part) and _within(part, least, above) for part in found):
        raise _parameter_error(owner, name, f'"auto" or one or more numbers{_bounds(least, above)}')
    return found


def positive_numbers(owner: Any, name: str) -> np.ndarray:
    """The parameter `name` of `owner`, a positive number or a 1-d array of them, as float64. Needs no data."""
    value: Any = getattr(owner, name)
    try:
        values = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        values = np.empty((0, 0))
    if values.dtype.kind not in "iuf" or values.ndim > 1 or not values.size:
        raise _parameter_error(owner, name, "a number above 0, 'auto', or an array with one such number per label")
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError(
            f"The '{name}' parameter of {type(owner).__name__} must be above 0 and finite. Got {value!r} instead."
        )
    return values.astype(np.float64)


def per_label(owner: Any, name: str, n_labels: int) -> np.ndarray:
    """The parameter that `positive_numbers` accepted, as an array of `n_labels` numbers."""
    values = positive_numbers(owner, name)
    if values.shape not in ((), (n_labels,)):
        expected = f"a number or an array of {n_labels} numbers, one per label"
        raise _parameter_error(owner, name, expected, f"an array of shape {values.shape}")
    return np.broadcast_to(values, n_labels)


def choice(owner: Any, name: str, allowed: Sequence[str]) -> None:
    """The parameter `name` of `owner` must be one of these words."""
    value = getattr(owner, name)
    if not isinstance(value, str) or value not in allowed:
        raise _parameter_error(owner, name, f"one of {', '.join(repr(word) for word in allowed)}")


def flag(owner: Any, name: str) -> None:
    """The parameter `name` of `owner` must be True or False."""
    if not isinstance(getattr(owner, name), bool | np.bool_):
        raise _parameter_error(owner, name, "True or False")


def shard_size(size: Any) -> None:
    """Raise InputError if a number of bytes per shard is invalid."""
    if size is not None and (not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1):
        raise InputError(f"shard_size is a number of bytes, such as 512 * 1024**2; got {size!r}")


def n_jobs(owner: Any) -> None:
    """The parameter `n_jobs` must be None, a positive integer, or a negative one as in joblib."""
    value = owner.n_jobs
    if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Integral) or value == 0):
        raise _parameter_error(owner, "n_jobs", "None, a positive number of threads, or -1 for all cores")


def verbose(owner: Any) -> None:
    """The parameter `verbose` must be an integer from 0 on, or a bool."""
    if not isinstance(owner.verbose, numbers.Integral) or owner.verbose < 0:
        raise _parameter_error(owner, "verbose", "0 for no output, or 1 or more for lines about the progress")


def random_state(owner: Any) -> None:
    """The parameter `random_state` must be None, an integer from 0 to 2^32 - 1, or a NumPy RandomState."""
    from sklearn.utils import check_random_state

    try:
        check_random_state(owner.random_state)
    except ValueError:
        raise _parameter_error(owner, "random_state", RANDOM_STATES) from None


def seed(random_state: Any) -> int:
    """Return `random_state` if it is an integer. For None or a RandomState, return an integer drawn from it."""
    from sklearn.utils import check_random_state

    try:
        generator = check_random_state(random_state)
    except ValueError:
        raise InputError(f"random_state must be {RANDOM_STATES}. Got {random_state!r} instead.") from None
    return int(random_state) if isinstance(random_state, numbers.Integral) else int(generator.randint(2**31 - 1))


def sample_weight(weights: Any, n_samples: int) -> np.ndarray:
    """Return the weights of the rows. They must be finite and at least 0, and not all 0."""
    found = np.asarray(weights, np.float64)
    if found.shape != (n_samples,):
        raise InputError(
            f"sample_weight must be {n_samples} numbers, one per row. Got an array of shape {found.shape}."
        )
    wrong = np.flatnonzero(~np.isfinite(found) | (found < 0))
    if len(wrong):
        row = wrong[0]
        raise InputError(f"sample_weight must be finite and at least 0. Got {found[row]} for row {row}.")
    if not found.any():
        raise InputError(
            "sample_weight is zero for all rows, so there is nothing to learn; give some a positive weight"
        )
    return found


def top_k(k: Any) -> int:
    """Return k as an int. It must be an integer of at least 1."""
    if isinstance(k, bool) or not isinstance(k, numbers.Integral) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, the number of labels to return. Got {k!r} instead.")
    return int(k)


def _fits(value: Any, whole: bool) -> bool:
    """Whether int64 or float64 can hold the number."""
    if whole:
        return -(2**63) <= int(value) < 2**63
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer above the largest float
        return False


def _within(value: Any, least: float | None, above: float | None) -> bool:
    return (least is None or bool(value >= least)) and (above is None or bool(value > above))


def _bounds(least: float | None, above: float | None) -> str:
    return f" of at least {least}" if least is not None else f" above {above}" if above is not None else ""


def _parameter_error(owner: Any, name: str, expected: str, found: str | None = None) -> InputError:
    """Return an InputError with scikit-learn's wording for an invalid parameter."""
    found = repr(getattr(owner, name)) if found is None else found
    return InputError(f"The '{name}' parameter of {type(owner).__name__} must be {expected}. Got {found} instead.")


def one_row(x: Any) -> Any:
    """Turn one row or text into a batch of one."""
    if isinstance(x, str):
        return [x]
    if sp.issparse(x):
        return x.reshape(1, -1) if x.ndim == 1 else x
    if isinstance(x, HybridRows) or hasattr(x, "iloc") or hasattr(x, "to_pandas"):  # rows or a frame of one row
        return x
    return np.atleast_2d(x)
