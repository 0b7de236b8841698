"""The data and the parameters of one-vs-all, which both solvers and all starts read."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_parts, csr_pattern, frozen
from longtail.hybrid import HybridRows, squares
from longtail.matrix import LARGEST_INT32
from longtail.methods.one_vs_all import newton_kernels as kernels
from longtail.methods.one_vs_all.newton_space import NewtonRule, NewtonSpace, newton_space
from longtail.methods.problem import NO_EXTRAS, Extras

LOSSES = {"squared_hinge": kernels.SQUARED_HINGE, "logistic": kernels.LOGISTIC}
TOL = 0.01
DENSE_TOL = 1.0  # default `tol` of Newton on dense features, where 0.01 is too strict (section 5 of the MSI paper)
MAX_SQUARE = 1e12  # |x|^2 of the longest row that the dual solver accepts

Features: TypeAlias = "sp.csr_array | np.ndarray | HybridRows"


class Samples(NamedTuple):
    """The rows of X, with a sparse and a dense part. Either may have no features.

    Row i has the values data[indptr[i] : indptr[i + 1]] in the features `indices`, all below `n_sparse`, and the values
    dense[i] in the features from `n_sparse` on. Every row has one more feature, the last: the bias feature, with the
    value `bias`. If `bias` is 0, there is none.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    n_sparse: int
    dense: np.ndarray  # (n, n_dense)
    bias: float
    squares: np.ndarray  # |x_i|^2 without the bias feature


class LabelRows(NamedTuple):
    """The positives of every label: rows[indptr[label] : indptr[label + 1]]. Each of them costs C weight[label]."""

    rows: np.ndarray
    indptr: np.ndarray
    weight: np.ndarray

    @property
    def n_positive(self) -> np.ndarray:
        """The number of positives of every label."""
        return np.diff(self.indptr.view(np.int64))


def as_dense(X: Features) -> Features:
    """Return X as a dense array if every entry is stored, as in embeddings that were read from a file."""
    if isinstance(X, np.ndarray | HybridRows) or X.nnz < X.shape[0] * X.shape[1]:
        return X
    return X.data.reshape(X.shape)


def samples(X: Features, bias: float, *, by_frequency: bool = False) -> tuple[Samples, np.ndarray]:
    """X for kernels, and the column of X of every feature, including the bias feature.

    Sparse features are numbered as the columns, or by falling frequency, with the most frequent feature of each row
    first. The features of dense columns follow.
    """
    sparse, dense, dense_columns = _parts(X)
    is_sparse = np.ones(X.shape[1], bool)
    is_sparse[dense_columns] = False
    columns = np.flatnonzero(is_sparse).astype(np.int32)
    data, indices, indptr = csr_parts(sparse)
    if by_frequency:
        columns = columns[np.argsort(-np.bincount(indices, minlength=X.shape[1])[columns], kind="stable")]
    if not np.array_equal(columns, np.arange(len(columns))):
        data, indices = _renumbered(sparse, columns)
    rows = Samples(
        data, indices, indptr, len(columns), frozen(dense, np.float32), float(bias), frozen(squares(X), np.float64)
    )
    return rows, np.concatenate([columns, dense_columns, [X.shape[1]]]).astype(np.int32)


def some_rows(X: Samples, rows: np.ndarray) -> Samples:
    """These rows of X, one after the other in memory."""
    n = len(X.squares)
    some = sp.csr_array((X.data, X.indices.view(np.int32), X.indptr.view(np.int64)), shape=(n, max(X.n_sparse, 1)))[
        rows
    ]
    return X._replace(
        data=frozen(some.data, np.float32), indices=frozen(some.indices, np.uint32),
        indptr=frozen(some.indptr, np.uint64), dense=frozen(X.dense[rows], np.float32),
        squares=frozen(X.squares[rows], np.float64),
    )  # fmt: skip


def _parts(X: Features) -> tuple[sp.csr_array, np.ndarray, np.ndarray]:
    """The sparse part of X with all its columns, the dense part, and the columns of the dense part."""
    if isinstance(X, HybridRows):
        return X.sparse, X.dense, X.columns
    n, d = X.shape
    if isinstance(X, np.ndarray):
        return sp.csr_array((n, d), dtype=np.float32), X, np.arange(d)
    return X, np.zeros((n, 0), np.float32), np.arange(0)


def _renumbered(X: sp.csr_array, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`data` and `indices` of X with feature f for columns[f], sorted by feature within each row."""
    feature = np.zeros(X.shape[1], np.int32)
    feature[columns] = np.arange(len(columns), dtype=np.int32)
    rows = sp.csr_array((X.data.copy(), feature[X.indices], X.indptr), shape=X.shape)
    rows.sort_indices()
    return frozen(rows.data, np.float32), frozen(rows.indices, np.uint32)


def label_rows(Y: sp.csr_array, weight: np.ndarray) -> LabelRows:
    by_label = Y.T.tocsr()
    by_label.sort_indices()
    return LabelRows(*csr_pattern(by_label), frozen(weight, np.float64))


def sum_of_rows(X: Features, bias: float, sample_weight: np.ndarray | None = None) -> np.ndarray:
    """Return the sum of all rows, including the bias feature, in float64. SciPy would add sparse rows in float32.

    With `sample_weight`, every row counts with its weight.
    """
    if isinstance(X, HybridRows):
        total = sum_of_rows(X.sparse, bias, sample_weight).copy()
        total[X.columns] = sum_of_rows(X.dense, 0.0, sample_weight)
        return frozen(total, np.float64)
    if sample_weight is None:
        total, n = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel(), float(X.shape[0])
    else:
        total, n = np.asarray(X.T @ sample_weight).ravel(), float(sample_weight.sum())
    return frozen(np.append(total, n * bias) if bias > 0 else total, np.float64)


def first_twins(positives: LabelRows, alone: np.ndarray | None = None) -> np.ndarray:
    """Return, for every label, the first label with the same rows and the same weight, and so the same problem.

    The labels `alone` have no twins.
    """
    rows = positives.rows.tobytes()
    ends = (4 * positives.indptr).tolist()
    first: dict[tuple[bytes, float], int] = {}
    single = set() if alone is None else set(alone.tolist())
    return np.array(
        [
            label if label in single else first.setdefault((rows[ends[label] : ends[label + 1]], weight), label)
            for label, weight in enumerate(positives.weight.tolist())
        ],
        np.int64,
    )


class OneVsAllData:
    """One binary problem per label: the data in the form of the kernels, and the parameters after resolving "auto".

    Vectors over features have D = n_features + 1 entries, the last for the bias feature, or D = n_features without it.
    Features are numbered as in `Samples`; `column_of` has the column of each.
    `tol` is eps_0 of the stopping rule (13) for "newton", and the relative duality gap allowed for the other solvers.
    `max_tol` bounds eps of that rule, and `trace` is the number of Newton steps per label that are recorded.
    """

    def __init__(
        self,
        X: Features,
        Y: sp.csr_array,
        *,
        C: float,
        loss: str,
        solver: str,
        positive_weight: np.ndarray,
        prune: float,
        tol: float | None,
        max_tol: float | None,
        max_iter: int,
        trace: int,
        bias: float,
        extras: Extras = NO_EXTRAS,
    ) -> None:
        X = as_dense(X)
        self.n_samples, self.n_features = int(X.shape[0]), int(X.shape[1])
        self.n_labels = int(Y.shape[1])
        self.positives = label_rows(Y, positive_weight)
        self.sample_weight = extras.sample_weight
        self.total_weight = self.n_samples if extras.sample_weight is None else float(extras.sample_weight.sum())
        self.C = C
        self.loss = LOSSES[loss]
        self.prune = prune
        self.max_iter = max_iter
        self.trace = trace
        self.max_tol = np.inf if max_tol is None else max_tol
        is_hinge = self.loss == kernels.SQUARED_HINGE
        may_use_dual = solver in ("auto", "dual") and is_hinge and extras.sample_weight is None
        self.X, self.column_of = samples(X, bias, by_frequency=may_use_dual)
        self.solver = "dual" if may_use_dual and suits_float32(self.X) else "newton"
        if solver == "sampled-newton" or (solver == "auto" and not is_hinge):
            self.solver = "sampled-newton"
        x_sum = sum_of_rows(X, bias, extras.sample_weight)
        self.x_sum = frozen(x_sum[self.column_of[: len(x_sum)]], np.float64)
        usual = DENSE_TOL if self.solver == "newton" and self.X.n_sparse == 0 else TOL
        self.tol = usual if tol is None else tol
        self.folds = extras.folds

    @property
    def D(self) -> int:  # noqa: N802 - the symbol of the kernels
        return len(self.x_sum)

    @property
    def pass_work(self) -> int:
        """The cost of one pass over X, in sparse entries. A dense entry takes about a quarter of the time."""
        return len(self.X.data) + self.X.dense.size // 4 + self.n_samples

    def newton_rule(self, tol: float, *, sampled: bool = False) -> NewtonRule:
        return NewtonRule(self.loss, self.C, tol, self.max_tol, self.max_iter, sampled)

    def newton_space(self, *, sampled: bool = False) -> NewtonSpace:
        space = newton_space(self.n_samples, self.D, self.sample_weight)
        if sampled:
            kernels.margins(self.X, self.x_sum, space.sum_scores)
        return space

    def scores(self, w: np.ndarray) -> np.ndarray:
        """X w, in float32."""
        z = np.empty(self.n_samples)
        kernels.margins(self.X, frozen(w, np.float64), z)
        return z.astype(np.float32)

    def weight_rows(
        self, data: np.ndarray, features: np.ndarray, indptr: np.ndarray, order: np.ndarray | None = None
    ) -> sp.csr_array:
        """The weights of labels by feature, as rows with the columns of X. `order` has the rows in their new order."""
        if indptr[-1] <= LARGEST_INT32:
            indptr = indptr.astype(np.int32)  # SciPy would widen the columns to the type of indptr
        W = sp.csr_array((data, self.column_of[features], indptr), shape=(len(indptr) - 1, self.D))
        by_column = W.tocsc()
        if order is not None:
            place = np.empty(len(order), by_column.indices.dtype)
            place[order] = np.arange(len(order))
            by_column.indices = place[by_column.indices]
        return sp.csr_array(by_column)  # sorts rows, and the columns of each row, in linear time


def suits_float32(X: Samples) -> bool:
    """Whether products of rows stay far from the limits of float32."""
    return bool(X.squares.max(initial=0.0) + X.bias**2 <= MAX_SQUARE)
