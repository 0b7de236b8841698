"""The data and the parameters of one-vs-all, which both solvers and all starts read."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from longtail.compiled import csr_pattern, frozen, row_parts
from longtail.matrix import row_squares
from longtail.methods.one_vs_all import newton_kernels as kernels
from longtail.methods.one_vs_all.alphas import earlier_alphas
from longtail.methods.problem import NO_EXTRAS, Extras

LOSSES = {"squared_hinge": kernels.SQUARED_HINGE, "logistic": kernels.LOGISTIC}
TOL = 0.01
DENSE_TOL = 1.0  # default `tol` of Newton on dense features, where 0.01 is too strict (section 5 of the MSI paper)
MAX_SQUARE = 1e12  # |x|^2 of the longest row that the dual solver accepts

Features: TypeAlias = "sp.csr_array | np.ndarray"


class Samples(NamedTuple):
    """The rows of X.

    Row i has the values data[indptr[i] : indptr[i + 1]] in the columns `indices`. Dense rows (`is_dense`) store every
    entry, and `indices` is empty. Every row has one more feature, the bias feature, with the value `bias`. If `bias` is
    0, there is none.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    bias: float
    squares: np.ndarray  # |x_i|^2 without the bias feature
    is_dense: bool


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
    if isinstance(X, np.ndarray) or X.nnz < X.shape[0] * X.shape[1]:
        return X
    return X.data.reshape(X.shape)


def samples(X: Features, bias: float) -> Samples:
    data, indices, indptr = row_parts(X)
    return Samples(data, indices, indptr, float(bias), frozen(row_squares(X), np.float64), len(data) > len(indices))


def label_rows(Y: sp.csr_array, weight: np.ndarray) -> LabelRows:
    by_label = Y.T.tocsr()
    by_label.sort_indices()
    return LabelRows(*csr_pattern(by_label), frozen(weight, np.float64))


def sum_of_rows(X: Features, bias: float, sample_weight: np.ndarray | None = None) -> np.ndarray:
    """Return the sum of all rows, including the bias feature, in float64. SciPy would add sparse rows in float32.

    With `sample_weight`, every row counts with its weight.
    """
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
    `tol` is the relative duality gap allowed for the dual solver, and eps_0 of the stopping rule (13) for Newton.
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
        self.X = samples(X, bias)
        self.positives = label_rows(Y, positive_weight)
        self.sample_weight = extras.sample_weight
        self.total_weight = self.n_samples if extras.sample_weight is None else float(extras.sample_weight.sum())
        self.x_sum = sum_of_rows(X, bias, extras.sample_weight)
        self.C = C
        self.loss = LOSSES[loss]
        self.prune = prune
        self.max_iter = max_iter
        self.trace = trace
        self.max_tol = np.inf if max_tol is None else max_tol
        can_use_dual = self.loss == kernels.SQUARED_HINGE and suits_float32(self.X) and extras.sample_weight is None
        self.solver = "dual" if solver != "newton" and can_use_dual else "newton"
        usual = DENSE_TOL if self.solver == "newton" and self.X.is_dense else TOL
        self.tol = usual if tol is None else tol
        self.earlier_alphas = earlier_alphas(extras.alphas, self.n_labels)
        self.kept_samples = self.n_samples if extras.keep_alphas else None  # number of rows, if alphas are kept

    @property
    def D(self) -> int:  # noqa: N802 - the symbol of the kernels
        return len(self.x_sum)

    @property
    def pass_work(self) -> int:
        """The cost of one pass over X."""
        return len(self.X.data) + self.n_samples

    def newton_rule(self, tol: float) -> kernels.NewtonRule:
        return kernels.NewtonRule(self.loss, self.C, tol, self.max_tol, self.max_iter)

    def scores(self, w: np.ndarray) -> np.ndarray:
        """X w, in float32."""
        z = np.empty(self.n_samples)
        kernels.margins(self.X, frozen(w, np.float64), z)
        return z.astype(np.float32)


def suits_float32(X: Samples) -> bool:
    """Whether products of rows stay far from the limits of float32."""
    return bool(X.squares.max(initial=0.0) + X.bias**2 <= MAX_SQUARE)
