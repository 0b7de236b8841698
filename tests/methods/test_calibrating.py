"""Calibration of every method, thresholds, rules and ensembles, from fit to a loaded model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import longtail as lt
from longtail import memory, metrics
from longtail.calibration import Joint
from longtail.calibration.targets import reached
from longtail.errors import InputError, ModelError
from longtail.methods import METHODS, calibrating, solving
from longtail.methods.ensemble import Fold, _combined, eligible
from longtail.methods.pd_sparse.stages import STAGES, n_passes
from longtail.methods.problem import NO_EXTRAS
from longtail.models import EnsembleModel, Mixture
from longtail.topk import TopK
from tests.methods.one_vs_all.problems import text_like

FAST = {
    "one-vs-all": {},
    "pd-sparse": {"C": 10.0, "max_iter": 4},
    "memoir": {"max_iter": 3},
    "mach": {"n_buckets": 8, "n_repetitions": 4, "max_iter": 4},
}


def data(n: int = 300, seed: int = 0) -> tuple[sp.csr_array, list[list[str]]]:
    """Rows of words, some of them with the name of a label; the tail has rare labels."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, 13)
    X = np.zeros((n, 40), np.float32)
    y: list[list[str]] = []
    for i in range(n):
        labels = np.unique(rng.choice(12, size=rng.integers(1, 4), p=share / share.sum()))
        X[i, rng.integers(12, 40, 6)] = 1
        X[i, labels[rng.random(len(labels)) < 0.8]] = 1
        y.append([f"label {label}" for label in labels])
    return sp.csr_array(X / np.sqrt((X**2).sum(axis=1, keepdims=True))), y


@pytest.fixture(scope="module")
def calibrated() -> lt.OneVsAll:
    return lt.OneVsAll(calibrate="cross-fit:folds=3", n_jobs=1).fit(*data())


@pytest.fixture(scope="module")
def ensemble() -> lt.Ensemble:
    members = [lt.OneVsAll(), lt.OneVsAll(C=0.1, positive_weight=10.0, normalize=True), lt.Mach(**FAST["mach"])]
    return lt.Ensemble(members, calibrate="held-out:fraction=0.3", n_jobs=1).fit(*data())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_calibrated_and_saved(method, tmp_path):
    X, y = data()
    clf = METHODS[method](**FAST[method], calibrate=True, n_jobs=1).fit(X, y)
    test_X, test_y = data(seed=1)
    top = clf.predict_topk(test_X, 5)
    assert (np.diff(top.probabilities, axis=1) <= 0).all()
    truth = clf._truth(test_y, 300)
    assert metrics.calibration_error(truth, top) < 0.12
    constant = truth.nnz / 300 / 12
    baseline = -(constant * np.log(constant) + (1 - constant) * np.log(1 - constant))
    assert metrics.log_loss(truth, clf.predict_topk(test_X, 12), 12) < baseline
    clf.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_topk(test_X, 5).probabilities, top.probabilities)
    np.testing.assert_array_equal(loaded.predict(test_X).toarray(), clf.predict(test_X).toarray())
    assert loaded.get_params()["calibrate"] is True
    assert loaded.model_.thresholds.figures == dict(clf.model_.thresholds.figures)


@pytest.mark.parametrize(
    ("stages", "rows", "precision", "expected"),
    [
        ([0, 0, 1, 1, 1, 3, 3], [5, 5, 80, 80, 80, 100, 100], [0.1, 0.2, 0.3, 0.4, 0.2, np.nan, np.nan], 2),
        ([1, 1, 1, 3, 2], [98, 98, 98, 100, 100], [0.3, 0.4, 0.2, np.nan, np.nan], 3),
        ([1, 1, 3], [80, 80, 100], [0.3, 0.2, np.nan], 1),
        ([1, 1, 1, 1], [100] * 4, [np.nan] * 4, 4),
    ],
)
def test_the_passes_of_an_earlier_fit_are_counted(stages, rows, precision, expected):
    """From zero on all rows; kept, with one pass more; from zero after a single pass; without held-out rows."""
    record = SimpleNamespace(
        pass_stage=np.array(stages), pass_rows=np.array(rows), pass_precision=np.array(precision, float)
    )
    assert n_passes(record) == expected


def test_pd_sparse_repeats_its_first_fit():
    X, y = data()
    clf = lt.PDSparse(n_jobs=1)
    Y = lt.PDSparse(max_iter=1, C=1.0, lam=0.1).fit(X, y)._truth(y, 300)
    records = {}

    def solve(maker, X, Y, progress, name, extras=NO_EXTRAS, used=None):
        found = solving.solve(maker._job(X, Y, np.arange(Y.shape[1]), extras), progress)
        records[name] = found.record
        return found

    masks = calibrating.rows_to_hold_out("held-out", Y, 0)
    calibrating.all_fits(clf, solve, X, Y, masks, lambda share: None)
    assert list(records) == ["all", "without-0"]
    first, second = records.values()
    assert STAGES.index("path") in first.pass_stage
    assert set(second.pass_stage.tolist()) <= {STAGES.index("refit"), STAGES.index("post-solve")}
    assert (first.C, first.lam) == (second.C, second.lam)


def test_no_more_rows_are_held_out_than_a_calibrator_needs():
    one, many = (sp.csr_array(np.ones(shape, np.int32)) for shape in ((30_000, 1), (500, 1000)))
    assert calibrating.enough_rows(one) == 4000
    assert calibrating.enough_rows(many) == 2000  # 1,000 candidates per row
    assert calibrating.enough_rows(sp.csr_array((500_000, 3), dtype=np.int32)) == 10_000
    assert calibrating.enough_rows(sp.csr_array((3_000_000, 3), dtype=np.int32)) == 20_000


def test_many_held_out_rows_are_scored_by_whole_fits(monkeypatch):
    found, all_fits = [], calibrating.all_fits
    monkeypatch.setattr(calibrating, "all_fits", lambda *args: found.append(all_fits(*args)) or found[-1])
    for most in (300, 299):
        monkeypatch.setattr(calibrating, "MAX_SCORED", most)
        lt.OneVsAll(calibrate="cross-fit:folds=2", n_jobs=1).fit(*data(300))
    assert [len(fits.models) for fits in found] == [0, 2]


def test_rows_that_have_all_labels_are_calibrated():
    clf = lt.OneVsAll(calibrate=True, n_jobs=1).fit(np.eye(12)[np.arange(24) % 12], [["a", "b"]] * 24)
    assert (clf.predict_topk(np.eye(12), 2).probabilities > 0.5).all()


def test_the_fold_of_every_row():
    masks = [np.array([True, False, False, False]), np.array([False, False, True, False])]
    assert calibrating.fold_of(masks).tolist() == [0, -1, 1, -1]


def test_counts_are_in_proportion_to_all_rows():
    mask = np.arange(100) < 20
    np.testing.assert_array_equal(calibrating.in_proportion(np.array([0, 1, 8, 80]), mask), [0, 1, 10, 100])


def test_models_whose_scores_are_twice_as_large_are_matched():
    """Rows and labels are those of a fit; the final model has 2 W - 1 for W."""
    X, y = data()
    clf = lt.OneVsAll(n_jobs=1, bias=1.0).fit(X, y)
    W = clf.model_.W.tolil()
    W *= 2
    W[:, -1] = W[:, -1].toarray() - 1
    double = replace(clf.model_, W=sp.csr_array(W, dtype=np.float32))
    masks = [np.arange(300) % 3 == number for number in range(3)]
    found = calibrating.common_scale(double, [clf.model_] * 3, X, clf._truth(y, 300), masks, 1)
    np.testing.assert_allclose(found, (0.5, 0.5), rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_calibrator_is_on_the_scale_of_the_final_model(method, monkeypatch):
    found = {}
    all_fits = calibrating.all_fits

    def keep(*args, **kwargs):
        found["fits"] = all_fits(*args, **kwargs)
        return found["fits"]

    monkeypatch.setattr(calibrating, "all_fits", keep)
    X, y = data()
    clf = METHODS[method](**FAST[method], calibrate="held-out", n_jobs=1).fit(X, y)
    fits = found["fits"]
    is_rough = method == "one-vs-all"
    assert (fits.scale == (0.0, 1.0)) == (is_rough or METHODS[method].matches_scale == 0)
    fitted = fits.calibrator(clf._truth(y, 300)).coefficients
    assert clf.model_.calibrator.coefficients.margin == pytest.approx(fits.scale.slope * fitted.margin)


@pytest.mark.parametrize(("factor", "names"), [(2.9, ["all"]), (3.1, ["all", "without-0"])])
def test_rough_scores_on_another_scale_give_way_to_a_whole_fit(factor, names, monkeypatch):
    """The rough scores are replaced by `factor` times those of the model of all rows, so they have that spread."""
    made, all_fits = [], calibrating.all_fits

    def watched(estimator, solve, X, *rest, **options):
        def noted(*args, **kwargs):
            solved = solve(*args, **kwargs)
            made.append(args[4])
            if args[4] == "all":
                folds = args[5].folds
                top = solved.model.predict_topk(sp.csr_array(X[folds.to_score[0]]), folds.depth)
                return solved._replace(held_out=[TopK(top.labels, np.float32(factor) * top.scores)])
            return solved

        return all_fits(estimator, noted, X, *rest, **options)

    monkeypatch.setattr(calibrating, "all_fits", watched)
    lt.OneVsAll(calibrate="held-out", n_jobs=1).fit(*data())
    assert made == names


@pytest.mark.parametrize("params", [{"loss": "logistic"}, {"solver": "newton"}, {"tol": 1e-9}])
def test_labels_that_coordinate_descent_does_not_solve_need_a_whole_fit(params, monkeypatch):
    found, all_fits = [], calibrating.all_fits
    monkeypatch.setattr(calibrating, "all_fits", lambda *args: found.append(all_fits(*args)) or found[0])
    X, y = data()
    lt.OneVsAll(calibrate="held-out", n_jobs=1, **params).fit(X, y)
    assert len(found[0].models) == 1


def test_without_calibration_nothing_changes():
    X, y = data()
    clf = lt.OneVsAll(n_jobs=1).fit(X, y)
    assert clf.model_.calibrator is None
    assert clf.held_out_ is None
    assert clf.predict_topk(X, 3).probabilities is None


@pytest.mark.parametrize("method", METHODS)
def test_the_weights_are_those_of_a_fit_without_calibration(method):
    X, y = data()
    plain = METHODS[method](**FAST[method], n_jobs=1).fit(X, y)
    clf = METHODS[method](**FAST[method], n_jobs=1, calibrate="held-out").fit(X, y)
    columns = np.arange(12)
    np.testing.assert_array_equal(clf.model_.scores(X, columns), plain.model_.scores(X, columns))
    np.testing.assert_array_equal(clf.model_.calibrator.counts, calibrating.counts_of(clf._truth(y, 300)))


@pytest.mark.parametrize("way", ["held-out", "cross-fit:folds=3"])
def test_scores_of_held_out_rows_are_those_of_a_fit_without_these_rows(way):
    X, Y = text_like(5, n=3000, L=60)
    clf = lt.OneVsAll(n_jobs=1)
    masks = calibrating.rows_to_hold_out(way, Y, 0)

    def solve(maker, X, Y, progress, name, extras=NO_EXTRAS, used=None):
        return solving.solve(maker._job(X, Y, np.arange(Y.shape[1]), extras), progress)

    fits = calibrating.all_fits(clf, solve, X, Y, masks, lambda share: None)
    assert not fits.models
    for mask, part in zip(masks, fits.parts, strict=True):
        rest = solve(clf, X[~mask], Y[~mask], lambda share: None, "")
        columns = np.arange(Y.shape[1])
        exact, known = (
            np.take_along_axis(model.scores(X[mask], columns), part.top.labels, axis=1)
            for model in (rest.model, fits.final.model)
        )
        rough = part.top.scores
        assert (known - exact)[part.hit].mean() > 0.05  # what a row that was trained on gains
        assert abs((rough - exact)[part.hit].mean()) < 0.02
        assert abs((rough - exact)[~part.hit].mean()) < 0.03
        assert np.abs(rough - exact).mean() < 0.05


@pytest.mark.parametrize("way", ["held-out", "held-out:fraction=0.3", "cross-fit:folds=4"])
def test_ways_to_hold_rows_out(way):
    X, y = data(100)
    clf = lt.OneVsAll(calibrate=way, n_jobs=1).fit(X, y)
    assert len(clf.held_out_.top) == {"held-out": 20, "held-out:fraction=0.3": 30, "cross-fit:folds=4": 100}[way]


@pytest.mark.parametrize("way", ["maybe", 3, "held-out:fraction=0", "held-out:fraction=1.5", "cross-fit:folds=1", None])
def test_unknown_ways_are_refused_before_training(way):
    with pytest.raises(InputError, match="'calibrate' parameter of OneVsAll"):
        lt.OneVsAll(calibrate=way).fit([[1.0]], [["a"]])


def test_a_few_rows_cannot_calibrate():
    with pytest.raises(InputError, match="at least 10 rows"):
        lt.OneVsAll(calibrate=True).fit(np.eye(4), list("abcd"))


def test_true_takes_more_rows_from_small_data():
    Y = sp.csr_array(np.ones((2999, 1), np.int32))
    assert len(calibrating.rows_to_hold_out(True, Y, 0)) == 5
    (mask,) = calibrating.rows_to_hold_out(True, sp.csr_array(np.ones((3000, 1), np.int32)), 0)
    assert mask.sum() == 600
    (mask,) = calibrating.rows_to_hold_out(True, sp.csr_array(np.ones((400_000, 1), np.int32)), 0)
    assert mask.sum() == 8000
    (mask,) = calibrating.rows_to_hold_out(True, sp.csr_array(np.ones((400_000, 1), np.int32)), 0, 20_000)
    assert mask.sum() == 20_000


def test_candidates_grow_with_the_labels_of_a_row():
    assert calibrating.n_candidates(sp.csr_array(np.eye(100, dtype=int))) == 20
    assert calibrating.n_candidates(sp.csr_array(np.ones((3, 100), int))) == 100
    assert calibrating.n_candidates(sp.csr_array(np.tile(np.arange(100) < 30, (4, 1)).astype(int))) == 90


# --- probabilities ---------------------------------------------------------------------------------------------------


def test_all_probabilities_at_once(calibrated):
    X, _ = data(seed=1)
    everything = calibrated.predict_proba(X)
    top = calibrated.predict_topk(X, 12)
    np.testing.assert_allclose(np.take_along_axis(everything, top.labels, axis=1), top.probabilities, atol=5e-5)


def test_too_many_probabilities_are_refused(calibrated, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 1000.0)
    with pytest.raises(InputError, match="predict_topk"):
        calibrated.predict_proba(data()[0])


def test_a_plain_model_has_no_probabilities():
    X, y = data(50)
    clf = lt.OneVsAll(n_jobs=1).fit(X, y)
    assert not hasattr(clf, "predict_proba")
    with pytest.raises(AttributeError) as raised:
        clf.predict_proba(X)
    assert "train with calibrate=True" in str(raised.value.__cause__)


def test_classes_of_a_1d_y_are_the_most_probable_ones():
    X, y = data()
    clf = lt.OneVsAll(calibrate="held-out", n_jobs=1).fit(X, [labels[0] for labels in y])
    assert clf.predict(X).tolist() == clf.classes_[clf.predict_topk(X, 1).labels[:, 0]].tolist()


# --- thresholds ------------------------------------------------------------------------------------------------------


def test_the_threshold_of_the_held_out_rows_can_be_chosen_again(calibrated):
    before = calibrated.model_
    try:
        calibrated.set_threshold("precision:at_least=0.8")
        assert calibrated.model_.thresholds.figures["precision"] >= 0.8
        assert reached(calibrated.model_.thresholds, calibrated.held_out_) == calibrated.model_.thresholds.figures
        calibrated.set_threshold("top:k=2")
        assert (calibrated.predict(data()[0]).sum(axis=1) == 2).all()
    finally:
        calibrated.model_ = before


def test_a_loaded_model_needs_rows(calibrated, tmp_path):
    calibrated.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    with pytest.raises(InputError, match="held-out rows"):
        loaded.set_threshold("micro-f1")
    X, y = data(seed=5)
    loaded.set_threshold("recall:at_least=0.7", X, y)
    assert metrics.set_metrics(loaded._truth(y, 300), loaded.predict(X))["micro-recall"] >= 0.7
    loaded.save(tmp_path / "model")
    again = lt.load(tmp_path / "model")
    assert again.model_.thresholds.target == "recall:at_least=0.7"
    np.testing.assert_array_equal(again.predict(X).toarray(), loaded.predict(X).toarray())


def test_a_plain_model_takes_thresholds_on_scores():
    X, y = data()
    clf = lt.OneVsAll(n_jobs=1).fit(X, y)
    test_X, test_y = data(seed=1)
    before = metrics.set_metrics(clf._truth(test_y, 300), clf.predict(test_X))["micro-F1"]
    clf.set_threshold("micro-f1", test_X, test_y)
    assert metrics.set_metrics(clf._truth(test_y, 300), clf.predict(test_X))["micro-F1"] > before
    clf.set_threshold("macro-f1:by=label", test_X, test_y)
    assert clf.model_.thresholds.limits.shape == (12,)


@pytest.mark.parametrize(
    ("target", "message"),
    [("best", "must be one of"), ("precision", "needs a value"), ("top", "needs a value"), ("macro-f1:by=row", "by")],
)
def test_unknown_targets_are_refused(calibrated, target, message):
    with pytest.raises(InputError, match=message):
        calibrated.set_threshold(target)


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ruled(calibrated):
    yield calibrated
    calibrated.set_rules()
    assert calibrated.model_.rules is None


def test_allowed_and_denied_labels(ruled, tmp_path):
    X, _ = data(seed=1)
    ruled.set_rules(allow=["label 1", "label 2", "label 3"], deny=["label 2"])
    names = ruled.classes_[ruled.predict_topk(X, 5).labels]
    assert set(names.ravel()) == {"label 1", "label 3"}
    ruled.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_topk(X, 5).labels, ruled.predict_topk(X, 5).labels)


def test_offsets_and_tail_boost_move_labels_up(ruled):
    X, _ = data(seed=1)
    rare = int(np.argmin(ruled.model_.calibrator.counts))
    before = (ruled.predict_topk(X, 3).labels == rare).sum()
    ruled.set_rules(tail_boost=2.0)
    assert (ruled.predict_topk(X, 3).labels == rare).sum() > before
    ruled.set_rules(offsets={str(ruled.classes_[rare]): 100.0})
    assert (ruled.predict_topk(X, 1).labels == rare).all()


def test_unknown_names_are_refused(ruled):
    with pytest.raises(InputError, match="'pear' is not among"):
        ruled.set_rules(deny=["pear"])
    with pytest.raises(InputError, match="allow no label"):
        ruled.set_rules(allow=[])


def test_a_tail_boost_needs_frequencies():
    X, y = data(50)
    with pytest.raises(InputError, match="calibrate=True"):
        lt.OneVsAll(n_jobs=1).fit(X, y).set_rules(tail_boost=1.0)


# --- ensembles -------------------------------------------------------------------------------------------------------


def test_the_ensemble_combines_margins_and_its_probabilities_are_isotonic(ensemble):
    X, _ = data(seed=1)
    model = ensemble.model_
    assert (model.weights >= 0).all()
    assert model.weights.any()
    top = ensemble.predict_topk(X, 4)
    np.testing.assert_array_equal(top.scores, np.take_along_axis(model.scores(X, np.arange(12)), top.labels, axis=1))
    np.testing.assert_allclose(top.probabilities, np.interp(top.scores, model.knots, model.values), atol=1e-5)
    assert (np.diff(model.knots) > 0).all()
    assert (np.diff(model.values) >= 0).all()
    assert ensemble.explain(X[[0]], column=0).probability == pytest.approx(
        float(ensemble.predict_proba(X[[0]])[0, 0]), abs=1e-5
    )


def test_an_ensemble_is_saved_as_one_folder(ensemble, tmp_path):
    X, _ = data(seed=1)
    ensemble.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    assert isinstance(loaded.model_, EnsembleModel)
    assert [type(each) for each in loaded.members] == [lt.OneVsAll, lt.OneVsAll, lt.Mach]
    assert loaded.members[1].get_params()["positive_weight"] == 10.0
    np.testing.assert_array_equal(loaded.predict_topk(X, 4).labels, ensemble.predict_topk(X, 4).labels)
    np.testing.assert_array_equal(loaded.predict(X).toarray(), ensemble.predict(X).toarray())


def test_an_ensemble_explains(ensemble):
    X, _ = data(seed=1)
    label = int(ensemble.predict_topk(X[[0]], 1).labels[0, 0])
    explanation = ensemble.explain(X[[0]], column=label)
    top = ensemble.predict_topk(X[[0]], 1)
    assert explanation.score == pytest.approx(float(top.scores[0, 0]), abs=1e-4)
    assert explanation.probability == pytest.approx(float(top.probabilities[0, 0]), abs=1e-4)
    total = explanation.bias + sum(part.contribution for part in explanation.contributions)
    assert total == pytest.approx(explanation.score)
    assert explanation.contributions


def test_rules_of_an_ensemble(ensemble):
    X, _ = data(seed=1)
    try:
        ensemble.set_rules(deny=["label 0"], offsets={"label 5": 50.0})
        names = ensemble.classes_[ensemble.predict_topk(X, 12).labels]
        assert "label 0" not in names
        assert (names[:, 0] == "label 5").all()
        assert names.shape[1] == 11
        rare = int(np.argmin(ensemble.model_.frequencies[0]))
        ensemble.set_rules()
        before = (ensemble.predict_topk(X, 3).labels == rare).sum()
        ensemble.set_rules(tail_boost=3.0)
        assert (ensemble.predict_topk(X, 3).labels == rare).sum() > before
    finally:
        ensemble.set_rules()


def test_candidates_are_the_union_of_the_members_best_labels(ensemble):
    X, _ = data(20, seed=1)
    found = ensemble.model_.index.candidates(X, 2).labels
    members = [ensemble.model_.members[m] for m in ensemble.model_.mixture.used]
    for i, row in enumerate(found):
        expected = {label for member in members for label in member._best(X[[i]], 2).labels[0].tolist()}
        assert set(row[row >= 0].tolist()) == expected
        assert len(set(row[row >= 0])) == (row >= 0).sum()


def test_an_ensemble_of_fitted_estimators(calibrated):
    X, y = data()
    other = lt.OneVsAll(C=0.1, calibrate="held-out", n_jobs=1).fit(X, y)
    equal = lt.Ensemble.of([calibrated, other])
    np.testing.assert_allclose(equal.model_.weights, 0.5)
    fitted = lt.Ensemble.of([calibrated, other], *data(seed=3))
    assert fitted.model_.thresholds is not None
    assert fitted.predict(X).shape == (300, 12)
    with pytest.raises(InputError, match="must be calibrated"):
        lt.Ensemble.of([calibrated, lt.OneVsAll(n_jobs=1).fit(X, y)])


def test_equal_weights_average_the_linear_predictors(calibrated):
    X, _ = data(seed=1)
    other = lt.OneVsAll(C=0.1, calibrate="held-out", n_jobs=1).fit(*data())
    model = replace(lt.Ensemble.of([calibrated, other]).model_, depth=12)  # so that all labels are candidates
    expected = 0.0
    for member in model.members:
        c = member.calibrator
        s = member.scores(X, np.arange(12)).astype(np.float64)
        ranks = np.argsort(np.argsort(-s, axis=1, kind="stable"), axis=1) + 1
        a, b, f, d, e = c.coefficients
        z = a + b * s + f * np.log1p(c.counts) + d * np.log(ranks + c.rank_offset) + e * s.max(axis=1, keepdims=True)
        expected = expected + z / 2
    np.testing.assert_allclose(model.scores(X, np.arange(12)), expected, atol=1e-4)


class OneFold(NamedTuple):
    """A fold with one member. The right label has this place in its list, and the best score of the ensemble."""

    place: int
    Y: sp.csr_array

    def joint(self, depth: int) -> Joint:
        label = np.tile(np.arange(depth), 40)
        hit = label == self.place
        s = np.where(hit, 5.0, -5.0)[:, None] + np.random.default_rng(0).normal(size=(len(hit), 1))
        return Joint(s, np.full(s.shape, 5.0), label[:, None] + 1, np.ones(1), np.ones(len(hit)), hit)

    def top(self, mixture: Mixture, depth: int, n_jobs: int | None) -> TopK:
        assert mixture.margin.shape == (1, 1)
        label = np.array(sorted(range(depth), key=lambda label: label != self.place), np.int32)
        return TopK(np.tile(label, (40, 1)), np.where(np.tile(label, (40, 1)) == self.place, 5.0, -5.0))


@pytest.mark.parametrize(("place", "depth"), [(2, 5), (7, 10), (15, 20)])
def test_the_lists_of_members_are_as_long_as_held_out_rows_need(place, depth):
    truth = sp.csr_array((np.ones(40), (np.arange(40), np.full(40, place))), shape=(40, 20))
    combination, top = _combined([OneFold(place, truth)], 20, None)
    assert (combination.depth, combination.mixture.margin[0, 0] > 0, top.labels.shape) == (depth, True, (40, 20))
    assert (top.labels[:, 0] == place).all()
    assert (top.probabilities[:, 0] > 0.9).all()
    assert (top.probabilities[:, 1:] < 0.1).all()


def test_rows_without_right_candidates_give_equal_weights(calibrated):
    members = (calibrated.model_, calibrated.model_)
    X, _ = data(seed=3)
    nothing = sp.csr_array((X.shape[0], 12), dtype=np.float32)
    combination, _ = _combined([Fold(members, X, nothing, np.ones(12, bool))], 5, 1)
    average = Mixture.average([member.calibrator for member in members])
    for found, wanted in zip(combination.mixture.lines, average.lines, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_fold_sees_what_members_score(ensemble):
    X, _ = data(50, seed=3)
    members = ensemble.model_.members
    Y = sp.csr_array(np.random.default_rng(0).random((50, 12)) < 0.2).astype(np.float32)
    allowed = np.arange(12) != 4
    joint = Fold(members, X, Y, allowed).joint(12)
    assert len(joint.hit) == 50 * 11
    for m, member in enumerate(members):
        scores = member.scores(X, np.arange(12)).astype(np.float64)
        s = np.log(np.maximum(scores, 1e-30)) if member.calibrator.log_scores else scores
        np.testing.assert_allclose(np.sort(joint.margin[:, m]), np.sort(s[:, allowed].ravel()), atol=1e-5)
        np.testing.assert_allclose(joint.best[:, m], np.repeat(s.max(axis=1), 11), rtol=1e-5)
    assert joint.hit.sum() == Y[:, allowed].sum()
    assert joint.rank.max() == 12


def test_labels_that_are_rare_because_rows_were_held_out_are_left_out():
    rows_of_label = [2] * 10 + [6] * 5  # no label has a single row
    column = np.repeat(np.arange(15), rows_of_label)
    Y = sp.csr_array((np.ones(50), (np.arange(50), column)), shape=(50, 15))
    mask = np.zeros(50, bool)
    mask[[0, 2, 3, 20, 21]] = True  # label 0 keeps 1 row, label 1 none, label 10 keeps 4
    assert eligible(Y, mask).tolist() == [False, False] + [True] * 13
    some = sp.csr_array(np.eye(4)[[0, 1, 2, 3, 3, 3]])  # labels with a single row are usual
    assert eligible(some, np.array([False, False, False, True, True, False])).all()


@pytest.mark.parametrize("members", [[], ["one-vs-all"], [lt.OneVsAll(C=-1)]])
def test_impossible_members_are_refused(members):
    with pytest.raises(InputError):
        lt.Ensemble(members).fit(*data(50))


def test_a_folder_with_unknown_members_is_refused(ensemble, tmp_path, monkeypatch):
    ensemble.save(tmp_path / "model")
    monkeypatch.delitem(METHODS, "mach")
    with pytest.raises(ModelError, match="members"):
        lt.load(tmp_path / "model")
