"""Calibrators, thresholds, rules and ensembles on disk: round trips, and sealed folders with wrong content."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import ModelError
from longtail.models import Calibrator, EnsembleModel, LinearModel, Mixture, Rules, Thresholds
from longtail.models.calibrator import Coefficients
from longtail.store import read_model
from tests.store.forge import Forgery
from tests.store.samples import hashed_model, plain_model, save


def calibrator(n_labels: int = 4) -> Calibrator:
    return Calibrator(
        Coefficients(-1.0, 2.0, 0.5, -0.25, -0.5),
        knots=np.array([-3.0, 0.0, 2.5]),
        values=np.array([0.01, 0.4, 0.9]),
        counts=np.arange(n_labels),
        n_samples=50,
        log_scores=n_labels == 7,
        depth=3,
        rank_offset=1.5,
    )


def decided() -> LinearModel:
    return replace(
        plain_model(),
        calibrator=calibrator(),
        thresholds=Thresholds("macro-f1:by=label", np.array([0.1, 0.2, np.inf, -np.inf]), depth=3, figures={"f1": 0.5}),
        rules=Rules(np.array([0.0, -np.inf, 1.5, 0.0], np.float32)),
    )


def ensemble(mixture: Mixture | None = None) -> EnsembleModel:
    members = (replace(plain_model(), calibrator=calibrator()), replace(plain_model(1), calibrator=calibrator()))
    points = {"knots": np.array([-1.0, 0.5, 2.0]), "values": np.array([0.1, 0.1, 0.8])}
    return EnsembleModel(members, mixture or lines(), 3, 5, **points)


def lines() -> Mixture:
    margin = np.array([[0.7, 0.4, 0.0], [0.1, 0.2, 0.3]])
    return Mixture(np.array([0.0, 1.0, 2.5]), margin - 0.4, margin, -margin, 1 - margin)


def earlier() -> Mixture:
    """The mixture of a folder of an earlier version."""
    return Mixture.calibrated([calibrator(), calibrator()], np.array([0.7, 0.4]), -0.1)


def test_everything_comes_back(tmp_path):
    found, _ = read_model(save(tmp_path, decided()))
    wanted = decided()
    assert found.calibrator.coefficients == wanted.calibrator.coefficients
    for name in ("knots", "values", "counts"):
        np.testing.assert_array_equal(getattr(found.calibrator, name), getattr(wanted.calibrator, name))
    assert (found.calibrator.n_samples, found.calibrator.log_scores, found.calibrator.depth) == (50, False, 3)
    assert found.calibrator.rank_offset == 1.5
    np.testing.assert_array_equal(found.thresholds.limits, wanted.thresholds.limits)
    assert (found.thresholds.target, found.thresholds.depth) == ("macro-f1:by=label", 3)
    assert (found.thresholds.per_row, found.thresholds.figures) == (None, {"f1": 0.5})
    np.testing.assert_array_equal(found.rules.offsets, wanted.rules.offsets)


def test_a_calibrator_of_an_earlier_version_has_no_rank_offset(tmp_path):
    forgery = Forgery(save(tmp_path, decided()))
    coefficients = forgery.meta["calibrator"]["coefficients"]
    coefficients["rank"] = coefficients.pop("offset_rank")
    del forgery.meta["calibrator"]["rank_offset"]
    forgery.seal()
    found = read_model(tmp_path)[0].calibrator
    assert (found.rank_offset, found.coefficients) == (0.0, calibrator().coefficients)


def test_one_threshold_and_a_number_per_row(tmp_path):
    for thresholds in (Thresholds("fixed:value=0.2", np.array(0.2)), Thresholds("top:k=3", np.array(-np.inf), 3)):
        found, _ = read_model(save(tmp_path / thresholds.target[:3], replace(plain_model(), thresholds=thresholds)))
        assert found.thresholds.limits.shape == ()
        assert (float(found.thresholds.limits), found.thresholds.per_row) == (
            float(thresholds.limits),
            thresholds.per_row,
        )


def test_a_model_without_decisions_has_none(tmp_path):
    found, _ = read_model(save(tmp_path, plain_model()))
    assert (found.calibrator, found.thresholds, found.rules) == (None, None, None)


def test_an_ensemble_comes_back(tmp_path):
    found, _ = read_model(save(tmp_path / "linear", ensemble()))
    for name in ("knots", "intercept", "margin", "rank", "best"):
        np.testing.assert_array_equal(getattr(found.mixture, name), getattr(lines(), name))
    assert (found.mixture.curved, found.depth, len(found.members)) == (None, 3, 2)
    np.testing.assert_array_equal(found.knots, [-1.0, 0.5, 2.0])
    np.testing.assert_array_equal(found.values, [0.1, 0.1, 0.8])
    for member, wanted in zip(found.members, ensemble().members, strict=True):
        np.testing.assert_array_equal(member.W.toarray(), wanted.W.toarray())
        assert member.calibrator.coefficients == wanted.calibrator.coefficients
    hashed = replace(hashed_model(), calibrator=calibrator(7), label_names=None, multiclass=False)
    average = Mixture.average([hashed.calibrator])
    mixed, _ = read_model(save(tmp_path / "hashed", EnsembleModel((hashed,), average, 2, 4)))
    assert mixed.members[0].calibrator.log_scores


def test_an_ensemble_of_an_earlier_version_has_weights_and_an_intercept(tmp_path):
    forgery = Forgery(save(tmp_path, ensemble()))
    for name in ("knots", "intercept", "margin", "rank", "best"):
        forgery.entries.pop(f"mixture_{name}")
    forgery.put("member_weights", [0.7, 0.4], "<f8")
    forgery.meta["intercept"] = -0.1
    forgery.seal()
    found, _ = read_model(tmp_path)
    wanted = ensemble(earlier())
    np.testing.assert_allclose(found.weights, [0.7, 0.4])
    X = sp.csr_array(np.random.default_rng(0).random((3, 5)).astype(np.float32))
    assert found.predict_topk(X, 3) == wanted.predict_topk(X, 3)
    again, _ = read_model(save(tmp_path / "again", found))  # it stays as it was
    assert again.predict_topk(X, 3) == wanted.predict_topk(X, 3)


DAMAGE = {
    "coefficient of the wrong sign": (lambda f: f.meta["calibrator"]["coefficients"].update(margin=-1.0), "rise"),
    "coefficient missing": (
        lambda f: f.meta["calibrator"]["coefficients"].pop("offset_rank"),
        "'offset_rank' is missing",
    ),
    "coefficient a string": (
        lambda f: f.meta["calibrator"]["coefficients"].update(offset_rank="x"),
        "'offset_rank' is missing",
    ),
    "coefficient true": (
        lambda f: f.meta["calibrator"]["coefficients"].update(offset_rank=True),
        "'offset_rank' is missing",
    ),
    "coefficient huge": (
        lambda f: f.meta["calibrator"]["coefficients"].update(margin=10**400),
        "'margin' is missing or of the wrong type",
    ),
    "knots fall": (lambda f: f.edit("calibrator_knots", lambda a: a[::-1].copy()), "knots do not rise"),
    "knots NaN": (lambda f: f.put("calibrator_knots", [0.0, np.nan, 1.0], "<f8"), "knots do not rise"),
    "no knots": (lambda f: f.put("calibrator_knots", [], "<f8"), "0 knots"),
    "values above 1": (lambda f: f.put("calibrator_values", [0.0, 0.5, 1.5], "<f8"), "rising probabilities"),
    "values of another type": (lambda f: f.put("calibrator_values", [0.0, 0.5, 1.0], "<f4"), "calibrator_values"),
    "counts too few": (lambda f: f.put("calibrator_counts", [1, 2], "<i8"), "2 numbers for 4 labels"),
    "counts negative": (lambda f: f.put("calibrator_counts", [1, 2, -3, 0], "<i8"), "training rows"),
    "counts gone": (lambda f: f.entries.pop("calibrator_counts"), "calibrator_counts"),
    "rank offset a word": (lambda f: f.meta["calibrator"].update(rank_offset="x"), "'rank_offset' is missing"),
    "rank offset negative": (lambda f: f.meta["calibrator"].update(rank_offset=-1.0), "rank offset"),
    "depth 0": (lambda f: f.meta["calibrator"].update(depth=0), "depth"),
    "depth huge": (lambda f: f.meta["calibrator"].update(depth=2**62), "depth"),
    "calibrator a list": (lambda f: f.meta.update(calibrator=[1]), "'calibrator' is of the wrong type"),
    "limits too few": (lambda f: f.put("threshold_limits", [0.5], "<f8"), "1 numbers for 4 labels"),
    "limits NaN": (lambda f: f.put("threshold_limits", [0.5, np.nan, 0.1, 0.2], "<f8"), "NaN"),
    "per_row negative": (lambda f: f.meta["thresholds"].update(per_row=-1), "per_row"),
    "figures a list": (lambda f: f.meta["thresholds"].update(figures=[]), "figures"),
    "target a number": (lambda f: f.meta["thresholds"].update(target=3), "target"),
    "offsets too many": (lambda f: f.put("rule_offsets", np.zeros(5), "<f4"), "5 numbers for 4 labels"),
    "offsets NaN": (lambda f: f.put("rule_offsets", [0, np.nan, 0, 0], "<f4"), "offsets"),
    "offsets infinite": (lambda f: f.put("rule_offsets", [0, np.inf, 0, 0], "<f4"), "offsets"),
    "all denied": (lambda f: f.put("rule_offsets", np.full(4, -np.inf), "<f4"), "no label"),
}
ENSEMBLE_DAMAGE = {
    "knots of the mixture fall": (lambda f: f.put("mixture_knots", [0.0, 2.0, 1.0], "<f8"), "knots do not rise"),
    "knots of the mixture NaN": (lambda f: f.put("mixture_knots", [0.0, np.nan, 1.0], "<f8"), "knots do not rise"),
    "knots of the mixture too few": (lambda f: f.put("mixture_knots", [0.0, 1.0], "<f8"), "shapes"),
    "no knots of the mixture": (lambda f: f.put("mixture_knots", [], "<f8"), "shapes"),
    "coefficients of one member": (lambda f: f.put("mixture_rank", np.zeros((1, 3)), "<f8"), "shapes"),
    "coefficients in a row": (lambda f: f.put("mixture_best", np.zeros(6), "<f8"), "mixture_best"),
    "coefficients NaN": (lambda f: f.put("mixture_intercept", np.full((2, 3), np.nan), "<f8"), "not a number"),
    "coefficients infinite": (lambda f: f.put("mixture_margin", np.full((2, 3), np.inf), "<f8"), "not a number"),
    "coefficients gone": (lambda f: f.entries.pop("mixture_rank"), "mixture_rank"),
    "margin negative": (lambda f: f.put("mixture_margin", np.full((2, 3), -0.1), "<f8"), "rise with the score"),
    "rank positive": (lambda f: f.put("mixture_rank", np.full((2, 3), 0.1), "<f8"), "rise with the score"),
    "best too negative": (lambda f: f.put("mixture_best", np.full((2, 3), -0.8), "<f8"), "rise with the score"),
    "no mixture": (lambda f: f.entries.pop("mixture_knots"), "member_weights"),
    "coefficients for one member": (lambda f: shorten(f), "coefficients for 1"),
    "members a number": (lambda f: f.meta.update(members=3), "members"),
    "no members": (lambda f: f.meta.update(members=[]), "members"),
    "members of words": (lambda f: f.meta.update(members=["linear"]), "members"),
    "member of an unknown kind": (lambda f: f.meta["members"][0].update(model="ensemble"), "kind"),
    "member without calibrator": (lambda f: f.meta["members"][0].update(calibrator=None), "must be calibrated"),
    "depth a word": (lambda f: f.meta.update(depth="deep"), "depth"),
    "knots that fall": (lambda f: f.put("ensemble_knots", [0.5, 0.1, 2.0], "<f8"), "knots do not rise"),
    "values above 1": (lambda f: f.put("ensemble_values", [0.1, 0.2, 1.5], "<f8"), "not rising probabilities"),
    "knots without values": (lambda f: f.entries.pop("ensemble_values"), "need values"),
    "weights of a member gone": (lambda f: f.entries.pop("member1_W_data"), "W_data"),
    "bias of a member infinite": (lambda f: f.meta["members"][0].update(bias=float("1e999")), "."),
}


EARLIER_DAMAGE = {
    "weights negative": (lambda f: f.put("member_weights", [0.5, -0.1], "<f8"), "not negative"),
    "weights too few": (lambda f: f.put("member_weights", [0.5], "<f8"), "one weight per member"),
    "weights NaN": (lambda f: f.put("member_weights", [0.5, np.nan], "<f8"), "not negative"),
    "intercept missing": (lambda f: f.meta.pop("intercept"), "intercept"),
    "intercept huge": (lambda f: f.meta.update(intercept=1e300), "shift"),
    "member without calibrator": (lambda f: f.meta["members"][0].update(calibrator=None), "."),
}


def shorten(forgery: Forgery) -> None:
    """Keep the coefficients of the first member only."""
    for name in ("intercept", "margin", "rank", "best"):
        forgery.put(f"mixture_{name}", getattr(lines(), name)[:1], "<f8")


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_decisions_are_refused(name, tmp_path):
    damage, message = DAMAGE[name]
    forgery = Forgery(save(tmp_path, decided()))
    damage(forgery)
    forgery.seal()
    with pytest.raises(ModelError, match=message):
        read_model(tmp_path)


@pytest.mark.parametrize("name", ENSEMBLE_DAMAGE)
def test_damaged_ensembles_are_refused(name, tmp_path):
    damage, message = ENSEMBLE_DAMAGE[name]
    forgery = Forgery(save(tmp_path, ensemble()))
    damage(forgery)
    forgery.seal()
    with pytest.raises(ModelError, match=message):
        read_model(tmp_path)


@pytest.mark.parametrize("name", EARLIER_DAMAGE)
def test_damaged_ensembles_of_earlier_versions_are_refused(name, tmp_path):
    damage, message = EARLIER_DAMAGE[name]
    forgery = Forgery(save(tmp_path, ensemble(earlier())))
    damage(forgery)
    forgery.seal()
    with pytest.raises(ModelError, match=message):
        read_model(tmp_path)
