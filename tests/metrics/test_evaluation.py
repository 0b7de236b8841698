"""metrics/evaluation: one call agrees with the single functions, bands follow one definition, the table reads well."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse
from sklearn.metrics import f1_score

import longtail.metrics as metrics
from longtail.errors import InputError
from longtail.metrics.evaluation import split_bands
from longtail.metrics.table import align
from longtail.topk import TopK

from . import reference as ref

EDGES = (1, 4)


def expected_metrics(case, ks, inv_p, multiclass, members=True):
    """The names and values of all metrics, by the single public functions, from a case that has rows."""
    names = {"P": metrics.precision_curve, "nDCG": metrics.ndcg_curve, "recall": metrics.recall_curve}
    curves = {name: metric(case.Y, case.labels) for name, metric in names.items()}
    curves["coverage"] = metrics.coverage_curve(case.Y, case.labels)
    if inv_p is not None:
        curves["PSP"] = metrics.psp_curve(case.Y, case.labels, inv_p=inv_p)
        curves["PSnDCG"] = metrics.psndcg_curve(case.Y, case.labels, inv_p=inv_p)
    expected = {f"{name}@{k}": curve[k - 1] for name, curve in curves.items() for k in ks}
    if multiclass:
        expected["accuracy"] = metrics.accuracy(case.Y, case.labels)
        true, first = case.truth.argmax(axis=1), case.labels[:, 0]
        used = np.flatnonzero(np.isin(np.arange(case.truth.shape[1]), [true, first]) & members)
        expected["macro-F1"] = f1_score(true, first, labels=used, average="macro", zero_division=0)
        expected["MaF1"] = metrics.maf1(case.Y, case.labels)
    return expected


def check_against_single_functions(case, multiclass):
    ks = (1, case.k)
    result = metrics.evaluate(case.Y, case.labels, train_Y=case.train_Y, ks=ks, bands=EDGES)
    inv_p = metrics.inverse_propensity(case.train_Y)
    assert result.overall == pytest.approx(expected_metrics(case, ks, inv_p, multiclass))
    for name, members in split_bands(case.train.sum(axis=0), EDGES).items():
        band, part = dict(result.bands[name]), ref.in_band(case, members)
        assert band.pop("labels") == members.sum()
        assert band.pop("rows") == len(part.truth)
        if len(part.truth):
            assert band == pytest.approx(expected_metrics(part, ks, inv_p, multiclass, members))
        else:
            assert band.keys() == result.overall.keys()
            assert all(math.isnan(value) for value in band.values())


@settings(deadline=None, max_examples=80)
@given(ref.cases())
def test_agrees_with_the_single_functions_overall_and_by_band(case):
    check_against_single_functions(case, multiclass=bool((case.truth.sum(axis=1) == 1).all()))


@settings(deadline=None, max_examples=40)
@given(ref.cases(multiclass=True))
def test_multiclass_data_also_gets_accuracy_and_macro_f1(case):
    check_against_single_functions(case, multiclass=True)


@settings(deadline=None, max_examples=40)
@given(ref.cases())
def test_bands_partition_the_labels(case):
    bands = split_bands(case.train.sum(axis=0), EDGES)
    assert np.sum(list(bands.values()), axis=0).tolist() == [1] * case.truth.shape[1]
    result = metrics.evaluate(case.Y, case.labels, train_Y=case.train_Y, ks=(1,), bands=EDGES)
    assert sum(band["labels"] for band in result.bands.values()) == result.n_labels == case.truth.shape[1]


def test_band_thresholds_belong_to_the_rarer_band():
    bands = split_bands(np.array([0, 10, 11, 100, 101]))
    assert bands["tail"].tolist() == [True, True, False, False, False]
    assert bands["torso"].tolist() == [False, False, True, True, False]
    assert bands["head"].tolist() == [False, False, False, False, True]


@pytest.fixture
def problem():
    rng = np.random.default_rng(1)
    chance = 0.5 / np.arange(1, 41) ** 0.8
    train, truth = (rng.random((300, 40)) < chance).astype(int), (rng.random((50, 40)) < chance).astype(int)
    labels = np.argsort(rng.random((50, 40)) - 0.4 * truth - chance, axis=1)[:, :5].astype(np.int32)
    return sparse.csr_array(train), sparse.csr_array(truth), TopK(labels, np.zeros(labels.shape, np.float32))


def test_without_training_labels_there_is_no_propensity_and_bands_come_from_y(problem):
    _, Y, top = problem
    result = metrics.evaluate(Y, top)
    assert not any(name.startswith("PS") for name in result.overall)
    assert result.counted_in == "Y"
    assert "no training labels given" in str(result)
    assert result.bands["tail"]["labels"] == np.count_nonzero(Y.sum(axis=0) <= 10)


def test_keys_defaults_and_look_up(problem):
    train_Y, Y, top = problem
    result = metrics.evaluate(Y, top, train_Y=train_Y)
    names = ["P", "nDCG", "recall", "coverage", "PSP", "PSnDCG"]
    assert list(result.overall) == [f"{name}@{k}" for name in names for k in (1, 3, 5)]
    assert result["P@3"] == pytest.approx(metrics.precision_curve(Y, top)[2])
    assert list(result.bands) == ["head", "torso", "tail"]
    A, B = metrics.PROPENSITY_PRESETS["Wikipedia-500K"]
    other = metrics.evaluate(Y, top, train_Y=train_Y, A=A, B=B)
    inv_p = metrics.inverse_propensity(train_Y, A=A, B=B)
    assert other["PSP@1"] == pytest.approx(metrics.psp_at_k(Y, top, 1, inv_p=inv_p))
    assert other["PSP@1"] != result["PSP@1"]
    with pytest.raises(KeyError):
        result["P@2"]
    with pytest.raises(AttributeError):
        result.overall = {}


def test_as_dict_is_json_without_nan():
    result = metrics.evaluate(sparse.csr_array([[1, 0]]), [[0]], train_Y=sparse.csr_array([[1, 0]]), ks=(1,))
    data = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert data["overall"]["P@1"] == 1.0
    assert data["bands"]["head"] == {"labels": 0, "rows": 0, **dict.fromkeys(data["overall"])}
    assert data["bands"]["tail"]["P@1"] == 1.0
    assert data["band_edges"] == [10, 100]
    assert data["frequencies_counted_in"] == "train_Y"


def test_table_is_aligned_and_in_per_cent():
    Y = sparse.csr_array([[1, 0], [0, 1], [1, 0]])
    result = metrics.evaluate(Y, [[0], [0], [0]], train_Y=sparse.csr_array(np.eye(2, dtype=int)), ks=(1,), bands=(1, 2))
    assert str(result).splitlines()[:6] == [
        "            overall  head (> 2)  torso (2-2)  tail (≤ 1)",
        "──────────  ───────  ──────────  ───────────  ──────────",
        "labels            2           0            0           2",
        "rows              3           0            0           3",
        "P@1           66.67           -            -       66.67",
        "nDCG@1        66.67           -            -       66.67",
    ]
    assert str(result).endswith("Head, torso and tail: labels by their number of training rows.")


def test_text_columns_are_aligned_to_the_left():
    table = align(["code", "texts", "title"], [["E11", 1234, "Diabetes"], ["I10", None, "x"]])
    assert table.splitlines() == [
        "code  texts  title",
        "────  ─────  ────────",
        "E11   1,234  Diabetes",
        "I10       -  x",
    ]
    assert align(["a", "b"], []).splitlines() == ["a  b", "─  ─"]


@pytest.mark.parametrize("train_form", ["ids", "matrix"])
@pytest.mark.parametrize("test_form", ["ids", "matrix"])
def test_class_ids_and_indicators_mix(train_form, test_form):
    train, test, top = np.array([0, 1, 1, 3]), np.array([0, 1, 2]), np.array([[0, 1], [3, 1], [0, 2]])
    forms = {"ids": lambda ids: ids, "matrix": lambda ids: sparse.csr_array(np.eye(4, dtype=int)[ids])}
    result = metrics.evaluate(forms[test_form](test), top, train_Y=forms[train_form](train), ks=(1, 2))
    assert result.n_labels == 4
    assert result["accuracy"] == pytest.approx(1 / 3)
    assert result["recall@2"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ks": (1, 9)}, r"k is 9, but top holds 5 labels per row; predict them with predict_topk\(X, k=9\)"),
        ({"ks": ()}, "ks is ()"),
        ({"ks": (0,)}, "give one or more whole numbers from 1"),
        ({"ks": (1.5,)}, "give one or more whole numbers from 1"),
        ({"bands": (100, 10)}, "largest number of rows of a tail and of a torso label"),
        ({"ks": "abc"}, "give one or more whole numbers from 1"),
        ({"bands": None}, "largest number of rows of a tail and of a torso label"),
        ({"bands": (10,)}, "largest number of rows of a tail and of a torso label"),
        ({"train_Y": sparse.csr_array((5, 39))}, "train_Y has 39 labels, but 40 are expected"),
        ({"A": -1}, "propensities need A >= 0"),
    ],
)
def test_wrong_requests_are_refused_with_a_remedy(problem, changes, message):
    train_Y, Y, top = problem
    with pytest.raises(InputError, match=message):
        metrics.evaluate(Y, top, **{"train_Y": train_Y, **changes})
