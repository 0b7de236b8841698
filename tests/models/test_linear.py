"""LinearModel: predictions against the dense twin, explanations, slicing and stacking, and what it refuses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.models import LinearModel, base
from tests import reference


def random_model(seed: int = 0, L: int = 9, d: int = 6, bias: float = 1.0, **names) -> LinearModel:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(L, d + (bias > 0))) * (rng.random((L, d + (bias > 0))) < 0.6)
    return LinearModel(sp.csr_array(W.astype(np.float32)), d, bias, **names)


def random_rows(seed: int = 1, n: int = 50, d: int = 6) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)).astype(np.float32))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 2.5]), st.integers(1, 12))
def test_predictions_are_those_of_a_dense_matrix(seed, bias, k):
    model, X = random_model(seed, bias=bias), random_rows(seed + 1, n=7)
    dense = reference.scores(X.toarray(), model.W.toarray(), bias)
    top = model.predict_topk(X, k, n_jobs=1)
    assert [list(row) for row in top.labels] == [reference.top(row, k)[0] for row in dense]
    np.testing.assert_array_equal(top.scores, np.take_along_axis(dense, top.labels, axis=1))
    above = model.predict_above(X, 0.25, n_jobs=1)
    assert [above[[i]].indices.tolist() for i in range(7)] == [reference.above(row, 0.25) for row in dense]
    assert (above.dtype, set(above.data.tolist()) <= {1}) == (np.int32, True)
    np.testing.assert_allclose(model.scores(X, np.arange(9)), dense, rtol=1e-5, atol=1e-5)


def test_threads_and_blocks_do_not_change_a_byte(monkeypatch):
    model, X = random_model(), random_rows(n=200)
    expected = None
    for block in (1, 7, 64, 1024):
        monkeypatch.setattr(base, "ROWS_PER_BLOCK", block)
        for n_jobs in (1, 2, 4):
            top, above = model.predict_topk(X, 4, n_jobs=n_jobs), model.predict_above(X, n_jobs=n_jobs)
            arrays = (top.labels, top.scores, above.indices, above.indptr)
            found = [array.tobytes() for array in arrays]
            expected = expected or found
            assert found == expected


def test_no_rows_give_no_predictions():
    model, X = random_model(), random_rows(n=0)
    assert model.predict_topk(X, 3).labels.shape == (0, 3)
    assert model.predict_above(X).shape == (0, 9)
    assert model.scores(X, [0, 1]).shape == (0, 2)


def test_a_model_without_features_scores_by_its_bias():
    model = LinearModel(sp.csr_array(np.array([[1.0], [3.0], [2.0]], np.float32)), 0, 2.0)
    top = model.predict_topk(sp.csr_array((1, 0), dtype=np.float32), 2)
    assert (top.labels.tolist(), top.scores.tolist()) == ([[1, 2]], [[6.0, 4.0]])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 0.5]))
def test_contributions_add_up_to_the_score(seed, bias):
    model, x = random_model(seed, bias=bias), random_rows(seed + 1, n=1)
    dense = reference.scores(x.toarray(), model.W.toarray(), bias)
    for label in range(model.n_labels):
        why = model.explain(x, label)
        assert why.score == pytest.approx(dense[0, label], abs=1e-5)
        assert why.score == pytest.approx(sum(share.contribution for share in why.contributions) + why.bias)
        sizes = [abs(share.contribution) for share in why.contributions]
        assert sizes == sorted(sizes, reverse=True)
        assert all(share.contribution == share.value * share.weight for share in why.contributions)


def test_explanations_speak_in_names():
    W = sp.csr_array(np.array([[1.0, -2.0, 0.0, 0.5], [0.0, 1.0, 1.0, 0.0]], np.float32))
    model = LinearModel(W, 3, 1.0, label_names=np.array(["fruit", "tree"]), feature_names=["apple", "root", "leaf"])
    why = model.explain(sp.csr_array(np.array([[3.0, 1.0, 1.0]], np.float32)), 0)
    assert (why.label, why.name, why.bias, why.score) == (0, "fruit", 0.5, 1.5)
    assert [(share.feature, share.contribution) for share in why.contributions] == [("apple", 3.0), ("root", -2.0)]
    assert str(why).splitlines() == [
        "score +1.5000 for label fruit",
        "  +3.0000  apple",
        "  -2.0000  root",
        "  +0.5000  (bias)",
    ]
    short = model.explain(sp.csr_array(np.array([[3.0, 1.0, 1.0]], np.float32)), 0, top=1)
    assert [share.feature for share in short.contributions] == ["apple"]
    assert short.score == 1.5  # of all contributions, not only of those shown


def test_without_names_numbers_stand_in():
    model = random_model()
    assert model.label_name(3) == 3
    assert model.feature_name(2) == "feature 2"


def test_names_come_from_the_pipeline_where_the_model_has_none():
    class Pipeline:
        def transform(self, texts): ...

        def column_names(self):
            return ["one", "two"]

    model = LinearModel(sp.csr_array(np.eye(2, dtype=np.float32)), 2, text_features=Pipeline())
    assert model.feature_name(1) == "two"


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 9), max_size=4), st.sampled_from([None, "int", "str"]))
def test_the_slices_of_a_model_stack_to_the_model(seed, cuts, kind):
    names = {None: None, "int": np.arange(9) * 3 - 5, "str": np.array([f"label {i}" for i in range(9)])}[kind]
    model = random_model(seed, label_names=names)
    edges = [0, *sorted(cuts), 9]
    parts = [model.slice(a, b) for a, b in pairwise(edges)]
    whole = LinearModel.stack(parts)
    assert (whole.W != model.W).nnz == 0
    assert whole.W.shape == model.W.shape
    assert (whole.n_features, whole.bias) == (model.n_features, model.bias)
    assert names is None or whole.label_names.tolist() == names.tolist()
    X = random_rows(seed + 1, n=3)
    lo, hi = edges[0], edges[1]
    np.testing.assert_array_equal(parts[0].scores(X, np.arange(hi - lo)), model.scores(X, np.arange(lo, hi)))


def test_names_of_two_kinds_stay_what_they_are():
    parts = [random_model(L=2, label_names=np.array([1, 2])), random_model(L=1, label_names=np.array(["a"]))]
    assert LinearModel.stack(parts).label_names.tolist() == [1, 2, "a"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "there is no model to stack"),
        ([random_model(), random_model(d=5)], "differ in their number of features, their bias or their normalize"),
        ([random_model(), random_model(bias=2.0)], "differ in their number of features, their bias or their normalize"),
        (
            [random_model(), random_model(bias=0.0, d=7)],
            "differ in their number of features, their bias or their normalize",
        ),
        ([random_model(), random_model(label_names=np.arange(9))], "some .* have label names and some have none"),
    ],
)
def test_models_that_do_not_fit_are_not_stacked(parts, message):
    with pytest.raises(InputError, match=message):
        LinearModel.stack(parts)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_features": 3, "bias": 1.0}, "W has 3 columns; 3 features and the bias make 4"),
        ({"n_features": 3, "label_names": np.arange(4)}, "4 label names were given for 2 labels"),
        ({"n_features": 3, "feature_names": ["a"]}, "1 feature names were given for 3 features"),
    ],
)
def test_fields_must_agree(fields, message):
    with pytest.raises(InputError, match=message):
        LinearModel(sp.csr_array((2, 3), dtype=np.float32), **fields)


@pytest.mark.parametrize("labels", [[9], [-1], [0.5], ["a"], [True], [2**40]])
def test_labels_are_column_numbers(labels):
    with pytest.raises(InputError, match="labels are column numbers from 0 to 8"):
        random_model().scores(random_rows(), labels)


def test_rows_of_the_wrong_width_never_reach_a_kernel():
    model = random_model()
    calls = (model.predict_topk, model.predict_above, lambda X: model.scores(X, [0]), lambda X: model.explain(X, 0))
    for X in (random_rows(n=1, d=5), random_rows(n=1, d=7), sp.csr_array((1, 10**6)), random_rows(n=6).tocsc()):
        for call in calls:
            with pytest.raises(InputError, match="the model takes csr with 6"):
                call(X)


def test_rows_out_of_order_never_reach_a_kernel():
    indptr, values = np.array([0, 2]), np.ones(2, np.float32)
    for indices in ([3, 1], [2, 2]):
        X = sp.csr_array((values, np.array(indices), indptr), shape=(1, 6))
        for call in (random_model().predict_topk, random_model().predict_above):
            with pytest.raises(InputError, match=r"unsorted or repeated features; call X.sum_duplicates\(\) first"):
                call(X)


def test_explain_takes_one_row():
    with pytest.raises(InputError, match=r"takes one row, but 2 were given; pass X\[\[i\]\]"):
        random_model().explain(random_rows(n=2), 0)
