"""`positive_weight="auto"`: weights that fall with the frequency of the label."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail.methods.one_vs_all.positive_weights import by_frequency


def slow_weight(n: int) -> float:
    if n <= 5:
        return 3.0
    return 1.0 if n >= 100 else 3.0 * (1 / 3) ** (math.log(n / 5) / math.log(20))


def test_weights_are_those_of_the_twin():
    counts = np.array([0, 1, 5, 6, 22, 99, 100, 10**6])
    np.testing.assert_allclose(by_frequency(counts), [slow_weight(n) for n in counts.tolist()])
    assert (np.diff(by_frequency(np.arange(200))) <= 0).all()


def frequencies_of_two_labels() -> tuple[np.ndarray, sp.csr_array]:
    X = np.random.default_rng(0).normal(size=(130, 5)).astype(np.float32)
    Y = np.zeros((130, 3), np.int32)
    Y[:110, 0] = Y[100:112, 1] = Y[120:124, 2] = 1
    return X, sp.csr_array(Y)


@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_auto_is_the_array_of_these_weights(solver, tmp_path):
    X, Y = frequencies_of_two_labels()
    auto = lt.OneVsAll(C=1 / 3, positive_weight="auto", solver=solver, n_jobs=1).fit(X, Y)
    array = lt.OneVsAll(C=1 / 3, positive_weight=[slow_weight(n) for n in (110, 12, 4)], solver=solver).fit(X, Y)
    np.testing.assert_allclose(auto.model_.W.toarray(), array.model_.W.toarray(), atol=1e-5)
    auto.save(tmp_path / "model")
    assert lt.load(tmp_path / "model").positive_weight == "auto"
