"""Splits for data with rare labels: held-out rows and cross-validation folds for a sparse indicator Y.

A random split can put every row of a rare label on one side. Here rows are sorted so that the rows of a rare label are
neighbours, and every (1 / fraction)-th row of this order is held out, starting at a random position (systematic
sampling; W. G. Madow, L. H. Madow, 1944). Therefore

    - every row is held out with the same probability, as in a random split, so scores on held-out rows are unbiased;
    - a label with m neighbouring rows has floor(m fraction) or ceil(m fraction) rows held out. A label with two
      or more rows keeps at least one on the training side (fraction <= 1/2), and one with 1 / fraction rows has one on
      each side.

Rows are sorted by their rarest label, then by their second rarest, and so on. This takes one sort of the entries of Y.
Iterative stratification (Sechidis, Tsoumakas, Vlahavas, ECML 2011) fills its folds label by label. It never holds out a
label with few rows, so held-out rows are easier than new rows.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from longtail import check
from longtail.errors import InputError

KEYS = 4  # number of labels of a row, from the rarest on, that determine its position in the order


def held_out(Y: sp.csr_array, fraction: float, random_state: Any = 0) -> np.ndarray:
    """Return a boolean mask of the held-out rows, a share `fraction` of all rows. Each side has at least one row."""
    n = Y.shape[0]
    if n < 2:
        raise InputError(f"{n} row(s) cannot be split in two; at least 2 are needed")
    if isinstance(fraction, bool) or not isinstance(fraction, numbers.Real) or not 0 < fraction < 1:
        raise InputError(
            f"the held-out fraction must lie between 0 and 1, but is {fraction!r}; 0.2 holds out a fifth of the rows"
        )
    rng = check_random_state(random_state)
    size = min(max(round(n * float(fraction)), 1), n - 1)
    chosen = ((np.arange(size) + rng.random_sample()) * n / size).astype(np.int64)
    found = np.zeros(n, bool)
    found[_order(Y, rng)[np.minimum(chosen, n - 1)]] = True
    return found


def folds(Y: sp.csr_array, n_folds: int, random_state: Any = 0) -> np.ndarray:
    """Return the fold of every row, from 0 to n_folds - 1. Sizes differ by at most one."""
    n = Y.shape[0]
    if isinstance(n_folds, bool) or not isinstance(n_folds, numbers.Integral) or not 2 <= n_folds <= n:
        raise InputError(f"{n} rows cannot be divided into {n_folds!r} folds; give a whole number from 2 to {n}")
    rng = check_random_state(random_state)
    found = np.empty(n, np.int64)
    found[_order(Y, rng)] = rng.permutation(n_folds)[np.arange(n) % n_folds]  # neighbours go to different folds
    return found


class LabelKFold:
    """Cross-validation folds that spread the rows of rare labels, for scikit-learn's `cv=`.

    Parameters
    ----------
    n_splits : int, default=5
    random_state : int, RandomState or None, default=0

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> import longtail as lt
    >>> X, y = [[1, 0], [0, 1]] * 4, ["a", "b"] * 4
    >>> cross_val_score(lt.OneVsAll(), X, y, cv=lt.LabelKFold(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, n_splits: int = 5, *, random_state: Any = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the row numbers of the training rows and of the test rows of each fold. `y` has any form that `fit`
        accepts."""
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        fold = folds(check.label_matrix(y, n)[0], self.n_splits, self.random_state)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits


def _order(Y: sp.csr_array, rng: np.random.RandomState) -> np.ndarray:
    """Return row numbers in an order where rows with the same rarest labels are neighbours. Ties are in random
    order."""
    n, n_labels = Y.shape
    counts = np.bincount(Y.indices, minlength=n_labels)
    rarity = np.empty(n_labels, np.int64)  # 0 for the rarest label
    rarity[np.lexsort((rng.permutation(n_labels), counts))] = np.arange(n_labels)
    row = np.repeat(np.arange(n), np.diff(Y.indptr))
    sequence = np.lexsort((rarity[Y.indices], row))
    place = np.arange(Y.nnz) - Y.indptr[row]  # position of each entry within its row, from the rarest label on
    keys = [rng.permutation(n)]
    for depth in reversed(range(KEYS)):
        key = np.full(n, n_labels, np.int64)  # rows with fewer labels come last
        there = place == depth
        key[row[there]] = rarity[Y.indices[sequence[there]]]
        keys.append(key)
    return np.lexsort(keys)
